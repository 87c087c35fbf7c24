//! Whether `embedded` pages may be exchanged as they are: with their frame header in the reserved
//! bytes.

use onewrite::checkpoint::Remapping;
use onewrite::log::Geometry;
use onewrite::log::scan::survey_file;
use onewrite::mode::Layout;
use onewrite::storage::{Access, Create, DirectIo, Init, LogFile, Move, Remap};
use onewrite::wal::{FrameNo, PageSize};
use onewrite_common::files::companion;

use super::database::{Mount, connect, query};

#[test]
fn sqlite_reads_an_embedded_page_as_it_is_but_the_log_loses_its_header() {
    let Some(mount) = Mount::xfs() else { return };
    let path = mount.path();
    let db = connect(&path, "onewrite");
    let sql =
        |statement: &str| query(&db, statement).unwrap_or_else(|e| panic!("{statement}: {e}"));
    assert_eq!(sql("PRAGMA journal_mode=waldio"), "waldio");
    sql("PRAGMA wal_autocheckpoint=0");
    sql("CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
    sql("INSERT INTO t VALUES(1, 'old')");
    sql("PRAGMA wal_checkpoint(TRUNCATE)");
    // The next generation's only frame: page 2.
    sql("UPDATE t SET x = 'new'");
    let log_path = companion(&path, "-onewrite");
    let valid = || {
        survey_file(&log_path)
            .expect("the log")
            .map(|survey| survey.valid)
    };
    assert_eq!(valid(), Some(1));
    let geometry = Geometry::new(Layout::Embedded, PageSize::new(4096).expect("a size"), 512);
    let log = LogFile::open(&log_path, Create::Never, Access::ReadWrite, DirectIo::Never);
    let moved = Remapping {
        log: &log.expect("the log"),
        database: &path,
        how: Remap::Exchange,
        moves: &[Move {
            log: geometry.expect("a layout").page_offset(FrameNo(1)),
            database: 4096,
            bytes: 4096,
        }],
        init: Init::ZeroFill,
    };
    assert_eq!(moved.run(|| true, || ()).expect("made").done, [true]);
    assert_eq!(valid(), Some(0), "nothing tells any more which page it was");
    // SQLite's view of such a database without its log.
    let copy = mount.path();
    let copied = std::process::Command::new("cp")
        .args([&path, &copy])
        .status();
    assert!(copied.expect("cp").success());
    let mut bytes = std::fs::read(&copy).expect("the copy");
    bytes[19] = 2;
    bytes[72..80].fill(0);
    assert!(
        bytes[8192 - 24..8192].iter().any(|&byte| byte != 0),
        "the header came along"
    );
    std::fs::write(&copy, bytes).expect("written");
    let stock = connect(&copy, "unix");
    assert_eq!(query(&stock, "SELECT x FROM t").as_deref(), Ok("new"));
    assert_eq!(query(&stock, "PRAGMA integrity_check").as_deref(), Ok("ok"));
}
