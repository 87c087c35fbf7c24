//! A byte buffer that direct I/O accepts.
//!
//! It is safe code: the memory is over-allocated by one alignment, and the used part starts at its
//! first aligned byte. The log layer gathers a batch in one such buffer and reuses it.

/// Alignment in bytes of the first byte of every [`AlignedBuf`]. Direct I/O needs a memory
/// alignment of 4 to 512 on today's devices, and never more than a page.
pub const BUFFER_ALIGN: usize = 4096;

/// A growable, reusable byte buffer whose first byte is aligned to [`BUFFER_ALIGN`].
#[derive(Default)]
pub struct AlignedBuf {
    /// The allocation. It is never resized in place: that could move it and lose the alignment.
    raw: Vec<u8>,
    /// Index in `raw` of the first aligned byte.
    start: usize,
    /// Bytes in use from `start` on.
    len: usize,
}

impl AlignedBuf {
    /// An empty buffer without an allocation.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer that holds `bytes` bytes without a further allocation.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        if bytes == 0 {
            return Self::new();
        }
        let raw = vec![0_u8; bytes.saturating_add(BUFFER_ALIGN - 1)];
        let past = raw.as_ptr().addr() % BUFFER_ALIGN;
        let start = if past == 0 { 0 } else { BUFFER_ALIGN - past };
        Self { raw, start, len: 0 }
    }

    /// A buffer of `bytes` zero bytes.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        // A fresh allocation is already zero.
        Self {
            len: bytes,
            ..Self::with_capacity(bytes)
        }
    }

    /// Bytes in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no byte is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that fit without a further allocation.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.raw.len().saturating_sub(BUFFER_ALIGN - 1)
    }

    /// The bytes in use. The first one is aligned to [`BUFFER_ALIGN`].
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.raw[self.start..self.start + self.len]
    }

    /// The bytes in use, mutable.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.raw[self.start..self.start + self.len]
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Makes the buffer `len` bytes long. New bytes are zero.
    pub fn resize_zeroed(&mut self, len: usize) {
        if len > self.len {
            self.reserve(len - self.len);
            self.raw[self.start + self.len..self.start + len].fill(0);
        }
        self.len = len;
    }

    /// Makes the buffer `len` bytes long. The caller writes all of them: until then they are what
    /// the buffer held before.
    pub fn resize_to_overwrite(&mut self, len: usize) {
        self.reserve(len.saturating_sub(self.len));
        self.len = len;
    }

    /// Appends `bytes`.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        let end = self.start + self.len;
        self.raw[end..end + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Makes room for `additional` more bytes; grows by doubling.
    #[inline]
    pub fn reserve(&mut self, additional: usize) {
        let needed = self.len.saturating_add(additional);
        if needed > self.capacity() {
            self.grow(needed);
        }
    }

    #[cold]
    fn grow(&mut self, needed: usize) {
        let mut grown = Self::with_capacity(needed.max(self.capacity().saturating_mul(2)));
        grown.raw[grown.start..grown.start + self.len].copy_from_slice(self.as_slice());
        grown.len = self.len;
        *self = grown;
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedBuf")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Extend(Vec<u8>),
        Resize(usize),
        Overwrite(usize, u8),
        Clear,
        Reserve(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => prop::collection::vec(any::<u8>(), 0..6000).prop_map(Step::Extend),
            4 => (0_usize..20_000).prop_map(Step::Resize),
            4 => (0_usize..20_000, any::<u8>()).prop_map(|(len, with)| Step::Overwrite(len, with)),
            1 => Just(Step::Clear),
            1 => (0_usize..20_000).prop_map(Step::Reserve),
        ]
    }

    proptest! {
        /// proptest prints the failing case and its seed. PROPTEST_RNG_SEED replays a seed.
        #[test]
        fn behaves_as_a_vec_and_stays_aligned(steps in prop::collection::vec(step(), 0..24)) {
            let mut model: Vec<u8> = Vec::new();
            let mut buf = AlignedBuf::new();
            for step in steps {
                match step {
                    Step::Extend(bytes) => {
                        model.extend_from_slice(&bytes);
                        buf.extend_from_slice(&bytes);
                    }
                    Step::Resize(len) => {
                        model.resize(len, 0);
                        buf.resize_zeroed(len);
                    }
                    Step::Overwrite(len, with) => {
                        model = vec![with; len];
                        buf.resize_to_overwrite(len);
                        buf.as_mut_slice().fill(with);
                    }
                    Step::Clear => {
                        model.clear();
                        buf.clear();
                    }
                    Step::Reserve(bytes) => {
                        buf.reserve(bytes);
                        prop_assert!(buf.capacity() >= buf.len() + bytes);
                    }
                }
                prop_assert_eq!(buf.as_slice(), &model[..]);
                prop_assert!(buf.capacity() == 0 || buf.as_ptr().addr().is_multiple_of(BUFFER_ALIGN));
            }
        }
    }

    #[test]
    fn a_zeroed_buffer_is_zero_and_aligned_wherever_it_lies() {
        // Several are alive at once, so that the allocator hands out different addresses.
        let bufs: Vec<_> = (1..60).map(|n| AlignedBuf::zeroed(n * 517)).collect();
        for (n, buf) in (1..60).zip(&bufs) {
            assert_eq!(buf.len(), n * 517);
            assert_eq!(buf.as_ptr().addr() % BUFFER_ALIGN, 0);
            assert!(buf.iter().all(|&b| b == 0));
        }
    }
}
