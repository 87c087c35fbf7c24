//! The report for people.

use std::fmt::Write as _;

use super::report::{Log, Program, Report, State, Whose};
use crate::given::quoted;
use crate::inspect::counted;
use crate::output::on_one_line;
use crate::top::words::bytes;

const PROBLEMS_FIRST: &str = "see the problems first";

/// The report.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    let name = on_one_line(&report.file);
    let _ = writeln!(text, "{name}: {}", whose(report));
    line(&mut text, "state", &state(report));
    line(&mut text, "stock SQLite", stock(report));
    line(&mut text, "open in", &open_in(report));
    if let Some(log) = &report.log {
        line(&mut text, "log", &log_file(log));
        line(&mut text, "in the log", &content(log, report.state));
    }
    let copy = report.copy.as_deref();
    line(&mut text, "to copy it", copy.unwrap_or(PROBLEMS_FIRST));
    line(&mut text, "back to stock", &way_out(report));
    for note in &report.notes {
        let _ = writeln!(text, "note: {}", on_one_line(note));
    }
    for problem in &report.problems {
        let what = format!("{}: {}", problem.file.display(), problem.what);
        let _ = writeln!(text, "problem: {}", on_one_line(&what));
    }
    text
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "  {name:<14} {}", on_one_line(value));
}

fn whose(report: &Report) -> String {
    let mode = report.journal_mode.as_deref();
    match (report.kind, mode) {
        _ if !report.has_valid_header => {
            "it begins as a SQLite database, but its header is not that of one".to_owned()
        }
        (Whose::Stock, Some("wal")) => "a stock SQLite database in WAL mode".to_owned(),
        (Whose::Stock, _) => "a stock SQLite database in a rollback mode".to_owned(),
        (Whose::Onewrite, Some("rollback")) => {
            "a stock SQLite database in a rollback mode, with a log of onewrite next to it"
                .to_owned()
        }
        (Whose::Onewrite, Some(mode)) => format!("a database of onewrite, journal mode {mode}"),
        (Whose::Onewrite, None) => {
            "a database of onewrite; its log does not tell the journal mode".to_owned()
        }
    }
}

fn state(report: &Report) -> String {
    match report.state {
        State::Clean => "clean: closed, and complete without its log".to_owned(),
        State::InUse => "in use".to_owned(),
        State::NeedsRecovery if report.lacks_log && !report.guarded => {
            "not closed in order, and its log is empty or missing: see the note".to_owned()
        }
        State::NeedsRecovery => {
            let log = report.log.as_ref();
            let transactions = log.and_then(|log| log.transactions).unwrap_or(0);
            let by = match report.guarded {
                true => " with onewrite",
                false => "",
            };
            let what = match transactions {
                0 => "it".to_owned(),
                _ => counted(transactions, "transaction"),
            };
            format!("not closed, needs recovery: the next open{by} recovers {what}")
        }
        State::Broken => format!(
            "broken, see below; \"onewrite verify {}\" says more",
            quoted(&report.file)
        ),
    }
}

fn stock(report: &Report) -> &'static str {
    match (report.stock_sqlite_opens, report.guarded) {
        (true, _) if report.state == State::Broken => "can open it, but see the problems",
        (true, _) => "can open it",
        (false, _) if report.lacks_rights => "cannot open it as this user: see the note",
        (false, true) => "refuses it: \"file is not a database\". It is guarded for its log",
        (false, false) if report.problems.is_empty() => "refuses it: \"file is not a database\"",
        (false, false) => "refuses it: see the problems",
    }
}

fn open_in(report: &Report) -> String {
    let name = |it: &Program| format!("{} ({})", it.name, it.pid);
    let names: Vec<String> = report.programs.iter().map(name).collect();
    let is_root = rustix::process::geteuid().is_root();
    match (names.is_empty(), report.in_use) {
        (false, _) => names.join(", "),
        (true, true) => "another process, which cannot be seen from here".to_owned(),
        (true, false) if is_root => "no program".to_owned(),
        (true, false) => "no program that can be seen without root, and no locks".to_owned(),
    }
}

fn log_file(log: &Log) -> String {
    let mut text = format!("{}, {}", log.path, bytes(log.size as f64));
    if let Some(version) = log.format_version {
        let _ = write!(text, ", format version {version}");
    }
    if let Some(layout) = &log.layout {
        let _ = write!(text, ", layout {layout}");
    }
    text
}

fn content(log: &Log, state: State) -> String {
    let (Some(frames), Some(transactions)) = (log.frames, log.transactions) else {
        return "cannot be told: its header is damaged, or not known here".to_owned();
    };
    let checkpointed = match log.frames_not_checkpointed {
        None => "how many are not checkpointed is not known".to_owned(),
        Some(0) if frames == 0 => {
            return match state {
                State::Clean => "nothing: the database holds everything".to_owned(),
                _ => "nothing".to_owned(),
            };
        }
        Some(0) => "all checkpointed".to_owned(),
        Some(frames) => format!("{frames} not checkpointed"),
    };
    format!(
        "{} in {}, {}: {checkpointed}",
        counted(frames.into(), "frame"),
        counted(transactions, "transaction"),
        bytes(log.used_bytes.unwrap_or(0) as f64)
    )
}

fn way_out(report: &Report) -> String {
    match (&report.way_out, report.state) {
        (_, State::Broken) => PROBLEMS_FIRST.to_owned(),
        (None, _) => "it is stock".to_owned(),
        (Some(command), State::InUse) => format!("close it in every program, then {command}"),
        (Some(command), State::Clean) if report.lacks_rights => {
            format!("{command} makes it forget the mode")
        }
        (Some(command), State::Clean) => {
            format!("any SQLite opens it now; {command} also makes it forget the mode")
        }
        (Some(command), State::NeedsRecovery) => command.clone(),
    }
}
