//! How a figure depends on a number: rates by threads, bytes by transaction size.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use crate::frame::{self, AXIS, Canvas, GRID, INK, Series, TEXT, failed};
use crate::picture::{Error, Picture};
use crate::ticks::{Axis, Written};

const SIZE: (u32, u32) = (760, 420);
/// Room for the labels of the axes.
const LEFT: i32 = 84;
const BELOW: i32 = 48;

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal distances are equal differences; the axis begins at 0.
    Linear,
    /// Equal distances are equal ratios; all figures must be above 0.
    Logarithmic,
}

/// A line through points, each with a mark.
#[derive(Clone, Debug, PartialEq)]
pub struct LineSeries {
    /// Its name, color and mark.
    pub series: Series,
    /// Its points, x and y, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Lines over a common axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// The title: the subject of the picture.
    pub title: String,
    /// The origin of the data.
    pub subtitle: Option<String>,
    /// The unit and name of the points' x.
    pub x: Axis,
    /// The scale of the x axis.
    pub x_scale: Scale,
    /// The unit and name of the points' y; this axis is linear.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<LineSeries>,
}

/// One axis: the values that it covers, and its pixels.
struct Ruler {
    from: f64,
    to: f64,
    scale: Scale,
    pixels: (i32, i32),
    written: Written,
}

impl Ruler {
    fn at(&self, value: f64) -> i32 {
        let share = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Logarithmic => (value / self.from).ln() / (self.to / self.from).ln(),
        };
        let (from, to) = self.pixels;
        from + (share.clamp(0.0, 1.0) * f64::from(to - from)).round() as i32
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        if self.scale == Scale::Linear {
            let (ticks, step) = self.written.ticks(self.from, self.to, 6);
            let name = |tick: f64| (tick, self.written.tick(tick, step));
            return ticks.into_iter().map(name).collect();
        }
        let mut ticks = Vec::new();
        let mut tick = 2f64.powf(self.from.log2().ceil());
        while tick <= self.to * (1.0 + 1e-9) && ticks.len() < 12 {
            ticks.push((tick, self.written.tick(tick, tick)));
            tick *= if self.to / self.from > 4_096.0 {
                10.0
            } else {
                2.0
            };
        }
        ticks
    }
}

impl Lines {
    /// Draws it.
    ///
    /// # Errors
    /// If the drawing library fails.
    pub fn draw(&self) -> Result<Picture, Error> {
        let legend: Vec<Series> = self.lines.iter().map(|line| line.series.clone()).collect();
        let subtitle = self.subtitle.as_deref();
        frame::picture(SIZE, &self.title, subtitle, &legend, |area| {
            self.draw_on(area)
        })
    }

    fn draw_on(&self, area: &Canvas<'_>) -> Result<(), Error> {
        let (wide, high) = area.dim_in_pixel();
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let x_most = most(&mut points().map(|(x, _)| *x)).max(f64::MIN_POSITIVE);
        let y_most = most(&mut points().map(|(_, y)| *y)).max(f64::MIN_POSITIVE);
        let x_least = points().map(|(x, _)| *x).filter(|x| *x > 0.0);
        let x_least = x_least.fold(x_most, f64::min);
        let x = Ruler {
            from: match self.x_scale {
                Scale::Linear => 0.0,
                Scale::Logarithmic if x_least < x_most => x_least,
                Scale::Logarithmic => x_most / 2.0,
            },
            to: x_most,
            scale: self.x_scale,
            pixels: (LEFT, wide as i32 - 20),
            written: self.x.unit.written(x_most),
        };
        let y = Ruler {
            from: 0.0,
            to: y_most * 1.05,
            scale: Scale::Linear,
            pixels: (high as i32 - BELOW, 8),
            written: self.y.unit.written(y_most),
        };
        self.draw_axes(area, &x, &y)?;
        for LineSeries { series, points } in &self.lines {
            let color = series.color.rgb();
            let places: Vec<_> = points
                .iter()
                .map(|(px, py)| (x.at(*px), y.at(*py)))
                .collect();
            area.draw(&PathElement::new(places.clone(), color.stroke_width(2)))
                .map_err(failed)?;
            for place in places {
                frame::draw_mark(area, place, 5, series.shape, color)?;
            }
        }
        Ok(())
    }

    fn draw_axes(&self, area: &Canvas<'_>, x: &Ruler, y: &Ruler) -> Result<(), Error> {
        let line = |from, to, color: RGBColor| {
            area.draw(&PathElement::new(vec![from, to], color))
                .map_err(failed)
        };
        let ((left, right), (bottom, top)) = (x.pixels, y.pixels);
        let number = frame::style(TEXT, AXIS, HPos::Right, VPos::Center);
        for (tick, text) in y.ticks() {
            line((left, y.at(tick)), (right, y.at(tick)), GRID)?;
            area.draw_text(&text, &number, (left - 6, y.at(tick)))
                .map_err(failed)?;
        }
        let number = frame::style(TEXT, AXIS, HPos::Center, VPos::Top);
        for (tick, text) in x.ticks() {
            line((x.at(tick), bottom), (x.at(tick), bottom + 4), AXIS)?;
            area.draw_text(&text, &number, (x.at(tick), bottom + 6))
                .map_err(failed)?;
        }
        line((left, top), (left, bottom), AXIS)?;
        line((left, bottom), (right, bottom), AXIS)?;
        let label = frame::style(TEXT, INK, HPos::Center, VPos::Top);
        let text = x.written.label(&self.x.label);
        area.draw_text(&text, &label, ((left + right) / 2, bottom + 26))
            .map_err(failed)?;
        frame::draw_upright(
            area,
            &y.written.label(&self.y.label),
            (6, (top + bottom) / 2),
        )
    }
}
