//! The text of blktrace's blkparse, in its default format.
//!
//! ```text
//! major,minor cpu sequence seconds pid action RWBS [sector + sectors] [process]
//! ```
//!
//! One action of a request is played, by default D: what the device got, after the scheduler merged
//! requests. The statistics after the last event are no requests.

use super::{Asked, Kind, Line, SECTOR_BYTES, number};

/// The action of a request that counts.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Q: queued
    #[value(name = "Q", alias = "q")]
    Queue,
    /// D: sent to the device
    #[value(name = "D", alias = "d")]
    Issue,
    /// C: completed
    #[value(name = "C", alias = "c")]
    Complete,
}

impl Action {
    fn letter(self) -> &'static str {
        match self {
            Self::Queue => "Q",
            Self::Issue => "D",
            Self::Complete => "C",
        }
    }

    /// `__BLK_TA_...` of `include/uapi/linux/blktrace_api.h`.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Queue => 1,
            Self::Issue => 7,
            Self::Complete => 8,
        }
    }
}

/// blkparse's other actions: merges, plugs, remaps, splits, messages and so on.
const ACTIONS: &str = "Q G I D C M F A B X P U UT T R S m";

#[derive(Debug)]
pub struct Reader {
    action: Action,
    is_summary: bool,
}

/// Whether this may be a trace's first line.
pub(super) fn is_first(line: &str) -> bool {
    line.starts_with("Input file ") || line.split_whitespace().next().is_some_and(is_device)
}

fn is_device(field: &str) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    let parts = field.split_once(',');
    parts.is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

impl Reader {
    pub(super) fn new(action: Action) -> Self {
        Self {
            action,
            is_summary: false,
        }
    }

    pub(super) fn line(&mut self, line: &str) -> Result<Line, String> {
        let begins = |with: &str| line.starts_with(with) && line.ends_with("):");
        self.is_summary |= begins("CPU") || begins("Total (");
        if self.is_summary || line.starts_with("Input file ") {
            return Ok(Line::Other);
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [device, _, _, seconds, _, action, rest @ ..] = &fields[..] else {
            return Err("it has too few fields for a line of blkparse".to_owned());
        };
        if !is_device(device) {
            return Err(format!("{device:?} is not the number of a device"));
        }
        if !ACTIONS.split(' ').any(|known| known == *action) {
            return Err(format!("there is no action {action:?}"));
        }
        if *action != self.action.letter() {
            return Ok(Line::Other);
        }
        let at_ns = nanoseconds(seconds)?;
        let [rwbs, place @ ..] = rest else {
            return Err("it has no RWBS".to_owned());
        };
        // A command for the device itself shows its bytes.
        if place.get(1).is_some_and(|field| field.starts_with('(')) {
            return Ok(Line::Other);
        }
        let asked = asked(rwbs)?;
        let (offset, bytes) = match place {
            [sector, "+", sectors, ..] => (bytes_of(sector)?, bytes_of(sectors)?),
            _ => (0, 0),
        };
        Ok(asked.line(at_ns, device, offset, bytes))
    }
}

/// Seconds with nine digits of fraction, exactly.
fn nanoseconds(text: &str) -> Result<i128, String> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let seconds: u32 = number("time", seconds).map_err(|_| format!("time {text:?}"))?;
    let digits: u64 = number("time", fraction)?;
    let digits_ns = match 9_usize.checked_sub(fraction.len()) {
        Some(missing) => digits * 10_u64.pow(missing as u32),
        None => return Err(format!("time {text:?} is finer than nanoseconds")),
    };
    Ok(i128::from(seconds) * 1_000_000_000 + i128::from(digits_ns))
}

fn bytes_of(sectors: &str) -> Result<u64, String> {
    let count: u64 = number("sector", sectors)?;
    let bytes = count.checked_mul(SECTOR_BYTES);
    bytes.ok_or_else(|| format!("sector {count} is beyond any device"))
}

/// The letters are of `blk_fill_rwbs` (kernel/trace/blktrace.c): F for a flush before, the
/// operation, F for FUA, and flags.
fn asked(rwbs: &str) -> Result<Asked, String> {
    let unknown = || format!("there is no RWBS {rwbs:?}");
    let (flush_before, after) = match rwbs.strip_prefix('F') {
        Some(rest) => (true, rest),
        None => (false, rwbs),
    };
    let operations = [
        ("WZ", Some(Kind::Trim)),
        ("DE", Some(Kind::Trim)),
        ("W", Some(Kind::Write)),
        ("R", Some(Kind::Read)),
        ("D", Some(Kind::Trim)),
        ("F", Some(Kind::Flush)),
        ("N", None),
    ];
    let found = operations.iter().find_map(|(letters, kind)| {
        let flags = after.strip_prefix(letters)?;
        Some((*kind, flags))
    });
    let (kind, flags) = match found {
        Some(found) => found,
        // An empty flush has no operation in old kernels.
        None if flush_before => (None, after),
        None => return Err(unknown()),
    };
    if !flags.chars().all(|flag| "FASM".contains(flag)) {
        return Err(unknown());
    }
    Ok(Asked {
        kind,
        flush_before,
        fua: flags.contains('F'),
    })
}
