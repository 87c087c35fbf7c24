//! The pragmas of LS-MVBT: `onewrite_status`, and those whose names begin with `lsmvbt_`.
//!
//! Each answers with one row, the value in force. The database remembers only `lsmvbt_history`.
//! `lsmvbt_torn` holds for all users of the database, until the last one closes it. The others hold
//! for the connection.

use lsmvbt::{Optimizations, Torn, Version, seconds_of};

use super::{Session, error};
use crate::engine::{Error, Result};

/// The pragmas, `onewrite_status` aside. Others whose names begin with `lsmvbt_` are errors.
pub(crate) const PRAGMAS: [&str; 10] = [
    "lsmvbt_history",
    "lsmvbt_version",
    "lsmvbt_torn",
    "lsmvbt_lazy_split",
    "lsmvbt_lazy_gc",
    "lsmvbt_embedding",
    "lsmvbt_redistribution",
    "lsmvbt_reserve",
    "lsmvbt_recovery_pages",
    "lsmvbt_reclaim",
];

/// Pages that recovery may always read: those of some commits.
const FEWEST_PAGES: u32 = 64;

/// Percent of a node that can be reserved at most.
const MOST_RESERVED: u8 = 40;

impl Session {
    /// Runs a pragma; `None` if this engine has no such pragma.
    pub(super) fn run_pragma(&mut self, name: &str, value: Option<&str>) -> Result<Option<String>> {
        let value = value.map(str::trim);
        self.answer(name, value).map_err(|error| match error {
            Error::Refused(why) => Error::Refused(match value {
                Some(value) => format!("{name} = {value}: {why}"),
                None => format!("{name}: {why}"),
            }),
            error => error,
        })
    }

    fn answer(&mut self, name: &str, value: Option<&str>) -> Result<Option<String>> {
        let answer = match name {
            "onewrite_status" => self.status()?,
            "lsmvbt_history" => self.history(value)?,
            "lsmvbt_version" => self.version(value)?,
            "lsmvbt_torn" => self.torn(value)?,
            "lsmvbt_reclaim" => self.reclaim()?,
            "lsmvbt_recovery_pages" => self.recovery_pages(value)?,
            _ => match self.switch(name, value)? {
                Some(answer) => answer,
                None => return Ok(None),
            },
        };
        Ok(Some(answer))
    }

    /// Refuses within a transaction, because this would be no part of it.
    fn outside(&self) -> Result<()> {
        match self.snapshot {
            Some(_) => Err(refused("not within a transaction")),
            None => Ok(()),
        }
    }

    /// The versions that are kept: their number, or the time that they reach back.
    fn history(&mut self, value: Option<&str>) -> Result<String> {
        if let Some(value) = value {
            self.outside()?;
            let set = match span(value) {
                Some(seconds) => self.db.set_history_time(seconds),
                None => self.db.set_history(versions(value)?),
            };
            set.map_err(error)?;
        }
        let status = self.db.status().map_err(error)?;
        Ok(match status.history_seconds {
            0 => status.history.to_string(),
            seconds => span_text(seconds),
        })
    }

    /// The version to read: a chosen one, or the newest.
    fn version(&mut self, value: Option<&str>) -> Result<String> {
        if let Some(value) = value {
            self.outside()?;
            self.pinned = match self.version_named(value)? {
                Version(0) => None,
                version => Some(self.db.snapshot_at(version).map_err(error)?),
            };
        }
        let version = match (&self.pinned, &self.snapshot) {
            (Some(pinned), _) => pinned.version(),
            (None, Some(snapshot)) => snapshot.version(),
            (None, None) => self.db.current_version().map_err(error)?,
        };
        Ok(version.0.to_string())
    }

    /// The version with this number, or the one that was the newest at this time.
    pub(super) fn version_named(&mut self, name: &str) -> Result<Version> {
        match seconds_of(name) {
            Some(time) => {
                let time = u32::try_from(time).map_err(|_| beyond(name))?;
                self.db.version_at(time).map_err(error)
            }
            None => version_number(name).map(Version),
        }
    }

    fn torn(&mut self, value: Option<&str>) -> Result<String> {
        if let Some(value) = value {
            self.outside()?;
            let torn = match value.to_ascii_lowercase().as_str() {
                "auto" => Torn::Auto,
                "trust" => Torn::Trust,
                "double" => Torn::Double,
                _ => return Err(refused("it can be auto, trust or double")),
            };
            self.db.set_torn(torn).map_err(error)?;
        }
        let status = self.db.status().map_err(error)?;
        Ok(torn_name(status.double).to_owned())
    }

    fn reclaim(&mut self) -> Result<String> {
        self.outside()?;
        // A wait would not end it.
        let status = self.db.status().map_err(error)?;
        if status.history > 0 || status.history_seconds > 0 {
            return Err(refused(
                "not with a history, which keeps earlier versions: PRAGMA lsmvbt_history = 0",
            ));
        }
        Ok(self.db.reclaim().map_err(error)?.to_string())
    }

    /// Pages that recovery reads at most.
    fn recovery_pages(&mut self, value: Option<&str>) -> Result<String> {
        if let Some(value) = value {
            self.outside()?;
            let pages = value.parse().ok().filter(|pages| *pages >= FEWEST_PAGES);
            let pages = pages.ok_or_else(|| refused("it is a number of pages, 64 or more"))?;
            self.db.set_recovery_pages(pages);
        }
        Ok(self.db.recovery_pages().to_string())
    }

    /// One of the five optimizations.
    fn switch(&mut self, name: &str, value: Option<&str>) -> Result<Option<String>> {
        let mut all = self.optimizations;
        match (name, value) {
            ("lsmvbt_lazy_split", Some(value)) => all.lazy_split = on_or_off(value)?,
            ("lsmvbt_lazy_gc", Some(value)) => all.lazy_gc = on_or_off(value)?,
            ("lsmvbt_embedding", Some(value)) => all.metadata_embedding = on_or_off(value)?,
            ("lsmvbt_redistribution", Some(value)) => all.no_redistribution = !on_or_off(value)?,
            ("lsmvbt_reserve", Some(value)) => all.reserve_percent = percent(value)?,
            _ => {}
        }
        let Some(answer) = switch_value(name, all) else {
            return Ok(None);
        };
        if value.is_some() {
            self.outside()?;
            self.db.set_optimizations(all).map_err(error)?;
            self.optimizations = all;
        }
        Ok(Some(answer))
    }

    /// One JSON document.
    fn status(&mut self) -> Result<String> {
        let status = self.db.status().map_err(error)?;
        let stats = self.db.stats();
        let mut json = String::from("{\"mode\":\"lsmvbt\",\"engine\":\"lsmvbt\"");
        let numbers = [
            ("version", Some(status.current.0)),
            ("durable", Some(status.durable.0)),
            ("oldest", Some(status.oldest.0)),
            (
                "oldest_reader",
                status.oldest_reader.map(|version| version.0),
            ),
            (
                "reading",
                self.pinned.as_ref().map(|pinned| pinned.version().0),
            ),
            ("history", Some(status.history)),
            ("history_seconds", Some(status.history_seconds.into())),
            ("pages", Some(status.pages.into())),
            ("free_pages", Some(status.free_pages.into())),
            ("marked_regions", Some(status.marked_regions.into())),
            ("recovery_pages", Some(self.db.recovery_pages().into())),
            ("commits", Some(stats.commits)),
            ("pages_written", Some(stats.pages_written)),
            ("slot_pages_written", Some(stats.slot_pages_written)),
            ("zero_pages_written", Some(stats.zero_pages_written)),
            ("header_pages_written", Some(stats.header_pages_written)),
            ("pages_spilled", Some(stats.spilled)),
            ("pages_read", Some(stats.pages_read)),
            ("flushes", Some(stats.flushes)),
            ("late_commits", Some(stats.late_commits)),
            ("lazy_splits", Some(stats.lazy_splits)),
            ("append_splits", Some(stats.append_splits)),
            ("legacy_splits", Some(stats.legacy_splits)),
            ("collected", Some(stats.collected)),
            ("kept_for_readers", Some(stats.kept_for_readers)),
        ];
        for (name, number) in numbers {
            let number = number.map_or_else(|| "null".to_owned(), |number| number.to_string());
            json += &format!(",\"{name}\":{number}");
        }
        json += &format!(",\"torn\":\"{}\"", torn_name(status.double));
        json += &format!(",\"torn_auto\":\"{}\"", self.db.torn_auto());
        for name in SWITCHES {
            let value = switch_value(name, self.optimizations).unwrap_or_default();
            json += &format!(",\"{}\":\"{value}\"", name.trim_start_matches("lsmvbt_"));
        }
        json.push('}');
        Ok(json)
    }
}

const SWITCHES: [&str; 5] = [
    "lsmvbt_lazy_split",
    "lsmvbt_reserve",
    "lsmvbt_lazy_gc",
    "lsmvbt_embedding",
    "lsmvbt_redistribution",
];

fn switch_value(name: &str, all: Optimizations) -> Option<String> {
    let word = |on: bool| if on { "on" } else { "off" };
    Some(match name {
        "lsmvbt_lazy_split" => word(all.lazy_split).to_owned(),
        "lsmvbt_lazy_gc" => word(all.lazy_gc).to_owned(),
        "lsmvbt_embedding" => word(all.metadata_embedding).to_owned(),
        "lsmvbt_redistribution" => word(!all.no_redistribution).to_owned(),
        "lsmvbt_reserve" => all.reserve_percent.to_string(),
        _ => return None,
    })
}

fn torn_name(double: bool) -> &'static str {
    if double { "double" } else { "trust" }
}

fn refused(why: &str) -> Error {
    Error::Refused(why.to_owned())
}

fn versions(value: &str) -> Result<u64> {
    let why = "it is a number of versions, 0 or more, or a time, such as '1 hour'";
    value.parse().map_err(|_| refused(why))
}

fn version_number(value: &str) -> Result<u64> {
    let why = "it is a version's number, or a time in UTC, such as '2026-11-27 10:00:00'";
    value.parse().map_err(|_| refused(why))
}

/// A time at which no version can be: they have 32 bits of seconds.
fn beyond(time: &str) -> Error {
    Error::Refused(format!(
        "{time} is beyond the times that versions can have, 1970-01-01 00:00:00 to \
         2106-02-07 06:28:15 (UTC)"
    ))
}

/// Units of a span of time, and their seconds.
const UNITS: [(&str, u32); 4] = [
    ("day", 86_400),
    ("hour", 3600),
    ("minute", 60),
    ("second", 1),
];

/// Reads a span of time, such as `90 minutes`, in seconds. `None` if it is none, or above 136 years.
fn span(text: &str) -> Option<u32> {
    let (number, unit) = text.split_once(char::is_whitespace)?;
    let unit = unit.trim_start().to_ascii_lowercase();
    let unit = unit.strip_suffix('s').unwrap_or(&unit);
    let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u32>().ok()?.checked_mul(*seconds)
}

/// In the largest unit of which it is a whole number.
fn span_text(seconds: u32) -> String {
    let whole = |unit: &&(&str, u32)| seconds.is_multiple_of(unit.1);
    let (name, length) = UNITS.iter().find(whole).unwrap_or(&UNITS[3]);
    let number = seconds / length;
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {name}{plural}")
}

fn percent(value: &str) -> Result<u8> {
    let percent = value
        .parse()
        .ok()
        .filter(|percent| *percent <= MOST_RESERVED);
    percent.ok_or_else(|| refused("it is percent, 0 to 40"))
}

fn on_or_off(value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "1" | "yes" | "true" => Ok(true),
        "off" | "0" | "no" | "false" => Ok(false),
        _ => Err(refused("it is on or off")),
    }
}
