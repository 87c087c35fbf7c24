//! Memory that the system does not give: an error of the statement, and nothing else. In a program of
//! its own, because the limit is the process's.

use lsmvbt_sqlite::sqlite::Connection;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Set in the process of [`memory_that_the_system_refuses_is_an_error`] that has the limit.
const LIMITED: &str = "LSMVBT_TEST_LIMITED";

/// Lets the process have so many bytes more than it has now; `None`: as many as it wants.
fn limit(beyond: Option<u64>) {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("the process's size");
    let pages = statm.split(' ').next().and_then(|size| size.parse().ok());
    let now = 4096 * pages.unwrap_or(0u64);
    let maximum = getrlimit(Resource::As).maximum;
    let current = beyond.map_or(maximum, |beyond| Some(now + beyond));
    setrlimit(Resource::As, Rlimit { current, maximum }).expect("a limit");
}

/// Statements for which there is too little memory, each in a database of 40 MB.
fn starve(path: &str) {
    let connection = Connection::open(path).expect("a database");
    let run = |sql: &str| connection.execute(sql).map_err(|error| error.message);
    let rows = "SELECT (SELECT count(*) FROM t), (SELECT sum(length(b)) FROM t)";
    let before = connection.query(rows).expect("the rows");
    for (sql, beyond) in [
        ("INSERT INTO t VALUES (-1, zeroblob(900000000))", 200 << 20),
        // All pages of a transaction stay in memory, as far as the cache holds them.
        ("UPDATE t SET b = randomblob(3000)", 40 << 20),
    ] {
        run("PRAGMA cache_size = 1000000").expect("a large cache");
        limit(Some(beyond));
        let refused = run(sql);
        limit(None);
        assert_eq!(refused, Err("out of memory".to_owned()), "{sql}");
        assert!(connection.query(rows).expect("the rows") == before, "{sql}");
    }
    run("INSERT INTO t VALUES (-1, 'small')").expect("a row");
    let check = connection.query("PRAGMA integrity_check").expect("a check");
    assert_eq!(check[0][0].to_string(), "ok");
}

#[test]
fn memory_that_the_system_refuses_is_an_error() {
    if let Ok(path) = std::env::var(LIMITED) {
        return starve(&path);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("x");
    let path = path.to_str().expect("UTF-8");
    let connection = Connection::open(&format!("file:{path}?engine=lsmvbt")).expect("a database");
    let script = "CREATE TABLE t(a INTEGER PRIMARY KEY, b); PRAGMA lsmvbt_torn = double; \
        WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 12000) \
        INSERT INTO t SELECT x, zeroblob(3000) FROM n";
    connection.execute(script).expect("a table");
    drop(connection);
    // A process of its own: other tests need memory, too.
    let program = std::env::current_exe().expect("this program");
    let done = std::process::Command::new(program)
        .args(["--exact", "memory_that_the_system_refuses_is_an_error"])
        .env(LIMITED, path)
        .output()
        .expect("a process");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {said}", done.status);
}
