//! `onewrite ftl inspect`: a device's contents, its wear, and the cost of opening it.

use std::path::PathBuf;
use std::process::ExitCode;

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use onewrite_flash::ftl::{Ftl, Recovery, Statistics, Wear};
use onewrite_flash::nand::{BlockNo, Operations};
use onewrite_plot::Heat;
use serde::Serialize;

use super::device;
use crate::Outcome;

/// The options of `onewrite ftl inspect`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The device's file; it is not changed
    file: PathBuf,

    /// Draw the erases of each block: .svg, or .png in a build with `--features png`
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The document of `--json`.
#[derive(Serialize)]
struct Report {
    version: u32,
    page_bytes: u32,
    pages_per_block: u32,
    channels: u32,
    dies: u32,
    logical_pages: u32,
    table_capacity: u32,
    /// Operations in the device's whole life.
    nand: Operations,
    /// Operations since it was opened.
    statistics: Statistics,
    wear: Wear,
    recovery: Recovery,
    now_ns: u64,
}

impl Report {
    fn of(ftl: &Ftl, recovery: &Recovery) -> Self {
        let geometry = ftl.nand().geometry();
        Self {
            version: 1,
            page_bytes: geometry.page_bytes,
            pages_per_block: geometry.pages_per_block,
            channels: geometry.channels,
            dies: geometry.dies(),
            logical_pages: ftl.pages(),
            table_capacity: ftl.config().table_capacity,
            nand: ftl.nand().operations(),
            statistics: ftl.statistics(),
            wear: ftl.wear(),
            recovery: *recovery,
            now_ns: ftl.nand().now().0,
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let (ftl, recovery, _held) = device::open(&args.file)?;
    if let Some(path) = &args.plot {
        let picture = wear_map(&ftl).draw().map_err(|error| error.to_string())?;
        picture.save(path).map_err(|error| error.to_string())?;
    }
    match args.json {
        true => {
            let text = serde_json::to_string_pretty(&Report::of(&ftl, &recovery));
            println!("{}", text.map_err(|error| error.to_string())?);
        }
        false => show(&ftl, &recovery),
    }
    Ok(ExitCode::SUCCESS)
}

/// A report as one line of JSON.
pub fn json(ftl: &Ftl, recovery: &Recovery) -> String {
    // A report has nothing that JSON cannot hold.
    serde_json::to_string(&Report::of(ftl, recovery)).unwrap_or_default()
}

/// Prints the tables.
pub fn show(ftl: &Ftl, recovery: &Recovery) {
    print!("{}", tables(&Report::of(ftl, recovery)));
}

fn tables(report: &Report) -> String {
    let mut text = String::new();
    let mib = f64::from(report.logical_pages) * f64::from(report.page_bytes) / 1_048_576.0;
    text.push_str(&format!(
        "{} blocks of {} pages of {} bytes on {} dies; {mib:.1} MiB for the host; {:.3} s of its time\n",
        report.wear.erases.len(),
        report.pages_per_block,
        report.page_bytes,
        report.dies,
        report.now_ns as f64 / 1e9,
    ));
    let s = &report.statistics;
    text.push_str(&table(&[
        ("NAND, in its whole life: reads", report.nand.reads),
        ("programs", report.nand.programs),
        ("erases", report.nand.erases),
        ("failed", report.nand.failures),
        ("Host, since it was opened: pages read", s.host_reads),
        ("pages written", s.host_writes),
        ("pages trimmed", s.host_trims),
        ("flushes", s.flushes),
        ("commits", s.commits),
        ("aborts", s.aborts),
        ("Garbage collection: pages copied", s.gc_copies),
        ("of these ahead of need", s.gc_ahead),
        ("blocks emptied", s.gc_blocks),
        ("Wear levelling: pages copied", s.wear_copies),
        ("Bit errors: pages copied", s.scrub_copies),
        ("Paired pages: pages of padding", s.padding_writes),
        ("Failed blocks: pages copied", s.failed_copies),
        ("Bookkeeping: pieces of the map", s.map_writes),
        ("pieces of the X-L2P table", s.table_writes),
        ("roots", s.root_writes),
    ]));
    text.push_str(&wear(report));
    text.push_str(&format!(
        "opened in {:.2} ms of its time ({:.2} for the X-L2P table): {} pages read, {} blocks searched, \
         {} pages found that the map did not have, {} of committed transactions\n",
        report.recovery.nanoseconds as f64 / 1e6,
        report.recovery.table_nanoseconds as f64 / 1e6,
        report.recovery.reads,
        report.recovery.blocks_scanned,
        report.recovery.pages_found,
        report.recovery.committed_pages,
    ));
    text
}

fn table(rows: &[(&str, u64)]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    for (name, number) in rows {
        table.add_row([(*name).to_owned(), number.to_string()]);
    }
    format!("{table}\n")
}

fn wear(report: &Report) -> String {
    let erases = &report.wear.erases;
    let sum: u64 = erases.iter().map(|erases| u64::from(*erases)).sum();
    let mut text = format!(
        "wear: each block erased {} to {} times, {:.1} on average, of {}; {} bad blocks",
        erases.iter().min().unwrap_or(&0),
        erases.iter().max().unwrap_or(&0),
        sum as f64 / erases.len().max(1) as f64,
        report.wear.endurance,
        report.wear.bad_blocks,
    );
    if let (Some(amplification), Some(life)) =
        (report.wear.write_amplification, report.wear.life_bytes)
    {
        text.push_str(&format!(
            "; {amplification:.2} pages programmed for each page written: {:.1} GiB can be written in its whole life",
            life / f64::from(1 << 30)
        ));
    }
    text.push('\n');
    text
}

/// The erases of each block.
pub fn wear_map(ftl: &Ftl) -> Heat {
    let erases = ftl.wear().erases;
    let cells = (0..).zip(&erases).map(|(block, erases)| {
        let is_bad = ftl.nand().is_bad(BlockNo(block));
        (!is_bad).then_some(f64::from(*erases))
    });
    Heat {
        title: "Wear".to_owned(),
        subtitle: Some(format!(
            "{} blocks, each of which can be erased {} times",
            erases.len(),
            ftl.wear().endurance
        )),
        what: "erases".to_owned(),
        without: "bad block".to_owned(),
        cells: cells.collect(),
    }
}
