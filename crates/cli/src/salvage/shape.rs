//! Inserts rows of a table into a new table of the same statement.

use std::collections::BTreeMap;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql};

use super::btree::{Row, Value};

/// The encoding of text in the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    Utf8,
    Utf16le,
    Utf16be,
}

/// A column, in the order in which a row's record has them.
struct Column {
    name: String,
    /// Computed: the record has it, but it is not inserted.
    is_generated: bool,
}

/// The shape of a table's rows, for inserting them.
pub struct Shape {
    table: String,
    columns: Vec<Column>,
    /// The index of the column that is the rowid.
    alias: Option<usize>,
    /// The name that sets the rowid, where no column is the rowid.
    rowid: Option<&'static str>,
    pub is_without_rowid: bool,
}

impl Shape {
    /// The shape of an existing table; `None` where its columns are unknown.
    pub fn of(new: &Connection, table: &str) -> Option<Shape> {
        let list = "SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?1";
        let is_without_rowid = new
            .query_row(list, [table], |row| row.get::<_, bool>(0))
            .ok()?;
        let sql = "SELECT name, type, pk, hidden FROM pragma_table_xinfo(?1)";
        let mut statement = new.prepare(sql).ok()?;
        let found = statement.query_map([table], |row| {
            let (name, kind): (String, String) = (row.get(0)?, row.get(1)?);
            let (key, hidden): (i64, i64) = (row.get(2)?, row.get(3)?);
            Ok((name, kind, key, hidden))
        });
        let found: Vec<_> = found.ok()?.collect::<Result<_, _>>().ok()?;
        let keys = found.iter().filter(|(_, _, key, _)| *key > 0).count();
        // The record does not have virtual columns.
        let stored: Vec<_> = found
            .iter()
            .filter(|(_, _, _, hidden)| *hidden != 2)
            .collect();
        let alias = stored.iter().position(|(_, kind, key, _)| {
            *key == 1 && keys == 1 && kind.eq_ignore_ascii_case("integer") && !is_without_rowid
        });
        let is_taken = |word: &&str| {
            found
                .iter()
                .any(|(name, ..)| name.eq_ignore_ascii_case(word))
        };
        let rowid = ["_rowid_", "rowid", "oid"]
            .into_iter()
            .find(|word| !is_taken(word));
        let mut columns: Vec<Column> = stored
            .iter()
            .map(|(name, _, _, hidden)| Column {
                name: name.clone(),
                is_generated: *hidden == 3,
            })
            .collect();
        if is_without_rowid {
            columns = in_key_order(new, table, columns)?;
        }
        Some(Shape {
            table: quoted(table),
            columns,
            alias,
            rowid: rowid.filter(|_| alias.is_none() && !is_without_rowid),
            is_without_rowid,
        })
    }

    /// Inserts a row; `false` where the table refuses it.
    pub fn insert(&self, new: &Connection, row: Row, encoding: Encoding) -> rusqlite::Result<bool> {
        let (mut names, mut values) = (Vec::new(), Vec::new());
        let rowid = Value::Integer(row.rowid);
        if let Some(name) = self.rowid {
            names.push(name.to_owned());
            values.push(rowid.clone());
        }
        // Older rows lack columns that were added later: these get their default.
        for (nth, (column, value)) in self.columns.iter().zip(row.values).enumerate() {
            if column.is_generated {
                continue;
            }
            names.push(quoted(&column.name));
            values.push(match value {
                Value::Null if self.alias == Some(nth) => rowid.clone(),
                value => decoded(value, encoding),
            });
        }
        let insert = match names.is_empty() {
            true => format!("INSERT OR IGNORE INTO {} DEFAULT VALUES", self.table),
            false => {
                let places = vec!["?"; names.len()].join(",");
                let names = names.join(",");
                format!(
                    "INSERT OR IGNORE INTO {}({names}) VALUES({places})",
                    self.table
                )
            }
        };
        let mut statement = new.prepare_cached(&insert)?;
        Ok(statement.execute(rusqlite::params_from_iter(&values))? == 1)
    }
}

/// The columns of a table without rowids: its key first, as its index has them.
fn in_key_order(new: &Connection, table: &str, columns: Vec<Column>) -> Option<Vec<Column>> {
    let sql = "SELECT x.name FROM pragma_index_list(?1) AS l, pragma_index_xinfo(l.name) AS x
               WHERE l.origin = 'pk' ORDER BY x.seqno";
    let mut statement = new.prepare(sql).ok()?;
    let names = statement.query_map([table], |row| row.get::<_, String>(0));
    let names: Vec<String> = names.ok()?.collect::<Result<_, _>>().ok()?;
    let mut columns: BTreeMap<String, Column> = columns
        .into_iter()
        .map(|column| (column.name.clone(), column))
        .collect();
    names.iter().map(|name| columns.remove(name)).collect()
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A value whose text is UTF-8, as far as it can be converted.
pub fn decoded(value: Value, encoding: Encoding) -> Value {
    match value {
        Value::Text(bytes) => Value::Text(utf8(&bytes, encoding).into_owned()),
        other => other,
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Integer(number) => ValueRef::Integer(*number),
            Value::Real(number) => ValueRef::Real(*number),
            Value::Text(bytes) => ValueRef::Text(bytes),
            Value::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Text as UTF-8, from any encoding.
pub fn utf8(bytes: &[u8], encoding: Encoding) -> std::borrow::Cow<'_, [u8]> {
    let word = |pair: &[u8]| {
        let pair = [pair[0], pair[1]];
        match encoding {
            Encoding::Utf16be => u16::from_be_bytes(pair),
            _ => u16::from_le_bytes(pair),
        }
    };
    match encoding {
        Encoding::Utf8 => bytes.into(),
        _ => {
            let words: Vec<u16> = bytes.chunks_exact(2).map(word).collect();
            String::from_utf16_lossy(&words).into_bytes().into()
        }
    }
}
