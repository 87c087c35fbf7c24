//! A device and its mounted files: the process that answers it, and this process's control of that
//! process.
//!
//! The process is this program again, as `onewrite ftl mount --orders`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use onewrite_flash::ftl::saved::save;
use onewrite_iotrace::scratch::{FileSystem, Scratch};
use rustix::mount::{MountFlags, mount_remount};
use serde_json::Value;
use tempfile::TempDir;

use super::controllers::Controller;
use onewrite_cli::ftl::device::Shape;

/// The file system on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// ext4 on the plain FTL.
    Ext4,
    /// The same, journaling data too.
    Ext4DataJournal,
    /// The same, which writes times late.
    Ext4Lazytime,
    /// The same without a journal.
    Ext4NoJournal,
    /// Transactional files.
    Files,
}

/// Makes full data journaling the file system's default.
fn journal_data(node: &Path) -> Result<(), String> {
    let done = Command::new("tune2fs")
        .args(["-o", "journal_data"])
        .arg(node)
        .output()
        .map_err(|error| format!("cannot run tune2fs (e2fsprogs): {error}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!(
            "tune2fs: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        )),
    }
}

/// The options of the device's process: transactional files, or a block device with its buffer.
fn shown(controller: Controller, below: Below, mount_point: &Path) -> Vec<OsString> {
    match below {
        Below::Files => vec![mount_point.into()],
        _ => {
            let pages = controller.parts.write_buffer.to_string();
            ["--block", "--buffer", &pages].map(OsString::from).into()
        }
    }
}

/// See the module.
pub struct TestDevice {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    scratch: Option<Scratch>,
    node: PathBuf,
    dir: TempDir,
}

impl TestDevice {
    /// Makes a device and mounts it.
    pub fn start(controller: Controller, shape: &Shape, below: Below) -> Result<Self, String> {
        let text = |error: std::io::Error| format!("cannot start the device's process: {error}");
        let dir = tempfile::Builder::new()
            .prefix("onewrite-xftl-")
            .tempdir()
            .map_err(text)?;
        let (nand, config) = shape.make()?;
        let file = dir.path().join("device");
        save(&file, &nand, &config).map_err(|error| error.to_string())?;
        let mount_point = dir.path().join("files");
        std::fs::create_dir(&mount_point).map_err(text)?;
        let mut command = Command::new(std::env::current_exe().map_err(text)?);
        command.args(["ftl", "mount", "--orders"]).arg(&file);
        command.args(shown(controller, below, &mount_point));
        // The parent handles Ctrl-C. It first removes what it mounted.
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().map_err(text)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the device's process has no pipes".to_owned());
        };
        let mut made = Self {
            child,
            input: Some(input),
            output: BufReader::new(output),
            scratch: None,
            node: mount_point,
            dir,
        };
        let ready = made.line()?;
        if below != Below::Files {
            made.node = PathBuf::from(ready);
            let clusters = controller.clusters.options(controller.page_bytes());
            let mut options: Vec<&str> = clusters.iter().map(String::as_str).collect();
            if below == Below::Ext4NoJournal {
                options.extend(["-O", "^has_journal"]);
            }
            FileSystem::Ext4
                .make(&made.node, &options)
                .map_err(|error| error.to_string())?;
            if below == Below::Ext4DataJournal {
                journal_data(&made.node)?;
            }
            made.mount(below)?;
        }
        Ok(made)
    }

    /// The directory for files.
    pub fn root(&self) -> &Path {
        self.scratch
            .as_ref()
            .map_or(&self.node, |scratch| scratch.root())
    }

    /// The block device's node, or the mount point of transactional files.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// Unmounts ext4; transactional files stay mounted.
    pub fn unmount(&mut self) -> Result<(), String> {
        match self.scratch.take() {
            Some(scratch) => scratch.remove().map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// Mounts the file system again.
    pub fn mount(&mut self, below: Below) -> Result<(), String> {
        if below != Below::Files {
            let scratch = Scratch::mount_on(FileSystem::Ext4, &self.node, self.dir.path());
            let scratch = scratch.map_err(|error| error.to_string())?;
            if below == Below::Ext4Lazytime {
                let flags = MountFlags::LAZYTIME;
                mount_remount(scratch.root(), flags, c"")
                    .map_err(|error| format!("cannot mount with lazytime: {error}"))?;
            }
            self.scratch = Some(scratch);
        }
        Ok(())
    }

    /// Gives an order and returns the answer.
    pub fn order(&mut self, order: &str) -> Result<String, String> {
        if let Some(input) = &mut self.input {
            writeln!(input, "{order}")
                .map_err(|error| format!("the device's process is gone: {error}"))?;
        }
        self.line()
    }

    /// Makes the device one that was in use: so many percent of the host's pages hold something, and
    /// so many percent of the NAND were programmed.
    pub fn use_up(&mut self, full: u32, seed: u64, programmed: u32) -> Result<(), String> {
        let order = format!("use {full} {seed} {programmed}");
        self.order(&order).map(drop)
    }

    /// The device's counts, and its time.
    pub fn report(&mut self) -> Result<Value, String> {
        let text = self.order("report")?;
        serde_json::from_str(&text)
            .map_err(|error| format!("the device's process said {text:?}: {error}"))
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err("the device's process has ended".to_owned()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(format!("the device's process is gone: {error}")),
        }
    }

    /// Unmounts and stops everything.
    pub fn end(mut self) -> Result<(), String> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), String> {
        let unmounted = self.unmount();
        if self.input.take().is_none() {
            return unmounted;
        }
        let ended = match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("the device's process ended with {status}")),
            Err(error) => Err(format!("the device's process: {error}")),
        };
        unmounted.and(ended)
    }
}

impl Drop for TestDevice {
    fn drop(&mut self) {
        // `end()` reports errors; here nobody can receive a report.
        let _ = self.take_down();
    }
}

#[cfg(test)]
mod tests {
    use super::super::controllers::{BOARD, Parts};
    use super::*;

    #[test]
    fn a_block_device_has_the_write_buffer_that_is_set_and_files_have_none() {
        let of = |write_buffer, below| {
            let mut parts = Parts::NONE;
            parts.write_buffer = write_buffer;
            shown(BOARD.with(parts), below, Path::new("/x"))
        };
        assert_eq!(of(16, Below::Ext4), ["--block", "--buffer", "16"]);
        assert_eq!(of(1, Below::Ext4NoJournal), ["--block", "--buffer", "1"]);
        assert_eq!(of(16, Below::Files), ["/x"]);
    }
}
