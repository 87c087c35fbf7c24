//! Cuts SQLite's amalgamation so that a second B-tree engine can stand next to the stock one.
//!
//! The amalgamation joins SQLite's source files between markers ("Begin file", "End of"). [`split`]
//! returns the same text with lines inserted at those markers, and changes nothing else:
//!
//! - Around `btree.c`, the functions that the other engine also has get the prefix `stock_`.
//! - After `btree.c` follow the other engine's C part and one function for each such name. That
//!   function asks which engine owns its handle or cursor ([`dispatch`]).
//! - Some functions must not reach the other engine's file. They are in the pager, and among the
//!   public functions that copy raw pages. They get the same prefix, and their guards are part of
//!   the C part.
//! - The file ends with the guards of the public functions.
//!
//! [`plan`] says what happens to each function. A missing or repeated marker or function is an
//! error, and so is a function of `btree.h` that the plan does not know. So a new version of SQLite
//! does not build until a developer has looked at it.
//!
//! Callers: the build script of `lsmvbt-sqlite`, and `scripts/sqlite-tests`, which runs it as a
//! program.

pub mod dispatch;
mod error;
pub mod plan;
pub mod prototype;
pub mod source;

use std::collections::BTreeMap;

pub use error::Error;

use plan::{GUARDED, Role};
use prototype::Prototype;
use source::Source;

/// The prefix of stock functions after renaming.
pub const STOCK: &str = "stock_";

/// The file with the other engine's C part, included after `btree.c`.
pub const GLUE: &str = "glue.c";

/// The file with the guards of public functions, included at the end.
pub const PUBLIC: &str = "public.c";

/// The amalgamation `text` with the other engine next to the stock one.
///
/// # Errors
///
/// Where a marker or a function is not found exactly once, or `btree.h` declares a function that
/// [`plan`] does not know.
pub fn split(text: &str) -> Result<String, Error> {
    let source = Source::new(text);
    let declared = source.prototypes("btree.h")?;
    plan::check(&source, &declared)?;
    let mut inserted = Insertions::default();

    for guarded in GUARDED {
        let prototypes = guarded
            .functions
            .iter()
            .map(|name| source.prototype(name))
            .collect::<Result<Vec<_>, _>>()?;
        for prototype in &prototypes {
            source.defined_in(&prototype.name, guarded.first, guarded.last)?;
        }
        let prototypes: Vec<&Prototype> = prototypes.iter().collect();
        inserted.before(source.section(guarded.first)?.first, rename(&prototypes));
        inserted.behind(source.section(guarded.last)?.last, restore(&prototypes));
    }

    // After the guards, so that after btree.c both names have their usual meaning.
    let btree = source.section("btree.c")?;
    let renamed: Vec<&Prototype> = declared
        .iter()
        .filter(|p| plan::role(&p.name).is_some_and(Role::renamed))
        .collect();
    inserted.before(btree.first, rename(&renamed));
    let mut behind = restore(&renamed);
    behind.push(format!("#include \"{GLUE}\""));
    behind.extend(dispatch::functions(&declared)?);
    inserted.behind(btree.last, behind);

    let end = source.only_line("/* Return the source-id for this library */")?;
    inserted.before(end, vec![format!("#include \"{PUBLIC}\"")]);
    Ok(inserted.into_text(&source))
}

/// Gives functions the prefix [`STOCK`] from here on, and declares them under it.
fn rename(prototypes: &[&Prototype]) -> Vec<String> {
    let mut lines: Vec<String> = prototypes
        .iter()
        .map(|p| format!("#define {} {STOCK}{}", p.name, p.name))
        .collect();
    lines.sort();
    lines.dedup();
    for prototype in prototypes {
        lines.extend(prototype.conditions.iter().cloned());
        lines.push(prototype.private_declaration());
        lines.extend(prototype.conditions.iter().map(|_| "#endif".to_owned()));
    }
    lines
}

/// Ends what [`rename`] began.
fn restore(prototypes: &[&Prototype]) -> Vec<String> {
    let mut lines: Vec<String> = prototypes
        .iter()
        .map(|p| format!("#undef {}", p.name))
        .collect();
    lines.sort();
    lines.dedup();
    lines
}

/// Lines to insert before and after lines of the source.
#[derive(Default)]
struct Insertions {
    before: BTreeMap<usize, Vec<String>>,
    behind: BTreeMap<usize, Vec<String>>,
}

impl Insertions {
    fn before(&mut self, line: usize, text: Vec<String>) {
        self.before.entry(line).or_default().extend(text);
    }

    fn behind(&mut self, line: usize, text: Vec<String>) {
        self.behind.entry(line).or_default().extend(text);
    }

    fn into_text(self, source: &Source) -> String {
        let mut text = String::with_capacity(source.len() + 64 * 1024);
        let mut push = |line: &str| {
            text.push_str(line);
            text.push('\n');
        };
        for (number, line) in source.lines().enumerate() {
            self.before
                .get(&number)
                .into_iter()
                .flatten()
                .for_each(|line| push(line));
            push(line);
            self.behind
                .get(&number)
                .into_iter()
                .flatten()
                .for_each(|line| push(line));
        }
        text
    }
}

#[cfg(test)]
mod tests;
