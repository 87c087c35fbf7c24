//! fio's iolog (`write_iolog`), versions 2 and 3.
//!
//! ```text
//! version 2   name action [offset length]; `wait` has microseconds in place of the offset
//! version 3   microseconds name action [offset length]
//! ```
//!
//! All names are one address space here: a device has only one.

use super::{Kind, Line, Request, number};

/// The version in a first line.
pub(super) fn version(line: &str) -> Option<Version> {
    match line {
        "fio version 2 iolog" => Some(Version::Two),
        "fio version 3 iolog" => Some(Version::Three),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Two,
    Three,
}

#[derive(Debug, Default)]
pub struct Reader {
    /// `None` before the first line.
    version: Option<Version>,
    /// The waits of version 2 so far, in microseconds.
    waited_us: u64,
}

impl Reader {
    pub(super) fn line(&mut self, line: &str) -> Result<Line, String> {
        let Some(version) = self.version else {
            let version = version(line)
                .ok_or_else(|| format!("{line:?} is not \"fio version 2 iolog\" or 3"))?;
            self.version = Some(version);
            return Ok(Line::Other);
        };
        let mut fields: Vec<&str> = line.split_whitespace().collect();
        let mut us = self.waited_us;
        if version == Version::Three {
            us = number("time", fields.remove(0))?;
        }
        let [name, action, numbers @ ..] = &fields[..] else {
            return Err("it has no name and action".to_owned());
        };
        let kind = match *action {
            "add" | "open" | "close" => return Ok(Line::Other),
            "wait" if version == Version::Two => {
                let us: u64 = number("time", numbers.first().unwrap_or(&""))?;
                self.waited_us = self.waited_us.saturating_add(us);
                return Ok(Line::Other);
            }
            "read" => Kind::Read,
            "write" => Kind::Write,
            "trim" => Kind::Trim,
            "sync" | "datasync" => Kind::Flush,
            _ => return Err(format!("there is no action {action:?}")),
        };
        let (offset, bytes) = match (kind, numbers) {
            (Kind::Flush, _) => (0, 0),
            (_, [offset, length]) => (number("offset", offset)?, number("length", length)?),
            _ => return Err(format!("{action} has an offset and length")),
        };
        let at = i128::from(us) * 1000;
        Ok(Line::Request(Request::new(at, name, kind, offset, bytes)))
    }
}
