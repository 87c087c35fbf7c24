//! `onewrite ftl replay`: a block trace on a device; `onewrite ftl cut`: power cuts in random
//! writes.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;

use onewrite_flash::disk::{Disk, Pace};
use onewrite_flash::ftl::Recovery;
use onewrite_flash::medium::Medium;
use onewrite_flash::random::Random;
use serde::Deserialize;

use super::{device, inspect};
use crate::Outcome;

/// The longest I/O in bytes; a longer one is not valid.
const MAX_IO: u64 = 64 << 20;

/// The options of `onewrite ftl replay`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The device's file; it is written back
    file: PathBuf,

    /// A list of I/Os from `onewrite trace --events`: one JSON object a line, with op, address,
    /// bytes
    trace: PathBuf,

    /// Pages of the write buffer
    #[arg(long, default_value_t = 64)]
    buffer: usize,
}

/// The options of `onewrite ftl cut`.
#[derive(clap::Args, Debug)]
pub struct CutArgs {
    /// The device's file; it is written back
    file: PathBuf,

    /// The number of cuts
    #[arg(long, default_value_t = 100)]
    cuts: u32,

    /// The seed of writes and places
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// An I/O of a trace; other fields are not needed.
#[derive(Deserialize)]
struct Io {
    op: String,
    address: u64,
    bytes: u64,
    #[serde(default)]
    flush_before: bool,
    #[serde(default)]
    fua: bool,
}

/// `onewrite ftl replay`. Addresses beyond the device's end are taken modulo its size. A trace does
/// not have the bytes, so a pattern is written.
pub fn run(args: &Args) -> Outcome {
    let (ftl, recovery, held) = device::open(&args.file)?;
    let disk = Disk::new(ftl, args.buffer, Pace::Virtual);
    let name = args.trace.display();
    let file = File::open(&args.trace).map_err(|error| format!("cannot read {name}: {error}"))?;
    let mut played = 0_u64;
    for (number, line) in (1..).zip(BufReader::new(file).lines()) {
        let line = line.map_err(|error| format!("cannot read {name}: {error}"))?;
        let io: Io = serde_json::from_str(&line)
            .map_err(|error| format!("{name}, line {number}: {error}"))?;
        play(&disk, &io).map_err(|error| format!("{name}, line {number}: {error}"))?;
        played += 1;
    }
    disk.flush().map_err(|error| error.to_string())?;
    let ftl = disk.take().ok_or("the device is gone")?;
    println!("{played} I/Os");
    inspect::show(&ftl, &recovery);
    device::close(&args.file, ftl, held)?;
    Ok(ExitCode::SUCCESS)
}

fn play(disk: &Disk, io: &Io) -> std::io::Result<()> {
    let bytes = io.bytes.min(disk.bytes()).min(MAX_IO);
    let address = match disk.bytes() - bytes {
        0 => 0,
        room => io.address % (room + 1),
    };
    if io.flush_before {
        disk.flush()?;
    }
    match io.op.as_str() {
        "read" => disk.read(address, &mut vec![0; bytes as usize])?,
        "write" => disk.write(address, &vec![0xA5; bytes as usize])?,
        "discard" => disk.zero(address, bytes)?,
        "flush" => disk.flush()?,
        _ => {}
    }
    match io.fua {
        true => disk.flush(),
        false => Ok(()),
    }
}

/// `onewrite ftl cut`: random writes and flushes, a cut at a random NAND operation, and a check of
/// every page. Flushed data must be there. The device's content is overwritten.
pub fn cut(args: &CutArgs) -> Outcome {
    let (ftl, _, held) = device::open(&args.file)?;
    let page_bytes = u64::from(ftl.page_bytes());
    let disk = Disk::new(ftl, 1, Pace::Virtual);
    let pages = disk.bytes() / page_bytes;
    let mut random = Random::new(args.seed);
    // For each written page: the byte that is durable, and the later ones.
    let mut known = std::collections::BTreeMap::<u64, (Option<u8>, Vec<u8>)>::new();
    let (mut slowest, mut lost) = (0, 0);
    for _ in 0..args.cuts {
        disk.with(|ftl| ftl.nand_mut().faults.power_off_after = Some(random.below(2_000) as u64));
        loop {
            let (page, byte) = (
                random.below(pages.min(10_000) as usize) as u64,
                random.next() as u8,
            );
            known.entry(page).or_default().1.push(byte);
            let mut done = disk.write(page * page_bytes, &vec![byte; page_bytes as usize]);
            if done.is_ok() && random.percent(5) {
                done = disk.flush();
                if done.is_ok() {
                    for (durable, since) in known.values_mut() {
                        *durable = since.pop().or(*durable);
                        since.clear();
                    }
                }
            }
            if done.is_err() {
                break;
            }
        }
        disk.power_off();
        let recovery: Recovery = disk.power_on().map_err(|error| error.to_string())?;
        slowest = slowest.max(recovery.nanoseconds);
        for (page, (durable, since)) in &mut known {
            let mut bytes = vec![0; page_bytes as usize];
            disk.read(page * page_bytes, &mut bytes)
                .map_err(|error| error.to_string())?;
            let is_whole = bytes.iter().all(|byte| *byte == bytes[0]);
            // The content before the first write of this run is not known.
            let is_known =
                *durable == Some(bytes[0]) || since.contains(&bytes[0]) || durable.is_none();
            lost += u32::from(!is_whole || !is_known);
            (*durable, *since) = (Some(bytes[0]), Vec::new());
        }
    }
    println!(
        "{} cuts, seed {}: {lost} pages lost or torn; the slowest opening took {:.1} ms of its time",
        args.cuts,
        args.seed,
        slowest as f64 / 1e6
    );
    let ftl = disk.take().ok_or("the device is gone")?;
    device::close(&args.file, ftl, held)?;
    Ok(match lost {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
