//! Pages of the log that a checkpoint has moved to the database. They are found by number and
//! checksum.

use super::connection::Connection;
use crate::log::{ErrorKind, Log, LogError};
use crate::mode::Layout;
use crate::storage::Access;
use crate::wal::{FRAME_HEADER_BYTES, FrameHeader, FrameNo, WalHeader, array};

/// Recovery has read a frame, header and page. Suppose that a checkpoint which was cut short has
/// moved its page to the database. Then this puts the page back into the log, and makes `frame`
/// whole.
///
/// # Errors
/// The log or the database cannot be read, or the log cannot be written.
pub fn repair(no: FrameNo, frame: &mut [u8], of: &dyn Connection) -> Result<(), LogError> {
    let log = of.log();
    if !is_gathered(log) || of.writes() {
        return Ok(());
    }
    let (header, page) = frame.split_at_mut(FRAME_HEADER_BYTES);
    let header = FrameHeader::parse(&array(header));
    let Whereabouts::Database(found) = whereabouts(no, &header, page, of)? else {
        return Ok(());
    };
    // Recovery holds the write lock, or the database EXCLUSIVE. With a private wal-index in memory,
    // a connection may recover next to a writer. It takes what it needs, and does not change the
    // log.
    if of.holds_write_lock() || of.is_exclusive() {
        if log.file().access() == Access::ReadOnly {
            return Err(log.error(
                ErrorKind::ReadOnly,
                "a checkpoint was interrupted: recovery needs a connection that can write",
            ));
        }
        log.file()
            .write_buffered_at(&found, log.geometry().page_offset(no))?;
        of.counters().count_repair();
    }
    page.copy_from_slice(&found);
    Ok(())
}

/// A page was read from the log. A connection that cannot write the wal-index may have a private
/// one, in memory. It may still trust that after a checkpoint. So this checks whether the page is
/// the frame's, and takes it from the database if it is not.
///
/// # Errors
/// The log or the database cannot be read; the page is in neither.
pub fn check_page(no: FrameNo, page: &mut [u8], of: &dyn Connection) -> Result<(), LogError> {
    let may_be_outdated = !of.index().can_write() && !of.is_exclusive() && !of.writes();
    let log = of.log();
    if !may_be_outdated || !is_gathered(log) {
        return Ok(());
    }
    let header = log.read_gathered_header(no)?;
    match whereabouts(no, &header, page, of)? {
        Whereabouts::Log => Ok(()),
        Whereabouts::Database(found) => {
            page.copy_from_slice(&found);
            Ok(())
        }
        Whereabouts::Nowhere => {
            let what = format!("the page of frame {no} is neither in this log nor in the database");
            Err(log.error(ErrorKind::Corrupt, &what))
        }
    }
}

fn is_gathered(log: &Log) -> bool {
    log.geometry().layout() == Layout::Gathered
}

/// The location of a frame's page: in the log as read, or in the database.
fn whereabouts(
    no: FrameNo,
    header: &FrameHeader,
    page: &[u8],
    of: &dyn Connection,
) -> Result<Whereabouts, LogError> {
    let log = of.log();
    let Some(wal) = WalHeader::parse(&log.read_header()?.wal) else {
        return Ok(Whereabouts::Nowhere);
    };
    let previous = match no.0 {
        1 => wal.checksum(),
        n => log.read_gathered_header(FrameNo(n - 1))?.checksum,
    };
    if header.follows(&wal, previous, page) {
        return Ok(Whereabouts::Log);
    }
    // Page 1 is never remapped.
    if header.salts != wal.salts || header.page.0 < 2 {
        return Ok(Whereabouts::Nowhere);
    }
    let mut found = vec![0; page.len()];
    let at = u64::from(header.page.0 - 1) * page.len() as u64;
    let is_there = of.read_database(&mut found, at)?;
    Ok(match is_there && header.follows(&wal, previous, &found) {
        true => Whereabouts::Database(found),
        false => Whereabouts::Nowhere,
    })
}

/// The location of a frame's page.
enum Whereabouts {
    /// In the log, in its slot.
    Log,
    /// In the database.
    Database(Vec<u8>),
    /// In neither: the frame is not of this generation, or was never whole.
    Nowhere,
}
