//! Masking replaces values on their way into the trace, so that its owner can give the trace away.
//!
//! **What stays.** The type, the length in bytes and the sign stay. Letters stay letters of their
//! case, and digits stay digits. Other ASCII characters stay as they are. Floating-point numbers
//! keep their binary magnitude. Equal values stay equal and different values stay different, in
//! bound values and literals alike. So statements find the same rows, constraints hold, and pages
//! fill as before. Values with a common prefix keep a common prefix, so that indexes and `LIKE
//! 'abc%'` touch the same pages. Integers stay as they are, because they link rows to one another
//! and SQLite makes many of them itself. With [`Integers::Masked`] they keep their number of
//! digits.
//!
//! **What it protects.** A keyed function (SipHash-2-4) moves each character within its class. Its
//! input is the text before the character. The key is random, and is forgotten when the recording
//! ends. Nobody can compute a value back from the trace alone.
//!
//! **What it does not protect.** Lengths, classes, frequencies, equality, common prefixes and times
//! stay visible and allow guesses. So this is pseudonymization, not anonymization. Names of tables,
//! columns and files, comments, and names in double quotes stay readable. So do the literals that
//! instruct SQLite: those of PRAGMA and ATTACH, of date and JSON functions, and of statements about
//! the schema.

use std::collections::HashSet;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::event::{Event, Outcome, Start, Value};
use crate::rows::Rows;
use crate::sql::{self, Kind};

/// Whether integers are masked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Integers {
    /// Integers stay.
    Kept,
    /// They keep their sign and number of digits.
    Masked,
}

/// Functions whose literals are instructions.
const INSTRUCTED: &[&str] = &[
    "date",
    "time",
    "datetime",
    "julianday",
    "unixepoch",
    "strftime",
    "timediff",
    "json_extract",
    "json_set",
    "json_insert",
    "json_replace",
    "json_remove",
    "json_type",
    "json_each",
    "json_tree",
    "jsonb_extract",
    "printf",
    "format",
    "typeof",
    "matchinfo",
    "snippet",
    "highlight",
];

/// Words of statements about the schema or about types. Such statements stay whole.
const ABOUT_SCHEMA: &[&str] = &[
    "sqlite_master",
    "sqlite_schema",
    "sqlite_temp_master",
    "sqlite_temp_schema",
    "typeof",
    "pragma",
];

/// The number of digits that each `i64` can hold, whatever the digits are.
const MOST_DIGITS: usize = 18;

/// The mapping of one recording.
#[derive(Clone, Debug)]
pub struct Mask {
    key: (u64, u64),
    integers: Integers,
    /// Statements whose values stay, by process and number.
    kept: HashSet<(u64, u64)>,
}

impl Mask {
    /// Makes a mapping with a random key that is kept nowhere else.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(integers: Integers) -> Result<Self, getrandom::Error> {
        let key = (getrandom::u64()?, getrandom::u64()?);
        Ok(Self {
            key,
            integers,
            kept: HashSet::new(),
        })
    }

    fn chain(&self, kind: u8) -> SipHasher24 {
        let mut chain = SipHasher24::new_with_keys(self.key.0, self.key.1);
        chain.write_u8(kind);
        chain
    }

    /// The masked form of an event of the process with this number.
    pub fn event(&mut self, process: u64, event: Event) -> Event {
        match event {
            Event::Process {
                number,
                pid,
                arguments,
            } => {
                let end = arguments
                    .iter()
                    .position(|byte| *byte == 0)
                    .unwrap_or(arguments.len());
                let arguments = arguments.get(..end).unwrap_or_default().to_vec();
                Event::Process {
                    number,
                    pid,
                    arguments,
                }
            }
            Event::Database {
                path,
                start: Start::Copied,
            } => Event::Database {
                path,
                start: Start::Withheld,
            },
            Event::Final { path, .. } => Event::Final {
                path,
                digest: Err(b"masked".to_vec()),
            },
            other => self.statement_event(process, other),
        }
    }

    fn statement_event(&mut self, process: u64, event: Event) -> Event {
        // The number of rows says how far a replay must step. A checksum would confirm a guess.
        let counted = |rows: Rows| Rows {
            count: rows.count,
            ..Rows::default()
        };
        let unknown = |outcome: Outcome| Outcome {
            rows: outcome.rows.map(counted),
            ..outcome
        };
        match event {
            Event::Prepare {
                at,
                connection,
                statement,
                code,
                sql,
            } => {
                match stays(&sql) {
                    true => self.kept.insert((process, statement)),
                    false => self.kept.remove(&(process, statement)),
                };
                Event::Prepare {
                    at,
                    connection,
                    statement,
                    code,
                    sql: self.sql(&sql),
                }
            }
            Event::Run {
                when,
                statement,
                values,
                outcome,
            } => {
                let stays = self.kept.contains(&(process, statement));
                let values = match stays {
                    true => values,
                    false => values.into_iter().map(|value| self.value(value)).collect(),
                };
                Event::Run {
                    when,
                    statement,
                    values,
                    outcome: unknown(outcome),
                }
            }
            Event::More {
                when,
                statement,
                outcome,
            } => Event::More {
                when,
                statement,
                outcome: unknown(outcome),
            },
            Event::Finalize { statement } => {
                self.kept.remove(&(process, statement));
                Event::Finalize { statement }
            }
            Event::Exec {
                when,
                connection,
                sql,
                outcome,
            } => Event::Exec {
                when,
                connection,
                sql: self.script(&sql),
                outcome: unknown(outcome),
            },
            other => other,
        }
    }

    /// Masks a bound value.
    pub fn value(&self, value: Value) -> Value {
        match value {
            Value::Text(bytes) => Value::Text(self.text(&bytes)),
            Value::Blob(bytes) => Value::Blob(self.blob(&bytes)),
            Value::Real(number) => Value::Real(self.real(number)),
            Value::Integer(number) if self.integers == Integers::Masked => {
                Value::Integer(self.integer(number))
            }
            other => other,
        }
    }

    /// Masks a script, one statement after the other.
    fn script(&self, script: &[u8]) -> Vec<u8> {
        let (mut out, mut rest) = (Vec::new(), script);
        while !rest.is_empty() {
            let end = sql::statement_end(rest).unwrap_or(rest.len());
            out.extend_from_slice(&self.sql(rest.get(..end).unwrap_or_default()));
            rest = rest.get(end..).unwrap_or_default();
        }
        out
    }

    /// Masks the literals of a statement.
    pub fn sql(&self, text: &[u8]) -> Vec<u8> {
        if stays(text) {
            return text.to_vec();
        }
        let defines = matches!(sql::verb(text).as_str(), "CREATE" | "ALTER");
        let mut out = Vec::with_capacity(text.len());
        let (mut done, mut last, mut calls) = (0, None, Vec::new());
        for token in sql::tokens(text) {
            let piece = text.get(token.at.clone()).unwrap_or_default();
            let instructs = calls.iter().any(|instructs| *instructs);
            let masked = match (token.kind, piece) {
                (Kind::Other, b"(") => {
                    calls.push(last.is_some_and(is_instructed));
                    None
                }
                (Kind::Other, b")") => {
                    calls.pop();
                    None
                }
                (Kind::Text, _) if !instructs => {
                    Some(sql::quoted(&self.text(&sql::unquoted(piece))))
                }
                (Kind::Blob, _) => self.blob_literal(piece),
                (Kind::Number, _) if !defines && !instructs => self.number_literal(piece),
                _ => None,
            };
            if let Some(masked) = masked {
                out.extend_from_slice(text.get(done..token.at.start).unwrap_or_default());
                out.extend_from_slice(&masked);
                done = token.at.end;
            }
            last = (token.kind == Kind::Word).then_some(piece);
        }
        out.extend_from_slice(text.get(done..).unwrap_or_default());
        out
    }

    fn blob_literal(&self, piece: &[u8]) -> Option<Vec<u8>> {
        let hex = std::str::from_utf8(piece.get(2..piece.len().checked_sub(1)?)?).ok()?;
        let bytes: Option<Vec<u8>> = (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok())
            .collect();
        let masked: String = self
            .blob(&bytes?)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Some(format!("x'{masked}'").into_bytes())
    }

    fn number_literal(&self, piece: &[u8]) -> Option<Vec<u8>> {
        let piece = std::str::from_utf8(piece).ok()?;
        if let Ok(number) = piece.parse::<i64>() {
            let is_masked = self.integers == Integers::Masked;
            return is_masked.then(|| self.integer(number).to_string().into_bytes());
        }
        // Sixteen digits after the point give the number itself.
        let number = piece.parse::<f64>().ok()?;
        Some(format!("{:e}", self.real(number)).into_bytes()).filter(|_| !piece.starts_with("0x"))
    }

    /// Masks a text. Bytes that are not UTF-8 are masked as bytes.
    fn text(&self, bytes: &[u8]) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return self.blob(bytes);
        };
        let mut chain = self.chain(3);
        let moved = text.chars().map(|c| {
            let by = chain.finish();
            // Both cases move alike, so that texts which differ only in case still do.
            chain.write_u32(c.to_ascii_lowercase() as u32);
            move_char(c, by)
        });
        moved.collect::<String>().into_bytes()
    }

    fn blob(&self, bytes: &[u8]) -> Vec<u8> {
        let mut chain = self.chain(4);
        let moved = bytes.iter().map(|byte| {
            let by = chain.finish();
            chain.write_u8(*byte);
            byte.wrapping_add(by as u8)
        });
        moved.collect()
    }

    /// Puts the mantissa through four rounds of a Feistel network. Sign and exponent stay.
    fn real(&self, number: f64) -> f64 {
        const HALF: u64 = (1 << 26) - 1;
        if !number.is_normal() {
            return number;
        }
        let bits = number.to_bits();
        let (mut left, mut right) = (bits >> 26 & HALF, bits & HALF);
        for round in 0..4 {
            let mut chain = self.chain(2);
            chain.write_u64(bits >> 52);
            chain.write_u64(right << 2 | round);
            (left, right) = (right, left ^ (chain.finish() & HALF));
        }
        f64::from_bits(bits >> 52 << 52 | left << 26 | right)
    }

    fn integer(&self, number: i64) -> i64 {
        let digits = number.unsigned_abs().to_string();
        if number == 0 || digits.len() > MOST_DIGITS {
            return number;
        }
        let mut chain = self.chain(1);
        let mut moved: u64 = 0;
        for (at, digit) in digits
            .bytes()
            .map(|byte| u64::from(byte - b'0'))
            .enumerate()
        {
            let by = chain.finish();
            chain.write_u8(digit as u8);
            let new = match at {
                0 => (digit - 1 + by % 9) % 9 + 1,
                _ => (digit + by % 10) % 10,
            };
            moved = moved * 10 + new;
        }
        match number < 0 {
            true => -(moved as i64),
            false => moved as i64,
        }
    }
}

/// A character of the same class and length.
fn move_char(c: char, by: u64) -> char {
    let within = |first: u8, size: u64| {
        let moved = (u64::from(c as u32) - u64::from(first) + by % size) % size;
        char::from(first + moved as u8)
    };
    match c {
        'a'..='z' => within(b'a', 26),
        'A'..='Z' => within(b'A', 26),
        '0'..='9' => within(b'0', 10),
        c if c.is_ascii() => c,
        // Within 64 code points, which have the same length in UTF-8.
        c => {
            let low = (c as u32 & 63).wrapping_add(by as u32) & 63;
            char::from_u32(c as u32 & !63 | low).unwrap_or(c)
        }
    }
}

fn is_instructed(word: &[u8]) -> bool {
    INSTRUCTED
        .iter()
        .any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// Whether a statement and its values stay as they are.
fn stays(text: &[u8]) -> bool {
    matches!(
        sql::verb(text).as_str(),
        "PRAGMA" | "ATTACH" | "DETACH" | "SAVEPOINT" | "RELEASE"
    ) || sql::first_call(text, ABOUT_SCHEMA).is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mask(integers: Integers) -> Mask {
        Mask {
            key: (1, 2),
            integers,
            kept: HashSet::new(),
        }
    }

    fn text(mask: &Mask, text: &str) -> String {
        String::from_utf8(mask.text(text.as_bytes())).unwrap()
    }

    #[test]
    fn class_length_and_case_stay_and_a_beginning_in_common_too() {
        let mask = mask(Integers::Kept);
        let (a, b) = (
            text(&mask, "Anna Meier, 1974-05-06"),
            text(&mask, "Anna Meier, 1981"),
        );
        assert_ne!(a, "Anna Meier, 1974-05-06");
        let class = |c: char| {
            (
                c.is_ascii_lowercase(),
                c.is_ascii_uppercase(),
                c.is_ascii_digit(),
            )
        };
        assert!(
            a.chars()
                .map(class)
                .eq("Anna Meier, 1974-05-06".chars().map(class))
        );
        assert_eq!(a[..13], b[..13]);
        assert_eq!(text(&mask, "ANNA"), a[..4].to_uppercase());
        assert_eq!(
            text(&mask, "\u{e4}\u{4e2d}\u{1f600}").len(),
            "\u{e4}\u{4e2d}\u{1f600}".len()
        );
        let other = Mask {
            key: (1, 3),
            ..mask
        };
        assert_ne!(text(&other, "Anna Meier, 1974-05-06"), a);
    }

    #[test]
    fn literals_and_values_are_masked_alike_and_instructions_stay() {
        let mask = mask(Integers::Masked);
        let sql = |text: &str| String::from_utf8(mask.sql(text.as_bytes())).unwrap();
        let anna = text(&mask, "Anna");
        assert_eq!(
            sql("SELECT \"Anna\" FROM t WHERE a='Anna' AND b=date('now') -- 'Anna'"),
            format!("SELECT \"Anna\" FROM t WHERE a='{anna}' AND b=date('now') -- 'Anna'")
        );
        for same in [
            "PRAGMA journal_mode='wal'",
            "ATTACH 'file.db' AS x",
            "SELECT 1 FROM sqlite_master WHERE name='Anna'",
            "CREATE TABLE t (a VARCHAR(30))",
            "SELECT strftime('%Y', a), json_extract(b, '$.name') FROM t",
        ] {
            assert_eq!(sql(same), same);
        }
        let number = mask.integer(12345);
        assert_eq!(
            sql("VALUES (12345, x'00ff')").split(',').next(),
            Some(&*format!("VALUES ({number}"))
        );
        let real = sql("VALUES (1.5)");
        let back: f64 = real
            .trim_start_matches("VALUES (")
            .trim_end_matches(')')
            .parse()
            .unwrap();
        assert_eq!(Value::Real(back), mask.value(Value::Real(1.5)));
    }

    proptest! {
        #[test]
        fn different_values_stay_different(a: String, b: String, m: i64, n: i64, x: f64, y: f64) {
            let mask = mask(Integers::Masked);
            prop_assert_eq!(a == b, text(&mask, &a) == text(&mask, &b));
            prop_assert_eq!(a.len(), text(&mask, &a).len());
            prop_assert_eq!(m == n, mask.integer(m) == mask.integer(n));
            prop_assert_eq!(m.to_string().len(), mask.integer(m).to_string().len());
            prop_assert_eq!(x.to_bits() == y.to_bits(), mask.real(x).to_bits() == mask.real(y).to_bits());
            prop_assert!(mask.real(x) == x || (mask.real(x) / x < 2.0 && mask.real(x) / x > 0.5));
            prop_assert_eq!(a.as_bytes() == b.as_bytes(), mask.blob(a.as_bytes()) == mask.blob(b.as_bytes()));
        }

        #[test]
        fn small_integers_are_a_permutation(digits in 1u32..4) {
            let mask = mask(Integers::Masked);
            let range = 10i64.pow(digits - 1)..10i64.pow(digits);
            let masked: HashSet<i64> = range.clone().map(|n| mask.integer(n)).collect();
            prop_assert_eq!(masked, range.collect::<HashSet<_>>());
        }
    }
}
