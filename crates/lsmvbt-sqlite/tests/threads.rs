//! A backup that several threads step, where SQLite gives a mutex only to the connections that ask for
//! one. In a program of its own, because that is the process's.

use lsmvbt_sqlite::sqlite::Connection;

#[path = "glue/raw.rs"]
mod raw;

use raw::{CREATE, Db, FULLMUTEX, MAIN, NOMUTEX};

#[allow(unsafe_code)]
mod config {
    use std::ffi::c_int;

    unsafe extern "C" {
        fn sqlite3_config(option: c_int, ...) -> c_int;
    }

    /// Before SQLite's first use.
    pub fn multithread() {
        // SAFETY: `SQLITE_CONFIG_MULTITHREAD` takes nothing.
        assert_eq!(unsafe { sqlite3_config(2) }, 0);
    }
}

/// The mutex of the source is the one that stock SQLite relies on.
#[test]
fn threads_may_step_a_backup_whose_source_has_a_mutex() {
    config::multithread();
    let directory = tempfile::tempdir().expect("a directory");
    for engine in ["stock", "lsmvbt"] {
        let path = |name: &str| directory.path().join(format!("{name}.{engine}"));
        let source = path("source");
        let source = Db::open(
            &format!("file:{}?engine={engine}", source.display()),
            CREATE | FULLMUTEX,
        );
        let rows = "CREATE TABLE t(a INTEGER PRIMARY KEY, b); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT \
            i + 1 FROM n WHERE i < 8000) INSERT INTO t SELECT i, randomblob(1000) FROM n";
        assert_eq!(source.run(rows), 0);
        let copied = path("copy").display().to_string();
        let copy = Db::open(&copied, CREATE | NOMUTEX);
        let backup = copy.backup_from(MAIN, source, MAIN).expect("a backup");
        let steps = || (0..).map(|_| backup.step(1)).find(|code| *code != 0);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(steps)).collect();
            for thread in threads {
                assert_eq!(thread.join().expect("a thread"), Some(101), "{engine}");
            }
        });
        assert_eq!((backup.finish(), copy.close(), source.close()), (0, 0, 0));
        let copy = Connection::open(&copied).expect("the copy");
        let said = copy
            .query("SELECT count(*) FROM t; PRAGMA integrity_check")
            .expect("rows");
        let said: Vec<String> = said.iter().map(|row| row[0].to_string()).collect();
        assert_eq!(said, ["8000", "ok"], "{engine}");
    }
}
