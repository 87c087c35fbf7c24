//! The events between a program and SQLite, and their bytes.
//!
//! A record is its length, its kind and its fields ([`crate::wire`]). The same bytes go from the
//! preloaded library to the recorder and into the trace file. Only [`Event::Opening`] and
//! [`Event::Sent`] stay out of the file, and the recorder adds what the library cannot know. Numbers of connections and
//! statements are unique within their process.

mod codec;

use crate::rows::Rows;

/// SQLite's result code of a step that returned a row.
pub const ROW: u32 = 100;

/// SQLite's result code of a run that is complete.
pub const DONE: u32 = 101;

/// Stands in the place of a result code that is unknown.
pub const UNKNOWN: u32 = 255;

/// A value that is bound to a parameter.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Nothing bound, or NULL.
    Null,
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// UTF-8, as the program passed it.
    Text(Vec<u8>),
    /// Bytes.
    Blob(Vec<u8>),
    /// A number of zeros.
    Zeros(u64),
}

/// The time and the thread of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct When {
    /// Nanoseconds since 1970 when it began.
    pub at: u64,
    /// Nanoseconds inside SQLite.
    pub took: u64,
    /// The thread, by the system's number.
    pub thread: u64,
}

/// SQLite's answer to a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The primary result code: [`DONE`] or an error. It is [`ROW`] where the run is not over, or 0
    /// where the program ended it early.
    pub code: u32,
    /// Whether the connection is outside a transaction afterwards.
    pub autocommit: bool,
    /// The rows returned since the run began. `None` where the program did not ask for
    /// them or they are masked.
    pub rows: Option<Rows>,
}

/// The state of a file when it was first opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Absent or empty.
    Empty,
    /// Its content follows.
    Copied,
    /// Not empty, and its content is not in the trace.
    Withheld,
}

/// A file of a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The database itself.
    Database,
    /// SQLite's log, `-wal`.
    Wal,
    /// SQLite's rollback journal, `-journal`.
    Journal,
    /// The onewrite log, `-onewrite`.
    Log,
}

impl Part {
    /// All parts.
    pub const ALL: [Part; 4] = [Part::Database, Part::Wal, Part::Journal, Part::Log];

    /// The suffix added to the database's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Part::Database => "",
            Part::Wal => "-wal",
            Part::Journal => "-journal",
            Part::Log => "-onewrite",
        }
    }
}

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// The following events are of this process. It is the first event of the process.
    Process {
        /// Number in this trace, from 1.
        number: u64,
        /// The system's number.
        pid: u64,
        /// Its arguments, each ended by a zero byte.
        arguments: Vec<u8>,
    },
    /// The following events are of the process with this number again.
    From(u64),
    /// A program is about to use a database. The recorder answers one byte after it has looked at
    /// it.
    Opening {
        /// Its full path.
        path: Vec<u8>,
    },
    /// The events before this one are sent now.
    Sent {
        /// The time, as in [`When`].
        at: u64,
    },
    /// The program uses a file of this name from here on: for the first time, or a new file.
    Database {
        /// Its full path.
        path: Vec<u8>,
        /// Its state at that time.
        start: Start,
    },
    /// A piece of a file as it was at its [`Event::Database`].
    Content {
        /// The database's full path.
        path: Vec<u8>,
        /// Which of its files.
        part: Part,
        /// The offset of the piece in it, in bytes.
        offset: u64,
        /// The bytes at that offset.
        bytes: Vec<u8>,
    },
    /// A connection is opened.
    Open {
        /// The time, as in [`When`].
        at: u64,
        /// Its number.
        connection: u64,
        /// The flags of `sqlite3_open_v2`.
        flags: u64,
        /// The name that the program gave.
        name: Vec<u8>,
        /// The full path of its database; empty for an in-memory or temporary database.
        path: Vec<u8>,
        /// The version of the program's SQLite, such as `3.40.1`.
        version: Vec<u8>,
    },
    /// A connection is closed.
    Close {
        /// As in [`When`].
        at: u64,
        /// The connection.
        connection: u64,
    },
    /// A statement is prepared, or could not be.
    Prepare {
        /// As in [`When`].
        at: u64,
        /// On this connection.
        connection: u64,
        /// Its number; 0 where it could not be prepared.
        statement: u64,
        /// Primary result code.
        code: u32,
        /// The text, up to its end.
        sql: Vec<u8>,
    },
    /// A run begins, and is over unless the outcome's code is [`ROW`].
    Run {
        /// When.
        when: When,
        /// The statement.
        statement: u64,
        /// Values of its parameters, in their order; those left out are NULL.
        values: Vec<Value>,
        /// Its outcome.
        outcome: Outcome,
    },
    /// A run goes on.
    More {
        /// When, since the last event of this run.
        when: When,
        /// The statement.
        statement: u64,
        /// Its outcome so far.
        outcome: Outcome,
    },
    /// A statement is finalized.
    Finalize {
        /// The statement.
        statement: u64,
    },
    /// `sqlite3_exec`: all statements of a text.
    Exec {
        /// When.
        when: When,
        /// The connection.
        connection: u64,
        /// The text.
        sql: Vec<u8>,
        /// Its outcome; rows as text.
        outcome: Outcome,
    },
    /// The next run on this connection attaches this database.
    Attach {
        /// The connection.
        connection: u64,
        /// The full path; empty for an in-memory or temporary database.
        path: Vec<u8>,
    },
    /// The program registered something with SQLite that a replay does not have.
    Taught {
        /// The connection.
        connection: u64,
        /// `function`, `collation` or `module`.
        what: Vec<u8>,
        /// Its name.
        name: Vec<u8>,
    },
    /// The program used a part of SQLite that is not recorded.
    Unrecorded {
        /// The function.
        name: Vec<u8>,
    },
    /// The content of a database at the end, as a digest.
    Final {
        /// Its full path.
        path: Vec<u8>,
        /// The digest, or the reason why it is missing.
        digest: Result<u64, Vec<u8>>,
    },
    /// A break between transactions, from an imported list.
    Break,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::Input;

    fn samples() -> Vec<Event> {
        let when = When {
            at: 1 << 60,
            took: 17,
            thread: 4,
        };
        let rows = Rows {
            count: 3,
            ordered: 7,
            unordered: u64::MAX,
        };
        let outcome = Outcome {
            code: DONE,
            autocommit: true,
            rows: Some(rows),
        };
        let path = b"/tmp/a.db".to_vec();
        let values = vec![
            Value::Null,
            Value::Integer(-5),
            Value::Real(0.1),
            Value::Text("\u{e4}\0b".into()),
            Value::Blob(vec![0, 255]),
            Value::Zeros(1 << 20),
        ];
        vec![
            Event::Process {
                number: 1,
                pid: 4,
                arguments: b"a\0b\0".to_vec(),
            },
            Event::From(2),
            Event::Opening { path: path.clone() },
            Event::Sent { at: 7 },
            Event::Database {
                path: path.clone(),
                start: Start::Copied,
            },
            Event::Content {
                path: path.clone(),
                part: Part::Wal,
                offset: 9,
                bytes: vec![1; 300],
            },
            Event::Open {
                at: 1,
                connection: 1,
                flags: 6,
                name: b"a.db".to_vec(),
                path: path.clone(),
                version: b"3.40.1".to_vec(),
            },
            Event::Close {
                at: 5,
                connection: 1,
            },
            Event::Prepare {
                at: 1,
                connection: 1,
                statement: 2,
                code: 0,
                sql: b"SELECT 1".to_vec(),
            },
            Event::Run {
                when,
                statement: 2,
                values,
                outcome,
            },
            Event::More {
                when,
                statement: 2,
                outcome: Outcome {
                    rows: None,
                    ..outcome
                },
            },
            Event::Finalize { statement: 2 },
            Event::Exec {
                when,
                connection: 1,
                sql: b"BEGIN".to_vec(),
                outcome,
            },
            Event::Attach {
                connection: 1,
                path: path.clone(),
            },
            Event::Taught {
                connection: 1,
                what: b"function".to_vec(),
                name: b"f".to_vec(),
            },
            Event::Unrecorded {
                name: b"sqlite3_backup_init".to_vec(),
            },
            Event::Final {
                path: path.clone(),
                digest: Ok(77),
            },
            Event::Final {
                path,
                digest: Err(b"gone".to_vec()),
            },
            Event::Break,
        ]
    }

    #[test]
    fn every_event_is_read_as_it_is_written() {
        for event in samples() {
            let mut out = Vec::new();
            event.put(&mut out);
            let record = Input(&out).bytes().unwrap();
            assert_eq!(Event::take(record), Ok(Some(event.clone())), "{event:?}");
            for length in 0..record.len() {
                // Any result without a panic is right; most prefixes are errors.
                let _ = Event::take(&record[..length]);
            }
        }
        assert_eq!(Event::take(&[200, 1, 2]), Ok(None));
    }

    proptest! {
        #[test]
        fn random_bytes_are_an_event_or_an_error(bytes: Vec<u8>) {
            let _ = Event::take(&bytes);
        }
    }
}
