//! The bytes moved over time, by purpose: a bar for each span of time, in pieces by kind.

use plotters::prelude::*;

use crate::chart::{LEFT, Linear, RIGHT, chart, mesh};
use crate::frame::{self, Canvas, Series, failed};
use crate::picture::{Error, Picture};
use crate::ticks::{Unit, thousands};

const SIZE: (u32, u32) = (760, 280);
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
        let step = self.step();
        let bars = self.bars(step);
        let most = bars.iter().map(|bar| bar.iter().sum::<u64>()).max();
        let seconds = self.seconds.max(1e-6);
        let times = Linear::times(seconds, area);
        let bytes = Linear::new(Unit::Bytes, most.unwrap_or(0).max(1) as f64, 4);
        // The text uses the unit itself for a step of exactly one unit.
        let in_step = Unit::Seconds.written(step * 1.01);
        let every = format!("{} {}", thousands(step / in_step.per, 0), in_step.name);
        let time_label = times.written.label("time");
        let bytes_label = bytes.written.label(&format!("moved in {every}"));
        let mut chart = chart(area, (LEFT, RIGHT), times, bytes)?;
        mesh(&mut chart)
            .disable_x_mesh()
            .x_desc(time_label)
            .y_desc(bytes_label)
            .draw()
            .map_err(failed)?;
        // There is a gap between bars. The last one ends with the time.
        for (index, bar) in bars.iter().enumerate() {
            let (from, to) = (index as f64 * step, (index + 1) as f64 * step);
            let mut below = 0.0;
            for (bytes, series) in bar.iter().zip(&self.series) {
                let above = below + *bytes as f64;
                let corners = [(from, above), (to.min(seconds), below)];
                let mut piece = Rectangle::new(corners, series.color.rgb().filled());
                piece.set_margin(0, 0, 0, 1);
                if *bytes > 0 {
                    chart.plotting_area().draw(&piece).map_err(failed)?;
                }
                below = above;
            }
        }
        Ok(())
    }
}
