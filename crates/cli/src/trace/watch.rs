//! Finds or makes the device to trace, and traces it: until a command ends, or for a time.

use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use onewrite_iotrace::scratch::{self, Scratch};
use onewrite_iotrace::trace::{Mark, Place, Recording, Target, Tracer};
use onewrite_iotrace::tracefs::Tracefs;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use super::{Args, Ended, Traced, insert};
use crate::{directory, interrupt};

/// Bytes of a scratch image.
const IMAGE_BYTES: u64 = 512 << 20;

/// The time between two checks whether a command has ended.
const INTERVAL: Duration = Duration::from_millis(5);

/// The time that a command may take to stop after a signal.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest wait for an idle moment of a device.
const QUIET: Duration = Duration::from_secs(2);

/// The place of the trace.
pub struct Site {
    // Tracing ends before the file system.
    tracefs: Tracefs,
    _mount_point: TempDir,
    pub place: Place,
    /// The directory of the command, if it differs from this process's.
    pub work_dir: Option<PathBuf>,
    /// The files to look at first.
    first: Option<PathBuf>,
    look_at_most: Duration,
    scratch: Option<Scratch>,
}

/// A trace under way, and the moment at which it began.
pub struct Begun {
    tracer: Tracer,
    from: Mark,
}

/// A trace that has ended.
pub struct Over {
    pub recording: Recording,
    pub from: Mark,
    pub to: Mark,
}

/// Traces everything that the user asked for. The second result says whether all temporary files
/// could be removed.
pub fn all(args: &Args) -> Result<(Vec<Traced>, Result<(), String>), String> {
    let site = Site::find(args)?;
    let traced = match &args.insert {
        Some(modes) => insert::all(&site, &modes.0, args.count, args.per),
        None => one(&site, args).map(|traced| vec![traced]),
    };
    let removed = site.remove();
    Ok((traced?, removed))
}

fn one(site: &Site, args: &Args) -> Result<Traced, String> {
    if let Some(setup) = &args.setup {
        set_up(setup, site.work_dir.as_deref())?;
    }
    let (over, ended, what) = match args.seconds {
        Some(seconds) => {
            let begun = site.begin()?;
            wait(Duration::from_secs_f64(seconds));
            (begun.end()?, None, format!("{seconds} s"))
        }
        None => {
            let begun = site.begin_settled()?;
            let ended = run(args, site.work_dir.as_deref())?;
            (begun.end()?, Some(ended), shown(&args.command))
        }
    };
    Ok(Traced {
        what,
        mode: None,
        per: args.per,
        file_system: site.place.file_system.name(),
        device: site.place.device.name().to_owned(),
        recording: over.recording,
        from: over.from,
        to: over.to,
        ended,
    })
}

impl Site {
    fn find(args: &Args) -> Result<Self, String> {
        let mount_point = tempfile::Builder::new()
            .prefix("onewrite-trace-")
            .tempdir()
            .map_err(|error| format!("cannot make a directory for tracefs: {error}"))?;
        let tracefs = Tracefs::open(&mount_point.path().join("tracing")).map_err(|error| {
            format!(
                "no tracefs: {error}; the kernel needs CONFIG_FTRACE, and a container the host's \
                 /sys/kernel/tracing (mount -t tracefs tracefs /sys/kernel/tracing)"
            )
        })?;
        let mut site = match args.scratch {
            Some(kind) => {
                let made = make_scratch(kind.into(), args.scratch_dir.as_deref())?;
                Self {
                    tracefs,
                    _mount_point: mount_point,
                    place: Place {
                        device: made.device().clone(),
                        file_system: kind.into(),
                        root: made.root().to_owned(),
                    },
                    work_dir: Some(made.root().to_owned()),
                    first: None,
                    look_at_most: Duration::ZERO,
                    scratch: Some(made),
                }
            }
            None => {
                let here = PathBuf::from(".");
                let dir = args.dir.clone().unwrap_or(here);
                let place = match &args.device {
                    Some(node) => Place::of_device(node),
                    None => Place::of_path(&dir),
                };
                Self {
                    tracefs,
                    _mount_point: mount_point,
                    place: place.map_err(text)?,
                    work_dir: None,
                    first: args
                        .device
                        .is_none()
                        .then(|| dir.canonicalize().ok())
                        .flatten(),
                    look_at_most: Duration::ZERO,
                    scratch: None,
                }
            }
        };
        site.look_at_most = args.look_at_most();
        Ok(site)
    }

    /// Begins at the present moment.
    pub fn begin(&self) -> Result<Begun, String> {
        let tracer = self.start()?;
        let from = quiet_mark(&tracer)?;
        Ok(Begun { tracer, from })
    }

    /// Begins when all earlier writes have reached the device.
    pub fn begin_settled(&self) -> Result<Begun, String> {
        let tracer = self.start()?;
        let root = &self.place.root;
        let dir = File::open(root).map_err(|error| format!("open {}: {error}", root.display()))?;
        let from = match &self.scratch {
            Some(_) => Mark::settled(tracer.device(), &dir).map_err(text)?,
            // Others write to it, too: it may never be idle.
            None => {
                rustix::fs::syncfs(&dir)
                    .map_err(|error| format!("sync {}: {error}", root.display()))?;
                quiet_mark(&tracer)?
            }
        };
        Ok(Begun { tracer, from })
    }

    fn start(&self) -> Result<Tracer, String> {
        let target = Target {
            device: &self.place.device,
            file_system: self.place.file_system,
            root: &self.place.root,
            first: self.first.as_deref(),
            look_at_most: self.look_at_most,
            tracefs: &self.tracefs,
        };
        Tracer::start(&target).map_err(text)
    }

    fn remove(self) -> Result<(), String> {
        drop(self.tracefs);
        self.scratch.map_or(Ok(()), crate::place::take_down)
    }
}

impl Begun {
    /// Moves the beginning to this moment; earlier events do not count.
    pub fn begin_again(&mut self, dir: &File) -> Result<(), String> {
        self.from = Mark::settled(self.tracer.device(), dir).map_err(text)?;
        Ok(())
    }

    /// Ends at the present moment.
    pub fn end(self) -> Result<Over, String> {
        let to = quiet_mark(&self.tracer)?;
        let from = self.from;
        let recording = self.tracer.finish().map_err(text)?;
        Ok(Over {
            recording,
            from,
            to,
        })
    }
}

/// A moment at which the device is idle, if one comes soon. Between the end of a request and its
/// counting, the trace and the counters differ.
fn quiet_mark(tracer: &Tracer) -> Result<Mark, String> {
    let begin = Instant::now();
    loop {
        let mark = Mark::now(tracer.device()).map_err(text)?;
        let idle = tracer.device().is_idle().map_err(text)?;
        if idle || begin.elapsed() > QUIET {
            return Ok(mark);
        }
    }
}

fn make_scratch(
    file_system: scratch::FileSystem,
    parent: Option<&Path>,
) -> Result<Scratch, String> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    directory::check(&parent, "give another for the image with --scratch-dir")?;
    let options = scratch::Options {
        file_system,
        bytes: IMAGE_BYTES,
        parent: &parent,
        stop: interrupt::requested(),
    };
    Scratch::create(&options).map_err(text)
}

fn wait(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time && !interrupt::is_requested() {
        let left = time.saturating_sub(begin.elapsed());
        thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// Runs the set-up command; its output goes to standard error.
fn set_up(setup: &str, dir: Option<&Path>) -> Result<(), String> {
    let mut command = Command::new("sh");
    command.arg("-c").arg(setup).stdout(std::io::stderr());
    let child = start(&mut command, dir, "sh")?;
    let status = wait_for(child, "sh")?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("the set-up failed ({status}): {setup}")),
    }
}

fn run(args: &Args, dir: Option<&Path>) -> Result<Ended, String> {
    let (program, arguments) = args.command.split_first().ok_or("no command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    if args.output.is_json() {
        // Standard output is for the document alone.
        command.stdout(std::io::stderr());
    }
    let name = program.to_string_lossy();
    let status = wait_for(start(&mut command, dir, &name)?, &name)?;
    Ok(Ended {
        code: status.code(),
        signal: status.signal(),
    })
}

fn start(command: &mut Command, dir: Option<&Path>, name: &str) -> Result<Child, String> {
    if let Some(dir) = dir {
        command.current_dir(dir);
    }
    command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!(
            "cannot run {name}: there is no such command; give one that is in PATH, or its full path"
        ),
        _ => format!("cannot run {name}: {error}"),
    })
}

/// Waits for its end. When the user stops this program, the command and its children are stopped,
/// too.
fn wait_for(mut child: Child, name: &str) -> Result<ExitStatus, String> {
    let failed = |error: std::io::Error| format!("cannot wait for {name}: {error}");
    let mut told: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        match told {
            None if interrupt::is_requested() => {
                signal_all(child.id(), Signal::INT);
                told = Some(Instant::now());
            }
            Some(since) if since.elapsed() > PATIENCE => signal_all(child.id(), Signal::KILL),
            _ => {}
        }
        thread::sleep(INTERVAL);
    }
}

/// Sends a signal to a process that this program started, and to its children. One that has ended
/// needs none.
fn signal_all(pid: u32, signal: Signal) {
    for below in descendants(pid) {
        if let Some(pid) = i32::try_from(below).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// A process and all its descendants, while they live.
fn descendants(pid: u32) -> Vec<u32> {
    let (mut found, mut at) = (vec![pid], 0);
    while let Some(pid) = found.get(at) {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children"));
            let children = children.unwrap_or_default();
            let pids = children.split_ascii_whitespace();
            found.extend(pids.filter_map(|pid| pid.parse::<u32>().ok()));
        }
        at += 1;
    }
    found
}

/// A command line for people.
fn shown(command: &[OsString]) -> String {
    let words = command.iter().map(|word| word.to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}

pub fn text(error: onewrite_iotrace::Error) -> String {
    error.to_string()
}
