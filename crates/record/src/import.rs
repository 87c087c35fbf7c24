//! SQL from other sources: `.sql` files, the output of `sqlite3 .dump`, and JSON lists of
//! operations.
//!
//! PocketData publishes such lists (github.com/UBOdin/pocketdata-benchmark). A list is an object.
//! Its `init` has the statements that make the database. In its `benchmark`, `{"op": "query",
//! "sql": ...}` is a statement, and `{"op": "break", "delta": ...}` is a pause in milliseconds. An
//! array alone is a `benchmark`.

use std::fmt;
use std::io::{self, Read};

use serde::Deserialize;

use crate::sql;

/// Bytes of one read.
const PIECE_BYTES: usize = 64 << 10;

/// The longest statement: SQLite's default limit, 1,000,000,000 bytes.
const MOST_BYTES: usize = 1_000_000_000;

/// Why something cannot be imported.
#[derive(Debug)]
pub enum Error {
    /// The system's error.
    Io(io::Error),
    /// The input is not a list of operations.
    Json(serde_json::Error),
    /// An unknown operation, by its number from 1.
    Operation(usize, String),
    /// A statement that does not end.
    Endless,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => error.fmt(f),
            Error::Json(error) => write!(
                f,
                "{error}; a list is [{{\"op\": \"query\", \"sql\": ...}}, {{\"op\": \"break\", \"delta\": MS}}, ...], or \
                 an object with such a list as \"benchmark\" and statements as \"init\""
            ),
            Error::Operation(number, what) => write!(f, "operation {number}: {what}"),
            Error::Endless => write!(f, "a statement is longer than {MOST_BYTES} bytes"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            Error::Json(error) => Some(error),
            _ => None,
        }
    }
}

/// The statements of a text, one at a time, in memory bounded by the longest.
#[derive(Debug)]
pub struct Script<R> {
    input: R,
    waiting: Vec<u8>,
    /// The offset in `waiting` at which the next statement begins.
    at: usize,
    /// Bytes from there on in which no statement ends.
    looked_at: usize,
    ended: bool,
}

impl<R: Read> Script<R> {
    /// Begins at the start of a text.
    pub fn new(input: R) -> Self {
        Self {
            input,
            waiting: Vec::new(),
            at: 0,
            looked_at: 0,
            ended: false,
        }
    }

    /// The next statement, including its semicolon. The last statement may have none.
    ///
    /// # Errors
    /// The system's, and a statement without end.
    pub fn next_statement(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            let rest = self.waiting.get(self.at..).unwrap_or_default();
            // Search again only when there are twice as many bytes. Long statements stay linear.
            let end = match rest.len() >= 2 * self.looked_at || self.ended {
                true => sql::statement_end(rest),
                false => None,
            };
            // An apparent end may be the middle, where the text goes on in a comment or a literal.
            if let Some(end) = end {
                let statement = rest.get(..end).unwrap_or_default().to_vec();
                self.at += end;
                self.looked_at = 0;
                match sql::tokens(&statement).any(|token| token.kind != sql::Kind::End) {
                    true => return Ok(Some(statement)),
                    false => continue,
                }
            }
            if self.ended {
                let last = rest.to_vec();
                self.at = self.waiting.len();
                let is_any = sql::tokens(&last).next().is_some();
                return Ok(is_any.then_some(last));
            }
            self.looked_at = self.looked_at.max(rest.len());
            self.more()?;
        }
    }

    fn more(&mut self) -> Result<(), Error> {
        self.waiting.drain(..self.at);
        self.at = 0;
        if self.waiting.len() > MOST_BYTES {
            return Err(Error::Endless);
        }
        let piece = PIECE_BYTES.max(self.waiting.len()) as u64;
        let mut input = io::Read::take(&mut self.input, piece);
        let got = input.read_to_end(&mut self.waiting).map_err(Error::Io)?;
        self.ended = (got as u64) < piece;
        Ok(())
    }
}

/// A list of operations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct List {
    /// Statements that make the initial database.
    pub init: Vec<String>,
    /// The operations on it.
    pub operations: Vec<Operation>,
}

/// One operation of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A statement.
    Query(String),
    /// A pause between transactions, in milliseconds.
    Break(u64),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    Operations(Vec<Item>),
    WithInit {
        #[serde(default)]
        init: Vec<Item>,
        benchmark: Vec<Item>,
    },
}

#[derive(Deserialize)]
struct Item {
    op: Option<String>,
    sql: Option<String>,
    delta: Option<serde_json::Number>,
}

/// Reads a list.
///
/// # Errors
/// The input is not a list, or has unknown operations.
pub fn list(input: impl Read) -> Result<List, Error> {
    let document: Document = serde_json::from_reader(input).map_err(Error::Json)?;
    let (init, items) = match document {
        Document::Operations(items) => (Vec::new(), items),
        Document::WithInit { init, benchmark } => (init, benchmark),
    };
    let statement = |(number, item): (usize, Item)| {
        item.sql
            .ok_or_else(|| Error::Operation(number + 1, "of init: it has no \"sql\"".to_owned()))
    };
    let init = init
        .into_iter()
        .enumerate()
        .map(statement)
        .collect::<Result<_, _>>()?;
    let operations = items
        .into_iter()
        .enumerate()
        .map(operation)
        .collect::<Result<_, _>>()?;
    Ok(List { init, operations })
}

fn operation((number, item): (usize, Item)) -> Result<Operation, Error> {
    let wrong = |what: &str| Error::Operation(number + 1, what.to_owned());
    match (item.op.as_deref(), item.sql) {
        (Some("query") | None, Some(sql)) => Ok(Operation::Query(sql)),
        (Some("query"), None) => Err(wrong("it has no \"sql\"")),
        (Some("break"), _) => {
            let delta = item.delta.and_then(|delta| delta.as_f64()).unwrap_or(0.0);
            match (0.0..1e12).contains(&delta) {
                true => Ok(Operation::Break(delta as u64)),
                false => Err(wrong("its \"delta\" is no number of milliseconds")),
            }
        }
        (Some(other), _) => Err(wrong(&format!("\"op\" is \"{other}\", not query or break"))),
        (None, None) => Err(wrong("it has neither \"op\" nor \"sql\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a byte at a time.
    struct Slowly<'a>(&'a [u8]);

    impl Read for Slowly<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let (Some(place), Some((first, rest))) = (out.first_mut(), self.0.split_first()) else {
                return Ok(0);
            };
            *place = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    fn statements(text: &str) -> Vec<String> {
        let mut script = Script::new(Slowly(text.as_bytes()));
        let mut found = Vec::new();
        while let Some(statement) = script.next_statement().unwrap() {
            found.push(String::from_utf8(statement).unwrap().trim().to_owned());
        }
        found
    }

    #[test]
    fn a_dump_is_its_statements() {
        let dump = "PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\nCREATE TABLE t(a);\n\
                    INSERT INTO t VALUES('a;b\nc');\nCREATE TRIGGER x AFTER INSERT ON t BEGIN\n \
                    DELETE FROM t WHERE a=1; END;\n;;COMMIT";
        let found = statements(dump);
        assert_eq!(found.len(), 6, "{found:#?}");
        assert_eq!(found[3], "INSERT INTO t VALUES('a;b\nc');");
        assert!(found[4].ends_with("END;"), "{}", found[4]);
        assert_eq!(found[5], "COMMIT");
        assert!(statements(" -- nothing\n ; ;").is_empty());
    }

    #[test]
    fn statements_are_found_across_the_pieces_that_are_read() {
        let long = format!("INSERT INTO t VALUES('{}');\n", ";x\n".repeat(PIECE_BYTES));
        let text = format!("{long}SELECT 1;\n{}", "SELECT 2;\n".repeat(PIECE_BYTES / 4));
        let mut script = Script::new(text.as_bytes());
        assert_eq!(
            script.next_statement().unwrap().unwrap().len(),
            long.len() - 1
        );
        let mut count = 0;
        while let Some(statement) = script.next_statement().unwrap() {
            assert!(statement.trim_ascii().starts_with(b"SELECT "));
            count += 1;
        }
        assert_eq!(count, 1 + PIECE_BYTES / 4);
    }

    #[test]
    fn lists_are_read_with_and_without_their_beginning() {
        let bare =
            r#"[{"op":"query","sql":"SELECT 1"},{"op":"break","delta":3},{"sql":"SELECT 2"}]"#;
        let list = |text: &str| super::list(text.as_bytes());
        let expected = [
            Operation::Query("SELECT 1".into()),
            Operation::Break(3),
            Operation::Query("SELECT 2".into()),
        ];
        assert_eq!(list(bare).unwrap().operations, expected);
        let whole = format!(r#"{{"benchmark": {bare}, "init": [{{"sql": "CREATE TABLE t(a)"}}]}}"#);
        let whole = list(&whole).unwrap();
        assert_eq!(
            (whole.init, whole.operations),
            (vec!["CREATE TABLE t(a)".into()], expected.into())
        );
        for (wrong, said) in [
            (r#"[{"op":"jump"}]"#, "operation 1: \"op\" is \"jump\""),
            (r#"[{"op":"query"}]"#, "has no \"sql\""),
            ("{}", "a list is ["),
            (r#"[{"op":"break","delta":-1}]"#, "milliseconds"),
        ] {
            let message = list(wrong).unwrap_err().to_string();
            assert!(message.contains(said), "{message}");
        }
    }
}
