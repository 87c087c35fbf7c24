//! Progress on standard error, while the work goes on and only on a terminal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use onewrite_workload::team::Control;

/// How often the number of transactions is looked at.
const INTERVAL: Duration = Duration::from_millis(100);

/// A line that says what is going on. Dropping it takes the line away.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A line on standard error; invisible if that is not a terminal.
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style("{spinner} {msg} {elapsed}"));
        if !bar.is_hidden() {
            bar.enable_steady_tick(INTERVAL);
        }
        Self { bar }
    }

    /// Says what is being done now.
    pub fn say(&self, message: &str) {
        self.bar.set_style(style("{spinner} {msg} {elapsed}"));
        self.bar.unset_length();
        self.bar.set_message(message.to_owned());
    }

    /// Leaves a line above, on standard error, also where that is no terminal.
    pub fn tell(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Shows how many of `total` transactions are done while `work` runs.
    pub fn during<T>(&self, total: u32, control: &Control, work: impl FnOnce() -> T) -> T {
        if self.bar.is_hidden() {
            return work();
        }
        self.bar.set_style(style(
            "{spinner} {msg} {bar:30} {pos}/{len} {per_sec}, {eta} left",
        ));
        self.bar.set_length(u64::from(total));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    self.bar.set_position(control.done.load(Ordering::Relaxed));
                    thread::sleep(INTERVAL);
                }
            });
            let result = work();
            over.store(true, Ordering::Relaxed);
            result
        })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}
