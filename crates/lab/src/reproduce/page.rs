//! The report as a page. Tables and sentences are those of [`text`].

use onewrite_cli::html::{Page, Part, Section, Table};

use super::outcome::Shown;
use super::{Failed, Report, text};

/// The page of a report.
pub fn page(report: &Report) -> Result<Page, String> {
    let mut page = Page::of(report.title, report)?;
    page.problems = report.failed.iter().map(of_failed).collect();
    page.sections = report.figures.iter().map(of_figure).collect();
    page.notes = report.notes.clone();
    page.fact("seed", report.seed.to_string());
    page.fact(
        "file system",
        format!("{}{}", report.filesystem, text::on_device(report)),
    );
    page.fact("raw rates", text::rates(report));
    Ok(page)
}

/// A figure that could not be run.
pub fn of_failed(failed: &Failed) -> String {
    format!("{}: {}", failed.figure, failed.error)
}

/// A figure's table, and a sentence for each difference.
pub fn of_figure(shown: &Shown) -> Section {
    let mut parts = vec![Part::Table(Table::of_terminal(&text::table(&shown.rows)))];
    let sequences = shown.sequences.iter().map(text::sequence);
    let notes = shown.notes.iter().map(|note| format!("Note: {note}."));
    let sentences = text::sentences(&shown.differences).into_iter();
    let sentences = sentences.chain(text::undecided(&shown.rows));
    let all: Vec<String> = sequences.chain(sentences).chain(notes).collect();
    if !all.is_empty() {
        parts.push(Part::Sentences(all));
    }
    let heading = format!("{}: {}", shown.figure, shown.title);
    Section::new(&heading, shown.how.clone(), parts)
}
