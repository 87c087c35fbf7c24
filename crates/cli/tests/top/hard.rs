//! Several at once, and a file that has the inode number of another.

use crate::common::instances;
use crate::programs::Program;
use crate::*;

const COMMITS: u32 = 100;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: a trace takes root");
    }
    is_root
}

/// Each has a trace of its own, and the end of one is nothing to the other.
#[test]
fn two_at_once_count_the_same_also_after_one_was_killed() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (first, second) = (dir.path().join("first.db"), dir.path().join("second.db"));
    let mut programs = [&first, &second].map(|path| Program::python(path, "wal", COMMITS));
    let tops = [0; 3].map(|_| Top::start(&["--json", "--for", "600s"]));
    let [one, other, mut killed] = tops;
    programs[0].go();
    programs[0].wait_done();
    let pid = killed.pid();
    killed.0.kill().expect("a kill");
    killed.0.wait().expect("its end");
    assert_eq!(instances(pid), 1);
    programs[1].go();
    programs[1].wait_done();
    let (one_pid, other_pid) = (one.pid(), other.pid());
    let documents = [one.stop(), other.stop()];
    for path in [&first, &second] {
        let [one, other] = documents.each_ref().map(|of| database(of, path));
        for of in [one, other] {
            assert_eq!(of["commits"], COMMITS, "{of:#}");
        }
        for figure in ["log_bytes", "waits"] {
            assert_eq!(one[figure], other[figure], "{figure}: {one:#} {other:#}");
        }
    }
    assert_eq!([one_pid, other_pid].map(instances), [0, 0]);
    // The next one removes what the killed one left.
    drop(Top::start(&["--json", "--for", "600s"]));
    assert_eq!(instances(pid), 0);
}

/// Commits to a database, removes it, and commits to another one that has its inode number, where the
/// file system gives it away again. Prints whether it did.
const REMOVES: &str = "
import os, sqlite3, sys, time
first, second = sys.argv[1], sys.argv[2]
def use(path):
    db = sqlite3.connect(path, isolation_level=None)
    db.execute('PRAGMA journal_mode=wal')
    db.execute('CREATE TABLE t(x)')
    for i in range(30):
        db.execute('INSERT INTO t VALUES (?)', (i,))
        time.sleep(0.1)
    return db
print('ready', flush=True)
sys.stdin.readline()
use(first).close()
inode = os.stat(first).st_ino
os.remove(first)
kept = []
for n in range(1000):
    open(second, 'w').close()
    if os.stat(second).st_ino == inode:
        break
    kept.append(second + str(n))
    os.rename(second, kept[-1])
print('same' if os.path.exists(second) else 'another', flush=True)
db = use(second)
print('done', flush=True)
sys.stdin.readline()
";

#[test]
fn a_new_database_with_the_inode_number_of_a_removed_one_is_another() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (first, second) = (dir.path().join("first.db"), dir.path().join("second.db"));
    let mut command = Command::new("python3");
    command.args(["-c", REMOVES]).args([&first, &second]);
    let mut program = Program::start(&mut command);
    let top = Top::start(&["--json", "--for", "600s"]);
    program.go();
    program.wait_done();
    let document = top.stop();
    for path in [&first, &second] {
        // The 30 rows and the table. Those after the last look, a second before the end, may be missing.
        let of = database(&document, path);
        let commits = number(&of["commits"]);
        assert!((10..=32).contains(&commits), "{document:#}");
        assert_eq!(of["programs"][0]["pid"], program.pid(), "{of:#}");
    }
}
