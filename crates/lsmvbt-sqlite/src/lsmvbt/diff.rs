//! The table-valued function `lsmvbt_diff`: which rows of a table differ between two versions.

use lsmvbt::{Change, Snapshot, TreeId, Version};

use super::{SCHEMA, Session, error};
use crate::engine::{Error, Result};

/// The number of the header that has the encoding of texts: 1 UTF-8, 2 UTF-16 little-endian, 3
/// big-endian.
const ENCODING: usize = 5;

/// A row of `sqlite_schema`: the name and the root of a table.
struct Table {
    name: Vec<u8>,
    root: u32,
}

impl Session {
    /// The rows that differ. Without `to`, up to the newest version.
    pub(super) fn diff_of(
        &mut self,
        table: &str,
        from: &str,
        to: Option<&str>,
    ) -> Result<Vec<Change>> {
        let old = self.held(Some(from))?;
        let new = self.held(to)?;
        let before = self.table(old.version(), table)?;
        let after = self.table(new.version(), table)?;
        if before.is_none() && after.is_none() {
            return Err(Error::Refused(format!(
                "there is no table {table} in version {} or {}",
                old.version().0,
                new.version().0
            )));
        }
        let place = |view: Version, tree: Option<TreeId>| tree.map(|tree| (view, tree));
        let (old, new) = (old.version(), new.version());
        match self.db.diff(place(old, before), place(new, after)) {
            Err(lsmvbt::Error::WrongKind(_)) => Err(Error::Refused(format!(
                "{table} is WITHOUT ROWID: ATTACH with version= and EXCEPT compare such tables"
            ))),
            other => other.map_err(error),
        }
    }

    /// Holds a version while it is read.
    fn held(&mut self, version: Option<&str>) -> Result<Snapshot> {
        match version {
            Some(version) => {
                let version = self.version_named(version)?;
                self.db.snapshot_at(version)
            }
            None => self.db.snapshot(),
        }
        .map_err(error)
    }

    /// The tree of a table at a version.
    fn table(&mut self, view: Version, name: &str) -> Result<Option<TreeId>> {
        if ["sqlite_schema", "sqlite_master"]
            .iter()
            .any(|all| name.eq_ignore_ascii_case(all))
        {
            return Ok(Some(TreeId(SCHEMA)));
        }
        let encoding = self.db.metas(view).map_err(error)?[ENCODING];
        let mut cursor = self.db.cursor(view, TreeId(SCHEMA)).map_err(error)?;
        let mut is_there = cursor.first(&mut self.db).map_err(error)?;
        while is_there {
            let record = cursor.value(&mut self.db).map_err(error)?;
            if let Some(table) = table_of(&record, encoding)
                && decoded(&table.name, encoding).eq_ignore_ascii_case(name)
            {
                if table.root == 0 {
                    return Err(Error::Refused(format!("{name} is a virtual table")));
                }
                return Ok(Some(TreeId(table.root)));
            }
            is_there = cursor.next(&mut self.db).map_err(error)?;
        }
        Ok(None)
    }
}

fn decoded(text: &[u8], encoding: u32) -> String {
    let units = text.chunks_exact(2).map(|pair| match encoding {
        3 => u16::from_be_bytes([pair[0], pair[1]]),
        _ => u16::from_le_bytes([pair[0], pair[1]]),
    });
    match encoding {
        2 | 3 => char::decode_utf16(units)
            .map(|c| c.unwrap_or('\u{fffd}'))
            .collect(),
        _ => String::from_utf8_lossy(text).into_owned(),
    }
}

/// A variable-length integer of SQLite's record format.
fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for i in 0..9 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if i == 8 {
            return Some(value << 8 | u64::from(byte));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            break;
        }
    }
    Some(value)
}

/// Bytes of a value of this type in a record.
fn size(kind: u64) -> usize {
    match kind {
        1..=4 => kind as usize,
        5 => 6,
        6 | 7 => 8,
        12.. => ((kind - 12) / 2) as usize,
        _ => 0,
    }
}

/// Reads a row of the schema: type, name, tbl_name, rootpage, sql. `None` if it is of no table.
fn table_of(record: &[u8], encoding: u32) -> Option<Table> {
    let mut at = 0;
    let mut value_at = usize::try_from(varint(record, &mut at)?).ok()?;
    let mut values: [&[u8]; 4] = [&[]; 4];
    let mut kind = 0;
    for value in &mut values {
        kind = varint(record, &mut at)?;
        let end = value_at.checked_add(size(kind))?;
        *value = record.get(value_at..end)?;
        value_at = end;
    }
    let root = match kind {
        9 => 1,
        _ => values[3]
            .iter()
            .fold(0, |root, byte| root << 8 | u32::from(*byte)),
    };
    (decoded(values[0], encoding) == "table").then(|| Table {
        name: values[1].to_vec(),
        root,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_schema_is_read_and_a_short_one_is_not() {
        // table, t, t, 300, NULL
        let record = b"\x06\x17\x0f\x0f\x02\x00tablett\x01\x2c";
        let table = table_of(record, 1).unwrap();
        assert_eq!((table.name.as_slice(), table.root), (&b"t"[..], 300));
        for end in 0..record.len() {
            assert!(table_of(&record[..end], 1).is_none(), "{end}");
        }
        let index = b"\x06\x17\x0f\x0f\x01\x00indextt\x02";
        assert!(table_of(index, 1).is_none());
        assert_eq!(decoded(b"t\0a\0", 2), "ta");
        assert_eq!(decoded(b"\0t\0a", 3), "ta");
    }
}
