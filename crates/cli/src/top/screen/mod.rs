//! The live screen of `onewrite top`: a table of programs and databases, and one database over time.
//!
//! `state` holds the choices and the figures; `draw` puts it on the terminal. The figures
//! are those of the last few seconds. The terminal is restored however the screen ends.

mod draw;
mod state;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::engine::{Engine, TICK};
use crate::interrupt;
use state::{Next, State};

/// Shows the screen until the user quits or the time is over.
pub fn show(engine: &mut Engine, time: Option<Duration>) -> Result<(), String> {
    let mut terminal = ratatui::try_init()
        .map_err(|error| format!("no screen: {error}; --once prints a table"))?;
    let shown = run(&mut terminal, engine, time);
    ratatui::restore();
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
        if wait(engine, &mut state)? == Next::Quit {
            return Ok(());
        }
        let is_over = time.is_some_and(|time| begin.elapsed() >= time);
        if is_over || interrupt::is_requested() {
            return Ok(());
        }
    }
}

/// Waits for a key, or for new figures.
fn wait(engine: &mut Engine, state: &mut State) -> Result<Next, String> {
    let failed = |error: std::io::Error| format!("cannot read the keyboard: {error}");
    loop {
        if event::poll(TICK).map_err(failed)? {
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
