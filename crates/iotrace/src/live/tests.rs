use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use super::*;
use crate::scratch::{FileSystem, Options, Scratch};

/// The flush of a thread of this test is seen, with its writes.
#[test]
fn a_flush_and_the_writes_in_it_are_seen_in_their_order() {
    if !rustix::process::geteuid().is_root() || FileSystem::Ext4.missing().is_some() {
        println!("skipped: needs root and ext4");
        return;
    }
    let (parent, stop) = (
        tempfile::tempdir().unwrap(),
        std::sync::atomic::AtomicBool::new(false),
    );
    let options = Options {
        file_system: FileSystem::Ext4,
        bytes: 64 << 20,
        parent: parent.path(),
        stop: &stop,
    };
    let scratch = Scratch::create(&options).unwrap();
    let mut live = Live::start(&tracefs().unwrap()).unwrap();
    let disk = Disk::new(scratch.device().clone(), "ext4").unwrap();
    live.watch(std::iter::once(&disk)).unwrap();
    let mut file = File::create(scratch.root().join("file")).unwrap();
    file.write_all(&[7; 8192]).unwrap();
    file.sync_data().unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    let tid = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
    let (mut seen, begin) = (VecDeque::new(), Instant::now());
    let mine = |seen: &VecDeque<Seen>| -> Vec<What> {
        let own = seen.iter().filter(|seen| seen.tid == tid);
        own.map(|seen| seen.what).collect()
    };
    while !mine(&seen).contains(&What::FlushEnded) {
        assert!(begin.elapsed() < Duration::from_secs(120), "{seen:?}");
        live.read(&mut seen).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    let whats = mine(&seen);
    assert!(seen.make_contiguous().is_sorted_by_key(|seen| seen.at_ns));
    assert_eq!(whats.first(), Some(&What::FlushBegun { fd }));
    assert_eq!(whats.last(), Some(&What::FlushEnded));
    let sum = |journal: bool| -> u64 {
        let handed = seen.iter().filter_map(|seen| match seen.what {
            What::Handed(handed) => Some(handed),
            _ => None,
        });
        let of = |write: &Handed| {
            let start = disk.start_of(write);
            start.is_some_and(|start| disk.is_journal(start, write)) == journal
        };
        handed.filter(of).map(|write| write.sectors).sum()
    };
    assert!(sum(false) >= 16 && sum(true) >= 16, "{seen:?}");
    assert_eq!(live.lost().unwrap(), 0);
    drop(live);
    scratch.remove().unwrap();
}
