//! A VFS over ours that keeps the wal-index to itself, in memory. Ours sees no wal-index, and none
//! of its locks.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, OnceLock};

use rusqlite::ffi::{
    SQLITE_OK, SQLITE_OPEN_MAIN_DB, sqlite3_file, sqlite3_io_methods, sqlite3_vfs,
    sqlite3_vfs_find, sqlite3_vfs_register,
};

use super::database::{connect, query};

const REGION_BYTES: usize = 32_768;

/// The wal-index of the only database. Regions are never freed.
static REGIONS: Mutex<Vec<&mut [u64; REGION_BYTES / 8]>> = Mutex::new(Vec::new());

struct Ours(*mut sqlite3_vfs);

// SAFETY: SQLite itself shares its VFS between threads.
unsafe impl Send for Ours {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for Ours {}

static OURS: OnceLock<Ours> = OnceLock::new();

unsafe extern "C" fn open(
    _vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: passed on as it came. An open file has methods, and all but four of them stay as they
    // are.
    unsafe {
        let ours = OURS.get().expect("registered").0;
        let code = (*ours).xOpen.expect("a method")(ours, name, file, flags, out_flags);
        if code == SQLITE_OK && flags & SQLITE_OPEN_MAIN_DB != 0 {
            (*file).pMethods = Box::leak(Box::new(sqlite3_io_methods {
                xShmMap: Some(shm_map),
                xShmLock: Some(shm_lock),
                xShmBarrier: Some(shm_barrier),
                xShmUnmap: Some(shm_unmap),
                ..*(*file).pMethods
            }));
        }
        code
    }
}

unsafe extern "C" fn shm_map(
    _file: *mut sqlite3_file,
    region: c_int,
    size: c_int,
    _extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    assert_eq!(size as usize, REGION_BYTES);
    let mut regions = REGIONS.lock().expect("the regions");
    while regions.len() <= region as usize {
        regions.push(Box::leak(Box::new([0; REGION_BYTES / 8])));
    }
    let found: *mut [u64; REGION_BYTES / 8] = &raw mut *regions[region as usize];
    // SAFETY: SQLite passes room for a pointer.
    unsafe { *out = found.cast() };
    SQLITE_OK
}

/// The test has only one connection.
unsafe extern "C" fn shm_lock(_: *mut sqlite3_file, _: c_int, _: c_int, _: c_int) -> c_int {
    SQLITE_OK
}

unsafe extern "C" fn shm_barrier(_: *mut sqlite3_file) {}

unsafe extern "C" fn shm_unmap(_: *mut sqlite3_file, _: c_int) -> c_int {
    SQLITE_OK
}

fn register() {
    onewrite::register().expect("the VFS onewrite");
    // SAFETY: both VFSs live as long as the process; the new one has a name of its own.
    unsafe {
        let ours = sqlite3_vfs_find(c"onewrite".as_ptr());
        assert!(!ours.is_null());
        let mut vfs = *ours;
        assert!(OURS.set(Ours(ours)).is_ok(), "registered once");
        vfs.zName = c"own-index".as_ptr();
        vfs.pNext = ptr::null_mut();
        vfs.xOpen = Some(open);
        let vfs = Box::leak(Box::new(vfs));
        assert_eq!(sqlite3_vfs_register(vfs, 0), SQLITE_OK);
    }
}

#[test]
fn a_transaction_reads_back_what_it_has_written() {
    register();
    let directory = tempfile::tempdir().expect("a directory");
    let db = connect(&directory.path().join("db"), "own-index");
    let sql =
        |statement: &str| query(&db, statement).unwrap_or_else(|e| panic!("{statement}: {e}"));
    sql("PRAGMA onewrite_layout=gathered");
    assert_eq!(sql("PRAGMA journal_mode=onewrite"), "onewrite");
    sql("CREATE TABLE t(a, b)");
    sql(
        "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 300) \
         INSERT INTO t SELECT randomblob(400), randomblob(400) FROM s",
    );
    // Pages leave the cache for the log, and are read back from it, gathered and spilled.
    sql("PRAGMA cache_size=2");
    sql("BEGIN");
    for _ in 0..4 {
        sql("UPDATE t SET a = randomblob(400)");
        sql("UPDATE t SET b = randomblob(400)");
    }
    sql("COMMIT");
    assert_eq!(sql("PRAGMA integrity_check"), "ok");
    assert_eq!(
        sql("SELECT count(*), sum(length(a) + length(b)) FROM t"),
        "300|240000"
    );
}
