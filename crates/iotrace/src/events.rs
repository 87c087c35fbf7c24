//! The content of the trace, independent of the kernel's version and the file system.

use std::ops::Range;

use crate::Error;
use crate::device::Span;
use crate::format::{Field, Format};
use crate::io::{Asked, Op};
use crate::tracefs::Instance;

/// An inode: its number, and on Btrfs the tree of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Inode {
    /// The subvolume's tree on Btrfs, 0 elsewhere.
    pub(crate) tree: u64,
    /// Its number.
    pub(crate) number: u64,
}

impl Inode {
    /// An inode of a file system that has one tree.
    pub(crate) fn of(number: u64) -> Self {
        Self { tree: 0, number }
    }
}

/// An event that matters for an I/O, its purpose or its task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A task handed a bio to the block layer.
    Queued(Bio),
    /// The block layer gave a request, which may join several bios, to the device.
    Issued(Request),
    /// The device completed a request.
    Completed(Request, i32),
    /// The file system gave these sectors to a file or directory, or looked up that it has them.
    Mapped { inode: Inode, sectors: Range<u64> },
    /// The file system took these sectors from their owner.
    Freed(Range<u64>),
    /// The file system allocated an inode for a new entry of a directory.
    Created { inode: Inode, kind: InodeKind },
    /// The file system gave an inode a name in a directory.
    Named {
        inode: Inode,
        dir: Inode,
        name: String,
    },
    /// Btrfs gave these bytes of its own address space to a holder.
    Given { bytes: Range<u64>, to: Holder },
}

/// A holder of bytes of Btrfs's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A file's data.
    Data(Inode),
    /// A block of a tree without a reference yet. It stays so for a log tree, which the extent tree
    /// never references.
    NewTreeBlock,
    /// A block of a tree that the extent tree refers to.
    TreeBlock,
}

/// A piece of I/O that a task handed to the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bio {
    pub(crate) letters: Letters,
    pub(crate) start: u64,
    pub(crate) sectors: u64,
    pub(crate) tid: u32,
    pub(crate) name: [u8; 16],
    /// Whether the task handed it to this device, and not to the whole disk.
    pub(crate) ours: bool,
}

/// One request to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) letters: Letters,
    pub(crate) start: u64,
    pub(crate) sectors: u64,
}

/// The type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InodeKind {
    /// A regular file.
    File,
    /// Anything else: a directory, a symbolic link.
    Other,
    /// Not reported.
    Unknown,
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

/// The kernel's letters for an operation and its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Letters {
    /// Never [`Op::FlushRequest`], which is a write of no sectors.
    pub(crate) op: Op,
    pub(crate) asked: Asked,
}

impl Letters {
    /// Parses the format of `blk_fill_rwbs`. An `F` comes first for a flush before. Then comes the
    /// operation; `N` is an offloaded write of zeros. Then come flags; the first can be an `F` for
    /// FUA. An operation that moves nothing is `None`. A secure erase (`DE`) counts as a write.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let (flush_before, rest) = match text {
            [b'F', rest @ ..] if !rest.is_empty() => (true, rest),
            all => (false, all),
        };
        let (operation, flags) = rest.split_first()?;
        let op = match operation {
            b'R' => Op::Read,
            b'W' | b'N' => Op::Write,
            b'D' if flags.first() == Some(&b'E') => Op::Write,
            b'D' => Op::Discard,
            b'F' => Op::Flush,
            _ => return None,
        };
        let has = |flag| flags.contains(&flag);
        let asked = Asked {
            flush_before: flush_before && op != Op::Flush,
            fua: has(b'F'),
            sync: has(b'S'),
            metadata: has(b'M'),
        };
        Some(Self { op, asked })
    }
}

/// Turns a record into an event, if it matters.
type Decode = Box<dyn Fn(&[u8]) -> Option<Event> + Send>;

/// Turns records of one kind into events.
struct Decoder {
    id: u16,
    decode: Decode,
}

/// Turns records into events.
#[derive(Default)]
pub(crate) struct Decoders(Vec<Decoder>);

/// The fields of an event during its setup.
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
    /// Enables an event in `instance` and adds the decoder of its records.
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

    /// One that needs no kernel.
    #[cfg(test)]
    pub(crate) fn of_test(
        id: u16,
        decode: impl Fn(&[u8]) -> Option<Event> + Send + 'static,
    ) -> Self {
        let decode = Box::new(decode);
        Self(vec![Decoder { id, decode }])
    }

    /// The event of a record, if it is one that we enabled and it matters.
    pub(crate) fn decode(&self, record: &[u8]) -> Option<Event> {
        let id = u16::from_le_bytes(record.get(..2)?.try_into().ok()?);
        let decoder = self.0.iter().find(|decoder| decoder.id == id)?;
        (decoder.decode)(record)
    }

    /// The events of a bio's queueing, a request's issue and its completion. The device's counters
    /// count completions, so that sums over both agree.
    pub(crate) fn add_block(&mut self, instance: &Instance, span: Span) -> Result<(), Error> {
        let either = format!("dev == {} || dev == {}", span.disk, span.own);
        self.add(instance, "block/block_bio_queue", &either, |fields| {
            let (sector, count) = (fields.get("sector")?, fields.get("nr_sector")?);
            let (rwbs, comm) = (fields.get("rwbs")?, fields.get("comm")?);
            let (tid, device) = (fields.get("common_pid")?, fields.get("dev")?);
            Ok(move |record: &[u8]| {
                let sectors = count.number(record);
                let mut name = [0; 16];
                for (to, from) in name.iter_mut().zip(comm.bytes(record)) {
                    *to = *from;
                }
                Some(Event::Queued(Bio {
                    letters: Letters::parse(rwbs.bytes(record))?,
                    start: span.inside(sector.number(record), sectors)?,
                    sectors,
                    tid: u32::try_from(tid.number(record)).unwrap_or(0),
                    name,
                    ours: device.number(record) == u64::from(span.own),
                }))
            })
        })?;
        let disk = format!("dev == {}", span.disk);
        for complete in [false, true] {
            let event = ["block/block_rq_issue", "block/block_rq_complete"][usize::from(complete)];
            self.add(instance, event, &disk, |fields| {
                let (sector, count) = (fields.get("sector")?, fields.get("nr_sector")?);
                let rwbs = fields.get("rwbs")?;
                let error = complete.then(|| fields.get("error")).transpose()?;
                Ok(move |record: &[u8]| {
                    let sectors = count.number(record);
                    let request = Request {
                        letters: Letters::parse(rwbs.bytes(record))?,
                        start: span.inside(sector.number(record), sectors)?,
                        sectors,
                    };
                    Some(match error {
                        None => Event::Issued(request),
                        // Signed, in 32 bits.
                        Some(error) => {
                            Event::Completed(request, error.number(record) as u32 as i32)
                        }
                    })
                })
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_told_by_its_letters() {
        for (letters, op) in [
            ("WS", Op::Write),
            ("W", Op::Write),
            ("FWS", Op::Write),
            ("FWFSM", Op::Write),
            ("N", Op::Write),
            ("NS", Op::Write),
            ("DE", Op::Write),
            ("R", Op::Read),
            ("RAM", Op::Read),
            ("FR", Op::Read),
            ("D", Op::Discard),
            ("DS", Op::Discard),
            ("FF", Op::Flush),
            ("F", Op::Flush),
        ] {
            let parsed = Letters::parse(letters.as_bytes());
            assert_eq!(parsed.map(|letters| letters.op), Some(op), "{letters}");
        }
        for nothing in ["", "Z", "ZRA", "\0WS"] {
            assert_eq!(Letters::parse(nothing.as_bytes()), None, "{nothing}");
        }
    }

    #[test]
    fn the_letters_say_how_it_was_asked_for() {
        let asked = |letters: &str| Letters::parse(letters.as_bytes()).unwrap().asked;
        let all = Asked {
            flush_before: true,
            fua: true,
            sync: true,
            metadata: true,
        };
        assert_eq!(asked("FWFSM"), all);
        assert_eq!(asked("W\0FSM"), Asked::default());
        assert!(asked("WFS").fua && !asked("WFS").flush_before);
        assert!(!asked("FF").flush_before);
    }
}
