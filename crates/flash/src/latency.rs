//! A device's latencies: a model, from a small TOML file.
//!
//! ```toml
//! description = "what it is"       # for reports
//! sources = ["who measured what"]  # one at least where anything takes time
//! channels = 1                     # requests worked on at the same time, 1 to 64
//!
//! [program]                        # a write, until the device answers: with a cache, into it
//! us = 44.2                        # microseconds whatever its size
//! mb_per_s = 125                   # and for its bytes, at so many megabytes (10^6) a second
//! [read]                           # the same for a read
//! us = 74.5
//! [flush]                          # of everything written since the last one
//! us = 1000
//! [fua]                            # a write that is durable when it is answered, if the device has it
//! us = 957
//! ```
//!
//! Everything except `description` and `channels` may be left out, and then takes no time.
//! `docs/devices.md` explains the use of the times ([`crate::schedule`]), and the devices that the
//! built-in models stand for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::model;

/// The built-in models: name, and the text of the file.
pub const BUILT_IN: [(&str, &str); 5] = [
    ("none", include_str!("../models/none.toml")),
    ("nvme", include_str!("../models/nvme.toml")),
    ("emmc", include_str!("../models/emmc.toml")),
    ("sd", include_str!("../models/sd.toml")),
    ("network", include_str!("../models/network.toml")),
];

/// The most requests that a device may work on at the same time.
pub const MAX_CHANNELS: u32 = 64;

/// The longest time that a model may have, in microseconds. The kernel reports a request as hung
/// after two minutes.
const MAX_US: f64 = 10_000_000.0;

/// The cost of an operation: a time for any size, and one for its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Microseconds for any size.
    pub us: f64,
    /// Additional time for the bytes, in megabytes (10^6 bytes) a second; `None` if the size does
    /// not matter.
    pub mb_per_s: Option<f64>,
}

impl Cost {
    /// The cost with this many bytes.
    pub fn of(&self, bytes: u64) -> Duration {
        let transfer = self.mb_per_s.map_or(0.0, |rate| bytes as f64 / rate);
        // Both are finite and not negative, and MAX_US bounds the first.
        Duration::from_nanos(((self.us + transfer) * 1e3) as u64)
    }

    fn check(&self, name: &str) -> Result<(), String> {
        if !(0.0..=MAX_US).contains(&self.us) {
            return Err(format!(
                "{name}: us = {} is not between 0 and {MAX_US}",
                self.us
            ));
        }
        match self.mb_per_s {
            Some(rate) if !(0.001..=1e9).contains(&rate) => Err(format!(
                "{name}: mb_per_s = {rate} is not between 0.001 and 1000000000"
            )),
            _ => Ok(()),
        }
    }
}

/// A model; see the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Its name: that of a built-in model, or the file's name without its ending.
    #[serde(default)]
    pub name: String,
    /// The device that it stands for.
    pub description: String,
    /// The sources of the times.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Requests worked on at the same time.
    pub channels: u32,
    /// A write, until the device answers.
    #[serde(default)]
    pub program: Cost,
    /// A read.
    #[serde(default)]
    pub read: Cost,
    /// A flush, with all writes since the last one.
    #[serde(default)]
    pub flush: Cost,
    /// A write that is durable when it is answered; `None` for a device without FUA.
    pub fua: Option<Cost>,
}

impl Latency {
    /// The built-in model with this name.
    pub fn built_in(name: &str) -> Option<Self> {
        let (name, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        // A test checks that each of them can be parsed.
        Self::parse(name, text).ok()
    }

    /// The built-in model of that name, or the model in the file of that name.
    ///
    /// # Errors
    /// If there is no such model or file, or the file is not a model.
    pub fn find(name: &str) -> Result<Self, Error> {
        model::find(name, "device", &BUILT_IN, Self::parse)
    }

    /// Reads a model from the text of a file.
    ///
    /// # Errors
    /// A message about the mistake.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut model: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        model.check()?;
        if model.name.is_empty() {
            model.name = name.to_owned();
        }
        Ok(model)
    }

    fn check(&self) -> Result<(), String> {
        if !(1..=MAX_CHANNELS).contains(&self.channels) {
            return Err(format!(
                "channels = {} is not between 1 and {MAX_CHANNELS}",
                self.channels
            ));
        }
        let costs = [
            ("program", &self.program),
            ("read", &self.read),
            ("flush", &self.flush),
            ("fua", &self.fua.unwrap_or_default()),
        ];
        for (name, cost) in costs {
            cost.check(name)?;
        }
        let free = costs.iter().all(|(_, cost)| **cost == Cost::default());
        match self.sources.is_empty() && !free {
            true => Err("it has times and no sources: say where they are from".to_owned()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_that_is_built_in_can_be_read_and_names_its_sources() {
        for (name, text) in BUILT_IN {
            let model = Latency::parse(name, text).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(model.name, name);
            assert_eq!(model.sources.is_empty(), name == "none", "{name}");
            assert_eq!(Latency::find(name).unwrap(), model);
        }
        assert!(Latency::built_in("floppy").is_none());
    }

    /// The figures in the files' comments.
    #[test]
    fn the_times_of_a_page_are_those_of_the_sources() {
        let page = |name: &str, cost: fn(&Latency) -> Cost| {
            let model = Latency::built_in(name).unwrap();
            cost(&model).of(4096).as_secs_f64()
        };
        for (name, cost, per_second) in [
            ("emmc", (|m| m.program) as fn(&Latency) -> Cost, 13_000.0),
            ("emmc", |m| m.read, 11_000.0),
            ("nvme", |m| m.program, 60_000.0),
            ("nvme", |m| m.read, 19_000.0),
            ("sd", |m| m.program, 500.0),
            ("sd", |m| m.read, 1_500.0),
        ] {
            let got = 1.0 / page(name, cost);
            assert!((got / per_second - 1.0).abs() < 0.01, "{name}: {got}");
        }
        assert!(page("emmc", |m| m.flush) >= 0.001);
        let saved = page("emmc", |m| m.program) + page("emmc", |m| m.flush)
            - page("emmc", |m| m.fua.unwrap());
        assert!((saved - 0.00012).abs() < 0.00001, "{saved}");
        assert_eq!(page("sd", |m| m.flush), 0.0);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        for (text, said) in [
            ("", "description"),
            ("description = 'a'", "channels"),
            ("description = 'a'\nchannels = 0", "channels = 0 is not"),
            ("description = 'a'\nchannels = 65", "channels = 65 is not"),
            ("description = 'a'\nchannels = 1\n[flash]", "flash"),
            (
                "description = 'a'\nchannels = 1\n[flush]\nus = 5",
                "no sources",
            ),
            ("description = 'a'\nchannels = 1\n[flush]\nms = 5", "ms"),
            (
                "description = 'a'\nchannels = 1\n[read]\nus = -1",
                "read: us = -1",
            ),
            (
                "description = 'a'\nchannels = 1\n[read]\nus = nan",
                "read: us = NaN",
            ),
            (
                "description = 'a'\nchannels = 1\n[fua]\nus = 2e7",
                "fua: us",
            ),
            (
                "description = 'a'\nchannels = 1\n[program]\nus = 0\nmb_per_s = 0",
                "program: mb_per_s = 0",
            ),
        ] {
            let error = Latency::parse("x", text).unwrap_err();
            assert!(error.contains(said), "{text:?}: {error}");
        }
        let error = Latency::find("no/such/file").unwrap_err().to_string();
        assert!(error.contains("none, nvme, emmc, sd"), "{error}");
    }

    #[test]
    fn a_file_is_called_what_it_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slow.toml");
        std::fs::write(
            &path,
            "description = 'a'\nsources = ['b']\nchannels = 2\n[flush]\nus = 5",
        )
        .unwrap();
        let model = Latency::find(path.to_str().unwrap()).unwrap();
        assert_eq!((model.name.as_str(), model.channels), ("slow", 2));
        assert_eq!(model.flush.of(1 << 30), Duration::from_micros(5));
        std::fs::write(&path, vec![b'#'; 1 << 20]).unwrap();
        assert!(Latency::find(path.to_str().unwrap()).is_err());
    }
}
