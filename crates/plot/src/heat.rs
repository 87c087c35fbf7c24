//! One cell for each of many similar things, such as a map of wear. A cell's color follows its
//! number.

use plotters::prelude::*;

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
        let rows = self.cells.len().div_ceil(columns);
        let size = (WIDTH, ABOVE + AROUND + rows as u32 * side as u32);
        let known = self.cells.iter().flatten().copied();
        let known = known.filter(|number| number.is_finite());
        let least = known.clone().reduce(f64::min).unwrap_or(0.0);
        let most = known.fold(0.0, f64::max);
        let mut legend = vec![
            series(format!("{least:.0} {}", self.what), LEAST),
            series(format!("{most:.0}"), MOST),
        ];
        if self.cells.iter().any(Option::is_none) {
            legend.push(series(self.without.clone(), NONE));
        }
        let subtitle = self.subtitle.as_deref();
        frame::picture(size, &self.title, subtitle, &legend, |area| {
            let size = (columns as i32 * side, rows as i32 * side);
            let places = area
                .clone()
                .shrink((12, 4), size)
                .split_evenly((rows, columns));
            for (cell, place) in self.cells.iter().zip(places) {
                let color = match cell.filter(|number| number.is_finite()) {
                    Some(number) => between((number - least) / (most - least).max(1e-9)),
                    None => NONE.rgb(),
                };
                place.margin(0, 1, 0, 1).fill(&color).map_err(failed)?;
            }
            Ok(())
        })
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

/// The color of a part of the way from the smallest number to the largest.
fn between(part: f64) -> RGBColor {
    let mix = |from: u8, to: u8| {
        (f64::from(from) + (f64::from(to) - f64::from(from)) * part).round() as u8
    };
    RGBColor(
        mix(LEAST.0, MOST.0),
        mix(LEAST.1, MOST.1),
        mix(LEAST.2, MOST.2),
    )
}
