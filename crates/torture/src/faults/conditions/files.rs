//! Logs that are missing, belong to another database, are forbidden, or are not files.

use super::{Done, Trial, companion, count, insert, open};
use crate::database::JournalMode;
use crate::failure::Failure;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

/// The user nobody.
pub const NOBODY: u32 = 65534;

/// The database's name in the directory that [`make_forbidden`] makes.
const FORBIDDEN: &str = "forbidden.db";

pub fn log_deleted(trial: &mut Trial) -> Done {
    let path = trial.dir.join("a.db");
    let connection = trial.make(&path, 10)?;
    fs::remove_file(companion(&path, "-onewrite"))?;
    no_commit_goes_nowhere(trial, &connection);
    // All commits can still be read through the open file, and go to the database.
    let found = count(&connection)?;
    trial.expect(found == 10, format!("{found} of 10 rows"));
    drop(connection);
    trial.holds(&path, 10)?;
    let connection = open(&path)?;
    let written = insert(&connection, 11);
    let code = trial.code(&written);
    trial.expect(code == 0, "no commit after reopening");
    drop(connection);
    trial.holds(&path, 11)
}

/// A commit that no later process could find must not succeed.
fn no_commit_goes_nowhere(trial: &mut Trial, connection: &rusqlite::Connection) {
    for x in 100..103 {
        super::sqlite::take_log();
        let written = insert(connection, x);
        trial.refused(&written, &[10], "-onewrite");
    }
}

pub fn log_replaced(trial: &mut Trial) -> Done {
    let (path, other) = (trial.dir.join("a.db"), trial.dir.join("b.db"));
    trial.make_killed(&other, 5)?;
    let connection = trial.make(&path, 10)?;
    fs::rename(
        companion(&other, "-onewrite"),
        companion(&path, "-onewrite"),
    )?;
    no_commit_goes_nowhere(trial, &connection);
    drop(connection);
    // The guard was cleared through the replaced file. The log that stands there now belongs to no
    // database. Opening reports that until the log is moved away.
    let refused = open(&path).and_then(|connection| count(&connection));
    trial.refused(&refused, &[14], "-onewrite");
    fs::remove_file(companion(&path, "-onewrite"))?;
    trial.holds(&path, 10)
}

pub fn log_of_another(trial: &mut Trial) -> Done {
    let (path, other) = (trial.dir.join("a.db"), trial.dir.join("b.db"));
    trial.make_killed(&path, 10)?;
    trial.make_killed(&other, 5)?;
    let log = companion(&path, "-onewrite");
    let kept = companion(&path, "-kept");
    fs::rename(&log, &kept)?;
    fs::copy(companion(&other, "-onewrite"), &log)?;
    let refused = open(&path).and_then(|connection| count(&connection));
    trial.refused(&refused, &[14], "belongs to another database");
    fs::remove_file(&log)?;
    let refused = open(&path).and_then(|connection| count(&connection));
    trial.refused(&refused, &[14], "missing");
    fs::rename(&kept, &log)?;
    trial.holds(&path, 10)
}

pub fn directory_as_log(trial: &mut Trial) -> Done {
    let path = trial.dir.join("a.db");
    drop(trial.make(&path, 10)?);
    let log = companion(&path, "-onewrite");
    let kept = companion(&path, "-kept");
    fs::rename(&log, &kept)?;
    fs::create_dir(&log)?;
    let refused = open(&path).and_then(|connection| insert(&connection, 1));
    trial.refused(&refused, &[14], "not a regular file");
    fs::remove_dir(&log)?;
    fs::rename(&kept, &log)?;
    trial.holds(&path, 10)
}

/// Runs as root, before the condition's process becomes the user nobody. Makes two databases that
/// nobody may use, each next to a log that nobody may open.
pub fn make_forbidden(mode: JournalMode, dir: &Path) -> Result<(), Failure> {
    let open_up = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777));
    open_up(dir)?;
    for parent in dir.ancestors().skip(1) {
        let is_temporary =
            parent.starts_with("/dev/shm/") || parent.starts_with(std::env::temp_dir());
        if is_temporary && parent != std::env::temp_dir() {
            fs::set_permissions(parent, fs::Permissions::from_mode(0o755))?;
        }
    }
    onewrite::register().map_err(|e| Failure::Harness(e.to_string()))?;
    let mut trial = Trial {
        mode,
        dir: dir.to_owned(),
        images: dir.to_owned(),
        tally: super::Tally::default(),
    };
    let path = dir.join(FORBIDDEN);
    let made = trial.make_killed(&path, 10);
    if made.is_err() {
        return Err(Failure::Harness("making a database for nobody".to_owned()));
    }
    let log = companion(
        &path,
        if mode.is_guarded() {
            "-onewrite"
        } else {
            "-wal"
        },
    );
    fs::set_permissions(&log, fs::Permissions::from_mode(0o600))?;
    chown(&path, Some(NOBODY), Some(NOBODY))?;
    Ok(())
}

pub fn log_forbidden(trial: &mut Trial) -> Done {
    let path = trial.dir.join(FORBIDDEN);
    let before = fs::read(&path)?;
    let refused = open(&path).and_then(|connection| insert(&connection, 1));
    trial.refused(&refused, &[14], "denied");
    trial.expect(fs::read(&path)? == before, "the database was changed");
    Ok(())
}

pub fn foreign_index(trial: &mut Trial) -> Done {
    let (path, other) = (trial.dir.join("a.db"), trial.dir.join("b.db"));
    trial.make_killed(&path, 10)?;
    let live = trial.make(&other, 25)?;
    fs::copy(companion(&other, "-shm"), companion(&path, "-shm"))?;
    drop(live);
    trial.holds(&path, 10)
}

/// In a guarded mode the log is ours, whatever lies next to it.
pub fn foreign_wal(trial: &mut Trial) -> Done {
    let (path, other) = (trial.dir.join("a.db"), trial.dir.join("b.db"));
    trial.make_killed(&path, 10)?;
    let stock = rusqlite::Connection::open(&other)?;
    stock.execute_batch(
        "PRAGMA journal_mode=wal; CREATE TABLE other(y); INSERT INTO other VALUES(1)",
    )?;
    fs::copy(companion(&other, "-wal"), companion(&path, "-wal"))?;
    drop(stock);
    let ours = open(&path)?;
    let found = count(&ours)?;
    trial.expect(
        found == 10,
        format!("{found} of 10 rows next to a foreign -wal"),
    );
    insert(&ours, 11)?;
    let found = count(&ours)?;
    trial.expect(
        found == 11,
        format!("{found} of 11 rows next to a foreign -wal"),
    );
    Ok(())
}
