//! Numbers in structures that the kernel wrote.

/// The `N` bytes at `at`; `None` if there are fewer.
pub(crate) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
