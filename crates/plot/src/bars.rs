//! Figures for comparison: one bar, or a group of bars, for each category.

use plotters::prelude::*;
use plotters::style::Color as _;
use plotters::style::text_anchor::{HPos, VPos};

use crate::colors::Color;
use crate::frame::{self, AXIS, Canvas, GRID, INK, Series, Shape, TEXT, failed};
use crate::picture::{Error, Picture};
use crate::ticks::{Axis, Written};

const WIDTH: u32 = 760;
/// Height of a bar in pixels.
const BAR: i32 = 20;
/// Height of a bar in a group.
const NARROW: i32 = 15;
/// Distance between categories.
const GAP: i32 = 12;
/// The largest width that the categories' names may take.
const NAMES: i32 = 260;

/// How several figures of a category relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// They are parts of one sum: one bar in pieces, with the sum written after it.
    Stacked,
    /// Each is its own bar, below the other, with its figure written after it.
    Grouped,
}

/// The figures of one kind, one for each category.
#[derive(Clone, Debug, PartialEq)]
pub struct BarSeries {
    /// The name in the legend.
    pub name: String,
    /// Their color.
    pub color: Color,
    /// In the order of the categories. A figure that was not measured is `None`, and has no bar.
    pub values: Vec<Option<f64>>,
}

impl BarSeries {
    /// Figures that were all measured.
    pub fn new(
        name: impl Into<String>,
        color: Color,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        Self {
            name: name.into(),
            color,
            values: values.into_iter().map(Some).collect(),
        }
    }

    fn value(&self, category: usize) -> Option<f64> {
        let value = self.values.get(category).copied().flatten();
        value.filter(|value| value.is_finite() && *value >= 0.0)
    }
}

/// Horizontal bars, so that the names of categories are legible.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// The title: the subject of the picture.
    pub title: String,
    /// The origin of the data: workload, file system, machine.
    pub subtitle: Option<String>,
    /// From the top down.
    pub categories: Vec<String>,
    /// The unit and name of the bars' length.
    pub axis: Axis,
    /// How the series relate.
    pub arrangement: Arrangement,
    /// The figures of the categories.
    pub series: Vec<BarSeries>,
}

impl Bars {
    /// Draws the picture; its height follows the number of categories.
    ///
    /// # Errors
    /// If the drawing library fails.
    pub fn draw(&self) -> Result<Picture, Error> {
        let legend: Vec<Series> = self
            .series
            .iter()
            .map(|series| Series {
                name: series.name.clone(),
                color: series.color,
                shape: Shape::Square,
            })
            .collect();
        let rows = self.categories.len().max(1) as i32 * self.row();
        let head = if self.subtitle.is_some() { 138 } else { 117 };
        let lines = frame::legend_places(&legend, WIDTH as i32);
        let more_lines = lines.last().map_or(0, |(_, line)| *line);
        let height = (rows + head + frame::LINE * more_lines) as u32;
        let subtitle = self.subtitle.as_deref();
        frame::picture((WIDTH, height), &self.title, subtitle, &legend, |area| {
            self.draw_on(area)
        })
    }

    /// Pixels from one category to the next.
    fn row(&self) -> i32 {
        match self.arrangement {
            Arrangement::Stacked => BAR + GAP,
            Arrangement::Grouped => NARROW * self.series.len().max(1) as i32 + GAP,
        }
    }

    fn sum(&self, category: usize) -> f64 {
        let values = self.series.iter().map(|series| series.value(category));
        values.map(|value| value.unwrap_or(0.0)).sum()
    }

    fn longest(&self) -> f64 {
        let of = |category| match self.arrangement {
            Arrangement::Stacked => self.sum(category),
            Arrangement::Grouped => {
                let values = self.series.iter().filter_map(|s| s.value(category));
                values.fold(0.0, f64::max)
            }
        };
        let longest = (0..self.categories.len()).map(of).fold(0.0, f64::max);
        if longest > 0.0 { longest } else { 1.0 }
    }

    fn draw_on(&self, area: &Canvas<'_>) -> Result<(), Error> {
        let (wide, _) = area.dim_in_pixel();
        let names = self.categories.iter().map(|name| frame::width(name, TEXT));
        let left = names.max().unwrap_or(0).min(NAMES) + 24;
        // The longest bar has its figure after it.
        let right = wide as i32 - 90;
        let longest = self.longest();
        let written = self.axis.unit.written(longest);
        let bottom = self.categories.len().max(1) as i32 * self.row() + GAP / 2;
        let x = |value: f64| left + (value / longest * f64::from(right - left)).round() as i32;
        let scale = Scale { written, x: &x };
        self.draw_axis(area, longest, bottom, &scale)?;
        let label = style(HPos::Right, INK);
        for (index, name) in self.categories.iter().enumerate() {
            let top = index as i32 * self.row() + GAP / 2;
            let middle = top + (self.row() - GAP) / 2;
            let name = frame::shortened(name, TEXT, left - 20);
            area.draw_text(&name, &label, (left - 8, middle))
                .map_err(failed)?;
            match self.arrangement {
                Arrangement::Stacked => self.draw_stacked(area, index, top, &scale)?,
                Arrangement::Grouped => self.draw_group(area, index, top, &scale)?,
            }
        }
        line(area, (left, 0), (left, bottom), AXIS)
    }

    fn draw_axis(
        &self,
        area: &Canvas<'_>,
        longest: f64,
        bottom: i32,
        Scale { written, x }: &Scale<'_>,
    ) -> Result<(), Error> {
        let (ticks, step) = written.ticks(0.0, longest, 6);
        let number = frame::style(TEXT, AXIS, HPos::Center, VPos::Top);
        for tick in ticks {
            line(area, (x(tick), 0), (x(tick), bottom), GRID)?;
            let text = written.tick(tick, step);
            area.draw_text(&text, &number, (x(tick), bottom + 5))
                .map_err(failed)?;
        }
        let text = written.label(&self.axis.label);
        let middle = (x(0.0) + x(longest)) / 2;
        let style = frame::style(TEXT, INK, HPos::Center, VPos::Top);
        area.draw_text(&text, &style, (middle, bottom + 24))
            .map_err(failed)
    }

    fn draw_stacked(
        &self,
        area: &Canvas<'_>,
        index: usize,
        top: i32,
        Scale { written, x }: &Scale<'_>,
    ) -> Result<(), Error> {
        let mut from = 0.0;
        for series in &self.series {
            let Some(value) = series.value(index).filter(|value| *value > 0.0) else {
                continue;
            };
            let corners = [(x(from), top), (x(from + value), top + BAR)];
            let fill = series.color.rgb().filled();
            area.draw(&Rectangle::new(corners, fill)).map_err(failed)?;
            from += value;
        }
        let measured = self.series.iter().any(|s| s.value(index).is_some());
        let figure = measured.then_some(from);
        self.draw_figure(area, figure, (x(from), top + BAR / 2), *written)
    }

    fn draw_group(
        &self,
        area: &Canvas<'_>,
        index: usize,
        top: i32,
        Scale { written, x }: &Scale<'_>,
    ) -> Result<(), Error> {
        for (series, top) in self.series.iter().zip((top..).step_by(NARROW as usize)) {
            let value = series.value(index);
            let end = x(value.unwrap_or(0.0));
            let fill = series.color.rgb().filled();
            let corners = [(x(0.0), top), (end, top + NARROW - 2)];
            if value.is_some() {
                area.draw(&Rectangle::new(corners, fill)).map_err(failed)?;
            }
            self.draw_figure(area, value, (end, top + NARROW / 2 - 1), *written)?;
        }
        Ok(())
    }

    /// The figure after a bar; "not measured" where there is none.
    fn draw_figure(
        &self,
        area: &Canvas<'_>,
        value: Option<f64>,
        (x, y): (i32, i32),
        written: Written,
    ) -> Result<(), Error> {
        let (text, color) = match value {
            Some(value) => (figure(value, written), INK),
            None => ("not measured".to_owned(), AXIS),
        };
        area.draw_text(&text, &style(HPos::Left, color), (x + 6, y))
            .map_err(failed)
    }
}

/// How values become positions and texts.
struct Scale<'a> {
    written: Written,
    /// Pixels from the left.
    x: &'a dyn Fn(f64) -> i32,
}

/// A figure to about three digits.
fn figure(value: f64, written: Written) -> String {
    let scaled = value / written.per;
    let decimals = match scaled {
        _ if (scaled - scaled.round()).abs() < 1e-9 => 0,
        _ if scaled >= 100.0 => 0,
        _ if scaled >= 1.0 => 1,
        _ => 2,
    };
    crate::ticks::thousands(scaled, decimals)
}

fn style(h: HPos, color: RGBColor) -> TextStyle<'static> {
    frame::style(TEXT, color, h, VPos::Center)
}

fn line(area: &Canvas<'_>, from: (i32, i32), to: (i32, i32), color: RGBColor) -> Result<(), Error> {
    area.draw(&PathElement::new(vec![from, to], color))
        .map_err(failed)
}
