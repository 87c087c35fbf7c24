//! `onewrite ftl replay`: a block trace on a device.
//!
//! [`formats`] reads the trace line by line or, of blktrace's own files, `records` record by record.
//! `play` does the requests, `report` says what they cost.

mod formats;
mod inputs;
mod play;
mod records;
mod report;

use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;

use super::device;
use crate::Outcome;
use formats::{Action, Format, Line, blktrace};
use inputs::Input;
use play::Player;
use report::{Lines, Report, Terms};

/// Explains the words below the options of `ftl replay --help`.
pub const AFTER_HELP: &str = "\
The formats (--format; without it, the first line decides):
  events    onewrite trace --events: one JSON object a line
  blktrace  blktrace's own files, one for each processor. NAME is NAME.blktrace.0, NAME.blktrace.1 and so on, \
and several files can be named: all are played by their times. - is the stream of blktrace -o -. --action as with \
blkparse
  blkparse  the text of blktrace's blkparse. One action of a request is played: --action D, what the device \
got. Other actions and the statistics at the end are counted as no requests
  fio       fio's iolog (write_iolog), version 2 or 3
  msr       MSR Cambridge (FAST 2008): Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime

Contents: a trace does not have the bytes, so a pattern is written.

Addresses: a device is smaller than the traced one. An I/O that reaches beyond its end is folded: its address \
modulo the device's size. That keeps its alignment. What is then still beyond the end continues at 0. The \
report says how many. An I/O that is longer than the device is cut to its size, and counted.

Unknown lines: an error with file and line, and the device's file stays as it was. --lenient counts them, and \
the report has the first. So it is with unknown records of blktrace, and with a file that ends inside one; the \
error has their offset.

Disks: a trace may have several: blkparse's 8,0, MSR's hm_1, fio's names, the modes of `trace --insert`. All \
are played on this one device. --only plays one of them.

Time: the device's own, not the machine's. By default a request arrives when the one before was answered. \
--timed lets it arrive when the trace says; the device is idle in between, and a request waits for those \
before it. --timed=10 is ten times as fast. A latency counts from the arrival. Time that goes backwards in the \
trace stands still, and is counted. A write takes no time if the write buffer (--buffer) has room.

Queue: --queue-depth lets as many requests be in flight. Without --timed the next one then arrives when there \
is a place for it. A request waits for its dies and channels, where the earlier ones come first; for a flush, \
and a flush for all before it.

The report: requests, bytes and latencies by kind; I/Os and bytes a second of the device's time; pages that \
the NAND programmed, by reason; write amplification (pages programmed for each page the host wrote, and bytes \
programmed for each byte of the trace's writes); garbage collections and moved pages; erases of each block, in \
this replay and in its whole life; and the bytes that can be written in its life. With the trace's own length, \
that is also in years. A last flush belongs to the replay: it writes what the buffer still has.

Examples:
  onewrite ftl create my.device --mib 1024 --flush whole --copies among-host
  onewrite ftl replay my.device sda.blkparse
  blktrace -d /dev/sda -w 60; onewrite ftl replay my.device sda
  zcat hm_1.csv.gz | onewrite ftl replay my.device - --timed=100 --json
  fio --write_iolog=job.log job.fio; onewrite ftl replay my.device job.log --lenient";

/// The options of `onewrite ftl replay`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The device's file; it is written back
    file: PathBuf,

    /// The trace; - is standard input. Only blktrace's own files can be several
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// The trace's format [default: its first line decides]
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// The action of blktrace and blkparse that counts
    #[arg(long, value_enum, default_value = "D")]
    action: Action,

    /// Play only this disk of the trace
    #[arg(long, value_name = "DISK")]
    only: Option<String>,

    /// Let requests arrive when the trace says, or so many times as fast
    #[arg(long, value_name = "SPEED", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = speed)]
    timed: Option<f64>,

    /// Count unknown lines and records instead of ending at the first
    #[arg(long)]
    lenient: bool,

    /// Requests in flight at most
    #[arg(long, default_value_t = 1, value_name = "REQUESTS", value_parser = clap::value_parser!(u32).range(1..=65536))]
    queue_depth: u32,

    /// Pages of the write buffer
    #[arg(long, default_value_t = 64)]
    buffer: usize,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match (0.000_001..=1e9).contains(&speed) {
        true => Ok(speed),
        false => Err("not between 0.000001 and 1000000000".to_owned()),
    }
}

/// `onewrite ftl replay`.
pub fn run(args: &Args) -> Outcome {
    let (ftl, _, held) = device::open(&args.file)?;
    let before = report::Before::of(&ftl);
    let depth = args.queue_depth as usize;
    let mut player = Player::new(ftl, args.buffer, depth, args.timed);
    let (format, lines) = play(args, &mut player)?;
    let played = player.finish().map_err(|error| error.to_string())?;
    let terms = Terms {
        timed: args.timed,
        queue_depth: args.queue_depth,
    };
    let report = Report::of(&before, &played, terms, format, lines);
    match args.json {
        true => {
            let text = serde_json::to_string_pretty(&report);
            println!("{}", text.map_err(|error| error.to_string())?);
        }
        false => print!("{}", report.text()),
    }
    device::close(&args.file, played.ftl, held)?;
    Ok(ExitCode::SUCCESS)
}

/// Plays the whole trace.
fn play(args: &Args, player: &mut Player) -> Result<(Format, Lines), String> {
    let mut inputs = inputs::open(&args.traces)?;
    let mut lines = Lines::default();
    let format = match (is_blktrace(args.format, &mut inputs)?, inputs.pop()) {
        (false, Some(only)) => play_lines(only, args, player, &mut lines)?,
        (_, last) => {
            inputs.extend(last);
            records::play(inputs, args, player, &mut lines)?;
            (lines.lines > 0).then_some(Format::Blktrace)
        }
    };
    let name = args.traces[0].display();
    match (format, &args.only) {
        (None, _) => Err(format!("{name} is empty")),
        (Some(_), Some(only)) if !lines.disks.contains(only) => {
            let disks: Vec<&str> = lines.disks.iter().map(String::as_str).collect();
            Err(format!(
                "{name} has no disk {only:?}; it has {}",
                disks.join(" ")
            ))
        }
        (Some(format), _) => Ok((format, lines)),
    }
}

/// Whether these are blktrace's own files, as the user says or as they begin.
fn is_blktrace(format: Option<Format>, inputs: &mut [Input]) -> Result<bool, String> {
    let (mut found, files) = (None, inputs.len());
    for input in inputs {
        let first = input.reader.fill_buf();
        let first = first.map_err(|error| format!("{}: {error}", input.name))?;
        if blktrace::is_blktrace(first) {
            found.get_or_insert(&input.name);
        }
    }
    match (format, found, files) {
        (Some(Format::Blktrace), ..) => Ok(true),
        (Some(_), Some(name), _) => Err(format!(
            "{name} is one of blktrace's own files, which --format blktrace reads"
        )),
        (Some(_), None, 2..) => {
            Err("several files can only be blktrace's own: give one file of this --format".into())
        }
        (None, None, 2..) | (None, Some(_), _) => Ok(true),
        (_, None, _) => Ok(false),
    }
}

/// Plays every line; the format, if there is a line.
fn play_lines(
    input: Input,
    args: &Args,
    player: &mut Player,
    lines: &mut Lines,
) -> Result<Option<Format>, String> {
    let name = input.name;
    let mut format = args.format;
    let mut reader = format.and_then(|format| format.reader(args.action));
    for (number, line) in (1_u64..).zip(input.reader.lines()) {
        let at = |error: &dyn std::fmt::Display| format!("{name}, line {number}: {error}");
        let line = line.map_err(|error| at(&error))?;
        lines.lines += 1;
        if reader.is_none() && !line.trim().is_empty() {
            format = Format::of(&line);
            reader = format.and_then(|format| format.reader(args.action));
            if reader.is_none() {
                return Err(at(
                    &"no known format begins like this; --format names the format",
                ));
            }
        }
        let Some(reader) = &mut reader else {
            continue;
        };
        match reader.line(&line) {
            Ok(Line::Other) => lines.others += 1,
            Ok(Line::Request(request)) if !lines.wants(&request.of, args.only.as_deref()) => {}
            Ok(Line::Request(request)) => {
                player.play(&request).map_err(|error| at(&error))?;
            }
            Err(error) => lines.unknown(args.lenient, at(&error))?,
        }
    }
    Ok(format)
}
