//! The rates of each database over time, a second apart: for the plots of the screen and of the page.

use std::collections::{HashMap, VecDeque};

use super::engine::{Engine, Snapshot};
use super::report::{Figures, Report};

/// Points that are kept: an hour.
const MOST: usize = 3600;

/// Databases that are kept: a program may make, and remove, one each second.
const MOST_DATABASES: usize = 500;

/// The rates of a database.
#[derive(Clone, Default)]
pub struct Rates {
    /// Seconds since it was last written to.
    idle: usize,
    /// Commits a second.
    pub commits: VecDeque<f64>,
    /// Bytes a second.
    pub bytes: VecDeque<f64>,
}

impl Rates {
    fn add(&mut self, figures: Option<&Figures>) {
        let commits = figures.map_or(0.0, |figures| figures.commits_per_s);
        let bytes = figures.and_then(|figures| figures.bytes_per_s);
        self.idle = if figures.is_some() { 0 } else { self.idle + 1 };
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
        self.forget();
    }

    /// Forgets those that were not written to for the longest time.
    fn forget(&mut self) {
        if self.rates.len() <= MOST_DATABASES {
            return;
        }
        let mut idle: Vec<usize> = self.rates.values().map(|rates| rates.idle).collect();
        let (_, longest, _) = idle.select_nth_unstable(MOST_DATABASES);
        let longest = *longest;
        self.rates.retain(|_, rates| rates.idle < longest.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_databases_those_written_to_last_are_kept() {
        let mut history = History::default();
        let last = 3 * MOST_DATABASES;
        for second in 0..last {
            history.rates.insert(second.to_string(), Rates::default());
            history.remember(&Report::example());
        }
        assert!(history.rates.len() <= MOST_DATABASES);
        let kept = |path: &str| history.rates.get(path).map(|rates| rates.commits.len());
        assert_eq!(kept("/var/one.db"), Some(last));
        assert_eq!(kept(&(last - 1).to_string()), Some(1));
        assert_eq!(kept("0"), None);
    }
}
