//! Headers: SQLite's log and frames, and our log.

use onewrite::log::{HeaderError, LogHeader};
use onewrite::wal::{FRAME_HEADER_BYTES, FrameHeader, WalHeader};

use crate::bytes::Bytes;
use crate::change::{mend_header, overwrite};

/// SQLite's WAL header and one frame after it.
pub fn wal(data: &[u8]) {
    let mut input = Bytes::new(data);
    let mends = input.byte() & 1 == 1;
    let mut file = vec![0; 32 + FRAME_HEADER_BYTES];
    overwrite(&mut file, 0, input.take(32 + FRAME_HEADER_BYTES));
    let page = input.rest();
    if mends {
        let [a, b] = onewrite::wal::checksum(file[3] & 1 == 1, [0, 0], &file[..24]);
        overwrite(&mut file, 24, &a.to_be_bytes());
        overwrite(&mut file, 28, &b.to_be_bytes());
    }
    let header = file.first_chunk().and_then(WalHeader::parse);
    let frame = file[32..].first_chunk().map(FrameHeader::parse);
    if let Some(frame) = frame {
        assert_eq!(frame.to_bytes()[..], file[32..], "a frame's header");
    }
    let (Some(header), Some(frame)) = (header, frame) else {
        return;
    };
    assert!(header.page_size.bytes().is_power_of_two());
    assert!((512..=65_536).contains(&header.page_size.bytes()));
    let page = &page[..page.len() / 8 * 8];
    let built = FrameHeader::build(
        frame.page,
        frame.commit_pages,
        &header,
        header.checksum(),
        page,
    );
    let same = built == frame && frame.page.0 != 0;
    assert_eq!(frame.follows(&header, header.checksum(), page), same);
}

/// The first block of our log.
pub fn log(data: &[u8]) {
    let mut file = data.to_vec();
    if file.pop().is_some_and(|last| last & 1 == 1) {
        mend_header(&mut file);
    }
    match LogHeader::parse(&file) {
        Ok(header) => {
            let again = LogHeader::parse(&header.to_bytes());
            assert_eq!(again, Ok(header), "read, written and read");
            let wal = header.wal_header();
            assert!(wal.is_none() || !header.is_empty());
        }
        Err(HeaderError::Truncated(n)) => assert_eq!(n, file.len()),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}
