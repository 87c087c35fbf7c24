//! SQLite's own faults in WAL mode that lose commits, by the version that has them.
//! `docs/durability.md`, U1, B1 and D1, says what the VFS does about each. The status and `onewrite
//! doctor` call this.

use std::fmt;

/// A fault of SQLite's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A log that restarts next to a checkpoint: commits count as copied.
    WalReset,
    /// `ROLLBACK TO` back before a page that was written twice: a commit without checksums, which
    /// ends recovery.
    UnfinishedCommits,
}

/// The format of `sqlite3_libversion_number`: 3,040,001 is 3.40.1.
type Version = u32;

impl Fault {
    const ALL: [Fault; 2] = [Fault::WalReset, Fault::UnfinishedCommits];

    /// The affected versions: from the first, up to but without the second.
    fn versions(self) -> &'static [(Version, Version)] {
        match self {
            // Fixed in 3.51.3, and also in these two.
            Fault::WalReset => &[
                (3_007_000, 3_044_006),
                (3_045_000, 3_050_007),
                (3_051_000, 3_051_003),
            ],
            // Seen in the source of 3.49.1, and fixed in that of 3.50.2. Versions before 3.40 were
            // not examined.
            Fault::UnfinishedCommits => &[(3_040_000, 3_050_000)],
        }
    }

    /// The faults of a version, as `sqlite_version()` spells it. None if the version cannot be
    /// parsed.
    pub fn of(version: &str) -> Vec<Fault> {
        let number = number(version).unwrap_or(0);
        let has = |fault: &Fault| {
            let mut versions = fault.versions().iter();
            versions.any(|(first, fixed)| (*first..*fixed).contains(&number))
        };
        Fault::ALL.into_iter().filter(has).collect()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Fault::WalReset => {
                "WAL-reset bug (SQLite 3.7.0 to 3.51.2): commits can be lost if the log restarts during a \
                 checkpoint. Connections through onewrite are safe from each other. They are not safe \
                 from a stock process of such a version that writes the same database, in wal or direct"
            }
            Fault::UnfinishedCommits => {
                "commits without checksums after ROLLBACK TO (SQLite before 3.50): a crash loses such a \
                 commit and all later ones. The modes of onewrite add the checksums; stock connections and \
                 journal_mode=wal do not"
            }
        })
    }
}

fn number(version: &str) -> Option<Version> {
    let mut parts = version.trim().splitn(3, '.').map(str::parse::<Version>);
    let (major, minor) = (parts.next()?.ok()?, parts.next()?.ok()?);
    let patch = parts.next().map_or(Some(0), Result::ok)?;
    let is_one = major < 100 && minor < 1000 && patch < 1000;
    is_one.then_some(major * 1_000_000 + minor * 1000 + patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_the_faults_that_its_release_notes_name() {
        use Fault::{UnfinishedCommits, WalReset};
        for (version, faults) in [
            ("3.40.1", &[WalReset, UnfinishedCommits] as &[Fault]),
            ("3.44.6", &[UnfinishedCommits]),
            ("3.45.0", &[WalReset, UnfinishedCommits]),
            ("3.46.1", &[WalReset, UnfinishedCommits]),
            ("3.50.6", &[WalReset]),
            ("3.50.7", &[]),
            ("3.51.2", &[WalReset]),
            ("3.51.3", &[]),
            ("3.54.1", &[]),
            ("4.0", &[]),
            ("of another kind", &[]),
            ("3.40.99999999999", &[]),
        ] {
            assert_eq!(Fault::of(version), faults, "{version}");
        }
    }
}
