//! The report as exactly one JSON document.

use std::io::{self, Write};

use super::report::Report;

/// Writes the document and a newline.
pub fn write(report: &mut Report, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report).map_err(io::Error::from)?;
    writeln!(out)?;
    let logs = [&report.log, &report.wal].into_iter().flatten();
    let listings = logs.filter_map(|log| log.frames.as_ref());
    match listings
        .filter_map(|frames| frames.frames.take_error())
        .next()
    {
        Some(e) => {
            out.flush()?;
            Err(e)
        }
        None => Ok(()),
    }
}
