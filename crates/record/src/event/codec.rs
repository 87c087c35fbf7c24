//! Events as bytes.

use super::{Event, Outcome, Part, Start, Value, When};
use crate::rows::Rows;
use crate::wire::{Input, Malformed, put_bytes, put_number, put_signed};

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(0),
        Value::Integer(number) => {
            out.push(1);
            put_signed(out, *number);
        }
        Value::Real(number) => {
            out.push(2);
            out.extend_from_slice(&number.to_bits().to_be_bytes());
        }
        Value::Text(bytes) => {
            out.push(3);
            put_bytes(out, bytes);
        }
        Value::Blob(bytes) => {
            out.push(4);
            put_bytes(out, bytes);
        }
        Value::Zeros(count) => {
            out.push(5);
            put_number(out, *count);
        }
    }
}

fn value(input: &mut Input<'_>) -> Result<Value, Malformed> {
    Ok(match input.byte()? {
        0 => Value::Null,
        1 => Value::Integer(input.signed()?),
        2 => Value::Real(f64::from_bits(input.fixed()?)),
        3 => Value::Text(input.bytes()?.to_vec()),
        4 => Value::Blob(input.bytes()?.to_vec()),
        5 => Value::Zeros(input.number()?),
        _ => return Err(Malformed("a value of an unknown type")),
    })
}

fn put_when(out: &mut Vec<u8>, when: &When) {
    put_number(out, when.at);
    put_number(out, when.took);
    put_number(out, when.thread);
}

fn when(input: &mut Input<'_>) -> Result<When, Malformed> {
    Ok(When {
        at: input.number()?,
        took: input.number()?,
        thread: input.number()?,
    })
}

fn put_outcome(out: &mut Vec<u8>, outcome: &Outcome) {
    put_number(out, u64::from(outcome.code));
    out.push(u8::from(outcome.autocommit) | u8::from(outcome.rows.is_some()) << 1);
    if let Some(rows) = &outcome.rows {
        put_number(out, rows.count);
        out.extend_from_slice(&u64::from(rows.ordered).to_be_bytes());
        out.extend_from_slice(&rows.unordered.to_be_bytes());
    }
}

fn code(input: &mut Input<'_>) -> Result<u32, Malformed> {
    u32::try_from(input.number()?).map_err(|_| Malformed("a result code out of range"))
}

fn outcome(input: &mut Input<'_>) -> Result<Outcome, Malformed> {
    let code = code(input)?;
    let flags = input.byte()?;
    let rows = match flags & 2 {
        0 => None,
        _ => Some(Rows {
            count: input.number()?,
            ordered: input.fixed()? as u32,
            unordered: input.fixed()?,
        }),
    };
    Ok(Outcome {
        code,
        autocommit: flags & 1 != 0,
        rows,
    })
}

impl Event {
    /// Appends the record: length, kind, fields.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        self.put_body(&mut body);
        put_bytes(out, &body);
    }

    fn put_body(&self, out: &mut Vec<u8>) {
        match self {
            Event::Process {
                number,
                pid,
                arguments,
            } => {
                out.push(1);
                put_number(out, *number);
                put_number(out, *pid);
                put_bytes(out, arguments);
            }
            Event::From(number) => {
                out.push(2);
                put_number(out, *number);
            }
            Event::Opening { path } => {
                out.push(3);
                put_bytes(out, path);
            }
            Event::Sent { at } => {
                out.push(18);
                put_number(out, *at);
            }
            Event::Database { path, start } => {
                out.push(4);
                put_bytes(out, path);
                out.push(*start as u8);
            }
            Event::Content {
                path,
                part,
                offset,
                bytes,
            } => {
                out.push(5);
                put_bytes(out, path);
                out.push(*part as u8);
                put_number(out, *offset);
                put_bytes(out, bytes);
            }
            Event::Open {
                at,
                connection,
                flags,
                name,
                path,
                version,
            } => {
                out.push(6);
                put_number(out, *at);
                put_number(out, *connection);
                put_number(out, *flags);
                put_bytes(out, name);
                put_bytes(out, path);
                put_bytes(out, version);
            }
            Event::Close { at, connection } => {
                out.push(7);
                put_number(out, *at);
                put_number(out, *connection);
            }
            other => other.put_statement(out),
        }
    }

    /// The events of statements.
    fn put_statement(&self, out: &mut Vec<u8>) {
        match self {
            Event::Prepare {
                at,
                connection,
                statement,
                code,
                sql,
            } => {
                out.push(8);
                put_number(out, *at);
                put_number(out, *connection);
                put_number(out, *statement);
                put_number(out, u64::from(*code));
                put_bytes(out, sql);
            }
            Event::Run {
                when,
                statement,
                values,
                outcome,
            } => {
                out.push(9);
                put_when(out, when);
                put_number(out, *statement);
                put_number(out, values.len() as u64);
                values.iter().for_each(|value| put_value(out, value));
                put_outcome(out, outcome);
            }
            Event::More {
                when,
                statement,
                outcome,
            } => {
                out.push(10);
                put_when(out, when);
                put_number(out, *statement);
                put_outcome(out, outcome);
            }
            Event::Finalize { statement } => {
                out.push(11);
                put_number(out, *statement);
            }
            Event::Exec {
                when,
                connection,
                sql,
                outcome,
            } => {
                out.push(12);
                put_when(out, when);
                put_number(out, *connection);
                put_bytes(out, sql);
                put_outcome(out, outcome);
            }
            other => other.put_rare(out),
        }
    }

    fn put_rare(&self, out: &mut Vec<u8>) {
        match self {
            Event::Attach { connection, path } => {
                out.push(13);
                put_number(out, *connection);
                put_bytes(out, path);
            }
            Event::Taught {
                connection,
                what,
                name,
            } => {
                out.push(14);
                put_number(out, *connection);
                put_bytes(out, what);
                put_bytes(out, name);
            }
            Event::Unrecorded { name } => {
                out.push(15);
                put_bytes(out, name);
            }
            Event::Final { path, digest } => {
                out.push(16);
                put_bytes(out, path);
                match digest {
                    Ok(digest) => {
                        out.push(1);
                        out.extend_from_slice(&digest.to_be_bytes());
                    }
                    Err(why) => {
                        out.push(0);
                        put_bytes(out, why);
                    }
                }
            }
            _ => out.push(17),
        }
    }

    /// Reads a record without its length. Returns `None` for a kind that is not known here. It
    /// ignores bytes after the known fields: later versions may add both kinds and fields.
    ///
    /// # Errors
    /// The record is malformed.
    pub fn take(record: &[u8]) -> Result<Option<Event>, Malformed> {
        let mut input = Input(record);
        let input = &mut input;
        Ok(Some(match input.byte()? {
            1 => Event::Process {
                number: input.number()?,
                pid: input.number()?,
                arguments: input.bytes()?.to_vec(),
            },
            2 => Event::From(input.number()?),
            3 => Event::Opening {
                path: input.bytes()?.to_vec(),
            },
            4 => Event::Database {
                path: input.bytes()?.to_vec(),
                start: match input.byte()? {
                    0 => Start::Empty,
                    1 => Start::Copied,
                    _ => Start::Withheld,
                },
            },
            5 => Event::Content {
                path: input.bytes()?.to_vec(),
                part: *Part::ALL
                    .get(usize::from(input.byte()?))
                    .ok_or(Malformed("a part of a database that is not known"))?,
                offset: input.number()?,
                bytes: input.bytes()?.to_vec(),
            },
            6 => Event::Open {
                at: input.number()?,
                connection: input.number()?,
                flags: input.number()?,
                name: input.bytes()?.to_vec(),
                path: input.bytes()?.to_vec(),
                version: input.bytes()?.to_vec(),
            },
            7 => Event::Close {
                at: input.number()?,
                connection: input.number()?,
            },
            13 => Event::Attach {
                connection: input.number()?,
                path: input.bytes()?.to_vec(),
            },
            14 => Event::Taught {
                connection: input.number()?,
                what: input.bytes()?.to_vec(),
                name: input.bytes()?.to_vec(),
            },
            15 => Event::Unrecorded {
                name: input.bytes()?.to_vec(),
            },
            16 => Event::Final {
                path: input.bytes()?.to_vec(),
                digest: match input.byte()? {
                    1 => Ok(input.fixed()?),
                    _ => Err(input.bytes()?.to_vec()),
                },
            },
            17 => Event::Break,
            18 => Event::Sent {
                at: input.number()?,
            },
            kind @ 8..=12 => Self::take_statement(kind, input)?,
            _ => return Ok(None),
        }))
    }

    /// Reads an event of a statement, of the kinds 8 to 12.
    fn take_statement(kind: u8, input: &mut Input<'_>) -> Result<Event, Malformed> {
        Ok(match kind {
            8 => Event::Prepare {
                at: input.number()?,
                connection: input.number()?,
                statement: input.number()?,
                code: code(input)?,
                sql: input.bytes()?.to_vec(),
            },
            9 => Event::Run {
                when: when(input)?,
                statement: input.number()?,
                values: (0..input.number()?)
                    .map(|_| value(input))
                    .collect::<Result<_, _>>()?,
                outcome: outcome(input)?,
            },
            10 => Event::More {
                when: when(input)?,
                statement: input.number()?,
                outcome: outcome(input)?,
            },
            11 => Event::Finalize {
                statement: input.number()?,
            },
            _ => Event::Exec {
                when: when(input)?,
                connection: input.number()?,
                sql: input.bytes()?.to_vec(),
                outcome: outcome(input)?,
            },
        })
    }
}
