//! Input of the command: databases and logs, for `inspect`, `verify` and `salvage`.

use std::fs;
use std::path::PathBuf;

use onewrite::wal::PageSize;
use onewrite::{DATABASE_HEADER_BYTES, guarded_by};
use onewrite_cli::inspect::DatabaseHeader;
use onewrite_cli::{inspect, salvage, verify};

use crate::bytes::Bytes;
use crate::change::{change, mend_header, mend_log, mend_stock_log, overwrite};
use crate::pair::{self, Files};

/// Changed files, and the one that the user names.
struct Named {
    directory: tempfile::TempDir,
    /// The database.
    path: PathBuf,
    /// The file to examine.
    file: PathBuf,
    /// A choice for the target to make.
    choice: u8,
}

fn named(data: &[u8]) -> Named {
    let mut input = Bytes::new(data);
    let bases = pair::bases();
    let base = &bases[input.below(bases.len())];
    let mut files = Files::of(base);
    let which = input.byte();
    for _ in 0..16 {
        let kind = input.byte();
        match kind {
            _ if input.is_empty() => break,
            0..80 => change(&mut files.database, &[16, 72, 92], &mut input),
            80..160 => change(&mut files.log, &base.places, &mut input),
            160..200 => change(&mut files.wal, &base.places, &mut input),
            200..220 => mend_header(&mut files.log),
            220..230 => mend_log(&mut files.log, kind.is_multiple_of(2)),
            230..240 => mend_stock_log(&mut files.wal, kind.is_multiple_of(2)),
            _ => files.log = bases[input.below(bases.len())].log.clone(),
        }
    }
    let directory = pair::directory();
    let path = files.write(directory.path());
    let suffix = ["", "-onewrite", "-wal", "-other"][usize::from(which % 4)];
    let file = pair::companion(&path, suffix);
    if suffix == "-other" {
        fs::write(&file, input.rest()).expect("a file");
    }
    Named {
        directory,
        path,
        file,
        choice: which / 4,
    }
}

fn assert_json(document: &[u8]) {
    let document = serde_json::from_slice::<serde_json::Value>(document);
    assert!(document.is_ok(), "no JSON document: {document:?}");
}

/// `onewrite inspect` of a database and the logs next to it, or of one of them.
pub fn inspect(data: &[u8]) {
    let Named {
        file,
        choice,
        directory,
        ..
    } = named(data);
    let wanted = [0, 3, u32::MAX][usize::from(choice % 3)];
    let mut shown = Vec::new();
    match inspect::describe(&file, wanted, &mut shown) {
        Ok(_) => assert_json(&shown),
        Err(e) => assert!(!file.exists() || is_of_lsmvbt(&e), "{e}"),
    }
    drop(directory);
}

/// The commands leave such a file to the SQLite with that engine.
fn is_of_lsmvbt(error: &std::io::Error) -> bool {
    error.to_string().contains("a database of LS-MVBT")
}

/// `onewrite verify` of the same.
pub fn verify(data: &[u8]) {
    let named = named(data);
    if named.choice.is_multiple_of(3) {
        let aside = pair::companion(&named.path, "-onewrite-orphan-0123456789abcdef");
        let _ = fs::copy(pair::companion(&named.path, "-onewrite"), aside);
    }
    let mut shown = Vec::new();
    match verify::describe(&named.file, named.choice.is_multiple_of(2), &mut shown) {
        Ok(_) => assert_json(&shown),
        Err(e) => assert!(!named.file.exists() || is_of_lsmvbt(&e), "{e}"),
    }
    drop(named.directory);
}

/// `onewrite salvage` of the same. Its input stays unchanged, and SQLite opens its output.
pub fn salvage(data: &[u8]) {
    let named = named(data);
    let before = Files::read(&named.path);
    let log = pair::companion(&named.path, "-onewrite");
    let log = (named.choice.is_multiple_of(2) && log.exists()).then_some(log);
    let output = named.directory.path().join("saved");
    let made = salvage::salvage(&named.file, log.as_deref(), &output);
    assert_eq!(made.is_ok(), output.exists(), "{:?}", made.err());
    assert_eq!(Files::read(&named.path), before, "it reads only");
    let partial = pair::companion(&output, "-onewrite-partial");
    assert!(!partial.exists(), "nothing half made is left");
    if let Ok(report) = made {
        assert_json(&serde_json::to_vec(&report).expect("a document"));
        let saved = pair::connect(&output, "unix", rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY);
        let schema = saved.and_then(|saved| {
            saved.query_row("SELECT count(*) FROM sqlite_schema", [], |row| {
                row.get::<_, i64>(0)
            })
        });
        assert!(schema.is_ok(), "{schema:?}");
    }
}

/// The header of a database, guarded or not.
pub fn database(data: &[u8]) {
    let mut file = data.to_vec();
    if file.pop().is_some_and(|last| last & 1 == 1) {
        overwrite(&mut file, 0, b"SQLite format 3\0");
    }
    let guard = guarded_by(&file);
    if file.len() < DATABASE_HEADER_BYTES {
        assert!(guard.is_none());
    }
    if let Some(header) = DatabaseHeader::parse(&file) {
        assert_eq!(header.guard, guard);
        let size = PageSize::from_database_header([file[16], file[17]]);
        assert_eq!(header.page_size, size);
        assert!(size.is_none_or(|size| size.bytes().is_power_of_two()));
        assert_eq!(header.guard.is_some(), header.read_version == 0xa1);
    }
}
