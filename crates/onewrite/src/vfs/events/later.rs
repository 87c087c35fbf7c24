//! Lines for SQLite's error log that wait.
//!
//! The application's callback may need a lock that a thread which forks or closes has, such as that of
//! Python's interpreter. So nothing that such a thread waits for calls it (`docs/durability.md`, Y5): the
//! lines wait, and [`super::teller`] writes them.

use std::cell::RefCell;
use std::ffi::c_int;
use std::mem;

use crate::vfs::host::{self, Host};

/// So many lines of one thread wait. More are counted.
const MOST: usize = 64;

struct Line {
    host: Option<&'static Host>,
    code: c_int,
    text: String,
}

/// Lines of one thread, in their order.
#[derive(Default)]
pub struct Later {
    lines: Vec<Line>,
    left_out: u32,
}

std::thread_local! {
    static WAITING: RefCell<Option<Later>> = const { RefCell::new(None) };
}

/// Does some work, and returns the lines that it has for SQLite's log.
pub fn held_back<T>(work: impl FnOnce() -> T) -> (T, Later) {
    /// Even if the work panics.
    struct Outer(Option<Later>);

    impl Outer {
        fn swap(&mut self) -> Option<Later> {
            let swap = WAITING.try_with(|it| mem::replace(&mut *it.borrow_mut(), self.0.take()));
            swap.ok().flatten()
        }
    }

    impl Drop for Outer {
        fn drop(&mut self) {
            self.swap();
        }
    }

    let mut outer = Outer(Some(Later::default()));
    outer.0 = outer.swap();
    let done = work();
    let later = outer.swap().unwrap_or_default();
    mem::forget(outer);
    (done, later)
}

/// The lines that wait so far.
pub fn so_far() -> Later {
    let taken = WAITING.try_with(|it| it.borrow_mut().as_mut().map(mem::take));
    taken.ok().flatten().unwrap_or_default()
}

/// Writes a line to SQLite's log, now or later.
pub fn log_line(code: c_int, text: &str) {
    let waits = WAITING.try_with(|it| {
        let mut waiting = it.borrow_mut();
        let Some(later) = waiting.as_mut() else {
            return false;
        };
        later.add(Line {
            host: host::get(),
            code,
            text: text.to_owned(),
        });
        true
    });
    if !waits.unwrap_or(false) {
        host::log_line(code, text);
    }
}

impl Later {
    pub const fn new() -> Later {
        Later {
            lines: Vec::new(),
            left_out: 0,
        }
    }

    fn add(&mut self, line: Line) {
        match self.lines.len() < MOST {
            true => self.lines.push(line),
            false => self.left_out += 1,
        }
    }

    /// Adds those of another thread.
    pub fn append(&mut self, other: Later) {
        other.lines.into_iter().for_each(|line| self.add(line));
        self.left_out += other.left_out;
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Writes them. `wrote` is called after each.
    pub fn tell(self, wrote: impl Fn()) {
        let last = self.lines.last().map(|line| (line.host, line.code));
        for line in self.lines {
            host::within(line.host, || host::log_line(line.code, &line.text));
            wrote();
        }
        if let Some((host, code)) = last.filter(|_| self.left_out > 0) {
            let text = format!("{} more messages were left out here", self.left_out);
            host::within(host, || host::log_line(code, &text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_wait_in_their_order_and_their_number_is_bounded() {
        let ((), later) = held_back(|| {
            log_line(1, "the first one");
            let ((), inner) = held_back(|| log_line(2, "of other work"));
            assert_eq!(inner.lines.len(), 1);
            assert_eq!(so_far().lines[0].text, "the first one");
            assert!(so_far().is_empty());
            for number in 0..MOST + 3 {
                log_line(3, &number.to_string());
            }
        });
        assert_eq!((later.lines.len(), later.left_out), (MOST, 3));
        assert_eq!(later.lines[7].text, "7");
        let panicked = std::panic::catch_unwind(|| held_back(|| panic!("on purpose")));
        assert!(panicked.is_err());
        assert!(WAITING.with_borrow(Option::is_none));
    }
}
