//! A device under a loop device, for real file systems to be made and mounted on.
//!
//! **Who may touch it.** The process that has a [`Host`] answers the device's requests. A thread of
//! that process that waits for the device itself could not be killed while it waits for an answer
//! that only its own dying process can give; so everything that reads, mounts or writes the loop
//! device runs in other processes.
//!
//! **Nothing is left behind.** The FUSE mount lives in a mount namespace of this process's own, and
//! the loop device detaches itself when the last that has it open goes. Dropping a [`Host`] takes both
//! down in order; if the process is killed, the kernel does.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{BackgroundSession, Config, MountOption};
use onewrite_iotrace::scratch::{Access, LoopDevice};
use tempfile::TempDir;

use crate::device::Device;
use crate::error::Error;
use crate::fuse::{FILE_NAME, OneFile};
use crate::medium::Medium;
use crate::schedule::Schedule;

/// Threads beyond one for each channel: one that takes a flush, and one that sees what waits.
const SPARE_THREADS: usize = 2;

/// A device that the kernel knows as a loop device; see the module.
#[derive(Debug)]
pub struct Host {
    /// Keeps the loop device from detaching itself between two mounts.
    node: Option<File>,
    loop_device: Option<LoopDevice>,
    session: Option<BackgroundSession>,
    path: PathBuf,
    _dir: TempDir,
}

/// One request after the other keeps the order in which they arrive; a schedule wants them all.
fn access(schedule: Option<&Schedule>) -> Access {
    match schedule {
        None => Access::Buffered,
        Some(_) => Access::Direct,
    }
}

impl Host {
    /// Mounts the FUSE file system in a directory of its own in `parent`, and attaches a loop device.
    /// The calling thread must be in a private mount namespace
    /// ([`onewrite_iotrace::scratch::private_mounts`]).
    ///
    /// # Errors
    /// No root, no FUSE, no loop device.
    pub fn new(device: impl Medium, parent: &Path) -> Result<Self, Error> {
        Self::mounted(device, None, parent)
    }

    /// The same, answering when `schedule` says, and several requests at the same time: the loop device
    /// uses direct I/O. The order of what is recorded is then not that of the kernel.
    ///
    /// # Errors
    /// As [`Host::new`].
    pub fn timed(device: Device, schedule: Arc<Schedule>, parent: &Path) -> Result<Self, Error> {
        Self::mounted(device, Some(schedule), parent)
    }

    fn mounted(
        device: impl Medium,
        schedule: Option<Arc<Schedule>>,
        parent: &Path,
    ) -> Result<Self, Error> {
        let dir = tempfile::Builder::new()
            .prefix("onewrite-device-")
            .tempdir_in(parent)
            .map_err(Error::io("create a directory in", parent))?;
        let mount_point = dir.path().join("fuse");
        fs::create_dir(&mount_point).map_err(Error::io("create", &mount_point))?;
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("onewrite-flash".to_owned()),
            MountOption::NoDev,
            MountOption::NoSuid,
        ];
        let (file, access) = (mount_point.join(FILE_NAME), access(schedule.as_deref()));
        config.n_threads = schedule
            .as_ref()
            .map(|schedule| schedule.latency().channels as usize + SPARE_THREADS);
        let one_file = OneFile { device, schedule };
        let session = fuser::spawn_mount(one_file, &mount_point, &config)
            .map_err(Error::io("mount a FUSE file system on", &mount_point))?;
        let mut host = Self {
            node: None,
            loop_device: None,
            session: Some(session),
            path: PathBuf::new(),
            _dir: dir,
        };
        let loop_device = LoopDevice::attach_with(&file, access)?;
        host.path = loop_device.node().to_owned();
        let node = File::open(&host.path).map_err(Error::io("open", &host.path))?;
        loop_device.detach_when_unused()?;
        host.node = Some(node);
        host.loop_device = Some(loop_device);
        Ok(host)
    }

    /// Makes the kernel forget what it remembers of the device's content, so that another may be put
    /// under it ([`Device::load`]). Nobody may have it mounted.
    ///
    /// # Errors
    /// There is no `blockdev` program, or it fails.
    pub fn drop_cache(&self) -> Result<(), Error> {
        match &self.loop_device {
            Some(loop_device) => Ok(loop_device.drop_cache()?),
            None => Ok(()),
        }
    }

    /// The loop device's node.
    pub fn node(&self) -> &Path {
        &self.path
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.node = None;
        // There is nobody to report to; what stays behind goes with the process.
        if let Some(loop_device) = self.loop_device.take() {
            let _ = loop_device.detach();
        }
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }
}
