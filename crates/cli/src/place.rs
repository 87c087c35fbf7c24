//! The place of a command's databases: a scratch file system, or a directory of the user's.
//!
//! Called by `compare`, `bench`, `replay` and `reproduce`, which take the options of [`Where`].
//! `trace` calls [`take_down`].

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onewrite_common::mounts;
use onewrite_flash::latency::Latency;
use onewrite_iotrace::age::{self, Aged};
use onewrite_iotrace::device::BlockDevice;
use onewrite_iotrace::meter::{Meter, Watched};
use onewrite_iotrace::scratch::{self, FileSystem, Scratch};
use onewrite_iotrace::trace::{Target, Tracer};
use onewrite_iotrace::tracefs::Tracefs;
use onewrite_workload::plan::Op;
use tempfile::TempDir;

use crate::arguments::ScratchArg;
use crate::device::flash::{FlashModel, Work};
use crate::device::{Model, ModelledDevice};
use crate::progress::Progress;
use crate::{directory, interrupt};

/// Bytes of a scratch image before any transaction: the needs of an ordinary file system, and room
/// for preallocated chunks.
const IMAGE_BYTES: u64 = 512 << 20;

/// Bytes of a scratch image for each page that a transaction logs: the page in the widest layout,
/// and its share of the database. A row's own bytes are extra. This holds without checkpoints.
const IMAGE_BYTES_PER_FRAME: u64 = 20 << 10;

/// Bytes of a scratch image for each log but the first: its first chunk, and the next one prepared.
const IMAGE_BYTES_PER_LOG: u64 = 32 << 20;

/// The longest time to look at existing files before a trace. A scratch file system has few.
const LOOK_AT_MOST: Duration = Duration::from_secs(60);

/// Bytes of a scratch image for each warehouse of TPC-C.
const IMAGE_BYTES_PER_WAREHOUSE: u64 = 160 << 20;

/// The note for a user without root.
const WITHOUT_ROOT: &str = "without root there are rates and latencies, but no device bytes, writes \
                            and flushes, and no file-system journal: those need a scratch device";

/// The note for a user of `--dir`.
const NOT_OURS: &str = "with --dir there are rates and latencies, but no device bytes, writes and \
                        flushes: others write to that device too; --scratch (root) makes a private one";

/// The place of the files.
#[derive(clap::Args, Clone, Debug)]
pub struct Where {
    /// Work in a new directory there, which is removed afterwards [default: a scratch ext4 file
    /// system as root, else the current directory]
    #[arg(long, conflicts_with = "scratch")]
    dir: Option<PathBuf>,

    /// Make, mount and afterwards remove a file system of this type on a loop device (root)
    #[arg(long, value_enum, value_name = "TYPE")]
    scratch: Option<ScratchArg>,

    /// Keep the scratch image there while it is in use [default: $TMPDIR or /tmp]
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    scratch_dir: Option<PathBuf>,

    /// Put the scratch file system on a device that takes its time: none, nvme, emmc, sd, network, a file, or
    /// ftl[:OPTIONS], flash that is worn (root; see below)
    #[arg(long, value_name = "MODEL|FILE", conflicts_with = "dir", value_parser = Model::find)]
    device: Option<Model>,

    /// Age the scratch file system first, from a seed: full of files of mixed sizes, its free space
    /// in small pieces (root)
    #[arg(long, value_name = "SEED", conflicts_with = "dir", num_args = 0..=1, require_equals = true,
          default_missing_value = "1")]
    aged: Option<u64>,
}

impl Where {
    /// A scratch ext4 on a device of this model.
    pub fn on_model(model: Latency, scratch_dir: Option<PathBuf>) -> Self {
        Self {
            dir: None,
            scratch: Some(ScratchArg::Ext4),
            scratch_dir,
            device: Some(Model::Times(model)),
            aged: None,
        }
    }

    /// A scratch XFS on flash.
    pub fn xfs_on_flash(model: FlashModel) -> Self {
        Self {
            dir: None,
            scratch: Some(ScratchArg::Xfs),
            scratch_dir: None,
            device: Some(Model::Flash(model)),
            aged: None,
        }
    }

    /// A scratch XFS, unless the user names a place.
    pub fn or_scratch_xfs(mut self) -> Self {
        if self.dir.is_none() {
            self.scratch.get_or_insert(ScratchArg::Xfs);
        }
        self
    }
}

/// The place of the databases.
pub struct Place {
    kind: Kind,
    /// Type of the file system.
    pub file_system: String,
    /// Facts about it that the reader of the report should know.
    pub notes: Vec<String>,
    /// How it was aged, if it was.
    pub aged: Option<Aged>,
}

/// A device of a model, and the line to its process.
type Modelled = Mutex<Box<ModelledDevice>>;

enum Kind {
    // Tracing ends before the file system, and before the namespace that it may be mounted in.
    Scratch {
        tracefs: Option<Tracefs>,
        scratch: Scratch,
        file_system: FileSystem,
        /// The device below the file system, where it takes its time.
        modelled: Option<Modelled>,
    },
    Dir {
        dir: TempDir,
        device: Option<BlockDevice>,
    },
}

/// Finds or makes the place that the user asked for, and names it on standard error.
pub fn choose(args: &Where, bytes: u64, progress: &Progress) -> Result<Place, String> {
    // An aged file system must have this much free space.
    let bytes = match args.aged {
        Some(_) => bytes / (100 - age::KEPT) * 100,
        None => bytes,
    };
    if let Some(dir) = &args.dir {
        directory::check(dir, "give another with --dir")?;
        eprintln!("onewrite: {NOT_OURS}");
        return in_directory(dir, NOT_OURS);
    }
    if let Some(kind) = args.scratch {
        return scratch(kind.into(), args, bytes, progress);
    }
    if args.device.is_some() || args.aged.is_some() {
        return scratch(FileSystem::Ext4, args, bytes, progress);
    }
    if !rustix::process::geteuid().is_root() {
        directory::check(Path::new("."), "give another with --dir")?;
        eprintln!("onewrite: no --dir: working in the current directory; {WITHOUT_ROOT}");
        return in_directory(Path::new("."), WITHOUT_ROOT);
    }
    if let Some(missing) = FileSystem::Ext4.missing() {
        eprintln!("onewrite: no --dir: working in the current directory, because {missing}");
        return in_directory(
            Path::new("."),
            &format!("no scratch file system: {missing}"),
        );
    }
    eprintln!("onewrite: no --dir: working on a scratch ext4 file system, removed afterwards");
    scratch(FileSystem::Ext4, args, bytes, progress)
}

fn scratch(
    file_system: FileSystem,
    args: &Where,
    bytes: u64,
    progress: &Progress,
) -> Result<Place, String> {
    progress.say(&format!(
        "making a scratch {} file system",
        file_system.name()
    ));
    let parent = args.scratch_dir.clone().unwrap_or_else(std::env::temp_dir);
    directory::check(&parent, "give another for the image with --scratch-dir")?;
    let (made, modelled) = match &args.device {
        None => {
            let options = scratch::Options {
                file_system,
                bytes,
                parent: &parent,
                stop: interrupt::requested(),
            };
            (Scratch::create(&options).map_err(text)?, None)
        }
        Some(model) => on_model(file_system, model, bytes, &parent)?,
    };
    let mut notes = vec![describe(file_system, bytes, &parent, args.device.as_ref())];
    let mut aged = None;
    if let Some(seed) = args.aged {
        progress.say("ageing it");
        let old = age::age(file_system, made.root(), seed, interrupt::requested()).map_err(text)?;
        notes.push(describe_age(&old));
        aged = Some(old);
    }
    let tracefs = Tracefs::open(&made.host_dir().join("tracing"))
        .inspect_err(|error| notes.push(format!("no tracing: {error}")))
        .ok();
    let kind = Kind::Scratch {
        tracefs,
        scratch: made,
        file_system,
        modelled,
    };
    Ok(Place {
        kind,
        file_system: file_system.name().to_owned(),
        notes,
        aged,
    })
}

/// How old the file system is, for the reader of the report.
fn describe_age(aged: &Aged) -> String {
    let Aged {
        seed,
        rounds,
        files_made,
        files_kept,
        full_percent,
        pieces_before,
        pieces,
    } = aged;
    format!(
        "aged with seed {seed}, {rounds} rounds: {files_made} files made, {files_kept} still there, \
         {full_percent} % in use; a new file of 8 MiB is in {pieces} pieces (before: {pieces_before})"
    )
}

/// The content that a scratch file system must have room for: one run.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The kind of each transaction.
    pub op: Op,
    /// Transactions.
    pub count: u32,
    /// Bytes of a row.
    pub record_size: u32,
    /// Pages of log after which a checkpoint follows; 0 is never.
    pub autocheckpoint: u32,
    /// Warehouses of TPC-C.
    pub warehouses: u32,
}

impl Room {
    /// Bytes of a scratch file system with that room.
    pub fn bytes(&self) -> u64 {
        let per_frame = match self.autocheckpoint {
            0 => IMAGE_BYTES_PER_FRAME,
            // The log is reused.
            _ => IMAGE_BYTES_PER_FRAME / 5,
        };
        let frames = u64::from(self.op.frames());
        let per_op = frames * per_frame + 4 * u64::from(self.record_size);
        // Every file has a log of its own.
        let logs = (self.op.databases() as u64 - 1) * IMAGE_BYTES_PER_LOG;
        let warehouses = match self.op.is_tpcc() {
            true => u64::from(self.warehouses) * IMAGE_BYTES_PER_WAREHOUSE,
            false => 0,
        };
        let bytes = IMAGE_BYTES + logs + warehouses + u64::from(self.count) * per_op;
        // Whole blocks of any file system.
        bytes.next_multiple_of(1 << 20)
    }
}

/// Bytes of a scratch file system with room for `files` bytes of files.
pub fn bytes_with(files: u64) -> u64 {
    (IMAGE_BYTES + files + files / 8).next_multiple_of(1 << 20)
}

/// The file system on a device that takes its time once the file system is mounted.
fn on_model(
    file_system: FileSystem,
    model: &Model,
    bytes: u64,
    parent: &Path,
) -> Result<(Scratch, Option<Modelled>), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("--device needs root: it makes a loop device with a file system".to_owned());
    }
    let mut device = ModelledDevice::start(model.clone(), bytes, parent)?;
    let scratch = Scratch::create_on(file_system, device.node(), parent).map_err(text)?;
    device.take_time()?;
    Ok((scratch, Some(Mutex::new(Box::new(device)))))
}

fn text(error: onewrite_iotrace::Error) -> String {
    error.to_string()
}

/// The scratch file system, for the reader of the report.
fn describe(file_system: FileSystem, bytes: u64, parent: &Path, model: Option<&Model>) -> String {
    let (name, mib) = (file_system.name(), bytes >> 20);
    match model {
        None => {
            let host = type_of(parent);
            format!("scratch {name} image of {mib} MiB on a loop device, its file on {host}")
        }
        Some(Model::Flash(flash)) => format!(
            "scratch {name} of {mib} MiB on flash in memory, on a loop device ({}: {})",
            flash.name,
            flash.description()
        ),
        Some(Model::Times(model)) => format!(
            "scratch {name} of {mib} MiB in memory, on a loop device that answers as the model {} does; \
             FUSE and the loop driver add to its times",
            model.name
        ),
    }
}

fn in_directory(parent: &Path, note: &str) -> Result<Place, String> {
    let dir = tempfile::Builder::new()
        .prefix("onewrite-")
        .tempdir_in(parent)
        .map_err(|error| format!("cannot make a directory in {}: {error}", parent.display()))?;
    let file_system = type_of(dir.path());
    let device = BlockDevice::holding(dir.path()).ok().flatten();
    Ok(Place {
        kind: Kind::Dir { dir, device },
        file_system,
        notes: vec![note.to_owned()],
        aged: None,
    })
}

impl Place {
    /// The directory to work in.
    pub fn root(&self) -> &Path {
        match &self.kind {
            Kind::Scratch { scratch, .. } => scratch.root(),
            Kind::Dir { dir, .. } => dir.path(),
        }
    }

    /// The user's name for that place.
    pub fn given(&self) -> &Path {
        match &self.kind {
            Kind::Scratch { scratch, .. } => scratch.root(),
            Kind::Dir { dir, .. } => dir.path().parent().unwrap_or(dir.path()),
        }
    }

    /// Whether no other process writes to the device, so that its writes can be counted.
    pub fn counts(&self) -> bool {
        matches!(self.kind, Kind::Scratch { .. })
    }

    /// Begins to trace the device, if no other process writes to it.
    pub fn tracer(&self) -> Result<Tracer, String> {
        let Kind::Scratch {
            tracefs,
            scratch,
            file_system,
            ..
        } = &self.kind
        else {
            return Err("a trace needs a scratch file system (root)".to_owned());
        };
        let tracefs = tracefs.as_ref().ok_or("there is no tracing directory")?;
        let target = Target {
            device: scratch.device(),
            file_system: *file_system,
            root: scratch.root(),
            first: None,
            look_at_most: LOOK_AT_MOST,
            tracefs,
        };
        Tracer::start(&target).map_err(text)
    }

    /// The type of a scratch file system; empty for other places.
    pub fn kind_of_file_system(&self) -> &'static str {
        match &self.kind {
            Kind::Scratch { file_system, .. } => file_system.name(),
            Kind::Dir { .. } => "",
        }
    }

    /// The report's name for the device.
    pub fn device_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Scratch { .. } => Some("loop".to_owned()),
            Kind::Dir { device, .. } => device.as_ref().map(BlockDevice::described),
        }
    }

    /// The model by which the device takes its time, if it does.
    pub fn device_model(&self) -> Option<Latency> {
        match self.model() {
            Some(Model::Times(latency)) => Some(latency),
            _ => None,
        }
    }

    /// The flash below it, if there is.
    pub fn flash_model(&self) -> Option<FlashModel> {
        match self.model() {
            Some(Model::Flash(flash)) => Some(flash),
            _ => None,
        }
    }

    fn modelled(&self) -> Option<MutexGuard<'_, Box<ModelledDevice>>> {
        match &self.kind {
            Kind::Scratch { modelled, .. } => modelled
                .as_ref()
                .map(|device| device.lock().unwrap_or_else(PoisonError::into_inner)),
            Kind::Dir { .. } => None,
        }
    }

    fn model(&self) -> Option<Model> {
        self.modelled().map(|device| device.model().clone())
    }

    /// The work of the flash below it so far; `None` if there is no flash.
    pub fn flash_work(&self) -> Result<Option<Work>, String> {
        match self.modelled() {
            Some(mut device) => device.work(),
            None => Ok(None),
        }
    }

    /// A meter for the device while a database is used, if no other process writes to it.
    pub fn meter(&self, database: &Path) -> Result<Option<Meter>, String> {
        let Kind::Scratch {
            tracefs,
            scratch,
            file_system,
            ..
        } = &self.kind
        else {
            return Ok(None);
        };
        let watched = Watched::scratch(scratch, *file_system, database, tracefs.as_ref());
        Meter::new(&watched)
            .map(Some)
            .map_err(|error| error.to_string())
    }

    /// Takes down what was made.
    pub fn remove(self) -> Result<(), String> {
        match self.kind {
            Kind::Scratch {
                tracefs,
                scratch,
                modelled,
                ..
            } => {
                drop(tracefs);
                let unmounted = take_down(scratch);
                let device = modelled.map(|device| device.into_inner());
                let device = device.map(|device| device.unwrap_or_else(PoisonError::into_inner));
                unmounted.and(device.map_or(Ok(()), |device| device.remove()))
            }
            Kind::Dir { dir, .. } => {
                let path = dir.path().to_owned();
                dir.close()
                    .map_err(|error| format!("cannot remove {}: {error}", path.display()))
            }
        }
    }
}

/// Takes a scratch file system down, after the last connection to a database on it was closed.
pub fn take_down(scratch: Scratch) -> Result<(), String> {
    // Checkpoints by block remapping keep descriptors of the databases.
    onewrite::storage::close_kept_databases();
    scratch.remove().map_err(text)
}

/// The kernel's release, for example `6.18.44`.
pub fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// The type of the file system that holds a path, from the mount table.
fn type_of(path: &Path) -> String {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mounts = mounts::read(mounts::OF_THIS_PROCESS).unwrap_or_default();
    let mount = mounts::holding(&mounts, &path);
    mount
        .map_or("unknown", |mount| &mount.filesystem)
        .to_owned()
}
