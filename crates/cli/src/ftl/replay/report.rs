//! The report of a replay, as text and as JSON.
//!
//! The document is a contract with its parsers: fields may be added, never renamed.

use std::collections::BTreeSet;

use onewrite_flash::ftl::{Ftl, Statistics};
use onewrite_flash::nand::Operations;
use serde::Serialize;

use super::formats::Format;
use super::play::{Moved, Played, Tally};
use crate::text_table::{NONE, TextTable};

const SECONDS_OF_A_YEAR: f64 = 365.25 * 86_400.0;

/// Different disks that are listed, at most.
const DISKS: usize = 64;

/// The lines of the trace, or the records of blktrace's own files.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Lines {
    /// All of them.
    pub lines: u64,
    /// Lines that are no requests, as the format has them.
    pub others: u64,
    /// Requests of other disks than the one to play.
    pub of_other_disks: u64,
    /// Lines that the format does not have.
    pub unknown: u64,
    /// The first of them.
    pub first_unknown: Option<String>,
    /// Disks, files or runs in the trace, 64 at most.
    pub disks: BTreeSet<String>,
}

impl Lines {
    /// Counts an unknown line or record with `lenient`.
    ///
    /// # Errors
    /// Without it, `error` itself.
    pub fn unknown(&mut self, lenient: bool, error: String) -> Result<(), String> {
        if !lenient {
            return Err(format!("{error}; --lenient counts it, and goes on"));
        }
        self.unknown += 1;
        self.first_unknown.get_or_insert(error);
        Ok(())
    }

    /// Whether a request of this disk is played; notes the disk.
    pub fn wants(&mut self, of: &str, only: Option<&str>) -> bool {
        let is_wanted = only.is_none_or(|only| only == of);
        if !self.disks.contains(of) && (self.disks.len() < DISKS || only == Some(of)) {
            self.disks.insert(of.to_owned());
        }
        self.of_other_disks += u64::from(!is_wanted);
        is_wanted
    }
}

/// The device before the replay.
#[derive(Clone, Debug)]
pub struct Before {
    nand: Operations,
    erases: Vec<u32>,
}

impl Before {
    pub fn of(ftl: &Ftl) -> Self {
        Self {
            nand: ftl.nand().operations(),
            erases: ftl.wear().erases,
        }
    }
}

/// The order of the replay's requests.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How many times as fast as in the trace requests arrive.
    pub timed: Option<f64>,
    pub queue_depth: u32,
}

/// The whole document.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of this format.
    version: u32,
    format: Format,
    /// How many times as fast as in the trace requests arrived; null if each arrived when the one
    /// before was answered.
    timed: Option<f64>,
    /// Requests in flight at most.
    queue_depth: u32,
    trace: Lines,
    moved: Moved,
    requests: Requests,
    /// From the first to the last request of the trace.
    trace_s: f64,
    /// The device's time, to the end of the last flush.
    elapsed_s: f64,
    /// Requests a second of that; null if it took no time.
    iops: Option<f64>,
    /// Bytes read and written a second.
    bytes_per_s: Option<f64>,
    /// Bytes of a page of the device.
    page_bytes: u32,
    /// Commands and pages.
    statistics: Statistics,
    /// The NAND's operations.
    nand: Operations,
    /// Pages programmed for each page that the host wrote.
    write_amplification: Option<f64>,
    /// Bytes programmed for each byte of the trace's writes.
    byte_amplification: Option<f64>,
    /// Erases of a block in this replay.
    erases: Spread,
    /// Erases of a block since the device was new.
    erases_in_life: Spread,
    /// Times that a block can be erased.
    endurance: u32,
    bad_blocks: u32,
    /// Bytes of pages that the host can write in the device's whole life.
    life_bytes: Option<f64>,
    /// How long that takes at the trace's rate of writes; null without a trace's time.
    life_years: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Requests {
    read: Kind,
    write: Kind,
    trim: Kind,
    flush: Kind,
}

/// One kind of request.
#[derive(Debug, Serialize)]
struct Kind {
    requests: u64,
    bytes: u64,
    /// Null without a request.
    latency_us: Option<Latency>,
}

/// In microseconds of the device's time.
#[derive(Debug, Serialize)]
struct Latency {
    mean: f64,
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

#[derive(Debug, Default, PartialEq, Serialize)]
struct Spread {
    min: u32,
    mean: f64,
    max: u32,
}

impl Spread {
    fn of(numbers: &[u32]) -> Self {
        let sum: u64 = numbers.iter().map(|number| u64::from(*number)).sum();
        Self {
            min: numbers.iter().copied().min().unwrap_or(0),
            mean: sum as f64 / numbers.len().max(1) as f64,
            max: numbers.iter().copied().max().unwrap_or(0),
        }
    }
}

impl Kind {
    fn of(tally: &Tally) -> Self {
        let us = |quantile: f64| {
            // The histogram rounds up.
            let ns = tally
                .latencies
                .value_at_quantile(quantile)
                .min(tally.max_ns);
            ns as f64 / 1e3
        };
        Self {
            requests: tally.requests,
            bytes: tally.bytes,
            latency_us: (tally.requests > 0).then(|| Latency {
                mean: tally.total_ns as f64 / tally.requests as f64 / 1e3,
                p50: us(0.5),
                p99: us(0.99),
                p999: us(0.999),
                max: tally.max_ns as f64 / 1e3,
            }),
        }
    }
}

impl Report {
    pub fn of(
        before: &Before,
        played: &Played,
        terms: Terms,
        format: Format,
        trace: Lines,
    ) -> Self {
        let (ftl, tallies) = (&played.ftl, &played.tallies);
        let (now, wear) = (ftl.nand().operations(), ftl.wear());
        let nand = now.since(&before.nand);
        let erases: Vec<u32> = (wear.erases.iter().zip(&before.erases))
            .map(|(after, before)| after - before)
            .collect();
        let all = [&tallies.read, &tallies.write, &tallies.trim, &tallies.flush];
        let requests: u64 = all.iter().map(|tally| tally.requests).sum();
        let (elapsed_s, trace_s) = (played.device_ns as f64 / 1e9, played.trace_ns as f64 / 1e9);
        let a_second = |number: u64| (elapsed_s > 0.0).then(|| number as f64 / elapsed_s);
        let page_bytes = ftl.page_bytes();
        let written = tallies.write.bytes;
        let programmed = nand.programs as f64 * f64::from(page_bytes);
        let host = ftl.statistics().host_writes as f64 * f64::from(page_bytes);
        let life_years = wear.life_bytes.filter(|_| trace_s > 0.0 && host > 0.0);
        Self {
            version: 1,
            format,
            timed: terms.timed,
            queue_depth: terms.queue_depth,
            trace,
            moved: played.moved,
            requests: Requests {
                read: Kind::of(&tallies.read),
                write: Kind::of(&tallies.write),
                trim: Kind::of(&tallies.trim),
                flush: Kind::of(&tallies.flush),
            },
            trace_s,
            elapsed_s,
            iops: a_second(requests),
            bytes_per_s: a_second(tallies.read.bytes + written),
            page_bytes,
            statistics: ftl.statistics(),
            nand,
            write_amplification: wear.write_amplification,
            byte_amplification: (written > 0).then(|| programmed / written as f64),
            erases: Spread::of(&erases),
            erases_in_life: Spread::of(&wear.erases),
            endurance: wear.endurance,
            bad_blocks: wear.bad_blocks,
            life_bytes: wear.life_bytes,
            life_years: life_years.map(|life| life / (host / trace_s) / SECONDS_OF_A_YEAR),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.by_kind());
        text.push_str(&self.times());
        text.push_str(&self.notes());
        text.push_str(&format!("{}\n", self.pages()));
        text.push_str(&self.wear());
        text
    }

    fn by_kind(&self) -> TextTable {
        let heads = [
            "kind",
            "requests",
            "MiB",
            "mean\nus",
            "p50\nus",
            "p99\nus",
            "p99.9\nus",
            "max\nus",
        ];
        let mut table = TextTable::new(1, heads);
        let Requests {
            read,
            write,
            trim,
            flush,
        } = &self.requests;
        for (name, kind) in [
            ("read", read),
            ("write", write),
            ("trim", trim),
            ("flush", flush),
        ] {
            let us = |pick: fn(&Latency) -> f64| {
                let latency = kind.latency_us.as_ref();
                latency.map_or_else(
                    || NONE.to_owned(),
                    |latency| format!("{:.1}", pick(latency)),
                )
            };
            table.row([
                name.to_owned(),
                kind.requests.to_string(),
                format!("{:.1}", kind.bytes as f64 / 1_048_576.0),
                us(|latency| latency.mean),
                us(|latency| latency.p50),
                us(|latency| latency.p99),
                us(|latency| latency.p999),
                us(|latency| latency.max),
            ]);
        }
        table
    }

    fn times(&self) -> String {
        let mut text = format!("{:.3} s of the device's time", self.elapsed_s);
        if let (Some(iops), Some(bytes)) = (self.iops, self.bytes_per_s) {
            text.push_str(&format!(
                ": {iops:.0} I/Os and {:.1} MiB a second",
                bytes / 1_048_576.0
            ));
        }
        text.push_str(&match self.timed {
            Some(speed) => format!(
                "; arrivals of {:.3} s, {speed} times as fast\n",
                self.trace_s
            ),
            None if self.queue_depth == 1 => "; one request after the other\n".to_owned(),
            None => "\n".to_owned(),
        });
        if self.queue_depth > 1 {
            text.push_str(&format!("up to {} requests in flight\n", self.queue_depth));
        }
        text
    }

    fn notes(&self) -> String {
        let mut text = String::new();
        let mut note = |number: u64, what: &str| {
            if number > 0 {
                text.push_str(&format!("{number} {what}\n"));
            }
        };
        note(
            self.moved.folded,
            "I/Os reached beyond the device's end, and were folded",
        );
        note(
            self.moved.cut,
            "I/Os were longer than the device, and were cut to its size",
        );
        note(
            self.moved.out_of_order,
            "I/Os were earlier than the one before: their time stood still",
        );
        note(
            self.statistics.blank_reads,
            "pages were read that nobody had written: the device answers without its NAND",
        );
        let what = match self.format {
            Format::Blktrace => "records",
            _ => "lines",
        };
        note(self.trace.others, &format!("{what} were no requests"));
        note(
            self.trace.of_other_disks,
            "requests of other disks were left out",
        );
        note(
            self.trace.unknown,
            &format!("{what} are unknown, and were left out"),
        );
        if let Some(first) = &self.trace.first_unknown {
            text.push_str(&format!("the first of them: {first}\n"));
        }
        if self.trace.disks.len() > 1 && self.trace.of_other_disks == 0 {
            let disks: Vec<&str> = self.trace.disks.iter().map(String::as_str).collect();
            text.push_str(&format!(
                "several disks played as one: {}\n",
                disks.join(" ")
            ));
        }
        text
    }

    fn pages(&self) -> TextTable {
        let s = &self.statistics;
        let mut rows = vec![("programmed", self.nand.programs)];
        rows.extend(reasons(s));
        rows.extend([
            ("of these together with another plane", s.multi_plane),
            ("read", self.nand.reads),
            ("- for the host", s.host_reads - s.blank_reads),
            ("- for the map", s.map_reads),
            ("trimmed", s.host_trims),
        ]);
        let mut table = TextTable::new(1, ["NAND", "pages"]);
        for (name, number) in rows {
            table.row([name.to_owned(), number.to_string()]);
        }
        table
    }

    fn wear(&self) -> String {
        let spread = |spread: &Spread| {
            format!(
                "{} to {} times, {:.2} on average",
                spread.min, spread.max, spread.mean
            )
        };
        let mut text = format!(
            "garbage collection emptied {} blocks\nerases: {}; a block in this replay {}, in its life {}, of {}\n",
            self.statistics.gc_blocks,
            self.nand.erases,
            spread(&self.erases),
            spread(&self.erases_in_life),
            self.endurance,
        );
        if self.bad_blocks > 0 {
            text.push_str(&format!("{} bad blocks\n", self.bad_blocks));
        }
        if let Some(waf) = self.write_amplification {
            text.push_str(&format!("write amplification {waf:.2} (pages)"));
            if let Some(bytes) = self.byte_amplification {
                text.push_str(&format!(", {bytes:.2} (bytes of the trace)"));
            }
            text.push('\n');
        }
        if let Some(life) = self.life_bytes {
            text.push_str(&format!(
                "life: {:.1} GiB of host pages",
                life / f64::from(1 << 30)
            ));
            if let Some(years) = self.life_years {
                text.push_str(&format!(", {years:.2} years at the trace's rate"));
            }
            text.push('\n');
        }
        text
    }
}

/// The pages programmed, by reason.
fn reasons(s: &Statistics) -> [(&'static str, u64); 9] {
    [
        ("- of the host", s.host_writes),
        ("- moved by garbage collection", s.gc_copies),
        ("- moved by wear levelling", s.wear_copies),
        ("- moved because of bit errors", s.scrub_copies),
        ("- moved out of failed blocks", s.failed_copies),
        ("- pieces of the map", s.map_writes),
        ("- pieces of the X-L2P table", s.table_writes),
        ("- roots", s.root_writes),
        ("- to complete pairs of pages", s.padding_writes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_all_blocks() {
        let expected = Spread {
            min: 1,
            mean: 2.0,
            max: 4,
        };
        assert_eq!(Spread::of(&[1, 1, 2, 4]), expected);
        assert_eq!(Spread::of(&[]), Spread::default());
    }

    #[test]
    fn only_one_disk_is_wanted_and_all_are_noted() {
        let mut lines = Lines::default();
        assert!(lines.wants("hm_0", None));
        assert!(!lines.wants("hm_0", Some("hm_1")));
        assert!(lines.wants("hm_1", Some("hm_1")));
        assert_eq!(lines.of_other_disks, 1);
        assert_eq!(lines.disks.len(), 2);
    }

    #[test]
    fn every_page_that_is_programmed_has_a_reason() {
        let of = |shift: u32| 1_u64 << shift;
        let statistics = Statistics {
            host_writes: of(0),
            gc_copies: of(1),
            wear_copies: of(2),
            scrub_copies: of(3),
            failed_copies: of(4),
            map_writes: of(5),
            table_writes: of(6),
            root_writes: of(7),
            padding_writes: of(8),
            ..Statistics::default()
        };
        let sum: u64 = reasons(&statistics).iter().map(|(_, pages)| pages).sum();
        assert_eq!(sum, statistics.programs());
        assert_eq!(sum, of(9) - 1);
    }
}
