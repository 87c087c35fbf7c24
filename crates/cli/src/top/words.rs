//! Figures in the form that the tables and the screen show.

use crate::html::{grouped, rate};
use crate::text_table::NONE;

/// The units of bytes, each 1,024 of the one before.
const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// Bytes in the unit that leaves one to four digits.
pub fn bytes(bytes: f64) -> String {
    let (mut value, mut unit) = (bytes, 0);
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    match unit == 0 || value >= 99.95 {
        true => format!("{value:.0} {name}"),
        false => format!("{value:.1} {name}"),
    }
}

/// The same where there may be no figure.
pub fn bytes_or_none(figure: Option<f64>) -> String {
    figure.map_or_else(|| NONE.to_owned(), bytes)
}

/// A number that is small for each commit.
pub fn small(figure: Option<f64>) -> String {
    figure.map_or_else(|| NONE.to_owned(), |number| format!("{number:.2}"))
}

/// A rate a second.
pub fn per_second(rate_per_s: f64) -> String {
    rate(rate_per_s)
}

/// A share in percent.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(
        || NONE.to_owned(),
        |share| format!("{:.0} %", share * 100.0),
    )
}

/// Microseconds in milliseconds.
pub fn milliseconds(us: u64) -> String {
    match us {
        0..10_000 => format!("{:.2}", us as f64 / 1000.0),
        10_000..100_000 => format!("{:.1}", us as f64 / 1000.0),
        _ => grouped(us / 1000),
    }
}

/// Years of a device's life. More than a hundred is no worry, and no forecast.
pub fn years(years: f64) -> String {
    match years {
        ..0.1 => format!("{:.0} days", years * 365.25),
        ..10.0 => format!("{years:.1} years"),
        ..=100.0 => format!("{years:.0} years"),
        _ => "over 100 years".to_owned(),
    }
}

/// A path that is too long keeps its end, which tells databases apart.
pub fn shortened(path: &str, most: usize) -> String {
    let length = path.chars().count();
    if length <= most {
        return path.to_owned();
    }
    let tail = path.chars().skip(length - most.saturating_sub(1));
    std::iter::once('…').chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_a_unit_and_few_digits() {
        let texts = [0.0, 1023.0, 4096.0, 150.0 * 1024.0, 1_073_741_824.0].map(bytes);
        assert_eq!(texts, ["0 B", "1023 B", "4.0 KiB", "150 KiB", "1.0 GiB"]);
        assert_eq!(bytes(1024.0 * 1024.0 - 1.0), "1.0 MiB");
        let times = [80, 9_990, 15_000, 150_000, 1_500_000].map(milliseconds);
        assert_eq!(times, ["0.08", "9.99", "15.0", "150", "1,500"]);
        assert_eq!(percent(Some(0.714)), "71 %");
    }

    #[test]
    fn a_life_is_in_days_or_years() {
        let texts = [0.01, 0.1, 9.96, 10.0, 100.0, 100.4, 4000.0].map(years);
        let expected = ["4 days", "0.1 years", "10.0 years", "10 years", "100 years"];
        assert_eq!(texts[..5], expected);
        assert_eq!(texts[5..], ["over 100 years"; 2]);
    }

    #[test]
    fn a_long_path_keeps_its_end() {
        assert_eq!(shortened("/var/lib/app.db", 20), "/var/lib/app.db");
        assert_eq!(shortened("/var/lib/app.db", 7), "…app.db");
    }
}
