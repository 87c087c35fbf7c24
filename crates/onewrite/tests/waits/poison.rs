//! A poisoned log invalidates the wal-index, so that other processes recover from the device. It
//! does so as soon as it gets the lock for that.

use super::helper::Helper;
use super::{code, companion, made, rows, sql};
use onewrite::storage::observer::{Call, Observer, observe};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const WRITE: i64 = 120;
const IOERR: i32 = 10;
/// The log whose flushes fail.
static FAILING: Mutex<Option<PathBuf>> = Mutex::new(None);

struct FailingFlushes;

impl Observer for FailingFlushes {
    fn before(&self, path: &Path, call: &Call<'_>) -> io::Result<()> {
        let failing = FAILING.lock().expect("no panic");
        match matches!(call, Call::Flush) && failing.as_deref() == Some(path) {
            true => Err(io::Error::from_raw_os_error(5)),
            false => Ok(()),
        }
    }
}

#[test]
fn it_is_made_invalid_also_where_the_lock_was_refused_at_first() {
    assert!(observe(Box::new(FailingFlushes)), "the only hook");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = made(&path, "waldio");
    sql(&db, "PRAGMA synchronous=NORMAL");
    sql(&db, "INSERT INTO t VALUES('published')");
    let index = companion(&path, "-shm");
    let look = format!("bytes 96 {}", index.display());
    let mut watcher = Helper::start();
    let mut helper = Helper::start();
    helper.lock(&index, "write", WRITE, 1);
    let valid = watcher.ask(&look);
    *FAILING.lock().expect("no panic") = Some(companion(&path, "-onewrite"));
    let failed = rows::query(&db, "PRAGMA wal_checkpoint(PASSIVE)");
    assert_eq!(code(&failed), Some(IOERR), "{failed:?}");
    assert_eq!(watcher.ask(&look), valid, "somebody writes");
    drop(helper);
    let failed = rows::query(&db, "INSERT INTO t VALUES('more')");
    assert_eq!(code(&failed), Some(IOERR), "{failed:?}");
    assert_eq!(watcher.ask(&look), format!("{:?}", Some([0; 96])));
    *FAILING.lock().expect("no panic") = None;
}
