//! How a figure depends on a number: rates by threads, bytes by transaction size.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::chart::{LEFT, Linear, RIGHT, chart, mesh};
use crate::frame::{self, Canvas, Series, failed};
use crate::picture::{Error, Picture};
use crate::ticks::Axis;

const SIZE: (u32, u32) = (760, 420);

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
    /// Its points, x and y, from left to right. Points that are not finite are left out.
    pub points: Vec<(f64, f64)>,
}

impl LineSeries {
    fn finite(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let points = self.points.iter().copied();
        points.filter(|(x, y)| x.is_finite() && y.is_finite())
    }
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

impl Lines {
    /// Draws it.
    ///
    /// # Errors
    /// If the drawing library fails.
    pub fn draw(&self) -> Result<Picture, Error> {
        let legend: Vec<Series> = self.lines.iter().map(|line| line.series.clone()).collect();
        let subtitle = self.subtitle.as_deref();
        frame::picture(SIZE, &self.title, subtitle, &legend, |area| {
            let all = || self.lines.iter().flat_map(LineSeries::finite);
            let most = all().map(|(x, _)| x).fold(0.0, f64::max);
            let most = most.max(f64::MIN_POSITIVE);
            if self.x_scale == Scale::Linear {
                let x = Linear::new(self.x.unit, most, 6);
                let text = x.text();
                return self.draw_on(area, x, &text);
            }
            let least = all().map(|(x, _)| x).filter(|x| *x > 0.0);
            let least = least.fold(most, f64::min);
            let least = if least < most { least } else { most / 2.0 };
            let base = if most / least > 4_096.0 { 10.0 } else { 2.0 };
            let written = self.x.unit.written(most);
            let axis = (least..most).log_scale().base(base);
            self.draw_on(area, axis, &|tick| written.tick(*tick, *tick))
        })
    }

    fn draw_on<X: AsRangedCoord<Value = f64>>(
        &self,
        area: &Canvas<'_>,
        x: X,
        text: &dyn Fn(&f64) -> String,
    ) -> Result<(), Error>
    where
        X::CoordDescType: ValueFormatter<f64>,
    {
        let all = || self.lines.iter().flat_map(LineSeries::finite);
        let x_most = all().map(|(x, _)| x).fold(0.0, f64::max);
        let y_most = all().map(|(_, y)| y).fold(0.0, f64::max);
        let y = Linear::new(self.y.unit, y_most.max(f64::MIN_POSITIVE) * 1.05, 6);
        let y_label = y.written.label(&self.y.label);
        let mut chart = chart(area, (LEFT, RIGHT), x, y)?;
        mesh(&mut chart)
            .disable_x_mesh()
            .x_labels(8)
            .x_label_formatter(text)
            .x_desc(self.x.unit.written(x_most).label(&self.x.label))
            .y_desc(y_label)
            .draw()
            .map_err(failed)?;
        for line in &self.lines {
            let (color, shape) = (line.series.color.rgb(), line.series.shape);
            let drawn = plotters::prelude::LineSeries::new(line.finite(), color.stroke_width(2));
            chart.draw_series(drawn).map_err(failed)?;
            let mark = |at, radius, _| EmptyElement::at(at) + frame::mark(radius, shape, color);
            let marks = PointSeries::of_element(line.finite(), 5, color, &mark);
            chart.draw_series(marks).map_err(failed)?;
        }
        Ok(())
    }
}
