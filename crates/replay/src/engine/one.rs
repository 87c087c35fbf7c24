//! Plays a trace on one thread, in the order in which calls returned when it was recorded.
//!
//! A statement may find the database locked where it was not locked when recorded. For example, a
//! thread's COMMIT is recorded a moment after another's BEGIN went through, or a reader blocks a
//! writer in a rollback journal. Then its connection waits. The events of other connections go on,
//! and its own keep their order.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;

use onewrite_record::event::{Event, Outcome, ROW};

use super::{Job, Key, MOST_WAITING, Next, Owners, Pace, Played, Player, Step, count, time_of};
use crate::results::Comparison;

struct OneThread<'a> {
    player: Player<'a>,
    owners: Owners,
    waiting: HashMap<Key, VecDeque<Job>>,
    waiting_count: usize,
    process: u64,
    ordinal: u64,
    pace: Pace,
}

/// Plays all events.
///
/// # Errors
/// A database cannot enter the mode, or the machine refuses something.
pub(super) fn play<'a>(
    player: Player<'a>,
    next: Next<'_>,
) -> Result<(Played, Comparison<'a>), String> {
    let mut all = OneThread {
        player,
        owners: Owners::default(),
        waiting: HashMap::new(),
        waiting_count: 0,
        process: 0,
        ordinal: 0,
        pace: Pace::default(),
    };
    while let Some(event) = next()? {
        if all.player.options.stop.load(Ordering::Relaxed) {
            return Err("stopped".to_owned());
        }
        all.play(event)?;
        if all.player.played.stuck.is_some() {
            break;
        }
    }
    all.finish()
}

impl<'a> OneThread<'a> {
    /// Plays the next event.
    fn play(&mut self, event: Event) -> Result<(), String> {
        self.ordinal += 1;
        count(&self.player.options);
        match event {
            Event::Process { number, .. } | Event::From(number) => {
                self.process = number;
                return Ok(());
            }
            Event::Database { path, .. } => return self.player.files.begins(&path),
            _ => {}
        }
        if let Some(at) = time_of(&event) {
            let options = &self.player.options;
            let stop = || options.stop.load(Ordering::Relaxed);
            self.pace.wait_for(at, options.speed, &stop);
        }
        self.submit(Job::new(self.ordinal, self.process, event))
    }

    /// Plays the events that still wait, and closes every connection.
    fn finish(mut self) -> Result<(Played, Comparison<'a>), String> {
        self.retry()?;
        if self.waiting_count > 0 && self.player.played.stuck.is_none() {
            self.player.played.stuck = Some(self.describe_waiting());
        }
        self.player.played.elapsed = self.pace.elapsed();
        Ok(self.player.finish())
    }

    fn submit(&mut self, job: Job) -> Result<(), String> {
        let Some(line) = self.owners.line(job.process, &job.event) else {
            return Ok(());
        };
        if let Some(queue) = self.waiting.get_mut(&line) {
            queue.push_back(job);
            self.waiting_count += 1;
            if self.waiting_count > MOST_WAITING {
                self.player.played.stuck = Some(self.describe_waiting());
            }
            return Ok(());
        }
        let ends = may_release(&job.event);
        if let Some(job) = self.attempt(job)? {
            self.player.played.waited += 1;
            self.waiting.insert(line, VecDeque::from([job]));
            self.waiting_count += 1;
            return Ok(());
        }
        match ends && self.waiting_count > 0 {
            true => self.retry(),
            false => Ok(()),
        }
    }

    /// Plays a job. Gives it back where it found a lock.
    fn attempt(&mut self, mut job: Job) -> Result<Option<Job>, String> {
        match self.player.execute(&mut job)? {
            Step::Done => Ok(None),
            Step::Locked => Ok(Some(job)),
        }
    }

    /// Lets waiting connections try again, until none advances.
    fn retry(&mut self) -> Result<(), String> {
        loop {
            let mut moved = false;
            let mut lines: Vec<(u64, Key)> = self
                .waiting
                .iter()
                .filter_map(|(line, queue)| Some((queue.front()?.ordinal, *line)))
                .collect();
            lines.sort_unstable();
            for (_, line) in lines {
                moved |= self.retry_line(line)?;
            }
            if !moved {
                return Ok(());
            }
        }
    }

    fn retry_line(&mut self, line: Key) -> Result<bool, String> {
        let mut moved = false;
        while let Some(job) = self.waiting.get_mut(&line).and_then(VecDeque::pop_front) {
            if let Some(job) = self.attempt(job)? {
                if let Some(queue) = self.waiting.get_mut(&line) {
                    queue.push_front(job);
                }
                return Ok(moved);
            }
            self.waiting_count -= 1;
            moved = true;
        }
        self.waiting.remove(&line);
        Ok(moved)
    }

    fn describe_waiting(&self) -> String {
        let waiting = self.waiting.values().filter_map(VecDeque::front);
        let first = waiting.min_by_key(|job| job.ordinal);
        let text = first.map_or_else(String::new, |job| self.player.describe(job));
        format!(
            "{} statements wait for a lock that nothing releases in this mode; the first is: {text}",
            self.waiting_count
        )
    }
}

/// Whether a waiting connection may advance after it.
fn may_release(event: &Event) -> bool {
    let ends = |outcome: &Outcome| outcome.code != ROW && outcome.autocommit;
    match event {
        Event::Run { outcome, .. } | Event::More { outcome, .. } | Event::Exec { outcome, .. } => {
            ends(outcome)
        }
        Event::Close { .. } | Event::Finalize { .. } => true,
        _ => false,
    }
}
