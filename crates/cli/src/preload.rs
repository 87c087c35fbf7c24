//! Shared by `record` and `run`: finds the libraries, starts a program with them, and explains why
//! they do not reach a program.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

/// The preloaded library.
pub const PRELOAD: &str = "libonewrite_preload.so";

/// The extension.
pub const EXTENSION: &str = "libonewrite.so";

/// Bytes of a program's file that are searched.
const HEAD_BYTES: u64 = 64 << 20;

/// Finds a library of onewrite: where a variable says, next to this program, or in
/// `../lib/onewrite`.
pub fn library(name: &str, variable: &str) -> Result<PathBuf, String> {
    if let Some(path) = env::var_os(variable) {
        let path = PathBuf::from(path);
        return match path.is_file() {
            true => std::path::absolute(&path).map_err(|error| error.to_string()),
            false => Err(format!("{variable}: there is no file {}", path.display())),
        };
    }
    let program = env::current_exe().map_err(|error| format!("where is this program? {error}"))?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    let places = [
        directory.join(name),
        directory.join("../lib/onewrite").join(name),
        directory.join("deps").join(name),
        directory.join("..").join(name),
    ];
    let found = places.iter().find(|place| place.is_file());
    found.cloned().ok_or_else(|| {
        let looked: Vec<_> = places.iter().take(2).map(|p| p.display().to_string()).collect();
        format!(
            "{name} was not found next to this program or in ../lib/onewrite (searched: {}). Build it \
             with `cargo build --release`, or name its path in {variable}",
            looked.join(", ")
        )
    })
}

/// A command with the library preloaded, before those that the user preloads.
pub fn command(words: &[OsString], library: &Path) -> Command {
    let mut command = Command::new(words.first().map_or_else(OsString::new, Clone::clone));
    command.args(words.get(1..).unwrap_or_default());
    let mut preload = library.as_os_str().to_owned();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    command.env("LD_PRELOAD", preload);
    command
}

/// Says why a program could not be started, and exits as a shell would.
pub fn not_started(program: &OsString, error: &io::Error) -> ExitCode {
    const NOT_FOUND: u8 = 127;
    const NOT_EXECUTABLE: u8 = 126;
    eprintln!(
        "onewrite: cannot start {}: {error}",
        program.to_string_lossy()
    );
    ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    })
}

/// How a program ended, as a shell would say it.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// Why a library cannot be preloaded into a program, if that can be seen from its file.
pub fn obstacle(word: &OsString) -> Option<String> {
    let path = find(word)?;
    let name = path.display();
    let file = path.metadata().ok()?;
    // Root, too, becomes another user.
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let is_setuid = file.mode() & 0o4000 != 0 && file.uid() != user.as_raw();
    let is_setgid = file.mode() & 0o2000 != 0 && file.gid() != group.as_raw();
    if is_setuid || is_setgid {
        return Some(format!(
            "{name} is setuid or setgid: the system preloads nothing into such a program"
        ));
    }
    let mut head = Vec::new();
    File::open(&path)
        .ok()?
        .take(HEAD_BYTES)
        .read_to_end(&mut head)
        .ok()?;
    if head.starts_with(b"\x7fELF") && !is_dynamic(&head) {
        return Some(format!(
            "{name} is statically linked: nothing can be preloaded into it"
        ));
    }
    None
}

/// The likely reason why no call of SQLite was seen.
pub fn why_nothing_was_seen(word: &OsString) -> String {
    if let Some(obstacle) = obstacle(word) {
        return obstacle;
    }
    let carries = find(word).is_some_and(|path| holds(&path, b"SQLite format 3\0"));
    match carries {
        true => {
            "the program has its own SQLite, linked statically: only one that is linked \
                 dynamically (libsqlite3.so) can be reached"
                .to_owned()
        }
        false => {
            "it opened no database, or used an SQLite that is linked statically into it or into one of \
                  its libraries: only one that is linked dynamically (libsqlite3.so) can be reached"
                .to_owned()
        }
    }
}

/// Whether a program that uses SQLite has it linked into its own file: it contains SQLite, and
/// names no library for it.
pub fn carries_sqlite(program: &Path) -> bool {
    holds(program, b"SQLite format 3\0") && !holds(program, b"libsqlite3.so")
}

fn holds(program: &Path, what: &[u8]) -> bool {
    let mut head = Vec::new();
    let read = File::open(program).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    read.is_ok() && contains(&head, what)
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

/// The file of a program, as a shell finds it.
pub fn find(word: &OsString) -> Option<PathBuf> {
    let given = PathBuf::from(word);
    if given.components().count() > 1 {
        return given.is_file().then_some(given);
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|dir| dir.join(&given))
        .find(|path| path.is_file())
}

/// Whether an ELF file names a dynamic linker (a program header of the type `PT_INTERP`).
fn is_dynamic(head: &[u8]) -> bool {
    let little = head.get(5) == Some(&1);
    let number = |at: usize, length: usize| -> u64 {
        let bytes = head.get(at..at + length).unwrap_or_default();
        let fold = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match little {
            true => bytes.iter().rev().fold(0, fold),
            false => bytes.iter().fold(0, fold),
        }
    };
    let wide = head.get(4) == Some(&2);
    let (table, size, count) = match wide {
        true => (number(32, 8), number(54, 2), number(56, 2)),
        false => (number(28, 4), number(42, 2), number(44, 2)),
    };
    (0..count).any(|index| {
        let at = table.saturating_add(index * size);
        usize::try_from(at).is_ok_and(|at| at < head.len() && number(at, 4) == 3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_dynamic_and_a_text_is_no_obstacle() {
        let program = env::current_exe().expect("this program").into_os_string();
        assert_eq!(obstacle(&program), None);
        assert_eq!(obstacle(&OsString::from("/no/such/program")), None);
        let text = OsString::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        assert_eq!(obstacle(&text), None);
    }

    /// This program, whose table of segments names no dynamic linker any more.
    #[test]
    fn a_static_program_is_named() {
        let mut bytes = std::fs::read(env::current_exe().expect("this program")).expect("its file");
        bytes.truncate(1 << 16);
        let word = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let (size, count, table) = match bytes[4] {
            2 => (word(54), word(56), word(32)),
            _ => (word(42), word(44), word(28)),
        };
        for segment in (0..count).map(|index| table + index * size) {
            if bytes[segment] == 3 {
                bytes[segment] = 0;
            }
        }
        let program = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(program.path(), &bytes).expect("a program");
        let told = obstacle(&program.path().as_os_str().to_owned()).expect("an obstacle");
        assert!(told.contains("is statically linked"), "{told}");
    }

    #[test]
    fn a_library_that_is_nowhere_says_where_it_belongs() {
        let error = library("libno_such.so", "ONEWRITE_NO_SUCH").expect_err("there is none");
        assert!(
            error.contains("libno_such.so") && error.contains("ONEWRITE_NO_SUCH"),
            "{error}"
        );
    }
}
