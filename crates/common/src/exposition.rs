//! Metrics in the text format of Prometheus, version 0.0.4.
//!
//! `PRAGMA onewrite_metrics` and `onewrite exporter` write with it. All samples of a metric stand
//! together below its `# HELP` and `# TYPE`, also where several databases add to it.

use std::fmt::{Display, Write};

/// The `Content-Type` of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How a metric behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only grows, from 0 when the log is opened.
    Counter,
    /// A value at this moment.
    Gauge,
    /// Counts of observations up to each bound, their sum and their number.
    Histogram,
}

impl Kind {
    /// The word after `# TYPE`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric: its name, its name for OpenTelemetry, its kind, and one line of help.
#[derive(Debug)]
pub struct Metric {
    /// The name in Prometheus; its end says the unit.
    pub name: &'static str,
    /// The name in OpenTelemetry.
    pub otel: &'static str,
    /// The unit in OpenTelemetry, as UCUM writes it.
    pub unit: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// One line of help.
    pub help: &'static str,
}

/// A label and its value.
pub type Label<'a> = (&'a str, &'a str);

/// The text; see the module.
#[derive(Default)]
pub struct Exposition {
    families: Vec<(&'static Metric, String)>,
}

impl Exposition {
    /// Adds a sample of a counter or a gauge.
    pub fn add(&mut self, metric: &'static Metric, labels: &[Label<'_>], value: impl Display) {
        self.sample(metric, "", labels, &value);
    }

    /// Adds a histogram. A bucket is an upper bound, and the number of observations between the
    /// bound before it and this one. `above` counts those above all bounds.
    pub fn add_histogram(
        &mut self,
        metric: &'static Metric,
        labels: &[Label<'_>],
        buckets: impl IntoIterator<Item = (f64, u64)>,
        above: u64,
        sum: f64,
    ) {
        let mut count = 0;
        let bucket = |bound: &str, count: u64, out: &mut Exposition| {
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound)]).collect();
            out.sample(metric, "_bucket", &labels, &count);
        };
        for (bound, within) in buckets {
            count += within;
            bucket(&bound.to_string(), count, self);
        }
        count += above;
        bucket("+Inf", count, self);
        self.sample(metric, "_sum", labels, &sum);
        self.sample(metric, "_count", labels, &count);
    }

    fn sample(
        &mut self,
        metric: &'static Metric,
        suffix: &str,
        labels: &[Label<'_>],
        value: &dyn Display,
    ) {
        let known = self
            .families
            .iter()
            .position(|(of, _)| of.name == metric.name);
        let place = known.unwrap_or_else(|| {
            self.families.push((metric, String::new()));
            self.families.len() - 1
        });
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        if let Some((metric, samples)) = self.families.get_mut(place) {
            // A String takes everything.
            let _ = writeln!(samples, "{}{suffix}{labels} {value}", metric.name);
        }
    }
}

impl Display for Exposition {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (metric, samples) in &self.families {
            let Metric {
                name, help, kind, ..
            } = metric;
            write!(
                out,
                "# HELP {name} {help}\n# TYPE {name} {}\n{samples}",
                kind.word()
            )?;
        }
        Ok(())
    }
}

/// A label's value, as it stands between quotes.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    static FRAMES: Metric = Metric {
        name: "frames",
        otel: "frames",
        unit: "{frame}",
        kind: Kind::Gauge,
        help: "Frames.",
    };
    static WAITS: Metric = Metric {
        name: "wait_seconds",
        otel: "wait",
        unit: "s",
        kind: Kind::Histogram,
        help: "Waits.",
    };

    #[test]
    fn the_samples_of_a_metric_stand_together() {
        let mut text = Exposition::default();
        text.add(&FRAMES, &[("database", "a")], 1);
        text.add_histogram(&WAITS, &[], [(0.5, 2), (1.0, 0)], 1, 3.25);
        text.add(&FRAMES, &[("database", "b\"\\\n")], 2);
        let expected = "\
# HELP frames Frames.
# TYPE frames gauge
frames{database=\"a\"} 1
frames{database=\"b\\\"\\\\\\n\"} 2
# HELP wait_seconds Waits.
# TYPE wait_seconds histogram
wait_seconds_bucket{le=\"0.5\"} 2
wait_seconds_bucket{le=\"1\"} 2
wait_seconds_bucket{le=\"+Inf\"} 3
wait_seconds_sum 3.25
wait_seconds_count 3
";
        assert_eq!(text.to_string(), expected);
    }
}
