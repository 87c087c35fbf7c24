//! A long scan next to a writer.

use lsmvbt::{Db, Durability, MemoryFile, Torn, TreeKind};

use crate::drive::options;
use crate::random::Random;

const ROWS: i64 = 5_000;
const COMMITS: u64 = 10_000;

fn value(row: i64, version: u64) -> Vec<u8> {
    let mut value = vec![0; 100];
    value[..8].copy_from_slice(&row.to_le_bytes());
    value[8..16].copy_from_slice(&version.to_le_bytes());
    value
}

/// The writer is never told to wait, and flushes once a commit. The scan shows its version to its
/// end. The file grows by the versions of rows that it still sees.
#[test]
fn ten_thousand_commits_next_to_a_scan_wait_for_nothing() {
    for torn in [Torn::Trust, Torn::Double] {
        let file = MemoryFile::new();
        let mut writer = Db::open(file.storage(), options(torn)).unwrap();
        writer.begin_write().unwrap();
        let tree = writer.create_tree(TreeKind::Integer).unwrap();
        for row in 0..ROWS {
            writer.put_integer(tree, row, &value(row, 0)).unwrap();
        }
        writer.commit(Durability::Flush).unwrap();
        let mut reader = Db::open(file.storage(), options(torn)).unwrap();
        let snapshot = reader.snapshot().unwrap();
        let mut scan = reader.cursor(snapshot.version(), tree).unwrap();
        assert!(scan.first(&mut reader).unwrap());

        let (before, pages) = (writer.stats(), writer.pages().unwrap());
        let mut dice = Random::new(5);
        let mut seen = 0;
        for version in 1..=COMMITS {
            let row = dice.below(ROWS as u64) as i64;
            writer.begin_write().unwrap();
            writer.put_integer(tree, row, &value(row, version)).unwrap();
            writer.commit(Durability::Flush).unwrap();
            if version % 2 == 0 {
                assert_eq!(scan.value(&mut reader).unwrap(), value(seen, 0));
                seen += 1;
                assert_eq!(scan.next(&mut reader).unwrap(), seen < ROWS);
            }
        }
        assert_eq!(seen, ROWS);
        let (after, grown) = (writer.stats(), writer.pages().unwrap() - pages);
        println!(
            "{torn:?}: {} flushes, {} pages, {} of the header; the file grew from {pages} by {grown} pages",
            after.flushes - before.flushes,
            after.pages_written - before.pages_written,
            after.header_pages_written - before.header_pages_written,
        );
        assert!(after.flushes - before.flushes <= COMMITS + 50);
        assert!(grown <= 3 * pages, "{grown}");
        drop((scan, snapshot));
        reader.close().unwrap();
        assert_eq!(writer.check().unwrap(), Vec::<String>::new());
    }
}
