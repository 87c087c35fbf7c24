//! A page of memory that all processes with an open log share: a mapped file next to the log.
//!
//! It holds only data that a crash of the system may lose, and is never flushed. Its one block is
//! allocated before it is mapped, and written in place ([`super::open`]), so that no access fails for lack
//! of space. Behind it the file may have room for pages ([`super::slots`]).

use super::error::{Operation, StorageError};
use super::observer::{self, Call};
use super::open::{Access, Create, NewFile, open_buffered, write_in_place};
use super::slots::{Make, SharedSlots, SlotLayout};
#[cfg(not(any(shuttle, loom)))]
use super::sys::Mapped;
use crate::sync::atomic::{AtomicU32, AtomicU64};
use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// Bytes of the file.
pub(super) const SHARED_BYTES: u64 = 4096;

/// The words of the page. The log layer defines their meaning.
#[repr(C)]
#[derive(Default, Debug)]
pub struct SharedWords {
    /// The form of the rest; 0 before the first use.
    pub form: AtomicU64,
    /// The log's durable mark.
    pub durable: AtomicU64,
    /// The mark of the last commit that was published before it was durable.
    pub deferred: AtomicU64,
    /// The connection that committed last.
    pub committer: AtomicU64,
    /// When the committing connection last changed, in nanoseconds of CLOCK_MONOTONIC.
    pub changed: AtomicU64,
    /// When the committing process last changed.
    pub process_changed: AtomicU64,
    /// Not 0: the log is poisoned.
    pub poisoned: AtomicU32,
    /// Counts releases of the write lock while others wanted it; a futex.
    pub releases: AtomicU32,
    /// Counts flushes for a group; a futex.
    pub flushes: AtomicU32,
    /// Counts commits that arrived for a flush.
    pub arrived: AtomicU32,
    /// Its value when the last flush began.
    pub found: AtomicU32,
    /// How many commits may come before the next flush.
    pub expected: AtomicU32,
    /// Not 0: a leader waits for commits to come; a futex.
    pub leader_waits: AtomicU32,
    /// Not 0: a waiter that is not about to commit needs the next flush.
    pub is_urgent: AtomicU32,
    /// The last batch of a block that the next one may share; 0 if none.
    pub open_block: AtomicU64,
    /// The mark of the frame before which no writer waits for the log's restart again.
    pub restart_failed: AtomicU64,
    /// The form and the size of the slots for pages; 0 if there are none.
    pub slots: AtomicU64,
    /// Processes that read what others log, and when they last did.
    pub readers: [AtomicU64; 2],
    /// When a waiter of any process began to look for the end of a turn without sleeping; 0 if none does.
    pub watched: AtomicU64,
    /// For how long the commits that the last flush for a group released may come again, and when it ended.
    pub released: AtomicU64,
}

enum Words {
    #[cfg(not(any(shuttle, loom)))]
    Mapped(Mapped),
    /// The processes of a model are one process.
    #[cfg(any(shuttle, loom))]
    Mapped(std::sync::Arc<SharedWords>),
    Own(Box<SharedWords>),
}

/// The file of a page.
#[cfg_attr(
    any(shuttle, loom),
    allow(dead_code, reason = "a model has no file of slots")
)]
pub(super) struct Opened {
    pub(super) path: PathBuf,
    pub(super) access: Access,
    /// Device and inode.
    identity: (u64, u64),
}

impl Opened {
    fn new(path: &Path, access: Access, file: &File) -> rustix::io::Result<Opened> {
        let stat = rustix::fs::fstat(file)?;
        Ok(Opened {
            path: path.to_owned(),
            access,
            identity: (stat.st_dev, stat.st_ino),
        })
    }

    /// Whether `file` is this one. Another process that is alone may have made it again.
    #[cfg(not(any(shuttle, loom)))]
    pub(super) fn is(&self, file: &File) -> rustix::io::Result<bool> {
        let stat = rustix::fs::fstat(file)?;
        Ok((stat.st_dev, stat.st_ino) == self.identity)
    }
}

/// See the module.
pub struct SharedPage {
    words: Words,
    writable: bool,
    /// `None` if no other process sees it.
    opened: Option<Opened>,
}

impl SharedPage {
    /// A page that no other process shares.
    pub fn private() -> SharedPage {
        SharedPage {
            words: Words::Own(Box::default()),
            writable: true,
            opened: None,
        }
    }

    /// Opens the page at `path`, or makes it.
    ///
    /// # Errors
    /// The file cannot be opened or made; there is no space for it.
    pub fn open(path: &Path, access: Access, new: NewFile) -> Result<SharedPage, StorageError> {
        observer::before(path, Operation::Open, &Call::Open)?;
        let create = match access {
            Access::ReadWrite => Create::IfMissing(new),
            Access::ReadOnly => Create::Never,
        };
        let file = open_buffered(path, create, access)?;
        let error = |e: rustix::io::Errno| StorageError::io(path, Operation::Open, e);
        if access == Access::ReadWrite {
            if rustix::fs::fstat(&file).map_err(error)?.st_size == 0 {
                write_in_place(&file);
            }
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, SHARED_BYTES)
                .map_err(error)?;
        } else if rustix::fs::fstat(&file).map_err(error)?.st_size < SHARED_BYTES as i64 {
            return Err(error(rustix::io::Errno::NODATA));
        }
        let opened = Opened::new(path, access, &file).map_err(error)?;
        #[cfg(not(any(shuttle, loom)))]
        let words = Words::Mapped(Mapped::new(&file, access).map_err(error)?);
        #[cfg(any(shuttle, loom))]
        let words = Words::Mapped(of_model(&file).map_err(error)?);
        Ok(SharedPage {
            words,
            writable: access == Access::ReadWrite,
            opened: Some(opened),
        })
    }

    /// The slots for pages behind the words.
    ///
    /// # Errors
    /// No other process sees this page. There are no slots, or no space for them; an I/O error.
    pub fn slots(&self, layout: SlotLayout, make: Make) -> Result<SharedSlots, StorageError> {
        let Some(opened) = &self.opened else {
            let none = rustix::io::Errno::NODATA;
            return Err(StorageError::io(Path::new(""), Operation::Open, none));
        };
        observer::before(&opened.path, Operation::Open, &Call::Open)?;
        SharedSlots::open(opened, layout, make)
    }

    /// Whether other processes see the words.
    pub fn is_shared(&self) -> bool {
        !matches!(self.words, Words::Own(_))
    }

    /// The words, writable; `None` if the file could be opened only for reading.
    pub fn writable(&self) -> Option<&SharedWords> {
        self.writable.then_some(&**self)
    }
}

impl Deref for SharedPage {
    type Target = SharedWords;

    fn deref(&self) -> &SharedWords {
        match &self.words {
            Words::Mapped(mapped) => mapped,
            Words::Own(words) => words,
        }
    }
}

/// The words of a file, in the model checker.
#[cfg(any(shuttle, loom))]
fn of_model(file: &std::fs::File) -> rustix::io::Result<std::sync::Arc<SharedWords>> {
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex, PoisonError, Weak};
    static PAGES: Mutex<Option<HashMap<u64, Weak<SharedWords>>>> = Mutex::new(None);
    let inode = rustix::fs::fstat(file)?.st_ino;
    let mut pages = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let pages = pages.get_or_insert_default();
    if let Some(words) = pages.get(&inode).and_then(Weak::upgrade) {
        return Ok(words);
    }
    let words = Arc::new(SharedWords::default());
    pages.insert(inode, Arc::downgrade(&words));
    Ok(words)
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    const NEW: NewFile = NewFile {
        mode: 0o600,
        owner: None,
    };

    #[test]
    fn what_one_writes_the_other_reads() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("page");
        let open = |access| SharedPage::open(&path, access, NEW);
        assert!(open(Access::ReadOnly).is_err(), "nobody has made it");
        let one = open(Access::ReadWrite).expect("a page");
        let other = open(Access::ReadOnly).expect("the same page");
        one.durable.store(77, Ordering::Release);
        assert_eq!(other.durable.load(Ordering::Acquire), 77);
        assert!(other.writable().is_none() && one.writable().is_some());
        let stat = std::fs::metadata(&path).expect("the file");
        assert_eq!(stat.len(), SHARED_BYTES);
        assert!(std::os::unix::fs::MetadataExt::blocks(&stat) > 0, "a hole");
    }

    #[test]
    fn slots_are_made_once_and_all_of_their_blocks_with_them() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("page");
        let layout = SlotLayout {
            slots: 64,
            page_bytes: 4096,
        };
        let open = || SharedPage::open(&path, Access::ReadWrite, NEW).expect("a page");
        let (one, other) = (open(), open());
        assert!(one.slots(layout, Make::Never).is_err(), "nobody made them");
        let made = one.slots(layout, Make::IfMissing).expect("slots");
        let found = other.slots(layout, Make::Never).expect("the same slots");
        for slot in [0, 63] {
            let (header, page) = made.slot(slot).expect("a slot");
            header.frame.store(7 + slot as u64, Ordering::Release);
            page[page.len() - 1].store(5, Ordering::Release);
            let (header, page) = found.slot(slot).expect("a slot");
            assert_eq!(header.frame.load(Ordering::Acquire), 7 + slot as u64);
            assert_eq!(page[page.len() - 1].load(Ordering::Acquire), 5);
        }
        assert!(made.slot(64).is_none());
        let stat = std::fs::metadata(&path).expect("the file");
        let blocks = std::os::unix::fs::MetadataExt::blocks(&stat);
        assert!(blocks * 512 >= 64 * 4096, "{blocks} blocks");
        // An older version opens it again.
        drop(open());
        let again = std::fs::metadata(&path).expect("the file");
        assert_eq!(again.len(), stat.len());
        // A file that was made again has others.
        std::fs::remove_file(&path).expect("removed");
        let new = open();
        assert!(one.slots(layout, Make::IfMissing).is_err());
        assert!(new.slots(layout, Make::IfMissing).is_ok());
    }
}
