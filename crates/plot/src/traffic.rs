//! The bytes moved over time, by purpose: a bar for each span of time, in pieces by kind.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use crate::frame::{self, AXIS, Canvas, GRID, INK, Series, TEXT, failed};
use crate::picture::{Error, Picture};
use crate::ticks::{Axis, Unit, thousands};

const SIZE: (u32, u32) = (760, 280);
/// Room for the labels of the axes.
const LEFT: i32 = 96;
const BELOW: i32 = 48;
/// The most bars.
const BARS: f64 = 120.0;

/// Bytes that were moved at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// The moment, in seconds from the beginning.
    pub at_s: f64,
    /// How many bytes.
    pub bytes: u64,
    /// The purpose: an index into the series.
    pub series: usize,
}

/// Traffic over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// The title: the subject of the picture.
    pub title: String,
    /// The origin of the data.
    pub subtitle: Option<String>,
    /// How long the device was watched, in seconds.
    pub seconds: f64,
    /// The kinds, from the bottom of each bar up. An empty legend takes no room, for a picture that
    /// stands below one with the legend.
    pub series: Vec<Series>,
    /// Whether the legend is drawn.
    pub legend: bool,
    /// The moved bytes.
    pub moved: Vec<Moved>,
}

impl Traffic {
    /// Draws it.
    ///
    /// # Errors
    /// If the drawing library fails.
    pub fn draw(&self) -> Result<Picture, Error> {
        let used = |index: &usize| self.moved.iter().any(|moved| moved.series == *index);
        let series = (0..self.series.len()).filter(|index| self.legend && used(index));
        let legend: Vec<Series> = series.filter_map(|i| self.series.get(i).cloned()).collect();
        let subtitle = self.subtitle.as_deref();
        frame::picture(SIZE, &self.title, subtitle, &legend, |area| {
            self.draw_on(area)
        })
    }

    /// The length of a bar in seconds: a round number of the unit, so that not too many bars fit.
    fn step(&self) -> f64 {
        let seconds = self.seconds.max(1e-6);
        let (_, step) = Unit::Seconds
            .written(seconds)
            .ticks(0.0, seconds, BARS as usize);
        step
    }

    /// The bytes of each bar by series.
    fn bars(&self, step: f64) -> Vec<Vec<u64>> {
        let count = (self.seconds.max(1e-6) / step).ceil().max(1.0) as usize;
        let mut bars = vec![vec![0; self.series.len()]; count.min(10_000)];
        for moved in &self.moved {
            let at = ((moved.at_s / step).floor().max(0.0) as usize).min(bars.len() - 1);
            if let Some(sum) = bars.get_mut(at).and_then(|bar| bar.get_mut(moved.series)) {
                *sum += moved.bytes;
            }
        }
        bars
    }

    fn draw_on(&self, area: &Canvas<'_>) -> Result<(), Error> {
        let (wide, high) = area.dim_in_pixel();
        let (left, right) = (LEFT, wide as i32 - 20);
        let (top, bottom) = (8, high as i32 - BELOW);
        let step = self.step();
        let bars = self.bars(step);
        let most = bars.iter().map(|bar| bar.iter().sum::<u64>()).max();
        let most = most.unwrap_or(0).max(1) as f64;
        let seconds = self.seconds.max(1e-6);
        let times = Times {
            seconds,
            left,
            right,
        };
        // The last bar ends with the time.
        let x = |at: f64| times.x(at.min(seconds));
        let y = |bytes: f64| bottom - (bytes / most * f64::from(bottom - top)).round() as i32;
        let line = |from, to, color: RGBColor| {
            area.draw(&PathElement::new(vec![from, to], color))
                .map_err(failed)
        };
        let written = Unit::Bytes.written(most);
        let (ticks, apart) = written.ticks(0.0, most, 4);
        let number = frame::style(TEXT, AXIS, HPos::Right, VPos::Center);
        for tick in ticks {
            line((left, y(tick)), (right, y(tick)), GRID)?;
            area.draw_text(&written.tick(tick, apart), &number, (left - 6, y(tick)))
                .map_err(failed)?;
        }
        for (index, bar) in bars.iter().enumerate() {
            let (from, to) = (x(index as f64 * step), x((index + 1) as f64 * step));
            let mut below = 0.0;
            for (bytes, series) in bar.iter().zip(&self.series) {
                let above = below + *bytes as f64;
                // Bars that are wide enough have a gap between them.
                let to = if to - from > 3 {
                    to - 1
                } else {
                    to.max(from + 1)
                };
                let corners = [(from, y(above)), (to, y(below))];
                let fill = series.color.rgb().filled();
                if *bytes > 0 {
                    area.draw(&Rectangle::new(corners, fill)).map_err(failed)?;
                }
                below = above;
            }
        }
        times.draw(area, bottom)?;
        line((left, top), (left, bottom), AXIS)?;
        // The text uses the unit itself for a step of exactly one unit.
        let in_step = Unit::Seconds.written(step * 1.01);
        let every = format!("{} {}", thousands(step / in_step.per, 0), in_step.name);
        let label = written.label(&format!("moved in {every}"));
        frame::draw_upright(area, &label, (6, (top + bottom) / 2))
    }
}

/// An axis of time. Pictures below each other that cover the same time have it at the same places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub seconds: f64,
    /// The edges of the picture.
    pub left: i32,
    pub right: i32,
}

impl Times {
    /// Pixels between an edge and the first mark, so that no mark lies on the axis.
    const ROOM: i32 = 14;

    /// The position of a moment.
    pub(crate) fn x(&self, at_s: f64) -> i32 {
        let wide = f64::from(self.right - self.left - 2 * Self::ROOM);
        self.left + Self::ROOM + (at_s / self.seconds * wide).round() as i32
    }

    /// Draws the axis below a picture.
    pub(crate) fn draw(&self, area: &Canvas<'_>, bottom: i32) -> Result<(), Error> {
        let axis = Axis::new("time", Unit::Seconds);
        let written = axis.unit.written(self.seconds);
        let (ticks, apart) = written.ticks(0.0, self.seconds, 8);
        let number = frame::style(TEXT, AXIS, HPos::Center, VPos::Top);
        let line = |from, to| {
            area.draw(&PathElement::new(vec![from, to], AXIS))
                .map_err(failed)
        };
        line((self.left, bottom), (self.right, bottom))?;
        for tick in ticks {
            let x = self.x(tick);
            line((x, bottom), (x, bottom + 4))?;
            area.draw_text(&written.tick(tick, apart), &number, (x, bottom + 6))
                .map_err(failed)?;
        }
        let label = frame::style(TEXT, INK, HPos::Center, VPos::Top);
        let middle = (self.left + self.right) / 2;
        area.draw_text(&written.label(&axis.label), &label, (middle, bottom + 26))
            .map_err(failed)
    }
}
