//! A version that a handle holds stays readable until it is given up, without a history.

use lsmvbt::{Db, Durability, Error, MemoryFile, Torn, TreeId, TreeKind, Version};

use crate::drive::options;

const TREE: TreeId = TreeId(1);
const ROWS: i64 = 300;

fn open(file: &MemoryFile, torn: Torn) -> Db {
    Db::open(file.storage(), options(torn)).unwrap()
}

/// Replaces every row.
fn commit(db: &mut Db, value: u32) -> lsmvbt::Result<()> {
    db.begin_write()?;
    for key in 0..ROWS {
        db.put_integer(TREE, key, &value.to_le_bytes().repeat(10))?;
    }
    db.set_meta(0, value)?;
    db.commit(Durability::Flush)?;
    Ok(())
}

/// Takes the version once more, reads all of it, and lets go of what it took.
fn read(db: &mut Db, version: Version, value: u32) {
    let view = db.snapshot_at(version).unwrap();
    assert_eq!(db.meta(view.version(), 0).unwrap(), value);
    for key in 0..ROWS {
        let found = db.get_integer(view.version(), TREE, key).unwrap();
        assert_eq!(found, Some(value.to_le_bytes().repeat(10)));
    }
}

#[test]
fn a_held_version_can_be_taken_again_whatever_others_commit() {
    for torn in [Torn::Trust, Torn::Double] {
        let file = MemoryFile::new();
        let (mut writer, mut reader) = (open(&file, torn), open(&file, torn));
        writer.begin_write().unwrap();
        assert_eq!(writer.create_tree(TreeKind::Integer).unwrap(), TREE);
        writer.commit(Durability::Flush).unwrap();
        commit(&mut writer, 1).unwrap();
        let pin = reader
            .snapshot_at(reader.current_version().unwrap())
            .unwrap();
        let version = pin.version();
        for value in 2..12 {
            commit(&mut writer, value).unwrap();
            read(&mut reader, version, 1);
            // One that holds nothing of it does not get it.
            let other = writer.snapshot_at(version);
            assert!(matches!(other, Err(Error::NoSuchVersion { .. })));
        }
        // A writer that dies in its commit, and the next that recovers.
        file.kill_after(Some(5));
        commit(&mut writer, 12).unwrap_err();
        file.kill_after(None);
        drop(writer);
        let mut writer = open(&file, torn);
        commit(&mut writer, 13).unwrap();
        read(&mut reader, version, 1);
        // Given up, it is gone with the next commit.
        drop(pin);
        reader.release_dropped().unwrap();
        commit(&mut writer, 14).unwrap();
        let gone = reader.snapshot_at(version);
        assert!(matches!(gone, Err(Error::NoSuchVersion { .. })));
        assert_eq!(reader.check().unwrap(), Vec::<String>::new());
    }
}

/// There are five read marks, and here every reader has another version. From the newest to the
/// oldest each begins below all marks, and the other way round above them. Each reads all of its
/// version, whatever is committed, and nothing else stays once they are gone.
#[test]
fn more_versions_than_marks_are_held() {
    const VERSIONS: u32 = 12;
    for torn in [Torn::Trust, Torn::Double] {
        for oldest_first in [false, true] {
            let file = MemoryFile::new();
            let mut writer = open(&file, torn);
            writer.begin_write().unwrap();
            assert_eq!(writer.create_tree(TreeKind::Integer).unwrap(), TREE);
            writer.commit(Durability::Flush).unwrap();
            writer.set_history(100).unwrap();
            let mut versions = Vec::new();
            for value in 0..VERSIONS {
                commit(&mut writer, value).unwrap();
                versions.push((writer.current_version().unwrap(), value));
            }
            if !oldest_first {
                versions.reverse();
            }
            let mut readers = Vec::new();
            for &(version, value) in &versions {
                let mut reader = open(&file, torn);
                let held = reader.snapshot_at(version).unwrap();
                readers.push((reader, held, value));
            }
            // From here on only the marks keep them.
            writer.set_history(0).unwrap();
            for value in VERSIONS..VERSIONS + 10 {
                commit(&mut writer, value).unwrap();
            }
            for (reader, held, value) in &mut readers {
                read(reader, held.version(), *value);
            }
            drop(readers);
            commit(&mut writer, 99).unwrap();
            assert_eq!(writer.status().unwrap().oldest_reader, None);
            assert_eq!(writer.check().unwrap(), Vec::<String>::new());
        }
    }
}
