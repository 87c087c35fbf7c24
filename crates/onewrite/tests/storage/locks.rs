//! Open-file-description locks.

use super::*;

#[test]
fn locks_of_two_open_files_exclude_each_other_byte_by_byte() {
    use LockKind::{Exclusive, Shared};
    everywhere(|directory, direct| {
        let path = directory.join("log");
        let (a, b) = (open(&path, direct), open(&path, direct));
        let byte = LockByte::Presence;
        assert!(a.try_lock(byte, Shared).expect("a lock"));
        assert!(b.try_lock(byte, Shared).expect("a lock"));
        assert!(
            !a.try_lock(byte, Exclusive).expect("an answer"),
            "b holds it shared"
        );
        assert!(a.is_locked_by_other(byte, Exclusive).expect("an answer"));
        assert!(!a.is_locked_by_other(byte, Shared).expect("an answer"));
        b.unlock(byte).expect("unlocked");
        assert!(
            !a.is_locked_by_other(byte, Exclusive)
                .expect("own locks do not count")
        );
        assert!(a.try_lock(byte, Exclusive).expect("upgraded"));
        assert!(!b.try_lock(byte, Shared).expect("an answer"));
        assert!(b.is_locked_by_other(byte, Shared).expect("an answer"));
        assert!(
            b.try_lock(LockByte::Extension, Exclusive)
                .expect("another byte")
        );
        assert!(!a.try_lock(LockByte::Extension, Shared).expect("an answer"));
        assert!(
            a.try_lock(LockByte::Poison, Exclusive)
                .expect("a third byte")
        );
        // Another descriptor of this process opens and closes without releasing any lock, unlike
        // with POSIX locks.
        drop(open(&path, direct));
        assert!(!b.try_lock(byte, Shared).expect("an answer"));
        drop(a);
        assert!(
            b.try_lock(byte, Exclusive)
                .expect("free after the holder closed")
        );
    });
}

#[test]
fn a_waiting_lock_waits_until_the_holder_lets_go() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("log");
    let (a, b) = (open(&path, DirectIo::Auto), open(&path, DirectIo::Auto));
    let lock =
        |file: &LogFile| file.lock(LockByte::Extension, LockKind::Exclusive, (MOMENT, &Short));
    lock(&a).expect("a lock");
    let wait = Duration::from_millis(150);
    std::thread::scope(|scope| {
        let started = Instant::now();
        let waiter = scope.spawn(move || {
            lock(&b).expect("a lock");
            started.elapsed()
        });
        std::thread::sleep(wait);
        a.unlock(LockByte::Extension).expect("unlocked");
        assert!(waiter.join().expect("the waiter") >= wait);
    });
}

#[test]
fn a_waiting_lock_waits_no_longer_than_it_may() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("log");
    let (a, b) = (open(&path, DirectIo::Auto), open(&path, DirectIo::Auto));
    let lock =
        |file: &LogFile| file.lock(LockByte::Extension, LockKind::Exclusive, (MOMENT, &Short));
    lock(&a).expect("a lock");
    let refused = lock(&b).expect_err("it is held");
    assert!(matches!(
        refused,
        StorageError::Busy {
            byte: LockByte::Extension,
            ..
        }
    ));
    a.unlock(LockByte::Extension).expect("unlocked");
    lock(&b).expect("a lock");
}

#[test]
fn a_killed_process_leaves_no_lock() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("log");
    let file = open(&path, DirectIo::Auto);
    // flock(1) would take another kind of lock; Python has the same fcntl call.
    let script = "import fcntl,struct,sys,time\n\
        f = open(sys.argv[1], 'r+b')\n\
        lock = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0x7fffff00, 1, 0)\n\
        fcntl.fcntl(f, 37, lock)\n\
        print('held', flush=True)\n\
        time.sleep(60)\n";
    let child = Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("SKIPPED: needs python3");
        return;
    };
    let mut held = [0; 5];
    child
        .stdout
        .take()
        .expect("its output")
        .read_exact(&mut held)
        .expect("a line");
    let seen = file.is_locked_by_other(LockByte::Presence, LockKind::Shared);
    child.kill().expect("killed");
    child.wait().expect("gone");
    assert!(
        seen.expect("an answer"),
        "the documented byte, held by another process"
    );
    assert!(
        file.try_lock(LockByte::Presence, LockKind::Exclusive)
            .expect("an answer")
    );
}
