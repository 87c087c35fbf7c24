//! The paper's statements next to the runs, and what the device's counts predict where they differ.
//!
//! One [`Shown`] for each workload and device: rows are the other systems' figures to X-FTL's. The
//! device's time is counted, not measured: the same run gives the same time.

use super::controllers::MapTo;
use super::restart::{Group, Restarted, groups};
use super::trial::{AUTOCHECKPOINT, PAGE, Ran, WRITTEN};
use crate::reproduce::outcome::{
    Difference, Kind, Predicted, Reason, Row, Shown, Side, Stated, explain_by,
};

/// The figures of merit: slide 22.
const MERIT: &str = "slide 22";
pub const TO_WAL: Stated = Stated::about(3.0, MERIT);
pub const TO_ROLLBACK: Stated = Stated::about(11.7, MERIT);
/// Of other workloads the slides state the direction.
const FASTER: Stated = Stated::at_least(1.0, "slides 22 to 24: bars, and \"faster\"");
pub const HALVED: Stated = Stated::about(2.0, "slide 25: writes are halved");

const TIME: &str = "time";
const HOST: &str = "pages that the host writes";
const RESTART: &str = "restart, table, mount and SQLite";
const WHOLE: &str = "restart with the FTL's own";

/// A run, and X-FTL's of the same workload on the same device: as in its paper if that was run, for
/// with lazy writes of the change counter it writes a page less.
#[derive(Clone, Copy)]
struct Pair<'a> {
    other: &'a Ran,
    xftl: &'a Ran,
}

type PredictPair = fn(&Pair<'_>) -> Predicted;

/// Every run that has a counterpart with X-FTL.
pub fn judge(ran: &[Ran]) -> Vec<Shown> {
    let is_written = |ran: &Ran| ran.mode == WRITTEN;
    let is_judged = |xftl: &&Ran| {
        let is_counterpart = |other: &&Ran| xftl.is_counterpart(other);
        // The figure space says itself where the claims hold.
        xftl.is_xftl()
            && xftl.figure != "space"
            && (is_written(xftl) || !ran.iter().filter(is_counterpart).any(is_written))
    };
    let xftl = ran.iter().filter(is_judged);
    xftl.map(|xftl| {
        let others = ran.iter().filter(|other| !other.is_xftl());
        let others = others.filter(|other| xftl.is_counterpart(other));
        let pairs: Vec<Pair<'_>> = others.map(|other| Pair { other, xftl }).collect();
        let rows: Vec<Row> = pairs.iter().flat_map(rows).collect();
        let differences = explained(&rows, &pairs, REASONS);
        let how = format!(
            "{}, {}, {}",
            xftl.workload,
            xftl.controller.name(),
            xftl.fullness.name()
        );
        let title = "the paper's statements, to X-FTL";
        Shown::of(xftl.figure, title, how, rows, differences, Vec::new())
    })
    .collect()
}

fn explained(rows: &[Row], pairs: &[Pair<'_>], reasons: &[Reason<PredictPair>]) -> Vec<Difference> {
    let told = explain_by(rows, reasons, |predict: PredictPair, row| {
        let pair = pairs.iter().find(|pair| pair.other.mode == row.name);
        pair.map(predict).ok_or_else(|| row.name.to_owned())
    });
    told.unwrap_or_default()
}

fn rows(pair: &Pair<'_>) -> Vec<Row> {
    let Pair { other, xftl } = pair;
    // The paper's figures of merit are for 5 pages.
    let is_merit = xftl.workload == "partsupply, 5 pages";
    let stated = match other.mode {
        "WAL" if is_merit => TO_WAL,
        "rollback journal" if is_merit => TO_ROLLBACK,
        _ => FASTER,
    };
    let row = |quantity, unit, ours: fn(&Ran) -> f64, stated| {
        let (ours, to) = (ours(other), ours(xftl));
        Row::new(other.mode, quantity, unit, Kind::Counted)
            .ran(other.mode)
            .ours(Some(ours))
            .ratio("X-FTL", stated, Some(ours / to.max(1e-12)))
            .judged()
    };
    let halved = (is_merit && other.mode == "WAL").then_some(HALVED);
    vec![
        row(TIME, "ms", |ran| ran.ms_per_transaction, Some(stated)),
        row(
            HOST,
            "a transaction",
            |ran| ran.each(ran.host_writes),
            halved,
        ),
    ]
}

const CHAIN: &str = "the pages that are programmed one after the other";
const DRAWN: &str = "the pages that a log and its checkpoints write, by the database's size";

const REASONS: &[Reason<PredictPair>] = &[
    Reason {
        of: |row| row.quantity == TIME,
        side: Side::Above,
        sentence: "More has to be programmed one after the other than on the paper's board.",
        count: CHAIN,
        predict: by_chain,
    },
    Reason {
        of: |row| row.quantity == TIME,
        side: Side::Below,
        sentence: "Less has to be programmed one after the other than on the paper's board.",
        count: CHAIN,
        predict: by_chain,
    },
    Reason {
        of: |row| row.quantity == HOST,
        side: Side::Below,
        sentence: "A checkpoint writes a page once however often it is in the log.",
        count: DRAWN,
        predict: by_draws,
    },
    Reason {
        of: |row| row.quantity == HOST,
        side: Side::Above,
        sentence: "A commit's part of the log begins and ends in the middle of a page, so it is a page more.",
        count: DRAWN,
        predict: by_draws,
    },
];

/// The pages that a transaction programs, in words.
fn programmed(ran: &Ran) -> String {
    format!(
        "{:.2} ({:.2} of the host, {:.2} of the map, {:.2} of the X-L2P table, {:.2} roots, {:.2} copied)",
        ran.each(ran.programs),
        ran.each(ran.host_writes),
        ran.each(ran.map_writes),
        ran.each(ran.table_writes),
        ran.each(ran.root_writes),
        ran.each(ran.gc_copies),
    )
}

/// Pages of a transaction that are programmed one after the other. Between two flushes, dies take
/// the host's pages in turn, and the map's if it is striped; other bookkeeping is on one die. Copies are counted whole: all dies
/// program them, but one die reads them. Blocks are erased for them, which waits for everything.
fn chain(ran: &Ran) -> f64 {
    let flushes = ran.each(ran.flushes + ran.commits).max(1e-12);
    let together = ran.each(ran.host_writes) / flushes / f64::from(ran.controller.dies.max(1));
    let together = match ran.controller.dies {
        1 => together,
        _ => together.ceil(),
    };
    let others = ran.table_writes + ran.root_writes + ran.gc_copies;
    flushes * (together + map_chain(ran, flushes)) + ran.each(others)
}

/// The same of the map's pieces at a flush.
fn map_chain(ran: &Ran, flushes: f64) -> f64 {
    let pieces = ran.each(ran.map_writes) / flushes;
    match ran.controller.map {
        MapTo::Striped if pieces > 1.0 => (pieces / f64::from(ran.controller.dies.max(1))).ceil(),
        _ => pieces,
    }
}

fn by_chain(pair: &Pair<'_>) -> Predicted {
    let (other, xftl) = (chain(pair.other), chain(pair.xftl));
    let of_row = format!(
        "{other:.2} pages one after the other and X-FTL {xftl:.2}; in all {} and {}",
        programmed(pair.other),
        programmed(pair.xftl)
    );
    Predicted::of_row(other / xftl.max(1e-12), "a transaction programs:", of_row)
}

/// WAL's pages to X-FTL's, from the number of pages of a transaction and of the database. A commit's
/// frames are one piece of the log. A checkpoint writes each page that one of its frames is of, and
/// these are drawn at random.
fn by_draws(pair: &Pair<'_>) -> Predicted {
    let updates = f64::from(pair.xftl.updates);
    // With the change counter a commit of the paper's X-FTL has a page more.
    let xftl = updates + f64::from(u8::from(pair.xftl.mode == WRITTEN));
    let (page, frame) = (PAGE as f64, PAGE as f64 + 24.0);
    let logged = updates * frame / page + 1.0;
    let pages = pair.other.database_pages.max(1) as f64;
    let frames = f64::from(AUTOCHECKPOINT);
    let different = pages * (1.0 - (1.0 - 1.0 / pages).powf(frames));
    // A run shorter than a checkpoint has none of its pages.
    let full = updates * f64::from(pair.other.transactions) >= frames;
    let copied = if full {
        updates * different / frames
    } else {
        0.0
    };
    Predicted::new(
        (logged + copied) / xftl,
        format!(
            "{updates} pages of {pages:.0}, drawn at random: {logged:.2} pages to the log, and of {frames} frames {different:.0} \
             different pages to the database, {copied:.2} a transaction; X-FTL {xftl}"
        ),
    )
}

/// The figure of a restart that a reason predicts by.
type Work = fn(&Restarted) -> f64;

/// The medians of restarts next to the paper's, one figure for each device.
pub fn restarts(restarts: &[Restarted]) -> Vec<Shown> {
    let groups = groups(restarts);
    let of_xftl = groups.iter().filter(|group| group.mode == "X-FTL");
    let shown = of_xftl.filter_map(|xftl| {
        let same = |group: &&Group<'_>| group.fullness == xftl.fullness && group.mode != "X-FTL";
        let others: Vec<&Restarted> = groups
            .iter()
            .filter(same)
            .filter_map(Group::median)
            .collect();
        Some(restart(xftl.median()?, xftl.cuts(), &others))
    });
    shown.collect()
}

fn restart(xftl: &Restarted, cuts: usize, others: &[&Restarted]) -> Shown {
    let rows: Vec<Row> = others
        .iter()
        .flat_map(|other| restart_rows(xftl, other))
        .collect();
    let reasons: [Reason<Work>; 1] = [Reason {
        of: |_| true,
        side: Side::Below,
        sentence: "What has to be read and programmed differs less than on the paper's board.",
        count: "the pages that are read and programmed, one after the other",
        predict: Restarted::work_ms,
    }];
    let differences = explain_by(&rows, &reasons, |work: Work, row| {
        let other = others.iter().find(|one| one.mode == row.name);
        let other = other.ok_or_else(|| row.name.to_owned())?;
        Ok(Predicted::of_row(
            work(other) / work(xftl).max(1e-12),
            &format!("X-FTL {} reads and {} programs;", xftl.reads, xftl.programs),
            format!("{} reads and {} programs", other.reads, other.programs),
        ))
    });
    Shown::of(
        "restart",
        "restart after a power cut",
        format!(
            "{}, {} MiB, medians of {cuts} power cuts, spread by the seed over {} transactions; without the FTL's own \
             part and with it",
            xftl.controller.name(),
            xftl.fullness.host_mib,
            xftl.transactions
        ),
        rows,
        differences.unwrap_or_default(),
        Vec::new(),
    )
}

/// The paper does not say that its times have the FTL's own part, so they are compared without it.
fn restart_rows(xftl: &Restarted, other: &Restarted) -> [Row; 2] {
    let row = |quantity, ms: fn(&Restarted) -> f64, stated| {
        let ratio = ms(other) / ms(xftl).max(1e-12);
        Row::new(other.mode, quantity, "ms", Kind::Counted)
            .ran(other.mode)
            .ours(Some(ms(other)))
            .ratio("X-FTL", stated, Some(ratio))
            .judged()
    };
    let papers = other.paper_ms.zip(xftl.paper_ms);
    let stated = papers.map(|(other, xftl)| Stated::at_least(other / xftl, "slide 26: restart"));
    [
        row(RESTART, Restarted::ms, stated),
        row(WHOLE, Restarted::whole_ms, None),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::controllers::BOARD;
    use super::super::trial::Fullness;
    use super::*;

    /// A run of 200 transactions of 5 pages on eight dies.
    fn ran(mode: &'static str, ms: f64, host: u64, roots: u64) -> Ran {
        Ran {
            figure: "updates",
            mode,
            workload: "partsupply, 5 pages".to_owned(),
            controller: BOARD,
            fullness: Fullness {
                host_mib: 128,
                spare_percent: 30,
                full_percent: 80,
            },
            updates: 5,
            database_pages: 1_700,
            transactions: 200,
            seconds: ms / 1e3 * 200.0,
            ms_per_transaction: ms,
            host_writes: host * 200,
            host_reads: 0,
            flushes: 200,
            commits: 0,
            programs: (host + roots) * 200,
            gc_copies: 0,
            gc_blocks: 0,
            erases: 0,
            map_writes: 0,
            table_writes: 0,
            root_writes: roots * 200,
            gc_validity: None,
        }
    }

    fn difference<'a>(shown: &'a [Shown], quantity: &str) -> &'a Difference {
        let found = shown[0].differences.iter().find(|d| d.quantity == quantity);
        found.unwrap_or_else(|| panic!("no difference of {quantity}: {:?}", shown[0]))
    }

    #[test]
    fn a_figure_that_differs_has_a_reason_and_the_counts_must_bear_it_out() {
        // One page and 9 roots against one page and one: five times as much one after the other.
        let judged = judge(&[ran("WAL", 15.0, 8, 9), ran("X-FTL", 3.0, 5, 1)]);
        let time = difference(&judged, TIME);
        assert_eq!(
            (time.predicted, time.ours, time.holds),
            (Some(5.0), 5.0, true)
        );
        // Planted: the same times, and as many pages in both.
        let judged = judge(&[ran("WAL", 15.0, 8, 1), ran("X-FTL", 3.0, 5, 1)]);
        let time = difference(&judged, TIME);
        assert_eq!((time.predicted, time.holds), (Some(1.0), false));
    }

    #[test]
    fn pages_of_the_host_are_predicted_from_the_database_s_size() {
        // 6 pages to the log and 1.84 to a database of 400 pages, which come back often.
        let of = |database_pages| {
            let wal = Ran {
                host_writes: 1_570,
                database_pages,
                ..ran("WAL", 9.0, 0, 2)
            };
            judge(&[wal, ran("X-FTL", 3.0, 5, 1)])
        };
        let judged = of(400);
        let host = difference(&judged, HOST);
        assert!((host.ours - 1.57).abs() < 0.01 && host.holds, "{host:?}");
        // Planted: a database so large that a checkpoint spares nothing.
        assert!(!difference(&of(1 << 20), HOST).holds);
    }
}
