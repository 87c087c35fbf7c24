//! The system's `sqlite3` shell at the other end of pipes: a SQLite that is neither ours nor the
//! linked one.
//!
//! The session sends a statement with its parameters spelled out, and then a line that makes the
//! shell print a mark. All output up to the mark is rows (in the shell's quoted form) or an error.

use super::{BlobRange, Row, Session, SqlError, SqlErrorKind, Value};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

const MARK: &str = "<onewrite-torture:done>";

/// A running shell.
pub struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<PipeReader>,
}

/// Whether there is a `sqlite3` shell on this machine.
pub fn is_installed() -> bool {
    Command::new("sqlite3")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

impl Shell {
    /// Starts a shell on `path`.
    ///
    /// # Errors
    /// The shell cannot be started.
    pub fn open(path: &Path, timeout: Duration) -> Result<Self, SqlError> {
        let started = std::io::pipe().and_then(|(output, for_shell)| {
            // One pipe for both streams keeps errors and rows in order.
            let child = Command::new("sqlite3")
                .args(["-batch", "-init", "/dev/null"])
                .arg(path)
                .stdin(Stdio::piped())
                .stdout(for_shell.try_clone()?)
                .stderr(for_shell)
                .spawn()?;
            Ok((child, output))
        });
        let (mut child, output) = started.map_err(|error| SqlError {
            kind: SqlErrorKind::Other,
            code: 0,
            message: format!("cannot start the sqlite3 shell: {error}"),
            sql: String::new(),
        })?;
        let input = child.stdin.take();
        let mut shell = Self {
            child,
            input,
            output: BufReader::new(output),
        };
        shell.send(&format!(".mode quote\n.timeout {}\n", timeout.as_millis()))?;
        Ok(shell)
    }

    fn send(&mut self, text: &str) -> Result<(), SqlError> {
        match &mut self.input {
            Some(input) => input.write_all(text.as_bytes()).map_err(|_| gone(text)),
            None => Err(gone(text)),
        }
    }

    fn read_until_mark(&mut self, sql: &str) -> Result<Vec<String>, SqlError> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            match self.output.read_line(&mut line) {
                Ok(length) if length > 0 && line.trim_end() != MARK => {
                    lines.push(line.trim_end().to_owned());
                }
                Ok(length) if length > 0 => return Ok(lines),
                _ => return Err(gone(sql)),
            }
        }
    }
}

impl Session for Shell {
    fn rows(&mut self, sql: &str, parameters: &[Value]) -> Result<Vec<Row>, SqlError> {
        let statement = spell_out(sql, parameters);
        self.send(&format!("{statement};\n.print {MARK}\n"))?;
        let lines = self.read_until_mark(sql)?;
        match lines.iter().find_map(|line| error_of(line, sql)) {
            Some(error) => Err(error),
            None => lines.iter().map(|line| parse_row(line, sql)).collect(),
        }
    }

    fn overwrite_blob(&mut self, range: BlobRange<'_>, bytes: &[u8]) -> Result<(), SqlError> {
        let BlobRange {
            table,
            column,
            rowid,
            offset,
        } = range;
        // substr() of a BLOB is a BLOB, but || turns two into text; hence the casts.
        let sql = format!(
            "UPDATE {table} SET {column} = CAST(substr({column}, 1, {offset}) || ?1 || \
             substr({column}, {}) AS BLOB) WHERE rowid = {rowid}",
            offset + bytes.len() + 1
        );
        self.run(&sql, &[Value::Blob(bytes.to_vec())])
    }

    fn die(&mut self) {
        // An error would mean that it is dead already. It is reaped when the session is dropped.
        // Until then no other process can get its process id.
        let _ = self.child.kill();
    }

    fn process_id(&self) -> u32 {
        self.child.id()
    }

    fn close(mut self: Box<Self>) -> Result<(), SqlError> {
        self.input = None;
        let _ = self.child.wait();
        Ok(())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

fn gone(sql: &str) -> SqlError {
    SqlError {
        kind: SqlErrorKind::Gone,
        code: 0,
        message: "the shell is dead".to_owned(),
        sql: sql.chars().take(200).collect(),
    }
}

/// The error that a line of the shell's output reports, such as
/// `Runtime error near line 7: database is locked (5)`.
fn error_of(line: &str, sql: &str) -> Option<SqlError> {
    let starts = ["Runtime error", "Parse error", "Error:", "Error near"];
    if !starts.iter().any(|start| line.starts_with(start)) {
        return None;
    }
    let code = line
        .rsplit_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'))
        .and_then(|code| code.parse().ok())
        .unwrap_or(1);
    Some(SqlError::of_code(code, line, sql))
}

/// The statement with every `?N` replaced by its parameter as a literal.
fn spell_out(sql: &str, parameters: &[Value]) -> String {
    let mut text = String::new();
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once('?') {
        text.push_str(before);
        let digits = after
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(after.len());
        let number: usize = after[..digits].parse().unwrap_or(0);
        text.push_str(&literal(
            number
                .checked_sub(1)
                .and_then(|index| parameters.get(index)),
        ));
        rest = &after[digits..];
    }
    text.push_str(rest);
    text
}

fn literal(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "NULL".to_owned(),
        Some(Value::Integer(number)) => number.to_string(),
        Some(Value::Real(number)) => format!("{number:?}"),
        Some(Value::Text(text)) => format!("'{}'", text.replace('\'', "''")),
        Some(Value::Blob(bytes)) => {
            let mut hex = String::with_capacity(bytes.len() * 2 + 3);
            hex.push_str("x'");
            for byte in bytes {
                // Writing into a String cannot fail.
                let _ = write!(hex, "{byte:02x}");
            }
            hex.push('\'');
            hex
        }
    }
}

/// Parses one row in the shell's quoted form: SQL literals separated by commas.
fn parse_row(line: &str, sql: &str) -> Result<Row, SqlError> {
    let odd = || SqlError {
        kind: SqlErrorKind::Other,
        code: 0,
        message: format!(
            "the shell answered {:?}",
            line.chars().take(200).collect::<String>()
        ),
        sql: sql.to_owned(),
    };
    let mut row = Row::new();
    let mut rest = line;
    loop {
        let (value, after) = parse_literal(rest).ok_or_else(odd)?;
        row.push(value);
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None if after.is_empty() => return Ok(row),
            None => return Err(odd()),
        }
    }
}

fn parse_literal(text: &str) -> Option<(Value, &str)> {
    if let Some(quoted) = text.strip_prefix('\'') {
        return parse_text(quoted);
    }
    if let Some(hex) = text.strip_prefix("X'") {
        let (hex, after) = hex.split_once('\'')?;
        let digits = hex.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        return Some((Value::Blob(digits.map(byte).collect::<Option<_>>()?), after));
    }
    let end = text.find(',').unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    if word == "NULL" {
        return Some((Value::Null, after));
    }
    let value = match word.parse() {
        Ok(number) => Value::Integer(number),
        Err(_) => Value::Real(word.parse().ok()?),
    };
    Some((value, after))
}

fn parse_text(mut rest: &str) -> Option<(Value, &str)> {
    let mut text = String::new();
    loop {
        let (part, after) = rest.split_once('\'')?;
        text.push_str(part);
        match after.strip_prefix('\'') {
            Some(more) => {
                text.push('\'');
                rest = more;
            }
            None => return Some((Value::Text(text), after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_the_shells_quoted_form_are_read_back() {
        let row = parse_row("1,'a''b,c',X'00ff',NULL,2.5,-7,''", "").unwrap();
        let expected = [
            Value::Integer(1),
            Value::Text("a'b,c".to_owned()),
            Value::Blob(vec![0, 255]),
            Value::Null,
            Value::Real(2.5),
            Value::Integer(-7),
            Value::Text(String::new()),
        ];
        assert_eq!(row, expected);
        assert!(parse_row("delete", "").is_err());
    }

    #[test]
    fn parameters_are_spelled_out_by_their_number() {
        let values = [
            Value::Integer(4),
            Value::Text("it's".to_owned()),
            Value::Blob(vec![1, 0xAB]),
        ];
        let sql = spell_out("SELECT ?2, ?1, ?3 WHERE a = ?1", &values);
        assert_eq!(sql, "SELECT 'it''s', 4, x'01ab' WHERE a = 4");
    }

    #[test]
    fn errors_of_the_shell_carry_their_code() {
        let busy = error_of("Runtime error near line 7: database is locked (5)", "x").unwrap();
        assert_eq!(busy.kind, SqlErrorKind::Busy);
        let refused =
            error_of("Parse error near line 1: file is not a database (26)", "x").unwrap();
        assert_eq!(refused.kind, SqlErrorKind::NotADatabase);
        let other = error_of("Parse error near line 5: no such table: nope", "x").unwrap();
        assert_eq!(other.kind, SqlErrorKind::Other);
        assert!(error_of("'delete'", "x").is_none());
    }
}
