//! What the trace says, apart from how each kernel and file system says it.

use std::ops::Range;

use crate::Error;
use crate::format::{Field, Format};
use crate::tracefs::Instance;

/// Something that bears on who wrote what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The device completed a write of these sectors.
    Written(Range<u64>),
    /// The file system gave these sectors to a file or directory, or looked up that it has them.
    Mapped { inode: u64, sectors: Range<u64> },
    /// The file system took these sectors from whoever had them.
    Freed(Range<u64>),
    /// The file system allocated an inode for a new entry of a directory.
    Created {
        inode: u64,
        dir: u64,
        kind: InodeKind,
    },
    /// The file system gave an inode a name in a directory.
    Named { inode: u64, dir: u64, name: String },
}

/// What an inode is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InodeKind {
    /// A regular file.
    File,
    /// Anything else: a directory, a symbolic link.
    Other,
}

impl InodeKind {
    /// From the mode bits of an inode.
    pub(crate) fn of_mode(mode: u64) -> Self {
        if mode & 0o170_000 == 0o100_000 {
            Self::File
        } else {
            Self::Other
        }
    }
}

/// Turns a record into an event, if it bears on anything.
type Decode = Box<dyn Fn(&[u8]) -> Option<Event> + Send>;

/// Turns records of one kind into events.
struct Decoder {
    id: u16,
    decode: Decode,
}

/// Turns records into events.
#[derive(Default)]
pub(crate) struct Decoders(Vec<Decoder>);

/// The fields of an event that is being set up.
pub(crate) struct Fields<'a> {
    event: &'a str,
    format: Format,
}

impl Fields<'_> {
    /// A field that the event must have.
    pub(crate) fn get(&self, name: &str) -> Result<Field, Error> {
        self.format.field(name).ok_or_else(|| {
            Error::Unavailable(format!(
                "this kernel's trace event {} has no field {name}: bytes by file cannot be told",
                self.event
            ))
        })
    }
}

impl Decoders {
    /// Enables an event in `instance` and adds what decodes its records.
    pub(crate) fn add<F>(
        &mut self,
        instance: &Instance,
        event: &str,
        filter: &str,
        decoder: impl FnOnce(&Fields<'_>) -> Result<F, Error>,
    ) -> Result<(), Error>
    where
        F: Fn(&[u8]) -> Option<Event> + Send + 'static,
    {
        let fields = Fields {
            event,
            format: instance.enable(event, filter)?,
        };
        let decode = Box::new(decoder(&fields)?);
        self.0.push(Decoder {
            id: fields.format.id(),
            decode,
        });
        Ok(())
    }

    /// The event that a record stands for, if it is one of ours and bears on anything.
    pub(crate) fn decode(&self, record: &[u8]) -> Option<Event> {
        let id = u16::from_le_bytes(record.get(..2)?.try_into().ok()?);
        let decoder = self.0.iter().find(|decoder| decoder.id == id)?;
        (decoder.decode)(record)
    }

    /// Block requests completed by a device. The completion, not the issue, is what the device's
    /// counters count, so that sums over both agree.
    pub(crate) fn add_block(&mut self, instance: &Instance, filter: &str) -> Result<(), Error> {
        self.add(instance, "block/block_rq_complete", filter, |fields| {
            let (sector, count) = (fields.get("sector")?, fields.get("nr_sector")?);
            let rwbs = fields.get("rwbs")?;
            Ok(move |record: &[u8]| {
                let count = count.number(record);
                (is_write(rwbs.bytes(record)) && count > 0).then(|| {
                    let start = sector.number(record);
                    Event::Written(start..start.saturating_add(count))
                })
            })
        })
    }
}

/// Whether a request's letters, as the kernel's `blk_fill_rwbs` writes them, are those of one that the
/// device counts as a write: an `F` for the flush before it, then `W`, or `N` for the offloaded
/// writing of zeros.
fn is_write(rwbs: &[u8]) -> bool {
    let letters = match rwbs {
        [b'F', rest @ ..] => rest,
        all => all,
    };
    matches!(letters.first(), Some(b'W' | b'N'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_told_by_its_letters() {
        for write in ["WS", "W", "FWS", "FWFSM", "WSM", "N"] {
            assert!(is_write(write.as_bytes()), "{write}");
        }
        for other in ["R", "RA", "D", "DE", "FF", "F", "", "FR"] {
            assert!(!is_write(other.as_bytes()), "{other}");
        }
    }
}
