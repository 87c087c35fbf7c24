//! Reads and writes that fail. In a program of its own, because SQLite's system calls are the process's;
//! which of them fail is the thread's.

use lsmvbt_sqlite::sqlite::Connection;

#[allow(unsafe_code)]
mod calls {
    use std::cell::Cell;
    use std::ffi::{CStr, c_char, c_int, c_void};

    /// A system call. SQLite calls it with the type that belongs to its name.
    type Call = unsafe extern "C" fn();

    /// `sqlite3_vfs`.
    #[repr(C)]
    struct Vfs {
        version: c_int,
        file_size: c_int,
        longest_path: c_int,
        next: *mut Vfs,
        name: *const c_char,
        data: *mut c_void,
        methods: [Option<unsafe extern "C" fn()>; 13],
        set_system_call: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, Call) -> c_int>,
    }

    unsafe extern "C" {
        fn sqlite3_vfs_find(name: *const c_char) -> *mut Vfs;
        fn sqlite3_initialize() -> c_int;
        fn pread(file: c_int, data: *mut c_void, size: usize, offset: i64) -> isize;
        fn pwrite(file: c_int, data: *const c_void, size: usize, offset: i64) -> isize;
        fn __errno_location() -> *mut c_int;
    }

    thread_local! {
        /// Calls that succeed before all fail.
        static READS: Cell<u64> = const { Cell::new(u64::MAX) };
        static WRITES: Cell<u64> = const { Cell::new(u64::MAX) };
    }

    fn fails(left: &'static std::thread::LocalKey<Cell<u64>>) -> bool {
        // As of a network file system. SQLite takes EIO of a read for damage.
        const ETIMEDOUT: c_int = 110;
        if left.get() > 0 {
            left.set(left.get() - 1);
            return false;
        }
        // SAFETY: it is the thread's own.
        unsafe { *__errno_location() = ETIMEDOUT };
        true
    }

    unsafe extern "C" fn read(file: c_int, data: *mut c_void, size: usize, at: i64) -> isize {
        // SAFETY: the caller's promise.
        if fails(&READS) {
            -1
        } else {
            unsafe { pread(file, data, size, at) }
        }
    }

    unsafe extern "C" fn write(file: c_int, data: *const c_void, size: usize, at: i64) -> isize {
        // SAFETY: the caller's promise.
        if fails(&WRITES) {
            -1
        } else {
            unsafe { pwrite(file, data, size, at) }
        }
    }

    /// From now on the threads' reads and writes may fail.
    pub fn watch() {
        let name: &CStr = c"unix";
        let read: unsafe extern "C" fn(c_int, *mut c_void, usize, i64) -> isize = read;
        let write: unsafe extern "C" fn(c_int, *const c_void, usize, i64) -> isize = write;
        // SAFETY: SQLite has this VFS, whose third version has the method. It calls both functions with
        // the types that they have.
        unsafe {
            assert_eq!(sqlite3_initialize(), 0);
            let vfs = sqlite3_vfs_find(name.as_ptr());
            assert!((*vfs).version >= 3);
            let set = (*vfs).set_system_call.expect("a method");
            let read = std::mem::transmute::<*const (), Call>(read as *const ());
            let write = std::mem::transmute::<*const (), Call>(write as *const ());
            assert_eq!(set(vfs, c"pread".as_ptr(), read), 0);
            assert_eq!(set(vfs, c"pwrite".as_ptr(), write), 0);
        }
    }

    /// So many reads of this thread succeed, then all fail; `None`: none fails.
    pub fn reads(succeed: Option<u64>) {
        READS.set(succeed.unwrap_or(u64::MAX));
    }

    /// The same for writes.
    pub fn writes(succeed: Option<u64>) {
        WRITES.set(succeed.unwrap_or(u64::MAX));
    }
}

/// A directory and the path of a database in it.
fn place() -> (tempfile::TempDir, String) {
    calls::watch();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("x").display().to_string();
    (directory, path)
}

fn open(path: &str) -> Connection {
    Connection::open(&format!("file:{path}?engine=lsmvbt")).expect("a database")
}

fn one(connection: &Connection, sql: &str) -> Result<String, String> {
    let rows = connection.query(sql).map_err(|error| error.message)?;
    Ok(rows[0][0].to_string())
}

/// The transaction spills, so that its rollback must flush, which is refused after a failed write.
#[test]
fn the_message_has_the_first_error() {
    let (_directory, path) = place();
    let connection = open(&path);
    let make = "CREATE TABLE t(a INTEGER PRIMARY KEY, b); PRAGMA lsmvbt_torn = trust; PRAGMA cache_size = 20";
    connection.execute(make).expect("a table");
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) \
        INSERT INTO t SELECT i, zeroblob(500) FROM n";
    calls::writes(Some(100));
    let error = connection.execute(fill).expect_err("a write that fails");
    calls::writes(None);
    let start = format!("disk I/O error: {path}: ");
    assert!(error.message.starts_with(&start), "{error}");
    assert!(error.message.contains("writing a page"), "{error}");
    let error = connection.execute("DELETE FROM t").expect_err("poisoned");
    assert!(error.message.contains("close every connection"), "{error}");
    drop(connection);
    let connection = open(&path);
    assert_eq!(
        one(&connection, "SELECT count(*) FROM t"),
        Ok("0".to_owned())
    );
    connection.execute(fill).expect("written");
}

/// `sqlite3BtreeGetMeta()` returns no error. A 0 in its place would be an empty database in UTF-8.
#[test]
fn a_read_that_fails_makes_no_number_of_the_header_a_zero() {
    let (_directory, path) = place();
    let make = "PRAGMA encoding = 'UTF-16le'; CREATE TABLE t(x); PRAGMA user_version = 7; INSERT INTO t VALUES ('a')";
    open(&path).execute(make).expect("a table");
    for (sql, answer) in [
        ("PRAGMA user_version", "7"),
        ("PRAGMA encoding", "UTF-16le"),
        ("SELECT hex(x) FROM t", "6100"),
    ] {
        let mut failures = 0;
        loop {
            let connection = open(&path);
            calls::reads(Some(failures));
            let said = one(&connection, sql);
            calls::reads(None);
            match said {
                Ok(said) => {
                    assert_eq!(said, answer, "{sql}: {failures} reads");
                    break;
                }
                Err(message) => assert!(message.starts_with("disk I/O error"), "{sql}: {message}"),
            }
            assert_eq!(
                one(&connection, sql).as_deref(),
                Ok(answer),
                "{sql}: {failures} reads"
            );
            failures += 1;
        }
        println!("{sql}: {failures} reads");
        assert!(failures > 2, "{sql}");
    }
}
