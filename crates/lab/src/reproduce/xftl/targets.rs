//! The targets, the misses, and whether the device's counts confirm the reason.

use serde::Serialize;

use super::restart::Restarted;
use super::trial::{AUTOCHECKPOINT, Ran};

/// The largest distance between the ratio of times and the ratio of programmed pages at which the
/// latter explains the former.
const NEAR: f64 = 0.25;

/// A target and its result.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// The run and its device.
    pub what: String,
    /// The value to reach.
    pub target: String,
    pub ours: f64,
    pub wanted: f64,
    pub is_met: bool,
    /// For a miss: the reason, and whether this run's counts confirm it.
    pub reason: Option<String>,
}

/// Judges every run that has a target.
pub fn judge(ran: &[Ran], restarts: &[Restarted]) -> Vec<Judged> {
    let mut judged = Vec::new();
    for xftl in ran.iter().filter(|ran| ran.mode == "X-FTL") {
        let under = |mode: &str| {
            ran.iter().find(|other| {
                other.figure == xftl.figure
                    && other.workload == xftl.workload
                    && other.fullness == xftl.fullness
                    && other.controller == xftl.controller
                    && other.mode == mode
            })
        };
        // The paper's figures of merit are for 5 pages. For other workloads it states only the
        // direction.
        let is_merit = xftl.workload == "partsupply, 5 pages";
        let factor = |merit| if is_merit { merit } else { 1.0 };
        if let Some(wal) = under("WAL") {
            judged.push(time(wal, xftl, factor(2.5)));
            if is_merit {
                judged.push(writes(wal, xftl));
            }
        }
        for (mode, wanted) in [
            ("rollback journal", factor(8.0)),
            ("ext4, ordered", 1.0),
            ("ext4, full data journaling", 1.0),
        ] {
            judged.extend(under(mode).map(|other| time(other, xftl, wanted)));
        }
    }
    judged.extend(restart(restarts));
    judged
}

fn what(ran: &Ran) -> String {
    format!(
        "{}: {} ({}, {})",
        ran.figure,
        ran.workload,
        ran.controller.name(),
        ran.fullness.name()
    )
}

/// Pages a transaction.
fn each(ran: &Ran, count: u64) -> f64 {
    count as f64 / f64::from(ran.transactions.max(1))
}

/// The pages that a transaction programs, in words.
fn programmed(ran: &Ran) -> String {
    format!(
        "{:.2} ({:.2} of the host, {:.2} of the map, {:.2} of the X-L2P table, {:.2} roots, {:.2} copied)",
        each(ran, ran.programs),
        each(ran, ran.host_writes),
        each(ran, ran.map_writes),
        each(ran, ran.table_writes),
        each(ran, ran.root_writes),
        each(ran, ran.gc_copies),
    )
}

/// Pages of a transaction that are programmed one after the other. Between two flushes, dies take
/// the host's pages in turn, and bookkeeping is on one die. Copies are counted whole: all dies
/// program them, but one die reads them. Blocks are erased for them, which waits for everything.
fn chain(ran: &Ran) -> f64 {
    let flushes = each(ran, ran.flushes + ran.commits).max(1e-12);
    let together = each(ran, ran.host_writes) / flushes / f64::from(ran.controller.dies.max(1));
    let together = match ran.controller.dies {
        1 => together,
        _ => together.ceil(),
    };
    let others = ran.map_writes + ran.table_writes + ran.root_writes + ran.gc_copies;
    flushes * together + each(ran, others)
}

fn borne_out(is: bool) -> &'static str {
    match is {
        true => "borne out",
        false => "NOT BORNE OUT by the counts of this run",
    }
}

fn time(other: &Ran, xftl: &Ran, wanted: f64) -> Judged {
    let ours = other.ms_per_transaction / xftl.ms_per_transaction.max(1e-12);
    let is_met = ours >= wanted;
    let chains = chain(other) / chain(xftl).max(1e-12);
    let reason = format!(
        "what has to be programmed one after the other is {:.2} pages a transaction with {} and {:.2} with X-FTL, {chains:.2} \
         times; in all {} against {}: {}",
        chain(other),
        other.mode,
        chain(xftl),
        programmed(other),
        programmed(xftl),
        borne_out((ours / chains - 1.0).abs() <= NEAR)
    );
    Judged {
        what: what(xftl),
        target: format!("{wanted} times as fast as {}", other.mode),
        ours,
        wanted,
        is_met,
        reason: (!is_met).then_some(reason),
    }
}

fn writes(wal: &Ran, xftl: &Ran) -> Judged {
    let ours = each(wal, wal.host_writes) / each(xftl, xftl.host_writes).max(1e-12);
    let is_met = ours >= 2.0;
    let reason = match wal.host_writes < 2 * u64::from(AUTOCHECKPOINT) {
        true => format!(
            "the WAL took {} pages in this run, and SQLite checkpoints after {AUTOCHECKPOINT} frames: the second writes are \
             hardly in it: {}",
            wal.host_writes,
            borne_out(each(wal, wal.host_writes) < 1.25 * each(xftl, xftl.host_writes))
        ),
        false => format!(
            "a checkpoint writes a page once however often it is in the WAL: {:.2} pages a transaction with WAL, of which X-FTL's are \
             {:.2}: {}",
            each(wal, wal.host_writes),
            each(xftl, xftl.host_writes),
            borne_out(ours > 1.0)
        ),
    };
    Judged {
        what: what(xftl),
        target: "the host writes half of what it does with WAL".to_owned(),
        ours,
        wanted: 2.0,
        is_met,
        reason: (!is_met).then_some(reason),
    }
}

fn restart(restarts: &[Restarted]) -> Vec<Judged> {
    let Some(xftl) = restarts.iter().find(|one| one.mode == "X-FTL") else {
        return Vec::new();
    };
    /// The parts of a restart: their names, and their times.
    type Parts = (&'static str, fn(&Restarted) -> f64);
    let parts: [Parts; 2] = [
        ("X-L2P table and SQLite", |one| one.table_ms + one.sqlite_ms),
        ("X-L2P table, mount and SQLite", |one| {
            one.table_ms + one.mount_ms + one.sqlite_ms
        }),
    ];
    let mut judged = Vec::new();
    for other in restarts.iter().filter(|one| one.mode != "X-FTL") {
        for (name, of) in parts {
            let ours = of(other) / of(xftl).max(1e-12);
            let wanted = other.paper_ms / xftl.paper_ms.max(1e-12);
            let most = [xftl.table_ms, xftl.mount_ms, xftl.sqlite_ms];
            let most = most.into_iter().fold(0.0, f64::max);
            judged.push(Judged {
                what: format!("restart, {name} ({})", xftl.controller.name()),
                target: format!("{wanted:.1} times as fast as {}", other.mode),
                ours,
                wanted,
                is_met: ours >= wanted,
                reason: (ours < wanted).then(|| {
                    format!(
                        "X-FTL took {:.1} ms, {:.1} of the table, {:.1} of the mount (every inode is read), {:.1} of SQLite; {} {:.1}: one of X-FTL's parts alone is above the paper's {:.1} \
                         in all: {}",
                        of(xftl),
                        xftl.table_ms,
                        xftl.mount_ms,
                        xftl.sqlite_ms,
                        other.mode,
                        of(other),
                        xftl.paper_ms,
                        borne_out(most > xftl.paper_ms)
                    )
                }),
            });
        }
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::super::controllers::BOARD;
    use super::super::trial::Fullness;
    use super::*;

    fn ran(mode: &'static str, ms: f64, host: u64, programs: u64) -> Ran {
        Ran {
            figure: "updates",
            mode,
            workload: "partsupply, 5 pages".to_owned(),
            controller: BOARD,
            fullness: Fullness {
                spare_percent: 30,
                free_mib: 24,
            },
            transactions: 1,
            seconds: ms / 1e3,
            ms_per_transaction: ms,
            host_writes: host,
            host_reads: 0,
            flushes: 0,
            commits: 0,
            programs,
            gc_copies: 0,
            gc_blocks: 0,
            erases: 0,
            map_writes: 0,
            table_writes: 0,
            root_writes: 0,
            gc_validity: None,
        }
    }

    #[test]
    fn a_target_that_is_missed_has_a_reason_and_it_is_checked() {
        let judged = judge(&[ran("WAL", 20.0, 12, 14), ran("X-FTL", 10.0, 6, 7)], &[]);
        assert_eq!(judged.len(), 2);
        assert!(!judged[0].is_met && judged[1].is_met, "{judged:?}");
        let reason = judged[0].reason.as_deref().unwrap();
        assert!(reason.ends_with(": borne out"), "{reason}");
        // Twice the time, but as many pages.
        let judged = judge(&[ran("WAL", 20.0, 7, 7), ran("X-FTL", 10.0, 6, 7)], &[]);
        let reason = judged[0].reason.as_deref().unwrap();
        assert!(reason.contains("NOT BORNE OUT"), "{reason}");
        let reason = judged[1].reason.as_deref().unwrap();
        assert!(reason.ends_with(": borne out"), "{reason}");
        let judged = judge(&[ran("WAL", 30.0, 12, 21), ran("X-FTL", 10.0, 6, 7)], &[]);
        assert!(judged.iter().all(|one| one.is_met && one.reason.is_none()));
    }
}
