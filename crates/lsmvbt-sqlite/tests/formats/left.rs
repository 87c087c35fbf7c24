//! A database as a version left it, packed into one file.

use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;

use super::cases::{APART, CASES, Case, SCHEMAS, UPDATES};

/// The formats that this version reads; it writes the last.
pub const FORMATS: [u32; 7] = [1, 2, 3, 4, 5, 6, 7];

/// How its last process ended.
pub const STATES: [&str; 2] = ["closed", "killed"];

/// A bound for what is unpacked.
const MAX_BYTES: usize = 16 << 20;

/// The text in front of the format's number, at the start of a file.
const MAGIC: &str = "LSMVBT format ";

pub struct Left {
    pub format: u32,
    pub case: &'static Case,
    state: &'static str,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}.{}", self.format, self.case.name, self.state)
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats")
}

/// All that are there.
pub fn all() -> Vec<Left> {
    let mut all = Vec::new();
    for format in FORMATS {
        for case in &CASES {
            let of_case = STATES.map(|state| Left {
                format,
                case,
                state,
            });
            all.extend(of_case.into_iter().filter(|left| left.packed().exists()));
        }
    }
    all
}

/// The number in a file's first bytes.
pub fn format_of(path: &Path) -> u32 {
    let bytes = fs::read(path).expect("a database");
    let magic = std::str::from_utf8(&bytes[..15]).expect("a magic");
    let number = magic.strip_prefix(MAGIC);
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{magic}"))
}

impl Left {
    fn packed(&self) -> PathBuf {
        directory().join(format!("{self}.zst"))
    }

    /// Writes the file into a directory, and returns its path.
    pub fn unpack(&self, directory: &Path) -> PathBuf {
        let packed = fs::read(self.packed()).expect("a packed database");
        let mut bytes = vec![0; MAX_BYTES];
        let size = zstd_safe::decompress(&mut bytes[..], &packed)
            .unwrap_or_else(|code| panic!("{self}: {}", zstd_safe::get_error_name(code)));
        let path = directory.join("app.db");
        fs::write(&path, &bytes[..size]).expect("a write");
        path
    }
}

/// Writes the databases before any test reads them.
pub fn write_if_asked_for() {
    static WRITTEN: Once = Once::new();
    if std::env::var_os("LSMVBT_TEST_WRITE_DATABASES").is_some() {
        WRITTEN.call_once(write_all);
    }
}

fn write_all() {
    for case in &CASES {
        for state in STATES {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("app.db");
            write(case, state, &path);
            let format = format_of(&path);
            let to = Left {
                format,
                case,
                state,
            }
            .packed();
            fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
            let mut zstd = Command::new("zstd");
            zstd.args(["-19", "--quiet", "--force", "-o"])
                .args([&to, &path]);
            let status = zstd.status().expect("the program zstd");
            assert!(status.success(), "{zstd:?}: {status}");
        }
    }
}

/// Runs the SQL in a shell, which then ends or is killed.
fn write(case: &Case, state: &str, path: &Path) {
    let own = env!("CARGO_BIN_EXE_lsmvbt-sqlite3").into();
    let writer = std::env::var_os("LSMVBT_TEST_WRITER").unwrap_or(own);
    let mut shell = Command::new(writer)
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut input = shell.stdin.take().expect("its input");
    let update = |n| format!("UPDATE t SET v = {n};\n");
    let updates: String = (1..=UPDATES).map(update).collect();
    let row = |n| format!("UPDATE t SET v = {n} WHERE a = {};\n", n * APART);
    let rows: String = (1..=UPDATES).map(row).collect();
    let schema = |n| format!("PRAGMA user_version = {n};\n");
    let schemas: String = (1..=SCHEMAS).map(schema).collect();
    let sql = case
        .sql
        .replace("@UPDATES", &updates)
        .replace("@ROWS", &rows)
        .replace("@SCHEMAS", &schemas);
    // Written at once: a pipe has room for it.
    let all = format!("PRAGMA journal_mode = lsmvbt;\n{sql}\nSELECT 'ready';\n");
    input.write_all(all.as_bytes()).expect("a write");
    input.flush().expect("a write");
    let output = BufReader::new(shell.stdout.take().expect("its output"));
    let mut lines = output.lines().map(|line| line.expect("a line"));
    assert!(lines.any(|line| line == "ready"), "{}: {state}", case.name);
    if state == "killed" {
        shell.kill().expect("a kill");
    }
    drop(input);
    let ended = shell.wait().expect("its end");
    assert_eq!(ended.success(), state == "closed", "{}: {ended}", case.name);
}
