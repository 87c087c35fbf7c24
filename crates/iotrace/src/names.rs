//! The names of files created anywhere on a file system, from fanotify.
//!
//! ext4 and Btrfs report a new file's inode, but not its name. fanotify reports both (Linux 5.17),
//! even for files that are deleted a moment later. An event (`fanotify(7)`) is, little-endian here,
//!
//! ```text
//! 0   u32 length of all, u8 version, u8 reserved, u16 length of this header, u64 mask, i32, i32
//!     records: u8 type, u8, u16 length, 8 bytes file system, then a file handle:
//!     u32 bytes, i32 type, those bytes; behind a directory's handle the name and a zero
//! ```

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::path::Path;

use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use rustix::io::Errno;

use crate::Error;
use crate::bytes::bytes_at;
use crate::events::Inode;

/// Flags that the library lacks: `FAN_REPORT_FID`, `_DIR_FID`, `_NAME` and `_TARGET_FID`.
const REPORT: u32 = 0x200 | 0x400 | 0x800 | 0x1000;

/// `FAN_CREATE`, `FAN_MOVED_TO` and `FAN_ONDIR`.
const WANTED: u64 = 0x100 | 0x80 | 0x4000_0000;

/// Events were lost (`FAN_Q_OVERFLOW`).
const OVERFLOW: u64 = 0x4000;

/// The event concerns a directory (`FAN_ONDIR`).
const ON_DIR: u64 = 0x4000_0000;

/// Record types: the file itself, and the directory with the name in it.
const TARGET: u8 = 1;
const DIR_AND_NAME: u8 = 2;

/// Handle types: a 32-bit inode number and generation, XFS's 64-bit ones, and Btrfs's.
const INO32: i32 = 1;
const INO64: i32 = 0x81;
const BTRFS: i32 = 0x4d;

/// A name that an inode got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewName {
    pub(crate) inode: Inode,
    /// Distinguishes files that had the same inode, one after the other.
    pub(crate) generation: u32,
    pub(crate) dir: Inode,
    pub(crate) name: String,
    pub(crate) is_dir: bool,
}

/// A watch over a whole file system.
#[derive(Debug)]
pub(crate) struct Watch(Fanotify);

impl Watch {
    /// Watches the file system that `root` is in.
    pub(crate) fn new(root: &Path) -> Result<Self, Error> {
        let flags = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        let flags = flags | InitFlags::FAN_UNLIMITED_QUEUE | InitFlags::from_bits_retain(REPORT);
        let failed = |error: nix::Error| {
            Error::Unavailable(format!(
                "fanotify on {}: {error}: names of new files cannot be told",
                root.display()
            ))
        };
        let watch = Fanotify::init(flags, EventFFlags::O_RDONLY).map_err(failed)?;
        let dir = File::open(root).map_err(Error::io("open", root))?;
        let mark = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
        let wanted = MaskFlags::from_bits_retain(WANTED);
        watch
            .mark(mark, wanted, &dir, None::<&Path>)
            .map_err(failed)?;
        Ok(Self(watch))
    }

    /// Adds the events since the last call to `names`.
    pub(crate) fn read(&self, names: &mut Names) -> Result<(), Error> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match rustix::io::read(&self.0, &mut buffer) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(()),
                Ok(bytes) => names.add(buffer.get(..bytes).unwrap_or_default()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Error::io("read", Path::new("fanotify"))(error)),
            }
        }
    }
}

/// The names that were created, in their order.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) new: Vec<NewName>,
    /// Whether some were lost.
    pub(crate) lost: bool,
}

impl Names {
    /// Adds the events in a buffer that fanotify filled.
    fn add(&mut self, mut bytes: &[u8]) {
        while let Some((event, rest)) = split_event(bytes) {
            let mask = u64::from_le_bytes(bytes_at(event, 8).unwrap_or_default());
            self.lost |= mask & OVERFLOW != 0;
            self.new.extend(parse_event(event, mask));
            bytes = rest;
        }
    }
}

/// Names by inode that no new file has taken yet: one for each time that the inode was a new file.
#[derive(Debug, Default)]
pub(crate) struct Created {
    waiting: HashMap<Inode, VecDeque<NewName>>,
    /// The last file of each inode.
    generations: HashMap<Inode, u32>,
}

impl Created {
    /// Adds a name, unless it is another name of the same file, by a link or a rename.
    pub(crate) fn add(&mut self, new: NewName) {
        let before = self.generations.insert(new.inode, new.generation);
        if before != Some(new.generation) {
            self.waiting.entry(new.inode).or_default().push_back(new);
        }
    }

    /// The name of the next file with this inode.
    pub(crate) fn take(&mut self, inode: Inode) -> Option<NewName> {
        let waiting = self.waiting.get_mut(&inode)?;
        let new = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&inode);
        }
        new
    }
}

fn split_event(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_le_bytes(bytes_at(bytes, 0)?) as usize;
    (length >= 24 && length <= bytes.len()).then(|| bytes.split_at(length))
}

fn parse_event(event: &[u8], mask: u64) -> Option<NewName> {
    let mut at = usize::from(u16::from_le_bytes(bytes_at(event, 6)?)).max(24);
    let (mut target, mut named) = (None, None);
    while let Some(record) = event.get(at..) {
        let Some(length) = bytes_at(record, 2).map(u16::from_le_bytes) else {
            break;
        };
        let Some(record) = record.get(..usize::from(length)).filter(|r| r.len() > 12) else {
            break;
        };
        match record.first() {
            Some(&TARGET) => target = handle(record).map(|(handle, _)| handle),
            Some(&DIR_AND_NAME) => named = handle(record),
            _ => {}
        }
        at += record.len();
    }
    let ((inode, generation), ((dir, _), name)) = (target?, named?);
    let end = name.iter().position(|byte| *byte == 0);
    let name = name.get(..end.unwrap_or(name.len()))?;
    Some(NewName {
        inode,
        generation,
        dir,
        name: String::from_utf8_lossy(name).into_owned(),
        is_dir: mask & ON_DIR != 0,
    })
}

/// The inode and generation of a record's handle, and the bytes after the handle.
fn handle(record: &[u8]) -> Option<((Inode, u32), &[u8])> {
    let bytes = u32::from_le_bytes(bytes_at(record, 12)?) as usize;
    let kind = i32::from_le_bytes(bytes_at(record, 16)?);
    let handle = record.get(20..)?.get(..bytes)?;
    let rest = record.get(20..)?.get(bytes..)?;
    let number32 = |at| bytes_at(handle, at).map(u32::from_le_bytes);
    let number64 = |at| bytes_at(handle, at).map(u64::from_le_bytes);
    let (inode, generation) = match kind {
        INO32 => (Inode::of(u64::from(number32(0)?)), number32(4)?),
        INO64 => (Inode::of(number64(0)?), number32(8)?),
        BTRFS => {
            let (number, tree) = (number64(0)?, number64(8)?);
            (Inode { tree, number }, number32(16)?)
        }
        _ => return None,
    };
    Some(((inode, generation), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u8, handle_kind: i32, handle: &[u8], name: &[u8]) -> Vec<u8> {
        let mut record = vec![kind, 0, 0, 0];
        record.extend([7; 8]);
        record.extend((handle.len() as u32).to_le_bytes());
        record.extend(handle_kind.to_le_bytes());
        record.extend(handle);
        record.extend(name);
        record.resize(record.len().next_multiple_of(4), 0);
        let length = record.len() as u16;
        record[2..4].copy_from_slice(&length.to_le_bytes());
        record
    }

    fn event(mask: u64, records: &[Vec<u8>]) -> Vec<u8> {
        let body = records.concat();
        let mut event = ((24 + body.len()) as u32).to_le_bytes().to_vec();
        event.extend([3, 0, 24, 0]);
        event.extend(mask.to_le_bytes());
        event.extend([0xff; 8]);
        event.extend(body);
        event
    }

    fn ext4(inode: u32, generation: u32) -> Vec<u8> {
        [inode.to_le_bytes(), generation.to_le_bytes()].concat()
    }

    fn created(inode: u32, generation: u32, name: &[u8]) -> Vec<u8> {
        let dir = record(DIR_AND_NAME, INO32, &ext4(2, 0), name);
        event(
            0x100,
            &[dir, record(TARGET, INO32, &ext4(inode, generation), b"")],
        )
    }

    #[test]
    fn a_name_comes_with_its_inode_and_directory() {
        let mut names = Names::default();
        let mut bytes = created(12, 1, b"a.db\0");
        bytes.extend(created(13, 2, b"a.db-journal\0"));
        // The next file with that inode, and another name of it.
        bytes.extend(created(13, 3, b"a.db-wal\0"));
        bytes.extend(created(13, 3, b"link\0"));
        let btrfs = [257u64.to_le_bytes(), 5u64.to_le_bytes(), [1; 8]].concat();
        let dir = record(DIR_AND_NAME, BTRFS, &btrfs, b"sub\0");
        bytes.extend(event(
            0x100 | ON_DIR,
            &[record(TARGET, BTRFS, &btrfs, b""), dir],
        ));
        names.add(&bytes);
        assert_eq!(names.new.len(), 5);
        let mut by_inode = Created::default();
        names.new.into_iter().for_each(|new| by_inode.add(new));
        let mut next = |inode| by_inode.take(inode).map(|new| (new.name, new.is_dir));
        let file = |name: &str| Some((name.to_owned(), false));
        assert_eq!(next(Inode::of(12)), file("a.db"));
        assert_eq!(next(Inode::of(12)), None);
        assert_eq!(next(Inode::of(13)), file("a.db-journal"));
        assert_eq!(next(Inode::of(13)), file("a.db-wal"));
        assert_eq!(next(Inode::of(13)), None);
        let sub = Inode {
            tree: 5,
            number: 257,
        };
        assert_eq!(next(sub), Some(("sub".to_owned(), true)));
    }

    #[test]
    fn lost_names_are_reported() {
        let mut names = Names::default();
        names.add(&event(OVERFLOW, &[]));
        assert!(names.lost && names.new.is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), length in 0u8..200) {
            Names::default().add(&bytes);
            if bytes.len() > 30 {
                bytes[..4].copy_from_slice(&u32::from(length).to_le_bytes());
                bytes[24] %= 3;
                bytes[26] %= 120;
                bytes[27] = 0;
                Names::default().add(&bytes);
            }
        }
    }
}
