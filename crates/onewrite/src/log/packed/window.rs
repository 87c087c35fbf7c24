//! Reads a log from start to end in large pieces, for callers that ask for small ones. Recovery
//! walks over the log once, then reads frame after frame. A reader that does not know the log yet
//! walks to the published end.

use std::cell::RefCell;
use std::io;

use crate::log::scan::LogBytes;

/// The most bytes per read; the first reads an eighth of it, each later one twice as much as the
/// last. With more, the allocator would take memory from the kernel each time, and it would not fit
/// into the processor's near caches.
const MOST_BYTES: usize = 64 << 10;
/// How far ahead to announce reads to the kernel, in bytes.
const AHEAD_BYTES: u64 = 512 << 10;

/// The last piece read. It shows the file at that time, so no process may be writing.
#[derive(Debug, Default)]
pub struct Window {
    from: u64,
    bytes: Vec<u8>,
}

/// A log, read through a window.
pub struct Windowed<'a, B: ?Sized> {
    log: &'a B,
    window: RefCell<&'a mut Window>,
}

impl<'a, B: LogBytes + ?Sized> Windowed<'a, B> {
    /// Reads `log`, and takes from `window` what it holds.
    pub fn new(log: &'a B, window: &'a mut Window) -> Windowed<'a, B> {
        Windowed {
            log,
            window: RefCell::new(window),
        }
    }
}

impl Window {
    /// Up to `most` bytes from `offset` on; fewer only at the end of the file.
    fn get<B: LogBytes + ?Sized>(
        &mut self,
        log: &B,
        most: usize,
        offset: u64,
    ) -> io::Result<&[u8]> {
        let end = self.from + self.bytes.len() as u64;
        let has_all = self.from <= offset && offset + most as u64 <= end;
        if !has_all {
            let size = (2 * self.bytes.capacity()).clamp(MOST_BYTES / 8, MOST_BYTES);
            self.bytes.resize(size.max(most), 0);
            if self.bytes.len() >= MOST_BYTES {
                // The device reads ahead while this piece is processed.
                let next = offset + self.bytes.len() as u64;
                log.will_read(next..next + AHEAD_BYTES);
            }
            let read = log.read_at(&mut self.bytes, offset);
            self.bytes.truncate(*read.as_ref().unwrap_or(&0));
            self.from = offset;
            read?;
        }
        let at = (offset - self.from) as usize;
        Ok(&self.bytes[at..self.bytes.len().min(at + most)])
    }
}

impl<B: LogBytes + ?Sized> LogBytes for Windowed<'_, B> {
    fn size(&self) -> io::Result<u64> {
        self.log.size()
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.view(out.len(), offset, |bytes| {
            out[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        })
    }

    fn view<R>(&self, most: usize, offset: u64, look: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        let mut window = self.window.borrow_mut();
        window.get(self.log, most, offset).map(look)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_read_is_what_is_there(
            size in 0usize..400_000,
            reads in proptest::collection::vec((0u64..500_000, 0usize..200_000), 1..30),
        ) {
            let log: Vec<u8> = (0..size).map(|i| (i / 7) as u8).collect();
            let mut window = Window::default();
            let windowed = Windowed::new(log.as_slice(), &mut window);
            for (offset, bytes) in reads {
                let (mut found, mut expected) = (vec![0; bytes], vec![0; bytes]);
                let n = windowed.read_at(&mut found, offset).expect("memory");
                let there = log.as_slice().read_at(&mut expected, offset).expect("memory");
                prop_assert_eq!((n, &found), (there, &expected));
            }
        }
    }
}
