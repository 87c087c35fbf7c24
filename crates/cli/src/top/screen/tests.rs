//! The screen on a terminal in memory.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};

use super::state::{Next, Order, State};
use super::*;
use crate::top::estimate::{Estimate, Facts};
use crate::top::report::Report;

fn state() -> State {
    State::of(Report::example())
}

/// The lines of the screen.
fn drawn(state: &mut State, width: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, 24)).unwrap();
    terminal.draw(|frame| draw::all(frame, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    let lines = cells.chunks(usize::from(width));
    lines.map(|line| line.concat()).collect()
}

fn press(state: &mut State, keys: &[KeyCode]) -> Next {
    let pressed = keys.iter().map(|key| state.press(KeyEvent::from(*key)));
    pressed.last().unwrap()
}

/// Where a text ends in a line, in characters.
fn end_of(line: &str, text: &str) -> Option<usize> {
    let at = line.find(text)?;
    Some(line[..at].chars().count() + text.chars().count())
}

#[test]
fn each_figure_ends_below_its_head_at_every_width() {
    for width in [60, 80, 100, 120, 160, 220] {
        let lines = drawn(&mut state(), width);
        let find = |text: &str| lines.iter().find(|line| line.contains(text)).unwrap();
        let (head, first, second) = (find("program"), find("app-one"), find("app-two"));
        for (name, one, other) in [("commit/s", "123", "7.5"), ("B/day", "10.0 GiB", "1.0 GiB")] {
            let end = end_of(head, name);
            assert_eq!(end_of(first, one), end, "{width}\n{head}\n{first}");
            assert_eq!(end_of(second, other), end, "{width}\n{head}\n{second}");
        }
        assert!(first.contains("one.db"), "{width}\n{first}");
    }
}

#[test]
fn the_order_and_the_filter_choose_the_lines() {
    let mut state = state();
    let names = |state: &State| -> Vec<String> {
        let lines = state.lines();
        lines.iter().map(|line| line.program.name.clone()).collect()
    };
    assert_eq!(names(&state), ["app-one", "app-two"]);
    // By the longest flush the second one is first.
    press(&mut state, &[KeyCode::Char('s'), KeyCode::Char('s')]);
    assert_eq!(state.order, Order::Flush);
    assert_eq!(names(&state), ["app-two", "app-one"]);
    press(
        &mut state,
        &[KeyCode::Char('/'), KeyCode::Char('O'), KeyCode::Char('N')],
    );
    assert_eq!(names(&state), ["app-one"]);
    let next = press(&mut state, &[KeyCode::Esc, KeyCode::Down, KeyCode::Down]);
    assert_eq!(
        (names(&state).len(), state.chosen, next),
        (2, 1, Next::Draw)
    );
    assert_eq!(press(&mut state, &[KeyCode::Char('q')]), Next::Quit);
}

#[test]
fn everything_is_recorded_and_the_answer_stays_until_the_next_key() {
    let mut state = state();
    assert_eq!(press(&mut state, &[KeyCode::Char('r')]), Next::Record);
    let engine = Engine::start(None).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let answer = record(&engine, &state, directory.path());
    let path = answer.strip_prefix("recorded in ").unwrap();
    let page = std::fs::read_to_string(path).unwrap();
    assert!(page.contains("SQLite on this machine"), "{page}");
    state.answer = Some("recorded in a file".to_owned());
    assert!(
        drawn(&mut state, 80)
            .join("\n")
            .contains("recorded in a file")
    );
    press(&mut state, &[KeyCode::Up]);
    assert_eq!(state.answer, None);
    let missing = directory.path().join("missing");
    let refused = record(&engine, &state, &missing);
    assert!(refused.contains("missing"), "{refused}");
}

#[test]
fn the_first_line_has_the_years() {
    let text = drawn(&mut state(), 120).join("\n");
    assert!(text.contains("11.0 GiB a day, ~92 years"), "{text}");
}

/// On the usual terminal nothing of these may be cut off.
#[test]
fn lost_events_notes_and_the_estimate_are_whole_at_80_columns() {
    let mut state = state();
    state.report.lost_events = 12_345;
    let note = "no trace, so commits alone: the kernel has no tracefs here; a container needs the \
                host's /sys/kernel/tracing and --pid=host";
    state.report.notes.push(note.to_owned());
    state.report.databases[0].estimate = Some(Estimate::of(&Facts {
        pages: 1.0,
        page_size: 4096.0,
        database_bytes: 0.0,
        commits_per_s: 10.0,
        has_fua: false,
    }));
    let lines = drawn(&mut state, 80);
    let words = lines.join(" ");
    let words: Vec<&str> = words.split_whitespace().collect();
    let text = words.join(" ");
    for part in [
        "the kernel lost 12345 events: bytes and flushes are too low",
        note,
        "onewrite 4.0 KiB, 1.00; direct 8.0 KiB, 1.00",
        "Up Down choose",
        "app-two",
    ] {
        assert!(text.contains(part), "{part}\n{}", lines.join("\n"));
    }
}

#[test]
fn one_database_is_shown_with_its_plot() {
    let mut state = state();
    let rates = [1.0, 50.0, 123.0];
    let history = state
        .history
        .rates
        .entry("/var/one.db".to_owned())
        .or_default();
    history.commits.extend(rates);
    history.bytes.extend(rates);
    press(&mut state, &[KeyCode::Enter]);
    let text = drawn(&mut state, 80).join("\n");
    for part in [
        "/var/one.db",
        "commits a second",
        "bytes a second",
        "-2 s",
        "Esc back",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert_eq!(press(&mut state, &[KeyCode::Esc]), Next::Draw);
    assert_eq!(state.alone, None);
}
