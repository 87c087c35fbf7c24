//! The power cuts of a run. The work between the moment of a cut and the death of the workers is
//! void. The file `cuts` next to the histories has both times, in nanoseconds, a line for each cut.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

const FILE: &str = "cuts";

/// The times without power, oldest first.
#[derive(Debug, Default)]
pub struct Cuts(Vec<(u64, u64)>);

impl Cuts {
    /// Those noted in a directory of histories.
    pub fn read(directory: &Path) -> Result<Self, String> {
        let text = match std::fs::read_to_string(directory.join(FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{FILE}: {error}")),
        };
        let times = text.lines().filter_map(|line| {
            let (from, to) = line.split_once(' ')?;
            Some((from.parse().ok()?, to.parse().ok()?))
        });
        Ok(Self(times.collect()))
    }

    /// Notes one more.
    pub fn add(directory: &Path, from: u64, to: u64) -> Result<(), String> {
        let file = File::options()
            .append(true)
            .create(true)
            .open(directory.join(FILE));
        file.and_then(|mut file| file.write_all(format!("{from} {to}\n").as_bytes()))
            .map_err(|error| format!("{FILE}: {error}"))
    }

    /// Whether an answer at this time came after the power was gone.
    pub fn void(&self, time: u64) -> bool {
        self.0
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&time))
    }
}
