//! Declarations of C functions, in the subset of the language that SQLite's headers use.

use crate::error::Error;

/// A function's declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prototype {
    /// The function.
    pub name: String,
    /// The whole declaration on one line, without comments.
    pub text: String,
    /// The return type, without the linkage.
    pub returns: String,
    /// The parameters.
    pub parameters: Vec<Parameter>,
    /// The `#if` lines around it, outermost first.
    pub conditions: Vec<String>,
}

/// A function's parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parameter {
    /// One that has this type, without its name.
    Typed(String),
    /// A function or an ellipsis: the original text.
    Other(String),
}

/// The linkages that SQLite's declarations begin with.
const LINKAGES: [&str; 2] = ["SQLITE_PRIVATE", "SQLITE_API"];

/// Types of one word, so that they are not taken for a parameter's name.
const TYPES: [&str; 9] = [
    "int",
    "unsigned",
    "char",
    "void",
    "u8",
    "u32",
    "i64",
    "Pgno",
    "sqlite3_int64",
];

impl Prototype {
    /// The declaration with internal linkage, whatever the original has: nothing else uses a
    /// renamed function.
    #[must_use]
    pub fn private_declaration(&self) -> String {
        let rest = LINKAGES
            .iter()
            .find_map(|linkage| self.text.strip_prefix(linkage))
            .unwrap_or(&self.text);
        format!("static {}", rest.trim_start())
    }
}

/// Whether a declaration or definition begins on this line.
#[must_use]
pub fn begins(line: &str) -> bool {
    LINKAGES.iter().any(|linkage| {
        line.strip_prefix(linkage)
            .is_some_and(|rest| rest.starts_with([' ', '\t']))
    })
}

/// The functions that some lines of a header declare.
///
/// # Errors
///
/// Where a declaration cannot be parsed, or follows an `#else`.
pub fn parse(lines: &[&str]) -> Result<Vec<Prototype>, Error> {
    let mut found = Vec::new();
    let mut conditions: Vec<(String, Branch)> = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        match directive(line) {
            // The guard against including a header twice.
            Some("ifndef") if line.ends_with("_H") => {
                conditions.push((String::new(), Branch::Then))
            }
            Some("if" | "ifdef" | "ifndef") => {
                conditions.push(((*line).trim().to_owned(), Branch::Then))
            }
            Some("else" | "elif") => {
                if let Some((_, branch)) = conditions.last_mut() {
                    *branch = Branch::Else;
                }
            }
            Some("endif") => {
                conditions.pop();
            }
            _ if begins(line) => {
                if let Some(mut prototype) = one(&lines[number..])? {
                    if conditions.iter().any(|(_, branch)| *branch == Branch::Else) {
                        return Err(Error::Declaration(format!(
                            "behind an #else: {}",
                            prototype.text
                        )));
                    }
                    prototype.conditions = conditions
                        .iter()
                        .map(|(text, _)| text.clone())
                        .filter(|text| !text.is_empty())
                        .collect();
                    found.push(prototype);
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

#[derive(PartialEq, Eq)]
enum Branch {
    Then,
    Else,
}

fn directive(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start();
    rest.split(|c: char| !c.is_ascii_alphabetic()).next()
}

/// The declaration that begins on the first of some lines; `None` if it is a definition or no
/// function.
///
/// # Errors
///
/// Where it cannot be parsed.
pub fn one(lines: &[&str]) -> Result<Option<Prototype>, Error> {
    match statement(lines) {
        Some((text, ';')) if text.contains('(') && !text.contains('=') => {
            understand(&text).map(Some)
        }
        _ => Ok(None),
    }
}

/// Whether a function's definition begins on the first of some lines.
#[must_use]
pub fn is_definition(lines: &[&str]) -> bool {
    matches!(statement(lines), Some((text, '{')) if text.contains('(') && !text.contains('='))
}

/// The text up to the first `;` or `{` outside of comments, on one line, and that character.
fn statement(lines: &[&str]) -> Option<(String, char)> {
    let mut text = String::new();
    let mut in_comment = false;
    for line in lines {
        let mut rest = *line;
        while !rest.is_empty() {
            if in_comment {
                let Some(end) = rest.find("*/") else { break };
                rest = &rest[end + 2..];
                in_comment = false;
                text.push(' ');
            } else {
                let comment = rest.find("/*");
                let end = rest.find([';', '{']);
                if let Some(end) = end.filter(|&end| comment.is_none_or(|at| end < at)) {
                    text.push_str(&rest[..end]);
                    let words: Vec<&str> = text.split_whitespace().collect();
                    return Some((
                        words.join(" "),
                        if rest[end..].starts_with(';') {
                            ';'
                        } else {
                            '{'
                        },
                    ));
                }
                text.push_str(&rest[..comment.unwrap_or(rest.len())]);
                rest = comment.map_or("", |at| &rest[at + 2..]);
                in_comment = comment.is_some();
            }
        }
        text.push(' ');
    }
    None
}

fn understand(text: &str) -> Result<Prototype, Error> {
    let bad = || Error::Declaration(text.to_owned());
    let open = text.find('(').ok_or_else(bad)?;
    let head = text[..open].trim_end();
    let list = text[open + 1..].strip_suffix(')').ok_or_else(bad)?;
    let start = head
        .rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .ok_or_else(bad)?
        + 1;
    let (returns, name) = (head[..start].trim(), &head[start..]);
    let returns = LINKAGES
        .iter()
        .find_map(|linkage| returns.strip_prefix(linkage))
        .ok_or_else(bad)?
        .trim();
    if name.is_empty() || returns.is_empty() {
        return Err(bad());
    }
    let parameters = match list.trim() {
        "void" | "" => Vec::new(),
        list => arguments(list).into_iter().map(parameter).collect(),
    };
    Ok(Prototype {
        name: name.to_owned(),
        text: format!("{text};"),
        returns: returns.to_owned(),
        parameters,
        conditions: Vec::new(),
    })
}

/// The parameters of a list, split at the commas outside inner parentheses.
fn arguments(list: &str) -> Vec<&str> {
    let mut depth = 0;
    list.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .collect()
}

fn parameter(text: &str) -> Parameter {
    if text.contains(['(', '.', '[']) {
        return Parameter::Other(text.to_owned());
    }
    let start = text
        .rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .map_or(0, |at| at + 1);
    let (before, last) = (text[..start].trim(), &text[start..]);
    let only_qualifiers = before
        .split_whitespace()
        .all(|word| matches!(word, "const" | "struct"));
    if last.is_empty() || only_qualifiers || TYPES.contains(&last) {
        Parameter::Typed(text.to_owned())
    } else {
        Parameter::Typed(before.to_owned())
    }
}
