//! The loop driver's requests for writes, flushes and discards, as the device records them.

use std::path::Path;
use std::process::Command;

use onewrite_flash::cut::{Cutter, Tear};
use onewrite_flash::device::Device;
use onewrite_flash::history::{Event, History, Position};
use onewrite_flash::host::Host;
use onewrite_flash::image::Image;
use onewrite_iotrace::scratch::private_mounts;

const BYTES: u64 = 4 << 20;

fn can_run() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("SKIPPED: needs root and /dev/fuse");
    }
    can
}

/// Runs a program on the device: this process answers the device and must not wait for it.
fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
}

/// Writes `blocks` blocks of 4 KiB that hold `byte` at block `at`, directly, with one flush at the
/// end.
fn write(directory: &Path, node: &str, byte: u8, at: usize, blocks: usize) {
    let input = directory.join("input");
    std::fs::write(&input, vec![byte; blocks * 4096]).unwrap();
    run(
        "dd",
        &[
            &format!("if={}", input.display()),
            &format!("of={node}"),
            "bs=4096",
            &format!("seek={at}"),
            "oflag=direct",
            "conv=fsync,notrunc",
        ],
    );
}

fn read(image: &Image) -> Vec<u8> {
    let mut bytes = vec![0; BYTES as usize];
    image.read(0, &mut bytes);
    bytes
}

fn flushes(history: &History) -> usize {
    let events = history.events().iter();
    events.filter(|e| matches!(e, Event::Flush(_))).count()
}

#[test]
fn writes_flushes_and_discards_of_a_loop_device_are_recorded_and_cut() {
    if !can_run() {
        return;
    }
    private_mounts().unwrap();
    let parent = tempfile::tempdir().unwrap();
    let device = Device::new(BYTES);
    let host = Host::new(device.clone(), parent.path()).unwrap();
    let node = host.node().to_str().unwrap().to_owned();
    let mut model = vec![0u8; BYTES as usize];

    device.record();
    write(parent.path(), &node, 1, 10, 3);
    model[10 * 4096..13 * 4096].fill(1);
    let durable = device.mark(0);
    let durable_model = model.clone();
    write(parent.path(), &node, 2, 12, 4);
    model[12 * 4096..16 * 4096].fill(2);
    run("blkdiscard", &["-o", "40960", "-l", "4096", &node]);
    model[40960..45056].fill(0);
    let history = device.stop();

    assert!(read(&device.content()) == model);
    assert!(flushes(&history) >= 2, "{history:?}");
    let zeroed = |e: &Event| {
        matches!(
            e,
            Event::Zero {
                offset: 40960,
                bytes: 4096
            }
        )
    };
    assert!(history.events().iter().any(zeroed), "{history:?}");

    // The flush after the first dd is before the mark: nothing was in the cache there.
    let mut cutter = Cutter::new(Image::new(BYTES), &history);
    cutter.advance(durable);
    assert_eq!(cutter.cached(), 0);
    assert!(read(&cutter.crash(1, Tear::Sectors).image) == durable_model);
    cutter.advance(Position(usize::MAX));
    // The discard came after the last flush: only it may be lost.
    for seed in 0..50 {
        let after = read(&cutter.crash(seed, Tear::Blocks).image);
        let mut expected = model.clone();
        expected[40960..45056].copy_from_slice(&after[40960..45056]);
        assert!(after == expected, "seed {seed}");
    }

    // The new content is visible: the kernel keeps no copy, although the device is held open.
    host.drop_cache().unwrap();
    let mut other = Image::new(BYTES);
    other.write(4096, &[9; 4096]);
    device.load(other);
    let out = parent.path().join("out");
    let arguments = [
        format!("if={node}"),
        format!("of={}", out.display()),
        "bs=4096".to_owned(),
        "skip=1".to_owned(),
        "count=1".to_owned(),
    ];
    run("dd", &arguments.each_ref().map(String::as_str));
    assert!(std::fs::read(&out).unwrap() == vec![9; 4096]);
}

/// The kernel's requests for a write-through write without FUA. `onewrite-lab powercut --fua`
/// depends on them.
#[test]
fn a_loop_device_passes_a_write_through_write_on_as_a_write_and_a_flush() {
    if !can_run() {
        return;
    }
    private_mounts().unwrap();
    let parent = tempfile::tempdir().unwrap();
    let device = Device::new(BYTES);
    let host = Host::new(device.clone(), parent.path()).unwrap();
    let name = host.node().file_name().unwrap();
    let fua = Path::new("/sys/block").join(name).join("queue/fua");
    assert_eq!(std::fs::read_to_string(fua).unwrap().trim(), "0");
    device.record();
    let of = format!("of={}", host.node().display());
    let arguments = [
        "if=/dev/zero",
        &of,
        "bs=4096",
        "count=3",
        "oflag=direct,dsync",
        "conv=notrunc",
    ];
    run("dd", &arguments);
    let history = device.stop();
    let kinds: String = history
        .events()
        .iter()
        .map(|event| match event {
            Event::Write { .. } => 'w',
            Event::Flush(_) => 'f',
            _ => '?',
        })
        .collect();
    // On the device itself the kernel flushes twice: for the missing FUA, and for O_DSYNC.
    let parts: Vec<&str> = kinds.split('w').skip(1).collect();
    assert_eq!(parts.len(), 3, "{kinds}");
    assert!(parts.iter().all(|part| part.starts_with('f')), "{kinds}");
}

#[test]
fn dropping_a_host_leaves_no_loop_device() {
    if !can_run() {
        return;
    }
    private_mounts().unwrap();
    let parent = tempfile::tempdir().unwrap();
    let host = Host::new(Device::new(BYTES), parent.path()).unwrap();
    let name = host.node().file_name().unwrap().to_owned();
    let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
    let ours = parent.path().to_str().unwrap().to_owned();
    let is_bound = || std::fs::read_to_string(&backing).is_ok_and(|b| b.starts_with(&ours));
    assert!(is_bound());
    drop(host);
    assert!(!is_bound());
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
}
