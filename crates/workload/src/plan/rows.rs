//! Compares the rows of a table with the expected ones.

use rusqlite::Connection;
use rusqlite::types::{Value, ValueRef};

/// The number of rows, and the first difference from the expected ones, if any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Rows in all tables.
    pub(crate) rows: u64,
    /// The first difference.
    pub(crate) difference: Option<String>,
}

impl Found {
    /// The findings in one table and in the next ones.
    pub(super) fn and(self, next: Self) -> Self {
        Self {
            rows: self.rows + next.rows,
            difference: self.difference.or(next.difference),
        }
    }
}

/// Compares a query's rows with `expected`, in order and column by column. The first column, which
/// must be a key, identifies a row.
pub(super) fn compare(
    connection: &Connection,
    table: &str,
    sql: &str,
    expected: impl IntoIterator<Item = Vec<Value>>,
) -> rusqlite::Result<Found> {
    let mut statement = connection.prepare(sql)?;
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut cursor = statement.query(())?;
    let mut found = Found::default();
    let mut wanted = 0u64;
    let mut expected = expected.into_iter();
    loop {
        let want = expected.next();
        wanted += u64::from(want.is_some());
        let Some(row) = cursor.next()? else {
            wanted += expected.count() as u64;
            break;
        };
        found.rows += 1;
        let Some(want) = want else { continue };
        for (column, want) in want.into_iter().enumerate() {
            if found.difference.is_none() && row.get_ref(column)? != ValueRef::from(&want) {
                let key = shown(row.get_ref(0)?);
                found.difference = Some(format!(
                    "{table}: {} {key}: {} is {}, expected {}",
                    columns[0],
                    columns[column],
                    shown(row.get_ref(column)?),
                    shown(ValueRef::from(&want))
                ));
            }
        }
    }
    if found.rows != wanted {
        // The count says more than the first different row: a missing row shifts all others.
        let first = found.difference.map_or_else(String::new, |first| {
            format!("; the first that differs: {first}")
        });
        found.difference = Some(format!(
            "{table}: {} rows, expected {wanted}{first}",
            found.rows
        ));
    }
    Ok(found)
}

/// A value as shown in a message: the beginning of a long one.
fn shown(value: ValueRef<'_>) -> String {
    const CHARACTERS: usize = 40;
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Blob(bytes) => format!("a BLOB of {} bytes", bytes.len()),
        ValueRef::Text(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            let beginning: String = text.chars().take(CHARACTERS).collect();
            let more = if beginning.len() < text.len() {
                "..."
            } else {
                ""
            };
            format!("{beginning:?}{more}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(expected: &[(i64, &str)]) -> Found {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("CREATE TABLE t (id, a); INSERT INTO t VALUES (1, 'x'), (2, NULL)")
            .unwrap();
        let expected = expected.iter().map(|(id, text)| match *text {
            "NULL" => vec![Value::Integer(*id), Value::Null],
            text => vec![Value::Integer(*id), Value::Text(text.to_owned())],
        });
        compare(
            &connection,
            "t",
            "SELECT id, a FROM t ORDER BY id",
            expected,
        )
        .unwrap()
    }

    #[test]
    fn a_difference_names_the_row_and_the_column() {
        assert_eq!(found(&[(1, "x"), (2, "NULL")]).difference, None);
        let difference = |expected| found(expected).difference.unwrap();
        assert_eq!(
            difference(&[(1, "y"), (2, "z")]),
            "t: id 1: a is \"x\", expected \"y\""
        );
        assert_eq!(
            difference(&[(1, "x"), (2, "z")]),
            "t: id 2: a is NULL, expected \"z\""
        );
        assert_eq!(difference(&[(1, "x")]), "t: 2 rows, expected 1");
        assert!(
            difference(&[(0, "x"), (1, "x"), (2, "NULL")])
                .starts_with("t: 2 rows, expected 3; the first that differs: t: id 1: id is 1")
        );
    }

    #[test]
    fn tables_add_up_and_the_first_difference_stays() {
        let right = found(&[(1, "x"), (2, "NULL")]);
        let wrong = found(&[(1, "x")]);
        assert_eq!(right.clone().and(wrong.clone()).rows, 4);
        assert_eq!(
            right.clone().and(wrong.clone()).difference,
            wrong.difference
        );
        assert_eq!(wrong.clone().and(right).difference, wrong.difference);
    }
}
