//! Reads a log from its begin to its end in large pieces, where it is asked for in small ones: recovery
//! walks over it once, then reads frame after frame.

use std::cell::RefCell;
use std::io;

use crate::log::scan::LogBytes;

/// Bytes that are read at once.
const WINDOW_BYTES: usize = 128 << 10;

/// The piece that was read last. It holds what the file held then: nobody may be writing.
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
    /// Reads `log`, from `window` what it holds.
    pub fn new(log: &'a B, window: &'a mut Window) -> Windowed<'a, B> {
        Windowed {
            log,
            window: RefCell::new(window),
        }
    }
}

impl Window {
    /// The bytes, where all of them are in the window.
    fn get(&self, bytes: usize, offset: u64) -> Option<&[u8]> {
        let at = usize::try_from(offset.checked_sub(self.from)?).ok()?;
        self.bytes.get(at..at.checked_add(bytes)?)
    }
}

impl<B: LogBytes + ?Sized> LogBytes for Windowed<'_, B> {
    fn size(&self) -> io::Result<u64> {
        self.log.size()
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut window = self.window.borrow_mut();
        if window.get(out.len(), offset).is_none() {
            if out.len() > WINDOW_BYTES {
                return self.log.read_at(out, offset);
            }
            window.bytes.resize(WINDOW_BYTES, 0);
            window.from = offset;
            let read = self.log.read_at(&mut window.bytes, offset);
            window.bytes.truncate(*read.as_ref().unwrap_or(&0));
            read?;
        }
        // Less than was asked for is there only at the end of the file.
        let at = (offset - window.from) as usize;
        let n = out.len().min(window.bytes.len() - at);
        out[..n].copy_from_slice(&window.bytes[at..at + n]);
        Ok(n)
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
