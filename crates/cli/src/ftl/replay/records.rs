//! Plays blktrace's own files: the records of all processors, in the order of their times.

use std::collections::BTreeMap;
use std::io::BufRead;

use super::Args;
use super::formats::blktrace::{Problem, Records};
use super::formats::{Line, Request};
use super::inputs::Input;
use super::play::Player;
use super::report::Lines;

/// Requests of a file that are read ahead. A file of one processor is in order. `blktrace -o -` writes
/// those of all processors into one stream, some hundreds of kilobytes of each at a time.
const AHEAD: usize = 8192;

/// A file, and its next requests by time and offset.
struct Source {
    name: String,
    records: Records<Box<dyn BufRead>>,
    ahead: BTreeMap<(i128, u64), Request>,
    has_ended: bool,
}

/// Plays the records of these files.
///
/// # Errors
/// If a file cannot be read or is cut off, a record is unknown, or the device fails.
pub fn play(
    inputs: Vec<Input>,
    args: &Args,
    player: &mut Player,
    lines: &mut Lines,
) -> Result<(), String> {
    let mut sources: Vec<Source> = inputs.into_iter().map(Source::new).collect();
    loop {
        for source in &mut sources {
            source.fill(args, lines)?;
        }
        let next = sources.iter_mut().filter_map(|source| {
            let ((at_ns, _), _) = source.ahead.first_key_value()?;
            Some((*at_ns, source))
        });
        let Some((_, source)) = next.min_by_key(|(at_ns, _)| *at_ns) else {
            return Ok(());
        };
        if let Some(((_, offset), request)) = source.ahead.pop_first()
            && lines.wants(&request.of, args.only.as_deref())
        {
            let played = player.play(&request);
            played.map_err(|error| at(&source.name, offset, &error))?;
        }
    }
}

fn at(name: &str, offset: u64, error: &dyn std::fmt::Display) -> String {
    format!("{name}, byte {offset}: {error}")
}

impl Source {
    fn new(input: Input) -> Self {
        Self {
            name: input.name,
            records: Records::new(input.reader),
            ahead: BTreeMap::new(),
            has_ended: false,
        }
    }

    /// Reads ahead.
    fn fill(&mut self, args: &Args, lines: &mut Lines) -> Result<(), String> {
        while !self.has_ended && self.ahead.len() < AHEAD {
            let read = self.records.read();
            let offset = self.records.offset();
            let error = match read {
                Ok(None) => {
                    self.has_ended = true;
                    continue;
                }
                Ok(Some(record)) => {
                    lines.lines += 1;
                    match record.line(args.action) {
                        Ok(Line::Other) => {
                            lines.others += 1;
                            continue;
                        }
                        Ok(Line::Request(request)) => {
                            self.ahead.insert((request.at_ns, offset), request);
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                Err(Problem::CutOff(error)) => {
                    lines.lines += 1;
                    self.has_ended = true;
                    error
                }
                // The records after it cannot be found.
                Err(Problem::Unreadable(error)) => return Err(at(&self.name, offset, &error)),
            };
            lines.unknown(args.lenient, at(&self.name, offset, &error))?;
        }
        Ok(())
    }
}
