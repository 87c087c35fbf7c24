//! The result of a whole walk over a log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use super::{Found, LogBytes, Scan, Verdict, Writers, walked};
use crate::log::layout::Geometry;
use crate::log::{ErrorKind, HeaderError, LogError, LogHeader, header};
use crate::mode::Layout;
use crate::storage::{Access, Create, DirectIo, LogFile};
use crate::wal::{FrameNo, WalHeader, array};

/// The most pages that are counted apart; it bounds the memory of a [`Survey`].
pub const MAX_DISTINCT_PAGES: usize = 1 << 20;

/// The last transaction that recovery finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    /// Its last frame.
    pub frame: FrameNo,
    /// Pages of the database after it.
    pub pages: u32,
}

/// Counts of slots after the last valid frame. In a log without fixed positions: counts of frames of
/// the present generation, and the place at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Behind {
    /// Never written.
    pub zeros: u64,
    /// Frames with other salts.
    pub other_generation: u64,
    /// Frames with the log's present salts.
    pub present: u64,
    /// Those of them that end a transaction.
    pub present_commits: u64,
    /// Anything else.
    pub other: u64,
}

/// The result of a whole walk.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The last frame that follows; 0 if frame 1 does not follow.
    pub valid: u32,
    /// The last commit.
    pub committed: Option<Commit>,
    /// Commits among the valid frames.
    pub transactions: u64,
    /// Escaped frames among the valid ones.
    pub escaped: u64,
    /// What is in the next frame's slot; `None` at the end of the file.
    pub end: Option<Found>,
    /// The slots from there on.
    pub behind: Behind,
    /// Why a record at the end cannot be read, if this version does not know its kind.
    pub unread: Option<String>,
    /// Where the valid frames end, in bytes.
    pub used_bytes: u64,
    /// Bytes of the file.
    pub size: u64,
    /// Whether frames were appended meanwhile: then the findings after the end are not reliable.
    pub grew: bool,
    /// Page to the first frame that holds it; `None` beyond [`MAX_DISTINCT_PAGES`].
    pages: Option<BTreeMap<u32, u32>>,
}

impl Survey {
    /// Walks over a log.
    ///
    /// # Errors
    /// An I/O error.
    pub fn of<B: LogBytes + ?Sized>(
        bytes: &B,
        geometry: Geometry,
        wal: WalHeader,
        writers: Writers,
    ) -> io::Result<Survey> {
        Self::with_database(bytes, geometry, wal, writers, None)
    }

    /// Walks over the log of `database`; see [`Scan::with_database`].
    ///
    /// # Errors
    /// An I/O error.
    pub fn with_database<B: LogBytes + ?Sized>(
        bytes: &B,
        geometry: Geometry,
        wal: WalHeader,
        writers: Writers,
        database: Option<&File>,
    ) -> io::Result<Survey> {
        let mut scan = Scan::new(bytes, geometry, wal, writers)?.with_database(database);
        let mut survey = Survey {
            size: scan.size,
            used_bytes: geometry.slot(FrameNo(1)).min(scan.size),
            pages: Some(BTreeMap::new()),
            ..Survey::default()
        };
        let mut resumes_from = None;
        for found in scan.by_ref() {
            let found = found?;
            match found.verdict {
                Verdict::Valid => survey.count_valid(&found, found.offset + found.bytes),
                _ => survey.count_behind(&found),
            }
            resumes_from = resumes_from.or(survey.end.map(|end| end.frame));
        }
        if let Some(walked) = scan.packed.as_ref().filter(|_| survey.end.is_some()) {
            let remains = walked.packed.remains(bytes, wal.salts)?;
            survey.behind.present += remains.frames;
            survey.behind.present_commits += remains.commits;
            survey.unread.clone_from(&walked.unread);
        }
        if let Some(end) = resumes_from.filter(|_| writers == Writers::Maybe) {
            (scan.next, scan.ended_at) = (end, None);
            let before = scan.packed.as_ref().map(|walked| walked.last);
            survey.grew = match walked(bytes, geometry, &wal)? {
                Some(walked) => Some(walked.last) > before,
                None => scan.look()?.verdict == Verdict::Valid,
            };
        }
        Ok(survey)
    }

    fn count_valid(&mut self, found: &Found, ends_at: u64) {
        self.valid = found.frame.0;
        self.used_bytes = ends_at;
        self.escaped += u64::from(found.is_escaped);
        if let Some(pages) = &mut self.pages {
            pages.entry(found.header.page.0).or_insert(found.frame.0);
        }
        if self
            .pages
            .as_ref()
            .is_some_and(|p| p.len() > MAX_DISTINCT_PAGES)
        {
            self.pages = None;
        }
        if found.header.commit_pages != 0 {
            self.transactions += 1;
            self.committed = Some(Commit {
                frame: found.frame,
                pages: found.header.commit_pages,
            });
        }
    }

    fn count_behind(&mut self, found: &Found) {
        self.end.get_or_insert(*found);
        match found.verdict {
            Verdict::Zeros => self.behind.zeros += 1,
            Verdict::OtherGeneration => self.behind.other_generation += 1,
            Verdict::NoFrame => self.behind.other += 1,
            _ if found.is_present => self.behind.present += 1,
            _ => self.behind.other += 1,
        }
        self.behind.present_commits += u64::from(found.is_present_commit());
    }

    /// Bytes of the file after the last valid frame.
    pub fn bytes_beyond(&self) -> u64 {
        self.size.saturating_sub(self.used_bytes)
    }

    /// Distinct pages in the valid frames; `None` if there are more than are counted apart.
    pub fn distinct_pages(&self) -> Option<usize> {
        self.pages.as_ref().map(BTreeMap::len)
    }

    /// How many pages from `first` on are in no committed frame, in a database of the size in the
    /// last commit; `None` as above.
    pub fn pages_missing_from(&self, first: u32) -> Option<u32> {
        let last = self.committed?;
        let pages = self.pages.as_ref()?;
        let wanted = (u64::from(last.pages) + 1).saturating_sub(u64::from(first)) as u32;
        let behind = pages.range(first..=last.pages.max(first));
        let held = behind.filter(|&(&page, &frame)| page <= last.pages && frame <= last.frame.0);
        Some(wanted.saturating_sub(held.count() as u32))
    }

    /// How many pages a checkpoint of all committed frames writes; `None` as above.
    pub fn pages_to_checkpoint(&self) -> Option<usize> {
        let Some(last) = self.committed else {
            return Some(0);
        };
        let committed =
            |&(&page, &first): &(&u32, &u32)| page <= last.pages && first <= last.frame.0;
        Some(self.pages.as_ref()?.iter().filter(committed).count())
    }
}

/// A log on disk with a WAL header that SQLite would accept, opened read-only.
pub struct OpenedLog {
    /// The file.
    pub file: LogFile,
    /// Our own header; `None` in one of SQLite's own logs.
    pub header: Option<LogHeader>,
    /// SQLite's header.
    pub wal: WalHeader,
    /// The positions of its frames.
    pub geometry: Geometry,
}

impl OpenedLog {
    /// The log at `path`: our log or, without our header, SQLite's own. `None` if it is empty, or
    /// if SQLite would not accept its WAL header.
    ///
    /// # Errors
    /// It is missing, damaged, of a newer version, or cannot be read.
    pub fn at(path: &Path) -> Result<Option<OpenedLog>, LogError> {
        let file = LogFile::open(path, Create::Never, Access::ReadOnly, DirectIo::Never)?;
        let cannot = |e: io::Error| LogError::io(ErrorKind::Read, path, "read", &e);
        let Some(parsed) = header::of(&file).map_err(cannot)? else {
            return Ok(None);
        };
        let mut head = [0; header::HEADER_BYTES];
        LogFile::read_at(&file, &mut head, 0)?;
        let header = match parsed {
            Ok(header) => Some(header),
            Err(HeaderError::Magic) if WalHeader::parse(&array(&head)).is_some() => None,
            Err(e) => return Err(LogError::new(ErrorKind::CantOpen, path, e.to_string())),
        };
        let (wal, layout) = match &header {
            Some(header) => (header.wal_header(), header.layout),
            None => (WalHeader::parse(&array(&head)), Layout::Stock),
        };
        let Some(wal) = wal else { return Ok(None) };
        let geometry = Geometry::new(layout, wal.page_size, 1)
            .map_err(|why| LogError::new(ErrorKind::Unsuited, path, why))?;
        Ok(Some(OpenedLog {
            file,
            header,
            wal,
            geometry,
        }))
    }

    /// Our log at `path`, if our header in it is damaged and SQLite's is whole. It is read in the
    /// layout with the most valid frames, each proved by SQLite's checksums. `None` if none is
    /// valid.
    ///
    /// # Errors
    /// It is missing, or cannot be read.
    pub fn without_header(path: &Path) -> Result<Option<OpenedLog>, LogError> {
        let mut found = None;
        for layout in Layout::ALL
            .into_iter()
            .filter(|layout| *layout != Layout::Stock)
        {
            let file = LogFile::open(path, Create::Never, Access::ReadOnly, DirectIo::Never)?;
            let mut head = [0; header::HEADER_BYTES];
            LogFile::read_at(&file, &mut head, 0)?;
            let Some(wal) = WalHeader::parse(&array(&head[header::WAL_AT..])) else {
                return Ok(None);
            };
            let Ok(geometry) = Geometry::new(layout, wal.page_size, 1) else {
                continue;
            };
            // Records that seem to be of a newer version are not of this layout.
            let survey = Survey::of(&file, geometry, wal, Writers::None);
            let valid = survey.map_or(0, |survey| survey.valid);
            if valid > found.as_ref().map_or(0, |(most, _)| *most) {
                let log = OpenedLog {
                    file,
                    header: None,
                    wal,
                    geometry,
                };
                found = Some((valid, log));
            }
        }
        Ok(found.map(|(_, log)| log))
    }

    /// A whole walk over its frames.
    ///
    /// # Errors
    /// An I/O error.
    pub fn survey(&self, writers: Writers) -> io::Result<Survey> {
        Survey::of(&self.file, self.geometry, self.wal, writers)
    }

    /// A walk over its frames; `database` is the one that it belongs to, see
    /// [`Scan::with_database`].
    ///
    /// # Errors
    /// An I/O error.
    pub fn scan<'a>(
        &'a self,
        writers: Writers,
        database: Option<&'a File>,
    ) -> io::Result<Scan<'a, LogFile>> {
        let scan = Scan::new(&self.file, self.geometry, self.wal, writers)?;
        Ok(scan.with_database(database))
    }
}

/// Surveys the log at `path`; `None` if [`OpenedLog::at`] finds no usable log.
///
/// # Errors
/// It is missing, damaged, of a newer version, or cannot be read.
pub fn survey_file(path: &Path) -> Result<Option<Survey>, LogError> {
    let Some(log) = OpenedLog::at(path)? else {
        return Ok(None);
    };
    log.survey(Writers::Maybe)
        .map(Some)
        .map_err(|e| LogError::io(ErrorKind::Read, path, "read", &e))
}
