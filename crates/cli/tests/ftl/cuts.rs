//! Power cuts.

use std::fs;
use std::time::Instant;

use onewrite_flash::random::Random;

use crate::support::{AllParts, Mounted, can_run, integrity};

/// The progress of a long run, and how long the rest will take, printed every ten seconds.
struct Progress {
    begin: Instant,
    said: Instant,
}

impl Progress {
    fn new() -> Self {
        let begin = Instant::now();
        Self { begin, said: begin }
    }

    fn say(&mut self, cut: u64, cuts: u64, committed: i64) {
        if self.said.elapsed().as_secs() < 10 {
            return;
        }
        self.said = Instant::now();
        let passed = self.begin.elapsed().as_secs_f64();
        let left = passed / cut.max(1) as f64 * (cuts - cut) as f64;
        eprintln!(
            "{cut} of {cuts} cuts in {passed:.0} s, {committed} transactions, nothing lost or partial; about {:.0} min left",
            left / 60.0
        );
    }
}

/// Wrong bits in 10^9 for each read: a block is moved after some 10,000 to 30,000 reads, and can be
/// read until three times as many.
const PER_READ: u32 = 100;

/// Power cuts under SQLite: everything committed exists, and nothing in part. A third of them is on
/// a device that puts copies among the host's pages, a third on one with all parts that are there by
/// choice. `ONEWRITE_FTL_CUTS` sets their number:
///
/// ```text
/// ONEWRITE_FTL_CUTS=20000 cargo test -p onewrite-cli --test ftl nothing_is_lost -- --nocapture
/// ```
#[test]
fn nothing_is_lost_and_nothing_is_partial_after_power_cuts() {
    if !can_run() {
        return;
    }
    let cuts = std::env::var("ONEWRITE_FTL_CUTS")
        .ok()
        .and_then(|cuts| cuts.parse().ok())
        .unwrap_or(150);
    let seed = std::env::var("ONEWRITE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    println!("ONEWRITE_SEED={seed}");
    let mut random = Random::new(seed);
    let parts = AllParts::new(PER_READ);
    cut_and_look(&["--copies", "apart"], cuts - cuts / 3 * 2, &mut random);
    cut_and_look(&["--copies", "among-host"], cuts / 3, &mut random);
    cut_and_look(&parts.options(), cuts / 3, &mut random);
}

fn cut_and_look(shape: &[&str], cuts: u64, random: &mut Random) {
    let mut mounted = Mounted::with(shape);
    mounted
        .open("a.db")
        .execute_batch("CREATE TABLE t (a INTEGER PRIMARY KEY, number INTEGER, b TEXT); CREATE INDEX i ON t (b)")
        .unwrap();
    let (mut committed, mut in_doubt) = (0_i64, 0);
    let mut progress = Progress::new();
    for cut in 0..cuts {
        progress.say(cut, cuts, committed);
        let connection = mounted.open("a.db");
        connection.execute_batch("PRAGMA cache_size=10").unwrap();
        // Every transaction replaces all rows, with its number in each.
        let found: (i64, i64, i64) = connection
            .query_row(
                "SELECT count(*), ifnull(min(number), 0), ifnull(max(number), 0) FROM t",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .unwrap();
        assert_eq!(
            found.1, found.2,
            "cut {cut}: a transaction is there in part"
        );
        assert!(
            found.1 == committed || found.1 == committed + 1 && in_doubt == 1,
            "cut {cut}: {found:?}, {committed} committed"
        );
        assert_eq!(integrity(&connection), "ok", "cut {cut}");
        (committed, in_doubt) = (found.1, 0);
        mounted.order(&format!("cut {}", random.below(150)));
        loop {
            let number = committed + 1;
            let (rows, length) = (1 + random.below(40), 1 + random.below(600));
            let write = || -> rusqlite::Result<()> {
                connection.execute_batch("BEGIN; DELETE FROM t")?;
                for _ in 0..rows {
                    connection.execute(
                        "INSERT INTO t (number, b) VALUES (?1, ?2)",
                        (number, "y".repeat(length)),
                    )?;
                }
                Ok(())
            };
            if write().is_err() {
                break;
            }
            if random.percent(20) {
                if connection.execute_batch("ROLLBACK").is_err() {
                    break;
                }
                continue;
            }
            if connection.execute_batch("COMMIT").is_err() {
                in_doubt = 1;
                break;
            }
            committed = number;
        }
        drop(connection);
        mounted.lose_power();
    }
    println!("{shape:?}: {cuts} cuts, {committed} transactions");
}

/// A name that is taken over always exists, whether a process has the old file open or not.
#[test]
fn renaming_over_a_file_is_one_transaction() {
    if !can_run() {
        return;
    }
    let mut mounted = Mounted::new();
    let files = mounted.files();
    let (name, new) = (files.join("name"), files.join("new"));
    let mut kept = [0, 0];
    for at in 0..24 {
        fs::write(&name, b"old").unwrap();
        fs::write(&new, b"new").unwrap();
        let open = (at % 2 == 0).then(|| fs::File::open(&name).unwrap());
        mounted.order(&format!("cut {}", at / 2));
        let renamed = fs::rename(&new, &name);
        drop(open);
        mounted.lose_power();
        let found = fs::read(&name).unwrap_or_default();
        let is_new = found == b"new";
        assert!(
            is_new || found == b"old" && renamed.is_err(),
            "cut at {at}: {found:?}"
        );
        kept[usize::from(is_new)] += 1;
    }
    assert!(kept.iter().all(|kept| *kept > 0), "{kept:?}");
}
