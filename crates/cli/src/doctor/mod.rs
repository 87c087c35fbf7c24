//! `onewrite doctor DIR`: the cost of durable commits at one place, and its reasons.
//!
//! `facts` has what the file system and the device report, `trial` what they do when measured.
//! `advice` draws the consequences for each journal mode. `hazards` lists settings that lose commits,
//! also for `scan`. `text` renders the report for people, and
//! `--json` prints the same as one document. Nothing stays in DIR.

mod advice;
pub(crate) mod disk;
mod facts;
pub(crate) mod hazards;
mod text;
mod trial;

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use onewrite::storage::{Capabilities, StorageError};
use serde::Serialize;

use crate::{Outcome, interrupt, output};
use advice::{ModeAdvice, Recommendation};
use facts::Facts;
use trial::Rates;

/// Examples below the options of `doctor --help`.
pub const AFTER_HELP: &str = "\
DIR is where the database is or will be. The command makes a temporary directory of some 20 MiB \
in it, measures four patterns of writing for a few seconds, and removes that directory.

Examples:
  onewrite doctor .
  onewrite doctor /mnt/card --json";

/// Version of the JSON document.
const VERSION: u32 = 1;

/// The options of `onewrite doctor`.
#[derive(clap::Args, Debug)]
pub struct DoctorArgs {
    /// Directory to measure
    dir: PathBuf,

    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// Everything that was found, as the JSON document.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    /// The directory, without symbolic links.
    directory: String,
    /// Release of the kernel.
    kernel: String,
    #[serde(flatten)]
    facts: Facts,
    raw: Rates,
    modes: Vec<ModeAdvice>,
    warnings: Vec<String>,
    recommendation: Recommendation,
}

/// Runs the command. The error is a text for people.
pub fn run(args: &DoctorArgs) -> Outcome {
    let dir = directory(&args.dir)?;
    interrupt::install()?;
    let report = examine(&dir)?;
    output::print(args.json, &report, || text::render(&report))?;
    Ok(ExitCode::SUCCESS)
}

/// Looks at the directory and measures there. `dir` has no symbolic links in it.
fn examine(dir: &Path) -> Result<Report, String> {
    let found = Capabilities::of_dir(dir).map_err(|error| explain(dir, &error))?;
    let facts = Facts::of(&found);
    let raw = trial::measure(dir, &found)?;
    Ok(Report {
        version: VERSION,
        directory: dir.display().to_string(),
        kernel: crate::place::kernel_release(),
        modes: advice::modes(&facts, &raw),
        warnings: advice::warnings(&facts),
        recommendation: advice::recommend(&facts, &raw),
        facts,
        raw,
    })
}

/// The directory itself, or an error where it is not one.
fn directory(dir: &Path) -> Result<PathBuf, String> {
    let name = dir.display();
    let path = dir.canonicalize().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            format!("there is no directory {name}: give the one where the database is or will be")
        }
        _ => format!("cannot read {name}: {error}"),
    })?;
    if path.is_dir() {
        return Ok(path);
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    Err(format!(
        "{name} is a file, not a directory: try onewrite doctor {}",
        parent.display()
    ))
}

/// The probe's error in words that fit a directory.
fn explain(dir: &Path, error: &StorageError) -> String {
    let name = dir.display();
    match error.kind() {
        ErrorKind::ReadOnlyFilesystem => {
            let mount_point = File::open(dir)
                .ok()
                .and_then(|file| Capabilities::of_file(&file, dir).ok())
                .and_then(|found| found.mount_point);
            let remount = mount_point.map_or_else(String::new, |point| {
                format!(", for example with mount -o remount,rw {}", point.display())
            });
            format!(
                "{name} is on a file system that is mounted read-only: a database there can be \
                 read but not written, and nothing can be measured. Mount it writable{remount}"
            )
        }
        ErrorKind::PermissionDenied => format!(
            "no permission to create a file in {name}: SQLite needs one for the log, and doctor \
             for its measurements. Run it as the user of the database, or give another directory"
        ),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            format!("{name} has no space left, so nothing can be measured there: make room first")
        }
        // The directory exists: the missing file is the one to be made (/proc, /sys).
        ErrorKind::NotFound => format!("{name} takes no files: a database cannot be there"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_directory_is_refused_with_the_way_out() {
        let temporary = tempfile::tempdir().unwrap();
        let missing = directory(&temporary.path().join("none")).unwrap_err();
        assert!(missing.contains("there is no directory") && missing.contains("none"));
        let file = temporary.path().join("app.db");
        std::fs::write(&file, b"").unwrap();
        let error = directory(&file).unwrap_err();
        let parent = temporary.path().canonicalize().unwrap();
        assert!(
            error.ends_with(&format!("onewrite doctor {}", parent.display())),
            "{error}"
        );
    }

    #[test]
    fn the_json_document_has_what_it_promises_and_nothing_stays_behind() {
        let temporary = tempfile::tempdir_in(".").unwrap();
        let dir = temporary.path().canonicalize().unwrap();
        let has_direct_io = Capabilities::of_dir(&dir).unwrap().direct.is_ok();
        let report = examine(&dir).unwrap();
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["version"], 1);
        assert_eq!(json["direct_io"]["available"], has_direct_io);
        assert_eq!(
            json["raw"]["direct_dsync_4k_per_s"].is_number(),
            has_direct_io
        );
        assert_eq!(
            json["raw"]["durable"]["write_through_us"].is_number(),
            json["raw"]["durable"]["auto"].is_string()
        );
        assert!(json["raw"]["append_fdatasync_per_s"].as_f64().unwrap() > 0.0);
        let modes: Vec<_> = report.modes.iter().map(|m| m.mode).collect();
        assert_eq!(modes, ["wal", "direct", "waldio", "swal", "onewrite"]);
        assert!(
            modes.contains(&report.recommendation.mode) || report.recommendation.mode == "delete"
        );
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    }
}
