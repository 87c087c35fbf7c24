//! The live screen of `onewrite top`: a table of programs and databases, and one database over time.
//!
//! `state` holds the choices and the figures; `draw` puts it on the terminal. The figures
//! are those of the last few seconds. The terminal is restored however the screen ends.

mod draw;
mod state;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::engine::Engine;
use super::page;
use super::report::Report;
use crate::interrupt;
use state::{Next, State};

/// Shows the screen until the user quits or the time is over.
pub fn show(engine: &mut Engine, time: Option<Duration>) -> Result<(), String> {
    let mut terminal = ratatui::try_init()
        .map_err(|error| format!("no screen: {error}; --once prints a table"))?;
    let shown = run(&mut terminal, engine, time);
    // The terminal may be gone. To say so, as `restore` and the end of `terminal` do, would then be a
    // panic within a panic.
    if ratatui::try_restore().is_err() {
        std::mem::forget(terminal);
    }
    shown
}

fn run(
    terminal: &mut DefaultTerminal,
    engine: &mut Engine,
    time: Option<Duration>,
) -> Result<(), String> {
    let begin = Instant::now();
    let mut state = State::new(engine);
    loop {
        let drawn = terminal.draw(|frame| draw::all(frame, &mut state));
        drawn.map_err(|error| format!("cannot draw: {error}"))?;
        match wait(engine, &mut state)? {
            Next::Quit => return Ok(()),
            Next::Record => state.answer = Some(record(engine, &state, Path::new("."))),
            Next::Draw => {}
        }
        let is_over = time.is_some_and(|time| begin.elapsed() >= time);
        if is_over || interrupt::is_requested() {
            return Ok(());
        }
    }
}

/// Waits a while for the terminal; whether it is gone. The library for keys would read its end again
/// and again, and never return.
fn is_gone(pause: Duration) -> bool {
    let output = std::io::stdout();
    let mut terminal = [PollFd::new(&output, PollFlags::IN)];
    let pause = Timespec::try_from(pause).ok();
    // A signal, as for another size, ends the wait.
    let found = rustix::event::poll(&mut terminal, pause.as_ref());
    found.is_ok()
        && terminal[0]
            .revents()
            .intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Writes everything since the beginning to a page, and says where. Its name has the second.
fn record(engine: &Engine, state: &State, directory: &Path) -> String {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let path = directory.join(format!("onewrite-top-{}.html", since.as_secs()));
    let page = page::page(&Report::of(engine), &state.history);
    match page.and_then(|page| page.write(&path)) {
        Ok(()) => format!("recorded in {}", path.display()),
        Err(error) => error,
    }
}

/// Waits for a key, or for new figures.
fn wait(engine: &mut Engine, state: &mut State) -> Result<Next, String> {
    let failed = |error: std::io::Error| format!("cannot read the keyboard: {error}");
    loop {
        if is_gone(engine.pause()) {
            return Ok(Next::Quit);
        }
        if event::poll(Duration::ZERO).map_err(failed)? {
            match event::read().map_err(failed)? {
                Event::Key(key) if key.kind == KeyEventKind::Press => return Ok(state.press(key)),
                Event::Resize(..) => return Ok(Next::Draw),
                _ => {}
            }
        }
        if engine.tick()? {
            state.update(engine);
            return Ok(Next::Draw);
        }
        if interrupt::is_requested() {
            return Ok(Next::Quit);
        }
    }
}
