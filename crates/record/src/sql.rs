//! A small parser of a statement's text: its words and literals, its kind, and its end. It follows
//! SQLite's tokenizer, and accepts any bytes.

use std::ops::Range;

/// The kind of a piece of SQL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A keyword or a name.
    Word,
    /// A quoted name: `"x"`, `[x]`, `` `x` ``.
    Quoted,
    /// `'text'`.
    Text,
    /// `x'00'`.
    Blob,
    /// A number.
    Number,
    /// `?`, `?1`, `:a`, `@a`, `$a`.
    Parameter,
    /// `;`.
    End,
    /// Anything else: one byte of an operator or a bracket.
    Other,
}

/// A piece of SQL and its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// Its kind.
    pub kind: Kind,
    /// The range of its bytes.
    pub at: Range<usize>,
}

/// The pieces of a text, without comments and spaces.
#[derive(Clone, Debug)]
pub struct Tokens<'a> {
    sql: &'a [u8],
    at: usize,
}

/// Begins at the start of a text.
pub fn tokens(sql: &[u8]) -> Tokens<'_> {
    Tokens { sql, at: 0 }
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

impl Tokens<'_> {
    fn byte(&self, at: usize) -> u8 {
        self.sql.get(at).copied().unwrap_or(0)
    }

    /// The first byte from `at` on that does not fit, or the end.
    fn while_fits(&self, at: usize, fits: impl Fn(u8) -> bool) -> usize {
        let rest = self.sql.get(at..).unwrap_or_default();
        rest.iter()
            .position(|byte| !fits(*byte))
            .map_or(self.sql.len(), |n| at + n)
    }

    /// The offset after the quote that ends the literal begun before `at`. A doubled quote stands
    /// for itself.
    fn past_quote(&self, mut at: usize, quote: u8) -> usize {
        loop {
            at = self.while_fits(at, |byte| byte != quote);
            if self.byte(at + 1) != quote || at + 1 >= self.sql.len() {
                return (at + 1).min(self.sql.len());
            }
            at += 2;
        }
    }

    fn skip_space(&mut self) {
        loop {
            self.at = self.while_fits(self.at, |byte| byte.is_ascii_whitespace() || byte == 0x0C);
            match (self.byte(self.at), self.byte(self.at + 1)) {
                (b'-', b'-') => self.at = self.while_fits(self.at, |byte| byte != b'\n'),
                (b'/', b'*') => {
                    let rest = self.sql.get(self.at + 2..).unwrap_or_default();
                    let end = rest.windows(2).position(|pair| pair == b"*/");
                    self.at = end.map_or(self.sql.len(), |end| self.at + 2 + end + 2);
                }
                _ => return,
            }
        }
    }

    fn number(&self, begin: usize) -> usize {
        if self.byte(begin) == b'0' && self.byte(begin + 1).eq_ignore_ascii_case(&b'x') {
            return self.while_fits(begin + 2, |byte| byte.is_ascii_hexdigit());
        }
        let mut at = self.while_fits(begin, |byte| byte.is_ascii_digit() || byte == b'_');
        if self.byte(at) == b'.' {
            at = self.while_fits(at + 1, |byte| byte.is_ascii_digit());
        }
        if self.byte(at).eq_ignore_ascii_case(&b'e') {
            let sign = usize::from(matches!(self.byte(at + 1), b'+' | b'-'));
            if self.byte(at + 1 + sign).is_ascii_digit() {
                at = self.while_fits(at + 1 + sign, |byte| byte.is_ascii_digit());
            }
        }
        at
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        self.skip_space();
        let begin = self.at;
        let first = *self.sql.get(begin)?;
        let second = self.byte(begin + 1);
        let (kind, end) = match first {
            b'\'' => (Kind::Text, self.past_quote(begin + 1, b'\'')),
            b'"' | b'`' => (Kind::Quoted, self.past_quote(begin + 1, first)),
            b'[' => {
                let end = self.while_fits(begin, |byte| byte != b']');
                (Kind::Quoted, (end + 1).min(self.sql.len()))
            }
            b'x' | b'X' if second == b'\'' => (Kind::Blob, self.past_quote(begin + 2, b'\'')),
            b'0'..=b'9' => (Kind::Number, self.number(begin)),
            b'.' if second.is_ascii_digit() => (Kind::Number, self.number(begin)),
            b'?' => (
                Kind::Parameter,
                self.while_fits(begin + 1, |b| b.is_ascii_digit()),
            ),
            b':' | b'@' | b'$' | b'#' if in_word(second) => {
                (Kind::Parameter, self.while_fits(begin + 1, in_word))
            }
            b';' => (Kind::End, begin + 1),
            byte if in_word(byte) => (Kind::Word, self.while_fits(begin, in_word)),
            _ => (Kind::Other, begin + 1),
        };
        self.at = end;
        Some(Token {
            kind,
            at: begin..end,
        })
    }
}

fn bytes<'a>(sql: &'a [u8], token: &Token) -> &'a [u8] {
    sql.get(token.at.clone()).unwrap_or_default()
}

fn is_word(sql: &[u8], token: &Token, word: &str) -> bool {
    token.kind == Kind::Word && bytes(sql, token).eq_ignore_ascii_case(word.as_bytes())
}

/// The first word, in capitals; empty if the text begins with something else.
pub fn verb(sql: &[u8]) -> String {
    let first = tokens(sql).find(|token| token.kind != Kind::End);
    match first {
        Some(token) if token.kind == Kind::Word => {
            String::from_utf8_lossy(bytes(sql, &token)).to_ascii_uppercase()
        }
        _ => String::new(),
    }
}

/// The name of a pragma in small letters, and whether the statement gives it a value.
pub fn pragma(sql: &[u8]) -> Option<(String, bool)> {
    let mut tokens = tokens(sql).filter(|token| token.kind != Kind::End);
    let first = tokens.next()?;
    if !is_word(sql, &first, "pragma") {
        return None;
    }
    let name = |token: &Token| {
        let name = String::from_utf8_lossy(bytes(sql, token)).to_ascii_lowercase();
        name.trim_matches(['"', '`', '[', ']']).to_owned()
    };
    let mut named = name(&tokens.next()?);
    let mut next = tokens.next();
    if next.as_ref().is_some_and(|token| bytes(sql, token) == b".") {
        named = name(&tokens.next()?);
        next = tokens.next();
    }
    let value = next.is_some_and(|token| matches!(bytes(sql, &token), b"=" | b"("));
    Some((named, value))
}

/// The file name of an ATTACH whose name is a literal: its range and its text.
pub fn attached(sql: &[u8]) -> Option<(Range<usize>, Vec<u8>)> {
    let mut tokens = tokens(sql).filter(|token| token.kind != Kind::End);
    let first = tokens.next()?;
    if !is_word(sql, &first, "attach") {
        return None;
    }
    let mut token = tokens.next()?;
    if is_word(sql, &token, "database") {
        token = tokens.next()?;
    }
    match token.kind {
        Kind::Text | Kind::Quoted => Some((token.at.clone(), unquoted(bytes(sql, &token)))),
        _ => None,
    }
}

/// The text between quotes. Doubled quotes become single.
pub fn unquoted(literal: &[u8]) -> Vec<u8> {
    let (Some(quote), Some(inner)) = (
        literal.first(),
        literal.get(1..literal.len().saturating_sub(1)),
    ) else {
        return Vec::new();
    };
    let mut text = Vec::with_capacity(inner.len());
    let mut doubled = false;
    for byte in inner {
        doubled = byte == quote && !doubled;
        if !doubled {
            text.push(*byte);
        }
    }
    text
}

/// A text as a literal.
pub fn quoted(text: &[u8]) -> Vec<u8> {
    let mut literal = vec![b'\''];
    for byte in text {
        if *byte == b'\'' {
            literal.push(b'\'');
        }
        literal.push(*byte);
    }
    literal.push(b'\'');
    literal
}

/// The first of these functions that a text calls (or word that it uses), in small letters.
pub fn first_call<'a>(sql: &[u8], names: &[&'a str]) -> Option<&'a str> {
    tokens(sql)
        .filter(|token| token.kind == Kind::Word)
        .find_map(|token| {
            names
                .iter()
                .copied()
                .find(|name| is_word(sql, &token, name))
        })
}

/// The offset at which the first statement of a text ends, including its semicolon. `None` where it
/// does not end in this text. A trigger's body has semicolons of its own.
pub fn statement_end(sql: &[u8]) -> Option<usize> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut ended_by_end = false;
    let mut any = false;
    for token in tokens(sql) {
        if token.kind != Kind::End {
            any = true;
            ended_by_end = is_word(sql, &token, "end");
            if words.len() < 3 {
                words.push(bytes(sql, &token).to_ascii_lowercase());
            }
            continue;
        }
        let skip = words.first().is_some_and(|word| word == b"explain");
        let words = words.get(usize::from(skip)..).unwrap_or_default();
        let is_create = words.first().is_some_and(|word| word == b"create");
        let is_trigger = is_create && words.iter().skip(1).take(2).any(|word| word == b"trigger");
        if any && (!is_trigger || ended_by_end) {
            return Some(token.at.end);
        }
        if !any {
            return Some(token.at.end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds(sql: &str) -> Vec<(Kind, &str)> {
        tokens(sql.as_bytes())
            .map(|token| (token.kind, &sql[token.at]))
            .collect()
    }

    #[test]
    fn pieces_are_told_apart() {
        use Kind::*;
        assert_eq!(
            kinds(
                "SELECT 'it''s' /* no; */, X'0a' -- end\n FROM \"a b\" WHERE c=?1 OR d=:n OR e=-1.5e-3;"
            ),
            [
                (Word, "SELECT"),
                (Text, "'it''s'"),
                (Other, ","),
                (Blob, "X'0a'"),
                (Word, "FROM"),
                (Quoted, "\"a b\""),
                (Word, "WHERE"),
                (Word, "c"),
                (Other, "="),
                (Parameter, "?1"),
                (Word, "OR"),
                (Word, "d"),
                (Other, "="),
                (Parameter, ":n"),
                (Word, "OR"),
                (Word, "e"),
                (Other, "="),
                (Other, "-"),
                (Number, "1.5e-3"),
                (End, ";"),
            ]
        );
    }

    #[test]
    fn statements_are_known() {
        assert_eq!(verb(b" ;/* x */ insert into t values (1)"), "INSERT");
        assert_eq!(
            pragma(b"PRAGMA main.journal_mode = WAL"),
            Some(("journal_mode".into(), true))
        );
        assert_eq!(
            pragma(b"pragma table_info(t)"),
            Some(("table_info".into(), true))
        );
        assert_eq!(
            pragma(b"pragma user_version"),
            Some(("user_version".into(), false))
        );
        assert_eq!(pragma(b"SELECT 1"), None);
        let sql = b"attach database 'it''s.db' as x";
        assert_eq!(attached(sql), Some((16..26, b"it's.db".to_vec())));
        assert_eq!(attached(b"ATTACH ? AS y"), None);
        assert_eq!(quoted(b"it's"), b"'it''s'");
        assert_eq!(
            first_call(b"SELECT Random(), 'now'", &["random", "date"]),
            Some("random")
        );
        assert_eq!(first_call(b"SELECT 'random()'", &["random"]), None);
    }

    #[test]
    fn a_statement_ends_at_its_semicolon_and_a_trigger_at_its_end() {
        let end = |sql: &str| statement_end(sql.as_bytes()).map(|end| sql[..end].to_owned());
        assert_eq!(end("SELECT ';'; SELECT 2").as_deref(), Some("SELECT ';';"));
        assert_eq!(end("SELECT 1 -- ;"), None);
        let trigger =
            "CREATE TEMP TRIGGER t AFTER INSERT ON a BEGIN DELETE FROM b; DELETE FROM c; END;";
        assert_eq!(
            end(&format!("{trigger} SELECT 1;")).as_deref(),
            Some(trigger)
        );
        assert_eq!(
            end("CREATE TABLE a (b); x;").as_deref(),
            Some("CREATE TABLE a (b);")
        );
        assert_eq!(end(" ;SELECT 1;").as_deref(), Some(" ;"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_pieces_in_order(sql: Vec<u8>) {
            let mut last = 0;
            for token in tokens(&sql) {
                prop_assert!(token.at.start >= last && token.at.end > token.at.start);
                prop_assert!(token.at.end <= sql.len());
                last = token.at.end;
            }
            let _ = (verb(&sql), pragma(&sql), attached(&sql), statement_end(&sql));
        }
    }
}
