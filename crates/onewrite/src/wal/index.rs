//! What the engine takes from SQLite's wal-index.

use super::{FrameNo, Salts};

/// What the wal-index says now, as far as the connection has mapped it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexView {
    /// The present generation.
    pub salts: Salts,
    /// The last published frame.
    pub last_frame: FrameNo,
    /// The checksum at that frame.
    pub checksum: [u8; 8],
}
