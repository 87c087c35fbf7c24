//! A file on a real file system, with direct I/O where it is available.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::io::pwritev2;

use super::atomic::{self, AtomicWrites, Facts, Writes};
use super::shm::SharedFile;
use super::{Lock, LockMode, Storage, writes_in_place};
use crate::types::PAGE_SIZE;

/// Whether the page cache is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Direct I/O, or the page cache where the file system refuses.
    Direct,
    /// The page cache.
    Buffered,
}

/// A database in a file. Locks and shared memory are in `<path>-shm`. That file stays after the
/// close, and means nothing while no handle has the database open.
///
/// Its promise of atomic writes is what the kernel says of the file ([`Facts`]). A caller that knows
/// the device better sets [`crate::Torn::Trust`].
pub struct DirectFile {
    file: File,
    /// Its inode.
    identity: u64,
    direct: bool,
    facts: Facts,
    shared: SharedFile,
    buffer: Mutex<Vec<u8>>,
}

impl DirectFile {
    /// Opens a file, or makes it.
    pub fn open(path: &Path, caching: Caching) -> io::Result<DirectFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let (file, direct) = match caching {
            Caching::Direct => match options.clone().custom_flags(direct).open(path) {
                Ok(file) => (file, true),
                Err(_) => (options.open(path)?, false),
            },
            Caching::Buffered => (options.open(path)?, false),
        };
        // A stock database's shared memory has the same name, and may be in use.
        let mut first = [0; PAGE_SIZE];
        let opened = DirectFile::first_page(&file, direct, &mut first)?;
        if opened > 0 && !crate::header::is_magic(&first) && first[..16] != [0; 16] {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "not an lsmvbt database: the magic is missing",
            ));
        }
        let mut name = path.as_os_str().to_owned();
        name.push("-shm");
        let shared = SharedFile::open(&PathBuf::from(name))?;
        Ok(DirectFile {
            identity: file.metadata()?.ino(),
            file,
            direct,
            facts: Facts::of(path),
            shared,
            buffer: Mutex::new(Vec::new()),
        })
    }

    fn first_page(file: &File, direct: bool, first: &mut [u8; PAGE_SIZE]) -> io::Result<usize> {
        if !direct {
            return read_full(file, 0, first);
        }
        let mut buffer = vec![0; 2 * PAGE_SIZE];
        let from = buffer.as_ptr().align_offset(PAGE_SIZE);
        let aligned = &mut buffer[from..from + PAGE_SIZE];
        let n = read_full(file, 0, aligned)?;
        first.copy_from_slice(aligned);
        Ok(n)
    }

    /// True if direct I/O is used.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    fn writes(&self) -> Writes {
        match self.direct {
            true => Writes::Direct,
            false => Writes::Buffered,
        }
    }

    /// Writes a buffer that is aligned, page by page with the flag where that makes pages atomic.
    fn write_aligned(&self, aligned: &[u8], offset: u64) -> io::Result<()> {
        if !self.facts.needs_flag() {
            return self.file.write_all_at(aligned, offset);
        }
        for (page, number) in aligned.chunks(PAGE_SIZE).zip(0u64..) {
            let at = offset + number * PAGE_SIZE as u64;
            let written = loop {
                match pwritev2(&self.file, &[IoSlice::new(page)], at, atomic::flag()) {
                    Err(rustix::io::Errno::INTR) => {}
                    done => break done?,
                }
            };
            if written != page.len() {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Runs with a buffer of `len` bytes that starts at a multiple of the page size.
    fn aligned<T>(&self, len: usize, use_it: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.len() < len + PAGE_SIZE {
            buffer.resize(len + PAGE_SIZE, 0);
        }
        let from = buffer.as_ptr().align_offset(PAGE_SIZE);
        use_it(&mut buffer[from..from + len])
    }
}

fn read_full(file: &File, mut offset: u64, mut buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while !buf.is_empty() {
        match file.read_at(buf, offset) {
            Ok(0) => break,
            Ok(n) => {
                done += n;
                offset += n as u64;
                buf = &mut buf[n..];
                // The file ends within a block. There is no more data, and direct I/O could not
                // read it.
                if !n.is_multiple_of(PAGE_SIZE) {
                    break;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

impl Storage for DirectFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if !self.direct {
            return read_full(&self.file, offset, buf);
        }
        self.aligned(buf.len(), |aligned| {
            let n = read_full(&self.file, offset, aligned)?;
            buf[..n].copy_from_slice(&aligned[..n]);
            Ok(n)
        })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if !self.direct {
            return self.file.write_all_at(data, offset);
        }
        self.aligned(data.len(), |aligned| {
            aligned.copy_from_slice(data);
            self.write_aligned(aligned, offset)
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.file.set_len(size)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn identity(&self) -> u64 {
        self.identity
    }

    fn writes_in_place(&self) -> bool {
        writes_in_place(&self.file)
    }

    fn atomic_writes(&self) -> AtomicWrites {
        self.facts.judge(self.writes())
    }

    fn lock(&self, lock: Lock, mode: LockMode) -> io::Result<bool> {
        self.shared.lock(lock, mode)
    }

    fn unlock(&self, lock: Lock, _: LockMode) -> io::Result<()> {
        self.shared.unlock(lock)
    }

    fn shm_load(&self, word: usize) -> io::Result<u64> {
        self.shared.load(word)
    }

    fn shm_load_all(&self, first: usize, words: &mut [u64]) -> io::Result<()> {
        self.shared.load_all(first, words)
    }

    fn shm_store(&self, word: usize, value: u64) -> io::Result<()> {
        self.shared.store(word, value)
    }

    fn shm_max(&self, word: usize, value: u64) -> io::Result<()> {
        self.shared.max(word, value)
    }

    fn shm_min(&self, word: usize, value: u64) -> io::Result<()> {
        self.shared.min(word, value)
    }
}
