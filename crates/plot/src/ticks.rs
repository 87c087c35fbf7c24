//! Numbers on axes: their positions and their text.

use plotters::coord::ranged1d::Ranged as _;
use plotters::coord::types::RangedCoordf64;

/// The unit of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, written with binary prefixes.
    Bytes,
    /// Seconds, written as s, ms or us.
    Seconds,
    /// Pure numbers: requests, transactions, rates.
    Number,
}

/// The meaning of an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The counted thing, without its unit, which is added.
    pub label: String,
    /// The unit.
    pub unit: Unit,
}

impl Axis {
    /// An axis.
    pub fn new(label: impl Into<String>, unit: Unit) -> Self {
        let label = label.into();
        Self { label, unit }
    }
}

/// The format of an axis's numbers: all in the same multiple of the unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Written {
    /// The multiple.
    pub(crate) per: f64,
    /// Its name; empty for pure numbers.
    pub(crate) name: &'static str,
}

impl Unit {
    /// The multiple in which numbers up to `most` are legible.
    pub(crate) fn written(self, most: f64) -> Written {
        const BYTES: [(f64, &str); 5] = [
            (1.0, "B"),
            (1024.0, "KiB"),
            (1_048_576.0, "MiB"),
            (1_073_741_824.0, "GiB"),
            (1_099_511_627_776.0, "TiB"),
        ];
        const SECONDS: [(f64, &str); 3] = [(1e-6, "us"), (1e-3, "ms"), (1.0, "s")];
        let multiples: &[(f64, &'static str)] = match self {
            Self::Bytes => &BYTES,
            Self::Seconds => &SECONDS,
            Self::Number => &[(1.0, "")],
        };
        let fits = multiples.iter().rev().find(|(per, _)| most >= 2.0 * per);
        let (per, name) = *fits.or(multiples.first()).unwrap_or(&(1.0, ""));
        Written { per, name }
    }
}

impl Written {
    /// An axis's label with the unit.
    pub(crate) fn label(self, label: &str) -> String {
        match self.name {
            "" => label.to_owned(),
            name => format!("{label} ({name})"),
        }
    }

    /// A number on the axis, with no more decimals than ticks `step` apart need.
    pub(crate) fn tick(self, value: f64, step: f64) -> String {
        let (value, step) = (value / self.per, step / self.per);
        let decimals = (0..6).find(|d| {
            let scaled = step * 10f64.powi(*d);
            (scaled - scaled.round()).abs() < 1e-6 * scaled.max(1e-12)
        });
        thousands(value, decimals.unwrap_or(6) as usize)
    }

    /// Ticks from `from` to `to`, about `wanted` of them, and the distance between them. They are
    /// plotters' own, except for bytes below a thousand of the unit: plotters has no powers of two.
    pub(crate) fn ticks(self, from: f64, to: f64, wanted: usize) -> (Vec<f64>, f64) {
        let (from, to) = (from / self.per, to / self.per);
        let rough = (to - from) / wanted as f64;
        let mut ticks = if self.name.ends_with('B') && (1.0..512.0).contains(&rough) {
            let step = 2f64.powi(rough.log2().ceil() as i32);
            let (first, last) = ((from / step).ceil() as u64, (to / step).floor() as u64);
            (first..=last).map(|n| n as f64 * step).collect()
        } else {
            RangedCoordf64::from(from..to).key_points(wanted + 1)
        };
        ticks.iter_mut().for_each(|tick| *tick *= self.per);
        let step = match ticks.as_slice() {
            [first, second, ..] => second - first,
            [only] if *only > 0.0 => *only,
            _ => self.per,
        };
        (ticks, step)
    }
}

/// A number with commas between thousands.
pub(crate) fn thousands(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let negative = value < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b));
    format!("{}{grouped}{rest}", if negative { "-" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_a_legible_multiple() {
        let bytes = Unit::Bytes.written(80.0 * 1024.0);
        assert_eq!((bytes.per, bytes.name), (1024.0, "KiB"));
        assert_eq!(bytes.label("written"), "written (KiB)");
        let (ticks, step) = bytes.ticks(0.0, 80.0 * 1024.0, 5);
        let written: Vec<_> = ticks.iter().map(|tick| bytes.tick(*tick, step)).collect();
        assert_eq!(written, ["0", "16", "32", "48", "64", "80"]);
        assert_eq!(Unit::Seconds.written(0.004).name, "ms");
        assert_eq!(Unit::Seconds.written(0.0).name, "us");
        assert_eq!(Unit::Number.written(1e9).name, "");
        assert_eq!(Unit::Number.written(1.0).tick(12_345.0, 5.0), "12,345");
        assert_eq!(Unit::Number.written(1.0).tick(0.25, 0.05), "0.25");
        assert_eq!(thousands(-1_234_567.5, 1), "-1,234,567.5");
        assert_eq!(thousands(-0.0, 0), "0");
    }

    #[test]
    fn there_are_always_some_ticks_and_never_many() {
        for (from, to) in [(0.0, 0.0), (0.0, 1e-9), (1e15, 1e15 + 4096.0), (0.0, 1e18)] {
            for unit in [Unit::Bytes, Unit::Seconds, Unit::Number] {
                let (ticks, step) = unit.written(to).ticks(from, to, 6);
                assert!(ticks.len() <= 201 && step > 0.0, "{from} {to} {ticks:?}");
            }
        }
    }
}
