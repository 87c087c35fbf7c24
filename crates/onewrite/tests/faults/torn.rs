//! A write of which a power cut leaves only some sectors.

use onewrite::log::{Log, OpenLog};
use onewrite::mode::{InitPolicy, JournalMode};
use onewrite::storage::{Access, DirectIo, Durability, NewFile};
use onewrite::wal::{HEADER_BYTES, PageSize};

/// In `direct` the log's header shares its block with the first frames, which may be whole
/// transactions of small pages. Suppose that writing a new header wiped them. A torn write could
/// leave the old header, some of the old transactions, and not the last ones. Recovery would then
/// read them over newer pages.
#[test]
fn a_new_header_of_a_stock_log_changes_nothing_but_itself() {
    let directory = super::directory();
    let path = directory.path().join("db-wal");
    std::fs::write(&path, [7; 3 * 4096]).expect("a log");
    let open = OpenLog {
        path: &path,
        companions_of: &path,
        mode: JournalMode::Direct,
        page: PageSize::new(512).expect("a page size"),
        access: Access::ReadWrite,
        new_file: NewFile {
            mode: 0o600,
            owner: None,
        },
        init: InitPolicy::Auto,
        direct: DirectIo::Auto,
        patience: &onewrite::storage::Short,
    };
    let log = Log::open_stock(&open).expect("the log");
    log.write_wal_header(&[9; HEADER_BYTES], Durability::WriteThrough)
        .expect("a header");
    let mut expected = vec![7; 3 * 4096];
    expected[..HEADER_BYTES].fill(9);
    assert!(std::fs::read(&path).expect("the log") == expected);
}
