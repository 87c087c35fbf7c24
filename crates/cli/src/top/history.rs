//! The rates of each database over time, a second apart: for the plots of the screen and of the page.

use std::collections::{HashMap, VecDeque};

use super::engine::{Engine, Snapshot};
use super::report::{Figures, Report};

/// Points that are kept: an hour.
const MOST: usize = 3600;

/// The rates of a database.
#[derive(Clone, Default)]
pub struct Rates {
    /// Commits a second.
    pub commits: VecDeque<f64>,
    /// Bytes a second.
    pub bytes: VecDeque<f64>,
}

impl Rates {
    fn add(&mut self, figures: Option<&Figures>) {
        let commits = figures.map_or(0.0, |figures| figures.commits_per_s);
        let bytes = figures.and_then(|figures| figures.bytes_per_s);
        for (list, rate) in [
            (&mut self.commits, commits),
            (&mut self.bytes, bytes.unwrap_or(0.0)),
        ] {
            list.push_back(rate);
            if list.len() > MOST {
                list.pop_front();
            }
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct History {
    /// By the path of the database.
    pub rates: HashMap<String, Rates>,
    last: Option<Snapshot>,
}

impl History {
    /// Adds the rates since the last call, and returns the counts that end them.
    pub fn add(&mut self, engine: &Engine) -> Snapshot {
        let now = engine.snapshot();
        if let Some(last) = self.last.replace(now.clone()) {
            self.remember(&Report::between(engine, &last, &now));
        }
        now
    }

    fn remember(&mut self, report: &Report) {
        for database in &report.databases {
            self.rates.entry(database.path.clone()).or_default();
        }
        for (path, rates) in &mut self.rates {
            let mut databases = report.databases.iter();
            let database = databases.find(|database| database.path == *path);
            rates.add(database.map(|database| &database.figures));
        }
    }
}
