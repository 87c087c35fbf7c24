//! An event as a line of `key=value`.

use std::fmt::Write;

/// A longer value is cut, in bytes.
const MOST_BYTES: usize = 1024;

/// The line, without its end.
pub fn of(event: &str, fields: &[(&'static str, String)]) -> String {
    let mut line = format!("event={event}");
    for (name, value) in fields {
        let _ = write!(line, " {name}=");
        push(&mut line, value);
    }
    line
}

/// Adds a value: as it is if it is one plain word, otherwise in quotes, as in JSON.
pub fn push(line: &mut String, value: &str) {
    let value = cut(value);
    let is_plain =
        |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '\\' | '=');
    if !value.is_empty() && value.chars().all(is_plain) {
        line.push_str(value);
        return;
    }
    line.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => line.extend(['\\', c]),
            '\n' => line.push_str("\\n"),
            c if c.is_control() => {
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            c => line.push(c),
        }
    }
    line.push('"');
}

/// The beginning of a long value.
pub fn cut(value: &str) -> &str {
    let mut end = MOST_BYTES.min(value.len());
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    &value[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_end_within_it_and_each_value_can_be_told() {
        let fields = [
            ("a", "plain".to_owned()),
            ("b", "two words".to_owned()),
            ("c", "a\"b\\c\nd\u{1b}".to_owned()),
            ("d", String::new()),
            ("e", "x=y".to_owned()),
        ];
        let line = of("message", &fields);
        let expected =
            "event=message a=plain b=\"two words\" c=\"a\\\"b\\\\c\\nd\\u001b\" d=\"\" e=\"x=y\"";
        assert_eq!(line, expected);
    }

    #[test]
    fn a_long_value_is_cut_between_characters() {
        assert_eq!(cut(&"x".repeat(5000)).len(), MOST_BYTES);
        assert_eq!(cut(&format!("x{}", "é".repeat(5000))).len(), MOST_BYTES - 1);
    }
}
