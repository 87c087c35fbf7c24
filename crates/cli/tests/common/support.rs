//! Helpers that the tests of `onewrite` and of `onewrite-lab` share.
#![allow(dead_code)] // not every test that includes this module needs all of it

use std::fs;
use std::path::Path;

use onewrite_iotrace::scratch::{FileSystem, Mounted};

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

pub fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Whether this test can make a scratch file system; prints why not.
pub fn can_make(file_system: FileSystem) -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: a scratch file system takes root");
        return false;
    }
    if let Some(missing) = file_system.missing() {
        println!("SKIPPED: {missing}");
        return false;
    }
    true
}

/// Tracing instances of a process. The kernel has one set of them for all mount points, and may
/// have no mount point.
pub fn instances(pid: u32) -> usize {
    let usual = Path::new("/sys/kernel/tracing/instances");
    if usual.is_dir() {
        return instances_in(usual, pid);
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mounted = Mounted::new(Path::new("tracefs"), dir.path(), "tracefs").expect("tracefs");
    let found = instances_in(&dir.path().join("instances"), pid);
    mounted.unmount().expect("unmounted");
    found
}

fn instances_in(dir: &Path, pid: u32) -> usize {
    let prefix = format!("onewrite-{pid}-");
    fs::read_dir(dir)
        .expect("the instances")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(&prefix))
        .count()
}
