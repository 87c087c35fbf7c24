//! The grid: what each cell runs, and the patterns that select cells.
//!
//! A cell's name has five parts: `insert/steady/8t/emmc/4k`. A pattern has some of them from the
//! left; `*` stands for any: `insert`, `*/fresh/1t`.

use std::fmt;

use onewrite_cli::compare::warm_up;
use onewrite_workload::plan::{Op, Order, Plan};

/// The operations, in the order of the report.
const OPS: [Op; 14] = [
    Op::Insert,
    Op::Update,
    Op::Delete,
    Op::Indexed,
    Op::App,
    Op::Mail,
    Op::Messenger,
    Op::Message,
    Op::Sns,
    Op::Tpcc,
    Op::YcsbA,
    Op::YcsbB,
    Op::YcsbF,
    Op::Web,
];

/// The devices, and how many times fewer transactions and pages between checkpoints each gets: a
/// round on a slow device would take minutes.
const DEVICES: [(&str, u32); 5] = [
    ("none", 1),
    ("nvme", 1),
    ("emmc", 2),
    ("sd", 4),
    ("network", 10),
];

/// Page sizes in KiB.
const PAGES: [u32; 3] = [4, 8, 16];

/// Threads of each process, and processes.
const WORKERS: [(u32, u32); 4] = [(1, 1), (8, 1), (32, 1), (1, 8)];

/// SQLite's pages between two checkpoints.
const AUTOCHECKPOINT: u32 = 1000;

/// Readers of `web`.
const READERS: u32 = 8;

/// Frames that a run logs, about: two checkpoints and a half.
const FRAMES: u32 = 2500;

/// Transactions of a run at least, on a fast device.
const LEAST: u32 = 500;

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The operation of each transaction.
    pub op: Op,
    /// Whether the log is reused and the database larger than the cache.
    pub steady: bool,
    /// Threads of each process.
    pub threads: u32,
    /// Processes.
    pub processes: u32,
    /// The device's model.
    pub device: &'static str,
    /// How many times fewer transactions it gets.
    share: u32,
    /// The page size in KiB.
    pub page_kib: u32,
}

impl fmt::Display for Cell {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (row, column) = (self.row(), self.column());
        let page = row.2;
        write!(out, "{}/{}/{}/{}/{page}", row.0, row.1, column.1, column.0)
    }
}

impl Cell {
    /// Operation, state and page size.
    pub fn row(&self) -> (&'static str, &'static str, String) {
        let state = if self.steady { "steady" } else { "fresh" };
        (self.op.name(), state, format!("{}k", self.page_kib))
    }

    /// Device and workers.
    pub fn column(&self) -> (&'static str, String) {
        let workers = match self.processes {
            1 => format!("{}t", self.threads),
            processes => format!("{processes}p"),
        };
        (self.device, workers)
    }

    /// Pages between two checkpoints.
    pub fn autocheckpoint(&self) -> u32 {
        match self.steady {
            true => AUTOCHECKPOINT / self.share,
            false => 0,
        }
    }

    /// Its transactions, `count` of them if that is given.
    pub fn plan(&self, count: Option<u32>, seed: u64) -> Result<Plan, String> {
        let workers = self.threads * self.processes;
        let usual = (FRAMES / self.op.frames()).max(LEAST) / self.share;
        let plan = Plan {
            op: self.op,
            count: count.unwrap_or(usual).max(2 * workers),
            warm_up: 0,
            record_size: 100,
            updates: 5,
            warehouses: 1,
            order: Order::Id,
            seed,
            workers,
            readers: match self.op.has_readers() && self.processes == 1 {
                true => READERS,
                false => 0,
            },
            rate: None,
        };
        match self.steady {
            true => warm_up::sized(&plan, self.autocheckpoint()),
            false => Ok(plan),
        }
    }

    /// Whether a pattern selects it.
    fn is_of(&self, pattern: &str) -> bool {
        let name = self.to_string();
        let mut parts = name.split('/');
        pattern.split('/').all(|wanted| {
            parts
                .next()
                .is_some_and(|part| wanted == "*" || wanted == part)
        })
    }

    /// Whether it is in the short grid.
    fn is_quick(&self) -> bool {
        matches!(self.op, Op::Insert | Op::App)
            && matches!((self.threads, self.processes), (1 | 8, 1))
            && matches!(self.device, "none" | "emmc")
            && self.page_kib == 4
    }
}

/// All cells that these patterns select, or all of the grid without a pattern. An error names a
/// pattern that selects none.
pub fn cells(patterns: &[String], is_quick: bool) -> Result<Vec<Cell>, String> {
    let all: Vec<Cell> = grid()
        .into_iter()
        .filter(|cell| !is_quick || cell.is_quick())
        .collect();
    for pattern in patterns {
        if !all.iter().any(|cell| cell.is_of(pattern)) {
            return Err(format!(
                "--cells {pattern}: no cell has that name; a name is operation/state/workers/device/page, \
                 as insert/steady/8t/emmc/4k"
            ));
        }
    }
    let is_selected =
        |cell: &Cell| patterns.is_empty() || patterns.iter().any(|pattern| cell.is_of(pattern));
    Ok(all.into_iter().filter(is_selected).collect())
}

/// Every cell. A trace of a phone's application has one thread.
fn grid() -> Vec<Cell> {
    let mut cells = Vec::new();
    for op in OPS {
        for steady in [false, true] {
            for page_kib in PAGES {
                for (device, share) in DEVICES {
                    for (threads, processes) in WORKERS {
                        if op.trace_length().is_none() || threads * processes == 1 {
                            cells.push(Cell {
                                op,
                                steady,
                                threads,
                                processes,
                                device,
                                share,
                                page_kib,
                            });
                        }
                    }
                }
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(patterns: &[&str], is_quick: bool) -> Vec<String> {
        let patterns: Vec<String> = patterns.iter().map(|text| (*text).to_owned()).collect();
        let cells = cells(&patterns, is_quick).expect("cells");
        cells.iter().map(Cell::to_string).collect()
    }

    #[test]
    fn patterns_select_cells_by_their_parts() {
        // Ten operations with four kinds of workers, four with one; states, pages and devices.
        assert_eq!(names(&[], false).len(), (10 * 4 + 4) * 2 * 3 * 5);
        assert_eq!(names(&[], true).len(), 2 * 2 * 2 * 2);
        let one = "insert/steady/8t/emmc/4k";
        assert_eq!(names(&[one], false), [one]);
        assert_eq!(names(&["*/fresh/8p/network/16k"], false).len(), 10);
        assert_eq!(names(&["mail"], false).len(), 2 * 3 * 5);
        let error = cells(&["inserts".to_owned()], false).unwrap_err();
        assert!(error.contains("--cells inserts: no cell"), "{error}");
    }

    #[test]
    fn a_slow_device_gets_fewer_transactions_and_every_worker_has_some() {
        let plan = |name: &str| {
            let cells = cells(&[name.to_owned()], false).expect("a cell");
            cells[0].plan(None, 1).expect("a plan")
        };
        assert_eq!(plan("insert/fresh/1t/none/4k").count, 2500);
        assert_eq!(plan("insert/fresh/1t/network/4k").count, 250);
        assert_eq!(plan("app/fresh/32t/network/4k").count, 64);
        let steady = plan("insert/steady/1t/none/4k");
        assert!(steady.warm_up >= 2000 && steady.measured() == 2500);
        assert_eq!(plan("web/fresh/8p/none/4k").readers, 0);
        assert_eq!(plan("web/fresh/8t/none/4k").readers, 8);
    }
}
