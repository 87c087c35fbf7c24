//! Classifies moved sectors by their purpose.
//!
//! It replays the events in the order of time. The file system's events give the inode that owns
//! each sector at that moment. That includes files deleted before the end, such as rollback
//! journals. The block layer's events give the moved sectors. Sectors of neither a file nor the
//! file system's journal are metadata only where that is certain. If the file system marks its
//! metadata, the mark decides. Elsewhere they are metadata if every file was known when the trace
//! began. Otherwise they are unknown.

use std::collections::HashMap;
use std::ops::Range;

use crate::btrfs::Chunks;
use crate::events::{Event, Holder, Inode, InodeKind};
use crate::extents::Extents;
use crate::io::{FileId, Io, Owner, Piece, Task};
use crate::names::{Created, NewName};
use crate::requests::{Part, Requests};

/// An event and its time, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    pub(crate) at_ns: u64,
    pub(crate) event: Event,
}

/// How metadata is recognized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Metadata {
    /// The file system marks each of its I/Os.
    Marked,
    /// Every file is known, so metadata is the part that belongs to no file.
    TheRest,
    /// Not all files are known: only marked I/Os are metadata.
    #[default]
    Uncertain,
}

/// A file that exists when the trace begins.
#[derive(Clone, Debug)]
pub(crate) struct KnownFile {
    pub(crate) inode: Inode,
    pub(crate) path: String,
    /// Its sectors.
    pub(crate) extents: Vec<Range<u64>>,
}

/// The state before the first event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The sectors of the file system's journal.
    pub(crate) journal: Vec<Range<u64>>,
    /// The inode of the journal.
    pub(crate) journal_inode: Option<Inode>,
    /// Regular files.
    pub(crate) files: Vec<KnownFile>,
    /// Directories, by their path below the root; the root's path is empty.
    pub(crate) dirs: HashMap<Inode, String>,
    /// How metadata is recognized.
    pub(crate) metadata: Metadata,
    /// The positions of Btrfs's addresses on the device.
    pub(crate) chunks: Chunks,
    /// Whether the device makes a single write durable (FUA).
    pub(crate) has_fua: bool,
    /// Whether it is a part of a disk.
    pub(crate) is_part: bool,
}

/// A file that owned sectors, before its purpose is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) inode: Inode,
    /// `None` if no name was seen.
    pub(crate) path: Option<String>,
}

/// The state of a replay.
pub(crate) struct Replay {
    requests: Requests,
    state: State,
}

impl Replay {
    /// Before the first event.
    pub(crate) fn new(known: Known) -> Self {
        Self {
            requests: Requests::new(known.has_fua, known.is_part),
            state: State::new(known),
        }
    }

    /// Adds names that inodes got, in their order. They must come before the events that they go
    /// with.
    pub(crate) fn name_files(&mut self, new: impl Iterator<Item = NewName>) {
        new.for_each(|new| self.state.created.add(new));
    }

    /// Replays the next event, which must not be older than the one before it. Returns the I/O that
    /// it ends, if any.
    pub(crate) fn apply(&mut self, Timed { at_ns, event }: &Timed) -> Option<Io> {
        let (requests, state) = (&mut self.requests, &mut self.state);
        match event {
            Event::Queued(bio) => requests.queue(*at_ns, bio),
            Event::Issued(request) => requests.issue(*at_ns, request),
            Event::Completed(request, error) => {
                let owners = |part: &Part, pieces: &mut Vec<Piece>| state.pieces(part, pieces);
                return requests.complete(*at_ns, request, *error, owners);
            }
            Event::Mapped { inode, sectors } => state.map(*inode, sectors.clone()),
            Event::Freed(sectors) => state.owners.free(sectors.clone()),
            Event::Created { inode, kind } => state.create(*inode, *kind),
            Event::Named { inode, dir, name } => state.name(*inode, *dir, name),
            Event::Given { bytes, to } => state.give(bytes.clone(), *to),
        }
        None
    }

    /// Returns what the replay saw: files, all names that files had (even without I/O), and tasks.
    pub(crate) fn end(self) -> (Vec<Seen>, HashMap<String, FileId>, Vec<Task>) {
        (self.state.seen, self.state.paths, self.requests.tasks)
    }
}

struct State {
    owners: Extents<Owner>,
    journal_inode: Option<Inode>,
    files: HashMap<Inode, FileId>,
    dirs: HashMap<Inode, String>,
    metadata: Metadata,
    created: Created,
    chunks: Chunks,
    seen: Vec<Seen>,
    paths: HashMap<String, FileId>,
}

impl State {
    fn new(known: Known) -> Self {
        let mut state = Self {
            owners: Extents::default(),
            journal_inode: known.journal_inode,
            files: HashMap::new(),
            dirs: known.dirs,
            metadata: known.metadata,
            created: Created::default(),
            chunks: known.chunks,
            seen: Vec::new(),
            paths: HashMap::new(),
        };
        for KnownFile {
            inode,
            path,
            extents,
        } in known.files
        {
            let file = state.add(inode, Some(path));
            for sectors in extents {
                state.owners.give(sectors, Owner::File(file));
            }
        }
        for sectors in known.journal {
            state.owners.give(sectors, Owner::FsJournal);
        }
        state
    }

    /// The file of an inode from now on. A file with an earlier file's path is the same file in
    /// reports.
    fn add(&mut self, inode: Inode, path: Option<String>) -> FileId {
        let next = FileId(self.seen.len() as u32);
        let file = match &path {
            Some(path) => *self.paths.entry(path.clone()).or_insert(next),
            None => next,
        };
        if file == next {
            self.seen.push(Seen { inode, path });
        }
        self.files.insert(inode, file);
        file
    }

    fn map(&mut self, inode: Inode, sectors: Range<u64>) {
        let owner = if self.journal_inode == Some(inode) {
            Owner::FsJournal
        } else if let Some(file) = self.files.get(&inode) {
            Owner::File(*file)
        } else if self.dirs.contains_key(&inode) {
            Owner::FsMetadata
        } else {
            Owner::File(self.add(inode, None))
        };
        self.owners.give(sectors, owner);
    }

    fn create(&mut self, inode: Inode, kind: InodeKind) {
        let named = self
            .created
            .take(inode)
            .map(|new| (self.path(new.dir, &new.name), new.is_dir));
        let is_dir = match kind {
            InodeKind::File => false,
            InodeKind::Other => true,
            InodeKind::Unknown => named.as_ref().is_some_and(|(_, is_dir)| *is_dir),
        };
        let path = named.and_then(|(path, _)| path);
        if is_dir {
            self.files.remove(&inode);
            self.dirs.insert(inode, path.unwrap_or_default());
        } else {
            self.dirs.remove(&inode);
            self.add(inode, path);
        }
    }

    fn name(&mut self, inode: Inode, dir: Inode, name: &str) {
        // A directory's entries for itself and its parent.
        if name == "." || name == ".." {
            return;
        }
        let path = self.path(dir, name);
        // It may be a directory; file systems of this kind mark a directory's own blocks as
        // metadata.
        if let Some(path) = &path {
            self.dirs.insert(inode, path.clone());
        }
        self.add(inode, path);
    }

    /// The path of a name in a directory, if the directory's path is known.
    fn path(&self, dir: Inode, name: &str) -> Option<String> {
        let dir = self.dirs.get(&dir)?;
        Some(match dir.as_str() {
            "" => name.to_owned(),
            dir => format!("{dir}/{name}"),
        })
    }

    fn give(&mut self, bytes: Range<u64>, to: Holder) {
        let owner = match to {
            Holder::Data(inode) => match self.files.get(&inode) {
                Some(file) => Owner::File(*file),
                None => Owner::File(self.add(inode, None)),
            },
            Holder::NewTreeBlock => Owner::FsJournal,
            Holder::TreeBlock => Owner::FsMetadata,
        };
        for sectors in self.chunks.sectors(bytes) {
            self.owners.give(sectors, owner);
        }
    }

    /// The owners of a part's sectors.
    fn pieces(&self, part: &Part, pieces: &mut Vec<Piece>) {
        let marked = part.letters.asked.metadata;
        for (owner, sectors) in self.owners.owners(part.sectors.clone()) {
            let owner = match (self.metadata, owner) {
                // The mark outweighs a file's ownership: the journal is marked as well.
                (Metadata::Marked, Some(Owner::FsJournal)) if marked => Owner::FsJournal,
                (Metadata::Marked, _) if marked => Owner::FsMetadata,
                (_, Some(owner)) => owner,
                (Metadata::TheRest, None) => Owner::FsMetadata,
                (Metadata::Uncertain, None) if marked => Owner::FsMetadata,
                (_, None) => Owner::Unknown,
            };
            match pieces.last_mut() {
                Some(last) if last.owner == owner && last.task == part.task => {
                    last.sectors += sectors;
                }
                _ => pieces.push(Piece {
                    sectors,
                    owner,
                    task: part.task,
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Letters, Request};

    const ROOT: Inode = Inode { tree: 0, number: 2 };
    const DIR: Inode = Inode {
        tree: 0,
        number: 11,
    };

    fn known(metadata: Metadata) -> Known {
        Known {
            journal: vec![1000..2000, 3000..3008],
            journal_inode: Some(Inode::of(8)),
            files: vec![KnownFile {
                inode: Inode::of(99),
                path: "dir/before".to_owned(),
                extents: vec![500..550, 550..600],
            }],
            dirs: HashMap::from([(ROOT, String::new()), (DIR, "dir".to_owned())]),
            metadata,
            ..Known::default()
        }
    }

    fn new_name(inode: u64, generation: u32, name: &str) -> NewName {
        NewName {
            inode: Inode::of(inode),
            generation,
            dir: DIR,
            name: name.to_owned(),
            is_dir: false,
        }
    }

    fn created(inode: u64) -> Event {
        Event::Created {
            inode: Inode::of(inode),
            kind: InodeKind::File,
        }
    }

    fn mapped(inode: u64, sectors: Range<u64>) -> Event {
        Event::Mapped {
            inode: Inode::of(inode),
            sectors,
        }
    }

    fn written(letters: &str, sectors: Range<u64>) -> Event {
        let request = Request {
            letters: Letters::parse(letters.as_bytes()).unwrap(),
            start: sectors.start,
            sectors: sectors.end - sectors.start,
        };
        Event::Completed(request, 0)
    }

    /// The owners of each I/O's sectors: a path, or the file system's part.
    fn owners(known: Known, events: Vec<Event>) -> Vec<Vec<(String, u64)>> {
        owners_with(known, vec![], events)
    }

    /// The same, where new files have these names.
    fn owners_with(
        known: Known,
        names: Vec<NewName>,
        events: Vec<Event>,
    ) -> Vec<Vec<(String, u64)>> {
        let mut replay = Replay::new(known);
        replay.name_files(names.into_iter());
        let timed = (1..).zip(events);
        let ios: Vec<_> = timed
            .filter_map(|(at_ns, event)| replay.apply(&Timed { at_ns, event }))
            .collect();
        let (files, _, _) = replay.end();
        let name = |owner: Owner| match owner {
            Owner::File(FileId(file)) => {
                let seen = &files[file as usize];
                seen.path.clone().unwrap_or("unnamed".to_owned())
            }
            other => format!("{other:?}"),
        };
        let pieces = |io: &Io| {
            io.pieces
                .iter()
                .map(|p| (name(p.owner), p.sectors))
                .collect()
        };
        ios.iter().map(pieces).collect()
    }

    fn one(name: &str, sectors: u64) -> Vec<(String, u64)> {
        vec![(name.to_owned(), sectors)]
    }

    #[test]
    fn each_sector_belongs_to_the_file_that_had_it_at_the_write() {
        let names = vec![
            new_name(12, 1, "test.db"),
            new_name(13, 1, "test.db-journal"),
            new_name(13, 2, "test.db-wal"),
        ];
        let events = vec![
            created(12),
            mapped(12, 0..8),
            created(13),
            mapped(13, 8..16),
            written("WS", 0..16),
            written("WSM", 1000..1008),
            // SQLite deletes the rollback journal, and a directory gets its blocks.
            Event::Freed(8..16),
            written("W", 8..16),
            mapped(11, 8..16),
            written("W", 8..16),
            // The next file has the same inode and other blocks. Then an older file gets those
            // blocks.
            created(13),
            mapped(13, 16..24),
            written("W", 16..24),
            mapped(99, 16..24),
            written("W", 16..24),
            written("W", 504..508),
            // The file system looks up the journal's map again.
            mapped(8, 1000..2000),
            written("WSM", 1990..1998),
        ];
        let seen = owners_with(known(Metadata::TheRest), names, events);
        let both = vec![
            ("dir/test.db".to_owned(), 8),
            ("dir/test.db-journal".to_owned(), 8),
        ];
        let expected = [
            both,
            one("FsJournal", 8),
            one("FsMetadata", 8),
            one("FsMetadata", 8),
            one("dir/test.db-wal", 8),
            one("dir/before", 8),
            one("dir/before", 4),
            one("FsJournal", 8),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_is_not_certain_is_unknown() {
        let events = || vec![written("W", 0..8), written("WM", 0..8)];
        let of = |metadata| owners(known(metadata), events());
        assert_eq!(
            of(Metadata::TheRest),
            [one("FsMetadata", 8), one("FsMetadata", 8)]
        );
        for metadata in [Metadata::Uncertain, Metadata::Marked] {
            assert_eq!(of(metadata), [one("Unknown", 8), one("FsMetadata", 8)]);
        }
    }

    #[test]
    fn a_mark_outweighs_what_a_file_had_there() {
        let events = vec![
            written("WM", 500..508),
            written("W", 500..508),
            written("WM", 1000..1008),
        ];
        let seen = owners(known(Metadata::Marked), events);
        let expected = [
            one("FsMetadata", 8),
            one("dir/before", 8),
            one("FsJournal", 8),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn an_inode_of_which_no_name_was_seen_is_a_file_without_a_name() {
        let events = vec![
            mapped(77, 0..8),
            written("W", 0..8),
            created(78),
            mapped(78, 8..16),
            written("W", 8..16),
        ];
        let seen = owners(known(Metadata::TheRest), events);
        assert_eq!(seen, [one("unnamed", 8), one("unnamed", 8)]);
    }

    #[test]
    fn a_file_system_may_report_the_name_itself() {
        let named = |name: &str, dir| Event::Named {
            inode: Inode::of(12),
            dir,
            name: name.to_owned(),
        };
        let events = vec![
            named("test.db-wal", DIR),
            mapped(12, 0..8),
            written("W", 0..8),
            named("..", DIR),
            named("notes", ROOT),
            mapped(12, 8..16),
            written("W", 8..16),
        ];
        let seen = owners(known(Metadata::Marked), events);
        assert_eq!(seen, [one("dir/test.db-wal", 8), one("notes", 8)]);
    }

    #[test]
    fn a_new_tree_block_is_a_log_trees_until_the_extent_tree_refers_to_it() {
        let mut known = known(Metadata::Marked);
        known.chunks = Chunks::one(1 << 20, 0, 1 << 20);
        let block = |n: u64| (1 << 20) + n * 16_384..(1 << 20) + (n + 1) * 16_384;
        let given = |n, to| Event::Given {
            bytes: block(n),
            to,
        };
        let file = Inode {
            tree: 5,
            number: 257,
        };
        let events = vec![
            given(0, Holder::NewTreeBlock),
            written("WM", 0..32),
            given(1, Holder::NewTreeBlock),
            given(1, Holder::TreeBlock),
            written("WM", 32..64),
            given(2, Holder::Data(file)),
            written("W", 64..96),
        ];
        let seen = owners(known, events);
        let expected = [
            one("FsJournal", 32),
            one("FsMetadata", 32),
            one("unnamed", 32),
        ];
        assert_eq!(seen, expected);
    }
}
