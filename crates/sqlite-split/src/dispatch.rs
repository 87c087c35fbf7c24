//! The functions that choose between the engines, one for each name that both have.
//!
//! `sqlite3BtreeNext(a0, a1)` becomes a function that asks `glueOwnsCursor(a0)` and calls
//! `glueNext` or `stock_sqlite3BtreeNext`. All of it is one translation unit: the compiler reduces
//! it to one test of a byte that is in the cache anyway.

use crate::STOCK;
use crate::error::Error;
use crate::plan::{self, Role};
use crate::prototype::{Parameter, Prototype};

/// The dispatching functions for the declarations of `btree.h`.
///
/// # Errors
///
/// Where the parameters of a function do not identify the engine.
pub fn functions(declared: &[Prototype]) -> Result<Vec<String>, Error> {
    let mut lines = Vec::new();
    for prototype in declared {
        let (owner, object) = match plan::role(&prototype.name) {
            Some(Role::Handle) => ("glueOwns", "Btree"),
            Some(Role::Cursor) => ("glueOwnsCursor", "BtCursor"),
            _ => continue,
        };
        lines.extend(prototype.conditions.iter().cloned());
        lines.push(function(prototype, owner, object)?);
        lines.extend(prototype.conditions.iter().map(|_| "#endif".to_owned()));
    }
    Ok(lines)
}

/// The other engine's name of a function: `sqlite3BtreeNext` is `glueNext` there.
#[must_use]
pub fn glue_name(name: &str) -> String {
    format!("glue{}", name.strip_prefix("sqlite3Btree").unwrap_or(name))
}

fn function(prototype: &Prototype, owner: &str, object: &str) -> Result<String, Error> {
    let bad = || Error::Declaration(prototype.text.clone());
    let mut types = Vec::new();
    for parameter in &prototype.parameters {
        match parameter {
            Parameter::Typed(text) => types.push(text.as_str()),
            Parameter::Other(_) => return Err(bad()),
        }
    }
    let is_object = |text: &&str| {
        text.strip_suffix('*')
            .is_some_and(|text| text.trim_end() == object)
    };
    let chosen = types.iter().position(is_object).ok_or_else(bad)?;
    let declared: Vec<String> = types
        .iter()
        .enumerate()
        .map(|(i, text)| format!("{text} a{i}"))
        .collect();
    let passed: Vec<String> = (0..types.len()).map(|i| format!("a{i}")).collect();
    let passed = passed.join(", ");
    let name = &prototype.name;
    let (ours, stock) = (
        format!("{}({passed})", glue_name(name)),
        format!("{STOCK}{name}({passed})"),
    );
    let body = if prototype.returns == "void" {
        format!("if( {owner}(a{chosen}) ) {ours}; else {stock};")
    } else {
        format!("return {owner}(a{chosen}) ? {ours} : {stock};")
    };
    Ok(format!(
        "SQLITE_PRIVATE {} {name}({}){{ {body} }}",
        prototype.returns,
        declared.join(", ")
    ))
}
