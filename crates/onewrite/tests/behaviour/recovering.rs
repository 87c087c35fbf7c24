//! A process that is killed in a recovery, next to others that use the database.
#![allow(unsafe_code)]

use super::child::Child;
use super::{open, sql};
use onewrite_common::files::companion;
use rusqlite::ffi;
use std::ffi::{c_char, c_int, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Both copies of the wal-index's header.
const HEADERS: usize = 96;
/// Where it has the number of the last recovery.
const NUMBER_AT: u64 = 33 * 4;
const COUNT: &str = "SELECT count(*) FROM t";

fn index(path: &Path) -> File {
    let path = companion(path, "-shm");
    let mut options = File::options();
    options.read(true).write(true).open(path).expect("a file")
}

/// The header of the wal-index, and the number of its last recovery.
fn header_and_number(path: &Path) -> ([u8; HEADERS], [u8; 4]) {
    let (mut header, mut number) = ([0; HEADERS], [0; 4]);
    let file = index(path);
    file.read_exact_at(&mut header, 0).expect("a header");
    file.read_exact_at(&mut number, NUMBER_AT).expect("a word");
    (header, number)
}

/// SQLite tells of a recovery after it has published the header, and before it unlocks.
unsafe extern "C" fn dies(_: *mut c_void, code: c_int, _: *const c_char) {
    if code == ffi::SQLITE_NOTICE_RECOVER_WAL {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("a signal");
        loop {
            std::thread::park();
        }
    }
}

#[test]
#[ignore = "run by another test"]
fn dies_in_its_recovery() {
    let dies: unsafe extern "C" fn(*mut c_void, c_int, *const c_char) = dies;
    let nothing = std::ptr::null_mut::<c_void>();
    // SAFETY: before SQLite is used; the function stays.
    let code = unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_LOG, dies, nothing) };
    assert_eq!(code, ffi::SQLITE_OK);
    let path = std::env::var_os("ONEWRITE_TEST_DATABASE").expect("a path");
    sql(&open(path.as_ref()), COUNT);
    unreachable!("it has recovered");
}

#[test]
fn others_go_on_after_one_that_was_killed_between_the_header_and_the_end_of_its_recovery() {
    for mode in ["onewrite", "swal", "waldio", "direct"] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        let mut others = [Child::start(&path), Child::start(&path)];
        assert_eq!(others[0].sql(&format!("PRAGMA journal_mode={mode}")), mode);
        assert_eq!(others[0].sql("CREATE TABLE t(x)"), "");
        let mut count = 0;
        let mut insert = |others: &mut [Child]| {
            for other in others {
                assert_eq!(other.sql("PRAGMA busy_timeout=10000"), "10000");
                assert_eq!(other.sql("INSERT INTO t VALUES(1)"), "", "{mode}");
                count += 1;
                assert_eq!(other.sql(COUNT), count.to_string(), "{mode}");
            }
        };
        insert(&mut others);
        for _ in 0..3 {
            let (header, number) = header_and_number(&path);
            index(&path)
                .write_all_at(&[0; HEADERS], 0)
                .expect("an invalid header");
            let killed = Command::new(std::env::current_exe().expect("this program"))
                .args(["--exact", "recovering::dies_in_its_recovery", "--ignored"])
                .env("ONEWRITE_TEST_DATABASE", &path)
                .stdout(Stdio::null())
                .status()
                .expect("a child");
            assert_eq!(killed.signal(), Some(9), "{mode}");
            let (published, new) = header_and_number(&path);
            // The change counter may differ: SQLite gives it another value.
            assert_eq!(published[16..40], header[16..40], "{mode}");
            assert_ne!(new, number, "{mode}: the header is of the old history");
            insert(&mut others);
        }
        drop(others);
        assert_eq!(sql(&open(&path), "PRAGMA integrity_check"), "ok", "{mode}");
    }
}
