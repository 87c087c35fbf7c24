//! `--events`: one line for each I/O, a JSON object. docs/trace.md describes the fields.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use onewrite_iotrace::device::SECTOR_BYTES;
use onewrite_iotrace::io::{Io, Owner, Piece};
use serde::Serialize;

use super::Traced;

/// An I/O. Times are in microseconds from the beginning of the trace.
#[derive(Serialize)]
struct Line<'a> {
    /// The mode of the run, with several runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'a str>,
    op: &'static str,
    queued_us: Option<f64>,
    issued_us: Option<f64>,
    completed_us: f64,
    address: u64,
    bytes: u64,
    flush_before: bool,
    fua: bool,
    sync: bool,
    metadata: bool,
    error: i32,
    parts: Vec<Part<'a>>,
}

/// The bytes of an I/O that have one owner and that one thread requested.
#[derive(Serialize)]
struct Part<'a> {
    bytes: u64,
    kind: Option<&'static str>,
    file: Option<&'a str>,
    process: Option<&'a str>,
    pid: Option<u32>,
    tid: Option<u32>,
}

/// Writes the I/Os of all traces to a file.
pub fn write(path: &Path, traced: &[Traced]) -> Result<(), String> {
    let failed = |error: std::io::Error| crate::directory::cannot_write(path, &error);
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    for traced in traced {
        for io in traced.recording.between(&traced.from, &traced.to) {
            let line = serde_json::to_string(&Line::of(traced, io));
            let line = line.map_err(|error| failed(error.into()))?;
            writeln!(file, "{line}").map_err(failed)?;
        }
    }
    file.flush().map_err(failed)
}

impl<'a> Line<'a> {
    fn of(traced: &'a Traced, io: &Io) -> Self {
        // An I/O before the beginning has a negative time.
        let us = |at: u64| (at as f64 - traced.from.at_ns as f64) / 1e3;
        Self {
            mode: traced.mode.as_deref(),
            op: io.op.key(),
            queued_us: io.queued_ns.map(us),
            issued_us: io.issued_ns.map(us),
            completed_us: us(io.completed_ns),
            address: io.sector * SECTOR_BYTES,
            bytes: io.bytes(),
            flush_before: io.asked.flush_before,
            fua: io.asked.fua,
            sync: io.asked.sync,
            metadata: io.asked.metadata,
            error: io.error,
            parts: io
                .pieces
                .iter()
                .map(|piece| Part::of(traced, piece))
                .collect(),
        }
    }
}

impl<'a> Part<'a> {
    fn of(traced: &'a Traced, piece: &Piece) -> Self {
        let recording = &traced.recording;
        let task = piece
            .task
            .and_then(|task| recording.tasks.get(task.0 as usize));
        Self {
            bytes: piece.sectors * SECTOR_BYTES,
            kind: (piece.sectors > 0).then(|| recording.kind(piece).key()),
            file: match piece.owner {
                Owner::File(file) => Some(traced.path(file)),
                _ => None,
            },
            process: task.map(|task| task.name.as_str()),
            pid: task.and_then(|task| task.pid),
            tid: task.map(|task| task.tid),
        }
    }
}
