//! The histories of all workers as one, in the order of time, as Jepsen writes them.
//!
//! An acknowledgement after the power was gone is void: it becomes `:info`.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use super::check::history_files;
use super::cuts::Cuts;

/// Writes the history of the runs in `directory` to `target`.
pub fn merge(directory: &Path, target: &Path) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let cuts = Cuts::read(directory)?;
    let mut lines = Vec::new();
    for path in history_files(directory)? {
        let bytes = fs::read(&path).map_err(text)?;
        for line in String::from_utf8_lossy(&bytes).lines() {
            // A line that a kill has cut has no time.
            if let Some(time) = time(line) {
                lines.push((time, line.to_owned()));
            }
        }
    }
    // The lines of a process are in order already, and stay so.
    lines.sort_by_key(|(time, _)| *time);
    let mut file = BufWriter::new(File::create(target).map_err(text)?);
    for (time, line) in lines {
        let line = match cuts.void(time) {
            true => line.replacen(":type :ok", ":type :info", 1),
            false => line,
        };
        writeln!(file, "{line}").map_err(text)?;
    }
    file.flush().map_err(text)
}

fn time(line: &str) -> Option<u64> {
    if !line.ends_with('}') {
        return None;
    }
    let (_, rest) = line.split_once(":time ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[..digits].parse().ok()
}
