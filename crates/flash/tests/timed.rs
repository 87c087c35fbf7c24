//! A timed device as the kernel sees it. It answers never sooner than its model says, with as many
//! requests at the same time as it has channels. It stays alive when memory is short.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onewrite_flash::device::Device;
use onewrite_flash::host::Host;
use onewrite_flash::latency::Latency;
use onewrite_flash::schedule::Schedule;
use onewrite_iotrace::scratch::private_mounts;

const BYTES: u64 = 16 << 20;

fn can_run() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("SKIPPED: needs root and /dev/fuse");
    }
    can
}

fn host(model: &str, bytes: u64, parent: &Path) -> Host {
    let schedule = Arc::new(Schedule::new(Latency::parse("test", model).unwrap()));
    schedule.switch_on();
    Host::timed(Device::new(bytes), schedule, parent).unwrap()
}

/// Writes `blocks` blocks of 4 KiB directly, from block `at` on, one after the other.
fn dd(node: &Path, at: u32, blocks: u32, more: &[&str]) -> Child {
    Command::new("dd")
        .arg("if=/dev/zero")
        .arg(format!("of={}", node.display()))
        .args([&format!("seek={at}"), &format!("count={blocks}")])
        .args(["bs=4096", "oflag=direct", "conv=notrunc", "status=none"])
        .args(more)
        .stdin(Stdio::null())
        .spawn()
        .expect("dd")
}

/// The time until all of them have ended successfully.
fn time(begin: Instant, children: Vec<Child>) -> Duration {
    for mut child in children {
        assert!(child.wait().expect("dd").success());
    }
    begin.elapsed()
}

#[test]
fn nothing_is_answered_sooner_than_the_model_says() {
    if !can_run() {
        return;
    }
    private_mounts().unwrap();
    let parent = tempfile::tempdir().unwrap();
    let model = "description = 'a'\nsources = ['b']\nchannels = 1\n\
                 [program]\nus = 3000\n[flush]\nus = 100000\n[fua]\nus = 9000";
    let host = host(model, BYTES, parent.path());
    let one = |count, more: &[&str]| time(Instant::now(), vec![dd(host.node(), 0, count, more)]);
    // The kernel's own reads of the device take no time in this model.
    let written = one(50, &[]);
    assert!(written >= Duration::from_millis(150), "{written:?}");
    assert!(written < Duration::from_millis(1000), "{written:?}");
    // Many writes, and one flush after them.
    let flushed = one(50, &["conv=notrunc,fsync"]);
    assert!(flushed >= Duration::from_millis(250), "{flushed:?}");
    // Each write with O_DSYNC, which is a write and a flush here, and stands for FUA. That it takes less
    // than both shows when the machine is not busy: once is enough.
    let through = || {
        let through = one(20, &["oflag=direct,dsync"]);
        assert!(through >= Duration::from_millis(180), "{through:?}");
        through < Duration::from_millis(20 * 103)
    };
    assert!((0..10).any(|_| through()), "as a write and a flush");
}

#[test]
fn a_device_works_on_as_many_requests_as_it_has_channels() {
    if !can_run() {
        return;
    }
    private_mounts().unwrap();
    let parent = tempfile::tempdir().unwrap();
    let measure = |channels: u32| {
        let model = format!(
            "description = 'a'\nsources = ['b']\nchannels = {channels}\n[program]\nus = 10000"
        );
        let host = host(&model, BYTES, parent.path());
        let begin = Instant::now();
        let children = (0..4).map(|nth| dd(host.node(), nth * 100, 25, &[]));
        time(begin, children.collect())
    };
    // The device never answers too soon. That requests run at the same time shows when the machine
    // lets them: once is enough.
    let mut seen = Vec::new();
    for _ in 0..10 {
        let (one, four) = (measure(1), measure(4));
        assert!(one >= Duration::from_millis(1000), "{one:?}");
        assert!(four >= Duration::from_millis(250), "{four:?}");
        seen.push((one, four));
        if four < one / 2 {
            return;
        }
    }
    panic!("one channel and four: {seen:?}");
}

/// Dirty pages of many times their writer's memory limit, above a slow device in memory.
#[test]
fn writeback_goes_on_when_memory_is_short() {
    if !can_run() {
        return;
    }
    private_mounts().unwrap();
    let parent = tempfile::tempdir().unwrap();
    let Some(group) = Group::with_memory(48 << 20) else {
        eprintln!("SKIPPED: no memory cgroup can be made here");
        return;
    };
    let model = "description = 'a'\nsources = ['b']\nchannels = 1\n\
                 [program]\nus = 200\nmb_per_s = 200\n[flush]\nus = 1000\n[read]\nus = 100";
    let host = host(model, 512 << 20, parent.path());
    let writer = format!(
        "echo $$ > {}/cgroup.procs && exec dd if=/dev/urandom of={} bs=1M count=300 \
         conv=notrunc,fsync status=none",
        group.0.display(),
        host.node().display()
    );
    let begin = Instant::now();
    let mut child = Command::new("sh")
        .args(["-c", &writer])
        .spawn()
        .expect("sh");
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait") {
            break status;
        }
        assert!(begin.elapsed() < Duration::from_secs(120), "it hangs");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(status.success(), "{status}");
    drop(host);
}

/// Our own control group, of either version.
struct Group(PathBuf);

impl Group {
    fn with_memory(bytes: u64) -> Option<Self> {
        let versions = [
            ("/sys/fs/cgroup", "memory.max"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ];
        let name = format!("onewrite-test-{}", std::process::id());
        versions.into_iter().find_map(|(root, limit)| {
            // A directory can also be made in a file system that is not for control groups.
            Path::new(root)
                .join("cgroup.procs")
                .exists()
                .then_some(())?;
            let group = Self(Path::new(root).join(&name));
            std::fs::create_dir(&group.0).ok()?;
            let file = group.0.join(limit);
            (file.exists() && std::fs::write(file, bytes.to_string()).is_ok()).then_some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
