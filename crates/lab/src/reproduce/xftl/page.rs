//! The report as a page: the tables of `text`, and the pictures.

use onewrite_cli::html::{Page, Part, Section, Table};

use super::{Report, fsck, plots, space, text};
use crate::reproduce::page::{of_failed, of_figure};

/// The page of a report.
pub fn page(report: &Report, title: &str) -> Result<Page, String> {
    let mut page = Page::of(title, report)?;
    page.lead = Some(format!("{}; times are the device's own.", report.shape));
    page.problems = report.failed.iter().map(of_failed).collect();
    let table = |table: &comfy_table::Table| Part::Table(Table::of_terminal(table));
    if !report.cells.is_empty() {
        let parts = vec![
            Part::Sentences(space::claims(&report.cells)),
            table(&space::cells_table(&report.cells)),
            Part::Sentences(vec![space::FOOT.to_owned()]),
        ];
        page.sections.push(Section::new(
            "Size by FTL by file system",
            space::HEAD,
            parts,
        ));
    }
    if !report.flushes.is_empty() {
        let parts = vec![table(&text::flushes(&report.flushes))];
        page.sections
            .push(Section::new("What a flush costs", text::FLUSH_FOOT, parts));
    }
    if !report.ran.is_empty() {
        let parts = vec![
            table(&text::runs(&report.ran)),
            Part::Sentences(vec![text::PAPER.to_owned()]),
        ];
        page.sections
            .push(Section::new("All runs", text::FOOT, parts));
    }
    if report.ran.iter().any(|ran| ran.figure == "controllers") {
        let parts = vec![table(&text::sources(&report.ran))];
        page.sections
            .push(Section::new("Settings of the board", "", parts));
    }
    if !report.restarts.is_empty() {
        let parts = vec![
            table(&text::restarts(&report.restarts)),
            Part::Sentences(space::restart_claims(&report.restarts)),
        ];
        page.sections
            .push(Section::new("Restart after a power cut", "", parts));
    }
    if !report.checks.is_empty() {
        let parts = vec![table(&fsck::checks_table(&report.checks))];
        page.sections
            .push(Section::new("fsck after a power cut", "", parts));
    }
    page.sections.extend(report.figures.iter().map(of_figure));
    let pictures = plots::draw(&report.ran, &report.restarts)?;
    let pictures = pictures.into_iter().map(|(figure, picture)| {
        Part::Picture(picture, format!("time by mode: the figure {figure}"))
    });
    let pictures: Vec<Part> = pictures.collect();
    if !pictures.is_empty() {
        page.sections.push(Section::new("Pictures", "", pictures));
    }
    page.fact("seed", report.seed.to_string());
    Ok(page)
}
