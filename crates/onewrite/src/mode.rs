//! The journal modes, and the parts that a mode is made of.
//!
//! One table reads and prints each kind of word that a user can write, here or in `mode/policy.rs`.
//! The names of the settings are in `vfs/settings.rs`.

mod layout;
mod linger;
pub mod policy;
mod region;
mod stall;
mod time;
pub mod words;

use std::fmt;
use std::str::FromStr;

pub use layout::Layout;
pub use linger::Linger;
pub use policy::{
    CheckpointPolicy, Compressing, Compression, Differences, Floor, Goal, GroupSynch, InitPolicy,
    SyncPolicy,
};
pub use region::Region;
pub use stall::StallLimit;
pub use words::UnknownWord;

/// One of our journal modes. All others are SQLite's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalMode {
    /// SQLite's own log in SQLite's own `-wal` file, written with direct I/O.
    Direct,
    /// WALDIO: frames in preallocated blocks, one direct write per commit (USENIX ATC '15).
    Waldio,
    /// S-WAL: compressed pages through the page cache, one write and one flush per commit (IEEE TCE
    /// 2018).
    Swal,
    /// A commit's compressed pages in whole blocks, one direct write.
    Onewrite,
}

impl JournalMode {
    /// All of them, in the order of the documentation.
    pub const ALL: [JournalMode; 4] = [
        JournalMode::Direct,
        JournalMode::Waldio,
        JournalMode::Swal,
        JournalMode::Onewrite,
    ];

    /// The answer of `PRAGMA journal_mode`.
    pub fn name(self) -> &'static str {
        match self {
            JournalMode::Direct => "direct",
            JournalMode::Waldio => "waldio",
            JournalMode::Swal => "swal",
            JournalMode::Onewrite => "onewrite",
        }
    }

    /// The mode's number in a log's header.
    pub fn code(self) -> u32 {
        match self {
            JournalMode::Direct => 1,
            JournalMode::Waldio => 2,
            JournalMode::Swal => 3,
            JournalMode::Onewrite => 4,
        }
    }

    /// The mode with this number.
    pub fn from_code(code: u32) -> Option<JournalMode> {
        JournalMode::ALL
            .into_iter()
            .find(|mode| mode.code() == code)
    }

    /// The mode with this name; like SQLite, case-insensitively.
    pub fn from_name(name: &str) -> Option<JournalMode> {
        JournalMode::ALL
            .into_iter()
            .find(|mode| mode.name().eq_ignore_ascii_case(name))
    }

    /// The layout of a new log for this mode, if no other is requested.
    pub fn usual_layout(self) -> Layout {
        match self {
            JournalMode::Direct => Layout::Stock,
            JournalMode::Waldio => Layout::Embedded,
            JournalMode::Swal => Layout::Compressed,
            JournalMode::Onewrite => Layout::Packed,
        }
    }

    /// Whether a log of this mode may have this layout.
    pub fn may_have(self, layout: Layout) -> bool {
        match self {
            JournalMode::Waldio => {
                !matches!(layout, Layout::Stock | Layout::Compressed | Layout::Packed)
            }
            JournalMode::Onewrite => matches!(layout, Layout::Packed | Layout::Gathered),
            JournalMode::Direct | JournalMode::Swal => layout == self.usual_layout(),
        }
    }

    /// The layout of a new log for this mode, by a connection with these settings; `present` is
    /// that of the log that was there before.
    ///
    /// `auto` remaps if the log has a layout for it. It does not choose such a layout, which would
    /// cost commits a block more without a certain gain.
    pub fn layout_for(
        self,
        asked: Option<Layout>,
        checkpoint: CheckpointPolicy,
        present: Option<Layout>,
    ) -> Layout {
        let remaps = checkpoint.needs_gathered().then_some(Layout::Gathered);
        [asked, remaps, present]
            .into_iter()
            .flatten()
            .find(|layout| self.may_have(*layout))
            .unwrap_or(self.usual_layout())
    }

    /// Whether pages are compressed.
    pub fn compresses(self) -> bool {
        matches!(self, JournalMode::Swal | JournalMode::Onewrite)
    }

    /// Whether the log is written past the page cache, if possible.
    pub fn writes_directly(self) -> bool {
        self != JournalMode::Swal
    }

    /// Whether commits may be deferred for group synch: not where stock connections read the log at
    /// any moment.
    pub fn may_defer_durability(self) -> bool {
        self == JournalMode::Waldio
    }

    /// Whether commits of several connections share a flush by default.
    pub fn usually_groups_commits(self) -> bool {
        matches!(self, JournalMode::Onewrite | JournalMode::Direct)
    }

    /// Whether a thread runs the automatic checkpoints by default. Not where the frames of its passes would
    /// not fit the log's first chunk: these modes compress, and have room.
    pub fn usually_checkpoints_by_thread(self) -> bool {
        self.compresses()
    }

    /// The mode that a URI or the environment asks for; `None` if they name one of SQLite's own,
    /// which leaves the database to the application.
    ///
    /// # Errors
    /// A word that is not a journal mode.
    pub fn wanted(word: &str) -> Result<Option<JournalMode>, UnknownWord> {
        if is_stock_mode(word) {
            return Ok(None);
        }
        JournalMode::from_name(word).map(Some).ok_or_else(|| {
            let ours = JournalMode::ALL.map(JournalMode::name).join(", ");
            UnknownWord::new(
                word,
                format!("{ours}, or one of SQLite's own journal modes"),
            )
        })
    }

    /// Whether the log is in a file that stock SQLite does not know. Then the database must be
    /// guarded against stock SQLite while the log is in use.
    pub fn is_guarded(self) -> bool {
        self != JournalMode::Direct
    }
}

impl fmt::Display for JournalMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The mode that takes the place of SQLite's own WAL: `ONEWRITE_UPGRADE_WAL`, or the URI's
/// `onewrite_upgrade_wal`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpgradeOfWal {
    /// `0`, or unset: WAL stays WAL.
    No,
    /// `1`: the mode that `ONEWRITE_JOURNAL_MODE` or the URI names.
    ToWanted,
    /// The name of a mode.
    To(JournalMode),
}

impl FromStr for UpgradeOfWal {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word.to_ascii_lowercase().as_str() {
            "" | "0" | "off" => Ok(UpgradeOfWal::No),
            "1" | "on" => Ok(UpgradeOfWal::ToWanted),
            name => JournalMode::from_name(name)
                .map(UpgradeOfWal::To)
                .ok_or_else(|| {
                    let ours = JournalMode::ALL.map(JournalMode::name).join(", ");
                    UnknownWord::new(word, format!("{ours}, 1 or 0"))
                }),
        }
    }
}

/// SQLite's own journal modes.
const STOCK_MODES: [&str; 6] = ["delete", "truncate", "persist", "memory", "wal", "off"];

/// Whether a word names one of SQLite's own journal modes.
pub fn is_stock_mode(word: &str) -> bool {
    STOCK_MODES
        .iter()
        .any(|mode| mode.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_printed() {
        for mode in JournalMode::ALL {
            assert_eq!(JournalMode::from_name(mode.name()), Some(mode));
            assert_eq!(JournalMode::from_code(mode.code()), Some(mode));
            assert_eq!(mode.name().parse(), Ok(UpgradeOfWal::To(mode)));
        }
    }

    #[test]
    fn a_stock_mode_may_be_asked_for_and_a_word_that_is_none_may_not() {
        for mode in JournalMode::ALL {
            assert_eq!(JournalMode::wanted(mode.name()), Ok(Some(mode)));
        }
        for word in [
            "wal", "WAL", "delete", "truncate", "persist", "memory", "off",
        ] {
            assert_eq!(JournalMode::wanted(word), Ok(None), "{word}");
        }
        let errors = [
            JournalMode::wanted("waldo").map(drop),
            UpgradeOfWal::from_str("waldo").map(drop),
        ];
        for error in errors {
            let text = error.map_err(|e| e.to_string()).expect_err("no mode");
            assert!(text.contains("'waldo'"), "{text}");
            for mode in JournalMode::ALL {
                assert!(text.contains(mode.name()), "{text}");
            }
        }
    }
}
