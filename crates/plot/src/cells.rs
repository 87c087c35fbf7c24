//! A table of colored cells: rows and columns with names, and a kind and a word in each cell.
//!
//! `onewrite-lab matrix` draws its results with it. The word tells kinds apart without color.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use crate::frame::{self, INK, Series, TEXT, failed};
use crate::picture::{Error, Picture};

/// Width of a cell in pixels.
const WIDE: i32 = 46;
/// Height of a cell.
const HIGH: i32 = 20;
/// Room for title, subtitle and legend.
const ABOVE: u32 = 120;
/// Room below the cells and at their right.
const AROUND: u32 = 36;

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its place among [`Cells::kinds`].
    pub kind: usize,
    /// The word in it, of a few letters.
    pub word: String,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cells {
    /// The title: the subject of the picture.
    pub title: String,
    /// The origin of the data.
    pub subtitle: Option<String>,
    /// The kinds of cells, for the legend; the color of its kind fills a cell.
    pub kinds: Vec<Series>,
    /// The columns' names, each in two lines.
    pub columns: Vec<(String, String)>,
    /// The rows: a name, and a cell for each column. `None` leaves it empty.
    pub rows: Vec<(String, Vec<Option<Cell>>)>,
}

impl Cells {
    /// Draws the picture; its size follows the number of cells.
    ///
    /// # Errors
    /// If plotters fails, which it has no reason to do.
    pub fn draw(&self) -> Result<Picture, Error> {
        let names = self.rows.iter().map(|(name, _)| frame::width(name, TEXT));
        let left = 24 + names.max().unwrap_or(0) * 5 / 4;
        let size = (
            (left + WIDE * self.columns.len() as i32) as u32 + AROUND,
            ABOVE + AROUND + 2 * HIGH as u32 + (HIGH * self.rows.len() as i32) as u32,
        );
        let size = (size.0.max(480), size.1);
        let subtitle = self.subtitle.as_deref();
        frame::picture(size, &self.title, subtitle, &self.kinds, |area| {
            let middle = frame::style(TEXT, INK, HPos::Center, VPos::Center);
            for (column, (above, below)) in self.columns.iter().enumerate() {
                let x = left + WIDE * column as i32 + WIDE / 2;
                area.draw_text(above, &middle, (x, HIGH / 2))
                    .map_err(failed)?;
                area.draw_text(below, &middle, (x, HIGH * 3 / 2))
                    .map_err(failed)?;
            }
            for (row, (name, cells)) in self.rows.iter().enumerate() {
                let y = HIGH * (row as i32 + 2);
                let text = frame::style(TEXT, INK, HPos::Left, VPos::Center);
                area.draw_text(name, &text, (12, y + HIGH / 2))
                    .map_err(failed)?;
                for (column, cell) in cells.iter().enumerate() {
                    let Some(cell) = cell else { continue };
                    let x = left + WIDE * column as i32;
                    let color = self.kinds.get(cell.kind).map(|kind| kind.color.rgb());
                    let fill = color.unwrap_or(WHITE).mix(0.75).filled();
                    let corners = [(x, y), (x + WIDE - 2, y + HIGH - 2)];
                    area.draw(&Rectangle::new(corners, fill)).map_err(failed)?;
                    let at = (x + WIDE / 2 - 1, y + HIGH / 2 - 1);
                    area.draw_text(&cell.word, &middle, at).map_err(failed)?;
                }
            }
            Ok(())
        })
    }
}
