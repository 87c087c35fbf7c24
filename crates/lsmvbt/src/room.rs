//! Memory in amounts that data decides: where it is refused, an error and not the end of the
//! process.

use crate::error::{Error, Result};
use crate::page::Image;
use crate::types::PAGE_SIZE;

/// Bytes that a page takes in memory at most: its bytes, and its entries twice.
const OF_A_PAGE: usize = 16 * PAGE_SIZE;

/// Makes room for so many more items.
pub(crate) fn reserve<T>(list: &mut Vec<T>, more: usize) -> Result<()> {
    list.try_reserve(more).map_err(|_| Error::NoMemory)
}

/// So many bytes of zeros.
pub(crate) fn zeros(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reserve(&mut bytes, len)?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// A page's bytes, zeros.
pub(crate) fn image() -> Result<Box<Image>> {
    let bytes = zeros(PAGE_SIZE)?.into_boxed_slice();
    <Box<Image>>::try_from(bytes).map_err(|_| Error::NoMemory)
}

/// Refuses where there is no memory for one more page and its entries, before they are made in
/// steps that cannot refuse.
pub(crate) fn for_a_page() -> Result<()> {
    reserve(&mut Vec::<u8>::new(), OF_A_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_can_be_is_an_error() {
        assert!(matches!(zeros(usize::MAX), Err(Error::NoMemory)));
        // A 32-bit machine may have that much.
        #[cfg(target_pointer_width = "64")]
        assert!(matches!(zeros(isize::MAX as usize), Err(Error::NoMemory)));
        assert_eq!(image().unwrap()[..], [0; PAGE_SIZE][..]);
        for_a_page().unwrap();
    }
}
