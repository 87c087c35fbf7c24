//! A device under a loop device, so that real file systems can be made and mounted on it.
//!
//! **Access.** The process that has a [`Host`] answers the device's requests. Suppose that a thread
//! of that process waits for the device itself. A kill could not end it, because only its own dying
//! process can give the answer. So everything that reads, mounts or writes the loop device runs in
//! other processes.
//!
//! **Nothing is left behind.** The FUSE mount lives in this process's own mount namespace. The loop
//! device detaches itself after its last close. Dropping a [`Host`] takes both down in order; if
//! the process is killed, the kernel does it.

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

/// Threads in addition to one for each channel or request: one for a flush, and one that sees waiting
/// requests.
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

/// One request after the other keeps the order of arrival; several need direct I/O.
fn access(at_once: Option<usize>) -> Access {
    match at_once {
        None => Access::Buffered,
        Some(_) => Access::Direct,
    }
}

impl Host {
    /// Mounts the FUSE file system in a new directory in `parent`, and attaches a loop device. The
    /// calling thread must be in a private mount namespace
    /// ([`onewrite_iotrace::scratch::private_mounts`]).
    ///
    /// # Errors
    /// If there is no root, no FUSE, or no loop device.
    pub fn new(device: impl Medium, parent: &Path) -> Result<Self, Error> {
        Self::mounted(device, None, None, parent)
    }

    /// The same, with up to `depth` requests at once, which the device itself lets wait: the loop
    /// device uses direct I/O.
    ///
    /// # Errors
    /// As [`Host::new`].
    pub fn queued(device: impl Medium, depth: usize, parent: &Path) -> Result<Self, Error> {
        Self::mounted(device, None, Some(depth), parent)
    }

    /// The same, answering at the times of `schedule`, several requests at once: the loop device
    /// uses direct I/O. The order of the record is then not that of the kernel.
    ///
    /// # Errors
    /// As [`Host::new`].
    pub fn timed(device: Device, schedule: Arc<Schedule>, parent: &Path) -> Result<Self, Error> {
        let channels = schedule.latency().channels as usize;
        Self::mounted(device, Some(schedule), Some(channels), parent)
    }

    fn mounted(
        device: impl Medium,
        schedule: Option<Arc<Schedule>>,
        at_once: Option<usize>,
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
        let (file, access) = (mount_point.join(FILE_NAME), access(at_once));
        config.n_threads = at_once.map(|requests| requests + SPARE_THREADS);
        let is_async = at_once.is_some();
        let one_file = OneFile {
            device,
            schedule,
            is_async,
        };
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

    /// Makes the kernel drop its cache of the device's content, so that the caller may exchange the
    /// content ([`Device::load`]). It must not be mounted.
    ///
    /// # Errors
    /// If there is no `blockdev` program, or it fails.
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
        // No caller can receive an error here; the rest goes with the process.
        if let Some(loop_device) = self.loop_device.take() {
            let _ = loop_device.detach();
        }
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }
}
