//! One cell for each of many similar things, such as a map of wear. A cell's color follows its
//! number.

use plotters::prelude::*;
use plotters::style::Color as _;

use crate::colors::Color;
use crate::frame::{self, Series, Shape, failed};
use crate::picture::{Error, Picture};

/// Width of a picture in pixels.
const WIDTH: u32 = 760;
/// The largest side of a cell in pixels.
const LARGEST: i32 = 18;
/// Room for title, subtitle and legend.
const ABOVE: u32 = 90;
/// Room around the cells.
const AROUND: u32 = 36;
/// The color of the largest number; the smallest is nearly white.
const MOST: Color = Color(213, 94, 0);
const LEAST: Color = Color(253, 240, 228);
/// The color of a cell without a number.
const NONE: Color = Color(90, 90, 90);

/// Cells, from left to right and from the top down.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// The title: the subject of the picture.
    pub title: String,
    /// The origin of the data.
    pub subtitle: Option<String>,
    /// The meaning of the numbers, for the legend.
    pub what: String,
    /// The meaning of a cell without a number.
    pub without: String,
    /// The number of each cell.
    pub cells: Vec<Option<f64>>,
}

impl Heat {
    /// Draws the picture; its height follows the number of cells.
    ///
    /// # Errors
    /// If plotters fails, which it has no reason to do.
    pub fn draw(&self) -> Result<Picture, Error> {
        let (columns, side) = self.grid();
        let rows = self.cells.len().div_ceil(columns) as u32;
        let size = (WIDTH, ABOVE + AROUND + rows * side as u32);
        let known = || {
            self.cells
                .iter()
                .flatten()
                .copied()
                .filter(|number| number.is_finite())
        };
        let (least, most) = (
            known().fold(f64::INFINITY, f64::min),
            known().fold(0.0, f64::max),
        );
        let mut legend = vec![
            series(
                format!(
                    "{:.0} {}",
                    if least.is_finite() { least } else { 0.0 },
                    self.what
                ),
                LEAST,
            ),
            series(format!("{most:.0}"), MOST),
        ];
        if self.cells.iter().any(Option::is_none) {
            legend.push(series(self.without.clone(), NONE));
        }
        frame::picture(
            size,
            &self.title,
            self.subtitle.as_deref(),
            &legend,
            |area| {
                for (index, cell) in self.cells.iter().enumerate() {
                    let (x, y) = (
                        (index % columns) as i32 * side + 12,
                        (index / columns) as i32 * side + 4,
                    );
                    let color = match cell.filter(|number| number.is_finite()) {
                        Some(number) => {
                            between(LEAST, MOST, (number - least) / (most - least).max(1e-9))
                        }
                        None => NONE,
                    };
                    let (from, to) = ((x, y), (x + side - 1, y + side - 1));
                    area.draw(&Rectangle::new([from, to], color.rgb().filled()))
                        .map_err(failed)?;
                }
                Ok(())
            },
        )
    }

    /// Cells in a row, and the side of each.
    fn grid(&self) -> (usize, i32) {
        let wide = WIDTH as usize - 36;
        // At least three pixels. The picture is at most about as high as wide.
        let side = ((wide * wide) as f64 / self.cells.len().max(1) as f64).sqrt() as i32;
        let side = side.clamp(3, LARGEST);
        (wide / side as usize, side)
    }
}

fn series(name: String, color: Color) -> Series {
    Series {
        name,
        color,
        shape: Shape::Square,
    }
}

fn between(from: Color, to: Color, part: f64) -> Color {
    let mix = |from: u8, to: u8| {
        (f64::from(from) + (f64::from(to) - f64::from(from)) * part).round() as u8
    };
    Color(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
}
