//! Progress on standard error, while the work goes on and only on a terminal. It shows the present
//! step, how much of it is done, and about how long everything will take.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use onewrite_workload::team::Control;

/// The time between two looks at the number of transactions.
const INTERVAL: Duration = Duration::from_millis(100);

/// A line that shows the progress. Dropping it removes the line.
pub struct Progress {
    bar: ProgressBar,
    runs: RefCell<Option<Runs>>,
}

/// The progress of the runs, all of which do the same work.
#[derive(Clone, Debug)]
struct Runs {
    /// The number of runs.
    all: u32,
    /// The present run, from 1.
    number: u32,
    /// When the first run began.
    begun: Instant,
    /// When this run began.
    this: Instant,
}

impl Default for Progress {
    /// A line on standard error; invisible if that is not a terminal.
    fn default() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style("{spinner} {prefix}{msg} {elapsed}"));
        if !bar.is_hidden() {
            bar.enable_steady_tick(INTERVAL);
        }
        Self {
            bar,
            runs: RefCell::new(None),
        }
    }
}

impl Progress {
    /// Expects `all` runs, each of which [`Self::next_run`] announces.
    pub fn expect(&self, all: u32) {
        let now = Instant::now();
        *self.runs.borrow_mut() = Some(Runs {
            all,
            number: 0,
            begun: now,
            this: now,
        });
    }

    /// Expects `all` runs together with those that are done.
    pub fn expect_in_all(&self, all: u32) {
        if let Some(runs) = self.runs.borrow_mut().as_mut() {
            runs.all = all;
        }
    }

    /// The next run begins.
    pub fn next_run(&self) {
        if let Some(runs) = self.runs.borrow_mut().as_mut() {
            runs.number += 1;
            runs.this = Instant::now();
        }
    }

    /// Shows the present step.
    pub fn say(&self, message: &str) {
        self.bar
            .set_style(style("{spinner} {prefix}{msg} {elapsed}"));
        self.bar.unset_length();
        if let Some(runs) = &*self.runs.borrow() {
            self.bar.set_prefix(runs.text(0.0));
        }
        self.bar.set_message(message.to_owned());
    }

    /// Shows how much of the step is done.
    pub fn amount(&self, message: &str, done: u64, all: u64) {
        if self.bar.length() != Some(all) {
            self.bar
                .set_style(style("{spinner} {msg} {bar:20} {percent}%, {eta} left"));
            self.bar.set_length(all);
            self.bar.set_message(message.to_owned());
        }
        self.bar.set_position(done);
    }

    /// Prints a line above, on standard error, also where that is no terminal.
    pub fn tell(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Shows how many of `total` transactions, or statements, are done while `work` runs.
    pub fn during<T>(&self, total: u64, control: &Control, work: impl FnOnce() -> T) -> T {
        if self.bar.is_hidden() {
            return work();
        }
        self.bar.set_style(style(
            "{spinner} {prefix}{msg} {bar:20} {pos}/{len} {per_sec}, {eta} left",
        ));
        self.bar.set_length(total);
        self.bar.set_position(0);
        self.bar.reset_eta();
        let runs = self.runs.borrow().clone();
        let (bar, over) = (&self.bar, AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let done = control.done.load(Ordering::Relaxed);
                    if let Some(runs) = &runs {
                        bar.set_prefix(runs.text(done as f64 / total.max(1) as f64));
                    }
                    bar.set_position(done);
                    thread::sleep(INTERVAL);
                }
            });
            let result = work();
            over.store(true, Ordering::Relaxed);
            result
        })
    }
}

impl Runs {
    /// The number of this run, and about how long the rest may take; `done` is the finished share
    /// of this run.
    fn text(&self, done: f64) -> String {
        if self.all < 2 || self.number == 0 {
            return String::new();
        }
        let before = self.this.duration_since(self.begun);
        let left = left(self.all, self.number, before, self.this.elapsed(), done);
        let left = left.map_or_else(String::new, |left| {
            format!(", in all about {} left", HumanDuration(left))
        });
        format!("[{} of {}{left}] ", self.number, self.all)
    }
}

/// The approximate time left of `all` runs that do the same work under other modes. This is the
/// `number`th run. The earlier ones took `before` together, and a share `done` of this one took
/// `this`. `None` while nothing is known.
fn left(all: u32, number: u32, before: Duration, this: Duration, done: f64) -> Option<Duration> {
    let finished = number.saturating_sub(1);
    let mean = (finished > 0).then(|| before / finished);
    // A hundredth is enough to know its rate.
    let whole = (done >= 0.01).then(|| this.div_f64(done.min(1.0)));
    let this_whole = whole.or(mean)?;
    let known = before + this_whole;
    let others = known / number.max(1) * all.saturating_sub(number);
    Some(this_whole.saturating_sub(this) + others)
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn runs_that_are_added_leave_the_count_as_it_was() {
        let progress = Progress::default();
        progress.expect(2);
        progress.next_run();
        progress.next_run();
        progress.expect_in_all(3);
        progress.next_run();
        let runs = progress.runs.borrow().clone().expect("runs");
        assert_eq!((runs.number, runs.all), (3, 3));
        assert!(runs.text(0.5).starts_with("[3 of 3"), "{}", runs.text(0.5));
    }

    #[test]
    fn what_is_left_follows_from_what_has_been_done() {
        // Nothing is known yet.
        assert_eq!(left(4, 1, seconds(0), seconds(3), 0.0), None);
        // Half of the first of four in 3 s: 3 s of it, and three of 6 s.
        assert_eq!(left(4, 1, seconds(0), seconds(3), 0.5), Some(seconds(21)));
        // Two took 20 s, and nothing is known of the third: as long as they did.
        assert_eq!(left(4, 3, seconds(20), seconds(0), 0.0), Some(seconds(20)));
        // The last, a quarter of it in 5 s.
        assert_eq!(left(3, 3, seconds(20), seconds(5), 0.25), Some(seconds(15)));
        assert_eq!(left(3, 3, seconds(20), seconds(5), 1.0), Some(seconds(0)));
    }
}
