//! A database as a release left it, packed into one file.
//!
//! The file is a zstd frame. In it each file of the database follows a line `NAME BYTES`. So
//! preallocated zeros take no space, and unpacked files have the size that they had.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use onewrite_common::files::{COMPANIONS, companion};

use super::cases::{Case, State};

/// The database's name in every packed file.
const NAME: &str = "app.db";

/// A bound for what is unpacked.
const MAX_BYTES: usize = 64 << 20;

/// A packed database of a release.
pub struct Left {
    release: String,
    pub case: &'static Case,
    pub state: State,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.release, self.case.file(self.state))
    }
}

/// Where the databases of all releases are.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/releases")
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = names
        .map(|name| name.into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

/// Every database of every release.
pub fn all() -> Vec<Left> {
    let mut all = Vec::new();
    let releases = names(&directory())
        .into_iter()
        .filter(|name| !name.ends_with(".rs"));
    for release in releases {
        for name in names(&directory().join(&release)) {
            let left = parsed(&release, &name);
            all.push(left.unwrap_or_else(|| panic!("{release}/{name} is no case")));
        }
    }
    all
}

fn parsed(release: &str, name: &str) -> Option<Left> {
    let (case, state) = name.strip_suffix(".zst")?.split_once('.')?;
    Some(Left {
        release: release.to_owned(),
        case: Case::named(case)?,
        state: State::ALL.into_iter().find(|known| known.word() == state)?,
    })
}

impl Left {
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let packed = fs::read(directory().join(self.to_string())).expect("a packed database");
        let mut bytes = vec![0; MAX_BYTES];
        let size = zstd_safe::decompress(&mut bytes[..], &packed)
            .unwrap_or_else(|code| panic!("{self}: {}", zstd_safe::get_error_name(code)));
        let mut rest = &bytes[..size];
        let mut files = Vec::new();
        while !rest.is_empty() {
            let line = rest.iter().position(|byte| *byte == b'\n').expect("a line");
            let words = std::str::from_utf8(&rest[..line]).expect("UTF-8");
            let (name, size) = words.split_once(' ').expect("a name and a size");
            let (contents, behind) = rest[line + 1..].split_at(size.parse().expect("a size"));
            files.push((name.to_owned(), contents.to_vec()));
            rest = behind;
        }
        files
    }

    /// Writes its files into a directory. Returns the database's path.
    pub fn unpack(&self, directory: &Path) -> PathBuf {
        for (name, contents) in self.files() {
            fs::write(directory.join(name), contents).expect("a write");
        }
        directory.join(NAME)
    }

    /// The unpacked files are as they were.
    pub fn assert_is_untouched(&self, path: &Path) {
        for (name, contents) in self.files() {
            let found = fs::read(path.with_file_name(&name)).expect("a file");
            assert!(found == contents, "{name} was changed");
        }
    }
}

/// The path of the database that [`pack`] packs.
pub fn database(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

/// Packs the files of the database in `from`.
pub fn pack(from: &Path, to: &Path) {
    let path = database(from);
    let mut bytes = Vec::new();
    for suffix in [""].iter().chain(&COMPANIONS) {
        if let Ok(contents) = fs::read(companion(&path, suffix)) {
            bytes.extend(format!("{NAME}{suffix} {}\n", contents.len()).into_bytes());
            bytes.extend(contents);
        }
    }
    assert!(bytes.len() <= MAX_BYTES);
    let unpacked = from.join("unpacked");
    fs::write(&unpacked, &bytes).expect("a write");
    let mut zstd = Command::new("zstd");
    zstd.args(["-19", "--long", "--quiet", "--force", "-o"])
        .args([to, &unpacked]);
    let status = zstd.status().expect("the program zstd");
    assert!(status.success(), "{zstd:?}: {status}");
}
