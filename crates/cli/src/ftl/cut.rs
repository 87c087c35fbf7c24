//! `onewrite ftl cut`: power cuts in random writes.

use std::path::PathBuf;
use std::process::ExitCode;

use onewrite_flash::disk::{Disk, Pace};
use onewrite_flash::ftl::Recovery;
use onewrite_flash::medium::Medium;
use onewrite_flash::random::Random;

use super::device;
use crate::Outcome;

/// The options of `onewrite ftl cut`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The device's file; it is written back
    file: PathBuf,

    /// The number of cuts
    #[arg(long, default_value_t = 100)]
    cuts: u32,

    /// The seed of writes and places
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// `onewrite ftl cut`: random writes and flushes, a cut at a random NAND operation, and a check of
/// every page. Flushed data must be there. The device's content is overwritten.
pub fn run(args: &Args) -> Outcome {
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
