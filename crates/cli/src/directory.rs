//! Directories that users name to work in: an error says what is wrong and what to do.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use onewrite_record::file::MAGIC;

/// Makes sure that files can be made in `dir`, where a command is about to work. `way_out` says how
/// the user names another directory.
pub fn check(dir: &Path, way_out: &str) -> Result<(), String> {
    let made = tempfile::Builder::new().prefix("onewrite-").tempdir_in(dir);
    match made {
        Ok(_) => Ok(()),
        Err(error) => {
            let (name, why) = (dir.display(), why_not(&error));
            Err(format!("cannot work in {name}: {why}; {way_out}"))
        }
    }
}

/// A file of the user's that could not be written, and why, in words.
pub fn cannot_write(file: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {}", file.display(), why_not(error))
}

/// Makes sure that a trace may be written to `path`: there is no file, an empty one, or a trace. Whoever
/// names a database by mistake would lose it.
pub fn check_is_trace(path: &Path) -> Result<(), String> {
    if !fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0) {
        // Opening it says what is wrong, if anything is.
        return Ok(());
    }
    let mut first = [0; MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    match read {
        Ok(()) if first == *MAGIC => Ok(()),
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(cannot_write(path, &error)),
        _ => Err(format!(
            "{} is no trace, and is not overwritten: give another name with -o, or remove it first",
            path.display()
        )),
    }
}

/// Removes a report or trace that was not written to its end. A path that is no file stays, for
/// example a terminal.
pub fn remove_half_written(path: &Path) {
    if path.symlink_metadata().is_ok_and(|found| found.is_file()) {
        // Report the error that led here, not this one.
        let _ = std::fs::remove_file(path);
    }
}

fn why_not(error: &io::Error) -> String {
    let why = match error.kind() {
        ErrorKind::NotFound => "there is no such directory",
        ErrorKind::NotADirectory => "it is a file, not a directory",
        ErrorKind::PermissionDenied => "no permission to create files there",
        ErrorKind::ReadOnlyFilesystem => "its file system is mounted read-only",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "no space is left there",
        // Not the name that was tried: the user does not know it.
        kind => return kind.to_string(),
    };
    why.to_owned()
}

/// An error of work in `dir`. A full disk is reported for the directory: the file in the error is
/// temporary, and gone by now.
pub fn explain(dir: &Path, error: &(dyn Error + 'static)) -> String {
    match is_full(error) {
        true => format!(
            "{} has too little space left: make room, or choose another directory",
            dir.display()
        ),
        false => error.to_string(),
    }
}

fn is_full(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if let Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) = kind {
            return true;
        }
        next = error.source();
    }
    false
}
