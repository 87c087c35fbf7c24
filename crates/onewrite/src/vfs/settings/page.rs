//! The tables in `docs/reference/settings.md`, made from the tables here.

use super::{SETTINGS, Setting, Settings};
use crate::mode::JournalMode;
use crate::vfs::environment;
use crate::vfs::pragma::COMMANDS;

/// The page, relative to this crate's folder.
const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/reference/settings.md"
);
/// If this variable is set, the test writes the page.
const WRITE: &str = "ONEWRITE_WRITE_SETTINGS";

/// The tables, by the names of their places in the page.
fn tables() -> [(&'static str, String); 4] {
    [
        ("settings", settings_table()),
        ("values", values_table()),
        ("commands", commands_table()),
        ("variables", variables_table()),
    ]
}

fn settings_table() -> String {
    let mut table = header(&["setting", "what it sets", "default", "set", "modes"]);
    for setting in &SETTINGS {
        let mut set = "pragma, URI".to_owned();
        if let Some(variable) = setting.variable() {
            set += &format!(", `{variable}`");
        }
        if setting.shapes_log {
            set += "; before `journal_mode`";
        }
        table += &row(&[
            code(setting.pragma),
            setting.help.to_owned(),
            code(&setting.takes.printed(&Settings::default())),
            set,
            modes_of(setting),
        ]);
    }
    table
}

fn modes_of(setting: &Setting) -> String {
    let obeys = |mode: &JournalMode| (setting.modes)(*mode);
    let modes: Vec<_> = JournalMode::ALL.into_iter().filter(obeys).collect();
    match modes.len() == JournalMode::ALL.len() {
        true => "all".to_owned(),
        false => modes
            .iter()
            .map(|mode| code(mode.name()))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn values_table() -> String {
    let mut table = header(&["setting", "value", "meaning"]);
    for setting in &SETTINGS {
        let mut name = code(setting.pragma);
        for (word, meaning) in setting.values() {
            table += &row(&[std::mem::take(&mut name), code(word), meaning.to_owned()]);
        }
    }
    table
}

fn commands_table() -> String {
    let mut table = header(&["pragma", "what it answers or does"]);
    for command in &COMMANDS {
        table += &row(&[code(command.pragma), command.help.to_owned()]);
    }
    table
}

fn variables_table() -> String {
    let mut table = header(&["variable", "value", "effect"]);
    for variable in &environment::ALL {
        let mut name = code(variable.name);
        for (value, effect) in variable.values {
            let value = match value.contains(' ') {
                true => (*value).to_owned(),
                false => code(value),
            };
            table += &row(&[std::mem::take(&mut name), value, (*effect).to_owned()]);
        }
    }
    for setting in &SETTINGS {
        if let Some(variable) = setting.variable() {
            let value = format!("those of {}", code(setting.pragma));
            table += &row(&[code(&variable), value, setting.help.to_owned()]);
        }
    }
    table
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn header(cells: &[&str]) -> String {
    let line = "| --- ".repeat(cells.len());
    format!("| {} |\n{line}|\n", cells.join(" | "))
}

/// The page with the tables in their places.
fn with_tables(page: &str) -> String {
    let mut page = page.to_owned();
    for (name, table) in tables() {
        let begin = format!("<!-- begin {name}: from the table in vfs/settings.rs -->\n");
        let end = format!("<!-- end {name} -->\n");
        let (before, rest) = page.split_once(&begin).expect("a place for the table");
        let (_, after) = rest.split_once(&end).expect("an end of the table");
        page = format!("{before}{begin}\n{table}\n{end}{after}");
    }
    page
}

#[test]
fn the_page_has_the_settings_as_they_are() {
    let page = std::fs::read_to_string(PAGE).expect("docs/reference/settings.md");
    let expected = with_tables(&page);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(PAGE, &expected).expect("written");
    } else {
        assert!(
            page == expected,
            "docs/reference/settings.md is not as the tables in the code have it: run {WRITE}=1 cargo test \
             -p onewrite --lib the_page_has_the_settings_as_they_are"
        );
    }
}

/// Every value on the page can be set, and the answer repeats it.
#[test]
fn each_word_of_the_table_is_distinct_and_has_a_meaning() {
    for setting in &SETTINGS {
        assert!(
            setting.pragma.starts_with("onewrite_"),
            "{}",
            setting.pragma
        );
        assert_eq!(
            Setting::of(setting.pragma).map(|it| it.help),
            Some(setting.help)
        );
        let values = setting.values();
        let default = setting.takes.printed(&Settings::default());
        assert!(values.iter().any(|(word, _)| *word == default), "{default}");
        for (place, (word, meaning)) in values.iter().enumerate() {
            assert!(!meaning.is_empty(), "{word}");
            let first = values.iter().position(|(other, _)| other == word);
            assert_eq!(first, Some(place), "{}: {word}", setting.pragma);
        }
        assert!(
            !COMMANDS
                .iter()
                .any(|command| command.pragma == setting.pragma)
        );
    }
}
