//! The findings of a check of a history.

use std::collections::BTreeMap;

use serde::Serialize;

/// Findings of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    pub count: u64,
    /// One of them: for a cycle the shortest, a dependency a line.
    pub example: Vec<String>,
}

/// See the module.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub version: u32,
    /// The consistency model that was checked.
    pub model: &'static str,
    pub transactions: u64,
    pub ok: u64,
    pub fail: u64,
    pub info: u64,
    /// Lines that a kill has cut.
    pub torn_lines: u64,
    pub keys: u64,
    pub dependencies: u64,
    pub anomalies: BTreeMap<String, Anomaly>,
}

impl Report {
    pub fn note(&mut self, name: &str, example: impl FnOnce() -> Vec<String>) {
        self.note_many(name, 1, example);
    }

    pub fn note_many(&mut self, name: &str, count: u64, example: impl FnOnce() -> Vec<String>) {
        let anomaly = self.anomalies.entry(name.to_owned()).or_default();
        if anomaly.count == 0 {
            anomaly.example = example();
        }
        anomaly.count += count;
    }

    pub fn is_right(&self) -> bool {
        self.anomalies.is_empty()
    }

    /// The names with their numbers.
    pub fn summary(&self) -> String {
        let anomalies = self.anomalies.iter();
        let parts: Vec<_> = anomalies
            .map(|(name, anomaly)| format!("{name} ({})", anomaly.count))
            .collect();
        parts.join(", ")
    }
}
