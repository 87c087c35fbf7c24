//! The rows that a statement returns, as text.

use rusqlite::Connection;
use rusqlite::types::ValueRef;

/// All rows of a statement. `|` separates columns, a space separates rows.
pub fn query(db: &Connection, statement: &str) -> rusqlite::Result<String> {
    let mut prepared = db.prepare(statement)?;
    let columns = prepared.column_count();
    let mut rows = prepared.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let mut texts = Vec::new();
        for column in 0..columns {
            texts.push(match row.get_ref(column)? {
                ValueRef::Null => "null".to_owned(),
                ValueRef::Integer(n) => n.to_string(),
                ValueRef::Real(x) => x.to_string(),
                ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                ValueRef::Blob(blob) => format!("{} bytes", blob.len()),
            });
        }
        all.push(texts.join("|"));
    }
    Ok(all.join(" "))
}
