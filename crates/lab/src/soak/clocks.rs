//! Wall clocks that jump: each worker's place has one, which its processes see through the library
//! `libonewrite_wallclock.so` (`crates/wallclock`). The other clocks of the run are the machine's.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use onewrite_torture::random::Random;

const DAY: u64 = 24 * 60 * 60;
/// A jump is to at most so many seconds from the right time, forward or back.
const FARTHEST: [u64; 4] = [10, 60 * 60, DAY, 40 * DAY];

/// The clock of one place.
pub struct Clock {
    path: PathBuf,
    file: File,
}

/// See the module.
pub struct Clocks {
    library: PathBuf,
    clocks: Vec<Clock>,
}

impl Clocks {
    /// Clocks that show the right time.
    pub fn new(library: &Path, count: usize, directory: &Path) -> Result<Self, String> {
        let clock = |number| {
            let path = directory.join(format!("clock-{number}"));
            let file = File::create(&path);
            let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
            let clock = Clock { path, file };
            clock.set(0)?;
            Ok(clock)
        };
        let clocks: Result<_, String> = (0..count).map(clock).collect();
        Ok(Self {
            library: library.to_owned(),
            clocks: clocks?,
        })
    }

    /// Gives a command the clock of a place.
    pub fn give(&self, number: usize, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("ONEWRITE_WALL_CLOCK", &self.clocks[number].path);
    }

    /// Lets the clock of a place jump. One jump of four is back to the right time.
    pub fn jump(&self, number: usize, random: &mut Random) -> Result<(), String> {
        let farthest = Duration::from_secs(*random.choose(&FARTHEST));
        let ahead = random.below(farthest.as_nanos() as u64).cast_signed();
        let ahead = match random.below(8) {
            0 | 1 => 0,
            2..5 => ahead,
            _ => -ahead,
        };
        self.clocks[number].set(ahead)
    }
}

impl Clock {
    /// One aligned write, which a program that reads it sees as a whole.
    fn set(&self, ahead: i64) -> Result<(), String> {
        let written = self.file.write_all_at(&ahead.to_ne_bytes(), 0);
        written.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}
