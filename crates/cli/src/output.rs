//! Prints a command's report: a table for people, or with `--json` one document. With `--html` it
//! also writes a page.
//!
//! Called by every command that measures. A reader that goes away early (`| head`) is no error. A
//! standard output that cannot be written to, as on a full disk, is one, and is reported.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::html::{HtmlArgs, Page};

/// The form of a report.
#[derive(clap::Args, Clone, Debug)]
pub struct OutputArgs {
    /// Print one JSON document instead of the table
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    html: HtmlArgs,
}

impl OutputArgs {
    /// Whether standard output is for one document alone.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether a page is written.
    pub fn has_page(&self) -> bool {
        self.html.html.is_some()
    }

    /// Refuses a page that could not be written, before the work begins: its report would be lost.
    pub fn check(&self) -> Result<(), String> {
        self.html.check()
    }

    /// Prints the report and writes its page.
    pub fn show(
        &self,
        report: &impl Serialize,
        table: impl FnOnce() -> String,
        page: impl FnOnce() -> Result<Page, String>,
    ) -> Result<(), String> {
        // The page first: a reader of the table may stop this process from the pager.
        self.html.write(page)?;
        print(self.json, report, table)
    }
}

/// Prints a report as a table, or as a document.
pub fn print(
    json: bool,
    report: &impl Serialize,
    table: impl FnOnce() -> String,
) -> Result<(), String> {
    if !json {
        return text(&table());
    }
    let document = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    text(&format!("{document}\n"))
}

/// Prints a text as it is.
pub fn text(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// A text for a terminal on one line. A file's name may hold characters that control the terminal:
/// they are shown as escapes.
pub fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

/// A path in a document. JSON is UTF-8, a file's name is any bytes: those that do not fit are replaced.
pub fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// The same for a path that may be missing.
pub fn lossy_option<S: Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => lossy(path, serializer),
        None => serializer.serialize_none(),
    }
}
