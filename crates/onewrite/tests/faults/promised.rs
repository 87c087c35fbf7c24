//! A wal-index that has a frame which is not in the log. Its writer ended before we got the last
//! bytes, because a VFS between SQLite and ours kept them back.

use super::stock::{LAYOUTS, PAGE_BYTES, Stock};
use onewrite::log::{ErrorKind, LogError};
use onewrite::mode::Layout;
use onewrite::wal::{FrameHeader, FrameNo, IndexView, PageNo, Salts, WalHeader};

/// A commit of the frames before `promised`. Frame `promised` is begun, and published with them.
fn commit_and_promise(stock: &mut Stock, promised: u32) {
    stock.transaction(1..=promised - 1);
    let page = Stock::page_of(promised - 1);
    let number = PageNo(promised - 1);
    let header = FrameHeader::build(number, 20, &stock.header, stock.checksum, &page);
    let at = stock.page.frame_range(FrameNo(promised)).start;
    stock.write(&header.to_bytes(), at);
    stock.write(&page[..200], at + 24);
    stock.commit(promised);
}

fn read_page(stock: &mut Stock, frame: u32) -> Result<Vec<u8>, LogError> {
    let index = Some(stock.published);
    read_page_by(stock, frame, index)
}

fn read_page_by(
    stock: &mut Stock,
    frame: u32,
    index: Option<IndexView>,
) -> Result<Vec<u8>, LogError> {
    let mut page = vec![0; PAGE_BYTES];
    let at = stock.page.frame_range(FrameNo(frame)).start + 24;
    stock.writer.read(&mut page, at, index).map(|()| page)
}

fn restart(stock: &mut Stock, salts: Salts) {
    stock.header = WalHeader::build(stock.page, 1, salts);
    stock.checksum = stock.header.checksum();
    stock.published.salts = salts;
    stock.published.last_frame = FrameNo(0);
    stock.writer.transaction_may_begin();
    stock.write(&stock.header.bytes.clone(), 0);
}

#[test]
fn a_promised_frame_that_is_not_in_the_log_is_an_error() {
    for layout in LAYOUTS {
        let mut stock = Stock::new(layout);
        // The second generation overwrites the first, whose frame 3 is whole.
        stock.transaction(1..=5);
        stock.commit(5);
        restart(&mut stock, Salts(*b"promised"));
        commit_and_promise(&mut stock, 3);
        for frame in 1..=2 {
            let page = read_page(&mut stock, frame).expect("a page");
            assert!(page == Stock::page_of(frame), "{layout}: frame {frame}");
        }
        let error = read_page(&mut stock, 3).expect_err("a page of another generation");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{layout}");
        assert!(
            error.to_string().contains("does not hold frame 3"),
            "{layout}: {error}"
        );
        assert_eq!(stock.last_commit(), Some(2), "{layout}");
    }
}

/// Such a VFS may pass us a rolled-back transaction together with the next one.
#[test]
fn the_begin_of_a_frame_is_not_written_over_one_that_was_rolled_back() {
    for layout in LAYOUTS {
        let mut stock = Stock::new(layout);
        for frame in 1..=9 {
            stock.frame(frame, false, true);
        }
        stock.checksum = stock.header.checksum();
        commit_and_promise(&mut stock, 3);
        let Err(error) = read_page(&mut stock, 3) else {
            panic!("{layout}: a page that was rolled back")
        };
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{layout}");
        assert_eq!(stock.last_commit(), Some(2), "{layout}");
    }
}

/// Such a VFS reads a file from one end to the other when it opens it.
#[test]
fn what_was_not_promised_is_read_as_it_is() {
    for layout in LAYOUTS {
        let mut stock = Stock::new(layout);
        stock.transaction(1..=3);
        stock.commit(3);
        match (layout, read_page(&mut stock, 4)) {
            (Layout::Embedded | Layout::Compressed | Layout::Packed, _) => {}
            (_, page) => assert!(page.expect("a page") == [0; PAGE_BYTES], "{layout}"),
        }
    }
}

/// A connection with a private wal-index (`locking_mode=EXCLUSIVE`) asks for frames that it has
/// published.
#[test]
fn a_page_that_is_missing_is_never_zeros() {
    for layout in [Layout::Embedded, Layout::Compressed, Layout::Packed] {
        let mut stock = Stock::new(layout);
        stock.transaction(1..=3);
        stock.commit(3);
        let page = read_page_by(&mut stock, 3, None).expect("a page");
        assert!(page == Stock::page_of(3), "{layout}");
        let error = read_page_by(&mut stock, 4, None).expect_err("there is no frame 4");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{layout}");
    }
}
