//! Figures for comparison: one bar, or a group of bars, for each category.

use plotters::coord::combinators::WithKeyPoints;
use plotters::coord::types::RangedCoordi32;
use plotters::prelude::*;
use plotters::style::Color as _;
use plotters::style::text_anchor::{HPos, VPos};

use crate::chart::{Linear, chart, mesh};
use crate::colors::Color;
use crate::frame::{self, AXIS, Canvas, INK, Series, Shape, TEXT, failed};
use crate::picture::{Error, Picture};
use crate::ticks::{Axis, Written};

type Plot<'a> = DrawingArea<SVGBackend<'a>, Cartesian2d<Linear, WithKeyPoints<RangedCoordi32>>>;

const WIDTH: u32 = 760;
/// Height of a bar in pixels.
const BAR: i32 = 20;
/// Height of a bar in a group.
const NARROW: i32 = 15;
/// Distance between categories.
const GAP: i32 = 12;
/// The largest width that the categories' names may take.
const NAMES: i32 = 260;
/// Room for the figure after the longest bar.
const FIGURE: i32 = 90;

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
        let head = if self.subtitle.is_some() { 134 } else { 113 };
        let lines = frame::legend_places(&legend, WIDTH as i32);
        let more_lines = lines.last().map_or(0, |(_, line)| *line);
        let height = (self.rows() + head + frame::LINE * more_lines) as u32;
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

    /// Pixels of all categories.
    fn rows(&self) -> i32 {
        self.categories.len().max(1) as i32 * self.row()
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
        let names = self.categories.iter().map(|name| frame::width(name, TEXT));
        let left = names.max().unwrap_or(0).min(NAMES) + 24;
        let x = Linear::new(self.axis.unit, self.longest(), 6);
        let written = x.written;
        let row = self.row();
        // Upright, the coordinates are pixels.
        let middles = (0..self.categories.len() as i32).map(|index| index * row + row / 2);
        let y = (self.rows()..0).with_key_points(middles.collect());
        let name = |middle: &i32| {
            let name = self.categories.get((middle / row) as usize);
            frame::shortened(name.map_or("", String::as_str), TEXT, left - 20)
        };
        let mut chart = chart(area, (left, FIGURE), x, y)?;
        mesh(&mut chart)
            .disable_y_mesh()
            .x_desc(written.label(&self.axis.label))
            .y_label_style(style(INK))
            .y_label_formatter(&name)
            .draw()
            .map_err(failed)?;
        for index in 0..self.categories.len() {
            self.draw_category(chart.plotting_area(), index, written)?;
        }
        Ok(())
    }

    /// Draws the bars of a category, and a figure after each; "not measured" where there is none.
    fn draw_category(&self, area: &Plot<'_>, index: usize, written: Written) -> Result<(), Error> {
        let is_stacked = self.arrangement == Arrangement::Stacked;
        let high = if is_stacked { BAR } else { NARROW - 2 };
        let mut top = index as i32 * self.row() + GAP / 2;
        let mut from = 0.0;
        let figure = |value: Option<f64>, top: i32| {
            let (text, color) = match value {
                Some(value) => (figure(value, written), INK),
                None => ("not measured".to_owned(), AXIS),
            };
            let at = (value.unwrap_or(0.0), top + high / 2);
            let text = Text::new(text, (6, 0), style(color));
            area.draw(&(EmptyElement::at(at) + text)).map_err(failed)
        };
        for series in &self.series {
            let value = series.value(index);
            let to = from + value.unwrap_or(0.0);
            let corners = [(from, top), (to, top + high)];
            let bar = Rectangle::new(corners, series.color.rgb().filled());
            if to > from {
                area.draw(&bar).map_err(failed)?;
            }
            if is_stacked {
                from = to;
            } else {
                figure(value, top)?;
                top += NARROW;
            }
        }
        let is_measured = self.series.iter().any(|s| s.value(index).is_some());
        match is_stacked {
            true => figure(is_measured.then_some(from), top),
            false => Ok(()),
        }
    }
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

fn style(color: RGBColor) -> TextStyle<'static> {
    frame::style(TEXT, color, HPos::Left, VPos::Center)
}
