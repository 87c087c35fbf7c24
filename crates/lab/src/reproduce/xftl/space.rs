//! The figure `space`: size by FTL by file system, and where each of the paper's claims holds.
//!
//! Nothing here is one setting's result. Every cell is a device of some size, with some FTL; in it
//! stand WAL on several file systems, the rollback journal, and X-FTL in two ways.

use comfy_table::Table;
use serde::Serialize;

use super::controllers::{Controller, Flush, MapTo};
use super::recovered::SLIDE;
use super::region::{self, Point, Spread};
use super::restart::{Restarted, groups};
use super::targets::{DOUBLED, HALVED, TO_ROLLBACK, TO_WAL};
use super::text::table;
use super::trial::{COUNTER_WRITTEN, Compared, Ran, SQLITE, WRITTEN};
use crate::reproduce::outcome::Stated;

/// A device of the space, and the ratios in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    pub host_mib: u32,
    pub controller: Controller,
    /// X-FTL's milliseconds a transaction, as in its paper.
    pub xftl_ms: f64,
    /// Pages that the host reads from the device a transaction.
    pub xftl_reads: f64,
    /// The same with lazy writes of the change counter: ours.
    pub lazy_ms: f64,
    pub lazy_reads: f64,
    /// The other systems: name, and their times and pages of the host to those of X-FTL as in its
    /// paper.
    pub others: Vec<Other>,
}

/// A system next to X-FTL. All but the ratios are of the first seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Other {
    pub mode: &'static str,
    pub ms: f64,
    /// Pages that the host reads from the device a transaction.
    pub reads: f64,
    /// To X-FTL's, by the seed: a run's ratio is to the run with the same seed.
    pub ratios: Vec<Ratios>,
}

/// A system's figures divided by X-FTL's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratios {
    pub seed: u64,
    pub time: f64,
    pub host_writes: f64,
    /// Of blocks that were used up ([`Ran::used_blocks`]).
    pub erases: f64,
}

/// One of the ratios.
type Ratio = fn(&Ratios) -> f64;
const TIME: Ratio = |ratios| ratios.time;
const HOST: Ratio = |ratios| ratios.host_writes;
const ERASES: Ratio = |ratios| ratios.erases;

impl Other {
    fn each(&self, ratio: Ratio) -> Vec<f64> {
        self.ratios.iter().map(ratio).collect()
    }

    /// The median of the seeds.
    fn median(&self, ratio: Ratio) -> f64 {
        region::median(&self.each(ratio))
    }

    /// The median, and the range of several seeds.
    fn shown(&self, ratio: Ratio) -> String {
        let each = self.each(ratio);
        let least = each.iter().copied().fold(f64::INFINITY, f64::min);
        let most = each.iter().copied().fold(0.0, f64::max);
        let median = self.median(ratio);
        match each.len() {
            0 | 1 => format!("{median:.2}"),
            _ => format!("{median:.2} ({least:.2} to {most:.2})"),
        }
    }
}

/// Seeds of a device near a claim's edge, unless the user sets the number.
pub const SEEDS: u32 = 4;

/// The systems that the claims compare. Others are not run with more seeds.
pub const JUDGED: [Compared; 3] = [SQLITE[0], SQLITE[1], COUNTER_WRITTEN];

/// The claims of a cell: the other system, its ratio, the paper's and the spread between seeds.
const CLAIMS: [(&str, Ratio, Stated, Spread); 4] = [
    ("WAL", TIME, TO_WAL, region::TIMES),
    ("rollback journal", TIME, TO_ROLLBACK, region::TIMES),
    ("WAL", HOST, HALVED, region::PAGES),
    ("WAL", ERASES, DOUBLED, region::ERASES),
];

/// The devices on which one seed does not decide each claim: MiB for the host, and the setting.
pub fn at_an_edge(cells: &[Cell]) -> Vec<(u32, Controller)> {
    let is_at_edge = |cell: &&Cell| {
        let mut claims = CLAIMS.iter();
        claims.any(|(mode, ratio, stated, spread)| {
            let point = cell.point(mode, *ratio);
            point.is_some_and(|point| point.is_undecided(*stated, *spread))
        })
    };
    let devices = cells.iter().filter(is_at_edge);
    devices
        .map(|cell| (cell.host_mib, cell.controller))
        .collect()
}

impl Cell {
    fn other(&self, mode: &str) -> Option<&Other> {
        self.others.iter().find(|other| other.mode == mode)
    }

    fn point(&self, mode: &str, ratio: Ratio) -> Option<Point> {
        Some(Point {
            host_mib: self.host_mib,
            ftl: self.controller.ftl_name(),
            figures: self.other(mode)?.each(ratio),
        })
    }

    fn name(&self) -> String {
        format!("{} MiB, {}", self.host_mib, self.controller.ftl_name())
    }

    /// Whether its FTL writes no more than what has changed, as FTLs do today.
    fn is_today(&self) -> bool {
        self.controller.flush != Flush::Whole && self.controller.map == MapTo::Striped
    }
}

pub const FOOT: &str = "\
Reads are pages that the host reads from the device. Transactional files have no page cache, so the counter that SQLite looks at \
before each transaction, and a log's unaligned frames, are read from flash; ext4 has them in memory.
";

/// The cells of these runs.
pub fn cells(ran: &[Ran]) -> Vec<Cell> {
    let of_space = || ran.iter().filter(|one| one.figure == "space");
    let written = || of_space().filter(|one| one.mode == WRITTEN);
    written()
        .filter_map(|xftl| {
            let same = || of_space().filter(|other| xftl.is_counterpart(other));
            // Only the first seed of a device has it.
            let lazy = same().find(|other| other.mode == "X-FTL")?;
            let others = same().filter(|other| !other.is_xftl()).map(|other| {
                let seeds = written().filter(|one| xftl.is_on_device_of(one));
                let ratios = seeds.filter_map(|xftl| {
                    let mut same = of_space().filter(|one| one.mode == other.mode);
                    same.find(|one| xftl.is_counterpart(one))
                        .map(|one| Ratios::of(one, xftl))
                });
                Other {
                    mode: other.mode,
                    ms: other.ms_per_transaction,
                    reads: other.each(other.host_reads),
                    ratios: ratios.collect(),
                }
            });
            Some(Cell {
                host_mib: xftl.fullness.host_mib,
                controller: xftl.controller,
                xftl_ms: xftl.ms_per_transaction,
                xftl_reads: xftl.each(xftl.host_reads),
                lazy_ms: lazy.ms_per_transaction,
                lazy_reads: lazy.each(lazy.host_reads),
                others: others.collect(),
            })
        })
        .collect()
}

impl Ratios {
    fn of(other: &Ran, xftl: &Ran) -> Self {
        let each = |of: fn(&Ran) -> f64, one: &Ran| of(one) / f64::from(one.transactions.max(1));
        let ratio = |of: fn(&Ran) -> f64| each(of, other) / each(of, xftl).max(1e-12);
        Self {
            seed: xftl.seed,
            time: other.ms_per_transaction / xftl.ms_per_transaction.max(1e-12),
            host_writes: ratio(|one| one.host_writes as f64),
            erases: ratio(|one| one.used_blocks),
        }
    }
}

/// The range of a figure over cells: `2.1 (where) to 9.8 (where)`.
fn range<'a>(
    cells: impl Iterator<Item = &'a Cell>,
    figure: impl Fn(&Cell) -> Option<f64>,
) -> String {
    let known = cells.filter_map(|cell| Some((figure(cell)?, cell)));
    let known: Vec<(f64, &Cell)> = known.collect();
    let by = |a: &&(f64, &Cell), b: &&(f64, &Cell)| a.0.total_cmp(&b.0);
    let ends = known.iter().min_by(by).zip(known.iter().max_by(by));
    ends.map_or_else(
        || "not run".to_owned(),
        |(low, high)| {
            format!(
                "{:.2} ({}) to {:.2} ({})",
                low.0,
                low.1.name(),
                high.0,
                high.1.name()
            )
        },
    )
}

/// Where a claim holds.
fn region(
    cells: &[Cell],
    (mode, ratio, stated, spread): (&'static str, Ratio, Stated, Spread),
) -> String {
    let points = cells.iter().filter_map(|cell| cell.point(mode, ratio));
    region::told(&points.collect::<Vec<_>>(), stated, spread)
}

/// The head of [`claims`].
pub const HEAD: &str = "X-FTL as in its paper (the change counter is written) is so many times as fast, by size and FTL:";

/// A sentence for each claim, with the devices of today first.
pub fn claims(cells: &[Cell]) -> Vec<String> {
    let of = |mode: &'static str, ratio: Ratio| {
        move |cell: &Cell| cell.other(mode).map(|other| other.median(ratio))
    };
    let time = |mode| of(mode, TIME);
    let [to_wal, to_rollback, halved, doubled] = CLAIMS;
    let (host, erases) = (of("WAL", HOST), of("WAL", ERASES));
    let today = || cells.iter().filter(|cell| cell.is_today());
    let mut claims = Vec::new();
    for claim in [to_wal, to_rollback] {
        let (mode, _, stated, _) = claim;
        claims.extend([
            format!(
                "as {mode}, where a flush writes what has changed or less, as FTLs do today: {}",
                range(today(), time(mode))
            ),
            format!(
                "as {mode}, in all of the space: {}",
                range(cells.iter(), time(mode))
            ),
            format!(
                "the paper's {} (a tenth more or less) {}",
                stated.amount,
                region(cells, claim)
            ),
        ]);
    }
    claims.extend([
        format!(
            "WAL's host writes so many times as many pages: {}; the paper's {} {}",
            range(cells.iter(), host),
            HALVED.amount,
            region(cells, halved)
        ),
        format!(
            "WAL erases so many times as often (the life of the flash), on FTLs as they are today: {}; in all of \
             the space: {}",
            range(today(), erases),
            range(cells.iter(), erases)
        ),
        format!(
            "the paper's doubled life ({} times as many erases, or more) {}",
            DOUBLED.amount,
            region(cells, doubled)
        ),
    ]);
    claims
}

/// The claim of a short restart: SQLite's part of the medians. It says nothing of devices on which
/// the figure restart was not run.
pub fn restart_claims(restarts: &[Restarted]) -> Vec<String> {
    let groups = groups(restarts);
    let paper = |mode: &str| {
        let group = groups.iter().find(|group| group.mode == mode);
        group.and_then(|group| group.median()?.paper_ms)
    };
    let claim = |mode: &'static str| {
        let others = groups.iter().filter(|group| group.mode == mode);
        let points = others.filter_map(|other| {
            let is_it = |group: &&_| other.is_on_device_of(group);
            let xftl = groups
                .iter()
                .filter(is_it)
                .find(|one| one.mode == "X-FTL")?;
            let ms = other.spread(|one| one.sqlite_ms).0;
            Some(Point {
                host_mib: other.fullness.host_mib,
                ftl: other.controller.ftl_name(),
                figures: vec![ms / xftl.spread(|one| one.sqlite_ms).0.max(1e-12)],
            })
        });
        let points: Vec<Point> = points.collect();
        let stated = Stated::about(paper(mode)? / paper("X-FTL")?, SLIDE);
        let of_mode = || groups.iter().filter(|group| group.mode == mode);
        if of_mode().any(|group| group.cuts() < 2) {
            return Some(format!(
                "SQLite's restart after one power cut has no spread, so nothing is decided against {mode}"
            ));
        }
        let spread = Spread {
            factor: of_mode().map(|group| group.factor()).fold(1.0, f64::max),
            between: "power cuts",
        };
        (!points.is_empty()).then(|| {
            format!(
                "SQLite restarts after a power cut so many times as fast as with {mode}: the paper's {:.1} {}; other \
                 devices were not run",
                stated.amount,
                region::told(&points, stated, spread)
            )
        })
    };
    ["rollback journal", "WAL"]
        .into_iter()
        .filter_map(claim)
        .collect()
}

/// The claims and the table; empty without cells.
pub fn text(cells: &[Cell]) -> String {
    if cells.is_empty() {
        return String::new();
    }
    let claims: String = claims(cells)
        .iter()
        .map(|claim| format!("- {claim}\n"))
        .collect();
    format!("{HEAD}\n{claims}{}\n{FOOT}", cells_table(cells))
}

pub fn cells_table(cells: &[Cell]) -> Table {
    let mut table = table(
        &[
            "device",
            "system",
            "ms/transaction",
            "reads",
            "time to X-FTL",
            "host pages",
            "erases",
        ],
        2,
    );
    for cell in cells {
        let mut row = |mode: &str, ms: f64, reads: f64, ratios: Option<&Other>| {
            let ratio = |of| ratios.map_or_else(String::new, |other| other.shown(of));
            table.add_row([
                cell.name(),
                mode.to_owned(),
                format!("{ms:.2}"),
                format!("{reads:.2}"),
                ratio(TIME),
                ratio(HOST),
                ratio(ERASES),
            ]);
        };
        row(WRITTEN, cell.xftl_ms, cell.xftl_reads, None);
        row(
            "X-FTL, counter lazy (ours)",
            cell.lazy_ms,
            cell.lazy_reads,
            None,
        );
        cell.others
            .iter()
            .for_each(|other| row(other.mode, other.ms, other.reads, Some(other)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::controllers::{BOARD, Ftl};
    use super::super::recovered::tests::restarted;
    use super::super::targets::tests::ran;
    use super::*;

    /// WAL erases as many times as often as it takes times as long.
    fn cell(host_mib: u32, controller: Controller, wal: f64) -> Cell {
        Cell {
            host_mib,
            controller,
            xftl_ms: 3.0,
            xftl_reads: 3.0,
            lazy_ms: 2.8,
            lazy_reads: 0.0,
            others: vec![Other {
                mode: "WAL",
                ms: 3.0 * wal,
                reads: 1.0,
                ratios: vec![Ratios {
                    seed: 1,
                    time: wal,
                    host_writes: 1.64,
                    erases: wal,
                }],
            }],
        }
    }

    #[test]
    fn a_restart_s_claim_is_of_the_devices_that_were_run_alone() {
        let of_a_cut = || {
            [
                restarted("WAL", 150.0, Some(153.0)),
                restarted("X-FTL", 3.4, Some(3.5)),
            ]
        };
        let told = restart_claims(&of_a_cut());
        assert!(told[0].contains("has no spread"), "{told:?}");
        let told = restart_claims(&[of_a_cut(), of_a_cut()].concat());
        assert_eq!(told.len(), 1, "{told:?}");
        let expected = "the paper's 43.7 holds in: 128 MiB, 8 dies";
        assert!(told[0].contains(expected), "{told:?}");
        assert!(told[0].ends_with("were not run"), "{told:?}");
        assert!(restart_claims(&[]).is_empty());
    }

    /// Runs of a device with a seed: X-FTL 3 ms, and WAL and the rollback journal so many times that.
    fn seeded(seed: u64, controller: Controller, wal: f64) -> Vec<Ran> {
        let of = |mode, ms, host| Ran {
            figure: "space",
            seed,
            controller,
            used_blocks: ms * 100.0,
            ..ran(mode, ms, host, 1)
        };
        vec![
            of(WRITTEN, 3.0, 6),
            of("WAL", 3.0 * wal, 12),
            of("rollback journal", 3.0 * 50.0, 24),
        ]
    }

    #[test]
    fn a_device_near_an_edge_takes_more_seeds_and_each_is_compared_with_its_own() {
        let journal = Ftl::Journal.controller();
        let lazy = |controller| Ran {
            figure: "space",
            controller,
            ..ran("X-FTL", 2.8, 5, 1)
        };
        let first = |wal| {
            let first = [seeded(1, BOARD, wal), seeded(1, journal, 9.0)].concat();
            [first, vec![lazy(BOARD), lazy(journal)]].concat()
        };
        let edges = |wal| at_an_edge(&cells(&first(wal)));
        assert_eq!(edges(9.0), []);
        assert_eq!(edges(2.6), [(128, BOARD)]);
        let decided = |others: [f64; 2]| {
            let more = seeded(2, BOARD, others[0]);
            let all = [first(2.6), more, seeded(3, BOARD, others[1])].concat();
            let cells = cells(&all);
            assert_eq!(cells.len(), 2, "a cell for each device");
            let ratios = &cells[0].other("WAL").expect("WAL").ratios;
            let seeds: Vec<u64> = ratios.iter().map(|ratios| ratios.seed).collect();
            assert_eq!(seeds, [1, 2, 3]);
            claims(&cells)[2].clone()
        };
        let told = decided([2.5, 2.55]);
        assert!(told.contains("fails in 2 of 2"), "{told}");
        // Planted: a seed that has the paper's value.
        let told = decided([2.5, 3.1]);
        let expected = "Undecided, as its seeds differ, in: 128 MiB, 8 dies, whole map at flush (2.50 to 3.10, 3 seeds)";
        assert!(told.contains(expected), "{told}");
    }

    #[test]
    fn the_range_leads_and_a_claim_names_the_cells_that_have_it() {
        let journal = Ftl::Journal.controller();
        let cells = [
            cell(128, BOARD, 1.1),
            cell(512, BOARD, 3.25),
            cell(512, journal, 1.08),
        ];
        let text = text(&cells);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].contains("today: 1.08 (512 MiB") && lines[1].contains("to 1.08"),
            "{text}"
        );
        assert!(lines[2].contains("1.08 (512 MiB") && lines[2].contains("to 3.25 (512 MiB"));
        assert!(
            lines[3].contains("512 MiB") && !lines[3].contains("128 MiB"),
            "{text}"
        );
        let halved = lines
            .iter()
            .find(|line| line.contains("paper's 2 "))
            .unwrap();
        assert!(halved.contains("holds in no device"), "{halved}");
        assert!(lines[3].contains("fails in 2 of 3"), "{text}");
        let doubled = lines.iter().find(|line| line.contains("doubled life"));
        let doubled = doubled.expect("the claim");
        assert!(doubled.contains("512 MiB, 8 dies, whole"), "{doubled}");
        assert!(
            !doubled.contains("128 MiB") && !doubled.contains("journal"),
            "{doubled}"
        );
    }
}
