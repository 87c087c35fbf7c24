//! Writes: direct, through the page cache, durable or not.

use std::fs::File;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::fdatasync;
use rustix::io::{Errno, pwrite};

use super::{Direct, Durability, LogFile, MAX_OFFSET, retry, write_zero};
use crate::storage::capabilities::DirectAlign;
use crate::storage::error::{Operation, StorageError};
use crate::storage::observer::{self, Call, Route};
use crate::storage::sys;
use crate::waits::stall::{self, Phase};

impl LogFile {
    /// Writes `buf` at `offset`, usually by one pwritev2. It is direct if [`LogFile::direct`] is
    /// `Some`, with RWF_DSYNC for [`Durability::WriteThrough`]. Otherwise it uses the page cache,
    /// followed by fdatasync for write-through.
    ///
    /// # Errors
    /// [`StorageError::Misaligned`] for a direct write of unaligned bytes; otherwise the kernel's
    /// error. After an error any part of `buf` may be on the device.
    pub fn write_at(
        &self,
        buf: &[u8],
        offset: u64,
        durability: Durability,
    ) -> Result<(), StorageError> {
        let phase = match durability {
            Durability::WriteThrough => Phase::Flush,
            Durability::Cached | Durability::None => Phase::Write,
        };
        stall::measured(phase, || self.write_as(buf, offset, durability))
    }

    fn write_as(
        &self,
        buf: &[u8],
        offset: u64,
        durability: Durability,
    ) -> Result<(), StorageError> {
        if durability == Durability::Cached {
            return self.write_in_cache(buf, offset);
        }
        self.check_write(buf, offset)?;
        if let (Some(align), Some(direct)) = (self.direct(), &self.direct) {
            self.check_aligned(buf, offset, align)?;
            if self.write_direct(direct, buf, offset, durability)? {
                return Ok(());
            }
        }
        self.write_in_cache(buf, offset)?;
        match durability {
            Durability::Cached | Durability::None => Ok(()),
            Durability::WriteThrough => self.flush(),
        }
    }

    /// Makes the kernel begin to write what the page cache has of the file, by whomever, to the
    /// device. Nothing is waited for, unless the device takes no more requests.
    ///
    /// # Errors
    /// Those of sync_file_range(2). The kernel keeps an error for the next flush.
    pub fn begin_write_back(&self) -> Result<(), StorageError> {
        self.counters.begun.fetch_add(1, Relaxed);
        match sys::write_back(self.buffered_fd(), 0, 0, sys::WriteBack::Begin) {
            Ok(()) => Ok(()),
            Err(e) if sys::is_missing(&e) => Ok(()),
            Err(e) => Err(self.error(Operation::Write, None, e)),
        }
    }

    /// Returns false if the kernel refused the first byte with EINVAL: then nothing was written,
    /// and from now on everything is buffered.
    fn write_direct(
        &self,
        direct: &Direct,
        buf: &[u8],
        offset: u64,
        durability: Durability,
    ) -> Result<bool, StorageError> {
        self.before_write(buf, offset, Route::Direct, durability)?;
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let written = match self.pwrite_through(&direct.file, &buf[done..], at, durability) {
                Ok(0) => return Err(self.error(Operation::Write, Some(at), write_zero())),
                Ok(n) => n,
                Err(Errno::INVAL) if done == 0 => {
                    direct.refused.get_or_init(|| {
                        format!(
                            "{} refused an aligned direct write",
                            self.capabilities().filesystem
                        )
                    });
                    return Ok(false);
                }
                Err(e) => return Err(self.error(Operation::Write, Some(at), e)),
            };
            self.counters.count_write(written);
            done = resume_at(done, written, buf.len(), direct.align.offset as usize)
                .ok_or_else(|| self.error(Operation::Write, Some(at), write_zero()))?;
        }
        Ok(true)
    }

    /// One write of some of `buf`, durable if requested.
    fn pwrite_through(
        &self,
        file: &File,
        buf: &[u8],
        offset: u64,
        durability: Durability,
    ) -> Result<usize, Errno> {
        if durability == Durability::None {
            return retry(|| pwrite(file, buf, offset));
        }
        if !self.no_dsync_flag.load(Relaxed) {
            match retry(|| sys::write_durably(file, buf, offset)) {
                // Refused before any I/O: a kernel before 4.7, or a file system without it.
                Err(e) if sys::is_refused(e) => self.no_dsync_flag.store(true, Relaxed),
                Ok(n) => {
                    self.counters.write_through.fetch_add(1, Relaxed);
                    return Ok(n);
                }
                Err(e) => return Err(e),
            }
        }
        let written = retry(|| pwrite(file, buf, offset))?;
        fdatasync(file)?;
        self.counters.flushes.fetch_add(1, Relaxed);
        Ok(written)
    }

    fn before_write(
        &self,
        bytes: &[u8],
        offset: u64,
        route: Route,
        durability: Durability,
    ) -> Result<(), StorageError> {
        let call = Call::Write {
            offset,
            bytes,
            route,
            durability,
        };
        observer::before(&self.path, Operation::Write, &call)
    }

    fn check_write(&self, buf: &[u8], offset: u64) -> Result<(), StorageError> {
        self.check_writable(Operation::Write)?;
        match offset.checked_add(buf.len() as u64) {
            Some(end) if end <= MAX_OFFSET => Ok(()),
            _ => Err(self.error(Operation::Write, Some(offset), Errno::FBIG)),
        }
    }

    fn check_aligned(
        &self,
        buf: &[u8],
        offset: u64,
        align: DirectAlign,
    ) -> Result<(), StorageError> {
        let memory_remainder = buf.as_ptr().addr() % align.memory as usize;
        let aligned = memory_remainder == 0
            && offset.is_multiple_of(u64::from(align.offset))
            && buf.len().is_multiple_of(align.offset as usize);
        if aligned {
            return Ok(());
        }
        Err(StorageError::Misaligned {
            path: self.path.clone(),
            offset,
            len: buf.len(),
            memory_remainder,
            align,
        })
    }

    /// Writes `buf` at `offset` through the page cache, whatever the capabilities. It is for
    /// transactions so large that one flush at the end is cheaper. Durable only after
    /// [`LogFile::flush`].
    ///
    /// # Errors
    /// Those of pwrite(2). After an error any part of `buf` may be in the file.
    pub fn write_buffered_at(&self, buf: &[u8], offset: u64) -> Result<(), StorageError> {
        stall::measured(Phase::Write, || self.write_in_cache(buf, offset))
    }

    fn write_in_cache(&self, buf: &[u8], offset: u64) -> Result<(), StorageError> {
        self.check_write(buf, offset)?;
        self.before_write(buf, offset, Route::Buffered, Durability::None)?;
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match retry(|| pwrite(&self.buffered, &buf[done..], at)) {
                Ok(0) => return Err(self.error(Operation::Write, Some(at), write_zero())),
                Ok(n) => {
                    self.counters.count_write(n);
                    done += n;
                }
                Err(e) => return Err(self.error(Operation::Write, Some(at), e)),
            }
        }
        Ok(())
    }
}

/// Where a direct write of `len` bytes continues after the kernel took `written` bytes from `done`
/// on. It is a block boundary, so bytes past it are written again. `None` if that is no progress.
fn resume_at(done: usize, written: usize, len: usize, block: usize) -> Option<usize> {
    let reached = done + written;
    let next = if reached >= len {
        reached
    } else {
        reached - reached % block
    };
    (next > done).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_direct_write_goes_on_at_a_block_boundary() {
        assert_eq!(resume_at(0, 4096, 4096, 512), Some(4096));
        assert_eq!(resume_at(0, 1024, 4096, 512), Some(1024));
        assert_eq!(resume_at(1024, 1000, 4096, 512), Some(1536));
        assert_eq!(resume_at(1024, 511, 4096, 512), None, "no progress");
        assert_eq!(resume_at(0, 0, 4096, 512), None);
    }
}
