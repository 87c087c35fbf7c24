//! `onewrite top`: which programs write to SQLite databases, how often they commit, and what that
//! costs the device.
//!
//! `engine` reads the kernel's events. `processes` finds the files that they name, `databases` reads
//! SQLite's own counts, and `ledger` keeps the accounts. `report` is the JSON document, `table` the
//! text, `page` the page, and `screen` the terminal.
//!
//! docs/top.md says which figures are counted and which are estimated.

pub(crate) mod databases;
mod engine;
mod estimate;
mod history;
mod ledger;
mod life;
mod page;
pub(crate) mod processes;
mod report;
mod screen;
mod table;
pub(crate) mod words;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use onewrite_iotrace::live::{Live, tracefs};

use crate::output::OutputArgs;
use crate::{Outcome, interrupt};
use engine::Engine;
use history::History;
use report::Report;

/// Explains the figures below the options of `top --help`.
pub const AFTER_HELP: &str = "\
Every SQLite database that is written to in this time, by program. It finds programs with any SQLite, also a \
statically linked one, and in containers: it looks at files and at the kernel's trace, not at libraries.

  commits             SQLite's own count; with ~, the number of flushes that a program waited for
  bytes               what the device gets: log or rollback journal, database, and the file system's journal
  journaling of the fs  the share of the file system's journal
  flushes             flushes of the device's cache
  flush p50, p99      how long a commit waited until it was durable
  log size            of DB-wal, DB-onewrite or DB-journal on disk
  onewrite, direct    what it would cost in these journal modes, estimated
  years               of a device, if databases alone write to it, at this rate

Bytes, flushes and times need root and a kernel with tracefs. Without root there are the commits of the \
databases that your own programs have open. Ctrl-C ends the watch and shows what was seen.

On a terminal the screen shows the last five seconds. Keys: q quits, s changes the order, / filters, Up and Down choose a line, Enter shows one database over time, Esc goes back, r writes everything that was seen into a page in the current directory.

Examples:
  sudo onewrite top
  sudo onewrite top --once
  sudo onewrite top --json --for 60s
  sudo onewrite top --for 1h --html report.html
  onewrite top --once --for 1h";

/// The time of a watch that the user does not set.
const USUAL: Duration = Duration::from_secs(10);

/// The longest watch.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// The options of `onewrite top`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Watch for this time, such as 60s, 5m or 2h [default: 10s, on the screen until you quit]
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    time: Option<Duration>,

    /// Print one table at the end, instead of the screen
    #[arg(long)]
    once: bool,

    /// How often the device may be written in full, for its years: the rated terabytes written (TBW)
    /// divided by its size, such as 600 for 600 TBW on 1 TB
    #[arg(long, value_name = "TIMES", default_value_t = life::USUAL_FULL_WRITES, value_parser = life::full_writes)]
    full_writes: f64,

    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    /// Whether the screen is shown: on a terminal, unless the user wants something else.
    fn is_live(&self) -> bool {
        let is_report = self.once || self.output.is_json() || self.output.has_page();
        !is_report && std::io::stdout().is_terminal()
    }
}

/// A time with a unit; seconds without one.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..).unwrap_or_default() {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("the unit must be s, m or h, as in 60s".to_owned()),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| "a number is expected, as in 60s".to_owned())?;
    let seconds = number * unit;
    match seconds > 0.0 && seconds <= LONGEST.as_secs_f64() {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("it must be more than 0 and at most 7 days (168h)".to_owned()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    args.output.check()?;
    interrupt::install()?;
    let (live, note) = trace();
    let mut engine = Engine::start(live)?;
    engine.notes.extend(note);
    engine.full_writes = args.full_writes;
    if args.is_live() {
        screen::show(&mut engine, args.time)?;
        return Ok(interrupt::exit_code(ExitCode::SUCCESS));
    }
    eprintln!("onewrite: watching; Ctrl-C shows what was seen");
    let mut history = args.output.has_page().then(History::default);
    watch(&mut engine, history.as_mut(), args.time.unwrap_or(USUAL))?;
    let report = Report::of(&engine);
    let page = || page::page(&report, &history.unwrap_or_default());
    args.output.show(&report, || table::render(&report), page)?;
    Ok(interrupt::exit_code(ExitCode::SUCCESS))
}

/// The kernel's trace, or a note why there is none.
fn trace() -> (Option<Live>, Option<String>) {
    if !rustix::process::geteuid().is_root() {
        let note = "without root: commits alone, of databases that your own programs have open; bytes, \
                    flushes and their times need sudo";
        return (None, Some(note.to_owned()));
    }
    match tracefs().and_then(|tracefs| Live::start(&tracefs)) {
        Ok(live) => (Some(live), None),
        Err(error) => {
            let note = format!(
                "no trace, so commits alone: {error}; a container needs the host's \
                 /sys/kernel/tracing and --pid=host"
            );
            (None, Some(note))
        }
    }
}

fn watch(
    engine: &mut Engine,
    mut history: Option<&mut History>,
    time: Duration,
) -> Result<(), String> {
    let mut remember = |engine: &Engine| history.as_mut().map(|history| history.add(engine));
    remember(engine);
    let end = Instant::now() + time;
    while !interrupt::is_requested() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(left.min(engine.pause()));
        if engine.tick()? {
            remember(engine);
        }
    }
    engine.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        for (text, seconds) in [("60s", 60.0), ("5", 5.0), ("1.5m", 90.0), ("2h", 7200.0)] {
            assert_eq!(time(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "s", "0", "-1s", "1d", "NaN", "1000h"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
