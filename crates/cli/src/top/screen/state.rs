//! The choices of the user, and the figures of the last seconds.

use std::collections::VecDeque;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::top::engine::{Engine, Snapshot};
use crate::top::history::History;
use crate::top::report::{OfDatabase, OfProgram, Report};

/// Looks whose difference is shown: five seconds.
const WINDOW: usize = 6;

/// The consequence of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The screen is drawn again.
    Draw,
    /// What was seen is written to a page.
    Record,
    /// The screen ends.
    Quit,
}

/// The order of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Most bytes first.
    Bytes,
    /// Most commits first.
    Commits,
    /// Longest flushes first.
    Flush,
    /// By the name of the program.
    Program,
    /// By the path of the database.
    Database,
}

impl Order {
    const ALL: [Self; 5] = [
        Self::Bytes,
        Self::Commits,
        Self::Flush,
        Self::Program,
        Self::Database,
    ];

    /// Its name on the screen.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Commits => "commits",
            Self::Flush => "flush p99",
            Self::Program => "program",
            Self::Database => "database",
        }
    }

    fn next(self) -> Self {
        let place = Self::ALL.iter().position(|order| *order == self);
        let next = place.map_or(0, |place| (place + 1) % Self::ALL.len());
        Self::ALL.get(next).copied().unwrap_or(Self::Bytes)
    }

    fn sort(self, lines: &mut [Line<'_>]) {
        let figures = |line: &Line<'_>| line.program.figures.clone();
        match self {
            Self::Bytes => lines.sort_by_key(|line| std::cmp::Reverse(figures(line).bytes)),
            Self::Commits => lines.sort_by_key(|line| std::cmp::Reverse(figures(line).commits)),
            Self::Flush => lines.sort_by_key(|line| {
                let times = figures(line).flush_us;
                std::cmp::Reverse(times.map(|times| times.p99))
            }),
            Self::Program => lines.sort_by(|a, b| a.program.name.cmp(&b.program.name)),
            Self::Database => lines.sort_by(|a, b| a.database.path.cmp(&b.database.path)),
        }
    }
}

/// A line of the table.
pub struct Line<'a> {
    /// The database.
    pub database: &'a OfDatabase,
    /// The program's part.
    pub program: &'a OfProgram,
}

/// See the module.
pub struct State {
    looks: VecDeque<Snapshot>,
    /// The figures of the window.
    pub report: Report,
    /// The rates of each database.
    pub history: History,
    /// The order of the lines.
    pub order: Order,
    /// Lines without this text are hidden.
    pub filter: String,
    /// Whether keys go to the filter.
    pub is_typing: bool,
    /// The chosen line.
    pub chosen: usize,
    /// The path of the database that is shown alone.
    pub alone: Option<String>,
    /// The answer to the last key.
    pub answer: Option<String>,
}

impl State {
    /// Nothing was seen yet.
    pub fn new(engine: &Engine) -> Self {
        let look = engine.snapshot();
        let report = Report::between(engine, &look, &look);
        Self::with(report, VecDeque::from([look]))
    }

    fn with(report: Report, looks: VecDeque<Snapshot>) -> Self {
        Self {
            looks,
            report,
            history: History::default(),
            order: Order::Bytes,
            filter: String::new(),
            is_typing: false,
            chosen: 0,
            alone: None,
            answer: None,
        }
    }

    /// One that shows a report, for tests.
    #[cfg(test)]
    pub fn of(report: Report) -> Self {
        Self::with(report, VecDeque::new())
    }

    /// New figures.
    pub fn update(&mut self, engine: &Engine) {
        self.looks.push_back(self.history.add(engine));
        if self.looks.len() > WINDOW {
            self.looks.pop_front();
        }
        if let (Some(from), Some(to)) = (self.looks.front(), self.looks.back()) {
            self.report = Report::between(engine, from, to);
        }
    }

    /// The lines that pass the filter, in their order.
    pub fn lines(&self) -> Vec<Line<'_>> {
        let of = |database| {
            let line = move |program| Line { database, program };
            let OfDatabase { programs, .. } = database;
            programs.iter().map(line)
        };
        let lines = self.report.databases.iter().flat_map(of);
        let mut lines: Vec<Line<'_>> = lines.filter(|line| self.passes(line)).collect();
        self.order.sort(&mut lines);
        lines
    }

    fn passes(&self, line: &Line<'_>) -> bool {
        let wanted = self.filter.to_lowercase();
        let texts = [
            &line.program.name,
            &line.database.path,
            &line.database.journal_mode,
        ];
        texts
            .iter()
            .any(|text| text.to_lowercase().contains(&wanted))
    }

    /// Obeys a key.
    pub fn press(&mut self, key: KeyEvent) -> Next {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Next::Quit;
        }
        self.answer = None;
        if self.is_typing {
            self.type_filter(key.code);
            return Next::Draw;
        }
        match key.code {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Esc if self.alone.is_none() => return Next::Quit,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.alone = None,
            KeyCode::Char('r') => return Next::Record,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Up | KeyCode::Char('k') => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.chosen += 1,
            KeyCode::Enter | KeyCode::Right => {
                let lines = self.lines();
                let line = lines.get(self.chosen);
                self.alone = line.map(|line| line.database.path.clone());
            }
            _ => {}
        }
        let last = self.lines().len().saturating_sub(1);
        self.chosen = self.chosen.min(last);
        Next::Draw
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(letter) => self.filter.push(letter),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            KeyCode::Enter => self.is_typing = false,
            _ => {}
        }
        self.chosen = 0;
    }
}
