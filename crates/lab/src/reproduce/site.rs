//! `reproduce --html DIR`: a page for each paper and a page of contents. Each is written as soon as
//! its paper is done.
//!
//! ```text
//! index.html   a line for each paper, and how to make the same again
//! PAPER.html   its tables, ours next to the paper's
//! PAPER.json   its document, when and how it was made, and its line of the contents
//! ```
//!
//! A run with `--resume` keeps the papers of the same [`Circumstances`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use onewrite_cli::directory;
use onewrite_cli::html::{Link, Page, Part, Section, Table};
use onewrite_cli::place::kernel_release;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::outcome::{Shown, Verdict};
use super::{Args, Measured, PaperArg};

/// Two runs of the same circumstances can continue each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Circumstances {
    commit: String,
    kernel: String,
    seed: u64,
    /// The other options, as they were given.
    options: String,
}

/// The counts of a paper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counts {
    /// Tables and figures.
    figures: usize,
    /// Their rows.
    rows: usize,
    /// Rows that are as in the paper.
    same: usize,
    /// Rows that differ, with a reason which the counts bear out.
    explained: usize,
    /// Rows that differ without one.
    unexplained: usize,
    /// Rows whose rounds allow both.
    #[serde(default)]
    undecided: usize,
    /// Figures that could not be run.
    failed: usize,
}

/// A paper that is done.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Done {
    version: u32,
    circumstances: Circumstances,
    /// The date and time of its end, in UTC.
    date: String,
    seconds: f64,
    counts: Counts,
    /// The document of `--json`.
    document: Value,
}

/// The state of a paper.
enum State {
    Missing,
    Done(Box<Done>),
    Failed(String),
}

/// See the module.
pub struct Site {
    dir: PathBuf,
    circumstances: Circumstances,
    papers: Vec<(PaperArg, State)>,
}

impl Site {
    /// Opens or makes the directory, with the papers that are done already.
    pub fn open(dir: &Path, args: &Args) -> Result<Self, String> {
        fs::create_dir_all(dir).map_err(|error| directory::cannot_write(dir, &error))?;
        directory::check(dir, "give another for the pages with --html")?;
        let circumstances = Circumstances {
            commit: commit(),
            kernel: kernel_release(),
            seed: args.seed,
            options: format!(
                "{:?} {:?} {:?} {:?} {:?} all {} {:?} quick {}",
                args.place,
                args.count,
                args.repeat,
                args.max_rounds,
                args.device,
                args.all,
                args.figures,
                args.quick
            ),
        };
        let found = PaperArg::ALL.map(|paper| (paper, read(dir, paper)));
        Ok(Self {
            dir: dir.to_owned(),
            circumstances,
            papers: found.into(),
        })
    }

    /// Whether a paper is done under the present circumstances, whole.
    pub fn has(&self, paper: PaperArg) -> bool {
        let is_it = |(one, state): &(PaperArg, State)| match state {
            State::Done(done) => {
                *one == paper && done.circumstances == self.circumstances && done.counts.failed == 0
            }
            _ => false,
        };
        self.papers.iter().any(is_it)
    }

    /// Writes a paper's page and the contents.
    pub fn add(
        &mut self,
        paper: PaperArg,
        measured: &Measured,
        time: Duration,
    ) -> Result<(), String> {
        let mut page = measured.page()?;
        let document = serde_json::from_str(&page.json).map_err(|error| error.to_string())?;
        let done = Done {
            version: 1,
            circumstances: self.circumstances.clone(),
            date: now()?,
            seconds: time.as_secs_f64(),
            counts: Counts {
                failed: measured.failed().len(),
                ..counts(measured.shown())
            },
            document,
        };
        page.lead = Some([page.lead.unwrap_or_default(), done.counts.text()].join(" "));
        page.fact("date", done.date.clone());
        page.fact("commit", done.circumstances.commit.clone());
        page.fact("took", super::spoken(time));
        page.write(&self.dir.join(format!("{}.html", paper.name())))?;
        // The document comes last: only a paper with a page is one that is done.
        let file = self.dir.join(format!("{}.json", paper.name()));
        let text = serde_json::to_string_pretty(&done).map_err(|error| error.to_string())?;
        fs::write(&file, text).map_err(|error| directory::cannot_write(&file, &error))?;
        self.set(paper, State::Done(Box::new(done)))
    }

    /// A paper that could not be run.
    pub fn failed(&mut self, paper: PaperArg, error: String) -> Result<(), String> {
        self.set(paper, State::Failed(error))
    }

    fn set(&mut self, paper: PaperArg, state: State) -> Result<(), String> {
        if let Some((_, old)) = self.papers.iter_mut().find(|(one, _)| *one == paper) {
            *old = state;
        }
        self.page()?.write(&self.contents())
    }

    /// The page of contents.
    pub fn contents(&self) -> PathBuf {
        self.dir.join("index.html")
    }

    fn page(&self) -> Result<Page, String> {
        let done: Vec<&Done> = self
            .papers
            .iter()
            .filter_map(|(_, one)| one.done())
            .collect();
        let counts: Vec<(&str, Counts)> = self
            .papers
            .iter()
            .filter_map(|(paper, state)| Some((paper.name(), state.done()?.counts)))
            .collect();
        let mut page = Page::of("Five papers, reproduced", &counts)?;
        let all = done
            .iter()
            .fold(Counts::default(), |sum, one| sum + one.counts);
        page.lead = Some(format!(
            "{} of {} papers. {}",
            done.len(),
            PaperArg::ALL.len(),
            all.text()
        ));
        for (paper, state) in &self.papers {
            match state {
                State::Missing => {
                    page.problems
                        .push(format!("{}: not run yet", paper.title()));
                }
                State::Failed(error) => page.problems.push(format!("{}: {error}", paper.title())),
                State::Done(_) => {}
            }
        }
        page.sections.push(self.papers_section());
        page.fact("commit", self.circumstances.commit.clone());
        page.fact("seed", self.circumstances.seed.to_string());
        page.fact("date", now()?);
        let seconds: f64 = done.iter().map(|one| one.seconds).sum();
        page.fact("took", super::spoken(Duration::from_secs_f64(seconds)));
        Ok(page)
    }

    fn papers_section(&self) -> Section {
        let mut table = Table::new([
            "paper",
            "figures",
            "rows",
            "same",
            "differ, explained",
            "not explained",
            "undecided",
            "not run",
            "date",
            "commit",
            "seed",
            "minutes",
        ]);
        let mut links = Vec::new();
        for (paper, state) in &self.papers {
            let Some(done) = state.done() else { continue };
            links.push(Link {
                file: format!("{}.html", paper.name()),
                title: paper.title().to_owned(),
                text: done.counts.text(),
            });
            let Counts {
                figures,
                rows,
                same,
                explained,
                unexplained,
                undecided,
                failed,
            } = done.counts;
            let counts = [
                figures,
                rows,
                same,
                explained,
                unexplained,
                undecided,
                failed,
            ];
            let rest = [
                done.date.clone(),
                done.circumstances.commit.clone(),
                done.circumstances.seed.to_string(),
                format!("{:.1}", done.seconds / 60.0),
            ];
            let counts = counts.map(|count| count.to_string());
            table
                .rows
                .push([&[paper.name().to_owned()], &counts[..], &rest[..]].concat());
        }
        let intro = "Rows are figures of a paper, ours next to the paper's. A row that differs is explained if a count \
                     of the same run predicts it.";
        Section::new(
            "Papers",
            intro,
            vec![Part::Links(links), Part::Table(table)],
        )
    }
}

impl State {
    fn done(&self) -> Option<&Done> {
        match self {
            Self::Done(done) => Some(done),
            Self::Missing | Self::Failed(_) => None,
        }
    }
}

impl Counts {
    fn text(self) -> String {
        let failed = match self.failed {
            0 => String::new(),
            failed => format!(" {failed} could not be run."),
        };
        format!(
            "{} tables and figures with {} rows: {} are as in the paper, {} differ for a reason that the counts bear \
             out, {} differ without one, {} are undecided; the others have no figure in the paper's text.{failed}",
            self.figures, self.rows, self.same, self.explained, self.unexplained, self.undecided
        )
    }
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            figures: self.figures + other.figures,
            rows: self.rows + other.rows,
            same: self.same + other.same,
            explained: self.explained + other.explained,
            unexplained: self.unexplained + other.unexplained,
            undecided: self.undecided + other.undecided,
            failed: self.failed + other.failed,
        }
    }
}

fn counts(shown: &[Shown]) -> Counts {
    let rows = || shown.iter().flat_map(|one| &one.rows);
    let count = |verdict| rows().filter(|row| row.verdict == verdict).count();
    let explained = shown.iter().flat_map(|one| &one.differences);
    let explained = explained.filter(|one| one.holds).count();
    Counts {
        figures: shown.len(),
        rows: rows().count(),
        same: count(Verdict::Same),
        explained,
        unexplained: rows()
            .filter(|row| row.differs())
            .count()
            .saturating_sub(explained),
        undecided: count(Verdict::Undecided),
        failed: 0,
    }
}

/// A paper as an earlier run left it.
fn read(dir: &Path, paper: PaperArg) -> State {
    let has_page = dir.join(format!("{}.html", paper.name())).is_file();
    let text = fs::read(dir.join(format!("{}.json", paper.name())));
    let done = text
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok());
    match done.filter(|_| has_page) {
        Some(done) => State::Done(Box::new(done)),
        None => State::Missing,
    }
}

/// The commit of the present directory, and whether the work tree has changes.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit} with changes"),
    }
}

/// The date and time in UTC.
fn now() -> Result<String, String> {
    let asked = rusqlite::Connection::open_in_memory().and_then(|connection| {
        let sql = "SELECT strftime('%Y-%m-%d %H:%M', 'now')";
        connection.query_row(sql, [], |row| row.get(0))
    });
    asked.map_err(|error| format!("the date: {error}"))
}
