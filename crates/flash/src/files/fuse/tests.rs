use super::*;
use crate::files::tests::{content, cut, ftl};

/// Processes that do not exist, and have one thread.
const ONE: u32 = 5_000_001;
const TWO: u32 = 5_000_002;

/// The X-L2P table has 150 entries. Pages have 512 bytes.
fn shared() -> Shared {
    Shared::new(Files::format(ftl()).unwrap(), Pace::Virtual)
}

fn make(state: &mut State, name: &str) -> (INodeNo, FileHandle) {
    let file = state.on(|files| files.create(name.as_bytes())).unwrap();
    (inode_of(file), state.open(file))
}

/// The files after a power cut.
fn after_cut(shared: &Shared) -> Files {
    cut(shared.state().files.take().unwrap())
}

fn code(done: Result<(), Errno>) -> i32 {
    done.map_or_else(|error| error.code(), |()| 0)
}

fn busy() -> i32 {
    Errno::EBUSY.code()
}

#[test]
fn a_plain_program_writes_more_than_the_table_has_entries() {
    let shared = shared();
    let mut state = shared.state();
    let (ino, handle) = make(&mut state, "a");
    // 176 pages in all.
    for n in 0..10_u8 {
        let data = [n + 1; 5_000];
        let offset = u64::from(n) * 5_000;
        state.write(ONE, ino, handle, offset, &data).unwrap();
    }
    state
        .write(ONE, ino, handle, 50_000, &[11; 40_000])
        .unwrap();
    state.closed(ONE, ino, handle).unwrap();
    drop(state);
    let content = content(&mut after_cut(&shared), b"a").unwrap();
    assert_eq!(content.len(), 90_000);
    let is_right = |(at, byte): (usize, &u8)| usize::from(*byte) == (at / 5_000).min(10) + 1;
    assert!(content.iter().enumerate().all(is_right));
}

/// Another transaction holds nearly all of the table.
#[test]
fn a_transaction_whose_commit_at_close_fails_is_aborted() {
    let shared = shared();
    let mut state = shared.state();
    let (begun, begun_handle) = make(&mut state, "begun");
    let (plain, plain_handle) = make(&mut state, "plain");
    state.ioctl(ONE, begun, begun_handle, START, &[]).unwrap();
    let (file, other) = (file_of(begun.0).unwrap(), file_of(plain.0).unwrap());
    state.write(ONE, begun, begun_handle, 0, &[1; 512]).unwrap();
    // They are on the device, and not in memory.
    state
        .on(|files| {
            let tid = files.transaction_of(file);
            let capacity = files.ftl.config().table_capacity;
            (0..capacity - 2).try_for_each(|n| {
                let lpn = crate::ftl::Lpn(files.ftl.pages() - 1 - n);
                Ok(files.ftl.write_in(tid, lpn, &[1; 512])?)
            })
        })
        .unwrap();
    state
        .write(TWO, plain, plain_handle, 0, &[2; 2_560])
        .unwrap();
    let closed = code(state.closed(TWO, plain, plain_handle));
    assert_eq!(closed, Errno::ENOSPC.code());
    assert!(!state.files().unwrap().is_changed(other));
    assert_eq!(state.files().unwrap().size(other), Ok(0));
    // The other one has room for its inode.
    state.sync(ONE, begun).unwrap();
}

#[test]
fn a_write_into_a_transaction_that_another_process_has_begun_is_refused() {
    let shared = shared();
    let mut state = shared.state();
    let (ino, handle) = make(&mut state, "a");
    let second = state.open(file_of(ino.0).unwrap());
    state.ioctl(ONE, ino, handle, START, &[]).unwrap();
    state.write(ONE, ino, handle, 0, &[1; 600]).unwrap();
    let write = |state: &mut State| code(state.write(TWO, ino, second, 600, &[2; 600]));
    assert_eq!(write(&mut state), busy());
    assert_eq!(code(state.truncate(TWO, ino, 0)), busy());
    state.ioctl(ONE, ino, handle, ABORT, &[]).unwrap();
    assert_eq!(write(&mut state), 0);
    state.sync(TWO, ino).unwrap();
    state.closed(ONE, ino, handle).unwrap();
    drop(state);
    let content = content(&mut after_cut(&shared), b"a").unwrap();
    assert_eq!(content[600..], [2; 600]);
}

#[test]
fn a_file_that_shares_a_transaction_is_not_removed_before_its_end() {
    let shared = shared();
    let mut state = shared.state();
    let (one, handle) = make(&mut state, "one");
    let (two, second) = make(&mut state, "two");
    let (_, third) = make(&mut state, "three");
    state.release(third).unwrap();
    state.ioctl(ONE, one, handle, START, &[]).unwrap();
    state.write(ONE, one, handle, 0, &[1; 600]).unwrap();
    state.write(ONE, two, second, 0, &[2; 600]).unwrap();
    let with = two.0.to_ne_bytes();
    state.ioctl(ONE, one, handle, SHARE, &with).unwrap();
    state.release(second).unwrap();
    assert_eq!(code(state.remove(OsStr::new("two"))), busy());
    let renamed = state.rename(OsStr::new("three"), OsStr::new("two"));
    assert_eq!(code(renamed), busy());
    state.sync(ONE, one).unwrap();
    state.remove(OsStr::new("two")).unwrap();
    drop(state);
    let mut files = after_cut(&shared);
    assert_eq!(content(&mut files, b"one"), Some(vec![1; 600]));
    assert_eq!(content(&mut files, b"two"), None);
}

/// It was open when it was removed, and is closed before the transaction ends.
#[test]
fn a_removed_file_that_shares_a_transaction_goes_at_its_end() {
    let shared = shared();
    let mut state = shared.state();
    let (one, handle) = make(&mut state, "one");
    let (two, second) = make(&mut state, "two");
    state.ioctl(ONE, one, handle, START, &[]).unwrap();
    state.write(ONE, one, handle, 0, &[1; 600]).unwrap();
    let with = two.0.to_ne_bytes();
    state.ioctl(ONE, one, handle, SHARE, &with).unwrap();
    state.remove(OsStr::new("two")).unwrap();
    state.release(second).unwrap();
    let files = |state: &mut State| state.files().unwrap().list().count();
    assert_eq!(files(&mut state), 2);
    state.sync(ONE, one).unwrap();
    assert_eq!(files(&mut state), 1);
    drop(state);
    let one = content(&mut after_cut(&shared), b"one");
    assert_eq!(one, Some(vec![1; 600]));
}

#[test]
fn a_truncation_by_name_is_durable() {
    // The kernel reports the last close before it, or after.
    for is_late in [false, true] {
        let shared = shared();
        let mut state = shared.state();
        let (ino, handle) = make(&mut state, "a");
        state.write(ONE, ino, handle, 0, &[1; 3_000]).unwrap();
        state.closed(ONE, ino, handle).unwrap();
        if !is_late {
            state.release(handle).unwrap();
        }
        state.truncate(ONE, ino, 10).unwrap();
        if is_late {
            state.release(handle).unwrap();
        }
        drop(state);
        let content = content(&mut after_cut(&shared), b"a");
        assert_eq!(content, Some(vec![1; 10]), "{is_late}");
    }
}
