//! Restarts next to slide 31's, "SQLite Restart Time": the rows, and what the pages that SQLite read
//! and programmed predict where they differ.
//!
//! SQLite's part alone is judged, from its opening to its first row, and by how much, so that too
//! large a ratio is told as well as too small a one. The mount and the FTL's part are rows that
//! nothing is compared with: the slide does not say that its times have them.

use super::restart::{Group, Restarted, groups};
use crate::reproduce::outcome::{
    Difference, Kind, Predicted, Reason, Row, Shown, Side, Stated, explain_by,
};

pub const SLIDE: &str = "slide 31: SQLite Restart Time";
/// The parts of a restart. SQLite's is compared with X-FTL's and with the rollback journal's.
const SQLITE: &str = "SQLite, to its first row";
const BY_ROLLBACK: &str = "SQLite, by the rollback journal's";
const MOUNT: &str = "mount";
const FTL: &str = "the FTL, from flash";
const WHOLE: &str = "all of it";

/// The mode with a journal that another's restart is compared with.
const ROLLBACK: &str = "rollback journal";

/// The figure of a restart that a reason predicts by.
type Work = fn(&Restarted) -> f64;

const COUNT: &str = "the pages that SQLite reads and programs, one after the other";
const REASONS: [Reason<Work>; 2] = [
    Reason {
        of: |_| true,
        side: Side::Above,
        sentence: "SQLite has more to read and program, compared, than on the paper's board.",
        count: COUNT,
        predict: Restarted::sqlite_work_ms,
    },
    Reason {
        of: |_| true,
        side: Side::Below,
        sentence: "SQLite has less to read and program, compared, than on the paper's board.",
        count: COUNT,
        predict: Restarted::sqlite_work_ms,
    },
];

/// The medians of restarts next to the paper's, one figure for each device.
pub fn restarts(restarts: &[Restarted]) -> Vec<Shown> {
    let groups = groups(restarts);
    let of_xftl = groups.iter().filter(|group| group.mode == "X-FTL");
    let shown = of_xftl.filter_map(|xftl| {
        let others = groups.iter().filter(|group| group.is_on_device_of(xftl));
        let others: Vec<&Group<'_>> = others.filter(|group| group.mode != "X-FTL").collect();
        restart(xftl, &others)
    });
    shown.collect()
}

fn restart(xftl: &Group<'_>, others: &[&Group<'_>]) -> Option<Shown> {
    let rollback = others.iter().find(|group| group.mode == ROLLBACK).copied();
    let mut rows = Vec::new();
    for &other in others {
        rows.push(sqlite_row(SQLITE, other, xftl));
        let rollback = rollback.filter(|_| other.mode == "WAL");
        rows.extend(rollback.map(|rollback| sqlite_row(BY_ROLLBACK, other, rollback)));
        let part = |quantity, time: Work| row(quantity, time, other, xftl, None);
        rows.extend([
            part(MOUNT, |one| one.mount_ms),
            part(FTL, |one| one.ftl_ms),
            part(WHOLE, Restarted::whole_ms),
        ]);
    }
    let median = xftl.median()?;
    let how = format!(
        "{}, {} MiB, {}, medians of {} power cuts, spread by the seed over {} transactions",
        median.controller.name(),
        median.fullness.host_mib,
        match median.in_use {
            true => "a device that was in use",
            false => "a new device",
        },
        xftl.cuts(),
        median.transactions
    );
    let differences = explained(&rows, xftl, others);
    let title = "restart after a power cut";
    Some(Shown::of(
        "restart",
        title,
        how,
        rows,
        differences,
        Vec::new(),
    ))
}

/// A part's median next to that of another mode.
fn row(
    quantity: &'static str,
    time: Work,
    other: &Group<'_>,
    to: &Group<'_>,
    stated: Option<Stated>,
) -> Row {
    let of = |group: &Group<'_>| group.spread(time).0;
    Row::new(other.mode, quantity, "ms", Kind::Counted)
        .ran(other.mode)
        .ours(Some(of(other)))
        .ratio(to.mode, stated, Some(of(other) / of(to).max(1e-12)))
        .judged()
}

fn sqlite_row(quantity: &'static str, other: &Group<'_>, to: &Group<'_>) -> Row {
    let papers = |group: &Group<'_>| group.median().and_then(|one| one.paper_ms);
    let papers = papers(other).zip(papers(to));
    let stated = papers.map(|(other, to)| Stated::about(other / to, SLIDE));
    row(quantity, |one| one.sqlite_ms, other, to, stated)
}

fn explained(rows: &[Row], xftl: &Group<'_>, others: &[&Group<'_>]) -> Vec<Difference> {
    let median = |mode: &str| {
        let mut groups = others.iter().copied().chain([xftl]);
        let group = groups.find(|group| group.mode == mode);
        group.and_then(Group::median).ok_or_else(|| mode.to_owned())
    };
    let told = explain_by(rows, &REASONS, |work: Work, row| {
        let base = row.ratio.as_ref().map_or("X-FTL", |ratio| ratio.to);
        let (other, to) = (median(row.name)?, median(base)?);
        let pages = |one: &Restarted| {
            format!(
                "{} reads and {} programs",
                one.sqlite_reads, one.sqlite_programs
            )
        };
        Ok(Predicted::of_row(
            work(other) / work(to).max(1e-12),
            "SQLite's pages:",
            format!("{}, and {base} {}", pages(other), pages(to)),
        ))
    });
    told.unwrap_or_default()
}

#[cfg(test)]
pub mod tests {
    use super::super::controllers::{BOARD, Ftl};
    use super::super::trial::{Fill, Fullness};
    use super::*;
    use crate::reproduce::outcome::Verdict;

    /// A restart on the board. A page takes a millisecond to read.
    pub fn restarted(mode: &'static str, sqlite_ms: f64, paper_ms: Option<f64>) -> Restarted {
        Restarted {
            mode,
            controller: BOARD,
            fullness: Fullness {
                host_mib: 128,
                spare_percent: 30,
                fill: Fill::Percent(80),
            },
            in_use: false,
            cut: sqlite_ms as u64,
            operations: 10,
            transactions: 4,
            ftl_ms: 10.0,
            table_ms: 1.0,
            mount_ms: 2.0,
            sqlite_ms,
            paper_ms,
            sqlite_reads: sqlite_ms as u64,
            sqlite_programs: 0,
            read_ms: 1.0,
            program_ms: 2.0,
        }
    }

    fn shown(rollback: f64, wal: f64, xftl: f64) -> Shown {
        let all = [
            restarted(ROLLBACK, rollback, Some(20.1)),
            restarted("WAL", wal, Some(153.0)),
            restarted("X-FTL", xftl, Some(3.5)),
        ];
        restarts(&all).remove(0)
    }

    /// The verdicts of the three comparisons.
    fn verdicts(shown: &Shown) -> [Verdict; 3] {
        [(ROLLBACK, SQLITE), ("WAL", SQLITE), ("WAL", BY_ROLLBACK)].map(|(name, quantity)| {
            let mut rows = shown.rows.iter();
            let row = rows.find(|row| (row.name, row.quantity) == (name, quantity));
            row.expect("a row").verdict
        })
    }

    #[test]
    fn each_order_of_the_slide_can_be_missed() {
        use Verdict::{Magnitude, Misses, Same};
        assert_eq!(verdicts(&shown(20.0, 150.0, 3.4)), [Same, Same, Same]);
        // Far too good for X-FTL is not the slide's either.
        assert_eq!(
            verdicts(&shown(200.0, 1_500.0, 3.4)),
            [Magnitude, Magnitude, Same]
        );
        // Planted: the rollback journal and the log change places.
        assert_eq!(
            verdicts(&shown(150.0, 20.0, 3.4)),
            [Magnitude, Magnitude, Misses]
        );
        // Planted: X-FTL is slower than both.
        assert_eq!(verdicts(&shown(20.0, 150.0, 400.0)), [Misses, Misses, Same]);
    }

    #[test]
    fn a_difference_is_told_with_what_sqlite_s_pages_predict() {
        let shown = shown(40.0, 300.0, 3.0);
        let told: Vec<_> = shown.differences.iter().collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told.iter().all(|one| one.holds), "{told:?}");
        // Planted: SQLite reads no more than it does with X-FTL.
        let all = [
            Restarted {
                sqlite_reads: 3,
                ..restarted("WAL", 300.0, Some(153.0))
            },
            restarted("X-FTL", 3.0, Some(3.5)),
        ];
        let shown = restarts(&all).remove(0);
        assert!(!shown.differences[0].holds, "{shown:?}");
    }

    #[test]
    fn the_mount_and_the_ftl_are_compared_with_nothing() {
        let shown = shown(20.0, 150.0, 3.4);
        let rest = shown
            .rows
            .iter()
            .filter(|row| [MOUNT, FTL, WHOLE].contains(&row.quantity));
        let verdicts: Vec<Verdict> = rest.map(|row| row.verdict).collect();
        assert_eq!(verdicts, [Verdict::NotCompared; 6]);
    }

    #[test]
    fn each_ftl_has_a_figure_of_its_own() {
        let on = |ftl: Ftl, mode, ms| Restarted {
            controller: ftl.controller(),
            ..restarted(mode, ms, Some(3.5))
        };
        let all = [
            on(Ftl::Board, "WAL", 100.0),
            on(Ftl::Board, "X-FTL", 10.0),
            on(Ftl::Journal, "WAL", 50.0),
            on(Ftl::Journal, "X-FTL", 10.0),
        ];
        let ratios: Vec<_> = restarts(&all)
            .iter()
            .map(|shown| shown.rows[0].ratio.as_ref().and_then(|ratio| ratio.ours))
            .collect();
        assert_eq!(ratios, [Some(10.0), Some(5.0)]);
    }
}
