//! A device of a latency model or of flash: the process that answers it, and the value that holds it.
//!
//! The process that answers a device must not wait for it ([`onewrite_flash::host`]). So it is this
//! program again, as `onewrite device-server`. It reads one line of JSON, a `Setup`, and answers
//! with one, a `Ready`. Then it obeys one `Order` a line. When its standard input ends, its parent
//! is done or gone. It then answers until no process has the device open, takes the device down,
//! and ends.
//!
//! **Memory.** This process keeps the content in memory, except blocks of zeros. It takes at most
//! the device's bytes. [`ModelledDevice::start`] refuses more than half of the machine's available
//! memory. The kernel may need this process to write before it can free memory. So the process is
//! marked with PR_SET_IO_FLUSHER. Its allocations then never wait for I/O, and the dirty pages of
//! others do not slow it down.

pub mod flash;

use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroU64;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;

use onewrite_flash::device::Device;
use onewrite_flash::disk::Disk;
use onewrite_flash::host::Host;
use onewrite_flash::latency::Latency;
use onewrite_flash::schedule::Schedule;
use onewrite_iotrace::scratch::private_mounts;
use serde::{Deserialize, Serialize};

use crate::Outcome;
use flash::{FlashModel, Work};

/// The kind of device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Model {
    /// Memory that takes its time.
    Times(Latency),
    /// Flash below an FTL.
    Flash(FlashModel),
}

impl Model {
    /// The model of a name, or in the file of that name.
    pub fn find(name: &str) -> Result<Self, String> {
        match FlashModel::find(name) {
            Some(flash) => flash.map(Self::Flash),
            None => Latency::find(name)
                .map(Self::Times)
                .map_err(|error| error.to_string()),
        }
    }

    /// Bytes that it takes in memory.
    fn memory(&self, bytes: u64) -> Result<u64, String> {
        match self {
            Self::Times(_) => Ok(bytes),
            Self::Flash(flash) => flash.nand_bytes(bytes),
        }
    }
}

/// The parent's request to the server: the device to make.
#[derive(Debug, Serialize, Deserialize)]
struct Setup {
    bytes: u64,
    parent: PathBuf,
    model: Model,
}

/// The server's answer: the device it made.
#[derive(Debug, Serialize, Deserialize)]
struct Ready {
    node: PathBuf,
}

/// A later order to the server, which answers with a line.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Order {
    /// Requests take their time from now on; flash is first made a device in use. An empty line.
    TakeTime,
    /// The work of flash so far: `null` for another device.
    Work,
}

/// A device that takes its time, until this value is dropped.
#[derive(Debug)]
pub struct ModelledDevice {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    node: PathBuf,
    model: Model,
}

impl ModelledDevice {
    /// Makes a device of `bytes` bytes that takes no time yet. A directory for its mount point is
    /// made in `parent`.
    pub fn start(model: Model, bytes: u64, parent: &Path) -> Result<Self, String> {
        check_memory(model.memory(bytes)?)?;
        let failed = |error: std::io::Error| format!("cannot start the device's process: {error}");
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .arg("device-server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the parent, which first takes down what it mounted.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the device's process has no pipes".to_owned());
        };
        let mut device = Self {
            child,
            input: Some(input),
            output: BufReader::new(output),
            node: PathBuf::new(),
            model: model.clone(),
        };
        let parent = parent.to_owned();
        let setup = Setup {
            bytes,
            parent,
            model,
        };
        let line = device.ask(&setup)?;
        let ready: Ready = serde_json::from_str(&line)
            .map_err(|error| format!("the device's process said {line:?}: {error}"))?;
        device.node = ready.node;
        Ok(device)
    }

    /// Its node below `/dev`.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// Its model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The work of flash so far; `None` for another device.
    pub fn work(&mut self) -> Result<Option<Work>, String> {
        let line = self.ask(&Order::Work)?;
        serde_json::from_str(&line)
            .map_err(|error| format!("the device's process said {line:?}: {error}"))
    }

    /// Requests take their time from now on.
    pub fn take_time(&mut self) -> Result<(), String> {
        self.ask(&Order::TakeTime).map(drop)
    }

    /// Sends a line and waits for the answer.
    fn ask(&mut self, what: &impl Serialize) -> Result<String, String> {
        let gone = |error: std::io::Error| format!("the device's process is gone: {error}");
        let line = serde_json::to_string(what).map_err(|error| error.to_string())?;
        if let Some(input) = &mut self.input {
            writeln!(input, "{line}").map_err(gone)?;
        }
        let mut answer = String::new();
        match self.output.read_line(&mut answer).map_err(gone)? {
            // It has said why on standard error.
            0 => Err("the device could not be made or has ended".to_owned()),
            _ => Ok(answer.trim_end().to_owned()),
        }
    }

    /// Takes it down. No process may have it open.
    pub fn remove(mut self) -> Result<(), String> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), String> {
        if self.input.take().is_none() {
            return Ok(());
        }
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("the device's process ended with {status}")),
            Err(error) => Err(format!("the device's process: {error}")),
        }
    }
}

impl Drop for ModelledDevice {
    fn drop(&mut self) {
        // remove() reports errors; here they have no reader.
        let _ = self.take_down();
    }
}

/// At most half of the available memory: the rest is for the page cache above the device, and the
/// work.
fn check_memory(bytes: u64) -> Result<(), String> {
    let table = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = available_bytes(&table).unwrap_or(u64::MAX);
    match bytes <= available / 2 {
        true => Ok(()),
        false => Err(format!(
            "a device of {} MiB is kept in memory, and may take half of the {} MiB that are available: \
             fewer transactions need a smaller device",
            bytes >> 20,
            available >> 20
        )),
    }
}

/// MemAvailable of `/proc/meminfo`.
fn available_bytes(table: &str) -> Option<u64> {
    let line = table
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// The server's process.
pub fn run_server() -> Outcome {
    let text = |error: std::io::Error| error.to_string();
    let mut lines = std::io::stdin().lines();
    let Some(line) = lines.next() else {
        return Err("this is a part of `onewrite compare --device`".to_owned());
    };
    let setup: Setup =
        serde_json::from_str(&line.map_err(text)?).map_err(|error| error.to_string())?;
    private_mounts().map_err(|error| error.to_string())?;
    be_waited_for();
    let served = Served::new(setup)?;
    let mut output = std::io::stdout();
    let ready = Ready {
        node: served.host().node().to_owned(),
    };
    let ready = serde_json::to_string(&ready).map_err(|error| error.to_string())?;
    writeln!(output, "{ready}").map_err(text)?;
    for line in lines {
        let order = serde_json::from_str(&line.map_err(text)?).map_err(|e| e.to_string())?;
        writeln!(output, "{}", served.obey(order)?).map_err(text)?;
    }
    drop(served);
    Ok(ExitCode::SUCCESS)
}

/// The device in the server's process.
enum Served {
    Times {
        host: Host,
        schedule: Arc<Schedule>,
    },
    Flash {
        host: Host,
        disk: Disk,
        model: Box<FlashModel>,
    },
}

impl Served {
    fn new(setup: Setup) -> Result<Self, String> {
        let text = |error: onewrite_flash::Error| error.to_string();
        match setup.model {
            Model::Times(latency) => {
                let schedule = Arc::new(Schedule::new(latency));
                let device = Device::new(setup.bytes);
                let host = Host::timed(device, schedule.clone(), &setup.parent).map_err(text)?;
                Ok(Self::Times { host, schedule })
            }
            Model::Flash(model) => {
                let disk = model.make(setup.bytes)?;
                let host = match model.queue() {
                    0 | 1 => Host::new(disk.clone(), &setup.parent),
                    depth => Host::queued(disk.clone(), depth, &setup.parent),
                };
                let host = host.map_err(text)?;
                let model = Box::new(model);
                Ok(Self::Flash { host, disk, model })
            }
        }
    }

    fn host(&self) -> &Host {
        match self {
            Self::Times { host, .. } | Self::Flash { host, .. } => host,
        }
    }

    /// The answer's line.
    fn obey(&self, order: Order) -> Result<String, String> {
        match (order, self) {
            (Order::TakeTime, Self::Times { schedule, .. }) => schedule.switch_on(),
            (Order::TakeTime, Self::Flash { disk, model, .. }) => model.begin(disk)?,
            (Order::Work, Self::Times { .. }) => return Ok("null".to_owned()),
            (Order::Work, Self::Flash { disk, .. }) => {
                return serde_json::to_string(&Work::of(disk)?).map_err(|e| e.to_string());
            }
        }
        Ok(String::new())
    }
}

/// Makes this thread, and those that it starts, fit for answering a device. I/O waits for them, so
/// they wake up on time and before others: a device takes none of the CPU's work. Where the kernel
/// refuses one of these, the device works without it.
fn be_waited_for() {
    let _ = rustix::process::setpriority_process(None, -20);
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_and_bounds_the_device() {
        let table = "MemTotal:       24684044 kB\nMemAvailable:   1024 kB\nBuffers: 1 kB\n";
        assert_eq!(available_bytes(table), Some(1 << 20));
        assert_eq!(available_bytes("MemTotal: 5 kB\n"), None);
        let said = check_memory(1 << 60).unwrap_err();
        assert!(said.contains("are available"), "{said}");
    }
}
