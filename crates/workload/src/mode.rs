//! Mode names as a user writes them: `waldio:layout=page8k,sync=normal,group_synch=4/2`.
//!
//! A [`Mode`] is a journal mode with variations. Parsing checks names and values against the tables
//! below. So a misspelt variation is an error that lists the known ones, and never runs something
//! else. [`crate::connection`] executes the pragmas.

use std::borrow::Cow;
use std::fmt;

use onewrite::mode::{GroupSynch, Region};
use serde::{Deserialize, Serialize};

use crate::Error;

/// The VFS that a journal mode needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vfs {
    /// SQLite's own, without any part of onewrite.
    Stock,
    /// The `onewrite` VFS.
    Onewrite,
}

impl Vfs {
    /// The name to open a connection with.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stock => "unix",
            Self::Onewrite => "onewrite",
        }
    }
}

/// A journal mode.
#[derive(Debug)]
pub struct Journal {
    /// The text of `PRAGMA journal_mode=...`, which is also the pragma's answer.
    pub name: &'static str,
    /// The VFS that implements it.
    pub vfs: Vfs,
}

/// Every journal mode that can be compared.
pub const JOURNALS: &[Journal] = &[
    Journal {
        name: "delete",
        vfs: Vfs::Stock,
    },
    Journal {
        name: "truncate",
        vfs: Vfs::Stock,
    },
    Journal {
        name: "persist",
        vfs: Vfs::Stock,
    },
    Journal {
        name: "memory",
        vfs: Vfs::Stock,
    },
    Journal {
        name: "wal",
        vfs: Vfs::Stock,
    },
    Journal {
        name: "off",
        vfs: Vfs::Stock,
    },
    Journal {
        name: "direct",
        vfs: Vfs::Onewrite,
    },
    Journal {
        name: "waldio",
        vfs: Vfs::Onewrite,
    },
    Journal {
        name: "swal",
        vfs: Vfs::Onewrite,
    },
    Journal {
        name: "onewrite",
        vfs: Vfs::Onewrite,
    },
    Journal {
        name: "xftl",
        vfs: Vfs::Onewrite,
    },
    Journal {
        name: LSMVBT,
        vfs: Vfs::Stock,
    },
];

/// The mode that is another B-tree engine, in a SQLite that includes it.
pub const LSMVBT: &str = "lsmvbt";

impl Journal {
    /// Whether it is a write-ahead log, SQLite's own or another.
    pub fn is_log(&self) -> bool {
        self.name == "wal" || self.vfs == Vfs::Onewrite && self.name != "xftl"
    }

    /// Whether it is the engine LS-MVBT, which has neither journal nor log.
    pub fn is_lsmvbt(&self) -> bool {
        self.name == LSMVBT
    }

    /// Whether a writer can commit while others read.
    pub fn has_snapshots(&self) -> bool {
        self.is_log() || self.is_lsmvbt()
    }
}

/// The values a variation takes.
#[derive(Clone)]
enum Values {
    OneOf(Cow<'static, [&'static str]>),
    /// `frames/milliseconds`, written `'frames,milliseconds'` in the pragma.
    FramesAndMillis,
    /// A region's.
    Size,
}

/// A part of a mode that can vary.
#[derive(Clone)]
struct Key {
    name: &'static str,
    pragma: &'static str,
    values: Values,
}

const SYNCHRONOUS: &str = "synchronous";

const PAGE_SIZE: &str = "page_size";

const LOCKING: &str = "locking_mode";

/// SQLite's page sizes that a database here can have, in bytes.
const PAGE_SIZES: [u32; 7] = [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536];

/// The variations of the `onewrite` VFS's modes: its settings. A mode refuses those that it does
/// not have.
fn engine_keys() -> Vec<Key> {
    let key = |setting: &'static onewrite::Setting| {
        let values: Vec<_> = setting.values().iter().map(|(word, _)| *word).collect();
        Key {
            name: setting.name(),
            pragma: setting.pragma,
            values: match &values[..] {
                [_, form] if *form == GroupSynch::FORM.0 => Values::FramesAndMillis,
                [_, form] if *form == Region::FORM.0 => Values::Size,
                _ => Values::OneOf(values.into()),
            },
        }
    };
    // `synchronous` is the level of the program itself, which needs no floor under it.
    let settings = onewrite::SETTINGS.iter().map(key);
    settings.filter(|key| key.name != SYNCHRONOUS).collect()
}

/// The variations of `lsmvbt`: `PRAGMA lsmvbt_...`.
const LSMVBT_KEYS: &[Key] = &[
    Key {
        name: "torn",
        pragma: "lsmvbt_torn",
        values: Values::OneOf(Cow::Borrowed(&["trust", "double", "auto"])),
    },
    Key {
        name: "lazy_split",
        pragma: "lsmvbt_lazy_split",
        values: Values::OneOf(Cow::Borrowed(&["on", "off"])),
    },
    Key {
        name: "reserve",
        pragma: "lsmvbt_reserve",
        values: Values::OneOf(Cow::Borrowed(&["0", "5", "10", "20", "40"])),
    },
    Key {
        name: "lazy_gc",
        pragma: "lsmvbt_lazy_gc",
        values: Values::OneOf(Cow::Borrowed(&["on", "off"])),
    },
    Key {
        name: "embedding",
        pragma: "lsmvbt_embedding",
        values: Values::OneOf(Cow::Borrowed(&["on", "off"])),
    },
    Key {
        name: "recovery_pages",
        pragma: "lsmvbt_recovery_pages",
        values: Values::OneOf(Cow::Borrowed(&[
            "64", "128", "256", "1024", "4096", "65536", "1048576",
        ])),
    },
    Key {
        name: "redistribution",
        pragma: "lsmvbt_redistribution",
        values: Values::OneOf(Cow::Borrowed(&["on", "off"])),
    },
];

/// `PRAGMA synchronous`: how much SQLite waits for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Synchronous {
    /// Never.
    Off,
    /// At checkpoints, not at commits.
    Normal,
    /// At every commit.
    Full,
    /// As full, and the directory after a rollback journal is deleted.
    Extra,
}

impl Synchronous {
    /// All levels, weakest first.
    pub const ALL: [Self; 4] = [Self::Off, Self::Normal, Self::Full, Self::Extra];

    /// The word SQLite uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Normal => "normal",
            Self::Full => "full",
            Self::Extra => "extra",
        }
    }

    /// The level with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// A pragma to execute before the choice of the journal mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pragma {
    /// Its name, for example `onewrite_layout`.
    pub name: &'static str,
    /// Its value as SQL, quoted if needed.
    pub value: String,
}

/// A journal mode with variations.
#[derive(Clone, Debug)]
pub struct Mode {
    spec: String,
    journal: &'static Journal,
    pragmas: Vec<Pragma>,
    synchronous: Option<Synchronous>,
    page_size: Option<u32>,
    locking: Option<&'static str>,
}

/// The modes that `durable` stands for: transactions committed at `synchronous=FULL` survive a
/// crash.
const DURABLE: &[&str] = &[
    "delete", "truncate", "persist", "wal", "direct", "waldio", "swal", "onewrite",
];

impl Mode {
    /// Parses one mode, for example `wal` or `waldio:layout=page8k,sync=normal`.
    pub fn parse(spec: &str) -> Result<Self, Error> {
        let spec = spec.trim().to_ascii_lowercase();
        let (name, variations) = match spec.split_once(':') {
            Some((name, variations)) => (name, variations.split(',').collect()),
            None => (spec.as_str(), Vec::new()),
        };
        let journal = JOURNALS
            .iter()
            .find(|j| j.name == name)
            .ok_or_else(|| unknown_mode(name))?;
        let mut mode = Self {
            spec: String::new(),
            journal,
            pragmas: Vec::new(),
            synchronous: None,
            page_size: None,
            locking: None,
        };
        for variation in variations {
            mode.vary(variation.trim())?;
        }
        mode.spec = spec;
        Ok(mode)
    }

    /// Parses a list of modes. The comma separates modes as well as variations. A part of the form
    /// `key=value` belongs to the mode before it.
    pub fn parse_list(list: &str) -> Result<Vec<Self>, Error> {
        let mut specs: Vec<String> = Vec::new();
        for part in list
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let continues = part.contains('=') && !part.contains(':');
            match specs.last_mut() {
                Some(spec) if continues => {
                    spec.push(if spec.contains(':') { ',' } else { ':' });
                    spec.push_str(part);
                }
                _ => specs.push(part.to_owned()),
            }
        }
        if specs.is_empty() {
            return Err(Error::Mode(format!(
                "no mode given; the modes are {}",
                mode_names()
            )));
        }
        // The only word that stands for several modes.
        let specs = specs.iter().flat_map(|spec| match spec.as_str() {
            "durable" => DURABLE.to_vec(),
            spec => vec![spec],
        });
        specs.map(Self::parse).collect()
    }

    fn vary(&mut self, variation: &str) -> Result<(), Error> {
        let (key, value) = variation.split_once('=').unwrap_or((variation, ""));
        if key == SYNCHRONOUS {
            let level = Synchronous::parse(value).ok_or_else(|| {
                self.bad_value(
                    key,
                    value,
                    &Synchronous::ALL.map(Synchronous::name).join(", "),
                )
            })?;
            self.synchronous = Some(level);
            return Ok(());
        }
        if key == PAGE_SIZE {
            let size = PAGE_SIZES
                .into_iter()
                .find(|size| size.to_string() == value);
            let sizes = PAGE_SIZES.map(|size| size.to_string());
            self.page_size =
                Some(size.ok_or_else(|| self.bad_value(key, value, &sizes.join(", ")))?);
            return Ok(());
        }
        if key == LOCKING {
            let words = ["normal", "exclusive"];
            let word = words.into_iter().find(|word| *word == value);
            self.locking = Some(word.ok_or_else(|| self.bad_value(key, value, &words.join(", ")))?);
            return Ok(());
        }
        let Some(known) = self.keys().into_iter().find(|known| known.name == key) else {
            return Err(self.unknown_key(key));
        };
        let value = match &known.values {
            Values::OneOf(values) if values.contains(&value) => format!("'{value}'"),
            Values::OneOf(values) => return Err(self.bad_value(key, value, &values.join(", "))),
            Values::FramesAndMillis => frames_and_millis(value).ok_or_else(|| {
                self.bad_value(key, value, "frames/milliseconds, for example 4/2")
            })?,
            Values::Size => match Region::parse(value) {
                Ok(region) => format!(
                    "'{}'",
                    region.map_or(Region::AUTO.to_owned(), |of| of.to_string())
                ),
                Err(error) => return Err(self.bad_value(key, value, &error.known)),
            },
        };
        self.pragmas.push(Pragma {
            name: known.pragma,
            value,
        });
        Ok(())
    }

    fn keys(&self) -> Vec<Key> {
        match self.journal.vfs {
            Vfs::Stock if self.journal.is_lsmvbt() => LSMVBT_KEYS.to_vec(),
            Vfs::Stock => Vec::new(),
            Vfs::Onewrite => engine_keys(),
        }
    }

    fn unknown_key(&self, key: &str) -> Error {
        let keys: Vec<_> = self
            .keys()
            .iter()
            .map(|key| key.name)
            .chain([SYNCHRONOUS, PAGE_SIZE, LOCKING])
            .collect();
        Error::Mode(format!(
            "mode {}: no variation is called \"{key}\"; it takes {}",
            self.journal.name,
            keys.join(", ")
        ))
    }

    fn bad_value(&self, key: &str, value: &str, values: &str) -> Error {
        Error::Mode(format!(
            "mode {}: {key} cannot be \"{value}\"; it can be {values}",
            self.journal.name
        ))
    }

    /// The original text, in lower case.
    pub fn spec(&self) -> &str {
        &self.spec
    }

    /// The journal mode.
    pub fn journal(&self) -> &'static Journal {
        self.journal
    }

    /// The pragmas to execute before the choice of the journal mode, in the given order.
    pub fn pragmas(&self) -> &[Pragma] {
        &self.pragmas
    }

    /// `PRAGMA synchronous`, if this mode sets it.
    pub fn synchronous(&self) -> Option<Synchronous> {
        self.synchronous
    }

    /// `PRAGMA page_size` of a new database, in bytes, if this mode sets it.
    pub fn page_size(&self) -> Option<u32> {
        self.page_size
    }

    /// `PRAGMA locking_mode`, if this mode sets it. A WAL in an exclusive connection needs no shared
    /// memory.
    pub fn locking(&self) -> Option<&'static str> {
        self.locking
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spec)
    }
}

/// `4/2` as `'4,2'`.
fn frames_and_millis(value: &str) -> Option<String> {
    let (frames, millis) = value.split_once('/')?;
    let (frames, millis): (u32, u32) = (frames.parse().ok()?, millis.parse().ok()?);
    Some(format!("'{frames},{millis}'"))
}

/// The names of all modes, for help and errors.
pub fn mode_names() -> String {
    JOURNALS
        .iter()
        .map(|journal| journal.name)
        .collect::<Vec<_>>()
        .join(", ")
}

fn unknown_mode(name: &str) -> Error {
    Error::Mode(format!(
        "no mode is called \"{name}\"; the modes are {}",
        mode_names()
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pragmas(mode: &Mode) -> Vec<String> {
        mode.pragmas()
            .iter()
            .map(|p| format!("{}={}", p.name, p.value))
            .collect()
    }

    #[test]
    fn a_stock_mode_is_the_stock_vfs_and_nothing_else() {
        let mode = Mode::parse(" WAL ").unwrap();
        assert_eq!((mode.spec(), mode.journal().name), ("wal", "wal"));
        assert_eq!(mode.journal().vfs.name(), "unix");
        assert!(mode.pragmas().is_empty());
        assert_eq!(mode.synchronous(), None);
    }

    #[test]
    fn the_other_engine_has_variations_of_its_own() {
        let mode = Mode::parse("lsmvbt:torn=trust,reserve=0,lazy_split=off").unwrap();
        assert_eq!(mode.journal().vfs.name(), "unix");
        assert_eq!(
            pragmas(&mode),
            [
                "lsmvbt_torn='trust'",
                "lsmvbt_reserve='0'",
                "lsmvbt_lazy_split='off'"
            ]
        );
        assert!(Mode::parse("lsmvbt:sync=full").is_err());
    }

    #[test]
    fn variations_become_pragmas_in_their_order() {
        let mode = Mode::parse("waldio:layout=page8k,sync=normal,group_synch=4/2").unwrap();
        assert_eq!(mode.journal().vfs.name(), "onewrite");
        assert_eq!(
            pragmas(&mode),
            [
                "onewrite_layout='page8k'",
                "onewrite_sync='normal'",
                "onewrite_group_synch='4,2'"
            ]
        );
        assert_eq!(
            pragmas(&Mode::parse("direct:init=zero-fill").unwrap()),
            ["onewrite_init='zero-fill'"]
        );
    }

    #[test]
    fn synchronous_is_a_variation_of_every_mode() {
        for journal in JOURNALS {
            let mode = Mode::parse(&format!("{}:synchronous=normal", journal.name)).unwrap();
            assert_eq!(mode.synchronous(), Some(Synchronous::Normal));
        }
    }

    #[test]
    fn page_size_is_a_variation_of_every_mode() {
        for journal in JOURNALS {
            let mode = Mode::parse(&format!("{}:page_size=8192", journal.name)).unwrap();
            assert_eq!(mode.page_size(), Some(8192));
            assert!(mode.pragmas().is_empty());
        }
        let error = Mode::parse("wal:page_size=5000").unwrap_err().to_string();
        assert!(
            error.ends_with("1024, 2048, 4096, 8192, 16384, 32768, 65536"),
            "{error}"
        );
    }

    #[test]
    fn a_list_keeps_variations_with_their_mode() {
        let list = "delete,waldio:layout=page8k,sync=normal, wal,direct,sync=full";
        let modes = Mode::parse_list(list).unwrap();
        let specs: Vec<_> = modes.iter().map(Mode::spec).collect();
        assert_eq!(
            specs,
            [
                "delete",
                "waldio:layout=page8k,sync=normal",
                "wal",
                "direct:sync=full"
            ]
        );
    }

    #[test]
    fn an_unknown_mode_lists_the_modes() {
        let error = Mode::parse("walido").unwrap_err().to_string();
        assert_eq!(
            error,
            "no mode is called \"walido\"; the modes are delete, truncate, persist, memory, wal, \
             off, direct, waldio, swal, onewrite, xftl, lsmvbt"
        );
        assert!(
            Mode::parse_list(" , ")
                .unwrap_err()
                .to_string()
                .contains("the modes are delete")
        );
    }

    #[test]
    fn an_unknown_variation_lists_the_variations() {
        let error = Mode::parse("waldio:lay=sector").unwrap_err().to_string();
        assert_eq!(
            error,
            "mode waldio: no variation is called \"lay\"; it takes sync, group_commit, \
             read_durable, group_synch, compression, goal, differences, checkpoint, \
             region, background_checkpoint, linger, layout, init, direct_io, stall_log, synchronous, page_size, \
             locking_mode"
        );
        let error = Mode::parse("wal:layout=sector").unwrap_err().to_string();
        assert!(
            error.ends_with("it takes synchronous, page_size, locking_mode"),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_value_lists_the_values() {
        let error = Mode::parse("waldio:layout=page16k")
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "mode waldio: layout cannot be \"page16k\"; it can be auto, embedded, sector, \
             page4k, page8k, gathered"
        );
        let region = Mode::parse("onewrite:checkpoint=forward,region=150m").unwrap();
        let pragma = region.pragmas().last().unwrap();
        assert_eq!(
            (pragma.name, pragma.value.as_str()),
            ("onewrite_region", "'150M'")
        );
        for bad in ["150", "0m", "auto'"] {
            assert!(
                Mode::parse(&format!("onewrite:region={bad}")).is_err(),
                "{bad}"
            );
        }
        for bad in ["4", "4/", "/2", "4/2/1", "-1/2", "4/2'"] {
            assert!(
                Mode::parse(&format!("waldio:group_synch={bad}")).is_err(),
                "{bad}"
            );
        }
        assert!(
            Mode::parse("wal:synchronous=most")
                .unwrap_err()
                .to_string()
                .contains("extra")
        );
    }

    proptest! {
        /// For any input, parsing gives a mode or an error. A mode carries no unchecked text into
        /// SQL.
        #[test]
        fn no_unchecked_text_reaches_a_pragma(text in "(waldio|wal|direct)?[:,=a-z0-9/' ;-]{0,40}") {
            for mode in Mode::parse_list(&text).unwrap_or_default() {
                for pragma in mode.pragmas() {
                    let inner = pragma.value.trim_matches('\'');
                    prop_assert!(!inner.contains('\'') && !inner.contains(';'), "{:?}", pragma);
                    prop_assert_eq!(pragma.value.len(), inner.len() + 2);
                }
            }
        }
    }
}
