//! `onewrite-experiment reproduce`: runs what a paper's tables and figures show, and prints the paper's
//! values next to ours.
//!
//! - [`waldio`] and [`swal`] have the figures: the paper's statements, the trials for them, and the
//!   reasons why ours may differ.
//! - [`experiment`] runs trials with the code of `compare`, each once.
//! - [`crash`] crashes and recovers.
//! - [`rounds`] decides the ratios of times by paired rounds.
//! - [`outcome`] judges rows and checks reasons.
//! - [`text`] and this module print; [`page`] and [`site`] write pages; [`all`] runs all papers.
//!
//! Every number printed as ours comes from this run.

mod all;
mod crash;
mod experiment;
mod lsmvbt;
mod outcome;
mod page;
mod remapping;
mod requests;
mod rounds;
mod site;
mod swal;
mod text;
mod waldio;
mod xftl;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use onewrite_flash::latency::Latency;
use serde::Serialize;

use all::Limit;
use experiment::{Choice, Experiment, Trial};
use onewrite_cli::compare::report::Raw;
use onewrite_cli::html::Page;
use onewrite_cli::place::{self, Place, Where};
use onewrite_cli::progress::Progress;
use onewrite_cli::{Outcome, directory, interrupt, output};
use outcome::Shown;
use site::Site;

/// The explanation of the tables, below the options of `reproduce --help`.
pub const AFTER_HELP: &str = "\
Papers:
  waldio   WALDIO (USENIX ATC '15): table-1, table-2, figure-2, figure-6, figure-8, figure-11, figure-12, \
figure-13, figure-14, figure-15
  swal     S-WAL (IEEE TCE 2018): table-iii, figure-3, figure-4, figure-7, figure-8, figure-9, figure-10; its \
applications are generated to published characteristics, not recorded
  block-remapping  Block remapping at checkpoints (CF '15): figure-4, on XFS
  lsmvbt   LS-MVBT (FAST '14): slide-46, slide-48, slide-49, slide-51, slide-53, slide-56; in a build with \
--features lsmvbt
  xftl     X-FTL (SIGMOD '13): flush, space, updates, activities, controllers, android, tpcc, fio, restart, fsck; on a flash device of our own, \
in its own time (root)

The paper's values are those of its text; what only a bar or a point of a picture shows is left out. \
Ratios to the paper's own baseline stand next to each other, because its phones were other machines. A row \
that differs from the paper has a sentence that says why, with the measurement of this run that bears it \
out; a reason that is not borne out says so. Ratios of times come from paired rounds. Their interval has to \
be on the paper's side; undecided is one that allows both. Exact bytes and writes take a scratch file system (root).

Examples:
  onewrite-experiment reproduce --list
  onewrite-experiment reproduce waldio
  onewrite-experiment reproduce waldio table-1 figure-14 --device emmc
  onewrite-experiment reproduce waldio --count 200 --json
  onewrite-experiment reproduce swal --count 2000
  onewrite-experiment reproduce block-remapping --device emmc
  onewrite-experiment reproduce --all --html site/           # in a build with --features lsmvbt
  onewrite-experiment reproduce --all --html site/ --resume";

/// The options of `onewrite-experiment reproduce`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Paper to reproduce
    #[arg(value_enum, required_unless_present_any = ["list", "all"])]
    paper: Option<PaperArg>,

    /// Tables and figures of the paper to run [default: all]
    figures: Vec<String>,

    /// List what can be reproduced, and run nothing
    #[arg(long)]
    list: bool,

    /// Reproduce all five papers, one after the other
    #[arg(long, requires = "html", conflicts_with_all = ["paper", "list", "json"])]
    all: bool,

    /// Also write pages of HTML into this directory: one of the paper, and a page of contents
    #[arg(long, value_name = "DIR")]
    html: Option<PathBuf>,

    /// Keep the papers that such a run has finished, of the same commit and with the same options
    #[arg(long, requires = "all")]
    resume: bool,

    /// A few transactions of everything, once, to see that all of it runs
    #[arg(long, requires = "all")]
    quick: bool,

    /// Begin nothing more after so many minutes
    #[arg(long, value_name = "MINUTES", requires = "all", default_value_t = all::MINUTES,
          value_parser = clap::value_parser!(u32).range(0..=10_000))]
    time_limit: u32,

    #[command(flatten)]
    place: Where,

    /// Transactions of each run [default: as in the paper: 1,000, and an application's whole
    /// length]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: Option<u32>,

    /// Run every trial this many times, and show the median [default: rounds of timed figures until
    /// their ratios are decided]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: Option<u32>,

    /// Rounds of a timed figure at most
    #[arg(long, value_name = "ROUNDS", default_value_t = 20, conflicts_with = "repeat",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_rounds: u32,

    /// Seed of all values
    #[arg(long, default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    device: xftl::Device,

    /// Draw X-FTL's figures, and those that are traces, into this directory, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,

    /// Print one JSON document instead of the tables
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PaperArg {
    /// WALDIO (USENIX ATC '15)
    Waldio,
    /// S-WAL (IEEE TCE 2018)
    Swal,
    /// Block remapping (CF '15)
    BlockRemapping,
    /// X-FTL (SIGMOD '13), on a modelled flash device in its own time (root)
    Xftl,
    /// LS-MVBT (FAST '14), in a build with `--features lsmvbt`
    Lsmvbt,
}

/// A table or figure of a paper.
pub struct Figure {
    /// The name on the command line.
    name: &'static str,
    /// The paper's title for it.
    title: &'static str,
    /// The trials it needs.
    trials: fn(Choice) -> Vec<Trial>,
    /// Seconds that it takes besides its trials.
    extra_s: f64,
    /// Runs the figure.
    run: fn(&mut Experiment<'_>) -> Result<Shown, String>,
}

impl PaperArg {
    const ALL: [Self; 5] = [
        Self::Waldio,
        Self::Swal,
        Self::BlockRemapping,
        Self::Lsmvbt,
        Self::Xftl,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Waldio => "waldio",
            Self::Swal => "swal",
            Self::BlockRemapping => "block-remapping",
            Self::Xftl => "xftl",
            Self::Lsmvbt => "lsmvbt",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Waldio => {
                "WALDIO: Eliminating the Filesystem Journaling in Resolving the Journaling of Journal Anomaly \
                 (USENIX ATC '15)"
            }
            Self::Swal => {
                "S-WAL: Fast and Efficient Write-Ahead Logging for Mobile Devices (IEEE Transactions on Consumer \
                 Electronics, 2018)"
            }
            Self::BlockRemapping => {
                "Removing Duplicated Writes at DB Checkpointing with File System-Level Block Remapping (CF '15)"
            }
            Self::Xftl => "X-FTL: Transactional FTL for SQLite Databases (SIGMOD '13)",
            Self::Lsmvbt => {
                "Resolving Journaling of Journal Anomaly in Android I/O: Multi-Version B-tree with Lazy Split \
                 (FAST '14), its slides"
            }
        }
    }

    fn figures(self) -> &'static [Figure] {
        match self {
            Self::Waldio => waldio::FIGURES,
            Self::Swal => swal::FIGURES,
            Self::BlockRemapping => remapping::FIGURES,
            // `xftl::run` runs these on a device of their own.
            Self::Xftl => &[],
            Self::Lsmvbt => lsmvbt::FIGURES,
        }
    }
}

/// The document of `--json`. As in `compare`, fields are added and never renamed.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    paper: &'static str,
    title: &'static str,
    filesystem: String,
    device: Option<String>,
    device_model: Option<Latency>,
    kernel: String,
    sqlite: String,
    seed: u64,
    /// The device's rates, measured in this run.
    raw: Raw,
    figures: Vec<Shown>,
    /// Figures that could not be run.
    failed: Vec<Failed>,
    notes: Vec<String>,
}

/// A figure that could not be run, and why.
#[derive(Debug, Serialize)]
pub struct Failed {
    figure: &'static str,
    error: String,
}

/// The figures of a paper after their run.
enum Measured {
    Figures(Box<Report>),
    Xftl(Box<xftl::Report>),
}

impl Measured {
    fn shown(&self) -> &[Shown] {
        match self {
            Self::Figures(report) => &report.figures,
            Self::Xftl(report) => &report.figures,
        }
    }

    fn failed(&self) -> &[Failed] {
        match self {
            Self::Figures(report) => &report.failed,
            Self::Xftl(report) => &report.failed,
        }
    }

    fn page(&self) -> Result<Page, String> {
        match self {
            Self::Figures(report) => page::page(report),
            Self::Xftl(report) => xftl::page(report, PaperArg::Xftl.title()),
        }
    }

    fn print(&self, json: bool) -> Result<(), String> {
        match self {
            Self::Figures(report) => output::print(json, report, || text::render(report)),
            Self::Xftl(report) => output::print(json, report, || xftl::text(report)),
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    if args.list {
        print!("{}", listed(args.paper));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(dir) = &args.plots {
        directory::check(dir, "give another for the pictures with --plots")?;
    }
    if args.all {
        return all::run(args);
    }
    let Some(paper) = args.paper else {
        return Err("which paper? `onewrite-experiment reproduce --list` lists them".to_owned());
    };
    if let Err(message) = chosen(paper, &args.figures) {
        eprintln!("onewrite: {message}");
        return Ok(ExitCode::from(2));
    }
    let site = args.html.as_deref().map(|dir| Site::open(dir, args));
    let mut site = site.transpose()?;
    interrupt::install()?;
    let begun = Instant::now();
    let measured = measure(args, paper, Limit::NONE)?;
    if let Some(site) = &mut site
        && !interrupt::is_requested()
    {
        site.add(paper, &measured, begun.elapsed())?;
    }
    measured.print(args.json)?;
    Ok(interrupt::exit_code(code_of(measured.failed())))
}

/// Tells of figures that could not be run.
fn code_of(failed: &[Failed]) -> ExitCode {
    for Failed { figure, error } in failed {
        eprintln!("onewrite: {figure}: {error}");
    }
    match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Runs a paper's figures.
fn measure(args: &Args, paper: PaperArg, limit: Limit) -> Result<Measured, String> {
    if paper == PaperArg::Xftl {
        let report = xftl::measure(&xftl::Asked {
            figures: &args.figures,
            count: args.count,
            device: &args.device,
            seed: args.seed,
            plots: args.plots.as_deref(),
            limit,
        })?;
        return Ok(Measured::Xftl(Box::new(report)));
    }
    let names = chosen(paper, &args.figures)?;
    let is_chosen = |figure: &&Figure| names.contains(&figure.name);
    let figures: Vec<&'static Figure> = paper.figures().iter().filter(is_chosen).collect();
    let progress = Progress::default();
    let choice = Choice {
        count: args.count,
        seed: args.seed,
        repeats: args.repeat,
        max_rounds: args.max_rounds,
    };
    let place = match paper {
        // A file system on which blocks can change places.
        PaperArg::BlockRemapping => args.place.clone().or_scratch_xfs(),
        _ => args.place.clone(),
    };
    let place = place::choose(&place, room(&figures, choice), &progress)?;
    let wanted = Wanted {
        paper,
        figures: &figures,
        choice,
        plots: args.plots.as_deref(),
        limit,
    };
    let reproduced = reproduce(&wanted, &place, &progress);
    drop(progress);
    // Remove the place before any report, whatever happened. Show the measurements in any case.
    let removed = place.remove();
    let mut report = reproduced?;
    report.failed.extend(removed.err().map(|error| Failed {
        figure: "after all figures",
        error,
    }));
    Ok(Measured::Figures(Box::new(report)))
}

/// The named figures, in the paper's order; all if none was named.
fn chosen(paper: PaperArg, names: &[String]) -> Result<Vec<&'static str>, String> {
    if paper == PaperArg::Xftl {
        return xftl::chosen(names);
    }
    let known = || paper.figures().iter().map(|figure| figure.name);
    if let Some(name) = names.iter().find(|name| !known().any(|one| one == *name)) {
        return Err(format!(
            "{} has no \"{name}\" here; there are {}",
            paper.name(),
            known().collect::<Vec<_>>().join(", ")
        ));
    }
    let wanted = |one: &&str| names.is_empty() || names.iter().any(|name| name == one);
    Ok(known().filter(wanted).collect())
}

/// Bytes of a scratch file system for the largest trial.
fn room(figures: &[&Figure], choice: Choice) -> u64 {
    let trials = figures.iter().flat_map(|figure| (figure.trials)(choice));
    let largest = trials.map(|trial| trial.bytes()).max();
    largest.unwrap_or(0).max(place::bytes_with(64 << 20))
}

/// The figures to run, and how.
struct Wanted<'a> {
    paper: PaperArg,
    figures: &'a [&'static Figure],
    choice: Choice,
    plots: Option<&'a Path>,
    limit: Limit,
}

fn reproduce(wanted: &Wanted<'_>, place: &Place, progress: &Progress) -> Result<Report, String> {
    let Wanted {
        paper,
        figures,
        choice,
        plots,
        limit,
    } = *wanted;
    let mut experiment = Experiment::new(place, progress, choice, plots)?;
    let trials: Vec<Trial> = figures.iter().flat_map(|f| (f.trials)(choice)).collect();
    let extra: f64 = figures.iter().map(|figure| figure.extra_s).sum();
    let expected = experiment.expect(&trials, Duration::from_secs_f64(extra));
    progress.tell(&format!(
        "onewrite: {} of {}, about {}",
        counted(figures.len(), "figure"),
        paper.name(),
        spoken(expected)
    ));
    let (mut shown, mut failed, mut stopped) = (Vec::new(), Vec::new(), None);
    for (number, figure) in (1..).zip(figures) {
        progress.tell(&format!(
            "onewrite: {} ({number} of {}), about {} left",
            figure.name,
            figures.len(),
            spoken(experiment.left())
        ));
        match limit.check().and_then(|()| (figure.run)(&mut experiment)) {
            Ok(one) => shown.push(one),
            // The finished measurements are kept.
            Err(error) if interrupt::is_requested() => {
                stopped = Some(interrupt::cut_short(shown.len(), error)?);
                break;
            }
            Err(error) => failed.push(Failed {
                figure: figure.name,
                error,
            }),
        }
        experiment.done(figure.extra_s);
    }
    let mut notes = place.notes.clone();
    notes.extend(experiment.take_notes());
    notes.extend(stopped);
    Ok(Report {
        version: 1,
        paper: paper.name(),
        title: paper.title(),
        filesystem: place.file_system.clone(),
        device: place.device_name(),
        device_model: place.device_model(),
        kernel: place::kernel_release(),
        sqlite: rusqlite::version().to_owned(),
        seed: choice.seed,
        raw: experiment.raw(),
        figures: shown,
        failed,
        notes,
    })
}

/// `1 figure`, `2 figures`.
fn counted(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// A time in words.
fn spoken(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=90 => format!("{} s", seconds.max(1)),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

/// The text of `--list`.
fn listed(paper: Option<PaperArg>) -> String {
    let mut text = String::new();
    let wanted = |one: &PaperArg| paper.is_none_or(|paper| paper == *one);
    for paper in PaperArg::ALL.into_iter().filter(wanted) {
        text.push_str(&format!("{}: {}\n", paper.name(), paper.title()));
        for figure in paper.figures() {
            text.push_str(&format!("  {:10} {}\n", figure.name, figure.title));
        }
        if paper == PaperArg::Xftl {
            for (name, title) in xftl::FIGURES {
                text.push_str(&format!("  {name:10} {title}\n"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_named_once_and_run_in_the_paper_s_order() {
        for paper in PaperArg::ALL {
            let names: Vec<_> = paper.figures().iter().map(|figure| figure.name).collect();
            let mut different = names.clone();
            different.sort_unstable();
            different.dedup();
            assert_eq!(names.len(), different.len());
            if paper != PaperArg::Xftl {
                assert_eq!(chosen(paper, &[]).unwrap(), names);
            }
        }
        let two = ["figure-8".to_owned(), "table-1".to_owned()];
        let two = chosen(PaperArg::Waldio, &two).unwrap();
        assert_eq!(two, ["table-1", "figure-8"]);
        let error = chosen(PaperArg::Waldio, &["figure-99".to_owned()]);
        assert!(error.is_err_and(|error| error.contains("table-1, table-2")));
    }

    #[test]
    fn times_are_said_in_seconds_and_minutes() {
        assert_eq!(spoken(Duration::ZERO), "1 s");
        assert_eq!(spoken(Duration::from_secs(90)), "90 s");
        assert_eq!(spoken(Duration::from_secs(121)), "3 min");
    }
}
