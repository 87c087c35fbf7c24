//! No descriptors, no memory.

use super::{Done, Stop, Trial, companion, count, insert, open, sqlite};
use crate::failure::Failure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;

/// The number of open descriptors of the process.
fn descriptors() -> Result<u64, Stop> {
    // One of them belongs to the listing.
    Ok(fs::read_dir("/proc/self/fd")?.count() as u64 - 1)
}

fn limit(descriptors: Option<u64>) -> Result<(), Stop> {
    let now = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: descriptors.or(now.maximum),
        maximum: now.maximum,
    };
    setrlimit(Resource::Nofile, wanted)
        .map_err(|e| Stop::Harness(Failure::Harness(format!("RLIMIT_NOFILE: {e}"))))
}

pub fn no_descriptors(trial: &mut Trial) -> Done {
    let path = trial.dir.join("a.db");
    drop(trial.make(&path, 1)?);
    let mut rows = 1;
    let mut went_through = false;
    for more in 0..24 {
        let most = descriptors()? + more;
        limit(Some(most))?;
        let opened = open(&path);
        let code = trial.code(&opened);
        trial.expect(
            [0, 14].contains(&(code & 0xff)),
            format!("open, {more} left: {code}"),
        );
        if let Ok(connection) = &opened {
            let written = insert(connection, more as u32);
            let code = trial.code(&written);
            let log = sqlite::take_log().join("; ");
            trial.expect(
                [0, 14].contains(&(code & 0xff)),
                format!("commit, {more} left: {code} {log}"),
            );
            rows += u32::from(written.is_ok());
            went_through |= written.is_ok();
            // A file that could not be opened can be opened when there are descriptors again.
            limit(None)?;
            let again = insert(connection, 1000);
            rows += u32::from(again.is_ok());
            let code = trial.code(&again);
            trial.expect(
                code == 0,
                format!("commit afterwards, {more} were left: {code}"),
            );
        }
        limit(None)?;
        drop(opened);
        trial.holds(&path, rows)?;
    }
    trial.expect(went_through, "there were never enough");
    Ok(())
}

pub fn no_memory(trial: &mut Trial) -> Done {
    let template = trial.dir.join("template.db");
    trial.make_killed(&template, 10)?;
    let path = trial.dir.join("a.db");
    for for_good in [false, true] {
        let mut nth = 1;
        loop {
            for suffix in ["-wal", "-shm", "-journal", "-onewrite", ""] {
                let (from, to) = (companion(&template, suffix), companion(&path, suffix));
                let _ = fs::remove_file(&to);
                if from.exists() {
                    super::super::directory::copy_file(&from, &to)?;
                }
            }
            sqlite::refuse_memory(nth, for_good);
            let committed = work(&path);
            let refused = sqlite::grant_memory();
            check(trial, &path, nth, &committed)?;
            if refused == 0 {
                break;
            }
            // A lasting refusal depends on the stage at which it begins, not on the exact page of a
            // hundred.
            nth += if for_good { 7 } else { 1 };
        }
    }
    Ok(())
}

/// Opens, recovers, commits, checkpoints, closes. Returns the commits that succeeded, of two, and
/// the first error.
fn work(path: &std::path::Path) -> (Vec<u32>, rusqlite::Result<()>) {
    let mut committed = Vec::new();
    let mut all = || {
        let connection = open(path)?;
        count(&connection)?;
        insert(&connection, 101)?;
        committed.push(101);
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
        insert(&connection, 102)?;
        committed.push(102);
        connection.close().map_err(|(_, error)| error)
    };
    let done = all();
    (committed, done)
}

fn check(
    trial: &mut Trial,
    path: &std::path::Path,
    nth: i64,
    (committed, done): &(Vec<u32>, rusqlite::Result<()>),
) -> Done {
    let code = trial.code(done);
    // NOMEM, or an I/O error whose reason is NOMEM (SQLITE_IOERR_NOMEM).
    let is_right = [0, 7].contains(&(code & 0xff)) || code == 10 | 12 << 8;
    trial.expect(
        is_right,
        format!("allocation {nth} refused: {code} {done:?}"),
    );
    let connection = open(path)?;
    for x in committed {
        let found: i64 =
            connection.query_row("SELECT count(*) FROM t WHERE x = ?1", [x], |row| row.get(0))?;
        trial.expect(
            found == 1,
            format!("allocation {nth} refused: {found} of row {x}"),
        );
    }
    let found = count(&connection)?;
    trial.expect(
        (10..=12).contains(&found),
        format!("allocation {nth} refused: {found} rows"),
    );
    let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    trial.expect(check == "ok", check);
    Ok(())
}
