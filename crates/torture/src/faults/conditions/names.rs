//! Names: symbolic links, long names, odd names.

use super::{Done, Trial, companion, count, open};
use crate::database::JournalMode;
use std::fs;
use std::os::unix::fs::symlink;

pub fn symbolic_link(trial: &mut Trial) -> Done {
    let (real, links) = (trial.dir.join("real"), trial.dir.join("links"));
    fs::create_dir_all(&real)?;
    fs::create_dir_all(&links)?;
    let (path, link) = (real.join("a.db"), links.join("link.db"));
    drop(trial.make(&path, 10)?);
    symlink(&path, &link)?;
    let by_link = open(&link)?;
    let by_path = open(&path)?;
    super::insert(&by_link, 11)?;
    let found = count(&by_path)?;
    trial.expect(found == 11, format!("{found} of 11 rows by the other name"));
    let entries = fs::read_dir(&links)?.count();
    trial.expect(entries == 1, "something was made next to the link");
    drop((by_link, by_path));
    trial.holds(&link, 11)?;
    trial.holds(&path, 11)?;
    if !trial.mode.is_ours() {
        return Ok(());
    }
    // A symbolic link at the log's path is not followed, as with SQLite's own files.
    let (log, kept) = (companion(&path, "-onewrite"), companion(&path, "-kept"));
    fs::rename(&log, &kept)?;
    symlink(&kept, &log)?;
    let refused = open(&path).and_then(|connection| super::insert(&connection, 1));
    trial.refused(&refused, &[14], "symbolic link");
    fs::remove_file(&log)?;
    fs::rename(&kept, &log)?;
    trial.holds(&path, 11)
}

pub fn names(trial: &mut Trial) -> Done {
    let long: String = "d".repeat(200);
    let odd = [
        "with spaces and 'quotes\".db".to_owned(),
        "Ünïcödé-数据库-база.db".to_owned(),
        "semi;colon?and=percent%20.db".to_owned(),
        format!("{long}/{long}.db"),
    ];
    for (number, name) in odd.iter().enumerate() {
        let path = trial.dir.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        drop(trial.make(&path, 10)?);
        trial.holds(&path, 10)?;
        let killed = path.with_file_name(format!("k 数 {number}"));
        trial.make_killed(&killed, 10)?;
        trial.holds(&killed, 10)?;
    }
    no_room_for_the_suffix(trial)
}

/// 247 bytes and "-journal" are the 255 that a name may have; "-onewrite" is one byte longer.
fn no_room_for_the_suffix(trial: &mut Trial) -> Done {
    let path = trial.dir.join("n".repeat(247));
    let connection = open(&path)?;
    connection.execute_batch("CREATE TABLE t(x)")?;
    super::insert(&connection, 1)?;
    if trial.mode == JournalMode::Waldio {
        // This database has no room for frame headers in its pages.
        connection.execute_batch("PRAGMA onewrite_layout=page4k")?;
    }
    super::sqlite::take_log();
    let switched =
        connection.query_row(&format!("PRAGMA journal_mode={}", trial.mode), [], |row| {
            row.get::<_, String>(0)
        });
    if trial.mode.is_ours() {
        trial.refused(&switched, &[14], "name too long");
    }
    super::insert(&connection, 2)?;
    drop(connection);
    let log = companion(&path, "-wal");
    trial.expect(!log.exists(), "a log was left");
    trial.holds(&path, 2)
}
