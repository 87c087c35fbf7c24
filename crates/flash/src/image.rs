//! The content of a medium: a sparse array of bytes whose copies share memory.
//!
//! A copy costs a reference count for each block that is not zero. So thousands of crash images of
//! one history can be made from one another.

use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of a block of the image; a device's sectors are smaller.
pub const BLOCK: usize = 4096;

type Block = [u8; BLOCK];

/// The content of a medium. Blocks that were never written, or were zeroed, take no memory.
#[derive(Clone, Debug, Default)]
pub struct Image {
    blocks: HashMap<u64, Arc<Block>>,
    bytes: u64,
}

impl Image {
    /// A medium of `bytes` bytes, all zero.
    pub fn new(bytes: u64) -> Self {
        Self {
            blocks: HashMap::new(),
            bytes,
        }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The blocks that are not zero, by number.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, &[u8; BLOCK])> {
        self.blocks
            .iter()
            .map(|(number, block)| (*number, &**block))
    }

    /// Copies the bytes at `offset` into `out`; zeros beyond the end.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        pieces(offset, out.len(), |number, within, range| {
            let piece = &mut out[range];
            match self.blocks.get(&number) {
                Some(block) => piece.copy_from_slice(&block[within..within + piece.len()]),
                None => piece.fill(0),
            }
        });
    }

    /// Writes `data` at `offset`; drops the part beyond the end.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let fits = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(fits)];
        pieces(offset, data.len(), |number, within, range| {
            self.write_piece(number, within, &data[range]);
        });
    }

    /// Makes `bytes` bytes at `offset` zero.
    pub fn zero(&mut self, offset: u64, bytes: u64) {
        let end = offset.saturating_add(bytes).min(self.bytes);
        if offset >= end {
            return;
        }
        // Whole blocks of zeros are absent, so at most two pieces remain.
        let block = BLOCK as u64;
        let (first, last) = (offset.div_ceil(block), end / block);
        if first >= last {
            let middle = first.saturating_mul(block).clamp(offset, end);
            self.zero_piece(offset, middle);
            self.zero_piece(middle, end);
            return;
        }
        self.zero_piece(offset, first * block);
        self.zero_piece(last * block, end);
        if last - first > self.blocks.len() as u64 {
            self.blocks
                .retain(|number, _| !(first..last).contains(number));
        } else {
            (first..last).for_each(|number| drop(self.blocks.remove(&number)));
        }
    }

    /// A range inside one block.
    fn zero_piece(&mut self, from: u64, to: u64) {
        if from < to {
            let within = (from % BLOCK as u64) as usize;
            self.write_piece(
                from / BLOCK as u64,
                within,
                &[0; BLOCK][..(to - from) as usize],
            );
        }
    }

    fn write_piece(&mut self, number: u64, within: usize, piece: &[u8]) {
        let zero = piece.iter().all(|byte| *byte == 0);
        if zero && (piece.len() == BLOCK || !self.blocks.contains_key(&number)) {
            self.blocks.remove(&number);
            return;
        }
        let block = self
            .blocks
            .entry(number)
            .or_insert_with(|| Arc::new([0; BLOCK]));
        Arc::make_mut(block)[within..within + piece.len()].copy_from_slice(piece);
    }
}

/// Cuts a range at the boundaries of blocks: the block's number, the offset in it, and the part of
/// the range.
fn pieces(offset: u64, bytes: usize, mut each: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < bytes {
        let at = offset + done as u64;
        let within = (at % BLOCK as u64) as usize;
        let now = (bytes - done).min(BLOCK - within);
        each(at / BLOCK as u64, within, done..done + now);
        done += now;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: usize = 5 * BLOCK;

    proptest! {
        #[test]
        fn an_image_is_an_array_of_bytes_and_a_copy_is_a_copy(
            steps in prop::collection::vec((0..BYTES, 0..2 * BLOCK, 0u8..3), 1..30)
        ) {
            let mut image = Image::new(BYTES as u64);
            let mut model = vec![0u8; BYTES];
            let mut copies = Vec::new();
            for (offset, bytes, fill) in steps {
                let end = (offset + bytes).min(BYTES);
                match fill {
                    0 => image.zero(offset as u64, bytes as u64),
                    fill => image.write(offset as u64, &vec![fill; bytes]),
                }
                model[offset..end].fill(fill);
                copies.push((image.clone(), model.clone()));
            }
            for (image, model) in copies {
                let mut read = vec![0xEE; BYTES + 100];
                image.read(0, &mut read);
                prop_assert_eq!(&read[..BYTES], &model[..]);
                prop_assert!(read[BYTES..].iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn blocks_of_zeros_take_no_memory() {
        let mut image = Image::new(BYTES as u64);
        image.write(0, &[0; BYTES]);
        assert_eq!(image.blocks().count(), 0);
        image.write(100, &[1]);
        assert_eq!(image.blocks().count(), 1);
        image.zero(0, BYTES as u64);
        assert_eq!(image.blocks().count(), 0);
    }
}
