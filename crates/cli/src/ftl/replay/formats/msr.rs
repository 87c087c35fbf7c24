//! MSR Cambridge traces: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! Narayanan et al., "Write Off-Loading", FAST 2008. Times are those of Windows' files: 100 ns since
//! 1601. Offset and size are in bytes. The response time of the traced disk is not needed.

use super::{Kind, Line, Request, number};

const TICK_NS: i128 = 100;

/// Whether this may be a trace's first line.
pub(super) fn is_first(line: &str) -> bool {
    is_header(line) || fields(line).is_ok_and(|[time, ..]| time.parse::<u64>().is_ok())
}

fn is_header(line: &str) -> bool {
    line.to_ascii_lowercase().starts_with("timestamp,hostname,")
}

fn fields(line: &str) -> Result<[&str; 7], String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let found = fields.len();
    fields
        .try_into()
        .map_err(|_| format!("it has {found} and not 7 fields"))
}

pub(super) fn line(line: &str) -> Result<Line, String> {
    if is_header(line) {
        return Ok(Line::Other);
    }
    let [time, host, disk, kind, offset, size, _] = fields(line)?;
    let kind = match kind.to_ascii_lowercase().as_str() {
        "read" => Kind::Read,
        "write" => Kind::Write,
        _ => return Err(format!("there is no Type {kind:?}")),
    };
    let ticks: u64 = number("Timestamp", time)?;
    Ok(Line::Request(Request::new(
        i128::from(ticks) * TICK_NS,
        &format!("{host}_{disk}"),
        kind,
        number("Offset", offset)?,
        number("Size", size)?,
    )))
}
