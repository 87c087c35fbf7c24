//! A report as one self-contained page of HTML: no network, no script, no font of its own.
//!
//! A command makes a [`Page`] of the report that `--json` prints, and [`Page::write`]s it. The
//! parts of a page ([`Part`]) are the same for all commands: bars, tables, pictures of
//! `onewrite-plot`, texts. All text is escaped when the page is made ([`Page::html`]). Only
//! pictures go in as they are, and these are made by this project.
//!
//! The page must also be readable on a phone of 390 pixels. Bars and texts are as wide as the
//! screen. Tables and pictures scroll sideways within their own frame; the first column of a table
//! stays in place.

mod machine;
mod numbers;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use maud::{DOCTYPE, Markup, PreEscaped, html};
use onewrite_plot::Picture;
use serde::Serialize;

pub use machine::Machine;
pub use numbers::{grouped, rate};

const STYLE: &str = include_str!("style.css");

/// The file for the report as a page.
#[derive(clap::Args, Clone, Debug)]
pub struct HtmlArgs {
    /// Also write the report as one self-contained page of HTML, with plots and facts about the
    /// machine
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl HtmlArgs {
    /// Refuses a file that could not be written, before the work begins: its report would be lost.
    pub fn check(&self) -> Result<(), String> {
        let Some(path) = &self.html else {
            return Ok(());
        };
        let dir = match path.parent() {
            Some(dir) if dir.as_os_str().is_empty() => Path::new("."),
            Some(dir) => dir,
            None => return Err(format!("--html {}: that is no file", path.display())),
        };
        if path.is_dir() {
            return Err(format!("--html {}: that is a directory", path.display()));
        }
        crate::directory::check(dir, "give another file with --html")
    }

    /// Writes the page that `make` makes, if the user asked for one.
    pub fn write(&self, make: impl FnOnce() -> Result<Page, String>) -> Result<(), String> {
        match &self.html {
            Some(path) => make()?.write(path),
            None => Ok(()),
        }
    }
}

/// A page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The work, in a few words.
    pub title: String,
    /// The result, in a sentence or two.
    pub lead: Option<String>,
    /// Problems; shown first.
    pub problems: Vec<String>,
    /// The figures.
    pub sections: Vec<Section>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// The circumstances: names and values.
    pub facts: Vec<(String, String)>,
    /// The document that `--json` prints.
    pub json: String,
}

/// Figures of one kind.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// Its contents, and how to read them.
    pub intro: String,
    /// From top to bottom.
    pub parts: Vec<Part>,
}

/// A part of a section.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bars with their figures, as wide as the page.
    Bars(Vec<Bar>),
    /// A table.
    Table(Table),
    /// A picture, and a description of it for readers who cannot see it.
    Picture(Picture, String),
    /// Sentences, one below the other.
    Sentences(Vec<String>),
    /// Other pages in the same directory.
    Links(Vec<Link>),
}

/// A link to a page in the same directory.
#[derive(Clone, Debug)]
pub struct Link {
    /// The page's file name.
    pub file: String,
    /// Its title.
    pub title: String,
    /// What it says, in a sentence.
    pub text: String,
}

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The owner of the figure.
    pub name: String,
    /// Its length; the longest bar of a part fills the width.
    pub value: f64,
    /// The figure as text.
    pub text: String,
    /// Whether others are compared with it.
    pub is_base: bool,
}

/// A table. Its first column names the rows; the others are figures, or words.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The columns' names.
    pub head: Vec<String>,
    /// The rows, each as long as the head.
    pub rows: Vec<Vec<String>>,
}

impl Page {
    /// A page with the document that `--json` prints.
    pub fn of(title: impl Into<String>, report: &impl Serialize) -> Result<Self, String> {
        let json = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
        Ok(Self {
            title: title.into(),
            json,
            ..Self::default()
        })
    }

    /// Adds a fact about the circumstances.
    pub fn fact(&mut self, name: &str, what: impl Into<String>) {
        self.facts.push((name.to_owned(), what.into()));
    }

    /// Writes it to a file.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        fs::write(path, self.html())
            .inspect_err(|_| crate::directory::remove_half_written(path))
            .map_err(|error| crate::directory::cannot_write(path, &error))
    }

    /// The whole document.
    pub fn html(&self) -> String {
        let machine = Machine::here();
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="generator" content={ "onewrite " (env!("CARGO_PKG_VERSION")) };
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    header {
                        h1 { (self.title) }
                        @if let Some(lead) = &self.lead { p.lead { (lead) } }
                    }
                    main {
                        @if !self.problems.is_empty() { (list("Problems", "problems", &self.problems)) }
                        @for section in &self.sections { (section.html()) }
                        @if !self.notes.is_empty() { (list("Notes", "notes", &self.notes)) }
                        section {
                            h2 { "How it was made" }
                            pre.command { code { (machine.command) } }
                            dl {
                                @for (name, what) in self.facts.iter().chain(&machine.facts) {
                                    div { dt { (name) } dd { (what) } }
                                }
                            }
                        }
                        section {
                            details {
                                summary { "All figures, as " code { "--json" } " prints them" }
                                pre.json { (self.json) }
                            }
                        }
                    }
                }
            }
        };
        page.into_string()
    }
}

fn list(heading: &str, class: &str, items: &[String]) -> Markup {
    html! {
        section class=(class) {
            h2 { (heading) }
            ul { @for item in items { li { (item) } } }
        }
    }
}

impl Section {
    /// A section.
    pub fn new(heading: &str, intro: impl Into<String>, parts: Vec<Part>) -> Self {
        Self {
            heading: heading.to_owned(),
            intro: intro.into(),
            parts,
        }
    }

    fn html(&self) -> Markup {
        html! {
            section {
                h2 { (self.heading) }
                @if !self.intro.is_empty() { p { (self.intro) } }
                @for part in &self.parts { (part.html()) }
            }
        }
    }
}

impl Part {
    fn html(&self) -> Markup {
        match self {
            Self::Bars(bars) => bars_html(bars),
            Self::Table(table) => table.html(),
            Self::Picture(picture, label) => html! {
                figure.scroll role="img" aria-label=(label) tabindex="0" { (PreEscaped(picture.svg())) }
            },
            Self::Sentences(sentences) => html! {
                ul { @for sentence in sentences { li { (sentence) } } }
            },
            Self::Links(links) => html! {
                ul { @for link in links { li { a href=(link.file) { (link.title) } " " (link.text) } } }
            },
        }
    }
}

fn bars_html(bars: &[Bar]) -> Markup {
    let longest = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let percent = |bar: &Bar| match longest > 0.0 && bar.value.is_finite() {
        true => format!("width:{:.1}%", bar.value.max(0.0) * 100.0 / longest),
        false => "width:0".to_owned(),
    };
    html! {
        div.bars {
            @for bar in bars {
                div.bar.base[bar.is_base] {
                    span.name { (breakable(&bar.name)) }
                    span.track { span.fill style=(percent(bar)) {} }
                    span.figure { (bar.text) }
                }
            }
        }
    }
}

impl Table {
    /// A table without rows.
    pub fn new<const COLUMNS: usize>(head: [&str; COLUMNS]) -> Self {
        Self {
            head: head.map(str::to_owned).to_vec(),
            rows: Vec::new(),
        }
    }

    /// The same table as one for a terminal.
    pub fn of_terminal(table: &comfy_table::Table) -> Self {
        let line = |cell: &comfy_table::Cell| cell.content().replace('\n', " ");
        let head = table
            .header()
            .map(|row| row.cell_iter().map(line).collect());
        Self {
            head: head.unwrap_or_default(),
            rows: table
                .row_iter()
                .map(|row| row.cell_iter().map(line).collect())
                .collect(),
        }
    }

    /// Removes the columns in which no row has a value, except the first.
    pub fn without_empty_columns(mut self, nothing: &str) -> Self {
        let says = |column: usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(column));
            column == 0 || cells.any(|cell| cell != nothing)
        };
        let kept: Vec<usize> = (0..self.head.len())
            .filter(|column| says(*column))
            .collect();
        self.head = picked(&self.head, &kept);
        self.rows = self.rows.iter().map(|row| picked(row, &kept)).collect();
        self
    }

    /// Whether a column has words, so that its head is also on the left.
    fn is_of_words(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column));
        column > 0 && !self.rows.is_empty() && cells.all(|cell| is_word(cell))
    }

    fn html(&self) -> Markup {
        html! {
            div.scroll tabindex="0" {
                table {
                    thead { tr { @for (column, name) in self.head.iter().enumerate() {
                        th.word[self.is_of_words(column)] scope="col" { (name) }
                    } } }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (column, cell) in row.iter().enumerate() {
                                    @if column == 0 { th scope="row" { (breakable(cell)) } }
                                    @else if is_word(cell) { td.word { (cell) } }
                                    @else { td { (cell) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A name that may break into lines after the signs of a mode's variations, not in the middle of a
/// word.
fn breakable(name: &str) -> Markup {
    html! {
        @for part in name.split_inclusive([':', '=', ',', '/']) { (part) wbr; }
    }
}

/// These columns of a row.
fn picked(row: &[String], columns: &[usize]) -> Vec<String> {
    let cells = columns.iter().filter_map(|column| row.get(*column));
    cells.cloned().collect()
}

/// Whether a cell is no figure, and so is on the left.
fn is_word(cell: &str) -> bool {
    cell.starts_with(|first: char| first.is_alphabetic())
}
