//! Pages of one byte, again and again: they share memory.
//!
//! Most pages of a large device hold what fills it. With this, such a page takes the memory of its
//! out-of-band area alone, and a device of many GiB fits into memory.

use std::sync::Arc;

/// The byte that all bytes of a page are, if they are the same.
pub(crate) fn uniform(data: &[u8]) -> Option<u8> {
    let (first, rest) = data.split_first()?;
    (rest == &data[..rest.len()]).then_some(*first)
}

/// The pages that are shared, by their byte.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filled {
    pages: Vec<Option<Arc<[u8]>>>,
}

impl Filled {
    /// A page of `length` bytes, all `byte`. Of each byte there is one length.
    pub(crate) fn page(&mut self, byte: u8, length: usize) -> Arc<[u8]> {
        self.pages.resize(256, None);
        let page = &mut self.pages[usize::from(byte)];
        Arc::clone(page.get_or_insert_with(|| vec![byte; length].into()))
    }

    /// The same data, shared if it is of one byte.
    pub(crate) fn share(&mut self, data: Arc<[u8]>) -> Arc<[u8]> {
        match uniform(&data) {
            Some(byte) => self.page(byte, data.len()),
            None => data,
        }
    }
}
