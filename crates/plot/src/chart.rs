//! Charts by plotters' builder, in the style that all pictures share. The builder draws axes, grid
//! lines, ticks with their numbers and the axes' labels; series are drawn in its coordinates.
//!
//! Ours is what it cannot do:
//!
//! - The legend ([`crate::frame`]). The builder's is one column, over the data. Ours is above, in
//!   lines, so that charts below each other share one. Title and subtitle are there as well: the
//!   builder's caption is centered, and cut off where it is too long.
//! - Ticks of bytes at powers of two ([`crate::ticks`]). The builder's ticks are decimal.
//! - The bands of addresses ([`crate::addresses`]): an axis with parts left out.
//! - Tables of colored cells ([`crate::cells`], [`crate::heat`]), which have no axes.

use std::ops::Range;

use plotters::chart::MeshStyle;
use plotters::coord::combinators::WithKeyPoints;
use plotters::coord::ranged1d::{AsRangedCoord, KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use crate::frame::{AXIS, Canvas, GRID, INK, TEXT, failed, style};
use crate::picture::Error;
use crate::ticks::{Unit, Written};

/// Room for the numbers and the label of an upright axis.
pub(crate) const LEFT: i32 = 90;
/// Room for the last number of the axis below.
pub(crate) const RIGHT: i32 = 20;
/// Room for the numbers and the label of the axis below.
const BELOW: i32 = 40;
/// Pixels between an edge and the first mark on an axis of time, so that none lies on the edge.
const TIME_ROOM: f64 = 14.0;

pub(crate) type Chart<'a, X, Y> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>;

/// A chart on a canvas, with room for the labels of its axes.
pub(crate) fn chart<'a, X: AsRangedCoord, Y: AsRangedCoord>(
    area: &Canvas<'a>,
    (left, right): (i32, i32),
    x: X,
    y: Y,
) -> Result<Chart<'a, X::CoordDescType, Y::CoordDescType>, Error> {
    ChartBuilder::on(area)
        .margin_right(right)
        .x_label_area_size(BELOW)
        .y_label_area_size(left)
        .build_cartesian_2d(x, y)
        .map_err(failed)
}

/// The axes of a chart. The caller adds labels and formats.
pub(crate) fn mesh<'a, 'b, X, Y>(
    chart: &'b mut Chart<'a, X, Y>,
) -> MeshStyle<'a, 'b, X, Y, SVGBackend<'a>>
where
    X: Ranged + ValueFormatter<X::ValueType>,
    Y: Ranged + ValueFormatter<Y::ValueType>,
{
    let mut mesh = chart.configure_mesh();
    // A number is this far from its axis, twice the size of its tick.
    mesh.set_all_tick_mark_size(3)
        .axis_style(AXIS)
        .bold_line_style(GRID)
        .label_style(style(TEXT, AXIS, HPos::Center, VPos::Center))
        .axis_desc_style(style(TEXT, INK, HPos::Center, VPos::Center));
    mesh
}

/// A linear axis with its ticks, and how its numbers are written.
pub(crate) struct Linear {
    pub(crate) written: Written,
    axis: WithKeyPoints<RangedCoordf64>,
    step: f64,
}

impl Linear {
    /// An axis from 0 to `to`, with about `wanted` ticks.
    pub(crate) fn new(unit: Unit, to: f64, wanted: usize) -> Self {
        let written = unit.written(to);
        let (ticks, step) = written.ticks(0.0, to, wanted);
        let axis = (0.0..to).with_key_points(ticks);
        Self {
            written,
            axis,
            step,
        }
    }

    /// The time of a picture on a canvas. Pictures below each other that cover the same time have
    /// it at the same places.
    pub(crate) fn times(seconds: f64, area: &Canvas<'_>) -> Self {
        let time = Self::new(Unit::Seconds, seconds, 8);
        let wide = f64::from(area.dim_in_pixel().0) - f64::from(LEFT + RIGHT);
        let room = seconds * TIME_ROOM / (wide - 2.0 * TIME_ROOM);
        let ticks = time.axis.bold_points().to_vec();
        let axis = (-room..seconds + room).with_key_points(ticks);
        Self { axis, ..time }
    }

    /// How its ticks are written.
    pub(crate) fn text(&self) -> impl Fn(&f64) -> String + use<> {
        let (written, step) = (self.written, self.step);
        move |tick| written.tick(*tick, step)
    }
}

impl Ranged for Linear {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.axis.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        self.axis.key_points(hint)
    }

    fn range(&self) -> Range<f64> {
        self.axis.range()
    }
}

impl ValueFormatter<f64> for Linear {
    fn format_ext(&self, tick: &f64) -> String {
        self.text()(tick)
    }
}

#[cfg(test)]
mod tests;
