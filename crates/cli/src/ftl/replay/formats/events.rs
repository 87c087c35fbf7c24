//! `onewrite trace --events`: one JSON object a line (`docs/trace.md`).

use serde::Deserialize;

use super::{Kind, Line, Request};

/// The fields that are needed.
#[derive(Deserialize)]
struct Event {
    op: String,
    address: u64,
    bytes: u64,
    mode: Option<String>,
    queued_us: Option<f64>,
    issued_us: Option<f64>,
    completed_us: Option<f64>,
    #[serde(default)]
    flush_before: bool,
    #[serde(default)]
    fua: bool,
}

pub(super) fn line(line: &str) -> Result<Line, String> {
    let event: Event = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let kind = match event.op.as_str() {
        "read" => Kind::Read,
        "write" => Kind::Write,
        "discard" | "trim" => Kind::Trim,
        "flush" => Kind::Flush,
        // A task waited for a flush, which has its own line.
        "flush_request" => return Ok(Line::Other),
        other => return Err(format!("there is no operation {other:?}")),
    };
    let us = event.queued_us.or(event.issued_us).or(event.completed_us);
    let bytes = if kind == Kind::Flush { 0 } else { event.bytes };
    Ok(Line::Request(Request {
        flush_before: event.flush_before,
        fua: event.fua,
        ..Request::new(
            (us.unwrap_or(0.0) * 1e3) as i128,
            event.mode.as_deref().unwrap_or(""),
            kind,
            event.address,
            bytes,
        )
    }))
}
