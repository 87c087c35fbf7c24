//! Reads a log from start to end in large pieces, for callers that ask for small ones. Recovery
//! walks over the log once, then reads frame after frame. A reader or writer walks over what others
//! have published since its last walk.

use std::cell::{Cell, RefCell};
use std::io;

use crate::log::scan::LogBytes;

/// The most bytes per read. With more, the allocator would take memory from the kernel each time, and
/// it would not fit into the processor's near caches. The caller may not say how far it reads. Then the
/// first read is of an eighth, and each later one of twice as much as the last.
const MOST_BYTES: usize = 64 << 10;
/// How far ahead to announce reads to the kernel, in bytes.
const AHEAD_BYTES: u64 = 512 << 10;

/// The last piece read. It shows the file at that time, so the caller may depend only on bytes that no
/// process writes.
#[derive(Debug, Default)]
pub struct Window {
    from: u64,
    bytes: Vec<u8>,
    /// How many of `bytes` were read.
    read: usize,
    /// Where the caller expects to stop, in bytes; 0 where it does not know. It may be wrong.
    expected_end: u64,
    /// The size of the next piece that is not expected; 0 for the first.
    next: usize,
}

thread_local! {
    /// The window of the last walk, for its memory.
    static KEPT: Cell<Window> = const { Cell::new(Window::EMPTY) };
}

/// Walks with memory that the thread keeps. The walk expects to read no byte from `expected_end` on; 0
/// where it does not know.
pub fn with_window<T>(expected_end: u64, walk: impl FnOnce(&mut Window) -> T) -> T {
    let mut window = KEPT.try_with(Cell::take).unwrap_or_default();
    window.begin(expected_end);
    let walked = walk(&mut window);
    window.end();
    // A destructor may walk that late, when the thread has lost it.
    let _ = KEPT.try_with(|kept| kept.set(window));
    walked
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
    const EMPTY: Window = Window {
        from: 0,
        bytes: Vec::new(),
        read: 0,
        expected_end: 0,
        next: 0,
    };

    /// Forgets what it has read, and keeps its memory.
    fn begin(&mut self, expected_end: u64) {
        *self = Window {
            bytes: std::mem::take(&mut self.bytes),
            expected_end,
            ..Window::EMPTY
        };
    }

    /// Frees more memory than most walks need.
    fn end(&mut self) {
        self.bytes.truncate(MOST_BYTES);
        self.bytes.shrink_to(MOST_BYTES);
    }

    /// The size of the piece from `offset` on, and whether the walk goes on far behind it.
    fn piece(&mut self, offset: u64) -> (usize, bool) {
        match self.expected_end.checked_sub(offset) {
            Some(left @ 1..) if left <= MOST_BYTES as u64 => (left as usize, false),
            Some(left @ 1..) => (MOST_BYTES, left >= 2 * MOST_BYTES as u64),
            _ => {
                let size = self.next.clamp(MOST_BYTES / 8, MOST_BYTES);
                self.next = 2 * size;
                (size, size == MOST_BYTES)
            }
        }
    }

    /// Up to `most` bytes from `offset` on; fewer only at the end of the file.
    fn get<B: LogBytes + ?Sized>(
        &mut self,
        log: &B,
        most: usize,
        offset: u64,
    ) -> io::Result<&[u8]> {
        let end = self.from + self.read as u64;
        let has_all = self.from <= offset && offset + most as u64 <= end;
        if !has_all {
            let (size, goes_on) = self.piece(offset);
            let size = size.max(most);
            if self.bytes.len() < size {
                self.bytes.resize(size, 0);
            }
            if goes_on {
                // The device reads ahead while this piece is processed.
                let next = offset + size as u64;
                log.will_read(next..next + AHEAD_BYTES);
            }
            self.read = 0;
            self.from = offset;
            self.read = log.read_at(&mut self.bytes[..size], offset)?;
        }
        let at = (offset - self.from) as usize;
        Ok(&self.bytes[at..self.read.min(at + most)])
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
            expected in 0u64..500_000,
            walks in 1usize..4,
        ) {
            let log: Vec<u8> = (0..size).map(|i| (i / 7) as u8).collect();
            let mut window = Window::default();
            for walk in reads.chunks(reads.len().div_ceil(walks)) {
                window.begin(expected);
                let windowed = Windowed::new(log.as_slice(), &mut window);
                for &(offset, bytes) in walk {
                    let (mut found, mut there) = (vec![0; bytes], vec![0; bytes]);
                    let n = windowed.read_at(&mut found, offset).expect("memory");
                    let all = log.as_slice().read_at(&mut there, offset).expect("memory");
                    prop_assert_eq!((n, &found), (all, &there));
                }
                window.end();
                prop_assert!(window.bytes.capacity() <= MOST_BYTES);
            }
        }
    }
}
