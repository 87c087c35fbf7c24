//! `onewrite ftl`: a flash device with an FTL and X-FTL, in a file.
//!
//! [`device`] makes and opens devices, `mount` shows one to the kernel, `inspect` reports its
//! contents, `replay` plays a block trace on it, and `cut` cuts its power. `docs/xftl.md` is the
//! guide.

pub mod choices;
mod cut;
pub mod device;
mod inspect;
mod mount;
mod replay;

use crate::Outcome;

/// Explains the words below the options of `ftl --help`.
pub const AFTER_HELP: &str = "\
A device is a file that holds the NAND page by page. Every command opens it as after a power cut.

Examples:
  onewrite ftl create my.device --mib 256
  onewrite ftl mount my.device /mnt/x    # transactional files, for PRAGMA journal_mode=xftl (root)
  onewrite ftl mount my.device --block   # a block device, for mkfs.ext4 and stock SQLite (root)
  onewrite ftl mount my.device /mnt/x --cut-after 5000
  onewrite ftl inspect my.device --plot wear.svg
  onewrite trace --seconds 60 --events t.json --device /dev/sda1  # what a disk writes (root)
  onewrite ftl replay my.device t.json                            # the same on the device";

/// The options of `onewrite ftl`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Make a device
    Create(device::CreateArgs),
    /// Show a device to the kernel until Ctrl-C: transactional files, or a block device (root)
    Mount(mount::Args),
    /// Show a device's contents, its wear, and the cost of opening it
    Inspect(inspect::Args),
    /// Play a block trace on a device: ours, blkparse, fio, MSR Cambridge
    #[command(after_help = replay::AFTER_HELP)]
    Replay(replay::Args),
    /// Cut the power of a device in the middle of random writes, and open it again
    Cut(cut::Args),
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Create(args) => device::create(args),
        Command::Mount(args) => mount::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Cut(args) => cut::run(args),
    }
}
