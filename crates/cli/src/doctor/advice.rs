//! The consequences of facts and rates for each journal mode. Pure: no I/O, and no guesses except
//! in the sentences that say so.

use onewrite::mode::{JournalMode, Layout};
use onewrite::plan::Plan;
use onewrite::storage::{DurableWrite, IN_MEMORY, WriteCache};
use serde::Serialize;

use super::facts::Facts;
use super::hazards::{self, Hazard, NETWORK, Place};
use super::trial::Rates;

/// From this ratio on, one rate counts as faster than the other. Repeated measurements on one
/// machine differ by less.
const FASTER: f64 = 1.15;

/// The behavior of one journal mode at this place.
#[derive(Clone, Debug, Serialize)]
pub struct ModeAdvice {
    /// Name of the mode.
    pub mode: &'static str,
    /// The bytes that a commit of one page writes, and how.
    pub commit: String,
    /// The raw rate that bounds one thread once a checkpoint lets the log be reused, in commits a
    /// second.
    pub limit_per_s: Option<f64>,
    /// The field of `raw` that this rate is.
    pub limited_by: &'static str,
    /// The same while the log grows. Preallocation makes both figures equal.
    pub growing_limit_per_s: Option<f64>,
    /// The values of the engine's settings here; null in SQLite's own mode.
    pub settings: Option<Settings>,
    /// Features that the mode lacks, or that have a cost.
    pub limits: Vec<String>,
}

/// The values that the engine's settings get here where they are left on `auto`.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// `onewrite_layout`; `stock` in direct.
    pub layout: String,
    /// `onewrite_sync`.
    pub sync: String,
    /// `onewrite_init`.
    pub init: String,
    /// Bytes that the commit of one page of 4,096 bytes writes: the median over the log's places.
    pub commit_bytes: u64,
}

/// The mode to use.
#[derive(Clone, Debug, Serialize)]
pub struct Recommendation {
    /// Its name.
    pub mode: &'static str,
    /// Why.
    pub reason: String,
}

/// The way a write becomes durable here, as the end of a sentence.
fn durably(facts: &Facts, write: DurableWrite) -> &'static str {
    if !facts.barriers.available {
        return "never flushed: the mount forbids it";
    }
    match write {
        DurableWrite::Fua => "durable by itself (FUA)",
        DurableWrite::NoCache => "durable when it completes (no volatile cache)",
        DurableWrite::Flush => "followed by a cache flush",
        DurableWrite::Unknown => "durable by itself (the device is not known)",
        DurableWrite::WriteThenFlush => "then fdatasync, because F2FS may not flush by itself",
        DurableWrite::PageCache => "then fdatasync",
    }
}

/// The advice for each mode that exists.
pub fn modes(facts: &Facts, raw: &Rates) -> Vec<ModeAdvice> {
    let plans = facts.plans.iter();
    let ours = plans.map(|(mode, plan)| of_mode(*mode, plan, facts, raw));
    std::iter::once(stock_wal(raw)).chain(ours).collect()
}

fn stock_wal(raw: &Rates) -> ModeAdvice {
    ModeAdvice {
        mode: "wal",
        commit:
            "4,120 bytes a page appended through the page cache, then fdatasync; while the log \
                 grows, the file system also journals its size and blocks"
                .to_owned(),
        limit_per_s: raw.buffered_fdatasync_4k_per_s,
        limited_by: "buffered_fdatasync_4k_per_s",
        growing_limit_per_s: raw.append_fdatasync_per_s,
        settings: None,
        limits: Vec::new(),
    }
}

fn of_mode(
    mode: JournalMode,
    plan: &Result<Plan, String>,
    facts: &Facts,
    raw: &Rates,
) -> ModeAdvice {
    let name = mode.name();
    let plan = match plan {
        Ok(plan) => plan,
        Err(why) => {
            return ModeAdvice {
                mode: name,
                commit: format!("not for pages of 4,096 bytes: {why}"),
                limit_per_s: None,
                limited_by: "direct_dsync_4k_per_s",
                growing_limit_per_s: None,
                settings: None,
                limits: Vec::new(),
            };
        }
    };
    let (how, limit, limited_by) = match plan.write {
        DurableWrite::PageCache => (
            "page cache",
            raw.buffered_fdatasync_4k_per_s,
            "buffered_fdatasync_4k_per_s",
        ),
        _ => (
            "direct I/O",
            raw.direct_dsync_4k_per_s,
            "direct_dsync_4k_per_s",
        ),
    };
    let what = match plan.layout {
        Layout::Stock => {
            "the same bytes as wal's in the stock -wal file, where frames share blocks"
        }
        Layout::Embedded => "a page with its frame header inside",
        Layout::Packed => "a commit's pages compressed",
        Layout::Compressed => "each page compressed",
        _ => "a page and its frame header",
    };
    let bytes = plan.commit_bytes;
    ModeAdvice {
        mode: name,
        commit: format!(
            "{what}: one write of {} bytes into preallocated blocks ({how}), {}",
            thousands(bytes),
            durably(facts, plan.write)
        ),
        limit_per_s: limit,
        limited_by,
        growing_limit_per_s: limit,
        settings: Some(Settings {
            layout: plan.layout.to_string(),
            sync: plan.sync.to_string(),
            init: plan.init.to_string(),
            commit_bytes: bytes,
        }),
        limits: limits(mode, plan),
    }
}

/// Features that a mode lacks, or that cost extra.
fn limits(mode: JournalMode, plan: &Plan) -> Vec<String> {
    let mut limits = Vec::new();
    if !plan.may_defer_durability {
        limits.push("onewrite_group_synch cannot be set".to_owned());
    }
    if plan.layout == Layout::Stock {
        limits.push(
            "a commit after one of another connection reads the shared block again and flushes"
                .to_owned(),
        );
        limits.push(
            "the log is deleted when the last connection closes, and prepared again by the next \
             first commit"
                .to_owned(),
        );
        limits.push(
            "a stock program that writes next to onewrite needs SQLite 3.50.7 or 3.51.3 and later: others \
             can lose commits where a log starts again next to a checkpoint, or after ROLLBACK TO"
                .to_owned(),
        );
    }
    if plan.layout == Layout::Embedded {
        limits.push(
            "pages need 24 reserved bytes: new databases get them, others VACUUM once".into(),
        );
    }
    if mode.is_guarded() {
        limits.push(
            "while it is in use, only programs with onewrite open the database: \"onewrite shell\" is sqlite3 for \
             it, \"onewrite backup\" makes a stock copy"
                .into(),
        );
    }
    limits
}

/// 8,192 for 8192.
fn thousands(n: u64) -> String {
    match n {
        0..1000 => n.to_string(),
        _ => format!("{},{:03}", thousands(n / 1000), n % 1000),
    }
}

/// Facts that the user should know before trusting or questioning the figures.
pub fn warnings(facts: &Facts) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(reason) = &facts.barriers.reason {
        warnings.push(format!(
            "{reason}. {}: mount it without that option",
            hazards::WITHOUT_FLUSHES
        ));
    }
    let others = hazards(facts).into_iter();
    let others = others.filter(|hazard| !SAID_ELSEWHERE.contains(&hazard.key));
    warnings.extend(others.map(|hazard| format!("{}: {}", hazard.what, hazard.fix)));
    if facts.mount_options.iter().any(|o| o == "data=journal") || says(facts, "data=journal") {
        warnings.push(
            "data=journal writes every block twice and rules out direct I/O: mount with \
             data=ordered, which is ext4's default (tune2fs -o ^journal_data where it is the \
             superblock's)"
                .to_owned(),
        );
    }
    if facts.filesystem == "btrfs" {
        warnings.push(
            "Btrfs copies every overwritten block and logs it for each fdatasync: preallocation \
             gains little here. ext4 or XFS for the database's directory serves durable commits \
             better"
                .to_owned(),
        );
    }
    if let (Some(device), Some(file)) = (&facts.device, &facts.backing_file) {
        warnings.push(format!(
            "{device} is a loop device: the rates are those of its file {} and of the file system \
             that holds it",
            file.display()
        ));
    }
    if !is_volatile(facts) && facts.write_cache == WriteCache::Unknown {
        warnings.push(format!(
            "the device under this {} is not known, nor whether it has a volatile cache: a write is \
             durable if the file system says so",
            facts.filesystem
        ));
    }
    warnings
}

/// Hazards that the warnings or the recommendation name in other words.
const SAID_ELSEWHERE: [&str; 3] = ["no_barriers", "memory", "network"];

fn hazards(facts: &Facts) -> Vec<Hazard> {
    let point = facts.mount_point.as_ref();
    let point = point.map_or_else(String::new, |point| point.display().to_string());
    let device = facts.device.as_deref();
    hazards::of(&Place {
        file_system: &facts.filesystem,
        mount_point: &point,
        options: &facts.mount_options,
        disk: device.map(|name| (name, facts.disk)),
    })
}

fn says(facts: &Facts, text: &str) -> bool {
    let reason = facts.direct_io.answer.reason.as_deref();
    reason.is_some_and(|reason| reason.contains(text))
}

fn is_volatile(facts: &Facts) -> bool {
    IN_MEMORY.contains(&facts.filesystem.as_str())
}

/// The mode to use here, and why.
pub fn recommend(facts: &Facts, raw: &Rates) -> Recommendation {
    let name = &facts.filesystem;
    if is_volatile(facts) {
        return Recommendation {
            mode: "wal",
            reason: format!(
                "{name} keeps files in memory: nothing survives a power cut in any mode, so there \
                 is nothing to gain over stock SQLite"
            ),
        };
    }
    if NETWORK.contains(&name.as_str()) {
        return Recommendation {
            mode: "delete",
            reason: format!(
                "several machines can use one {name} at once, but a write-ahead log in any form \
                 needs memory that all users of the database share"
            ),
        };
    }
    if facts.direct_io.answer.available {
        return with_direct_io(facts, raw);
    }
    without_direct_io(facts, raw)
}

fn with_direct_io(facts: &Facts, raw: &Rates) -> Recommendation {
    let name = &facts.filesystem;
    let (Some(one), Some(other)) = (raw.direct_dsync_4k_per_s, raw.append_fdatasync_per_s) else {
        let reason = format!("{name} has direct I/O, and then journals nothing for a commit");
        return onewrite_or_waldio(reason);
    };
    let reason = if one >= other * FASTER {
        format!(
            "a durable direct overwrite is {:.1} times as fast here as the append and fdatasync of \
             a growing WAL ({one:.0}/s against {other:.0}/s), and {name} journals nothing for it",
            one / other
        )
    } else {
        format!(
            "a durable direct overwrite is no faster here than an append and fdatasync ({one:.0}/s \
             against {other:.0}/s), but it writes one block and {name} journals nothing for it: \
             less wear"
        )
    };
    let reused = raw
        .buffered_fdatasync_4k_per_s
        .map_or_else(String::new, |rate| {
            format!(". In a log that is reused, stock wal reaches {rate:.0}/s at most")
        });
    onewrite_or_waldio(reason + &reused)
}

/// The mode for most applications, and the one that may be used in its place.
fn onewrite_or_waldio(reason: String) -> Recommendation {
    Recommendation {
        mode: "onewrite",
        reason: format!(
            "{reason}. waldio writes the same one block where a transaction changes one page of a \
             new database, and compresses nothing"
        ),
    }
}

fn without_direct_io(facts: &Facts, raw: &Rates) -> Recommendation {
    let why = facts
        .direct_io
        .answer
        .reason
        .as_deref()
        .unwrap_or("no direct I/O");
    let rates = (raw.buffered_fdatasync_4k_per_s, raw.append_fdatasync_per_s);
    match rates {
        (Some(one), Some(other)) if one >= other * FASTER => Recommendation {
            mode: "onewrite",
            reason: format!(
                "overwriting preallocated blocks with fdatasync is {:.1} times as fast here as \
                 appending to a growing WAL ({one:.0}/s against {other:.0}/s), though {why}",
                one / other
            ),
        },
        (Some(one), Some(other)) => Recommendation {
            mode: "wal",
            reason: format!(
                "{why}, and overwriting preallocated blocks with fdatasync is no faster than \
                 appending to a growing WAL ({one:.0}/s against {other:.0}/s): there is little to gain"
            ),
        },
        _ => Recommendation {
            mode: "wal",
            reason: format!("{why}, and no measurement favors another mode"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::{Answer, AtomicWrites, DirectIo};
    use super::super::hazards::Disk;
    use super::*;

    fn yes() -> Answer {
        Answer {
            available: true,
            reason: None,
        }
    }

    fn no(reason: &str) -> Answer {
        Answer {
            available: false,
            reason: Some(reason.to_owned()),
        }
    }

    /// Plans as given input. The tests of the engine's own code cover how it plans for a place.
    fn plans(write: DurableWrite) -> Vec<(JournalMode, Result<Plan, String>)> {
        let plan = |mode: JournalMode| Plan {
            layout: mode.usual_layout(),
            sync: onewrite::mode::SyncPolicy::Auto.resolved(),
            write: match mode.writes_directly() {
                true => write,
                false => DurableWrite::PageCache,
            },
            init: onewrite::storage::Init::ZeroFill,
            commit_bytes: 4096,
            may_defer_durability: mode.may_defer_durability(),
        };
        let modes = JournalMode::ALL.into_iter();
        modes.map(|mode| (mode, Ok(plan(mode)))).collect()
    }

    fn facts(filesystem: &str, direct: Answer) -> Facts {
        let write = match direct.available {
            true => DurableWrite::Flush,
            false => DurableWrite::PageCache,
        };
        Facts {
            plans: plans(write),
            filesystem: filesystem.to_owned(),
            mount_point: None,
            mount_options: Vec::new(),
            device: Some("sda1".to_owned()),
            backing_file: None,
            disk: Disk::default(),
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            write_cache: WriteCache::WriteBack,
            fua: no("sda1 has no FUA"),
            barriers: yes(),
            direct_io: DirectIo {
                answer: direct,
                memory_align_bytes: None,
                offset_align_bytes: None,
            },
            write_zeroes: no("none"),
            exchange: no("none"),
            clone: no("none"),
            atomic_writes: AtomicWrites {
                file_system_bytes: None,
                device_bytes: None,
            },
        }
    }

    fn rates(direct: Option<f64>, buffered: f64, append: f64) -> Rates {
        Rates {
            direct_dsync_4k_per_s: direct,
            direct_4k_per_s: direct,
            buffered_fdatasync_4k_per_s: Some(buffered),
            append_fdatasync_per_s: Some(append),
            durable: None,
            samples: 1,
            writes_per_sample: 1000,
        }
    }

    #[test]
    fn direct_io_means_onewrite_and_the_reason_has_the_measured_rates() {
        let advice = recommend(&facts("ext4", yes()), &rates(Some(4700.0), 4000.0, 1000.0));
        assert_eq!(advice.mode, "onewrite");
        assert!(advice.reason.contains("4.7 times") && advice.reason.contains("1000/s"));
        assert!(advice.reason.contains("stock wal reaches 4000/s"));
        assert!(advice.reason.contains("waldio"));
        let advice = recommend(&facts("xfs", yes()), &rates(Some(1000.0), 1000.0, 1000.0));
        assert_eq!(advice.mode, "onewrite");
        assert!(advice.reason.contains("no faster") && advice.reason.contains("wear"));
    }

    #[test]
    fn without_direct_io_the_measurement_decides() {
        let place = facts("ext4", no("data=journal is in the way"));
        let advice = recommend(&place, &rates(None, 2000.0, 1000.0));
        assert_eq!(advice.mode, "onewrite");
        assert!(advice.reason.ends_with("though data=journal is in the way"));
        let advice = recommend(&place, &rates(None, 1000.0, 1000.0));
        assert_eq!(advice.mode, "wal");
        assert!(advice.reason.contains("little to gain"));
    }

    #[test]
    fn memory_and_network_file_systems_get_stock_modes() {
        let fast = rates(Some(9e5), 9e5, 1.0);
        assert_eq!(recommend(&facts("tmpfs", yes()), &fast).mode, "wal");
        for shared in ["nfs4", "ceph", "fuse.ceph-fuse", "virtiofs"] {
            let found = recommend(&facts(shared, yes()), &fast);
            assert_eq!(found.mode, "delete", "{shared}");
        }
    }

    #[test]
    fn each_mode_is_bounded_by_the_way_it_writes() {
        let rates = rates(Some(3.0), 2.0, 1.0);
        let limits = |facts: &Facts| {
            let modes = modes(facts, &rates);
            let limits = modes.iter().map(|m| (m.growing_limit_per_s, m.limit_per_s));
            limits
                .map(|(a, b)| [a.unwrap(), b.unwrap()])
                .collect::<Vec<_>>()
        };
        assert_eq!(
            limits(&facts("ext4", yes())),
            [[1.0, 2.0], [3.0, 3.0], [3.0, 3.0], [2.0, 2.0], [3.0, 3.0]]
        );
        assert_eq!(
            limits(&facts("ext4", no(""))),
            [[1.0, 2.0], [2.0, 2.0], [2.0, 2.0], [2.0, 2.0], [2.0, 2.0]]
        );
    }

    #[test]
    fn every_mode_named_is_one_that_exists() {
        let journals = onewrite_workload::mode::JOURNALS;
        for advice in modes(&facts("ext4", yes()), &rates(None, 1.0, 1.0)) {
            assert!(
                journals.iter().any(|j| j.name == advice.mode),
                "{}",
                advice.mode
            );
        }
    }

    #[test]
    fn how_a_write_becomes_durable_follows_the_engine() {
        let mut place = facts("ext4", yes());
        let ways = [
            (DurableWrite::Flush, "cache flush"),
            (DurableWrite::NoCache, "no volatile cache"),
            (DurableWrite::Fua, "FUA"),
            (DurableWrite::Unknown, "not known"),
            (DurableWrite::PageCache, "fdatasync"),
        ];
        for (write, words) in ways {
            place.plans = plans(write);
            for advice in &modes(&place, &rates(Some(1.0), 1.0, 1.0))[1..] {
                // It writes through the page cache wherever it is.
                let words = if advice.mode == "swal" {
                    "fdatasync"
                } else {
                    words
                };
                assert!(advice.commit.contains(words), "{}", advice.commit);
            }
        }
        place.barriers = no("nobarrier");
        assert!(durably(&place, DurableWrite::Fua).contains("never flushed"));
        assert!(warnings(&place).iter().any(|w| w.contains("lose commits")));
    }

    #[test]
    fn direct_says_what_it_cannot_do_and_a_mode_that_cannot_be_why() {
        let mut place = facts("ext4", yes());
        let found = modes(&place, &rates(Some(1.0), 1.0, 1.0));
        let says = |advice: &ModeAdvice, word: &str| advice.limits.iter().any(|l| l.contains(word));
        assert!(says(&found[1], "group_synch") && says(&found[1], "deleted"));
        assert!(says(&found[1], "3.51.3") && !says(&found[2], "3.51.3"));
        assert!(says(&found[2], "reserved bytes") && !says(&found[2], "group_synch"));
        place.plans[1].1 = Err("use onewrite_layout=page4k".to_owned());
        let found = modes(&place, &rates(Some(1.0), 1.0, 1.0));
        assert!(found[2].commit.contains("onewrite_layout=page4k"));
        assert!(found[2].settings.is_none() && found[2].limit_per_s.is_none());
    }

    #[test]
    fn data_journaling_comes_with_its_remedy() {
        // As the superblock's default it is in the reason alone.
        let place = facts("ext4", no("ext4 mounted with data=journal runs ..."));
        assert!(warnings(&place).iter().any(|w| w.contains("tune2fs")));
        assert!(warnings(&facts("ext4", yes())).is_empty());
        let mut place = facts("ext4", yes());
        place.mount_options = vec!["data=writeback".to_owned()];
        assert!(warnings(&place)[0].contains("data=ordered in /etc/fstab"));
    }
}
