//! The amalgamation as lines, and a search in it by markers and names.

use crate::error::Error;
use crate::prototype::{self, Prototype};

/// The amalgamation.
pub struct Source<'a> {
    text: &'a str,
    lines: Vec<&'a str>,
}

/// A file within the amalgamation: its lines from the marker that begins it to the one that ends
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// The line "Begin file", from 0.
    pub first: usize,
    /// The line "End of", from 0.
    pub last: usize,
}

impl<'a> Source<'a> {
    /// Splits the amalgamation into lines.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self {
            text,
            lines: text.lines().collect(),
        }
    }

    /// The length of the text in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether there is no text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The lines, in order.
    pub fn lines(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.lines.iter().copied()
    }

    /// The lines of one source file.
    ///
    /// # Errors
    ///
    /// Where one of its markers is missing or repeated, or the markers are in the wrong order.
    pub fn section(&self, file: &str) -> Result<Section, Error> {
        let first = self.marker("Begin file", file)?;
        let last = self.marker("End of", file)?;
        if first < last {
            Ok(Section { first, last })
        } else {
            Err(Error::Lines {
                what: format!("{file}, begun before it ends"),
                found: vec![first + 1, last + 1],
            })
        }
    }

    fn marker(&self, kind: &str, file: &str) -> Result<usize, Error> {
        let words = format!(" {kind} {file} ");
        self.only(&format!("the marker \"{kind} {file}\""), |line| {
            let stars = |text: &str| text.len() > 2 && text.bytes().all(|byte| byte == b'*');
            line.strip_prefix('/')
                .and_then(|line| line.strip_suffix('/'))
                .and_then(|line| line.split_once(&words))
                .is_some_and(|(before, after)| stars(before) && stars(after))
        })
    }

    /// The one line that is exactly `wanted`, from 0.
    ///
    /// # Errors
    ///
    /// Where it is missing or repeated.
    pub fn only_line(&self, wanted: &str) -> Result<usize, Error> {
        self.only(wanted, |line| line == wanted)
    }

    fn only(&self, what: &str, matches: impl Fn(&str) -> bool) -> Result<usize, Error> {
        let found: Vec<usize> = (0..self.lines.len())
            .filter(|&number| matches(self.lines[number]))
            .collect();
        match found[..] {
            [line] => Ok(line),
            _ => Err(Error::Lines {
                what: what.to_owned(),
                found: found.iter().map(|line| line + 1).collect(),
            }),
        }
    }

    /// The declarations of a header within the amalgamation, in order; a repeated one counts once.
    ///
    /// # Errors
    ///
    /// Where the header does not occur exactly once, or a declaration in it cannot be parsed.
    pub fn prototypes(&self, header: &str) -> Result<Vec<Prototype>, Error> {
        let section = self.section(header)?;
        let mut all: Vec<Prototype> = Vec::new();
        for prototype in prototype::parse(&self.lines[section.first..=section.last])? {
            match all.iter().find(|other| other.name == prototype.name) {
                None => all.push(prototype),
                Some(other) if other.text == prototype.text => {}
                Some(_) => {
                    return Err(Error::Declarations {
                        name: prototype.name,
                        found: 2,
                    });
                }
            }
        }
        Ok(all)
    }

    /// The declaration of one function, in any file.
    ///
    /// # Errors
    ///
    /// Where it is not declared, or declared in more than one way.
    pub fn prototype(&self, name: &str) -> Result<Prototype, Error> {
        let mut found: Vec<Prototype> = Vec::new();
        for (number, line) in self.lines.iter().enumerate() {
            if prototype::begins(line) && mentions(line, name) {
                let end = (number + 40).min(self.lines.len());
                if let Some(prototype) = prototype::one(&self.lines[number..end])?
                    && prototype.name == name
                    && !found.iter().any(|other| other.text == prototype.text)
                {
                    found.push(prototype);
                }
            }
        }
        match <[Prototype; 1]>::try_from(found) {
            Ok([prototype]) => Ok(prototype),
            Err(found) => Err(Error::Declarations {
                name: name.to_owned(),
                found: found.len(),
            }),
        }
    }

    /// How often a function is defined from the beginning of one file to the end of another.
    ///
    /// # Errors
    ///
    /// Where a marker is missing or repeated.
    pub fn definitions(&self, name: &str, first: &str, last: &str) -> Result<usize, Error> {
        let lines = &self.lines[self.section(first)?.first..=self.section(last)?.last];
        let defined = |number: usize| {
            prototype::begins(lines[number])
                && mentions(lines[number], name)
                && prototype::is_definition(&lines[number..(number + 40).min(lines.len())])
        };
        Ok((0..lines.len()).filter(|&number| defined(number)).count())
    }

    /// Makes sure that a function is defined once from the beginning of one file to the end of
    /// another.
    ///
    /// # Errors
    ///
    /// Where it is not.
    pub fn defined_in(&self, name: &str, first: &str, last: &str) -> Result<(), Error> {
        match self.definitions(name, first, last)? {
            1 => Ok(()),
            found => Err(Error::Definitions {
                name: name.to_owned(),
                files: format!("{first} to {last}"),
                found,
            }),
        }
    }
}

/// Whether a line names the function before a parenthesis.
fn mentions(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let before = line[..at].bytes().last();
        let after = line[at + name.len()..].trim_start().bytes().next();
        !before.is_some_and(word) && after == Some(b'(')
    })
}
