//! `reproduce --all`: all papers, one after the other, within a time.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::site::Site;
use super::{Args, PaperArg, code_of, measure, spoken, xftl};
use onewrite_cli::{Outcome, interrupt};

/// Minutes of `--all`, less what the last trial may take of two hours.
pub const MINUTES: u32 = 110;

/// Transactions of a quick run.
const QUICK: u32 = 20;

/// Transactions of each run of X-FTL in `--all`.
const XFTL_OF_ALL: u32 = 200;

/// The time after which no trial begins.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    minutes: u32,
    at: Option<Instant>,
}

impl Limit {
    /// No limit.
    pub const NONE: Self = Self {
        minutes: 0,
        at: None,
    };

    fn from_now(minutes: u32) -> Self {
        Self {
            minutes,
            at: Some(Instant::now() + Duration::from_secs(u64::from(minutes) * 60)),
        }
    }

    /// Whether there is time for more.
    ///
    /// # Errors
    /// A text for the reader of the report.
    pub fn check(self) -> Result<(), String> {
        match self.at.is_some_and(|at| Instant::now() > at) {
            true => Err(format!("not run: {} minutes were over", self.minutes)),
            false => Ok(()),
        }
    }
}

/// All papers, each written as soon as it is done.
pub fn run(args: &Args) -> Outcome {
    if !cfg!(feature = "lsmvbt") {
        eprintln!(
            "onewrite: this program has no LS-MVBT; all papers take a build with --features lsmvbt"
        );
        return Ok(ExitCode::from(2));
    }
    let mut site = Site::open(args.html.as_deref().unwrap_or(Path::new(".")), args)?;
    interrupt::install()?;
    let limit = Limit::from_now(args.time_limit);
    let begun = Instant::now();
    let mut code = ExitCode::SUCCESS;
    let papers: Vec<PaperArg> = PaperArg::ALL
        .into_iter()
        .filter(|paper| !(args.resume && site.has(*paper)))
        .collect();
    for (done, paper) in papers.iter().enumerate() {
        let left = minutes_left(&papers, done, begun.elapsed(), args.quick);
        eprintln!(
            "onewrite: {}, paper {} of {}, about {} left in all",
            paper.name(),
            done + 1,
            papers.len(),
            spoken(left)
        );
        let (of_paper, args) = (Instant::now(), of_all(args, *paper));
        match measure(&args, *paper, limit) {
            // A paper that was cut short is not done.
            Ok(_) if interrupt::is_requested() => break,
            Ok(measured) => {
                site.add(*paper, &measured, of_paper.elapsed())?;
                if !measured.failed().is_empty() {
                    code = code_of(measured.failed());
                }
            }
            Err(error) if interrupt::is_requested() => return Err(error),
            Err(error) => {
                eprintln!("onewrite: {}: {error}", paper.name());
                site.failed(*paper, error)?;
                code = ExitCode::FAILURE;
            }
        }
    }
    eprintln!("onewrite: {}", site.contents().display());
    Ok(interrupt::exit_code(code))
}

/// A paper's options in a run of all.
fn of_all(args: &Args, paper: PaperArg) -> Args {
    let mut args = args.clone();
    if args.quick {
        args.count.get_or_insert(QUICK);
        args.repeat.get_or_insert(1);
        args.device.small();
    }
    if paper == PaperArg::Xftl {
        args.count.get_or_insert(XFTL_OF_ALL);
        args.device.without_large();
        if args.quick {
            args.figures = xftl::QUICK.map(str::to_owned).to_vec();
        }
    }
    args
}

/// The time for the papers from the `done`th on, by the pace so far.
fn minutes_left(papers: &[PaperArg], done: usize, elapsed: Duration, quick: bool) -> Duration {
    let usual =
        |papers: &[PaperArg]| -> f64 { papers.iter().map(|one| minutes(*one, quick)).sum() };
    let (before, after) = papers.split_at(done);
    let pace = match usual(before) {
        known if known > 0.0 => elapsed.as_secs_f64() / 60.0 / known,
        _ => 1.0,
    };
    Duration::from_secs_f64(usual(after) * pace * 60.0)
}

/// About how many minutes a paper takes. The pace of the papers before corrects it.
fn minutes(paper: PaperArg, quick: bool) -> f64 {
    let (whole, quick_one) = match paper {
        PaperArg::Waldio => (6.0, 0.5),
        PaperArg::Swal => (25.0, 1.0),
        PaperArg::BlockRemapping => (8.0, 0.6),
        PaperArg::Xftl => (40.0, 2.0),
        PaperArg::Lsmvbt => (2.0, 0.3),
    };
    if quick { quick_one } else { whole }
}

/// The time for the rest of `all` works of the same kind.
pub fn left_of(elapsed: Duration, done: usize, all: usize) -> Duration {
    elapsed.mul_f64(all.saturating_sub(done) as f64 / done.max(1) as f64)
}
