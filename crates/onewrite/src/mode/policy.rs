//! The settings of a connection for its mode, and the words for them.
//!
//! Their names are in the table of settings (`vfs/settings.rs`).

use std::fmt;
use std::time::Duration;

use super::Layout;
use super::words::{OFF, ON, UnknownWord, Word, says_off, word_for};
use crate::storage::{Capabilities, Init};

/// Prints a value with the word of its table.
macro_rules! prints_its_word {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(word_for(&Self::WORDS, self).unwrap_or("?"))
            }
        }
    )*};
}

prints_its_word!(
    SyncPolicy,
    Floor,
    InitPolicy,
    CheckpointPolicy,
    Compression,
    Differences,
    Goal
);

/// `onewrite_layout`: how frames lie in a new log; `None` keeps the layout of an existing log, or
/// leaves it to the mode.
pub const LAYOUTS: [Word<Option<Layout>>; 6] = [
    Word::new(
        "auto",
        None,
        "the layout that the log has, else the usual one of the mode",
    ),
    Word::new(
        "embedded",
        Some(Layout::Embedded),
        "the frame header in the page's reserved bytes: one frame, one block",
    ),
    Word::new("sector", Some(Layout::Sector), "padded to 512 bytes"),
    Word::new(
        "page4k",
        Some(Layout::Page4k),
        "header and page padded to 4 KiB each",
    ),
    Word::new("page8k", Some(Layout::Page8k), "the frame padded to 8 KiB"),
    Word::new(
        "gathered",
        Some(Layout::Gathered),
        "frame headers in blocks of their own, for checkpoints that write no page twice",
    ),
];

/// `onewrite_synchronous`: a level of `PRAGMA synchronous` below which no commit falls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Floor {
    /// The connection's own level holds.
    #[default]
    None,
    /// `full`.
    Full,
    /// `extra`.
    Extra,
}

impl Floor {
    /// The words for it.
    pub const WORDS: [Word<Floor>; 3] = [
        Word::new("none", Floor::None, "the connection's own level holds"),
        Word::new(
            "full",
            Floor::Full,
            "every COMMIT is durable when it returns, as at FULL",
        )
        .or(&["2"]),
        Word::new(
            "extra",
            Floor::Extra,
            "the same, and EXTRA in SQLite's rollback modes",
        )
        .or(&["3"]),
    ];

    /// The number of the level in SQLite's pragma; 0 if there is no floor.
    pub fn level(self) -> u8 {
        match self {
            Floor::None => 0,
            Floor::Full => 2,
            Floor::Extra => 3,
        }
    }
}

/// `onewrite_sync`: how a commit at `synchronous=FULL` becomes durable after its direct write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncPolicy {
    /// `full`: write, then flush (WALDIO-FS).
    Full,
    /// `persistent`: the write itself is durable: FUA, or a flush by the kernel (WALDIO-PD).
    Persistent,
    /// `normal`: write only; survives a crash of the system, not a power cut (WALDIO-NS).
    Normal,
    /// `auto`: the faster one of `persistent` and `full`, if the device has FUA or is not known.
    /// Both were timed when the log was made ([`crate::storage::pace`]). Otherwise `persistent`:
    /// without FUA the kernel turns a write-through write into a write and a flush. That is `full`
    /// with one system call less.
    #[default]
    Auto,
}

impl SyncPolicy {
    /// The words for it.
    pub const WORDS: [Word<SyncPolicy>; 4] = [
        Word::new(
            "auto",
            SyncPolicy::Auto,
            "the faster of `persistent` and `full`, timed when the log is made, if the device has \
             FUA or is not known; else `persistent`",
        ),
        Word::new(
            "persistent",
            SyncPolicy::Persistent,
            "the write itself is durable: FUA, or a flush by the kernel",
        ),
        Word::new("full", SyncPolicy::Full, "write, then flush"),
        Word::new(
            "normal",
            SyncPolicy::Normal,
            "write only: survives a crash of the system, not a power cut",
        ),
    ];

    /// The policy with `auto` decided, if nothing was timed.
    pub fn resolved(self) -> SyncPolicy {
        match self {
            SyncPolicy::Auto => SyncPolicy::Persistent,
            decided => decided,
        }
    }
}

/// `onewrite_init`: how the log's blocks are initialized, so that writes allocate nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InitPolicy {
    /// `write-zeroes` if the kernel, the file system and the device offer it, otherwise
    /// `zero-fill`.
    #[default]
    Auto,
    /// This method, or an error.
    Always(Init),
}

impl InitPolicy {
    /// The words for it.
    pub const WORDS: [Word<InitPolicy>; 4] = [
        Word::new(
            "auto",
            InitPolicy::Auto,
            "`write-zeroes` where it is available, else `zero-fill`",
        ),
        Word::new(
            "zero-fill",
            InitPolicy::Always(Init::ZeroFill),
            "zeros are written: works everywhere",
        ),
        Word::new(
            "write-zeroes",
            InitPolicy::Always(Init::WriteZeroes),
            "the device zeroes the blocks by one command (Linux 6.17)",
        ),
        Word::new(
            "unwritten",
            InitPolicy::Always(Init::Unwritten),
            "blocks are only allocated: for measurements",
        ),
    ];

    /// The method to use with these abilities of the file system and the device.
    ///
    /// # Errors
    /// Why the one requested method cannot be used there.
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

/// `onewrite_checkpoint`: how a checkpoint brings pages from the log into the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CheckpointPolicy {
    /// `copy`: each page is written there.
    #[default]
    Copy,
    /// `exchange`: log and database exchange blocks (`XFS_IOC_EXCHANGE_RANGE`).
    Exchange,
    /// `forward`: `exchange`, and then the log continues in contiguous blocks (the paper's remap+).
    Forward,
    /// `clone`: the database shares the log's blocks (`FICLONERANGE`).
    Clone,
    /// `auto`: `exchange` on XFS, otherwise `copy`.
    Auto,
}

impl CheckpointPolicy {
    /// The words for it.
    pub const WORDS: [Word<CheckpointPolicy>; 5] = [
        Word::new(
            "copy",
            CheckpointPolicy::Copy,
            "each page is written into the database, as SQLite does",
        ),
        Word::new(
            "exchange",
            CheckpointPolicy::Exchange,
            "the log and the database exchange blocks (XFS)",
        ),
        Word::new(
            "forward",
            CheckpointPolicy::Forward,
            "`exchange`, and the log goes on in consecutive blocks",
        ),
        Word::new(
            "clone",
            CheckpointPolicy::Clone,
            "the database shares the log's blocks (XFS with reflink, Btrfs)",
        ),
        Word::new(
            "auto",
            CheckpointPolicy::Auto,
            "`exchange` on XFS, else `copy`; chooses no layout",
        ),
    ];

    /// Whether pages must lie in the log as they lie in the database.
    pub fn needs_gathered(self) -> bool {
        matches!(
            self,
            CheckpointPolicy::Exchange | CheckpointPolicy::Forward | CheckpointPolicy::Clone
        )
    }
}

/// `onewrite_compression`: how pages are compressed, in the modes that do so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// `none`: pages are not compressed.
    None,
    /// `auto`: by cost, see [`Goal`]. In `swal` as `lz4`.
    #[default]
    Auto,
    /// `lz4`: fast.
    Lz4,
    /// `zstd`: smaller, at several times the time.
    Zstd,
}

impl Compression {
    /// The words for it.
    pub const WORDS: [Word<Compression>; 4] = [
        Word::new(
            "auto",
            Compression::Auto,
            "changed byte ranges, else `lz4`, and more effort as `onewrite_goal` says; in `swal` as `lz4`",
        ),
        Word::new("lz4", Compression::Lz4, "fast"),
        Word::new(
            "zstd",
            Compression::Zstd,
            "a fifth smaller, at three to four times the time",
        ),
        Word::new("none", Compression::None, "pages are not compressed").or(&["off"]),
    ];
}

/// `onewrite_differences`: whether a page that was logged before is stored as its difference from
/// that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Differences {
    /// `on`: if that is much smaller.
    #[default]
    Held,
    /// `off`: every page by itself, as in S-WAL's paper.
    None,
}

impl Differences {
    /// The words for it.
    pub const WORDS: [Word<Differences>; 2] = [
        Word::new("on", Differences::Held, "where that is much smaller").or(ON),
        Word::new("off", Differences::None, "each page by itself").or(OFF),
    ];
}

/// `onewrite_goal`: how much processor time a commit may spend to save blocks, with `auto`
/// compression.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Goal {
    /// `balanced`: a share of the time that the thread spends on everything else.
    #[default]
    Balanced,
    /// `speed`: none.
    Speed,
    /// `bytes`: whatever may save a block.
    Bytes,
}

impl Goal {
    /// The words for it.
    pub const WORDS: [Word<Goal>; 3] = [
        Word::new(
            "balanced",
            Goal::Balanced,
            "at most a twentieth of the time that the thread spends on everything else",
        ),
        Word::new("speed", Goal::Speed, "none"),
        Word::new("bytes", Goal::Bytes, "whatever may save a block"),
    ];
}

/// How a connection compresses the pages of its commits; each record gives its own method.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compressing {
    /// `onewrite_compression`.
    pub with: Compression,
    /// `onewrite_differences`.
    pub differences: Differences,
    /// `onewrite_goal`.
    pub goal: Goal,
}

/// `onewrite_group_synch`: commits return before their write, which follows soon (the paper's group
/// synch). Off by default: it gives up durability within these two bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupSynch {
    /// A group is written as soon as it has this many frames.
    pub frames: u32,
    /// A group is written when its first commit is this old.
    pub interval: Duration,
}

impl GroupSynch {
    /// The form of a value, and its meaning.
    pub const FORM: (&'static str, &'static str) = (
        "'FRAMES,MILLISECONDS'",
        "1 to 1024 frames and 1 to 10000 ms: a group is written as soon as it has so many frames, \
         or its first commit is so old",
    );
    const KNOWN: &'static str =
        "'FRAMES,MILLISECONDS' with 1 to 1024 frames and 1 to 10000 ms, or off";

    /// Parses `'4,2'`, `'4/2'` or `off`.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(word: &str) -> Result<Option<GroupSynch>, UnknownWord> {
        if says_off(word) {
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
            _ => Err(UnknownWord::new(word, GroupSynch::KNOWN)),
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
    fn a_group_is_read_as_it_is_printed() {
        let four_two = GroupSynch {
            frames: 4,
            interval: Duration::from_millis(2),
        };
        assert_eq!(four_two.to_string(), "4,2");
        assert_eq!(GroupSynch::parse("4,2"), Ok(Some(four_two)));
        assert_eq!(GroupSynch::parse(" 4 / 2 "), Ok(Some(four_two)));
        assert_eq!(GroupSynch::parse("off"), Ok(None));
        for word in ["4", "0,2", "4,0", "-1,2", "4,2,1", "1025,2", "4,10001"] {
            assert!(GroupSynch::parse(word).is_err(), "{word}");
        }
        assert!(GroupSynch::parse("1024,10000").is_ok());
    }

    /// The methods of initialization also print themselves, in the status and in a log's report.
    #[test]
    fn a_way_to_initialize_has_one_word() {
        for word in InitPolicy::WORDS {
            if let InitPolicy::Always(init) = word.value {
                assert_eq!(init.to_string(), word.word);
            }
        }
    }
}
