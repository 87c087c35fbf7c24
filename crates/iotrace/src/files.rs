//! The purposes of files.
//!
//! The purpose follows from the name that SQLite gives a file, but never from the name alone. A
//! file is a log, a journal or a wal-index only if the database in its name exists or existed. A
//! file is a database only if one of those is or was next to it, or if it begins as databases do.

use std::collections::HashMap;
use std::fs::File as FsFile;
use std::io::Read;
use std::path::Path;

use crate::attribute::Seen;
use crate::io::{File, FileId, Kind};

/// The first bytes of every database.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The endings of the files next to a database.
const COMPANIONS: [(&str, Kind); 4] = [
    ("-onewrite", Kind::Log),
    ("-wal", Kind::Log),
    ("-journal", Kind::RollbackJournal),
    ("-shm", Kind::WalIndex),
];

/// The purpose of each file. `paths` are all seen files, `root` is the mount point of the file
/// system.
pub(crate) fn tell(seen: Vec<Seen>, paths: &HashMap<String, FileId>, root: &Path) -> Vec<File> {
    let tell = |seen: Seen| match seen.path {
        Some(path) => File {
            kind: kind(&path, paths, root),
            path,
        },
        None => File {
            path: format!("(inode {})", seen.inode.number),
            kind: Kind::Unknown,
        },
    };
    seen.into_iter().map(tell).collect()
}

fn kind(path: &str, paths: &HashMap<String, FileId>, root: &Path) -> Kind {
    for (ending, kind) in COMPANIONS {
        let base = path.strip_suffix(ending);
        if base.is_some_and(|base| paths.contains_key(base)) {
            return kind;
        }
    }
    // SQLite's super-journal: the database's name, "-mj" and hexadecimal digits.
    if let Some((base, digits)) = path.rsplit_once("-mj")
        && !digits.is_empty()
        && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        && paths.contains_key(base)
    {
        return Kind::RollbackJournal;
    }
    let has_companion = |(ending, _): &(&str, Kind)| paths.contains_key(&format!("{path}{ending}"));
    if COMPANIONS.iter().any(has_companion) || begins_as_database(&root.join(path)) {
        return Kind::Database;
    }
    Kind::Other
}

fn begins_as_database(path: &Path) -> bool {
    let mut begin = [0; 16];
    let is_file = path.symlink_metadata().is_ok_and(|meta| meta.is_file());
    let mut read = || FsFile::open(path)?.read_exact(&mut begin);
    is_file && read().is_ok() && begin == *MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_told_by_its_name_and_the_company_it_keeps() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("alone.db"), [&MAGIC[..], &[0; 84]].concat()).unwrap();
        std::fs::write(dir.path().join("text.db"), "no database").unwrap();
        let names = [
            ("a.db", Kind::Database),
            ("a.db-onewrite", Kind::Log),
            ("a.db-shm", Kind::WalIndex),
            ("a.db-mj0A1B2C3D9", Kind::RollbackJournal),
            ("a.db-mjolnir", Kind::Other),
            ("sub/b", Kind::Database),
            ("sub/b-journal", Kind::RollbackJournal),
            ("sub/b-wal", Kind::Log),
            ("alone.db", Kind::Database),
            ("text.db", Kind::Other),
            ("missing.db", Kind::Other),
            ("fire-wal", Kind::Other),
        ];
        let seen = |path: &str| Seen {
            inode: crate::events::Inode::of(1),
            path: Some(path.to_owned()),
        };
        let paths = names
            .iter()
            .map(|(name, _)| ((*name).to_owned(), FileId(0)))
            .collect();
        let all = names.iter().map(|(name, _)| seen(name)).collect();
        for (file, (name, kind)) in tell(all, &paths, dir.path()).iter().zip(names) {
            assert_eq!((file.path.as_str(), file.kind), (name, kind));
        }
        let unnamed = Seen {
            inode: crate::events::Inode::of(12),
            path: None,
        };
        let told = tell(vec![unnamed], &HashMap::new(), dir.path());
        assert_eq!(
            (told[0].path.as_str(), told[0].kind),
            ("(inode 12)", Kind::Unknown)
        );
    }
}
