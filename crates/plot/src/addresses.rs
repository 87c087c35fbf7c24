//! Where on the device I/Os wrote, over time, as in figures 2, 11 and 12 of WALDIO. Each I/O is a
//! mark at its time and address; the area of the mark follows the I/O's size.
//!
//! For one small commit a file system writes to a few places far apart. One straight axis would
//! show them as a few lines. So the axis is cut: each written place is a band with its own axis.
//! The picture leaves out the untouched addresses between bands.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use crate::chart::{LEFT, Linear, RIGHT, chart, mesh};
use crate::frame::{self, AXIS, Canvas, GRID, INK, Series, TEXT, failed};
use crate::picture::{Error, Picture};
use crate::ticks::{Unit, Written, thousands};

/// Pixels between bands.
const CUT: i32 = 10;
/// The most bands. Beyond that, the closest ones are merged.
const BANDS: usize = 6;
/// Marks have their size written next to them if there are at most this many.
const ANNOTATED: usize = 40;
/// The smallest range that a band covers, in bytes.
const LEAST: u64 = 32 << 10;
/// The radius of a mark of 4 KiB in pixels, unless the largest mark then exceeds its limit; and the
/// smallest radius.
const RADIUS: f64 = 6.0;
const MOST: f64 = 18.0;
const SMALLEST: f64 = 2.0;

/// An I/O.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// When it happened, in seconds from the beginning.
    pub at_s: f64,
    /// Its first byte on the device.
    pub address: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Its purpose: an index into the series.
    pub series: usize,
}

/// A part of the device with a known purpose, which is shaded: the file system's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The name of its purpose.
    pub name: String,
    /// Its bytes on the device.
    pub bytes: Range<u64>,
}

/// Address over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Addresses {
    /// The title: the subject of the picture.
    pub title: String,
    /// The origin of the data.
    pub subtitle: Option<String>,
    /// Width and height in pixels; at least 400 and 240.
    pub size: (u32, u32),
    /// How long the device was watched, in seconds.
    pub seconds: f64,
    /// The kinds of I/O. The legend leaves out those without a mark.
    pub series: Vec<Series>,
    /// Parts of the device that are shaded.
    pub regions: Vec<Region>,
    /// The I/Os.
    pub marks: Vec<Mark>,
    /// Moments at which the device flushed its cache, in seconds from the beginning.
    pub flushes: Vec<f64>,
}

/// Part of the address axis.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Band {
    bytes: Range<u64>,
}

impl Addresses {
    /// The size that fits a page.
    pub const SIZE: (u32, u32) = (760, 460);

    /// Draws it.
    ///
    /// # Errors
    /// If the drawing library fails.
    pub fn draw(&self) -> Result<Picture, Error> {
        let used = |index: &usize| self.marks.iter().any(|mark| mark.series == *index);
        let series = (0..self.series.len()).filter(used);
        let mut legend: Vec<Series> = series.filter_map(|i| self.series.get(i).cloned()).collect();
        if !self.flushes.is_empty() {
            legend.push(Series {
                name: "flush of the device's cache".to_owned(),
                color: FLUSH,
                shape: frame::Shape::Upright,
            });
        }
        let size = (self.size.0.max(400), self.size.1.max(240));
        let subtitle = self.subtitle.as_deref();
        frame::picture(size, &self.title, subtitle, &legend, |area| {
            self.draw_on(area)
        })
    }

    /// The bands, from the lowest address to the highest.
    fn bands(&self) -> Vec<Band> {
        let mut marks: Vec<Range<u64>> = self
            .marks
            .iter()
            .map(|mark| mark.address..mark.address.saturating_add(mark.bytes.max(1)))
            .collect();
        marks.sort_by_key(|range| range.start);
        let mut bands: Vec<Band> = Vec::new();
        for bytes in marks {
            match bands.last_mut() {
                Some(last) if bytes.start <= last.bytes.end.saturating_add(LEAST) => {
                    last.bytes.end = last.bytes.end.max(bytes.end);
                }
                _ => bands.push(Band { bytes }),
            }
        }
        while bands.len() > BANDS {
            let gaps = bands
                .windows(2)
                .enumerate()
                .filter_map(|(at, pair)| match pair {
                    [low, high] => Some((high.bytes.start - low.bytes.end, at)),
                    _ => None,
                });
            let Some((_, at)) = gaps.min() else { break };
            let high = bands.remove(at + 1);
            if let Some(low) = bands.get_mut(at) {
                low.bytes.end = high.bytes.end;
            }
        }
        for band in &mut bands {
            band.widen();
        }
        bands
    }

    fn draw_on(&self, area: &Canvas<'_>) -> Result<(), Error> {
        let bands = self.bands();
        let most = bands.last().map_or(1, |band| band.bytes.end) as f64;
        let written = Unit::Bytes.written(most);
        let times = Linear::times(self.seconds.max(1e-6), area);
        let time_label = times.written.label("time");
        // The upright axis has only its label here: the bands are drawn by hand.
        let mut chart = chart(
            area,
            (LEFT, RIGHT),
            times,
            (0..1).with_key_points(Vec::new()),
        )?;
        mesh(&mut chart)
            .disable_mesh()
            .disable_y_axis()
            .x_desc(time_label)
            .y_desc(written.label("address on the device"))
            .draw()
            .map_err(failed)?;
        let (wide, high) = chart.plotting_area().dim_in_pixel();
        let (left, right, bottom) = (LEFT, LEFT + wide as i32 - 1, high as i32 - 1);
        let x = |at: f64| chart.backend_coord(&(at, 0)).0 - area.get_base_pixel().0;
        let places = share_out(&bands, bottom);
        for (band, place) in bands.iter().zip(&places) {
            self.draw_band(area, band, place, written, (left, right))?;
        }
        let flushes: BTreeSet<i32> = self.flushes.iter().map(|flush| x(*flush)).collect();
        for at in flushes {
            let line = vec![(at, 0), (at, bottom)];
            let color = FLUSH.rgb().mix(0.35);
            area.draw(&PathElement::new(line, color)).map_err(failed)?;
        }
        let placed = self.place(&bands, &places, &x);
        for mark in &placed {
            let Some(series) = self.series.get(mark.series) else {
                continue;
            };
            let drawn = frame::mark(mark.radius, series.shape, series.color.rgb());
            area.draw(&(EmptyElement::at(mark.at) + drawn))
                .map_err(failed)?;
        }
        let mut taken: Vec<Box4> = placed.iter().map(Placed::around).collect();
        if self.marks.len() <= ANNOTATED {
            annotate(area, &placed, &mut taken, right)?;
        }
        for (band, place) in bands.iter().zip(&places) {
            self.name_regions(area, band, place, &taken, (left, right))?;
        }
        Ok(())
    }

    fn draw_band(
        &self,
        area: &Canvas<'_>,
        band: &Band,
        place: &Range<i32>,
        written: Written,
        (left, right): (i32, i32),
    ) -> Result<(), Error> {
        for region in &self.regions {
            let from = region.bytes.start.max(band.bytes.start);
            let to = region.bytes.end.min(band.bytes.end);
            if from >= to {
                continue;
            }
            let corners = [(left, band.y(to, place)), (right, band.y(from, place))];
            area.draw(&Rectangle::new(corners, SHADE.filled()))
                .map_err(failed)?;
        }
        let (from, to) = (band.bytes.start as f64, band.bytes.end as f64);
        let wanted = ((place.end - place.start) / 28).clamp(1, 6) as usize;
        let (ticks, step) = written.ticks(from, to, wanted);
        let number = frame::style(TEXT - 1, AXIS, HPos::Right, VPos::Center);
        for tick in ticks {
            let y = band.y(tick as u64, place);
            area.draw(&PathElement::new(vec![(left, y), (right, y)], GRID))
                .map_err(failed)?;
            let text = written.tick(tick, step);
            area.draw_text(&text, &number, (left - 6, y))
                .map_err(failed)?;
        }
        for side in [left, right] {
            let line = vec![(side, place.start), (side, place.end)];
            area.draw(&PathElement::new(line, AXIS)).map_err(failed)?;
        }
        // The edges of a cut.
        for y in [place.start, place.end] {
            let line = vec![(left - 4, y + 2), (left + 4, y - 2)];
            area.draw(&PathElement::new(line, AXIS)).map_err(failed)?;
        }
        Ok(())
    }

    /// Writes a region's name into its shade, in a corner without marks if there is one.
    fn name_regions(
        &self,
        area: &Canvas<'_>,
        band: &Band,
        place: &Range<i32>,
        taken: &[Box4],
        (left, right): (i32, i32),
    ) -> Result<(), Error> {
        for region in self.regions.iter().filter(|r| band.holds(&r.bytes)) {
            let from = region.bytes.start.max(band.bytes.start);
            let to = region.bytes.end.min(band.bytes.end);
            let (low, high) = (band.y(from, place) - 3, band.y(to, place) + 3);
            let (wide, tall) = (frame::width(&region.name, TEXT - 2), TEXT - 2);
            let corners = [
                (left + 6, low - tall),
                (right - 6 - wide, low - tall),
                (right - 6 - wide, high),
                (left + 6, high),
            ];
            let is_free = |(x, y): &&(i32, i32)| {
                let text = (*x, *y, x + wide, y + tall);
                !taken.iter().any(|other| overlap(text, *other))
            };
            let corner = corners.iter().find(is_free).or(corners.first());
            if let Some(corner) = corner {
                let text = frame::style(TEXT - 2, AXIS, HPos::Left, VPos::Top);
                area.draw_text(&region.name, &text, *corner)
                    .map_err(failed)?;
            }
        }
        Ok(())
    }

    /// The place of each mark on the paper. Large marks come first, so that small ones stay
    /// visible. Marks on the same pixel are drawn once: a long trace has more marks than a picture
    /// has pixels.
    fn place(&self, bands: &[Band], places: &[Range<i32>], x: &dyn Fn(f64) -> i32) -> Vec<Placed> {
        let largest = self.marks.iter().map(|mark| mark.bytes).max().unwrap_or(1);
        let of = |bytes: u64| RADIUS * (bytes as f64 / 4096.0).sqrt();
        let shrunk = (MOST / of(largest)).min(1.0);
        let mut marks: Vec<&Mark> = self.marks.iter().collect();
        marks.sort_by_key(|mark| std::cmp::Reverse(mark.bytes));
        let mut seen = HashSet::new();
        let placed = marks.into_iter().filter_map(|mark| {
            let inside = |(band, _): &(&Band, _)| band.bytes.contains(&mark.address);
            let (band, place) = bands.iter().zip(places).find(inside)?;
            let y = band.y(mark.address.saturating_add(mark.bytes / 2), place);
            let at = (x(mark.at_s), y);
            seen.insert((at, mark.series)).then(|| Placed {
                at,
                radius: (of(mark.bytes) * shrunk).max(SMALLEST).round() as i32,
                bytes: mark.bytes,
                series: mark.series,
            })
        });
        placed.collect()
    }
}

/// A mark on the paper.
struct Placed {
    at: (i32, i32),
    radius: i32,
    bytes: u64,
    series: usize,
}

impl Placed {
    fn around(&self) -> Box4 {
        let ((x, y), r) = (self.at, self.radius);
        (x - r, y - r, x + r, y + r)
    }
}

/// A rectangle on the paper: left, top, right, bottom.
type Box4 = (i32, i32, i32, i32);

fn overlap(a: Box4, b: Box4) -> bool {
    a.0 < b.2 && b.0 < a.2 && a.1 < b.3 && b.1 < a.3
}

/// Writes the sizes next to the marks, where there is room.
fn annotate(
    area: &Canvas<'_>,
    placed: &[Placed],
    taken: &mut Vec<Box4>,
    right: i32,
) -> Result<(), Error> {
    for mark in placed {
        let kib = mark.bytes as f64 / 1024.0;
        let decimals = usize::from(kib.fract() > 0.0);
        let text = format!("{} K", thousands(kib, decimals));
        let (wide, high) = (frame::width(&text, TEXT - 2), (TEXT - 2) / 2);
        let ((x, y), distance) = (mark.at, mark.radius + 4);
        for left in [x + distance, x - distance - wide] {
            let place = (left, y - high, left + wide, y + high);
            let free = !taken.iter().any(|other| overlap(place, *other));
            if free && place.2 < right {
                let style = frame::style(TEXT - 2, INK, HPos::Left, VPos::Center);
                area.draw_text(&text, &style, (left, y)).map_err(failed)?;
                taken.push(place);
                break;
            }
        }
    }
    Ok(())
}

/// The color of regions.
const SHADE: RGBColor = RGBColor(240, 240, 240);

/// The color of flushes.
const FLUSH: crate::Color = crate::Color(90, 90, 90);

impl Band {
    /// Makes room around its contents.
    fn widen(&mut self) {
        let span = (self.bytes.end - self.bytes.start).max(LEAST);
        let missing = span - (self.bytes.end - self.bytes.start) + span / 4;
        self.bytes.start = self.bytes.start.saturating_sub(missing / 2);
        self.bytes.end = self.bytes.end.saturating_add(missing / 2);
    }

    fn holds(&self, bytes: &Range<u64>) -> bool {
        bytes.start < self.bytes.end && self.bytes.start < bytes.end
    }

    /// The height of an address in pixels.
    fn y(&self, address: u64, place: &Range<i32>) -> i32 {
        let span = (self.bytes.end - self.bytes.start).max(1) as f64;
        let share = address.saturating_sub(self.bytes.start) as f64 / span;
        place.end - (share.min(1.0) * f64::from(place.end - place.start)).round() as i32
    }
}

/// Shares pixels out among bands, the lowest address at the bottom. Each band gets some, and more
/// if it covers more.
fn share_out(bands: &[Band], bottom: i32) -> Vec<Range<i32>> {
    let cuts = CUT * (bands.len().max(1) as i32 - 1);
    let room = f64::from(bottom - cuts);
    let weight = |band: &Band| ((band.bytes.end - band.bytes.start) as f64).log2().max(1.0) - 10.0;
    let total: f64 = bands.iter().map(|band| weight(band).max(1.0)).sum();
    let mut below = bottom;
    let mut places = Vec::new();
    for band in bands {
        let height = (room * weight(band).max(1.0) / total).round() as i32;
        places.push((below - height).max(0)..below);
        below -= height + CUT;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(at: &[(u64, u64)]) -> Addresses {
        Addresses {
            title: String::new(),
            subtitle: None,
            size: Addresses::SIZE,
            seconds: 1.0,
            series: Vec::new(),
            regions: Vec::new(),
            marks: at
                .iter()
                .map(|(address, bytes)| Mark {
                    at_s: 0.5,
                    address: *address,
                    bytes: *bytes,
                    series: 0,
                })
                .collect(),
            flushes: Vec::new(),
        }
    }

    #[test]
    fn places_far_apart_are_bands_and_every_mark_is_in_one() {
        let far = 1 << 30;
        let picture = addresses(&[(0, 4096), (far, 4096), (far + 4096, 8192)]);
        let bands = picture.bands();
        assert_eq!(bands.len(), 2);
        assert!(bands[1].bytes.contains(&far) && bands[1].bytes.contains(&(far + 12_287)));
        let many: Vec<_> = (0..100).map(|n| ((n * n) << 20, 4096)).collect();
        let bands = addresses(&many).bands();
        assert_eq!(bands.len(), BANDS);
        for (address, _) in many {
            assert!(bands.iter().any(|band| band.bytes.contains(&address)));
        }
    }

    #[test]
    fn bands_do_not_overlap_on_the_paper() {
        let bands = addresses(&[(0, 4096), (1 << 24, 1 << 20), (1 << 30, 512)]).bands();
        let places = share_out(&bands, 400);
        assert_eq!(places[0].end, 400);
        for pair in places.windows(2) {
            assert!(
                pair[1].end < pair[0].start && pair[1].start >= 0,
                "{places:?}"
            );
        }
    }
}
