//! The journal modes, and the parts that a mode is made of.
//!
//! Every word that a user can say (a pragma's value, a URI parameter, an environment variable) is
//! parsed and printed here, and nowhere else.

mod layout;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::storage::{Capabilities, Init};

pub use layout::Layout;

/// A journal mode of ours. Everything else is SQLite's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalMode {
    /// SQLite's own log in SQLite's own `-wal` file, written with direct I/O.
    Direct,
    /// WALDIO: frames in preallocated blocks, one direct write a commit (USENIX ATC '15).
    Waldio,
    /// S-WAL: compressed pages through the page cache, one write and one flush a commit (IEEE TCE 2018).
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

    /// What `PRAGMA journal_mode` says.
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

    /// The mode with this name; SQLite compares such words without regard to case.
    pub fn from_name(name: &str) -> Option<JournalMode> {
        JournalMode::ALL
            .into_iter()
            .find(|mode| mode.name().eq_ignore_ascii_case(name))
    }

    /// The layout of a log that is made for this mode, where no other is asked for.
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

    /// The layout of a log that is made for this mode by a connection with these settings; `present` is
    /// that of the log which was there before.
    ///
    /// `auto` remaps where the log has a layout for it, and does not choose one: that would cost commits
    /// a block more where nothing comes of it.
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

    /// Whether the log is written past the page cache, where that is possible.
    pub fn writes_directly(self) -> bool {
        self != JournalMode::Swal
    }

    /// Whether commits may be kept back for group synch: not where stock connections read the log at
    /// any moment.
    pub fn may_group(self) -> bool {
        self == JournalMode::Waldio
    }

    /// Whether commits may be published before they are durable, to share a flush with others: not
    /// where stock connections read the log at any moment.
    pub fn may_group_commits(self) -> bool {
        self.is_guarded()
    }

    /// Whether they do where nothing else is asked for.
    pub fn usually_groups_commits(self) -> bool {
        self == JournalMode::Onewrite
    }

    /// The mode that a URI or the environment ask for; `None` where they name one of SQLite's own, which
    /// is to leave the database to the application.
    ///
    /// # Errors
    /// For a word that is no journal mode.
    pub fn wanted(word: &str) -> Result<Option<JournalMode>, UnknownWord> {
        if is_stock_mode(word) {
            return Ok(None);
        }
        JournalMode::from_name(word).map(Some).ok_or_else(|| {
            unknown(
                word,
                "onewrite, waldio, swal, direct, or one of SQLite's own journal modes",
            )
        })
    }

    /// Whether the log is in a file that stock SQLite does not know, so that the database must be
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

/// What the environment puts in the place of SQLite's own WAL: `ONEWRITE_UPGRADE_WAL`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpgradeOfWal {
    /// `0`, or nothing: WAL stays WAL.
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
                .ok_or_else(|| unknown(word, "waldio, direct, 1 or 0")),
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

/// A word that is not one of those that a setting takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownWord {
    /// What was said.
    pub said: String,
    /// What can be said.
    pub known: &'static str,
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown value '{}': use {}", self.said, self.known)
    }
}

impl std::error::Error for UnknownWord {}

fn unknown(said: &str, known: &'static str) -> UnknownWord {
    UnknownWord {
        said: said.to_owned(),
        known,
    }
}

/// `onewrite_sync`: what a commit at `synchronous=FULL` does after its direct write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncPolicy {
    /// `full`: write, then flush (WALDIO-FS).
    Full,
    /// `persistent`: the write itself is durable: FUA, or a flush by the kernel (WALDIO-PD).
    Persistent,
    /// `normal`: write only; survives a crash of the system, not a power cut (WALDIO-NS).
    Normal,
    /// `auto`: the faster one of `persistent` and `full`, where the device has FUA or is not known. Both were
    /// timed when the log was made ([`crate::storage::pace`]). Elsewhere `persistent`: without FUA the kernel
    /// turns a write-through write into a write and a flush, which is `full` with one system call less.
    #[default]
    Auto,
}

impl SyncPolicy {
    /// The policy with `auto` decided, where nothing was timed.
    pub fn resolved(self) -> SyncPolicy {
        match self {
            SyncPolicy::Auto => SyncPolicy::Persistent,
            decided => decided,
        }
    }
}

impl FromStr for SyncPolicy {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word.to_ascii_lowercase().as_str() {
            "full" => Ok(SyncPolicy::Full),
            "persistent" => Ok(SyncPolicy::Persistent),
            "normal" => Ok(SyncPolicy::Normal),
            "auto" => Ok(SyncPolicy::Auto),
            _ => Err(unknown(word, "full, persistent, normal or auto")),
        }
    }
}

impl fmt::Display for SyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SyncPolicy::Full => "full",
            SyncPolicy::Persistent => "persistent",
            SyncPolicy::Normal => "normal",
            SyncPolicy::Auto => "auto",
        })
    }
}

/// `onewrite_init`: how the log's blocks are made ready for writes that allocate nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InitPolicy {
    /// `write-zeroes` where the kernel, the file system and the device offer it, else `zero-fill`.
    #[default]
    Auto,
    /// One way, or an error.
    Always(Init),
}

impl InitPolicy {
    /// The way that is taken where the file system and the device offer what they do.
    ///
    /// # Errors
    /// Why the one way that was asked for cannot be taken there.
    pub fn resolved(self, offered: &Capabilities) -> Result<Init, String> {
        match (self, &offered.write_zeroes) {
            (InitPolicy::Auto, Ok(())) => Ok(Init::WriteZeroes),
            (InitPolicy::Auto, Err(_)) => Ok(Init::ZeroFill),
            (InitPolicy::Always(Init::WriteZeroes), Err(why)) => Err(format!(
                "onewrite_init=write-zeroes cannot be used here: {why}"
            )),
            (InitPolicy::Always(init), _) => Ok(init),
        }
    }
}

impl FromStr for InitPolicy {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        if word.eq_ignore_ascii_case("auto") {
            return Ok(InitPolicy::Auto);
        }
        Init::from_str(&word.to_ascii_lowercase())
            .map(InitPolicy::Always)
            .map_err(|_| unknown(word, "zero-fill, write-zeroes, unwritten or auto"))
    }
}

impl fmt::Display for InitPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InitPolicy::Auto => f.write_str("auto"),
            InitPolicy::Always(init) => init.fmt(f),
        }
    }
}

/// `onewrite_checkpoint`: how a checkpoint brings pages from the log into the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CheckpointPolicy {
    /// `copy`: each page is written there.
    #[default]
    Copy,
    /// `exchange`: blocks of log and database change places (`XFS_IOC_EXCHANGE_RANGE`).
    Exchange,
    /// `forward`: `exchange`, and then the log goes on in blocks that lie one behind the other (the paper's
    /// remap+).
    Forward,
    /// `clone`: the database shares the log's blocks (`FICLONERANGE`).
    Clone,
    /// `auto`: `exchange` on XFS, else `copy`.
    Auto,
}

impl CheckpointPolicy {
    /// Whether pages must lie in the log as they lie in the database.
    pub fn needs_gathered(self) -> bool {
        matches!(
            self,
            CheckpointPolicy::Exchange | CheckpointPolicy::Forward | CheckpointPolicy::Clone
        )
    }
}

impl FromStr for CheckpointPolicy {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word.to_ascii_lowercase().as_str() {
            "copy" => Ok(CheckpointPolicy::Copy),
            "exchange" => Ok(CheckpointPolicy::Exchange),
            "forward" => Ok(CheckpointPolicy::Forward),
            "clone" => Ok(CheckpointPolicy::Clone),
            "auto" => Ok(CheckpointPolicy::Auto),
            _ => Err(unknown(word, "copy, exchange, forward, clone or auto")),
        }
    }
}

impl fmt::Display for CheckpointPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CheckpointPolicy::Copy => "copy",
            CheckpointPolicy::Exchange => "exchange",
            CheckpointPolicy::Forward => "forward",
            CheckpointPolicy::Clone => "clone",
            CheckpointPolicy::Auto => "auto",
        })
    }
}

/// `onewrite_compression`: how pages are compressed, in the modes that do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// `none`: every page as it is.
    None,
    /// `lz4`: fast.
    #[default]
    Lz4,
    /// `zstd`: smaller, at several times the time.
    Zstd,
}

impl FromStr for Compression {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word.to_ascii_lowercase().as_str() {
            "none" | "off" => Ok(Compression::None),
            "lz4" => Ok(Compression::Lz4),
            "zstd" => Ok(Compression::Zstd),
            _ => Err(unknown(word, "lz4, zstd or none")),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        })
    }
}

/// `onewrite_differences`: whether a page that was logged before is held as its difference from that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Differences {
    /// `on`: where that is much smaller.
    #[default]
    Held,
    /// `off`: every page by itself, as S-WAL's paper has it.
    None,
}

impl FromStr for Differences {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word.to_ascii_lowercase().as_str() {
            "on" | "1" | "yes" | "true" => Ok(Differences::Held),
            "off" | "0" | "no" | "false" => Ok(Differences::None),
            _ => Err(unknown(word, "on or off")),
        }
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Differences::Held => "on",
            Differences::None => "off",
        })
    }
}

/// How a connection has the pages of its commits compressed; each record tells what became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compressing {
    /// `onewrite_compression`.
    pub with: Compression,
    /// `onewrite_differences`.
    pub differences: Differences,
}

/// `onewrite_group_synch`: commits return before their write, which follows soon (the paper's
/// group synch). Off by default: it gives up durability within these two bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupSynch {
    /// A group is written as soon as it has this many frames.
    pub frames: u32,
    /// A group is written when its first commit is this old.
    pub interval: Duration,
}

impl GroupSynch {
    const WORDS: &str = "'FRAMES,MILLISECONDS' with 1 to 1024 frames and 1 to 10000 ms, or off";

    /// Parses `'4,2'`, `'4/2'` or `off`.
    ///
    /// # Errors
    /// For anything else.
    pub fn parse(word: &str) -> Result<Option<GroupSynch>, UnknownWord> {
        if ["off", "0", "no", "false"]
            .iter()
            .any(|off| word.eq_ignore_ascii_case(off))
        {
            return Ok(None);
        }
        let numbers = word.split_once([',', '/']).and_then(|(frames, ms)| {
            Some((
                frames.trim().parse::<u32>().ok()?,
                ms.trim().parse::<u64>().ok()?,
            ))
        });
        match numbers {
            Some((frames @ 1..=1024, ms @ 1..=10_000)) => Ok(Some(GroupSynch {
                frames,
                interval: Duration::from_millis(ms),
            })),
            _ => Err(unknown(word, GroupSynch::WORDS)),
        }
    }
}

impl fmt::Display for GroupSynch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.frames, self.interval.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_printed() {
        for mode in JournalMode::ALL {
            assert_eq!(JournalMode::from_name(mode.name()), Some(mode));
            assert_eq!(JournalMode::from_code(mode.code()), Some(mode));
        }
        for word in ["full", "persistent", "normal", "auto"] {
            assert_eq!(
                word.parse::<SyncPolicy>().map(|p| p.to_string()),
                Ok(word.to_owned())
            );
        }
        for word in ["zero-fill", "write-zeroes", "unwritten", "auto"] {
            assert_eq!(
                word.parse::<InitPolicy>().map(|p| p.to_string()),
                Ok(word.to_owned())
            );
        }
        for word in ["copy", "exchange", "clone", "auto"] {
            assert_eq!(
                word.parse::<CheckpointPolicy>().map(|c| c.to_string()),
                Ok(word.to_owned())
            );
        }
        for word in ["none", "lz4", "zstd"] {
            assert_eq!(
                word.parse::<Compression>().map(|c| c.to_string()),
                Ok(word.to_owned())
            );
        }
        for word in ["on", "off"] {
            assert_eq!(
                word.parse::<Differences>().map(|d| d.to_string()),
                Ok(word.to_owned())
            );
        }
        let four_two = GroupSynch {
            frames: 4,
            interval: Duration::from_millis(2),
        };
        assert_eq!(GroupSynch::parse("4,2"), Ok(Some(four_two)));
        assert_eq!(GroupSynch::parse(" 4 / 2 "), Ok(Some(four_two)));
        assert_eq!(GroupSynch::parse("off"), Ok(None));
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
        let error = JournalMode::wanted("waldo").map_err(|e| e.to_string());
        assert!(error.is_err_and(|text| text.contains("'waldo'") && text.contains("waldio")));
    }

    #[test]
    fn an_unknown_word_is_answered_with_the_known_ones() {
        let error = "sometimes"
            .parse::<SyncPolicy>()
            .expect_err("not a policy")
            .to_string();
        assert!(
            error.contains("'sometimes'") && error.contains("persistent"),
            "{error}"
        );
        for word in ["4", "0,2", "4,0", "-1,2", "4,2,1", "99999,2"] {
            assert!(GroupSynch::parse(word).is_err(), "{word}");
        }
    }
}
