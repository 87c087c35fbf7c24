use super::*;
use crate::files::PAGES_IN_MEMORY;
use crate::files::tests::{content, cut, ftl, ftl_of};
use crate::ftl::Config;
use crate::nand::Geometry;

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

/// A table so large that a transaction's first pages go to the device before it is half full.
#[test]
fn pages_that_are_on_the_device_already_count_for_the_table_too() {
    let capacity = 1_400;
    assert!(capacity / 4 > PAGES_IN_MEMORY);
    let config = Config {
        table_capacity: capacity as u32,
        ..Config::new(3_000)
    };
    let ftl = ftl_of(Geometry::openssd(500), config, 1024);
    let shared = Shared::new(Files::format(ftl).unwrap(), Pace::Virtual);
    let mut state = shared.state();
    let (ino, handle) = make(&mut state, "a");
    for n in 0..20_u8 {
        let offset = u64::from(n) * 102_400;
        let data = vec![n + 1; 102_400];
        state.write(ONE, ino, handle, offset, &data).unwrap();
    }
    state.closed(ONE, ino, handle).unwrap();
    drop(state);
    let content = content(&mut after_cut(&shared), b"a").unwrap();
    let is_right = |(at, byte): (usize, &u8)| usize::from(*byte) == at / 102_400 + 1;
    assert!(content.len() == 20 * 102_400 && content.iter().enumerate().all(is_right));
}

/// Trims take entries of the table, too: those of the file, or of one that shares its transaction.
#[test]
fn a_plain_program_writes_after_it_has_cut_off_much() {
    for is_shared in [false, true] {
        let shared = shared();
        let mut state = shared.state();
        let (ino, handle) = make(&mut state, "a");
        let (other, other_handle) = make(&mut state, "b");
        let chunk = u64::from(state.files().unwrap().layout.chunk_pages);
        // As many chunks as trims of all but their first pages need.
        let chunks = 118_u64.div_ceil(chunk - 1);
        for page in 0..chunks * chunk {
            state
                .write(ONE, ino, handle, page * 512, &[1; 512])
                .unwrap();
        }
        state.sync(ONE, ino).unwrap();
        for number in (0..chunks).rev() {
            let bytes = (number * chunk + 1) * 512;
            state.truncate(ONE, ino, bytes).unwrap();
        }
        let (ino, handle) = match is_shared {
            true => {
                let with = other.0.to_ne_bytes();
                state.ioctl(ONE, ino, handle, SHARE, &with).unwrap();
                (other, other_handle)
            }
            false => (ino, handle),
        };
        for page in 1..75 {
            state
                .write(ONE, ino, handle, page * 512, &[2; 512])
                .unwrap();
        }
        state.closed(ONE, ino, handle).unwrap();
        drop(state);
        let mut files = after_cut(&shared);
        let name: &[u8] = if is_shared { b"b" } else { b"a" };
        let content = content(&mut files, name).unwrap();
        assert!(content.len() == 75 * 512 && content[512..].iter().all(|byte| *byte == 2));
    }
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
    // At offset 0, one byte.
    let lazy = [[0; 8].as_slice(), &1_u32.to_ne_bytes(), &[3]].concat();
    let lazily = state.ioctl(TWO, ino, second, LAZY, &lazy);
    assert_eq!(code(lazily), busy());
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
fn a_removed_file_is_not_committed_at_its_last_close() {
    let shared = shared();
    let mut state = shared.state();
    let (ino, handle) = make(&mut state, "a");
    state.write(ONE, ino, handle, 0, &[1; 3_000]).unwrap();
    state.remove(OsStr::new("a")).unwrap();
    let commits = |state: &mut State| state.files().unwrap().ftl.statistics().commits;
    let before = commits(&mut state);
    state.release(handle).unwrap();
    assert_eq!(commits(&mut state) - before, 1, "of its inode");
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
