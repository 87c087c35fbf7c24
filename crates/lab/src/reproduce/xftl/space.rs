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
use super::trial::{Ran, WRITTEN};
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

/// A system next to X-FTL.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Other {
    pub mode: &'static str,
    pub ms: f64,
    /// Pages that the host reads from the device a transaction.
    pub reads: f64,
    pub time: f64,
    pub host_writes: f64,
    pub erases: f64,
}

impl Cell {
    fn other(&self, mode: &str) -> Option<&Other> {
        self.others.iter().find(|other| other.mode == mode)
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
    let written = of_space().filter(|one| one.mode == WRITTEN);
    written
        .filter_map(|xftl| {
            let same = || of_space().filter(|other| xftl.is_counterpart(other));
            let lazy = same().find(|other| other.mode == "X-FTL")?;
            let each = |count: fn(&Ran) -> u64, one: &Ran| one.each(count(one));
            let others = same().filter(|other| !other.is_xftl()).map(|other| {
                let ratio =
                    |count: fn(&Ran) -> u64| each(count, other) / each(count, xftl).max(1e-12);
                Other {
                    mode: other.mode,
                    ms: other.ms_per_transaction,
                    reads: other.each(other.host_reads),
                    time: other.ms_per_transaction / xftl.ms_per_transaction.max(1e-12),
                    host_writes: ratio(|one| one.host_writes),
                    erases: ratio(|one| one.erases),
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
    stated: Stated,
    spread: Spread,
    figure: impl Fn(&Cell) -> Option<f64>,
) -> String {
    let points = cells.iter().filter_map(|cell| {
        Some(Point {
            host_mib: cell.host_mib,
            ftl: cell.controller.ftl_name(),
            figure: figure(cell)?,
        })
    });
    region::told(&points.collect::<Vec<_>>(), stated, spread)
}

/// The head of [`claims`].
pub const HEAD: &str = "X-FTL as in its paper (the change counter is written) is so many times as fast, by size and FTL:";

/// A sentence for each claim, with the devices of today first.
pub fn claims(cells: &[Cell]) -> Vec<String> {
    let time = |mode: &'static str| move |cell: &Cell| cell.other(mode).map(|other| other.time);
    let host = |cell: &Cell| cell.other("WAL").map(|other| other.host_writes);
    let erases = |cell: &Cell| cell.other("WAL").map(|other| other.erases);
    let today = || cells.iter().filter(|cell| cell.is_today());
    let mut claims = Vec::new();
    for (mode, stated) in [("WAL", TO_WAL), ("rollback journal", TO_ROLLBACK)] {
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
                region(cells, stated, region::TIMES, time(mode))
            ),
        ]);
    }
    claims.extend([
        format!(
            "WAL's host writes so many times as many pages: {}; the paper's {} {}",
            range(cells.iter(), host),
            HALVED.amount,
            region(cells, HALVED, region::PAGES, host)
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
            region(cells, DOUBLED, region::ERASES, erases)
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
                figure: ms / xftl.spread(|one| one.sqlite_ms).0.max(1e-12),
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
            let ratio = |of: fn(&Other) -> f64| {
                ratios.map_or_else(String::new, |other| format!("{:.2}", of(other)))
            };
            table.add_row([
                cell.name(),
                mode.to_owned(),
                format!("{ms:.2}"),
                format!("{reads:.2}"),
                ratio(|other| other.time),
                ratio(|other| other.host_writes),
                ratio(|other| other.erases),
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
                time: wal,
                host_writes: 1.64,
                erases: wal,
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

    #[test]
    fn the_range_leads_and_a_claim_names_the_cells_that_have_it() {
        let journal = Ftl::Journal.controller();
        let cells = [
            cell(128, BOARD, 1.3),
            cell(512, BOARD, 3.1),
            cell(512, journal, 1.08),
        ];
        let text = text(&cells);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].contains("today: 1.08 (512 MiB") && lines[1].contains("to 1.08"),
            "{text}"
        );
        assert!(lines[2].contains("1.08 (512 MiB") && lines[2].contains("to 3.10 (512 MiB"));
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
