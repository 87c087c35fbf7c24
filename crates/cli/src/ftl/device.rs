//! Makes devices, and opens them from their files.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use onewrite_common::files::open_named;
use onewrite_flash::ftl::saved::{load, save};
use onewrite_flash::ftl::{Config, CopiesGo, FlushWrites, Ftl, FtlError, MapGoes, Recovery};
use onewrite_flash::nand::saved::MAX_BYTES;
use onewrite_flash::nand::timing::Timing;
use onewrite_flash::nand::{Geometry, Nand};
use onewrite_flash::used::UseUp;
use rustix::fs::{FlockOperation, flock, statvfs};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::choices::Choices;
use crate::{Outcome, directory, interrupt, say};

/// A number between bounds.
pub fn within(value: &str, least: u32, most: u32) -> Result<u32, String> {
    let number = value.parse().ok();
    let number = number.filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("not a number from {least} to {most}"))
}

/// The seed of the pages that a used device was written to.
pub const SEED: u64 = 1;

/// The options of `onewrite ftl create`.
#[derive(clap::Args, Debug)]
pub struct CreateArgs {
    /// The file to make; it grows to the device's size as the device is written
    file: PathBuf,

    /// Percent of its pages that hold something: it is then a device in use (docs/devices.md)
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    full: u32,

    #[command(flatten)]
    shape: Shape,
}

/// The shape of a device.
#[derive(clap::Args, Clone, Debug)]
pub struct Shape {
    /// Size of the NAND, in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    mib: u32,

    /// Size for the host, in MiB; the NAND is then as large as that and --spare take
    #[arg(long, conflicts_with = "mib", value_parser = clap::value_parser!(u32).range(1..=65536))]
    host_mib: Option<u32>,

    /// Percent of it kept back for garbage collection
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(0..=90))]
    spare: u32,

    /// Its cells: openssd, emmc, tlc, tlc-3d, slc-cache, or a file (docs/xftl.md)
    #[arg(long, default_value = "openssd")]
    nand: String,

    /// Bytes of a page
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(512..=65536))]
    page_size: u32,

    /// Pages of a block
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(4..=4096))]
    pages_per_block: u32,

    /// Channels, each of which carries one transfer at a time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    channels: u32,

    /// Dies on each channel; each works independently
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    ways: u32,

    /// Entries of the X-L2P table: pages that open transactions may have written
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    table: u32,

    /// Writes of a flush in addition to the host's pages (docs/xftl.md)
    #[arg(long, value_enum, default_value_t = FlushArg::Nothing)]
    flush: FlushArg,

    /// Blocks for garbage collection's copies (docs/xftl.md)
    #[arg(long, value_enum, default_value_t = CopiesArg::Apart)]
    copies: CopiesArg,

    /// Dies that the pieces of the page map go to (docs/xftl.md)
    #[arg(long, value_enum, default_value_t = MapArg::OneDie)]
    map: MapArg,

    #[command(flatten)]
    choices: Choices,

    #[arg(skip)]
    tuned: Tuned,
}

/// Numbers of a device that the command line of `ftl create` does not set. `None` is the usual one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tuned {
    /// Megabytes (10^6) a second between page register and controller.
    pub transfer_mb_per_s: Option<u32>,
    /// [`Config::checkpoint_every`].
    pub checkpoint_every: Option<u32>,
    /// [`Config::wear_gap`].
    pub wear_gap: Option<u32>,
}

/// The value of an option by its name.
pub fn one_of<T: clap::ValueEnum>(value: &str) -> Result<T, String> {
    T::from_str(value, false)
}

/// [`MapGoes`] on the command line.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MapArg {
    /// One die, together with the root
    OneDie,
    /// All dies in turn, as with the OpenSSD board's own firmware
    Striped,
}

impl From<MapArg> for MapGoes {
    fn from(map: MapArg) -> Self {
        match map {
            MapArg::OneDie => Self::OneDie,
            MapArg::Striped => Self::Striped,
        }
    }
}

/// [`CopiesGo`] on the command line.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopiesArg {
    /// Separate blocks
    Apart,
    /// The blocks of the host's pages, as with the OpenSSD board's own firmware
    AmongHost,
}

impl From<CopiesArg> for CopiesGo {
    fn from(copies: CopiesArg) -> Self {
        match copies {
            CopiesArg::Apart => Self::Apart,
            CopiesArg::AmongHost => Self::AmongHost,
        }
    }
}

/// [`FlushWrites`] on the command line.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlushArg {
    /// Nothing: the device looks for pages when it starts
    Nothing,
    /// The changed pieces of the page map
    Changed,
    /// The changed entries of the page map, as a journal
    Journal,
    /// The whole page map, as with the OpenSSD board's own firmware
    Whole,
}

impl From<FlushArg> for FlushWrites {
    fn from(flush: FlushArg) -> Self {
        match flush {
            FlushArg::Nothing => Self::Nothing,
            FlushArg::Changed => Self::Map,
            FlushArg::Journal => Self::Journal,
            FlushArg::Whole => Self::WholeMap,
        }
    }
}

impl Shape {
    /// The same with these numbers.
    pub fn tuned(self, tuned: Tuned) -> Self {
        Self { tuned, ..self }
    }

    fn timing(&self) -> Result<Timing, String> {
        let mut timing = Timing::find(&self.nand).map_err(|error| error.to_string())?;
        if let Some(rate) = self.tuned.transfer_mb_per_s {
            timing.transfer_mb_per_s = f64::from(rate);
        }
        Ok(timing)
    }

    /// A new device of this shape.
    pub fn make(&self) -> Result<(Nand, Config), String> {
        let timing = self.timing()?;
        let with = |blocks| {
            let geometry = Geometry {
                page_bytes: self.page_size,
                pages_per_block: self.pages_per_block,
                ..Geometry::openssd(blocks)
            };
            let geometry = geometry.with_channels(self.channels, self.ways);
            geometry.with_planes(self.choices.planes)
        };
        let units = |mib: u32, unit: u32| ((u64::from(mib) << 20) / u64::from(unit)) as u32;
        let usual = Config::new(units(self.host_mib.unwrap_or(0), self.page_size));
        let Tuned {
            checkpoint_every,
            wear_gap,
            ..
        } = self.tuned;
        let like = self.choices.of(Config {
            table_capacity: self.table,
            checkpoint_every: checkpoint_every.unwrap_or(usual.checkpoint_every),
            wear_gap: wear_gap.unwrap_or(usual.wear_gap),
            flush: self.flush.into(),
            copies: self.copies.into(),
            map: self.map.into(),
            ..usual
        });
        let made = match self.host_mib {
            Some(_) => like
                .fitting(self.spare, with)
                .map(|geometry| (geometry, like)),
            None => {
                let geometry = with(units(self.mib, self.page_size * self.pages_per_block));
                Config::with_spare(&geometry, self.spare, like).map(|config| (geometry, config))
            }
        };
        let (geometry, config) = made.map_err(|error| {
            format!("{error}; give it more --mib, fewer --channels and --ways or a smaller --table")
        })?;
        Ok((self.choices.nand(geometry, timing)?, config))
    }
}

/// `onewrite ftl create`.
pub fn create(args: &CreateArgs) -> Outcome {
    if args.file.exists() {
        return Err(format!(
            "{} exists already: give another name, or remove it first",
            args.file.display()
        ));
    }
    let (mut nand, config) = args.shape.make()?;
    let bytes = nand.geometry().bytes();
    if bytes > MAX_BYTES {
        return Err(format!(
            "a NAND of {} MiB: a file holds {} MiB at most, because memory holds the same; give it less --mib or \
             --host-mib",
            bytes >> 20,
            MAX_BYTES >> 20
        ));
    }
    if args.full > 0 {
        nand = use_up(nand, config, args).map_err(|error| error.to_string())?;
    }
    let directory = args.file.parent().filter(|it| !it.as_os_str().is_empty());
    directory::check(directory.unwrap_or(Path::new(".")), "give another file")?;
    save(&args.file, &nand, &config).map_err(|error| error.to_string())?;
    let bytes = u64::from(config.logical_pages) * u64::from(nand.geometry().page_bytes);
    println!(
        "{}: {} blocks of {} pages of {} bytes; {:.1} MiB for the host",
        args.file.display(),
        nand.geometry().blocks(),
        nand.geometry().pages_per_block,
        nand.geometry().page_bytes,
        bytes as f64 / 1_048_576.0
    );
    Ok(ExitCode::SUCCESS)
}

/// Makes it a device in use.
fn use_up(nand: Nand, config: Config, args: &CreateArgs) -> Result<Nand, FtlError> {
    let (mut ftl, _) = Ftl::open(nand, config)?;
    let mut steps = UseUp::new(&ftl, args.full, args.shape.choices.used.into(), SEED);
    while steps.step(&mut ftl)? {}
    ftl.flush()?;
    Ok(ftl.into_nand())
}

/// Holds a device's file, so that no other process opens it meanwhile: the last one to end would
/// overwrite the work of the others.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "the lock ends with the descriptor")] File);

/// Opens a device from its file.
pub fn open(file: &Path) -> Result<(Ftl, Recovery, Held), String> {
    let held = hold(file)?;
    let (nand, config) =
        load(file).map_err(|error| format!("{error}: \"onewrite ftl create FILE\" makes one"))?;
    let (ftl, recovery) =
        Ftl::open(nand, config).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok((ftl, recovery, held))
}

/// The file that these commands take.
const EXPECTED: &str = "a device; \"onewrite ftl create FILE\" makes one";

fn hold(file: &Path) -> Result<Held, String> {
    let failed = |error: std::io::Error| format!("cannot open {}: {error}", file.display());
    loop {
        let held = open_named(file, EXPECTED)?;
        match flock(&held, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(format!("{} is in use by another process", file.display()));
            }
            Err(error) => return Err(failed(error.into())),
        }
        // Another process may have written the device back in between: into a new file.
        let (held_one, named) = (held.metadata(), fs::metadata(file));
        let (held_one, named) = (held_one.map_err(failed)?, named.map_err(failed)?);
        if (held_one.dev(), held_one.ino()) == (named.dev(), named.ino()) {
            return Ok(Held(held));
        }
    }
}

/// Writes a device back into its file, and releases the file.
pub fn close(file: &Path, ftl: Ftl, _held: Held) -> Result<(), String> {
    let (nand, config) = at_rest(ftl);
    save(file, &nand, &config).map_err(|error| error.to_string())
}

fn at_rest(ftl: Ftl) -> (Nand, Config) {
    let config = *ftl.config();
    let mut nand = ftl.into_nand();
    nand.faults.power_off_after = None;
    nand.wait();
    nand.power_on();
    (nand, config)
}

/// Refuses if the file system has less room than the device's file takes. It is written back into a new
/// file.
pub fn check_room(file: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot open {}: {error}", file.display());
    let real = fs::canonicalize(file).map_err(failed)?;
    let needed = fs::metadata(&real).map_err(failed)?.len();
    let space = statvfs(&real).map_err(|error| failed(error.into()))?;
    let room = space.f_bfree.saturating_mul(space.f_frsize);
    // A file system without a limit counts no blocks.
    match space.f_blocks > 0 && room < needed {
        true => Err(format!(
            "{}: {room} bytes are left on its file system. The device is written back into a new file, which \
             takes {needed} bytes at least: free some room first",
            file.display()
        )),
        false => Ok(()),
    }
}

/// How often a device that cannot be written back is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// As [`close`], for a device whose new content is only in this process's memory. If it cannot be
/// written, this says why, and tries again until the user stops the command once more.
pub fn close_patiently(file: &Path, ftl: Ftl, _held: Held) -> Result<(), String> {
    let (nand, config) = at_rest(ftl);
    let mut said = String::new();
    interrupt::withdraw();
    loop {
        let Err(error) = save(file, &nand, &config) else {
            return Ok(());
        };
        let error = error.to_string();
        if interrupt::is_requested() {
            return Err(format!(
                "{error}: given up. {} is as it was before the mount; all that was written since is lost",
                file.display()
            ));
        }
        if error != said {
            say(format_args!(
                "onewrite: {error}. The device is in this process's memory only. It is tried every second: \
                 make it possible, or stop this once more to give up what was written"
            ));
            said = error;
        }
        let until = Instant::now() + AGAIN_AFTER;
        while Instant::now() < until && !interrupt::is_requested() {
            sleep(Duration::from_millis(20));
        }
    }
}
