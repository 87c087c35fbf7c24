//! The block I/O layer on real files: in the temporary directory, in memory and, as root, on images
//! of ext4, XFS and Btrfs.

mod capabilities;
mod histories;
mod initialize;
mod killed;
mod locks;
mod open;
#[path = "../common/random.rs"]
mod random;
#[path = "../common/scratch.rs"]
mod scratch;
mod writes;

use onewrite::storage::{
    Access, AlignedBuf, Capabilities, Create, DirectIo, Durability, DurableWrite, Init, LockByte,
    LockKind, LogFile, MOMENT, NewFile, Short, StorageError, WriteCache, sync_directory,
};
use onewrite_iotrace::scratch::LoopDevice;
use scratch::Scratch;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const NEW: Create = Create::IfMissing(NewFile {
    mode: 0o644,
    owner: None,
});
const MIB: u64 = 1 << 20;

fn open(path: &Path, direct: DirectIo) -> LogFile {
    LogFile::open(path, NEW, Access::ReadWrite, direct).expect("a log file")
}

/// Runs `test` in the temporary directory, in memory, and on images of the common file systems,
/// with direct I/O and without.
fn everywhere(test: impl Fn(&Path, DirectIo)) {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let memory = tempfile::tempdir_in("/dev/shm").ok();
    let images = [
        Scratch::ext4(64, &[], ""),
        // Without extents there is no fallocate.
        Scratch::ext4(64, &["-O", "^extents,^64bit"], ""),
        Scratch::xfs(),
        Scratch::btrfs(),
    ];
    let places = [Some(temporary.path()), memory.as_ref().map(|d| d.path())];
    let places = places.into_iter().flatten();
    for place in places.chain(images.iter().flatten().map(Scratch::path)) {
        for direct in [DirectIo::Auto, DirectIo::Never] {
            let directory = place.join(format!("{direct:?}"));
            std::fs::create_dir(&directory).expect("a directory");
            test(&directory, direct);
        }
    }
}

fn pattern(bytes: usize, salt: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(bytes);
    for (i, byte) in buf.as_mut_slice().iter_mut().enumerate() {
        *byte = (i % 251) as u8 ^ salt;
    }
    buf
}

fn read(file: &LogFile, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    let n = file.read_at(&mut buf, offset).expect("a read");
    buf.truncate(n);
    buf
}
