//! The file system under test: a small ext4 on a device that loses power.
//!
//! The device is answered by this process. So nothing here touches the file system itself: child
//! processes make, mount, fill and unmount it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use onewrite_flash::cut::{Cutter, Tear};
use onewrite_flash::device::{Device, FlushHandling};
use onewrite_flash::history::{Covers, Event, History, Position};
use onewrite_flash::host::Host;
use onewrite_flash::image::Image;
use onewrite_iotrace::scratch::FileSystem;
use onewrite_torture::random::Random;

use super::job::now;
use crate::powercut::{FileSystemArg, superblocks};

/// How long an unmount may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long before now the power may go, in microseconds.
const LAST_US: u64 = 1_000_000;

/// See the module.
pub struct Disk {
    mounted: bool,
    // In the order in which they must be dropped.
    host: Host,
    directory: tempfile::TempDir,
    device: Device,
    /// The medium at the beginning of the recording, and when that was.
    base: Image,
    began: u64,
    never_torn: Vec<std::ops::Range<u64>>,
}

/// The losses of a power cut.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The writes that were in the cache, and those of which nothing or only a part survived.
    pub cached: usize,
    pub lost: usize,
    pub torn: usize,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(text)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{}: {}",
            command.get_program().to_string_lossy(),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

impl Disk {
    /// Makes and mounts it. The calling thread must be in a private mount namespace. Its blocks are
    /// as large as pages of memory: SQLite allocates one byte of each page of its wal-index, and
    /// with smaller blocks a full disk is then a SIGBUS.
    pub fn new(bytes: u64, parent: &Path) -> Result<Self, String> {
        let device = Device::new(bytes);
        let host = Host::new(device.clone(), parent).map_err(text)?;
        let directory = tempfile::Builder::new()
            .prefix("onewrite-soak-mount-")
            .tempdir_in(parent)
            .map_err(text)?;
        FileSystem::Ext4
            .make(host.node(), &["-m", "0", "-b", "4096"])
            .map_err(text)?;
        host.drop_cache().map_err(text)?;
        let base = device.content();
        let never_torn = superblocks(FileSystemArg::Ext4, &base);
        let mut disk = Self {
            mounted: false,
            host,
            directory,
            device,
            base,
            began: 0,
            never_torn,
        };
        disk.mount()?;
        Ok(disk)
    }

    /// From now on the device answers flushes and does nothing.
    pub fn ignore_flushes(&self) {
        self.device.handle_flushes(FlushHandling::Ignored);
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn database(&self) -> PathBuf {
        self.path().join("soak.db")
    }

    /// The file that fills the disk.
    pub fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    fn mount(&mut self) -> Result<(), String> {
        self.began = now();
        self.device.record();
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4"]).arg(self.host.node());
        run(mount.arg(self.directory.path()))?;
        self.mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        while self.mounted {
            match run(Command::new("umount").arg(self.directory.path())) {
                Ok(()) => self.mounted = false,
                Err(error) if Instant::now() >= end => return Err(error),
                // A process that was killed may still be on its way out.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        Ok(())
    }

    /// Cuts the power, at a moment of the last second at which the cache had something to lose.
    /// `kill` ends every process that uses the file system; what they do until then has no effect.
    /// Returns the moment of the cut in nanoseconds.
    pub fn cut(
        &mut self,
        seed: u64,
        kill: impl FnOnce() -> Result<(), String>,
    ) -> Result<(u64, Cut), String> {
        let mut random = Random::new(seed);
        let last = self.device.mark(0);
        kill()?;
        self.unmount()?;
        let history = self.device.stop();
        let position = *random.choose(&positions(&history, last));
        // The flush of everything that was acknowledged until `moment` is before `position`.
        let moment = self.began + history.microseconds(position) * 1000;
        let base = std::mem::take(&mut self.base);
        let mut cutter = Cutter::new(base, &history).never_torn(&self.never_torn);
        cutter.advance(position);
        let crash = cutter.crash(random.next(), Tear::Sectors);
        self.host.drop_cache().map_err(text)?;
        self.device.load(crash.image.clone());
        self.base = crash.image;
        self.mount()?;
        let cut = Cut {
            cached: crash.cached,
            lost: crash.lost,
            torn: crash.torn,
        };
        Ok((moment, cut))
    }

    /// Fills the disk but for `keep` bytes.
    pub fn fill(&self, keep: u64) -> Result<(), String> {
        let script = "free=$(stat -f -c '%f * %S' \"$1\"); bytes=$(($free - $3)); \
                      [ $bytes -gt 0 ] || exit 0; fallocate -l $bytes \"$2\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(self.path());
        // Others may have used the space meanwhile: the disk is full in either case.
        let _ = run(shell.arg(self.filler()).arg(keep.to_string()));
        Ok(())
    }

    /// Gives the space back.
    pub fn empty(&self) -> Result<(), String> {
        run(Command::new("rm").arg("-f").arg(self.filler()))
    }

    /// Copies the database and its files to a directory, as evidence.
    pub fn keep(&self, target: &Path) -> Result<(), String> {
        let script = "cp --sparse=always \"$1\"/soak.db* \"$2\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(self.path());
        run(shell.arg(target))
    }
}

/// The positions of the last second before `last` at which the cache held writes, or `last`.
fn positions(history: &History, last: Position) -> Vec<Position> {
    let from = history.microseconds(last).saturating_sub(LAST_US);
    let mut positions = Vec::new();
    let mut cached = 0;
    for (index, event) in history.events().iter().enumerate().take(last.0) {
        match event {
            Event::Write { .. } | Event::Zero { .. } => cached += 1,
            Event::Flush(Covers::Everything) => cached = 0,
            Event::Flush(Covers::WritesSince(_)) | Event::Mark(_) => {}
        }
        let position = Position(index + 1);
        if cached > 0 && history.microseconds(position) >= from {
            positions.push(position);
        }
    }
    if positions.is_empty() {
        positions.push(last);
    }
    positions
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The rest goes with the process and its mount namespace.
        let _ = self.unmount();
    }
}
