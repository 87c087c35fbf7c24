//! `onewrite inspect`, `verify`, `status`, `salvage` and `detach` on logs that a real writer left behind, or
//! still writes.

mod case;
mod command;
mod damage;
mod detach;
mod full;
mod inspect;
mod lsmvbt;
mod rights;
mod salvage;
mod status;
mod verify;
mod writer;

use command::{onewrite, without_wishes};
use onewrite_common::files::companion;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

/// Longer than any run of the command here.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs it until its end, which comes before the deadline.
fn run(mut command: Command) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let reader = std::thread::spawn(move || read_all(&mut out));
    let errors = std::thread::spawn(move || read_all(&mut err));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        if begun.elapsed() > DEADLINE {
            child.kill().expect("it can be killed");
            panic!("{command:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    Output {
        status,
        stdout: reader.join().expect("its output"),
        stderr: errors.join().expect("its errors"),
    }
}

fn read_all(from: &mut Option<impl std::io::Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.read_to_end(&mut bytes).expect("a pipe");
    }
    bytes
}

/// `inspect --json`: the document, which is the whole output, and the exit code.
fn inspect_json(file: &Path, more: &[&str]) -> (Value, i32) {
    let file = file.to_str().expect("a path in UTF-8");
    let output = run(onewrite(&[&["inspect", file, "--json"], more].concat()));
    let code = output.status.code().expect("no signal");
    let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        let (out, err) = (lossy(&output.stdout), lossy(&output.stderr));
        panic!("{file}: not one JSON document: {e}: {out:?} {err:?}")
    });
    (document, code)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A connection through SQLite's own VFS.
fn stock(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags_and_vfs(path, OpenFlags::SQLITE_OPEN_READ_WRITE, "unix")
}

fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).expect(sql)
}

/// Every file of a directory, with its content and the time of its last change.
fn snapshot(directory: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let changed = fs::metadata(&path).and_then(|file| file.modified());
            let content = fs::read(&path).expect("a file");
            (path, content, changed.expect("a time"))
        })
        .collect();
    files.sort();
    files
}

/// Makes a log one of format version 9, which is not known yet.
fn make_newer(log: &mut [u8]) {
    log[11] = 9;
    let crc = log[..124].iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            // CRC-32C (Castagnoli), reflected.
            (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    });
    log[124..128].copy_from_slice(&(!crc).to_be_bytes());
}
