//! Enough of EDN for Jepsen's histories: maps, vectors, lists, keywords, integers, strings, nil.
//! Other words, such as symbols, tags and decimals, are kept as text.

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edn {
    Nil,
    Integer(i64),
    Keyword(String),
    Text(String),
    Vector(Vec<Edn>),
    Map(Vec<(Edn, Edn)>),
}

impl Edn {
    /// The value of a keyword in a map.
    pub fn get(&self, name: &str) -> Option<&Edn> {
        let Self::Map(entries) = self else {
            return None;
        };
        let is_name = |key: &Edn| matches!(key, Self::Keyword(word) if word == name);
        let entry = entries.iter().find(|(key, _)| is_name(key));
        entry.map(|(_, value)| value)
    }

    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    pub fn keyword(&self) -> Option<&str> {
        match self {
            Self::Keyword(word) => Some(word),
            _ => None,
        }
    }

    pub fn vector(&self) -> Option<&[Edn]> {
        match self {
            Self::Vector(items) => Some(items),
            _ => None,
        }
    }
}

/// Reads one value that is all of `text`. `None` if the text is something else or not complete.
pub fn parse(text: &str) -> Option<Edn> {
    let mut reader = Reader {
        bytes: text.as_bytes(),
        at: 0,
    };
    let value = reader.value()?;
    reader.space();
    (reader.at == reader.bytes.len()).then_some(value)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == b','
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Option<Edn> {
        self.space();
        match self.peek()? {
            b'[' => self.items(b']').map(Edn::Vector),
            b'(' => self.items(b')').map(Edn::Vector),
            b'{' => self.map(),
            b'"' => self.text(),
            _ => self.word(),
        }
    }

    fn items(&mut self, end: u8) -> Option<Vec<Edn>> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.space();
            if self.peek()? == end {
                self.at += 1;
                return Some(items);
            }
            items.push(self.value()?);
        }
    }

    fn map(&mut self) -> Option<Edn> {
        let mut items = self.items(b'}')?.into_iter();
        let mut entries = Vec::new();
        while let Some(key) = items.next() {
            entries.push((key, items.next()?));
        }
        Some(Edn::Map(entries))
    }

    fn text(&mut self) -> Option<Edn> {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let byte = self.peek()?;
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(text).ok().map(Edn::Text),
                b'\\' => {
                    text.push(self.peek()?);
                    self.at += 1;
                }
                other => text.push(other),
            }
        }
    }

    fn word(&mut self) -> Option<Edn> {
        let ends = |byte: u8| is_space(byte) || b"[](){}\"".contains(&byte);
        let rest = &self.bytes[self.at..];
        let length = rest
            .iter()
            .position(|byte| ends(*byte))
            .unwrap_or(rest.len());
        let word = std::str::from_utf8(rest.get(..length)?).ok()?;
        self.at += length;
        match word {
            "" => None,
            "nil" => Some(Edn::Nil),
            word => Some(match (word.strip_prefix(':'), word.parse()) {
                (Some(name), _) => Edn::Keyword(name.to_owned()),
                (None, Ok(number)) => Edn::Integer(number),
                (None, Err(_)) => Edn::Text(word.to_owned()),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_jepsen_is_read() {
        let line = "{:type :ok, :f :txn, :value [[:r 4 [1 2]] [:append 4 3]], :process 0, \
                    :error \"a \\\"b\\\"\", :time 12}";
        let map = parse(line).expect("a map");
        assert_eq!(map.get("type").and_then(Edn::keyword), Some("ok"));
        assert_eq!(map.get("time").and_then(Edn::integer), Some(12));
        assert_eq!(map.get("error"), Some(&Edn::Text("a \"b\"".to_owned())));
        let value = map.get("value").and_then(Edn::vector).expect("operations");
        let list = Edn::Vector(vec![Edn::Integer(1), Edn::Integer(2)]);
        assert_eq!(value[0].vector().expect("a read")[2], list);
    }

    #[test]
    fn a_line_that_a_kill_has_cut_is_nothing() {
        let line = "{:type :ok, :value [[:r 4 [1 2]]], :time 12}";
        for length in 0..line.len() {
            assert_eq!(parse(&line[..length]), None, "{length} bytes");
        }
        assert!(parse(&format!("{line} {line}")).is_none());
    }
}
