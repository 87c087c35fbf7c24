//! `onewrite replay`: recorded SQL under each journal mode, compared and measured.
//!
//! `report` prints the results; `onewrite_replay` does the work.

mod page;
mod report;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use onewrite_iotrace::meter::{Mark, Meter};
use onewrite_replay::clock;
use onewrite_replay::contents::{self, Contents};
use onewrite_replay::engine::{self, Engine, Files, Options, Played, Speed, Threads};
use onewrite_replay::results::{Both, Comparison, Reference};
use onewrite_workload::mode::Mode;
use onewrite_workload::team::Control;

use crate::arguments::{Modes, SynchronousArg};
use crate::output::OutputArgs;
use crate::place::{self, Place, Where};
use crate::progress::Progress;
use crate::{Outcome, interrupt};
use report::{Checked, Database, Device, Failed, Recorded, Report, Run, Together};

/// The text below the options of `replay --help`.
pub const AFTER_HELP: &str = "\
Every mode begins with the recorded databases, and plays the same statements with the same values in the \
same order, on one thread. The replay compares rows and errors of every statement with those under the first \
mode and with the recorded ones. At the end it compares the contents of the databases. datetime('now') is the \
time at which a statement was recorded; random() gives the same numbers in every mode.

The program's PRAGMA journal_mode and busy_timeout are left out: a replay sets them. The program's PRAGMA \
synchronous counts (FULL without one), unless --synchronous or the mode sets another. docs/record-replay.md \
says more.

With --threads recorded each connection has a thread of its own. An event begins when all have returned that had \
returned before it began when recorded. So commits share a flush where the program's calls overlapped. \
Transactions that raced may have other results; they are counted apart.

The exit code is 0 if the results are the same in all modes, and the same as recorded; otherwise 1.

Examples:
  onewrite replay app.trace
  onewrite replay app.trace --modes wal,onewrite --threads recorded
  onewrite replay app.trace --modes wal,wal:synchronous=normal,waldio,onewrite --scratch xfs
  onewrite replay app.trace --dir /mnt/card --speed recorded --json";

/// Bytes of a scratch image in addition to the databases.
const IMAGE_BYTES: u64 = 512 << 20;

/// The options of `onewrite replay`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The trace that `onewrite record` or `onewrite import` has written
    trace: PathBuf,

    /// Journal modes, separated by commas, with variations as in `onewrite compare`
    #[arg(long, default_value = "delete,wal,direct,waldio,swal,onewrite")]
    modes: Modes,

    #[command(flatten)]
    place: Where,

    /// Bytes of the scratch image, in MiB [default: 512, and ten times the databases]
    #[arg(long, value_name = "MIB", conflicts_with = "dir", value_parser = clap::value_parser!(u64).range(64..=1_048_576))]
    scratch_size: Option<u64>,

    /// Play statements one after the other, or none before its recorded time
    #[arg(long, value_enum, default_value_t = SpeedArg::Full)]
    speed: SpeedArg,

    /// Play all connections on one thread, or each on its own, overlapping as recorded
    #[arg(long, value_enum, default_value_t = ThreadsArg::One)]
    threads: ThreadsArg,

    /// PRAGMA synchronous of every mode that does not set it, instead of the program's value
    #[arg(long, value_enum)]
    synchronous: Option<SynchronousArg>,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SpeedArg {
    Full,
    Recorded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ThreadsArg {
    One,
    Recorded,
}

/// Replays.
pub fn run(args: &Args) -> Outcome {
    args.output.check()?;
    interrupt::install()?;
    clock::register()?;
    let temporary = tempfile::Builder::new()
        .prefix("onewrite-replay-")
        .tempdir()
        .map_err(|error| format!("cannot make a temporary directory: {error}"))?;
    let progress = Progress::default();
    progress.say("reading the trace");
    let contents = contents::read(&args.trace, temporary.path())?;
    if contents.runs == 0 {
        return Err(format!(
            "{}: there is no statement in it",
            args.trace.display()
        ));
    }
    let mut notes = notes_of(&contents);
    let bytes = args
        .scratch_size
        .map_or(IMAGE_BYTES + 10 * contents.bytes, |mib| mib << 20);
    let bytes = bytes.next_multiple_of(1 << 20);
    let place = place::choose(&args.place, bytes, &progress)?;
    notes.extend(place.notes.iter().cloned());
    let reference = Reference::new(temporary.path())
        .map_err(|error| format!("cannot make a temporary file: {error}"))?;
    let replay = Replay {
        args,
        contents: &contents,
        place: &place,
        reference: &reference,
        progress: &progress,
    };
    let result = replay.all(notes);
    drop(progress);
    // The place is taken down before the report, even after an error. The measured figures are
    // shown anyway.
    let removed = place.remove();
    let report = result?;
    let page = || page::page(&report);
    args.output
        .show(&report, || report::render(&report), page)?;
    removed?;
    for failed in &report.failed {
        eprintln!("onewrite: {}: {}", failed.mode, failed.error);
    }
    let right = report.same_in_all_modes && report.same_as_recorded != Some(false);
    Ok(interrupt::exit_code(match right {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }))
}

/// Facts about a trace that a reader of the figures must know.
fn notes_of(contents: &Contents) -> Vec<String> {
    let mut notes = Vec::new();
    if contents.cut {
        notes
            .push("the trace ends early: its recorder was killed, or its disk was full".to_owned());
    }
    for version in &contents.versions {
        if version != rusqlite::version() {
            notes.push(format!(
                "recorded with SQLite {version}: it may plan queries in another way, and sum() was less exact before 3.43"
            ));
        }
    }
    if contents.masked {
        notes.push("the trace is masked: only result codes and numbers of rows are compared with the recording".to_owned());
    }
    let mut taught: Vec<_> = contents.taught.keys().cloned().collect();
    taught.sort_unstable();
    if !taught.is_empty() {
        let shown = taught
            .iter()
            .take(6)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        notes.push(format!(
            "the program added {} functions, collations or modules to SQLite that a replay does not have; \
             statements that use them fail here: {shown}{}",
            taught.len(),
            if taught.len() > 6 { ", ..." } else { "" }
        ));
    }
    if contents.shapes_files {
        notes.push(
            "the program chooses a page size, an encoding or auto_vacuum: logs are made and \
             preallocated within the run, which counts that work"
                .to_owned(),
        );
    }
    for (name, count) in &contents.unrecorded {
        notes.push(format!(
            "{name} was used ({count} times) and is not in the trace"
        ));
    }
    notes
}

/// The digests of the databases of a run, for comparing later runs with them.
type Digests = HashMap<Vec<u8>, Result<u64, String>>;

struct Replay<'a> {
    args: &'a Args,
    contents: &'a Contents,
    place: &'a Place,
    reference: &'a Reference,
    progress: &'a Progress,
}

impl Replay<'_> {
    fn all(&self, notes: Vec<String>) -> Result<Report, String> {
        let (mut runs, mut failed, mut notes) = (Vec::new(), Vec::new(), notes);
        let mut first: Option<Digests> = None;
        let modes = &self.args.modes.0;
        self.progress.expect(modes.len() as u32);
        for mode in modes {
            self.progress.next_run();
            match self.one(mode, &mut first, &mut notes) {
                Ok(run) => runs.push(run),
                // A stopped replay keeps its finished runs.
                Err(error) if interrupt::is_requested() => {
                    notes.push(interrupt::cut_short(runs.len(), error)?);
                    break;
                }
                Err(error) => failed.push(Failed {
                    mode: mode.spec().to_owned(),
                    error,
                }),
            }
        }
        notes.dedup();
        let same = failed.is_empty() && runs.iter().all(|run: &Run| run.checked.is_same_as_first());
        let as_recorded: Vec<bool> = runs
            .iter()
            .filter_map(|run| run.checked.is_same_as_recorded())
            .collect();
        Ok(Report {
            version: 1,
            trace: self.args.trace.display().to_string(),
            recorded: self.recorded(),
            threads: match self.args.threads {
                ThreadsArg::One => "one".to_owned(),
                ThreadsArg::Recorded => "recorded".to_owned(),
            },
            filesystem: self.place.file_system.clone(),
            sqlite: rusqlite::version().to_owned(),
            same_in_all_modes: same,
            same_as_recorded: (!as_recorded.is_empty())
                .then(|| as_recorded.into_iter().all(|same| same)),
            runs,
            failed,
            notes,
        })
    }

    fn recorded(&self) -> Recorded {
        let contents = self.contents;
        let databases: std::collections::HashSet<_> =
            contents.beginnings.iter().map(|one| &one.path).collect();
        Recorded {
            masked: contents.masked,
            cut: contents.cut,
            statements: contents.runs,
            connections: contents.connections,
            processes: contents.processes,
            databases: databases.len(),
            elapsed_s: contents
                .span
                .filter(|(first, last)| last > first)
                .map(|(first, last)| (last - first) as f64 / 1e9),
        }
    }

    /// One mode, in its own directory.
    fn one(
        &self,
        mode: &Mode,
        first: &mut Option<Digests>,
        notes: &mut Vec<String>,
    ) -> Result<Run, String> {
        let dir = self.place.root().join("replay");
        fs::create_dir(&dir)
            .map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
        let result = self.in_directory(&dir, mode, first, notes);
        fs::remove_dir_all(&dir)
            .map_err(|error| format!("cannot remove {}: {error}", dir.display()))?;
        result
    }

    fn in_directory(
        &self,
        dir: &Path,
        mode: &Mode,
        first: &mut Option<Digests>,
        notes: &mut Vec<String>,
    ) -> Result<Run, String> {
        let control = Control::default();
        let options = Options {
            mode,
            synchronous: self.args.synchronous.map(Into::into),
            dir,
            speed: match self.args.speed {
                SpeedArg::Full => Speed::Full,
                SpeedArg::Recorded => Speed::Recorded,
            },
            threads: match self.args.threads {
                ThreadsArg::One => Threads::One,
                ThreadsArg::Recorded => Threads::Recorded,
            },
            stop: interrupt::requested(),
            done: &control.done,
        };
        let meter = self
            .place
            .meter(&dir.join(onewrite_replay::engine::FIRST))?;
        let comparison = Comparison::new(
            self.reference,
            first.is_none(),
            onewrite_replay::results::Recorded {
                is_same_version: self
                    .contents
                    .versions
                    .iter()
                    .all(|v| v == rusqlite::version()),
                is_masked: self.contents.masked,
            },
        );
        let engine = Engine::new(options, self.contents, comparison)?;
        let from = settle(meter.as_ref())?;
        self.progress.say(mode.spec());
        let play = || self.play(engine);
        let (played, comparison, files) =
            self.progress.during(self.contents.events, &control, play)?;
        let returned = mark(meter.as_ref())?;
        let settled = settle(meter.as_ref())?;
        self.progress.say(&format!("{mode}: comparing"));
        let figures =
            meter
                .zip(from.zip(returned).zip(settled))
                .map(|(meter, ((from, to), end))| {
                    let (figures, told) = meter.finish(&[(from, to), (to, end)]);
                    notes.extend(told);
                    figures
                });
        let raced = comparison.differ_after_race.clone();
        let checked = self.check(&played, comparison, &files, first);
        Ok(describe(mode, played, figures, checked, raced))
    }

    /// Plays the trace from its beginning to its end.
    fn play<'e>(&self, engine: Engine<'e>) -> Result<engine::Outcome<'e>, String> {
        let mut reader = contents::open(&self.args.trace)?;
        engine.play(&mut || {
            reader
                .next_event()
                .map_err(|error| format!("{}: {error}", self.args.trace.display()))
        })
    }

    fn check(
        &self,
        played: &Played,
        comparison: Comparison<'_>,
        files: &Files<'_>,
        first: &mut Option<Digests>,
    ) -> Checked {
        let found: Digests = files.digests().into_iter().collect();
        let contents = first.get_or_insert_with(|| found.clone());
        let mut databases: Vec<_> = found
            .iter()
            .map(|(path, content)| {
                let recorded = match self.contents.finals.get(path) {
                    Some(Ok(digest)) => Some(Ok(*digest) == *content),
                    _ => None,
                };
                Database {
                    path: String::from_utf8_lossy(path).into_owned(),
                    content: match content {
                        Ok(digest) => format!("{digest:016x}"),
                        Err(why) => why.clone(),
                    },
                    same_as_recorded: recorded,
                    same_as_first_mode: content.is_ok() && contents.get(path) == Some(content),
                }
            })
            .collect();
        databases.sort_by(|a, b| a.path.cmp(&b.path));
        Checked {
            compared_with_recorded: comparison.compared,
            differ_from_recorded: comparison.differ.from_recorded.into(),
            differ_from_first_mode: comparison.differ.from_first.into(),
            databases,
            waited: played.waited,
            refused_when_recorded: played.refused_when_recorded,
            replaced: played.replaced,
            stuck: played.stuck.clone(),
        }
    }
}

fn settle(meter: Option<&Meter>) -> Result<Option<Mark>, String> {
    meter
        .map(Meter::settle)
        .transpose()
        .map_err(|error| error.to_string())
}

fn mark(meter: Option<&Meter>) -> Result<Option<Mark>, String> {
    meter
        .map(Meter::mark)
        .transpose()
        .map_err(|error| error.to_string())
}

fn describe(
    mode: &Mode,
    played: Played,
    figures: Option<Vec<onewrite_iotrace::meter::Figures>>,
    checked: Checked,
    raced: Both,
) -> Run {
    let elapsed_s = played.elapsed.as_secs_f64();
    let per_s = |number: u64| number as f64 / elapsed_s.max(1e-9);
    let device = figures.as_deref().and_then(|figures| match figures {
        [run, after] => Some(Device::of(run, after)),
        _ => None,
    });
    let together = played
        .together
        .map(|together| Together::new(together, raced));
    Run {
        mode: mode.spec().to_owned(),
        elapsed_s,
        statements: played.statements,
        statements_per_s: per_s(played.statements),
        commits: played.commits,
        commits_per_s: per_s(played.commits),
        commit_latency_us: played.latencies.percentiles(),
        device,
        by_file: figures
            .as_deref()
            .and_then(|f| f.first())
            .and_then(|run| run.by_file),
        per_commit: device.map(|device| device.per_commit(played.commits)),
        together,
        checked,
    }
}
