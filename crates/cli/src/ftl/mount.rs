//! `onewrite ftl mount`: the device as the kernel sees it. This process answers it until the user
//! stops it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use onewrite_flash::disk::{Disk, Pace};
use onewrite_flash::files::fuse::{BackgroundSession, Shared};
use onewrite_flash::files::{Files, FilesError, LazyWrites};
use onewrite_flash::ftl::{Ftl, FtlError, Recovery};
use onewrite_flash::host::Host;
use onewrite_flash::used::{Until, UseUp};
use onewrite_iotrace::scratch::{private_mounts, unmount_within};

use super::{device, inspect};
use crate::{Outcome, interrupt, say};

/// The options of `onewrite ftl mount`.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "onewrite ftl mount [OPTIONS] <FILE> <DIRECTORY>\n       \
                            onewrite ftl mount [OPTIONS] --block <FILE>"
)]
pub struct Args {
    /// The device's file; it is written back at the end
    file: PathBuf,

    /// The mount point of the transactional files
    #[arg(required_unless_present = "block")]
    directory: Option<PathBuf>,

    /// Show a block device instead, with the plain FTL, and print its node
    #[arg(long, conflicts_with = "directory")]
    block: bool,

    /// Make an empty file system of transactional files first
    #[arg(long, conflicts_with = "block")]
    format: bool,

    /// Pages of the block device's write buffer, which a power cut loses
    #[arg(long, default_value_t = 64)]
    buffer: usize,

    /// Take the time that the device would take; otherwise only its own clock advances
    #[arg(long)]
    real_time: bool,

    /// Obey orders on standard input, one a line, until its end: for `onewrite-lab reproduce xftl`
    /// and tests
    #[arg(long, hide = true)]
    orders: bool,

    /// Cut the power in the middle of the NAND operation with this number: everything fails
    /// afterwards
    #[arg(long, value_name = "N")]
    cut_after: Option<u64>,
}

impl Args {
    fn pace(&self) -> Pace {
        match self.real_time {
            true => Pace::Real,
            false => Pace::Virtual,
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err("mounting a device needs root: run it with sudo".to_owned());
    }
    if let Some(directory) = args.directory.as_ref().filter(|it| !it.is_dir()) {
        let name = directory.display();
        return Err(format!(
            "{name}: there is no such directory: make it, or give another"
        ));
    }
    interrupt::install()?;
    let (mut ftl, recovery, held) = device::open(&args.file)?;
    device::check_room(&args.file)?;
    if let Some(operations) = args.cut_after {
        ftl.nand_mut().faults.power_off_after = Some(operations);
    }
    let (ftl, ended) = match &args.directory {
        Some(directory) => files(args, directory, ftl)?,
        None => block(args, ftl, &recovery)?,
    };
    if !args.orders {
        inspect::show(&ftl, &recovery);
    }
    // Even after an error, the device has everything that was committed, and the device is in this
    // process's memory.
    let closed = match args.orders {
        true => device::close(&args.file, ftl, held),
        false => device::close_patiently(&args.file, ftl, held),
    };
    let mut code = ExitCode::SUCCESS;
    // A signal is how a mount ends, so it explains no error.
    for error in [ended, closed].into_iter().filter_map(Result::err) {
        say(format_args!("onewrite: {error}"));
        code = ExitCode::FAILURE;
    }
    Ok(code)
}

/// The mounted device, as orders see it.
enum Shown {
    Files {
        shared: Shared,
        /// The device while the power is off.
        off: Option<Box<Ftl>>,
    },
    Block {
        disk: Disk,
        host: Host,
    },
}

impl Shown {
    /// Waits for Ctrl-C, or obeys orders.
    fn serve(&mut self, has_orders: bool) -> Result<(), String> {
        if !has_orders {
            while !interrupt::is_requested() {
                sleep(Duration::from_millis(20));
            }
            return Ok(());
        }
        for line in std::io::stdin().lines() {
            let line = line.map_err(|error| error.to_string())?;
            let answer = self.obey(line.trim())?;
            println!("{answer}");
        }
        Ok(())
    }

    /// `report`; `use PERCENT SEED PROGRAMMED`: the device becomes one that was in use, that full,
    /// with so many percent of its NAND programmed; `lazy off`: lazy writes are refused; `cut N`: the power fails in the N-th NAND operation from now; `off`,
    /// answered with the device's time; `on`.
    fn obey(&mut self, order: &str) -> Result<String, String> {
        match order.split_once(' ').unwrap_or((order, "")) {
            ("report", _) => self.with(|ftl| inspect::json(ftl, &Recovery::default())),
            ("use", how) => {
                let how = Used::parse(how).ok_or_else(|| format!("{order:?} has no numbers"))?;
                self.with(|ftl| how.make(ftl))?
                    .map_err(|error| error.to_string())?;
                Ok("ok".to_owned())
            }
            ("lazy", "off") => match self {
                Self::Files { shared, .. } => {
                    shared.with(|files| files.write_lazy(LazyWrites::Refused));
                    Ok("ok".to_owned())
                }
                Self::Block { .. } => Err("a block device has no lazy writes".to_owned()),
            },
            ("cut", number) => {
                let number = number
                    .parse()
                    .map_err(|_| format!("{order:?} has no number"))?;
                self.with(|ftl| ftl.nand_mut().faults.power_off_after = Some(number))?;
                Ok("ok".to_owned())
            }
            ("off", _) => {
                let now = |ftl: &Ftl| ftl.nand().now().0;
                let when = match self {
                    Self::Files { shared, off } => {
                        *off = shared.power_off().map(Box::new);
                        off.as_deref().map(now)
                    }
                    Self::Block { disk, .. } => {
                        disk.power_off();
                        disk.with(|ftl| now(ftl))
                    }
                };
                Ok(when.unwrap_or(0).to_string())
            }
            ("on", _) => {
                let recovery = self.power_on()?;
                self.with(|ftl| inspect::json(ftl, &recovery))
            }
            _ => Err(format!("there is no order {order:?}")),
        }
    }

    fn with<T>(&self, what: impl FnOnce(&mut Ftl) -> T) -> Result<T, String> {
        let done = match self {
            Self::Files { shared, .. } => shared.with(|files| what(files.ftl_mut())),
            Self::Block { disk, .. } => disk.with(what),
        };
        done.ok_or_else(|| "the power is off".to_owned())
    }

    fn power_on(&mut self) -> Result<Recovery, String> {
        match self {
            Self::Block { disk, host } => {
                host.drop_cache().map_err(|error| error.to_string())?;
                disk.power_on().map_err(|error| error.to_string())
            }
            Self::Files { shared, off } => {
                let ftl = off.take().ok_or("the power is on")?;
                let config = *ftl.config();
                let mut nand = ftl.into_nand();
                nand.power_on();
                let (ftl, recovery) = Ftl::open(nand, config).map_err(|error| error.to_string())?;
                let files = Files::mount(ftl).map_err(|error| error.to_string())?;
                shared.power_on(files);
                Ok(recovery)
            }
        }
    }
}

/// How a device was in use.
struct Used {
    /// Percent of the host's pages that hold something.
    full: u32,
    seed: u64,
    /// Percent of the NAND that was programmed.
    programmed: u32,
}

impl Used {
    /// The numbers of the order.
    fn parse(numbers: &str) -> Option<Self> {
        let mut numbers = numbers.split(' ');
        let used = Self {
            full: numbers.next()?.parse().ok()?,
            seed: numbers.next()?.parse().ok()?,
            programmed: numbers.next()?.parse().ok()?,
        };
        numbers.next().is_none().then_some(used)
    }

    fn make(&self, ftl: &mut Ftl) -> Result<(), FtlError> {
        let steps = UseUp::new(ftl, self.full, Until::Programmed, self.seed);
        let mut steps = steps.programmed(self.programmed);
        while steps.step(ftl)? {}
        ftl.flush()
    }
}

/// The device as it was left, and the error if there was one.
type Left = (Ftl, Result<(), String>);

fn files(args: &Args, directory: &Path, ftl: Ftl) -> Result<Left, String> {
    let is_new = ftl.nand().operations().programs == 0;
    let mounted = match args.format || is_new {
        true => Files::format(ftl),
        false => Files::mount(ftl),
    };
    let mounted = mounted.map_err(|error| match error {
        FilesError::Format(_) => format!("{error}; --format makes one"),
        error => error.to_string(),
    })?;
    let shared = Shared::new(mounted, args.pace());
    let session = shared.mount(directory).map_err(|error| error.to_string())?;
    if !args.orders {
        eprintln!(
            "onewrite: transactional files on {}; Ctrl-C ends it",
            directory.display()
        );
    }
    println!("ready");
    let mut shown = Shown::Files {
        shared: shared.clone(),
        off: None,
    };
    let served = shown.serve(args.orders);
    let unmounted = unmount_files(session, directory);
    let settled = shared.with(Files::settle).unwrap_or(Ok(()));
    // While the power is off by order, `shown` has the device.
    let ftl = match shown {
        Shown::Files { off: Some(ftl), .. } => Some(*ftl),
        _ => shared.power_off(),
    };
    let ftl = ftl.ok_or_else(|| "the device is gone".to_owned())?;
    let settled = settled.map_err(|error| error.to_string());
    Ok((ftl, served.and(unmounted).and(settled)))
}

/// How long files may take to be closed.
const PATIENCE: Duration = Duration::from_secs(2);

/// Another process may have a file open, or be in the directory. Then the mount disappears from
/// view, and fails from now on.
fn unmount_files(session: BackgroundSession, directory: &Path) -> Result<(), String> {
    // The session itself would try only once.
    unmount_within(directory, PATIENCE).map_err(|error| {
        format!(
            "{} was in use ({error}): the device has everything that was committed; the rest is lost",
            directory.display()
        )
    })?;
    session
        .join()
        .map_err(|error| format!("{}: {error}", directory.display()))
}

fn block(args: &Args, ftl: Ftl, recovery: &Recovery) -> Result<Left, String> {
    private_mounts().map_err(|error| error.to_string())?;
    let disk = Disk::new(ftl, args.buffer, args.pace());
    let host = Host::new(disk.clone(), &std::env::temp_dir()).map_err(|error| error.to_string())?;
    if !args.orders {
        let opened_in = recovery.nanoseconds as f64 / 1e6;
        eprintln!("onewrite: opened in {opened_in:.1} ms of its time; Ctrl-C ends it");
    }
    println!("{}", host.node().display());
    let mut shown = Shown::Block {
        disk: disk.clone(),
        host,
    };
    let served = shown.serve(args.orders);
    drop(shown);
    disk.power_off();
    let ftl = disk.take().ok_or_else(|| "the device is gone".to_owned())?;
    Ok((ftl, served))
}
