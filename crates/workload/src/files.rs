//! Mobibench's file part: records written to, or read from, plain files, without SQLite.
//!
//! Each thread has its own file, which is filled and synced before the run. One system call writes
//! or reads a record at a multiple of its size. The order is sequential, repeated from the
//! beginning, or random. The way of writing decides whether the record is durable. Every record
//! carries the number of its write. So the seed determines the expected content of every read, and
//! the final content of the files.
//!
//! Three of Mobibench's ways use a mapping of the file: only a copy, or a copy and then msync.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::fs::{OFlags, fdatasync, fsync};
use serde::Serialize;

use crate::Error;
use crate::draws::Draws;
use crate::mapping::Mapping;
use crate::team::{self, Control, Finished, Worker};

/// The operation on a record, and the position of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Written, one after the other.
    SequentialWrite,
    /// Written at random.
    RandomWrite,
    /// Written at the end of a file that is empty at first.
    Append,
    /// Read, one after the other.
    SequentialRead,
    /// Read at random.
    RandomRead,
}

impl Access {
    /// The name in the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SequentialWrite => "sequential-write",
            Self::RandomWrite => "random-write",
            Self::Append => "append",
            Self::SequentialRead => "sequential-read",
            Self::RandomRead => "random-read",
        }
    }

    fn writes(self) -> bool {
        matches!(
            self,
            Self::SequentialWrite | Self::RandomWrite | Self::Append
        )
    }

    fn is_random(self) -> bool {
        matches!(self, Self::RandomWrite | Self::RandomRead)
    }
}

/// The system calls for writing and reading records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Only `pwrite` and `pread` through the page cache.
    Write,
    /// The file is opened with O_SYNC.
    OSync,
    /// fsync follows each write.
    Fsync,
    /// fdatasync follows each write.
    Fdatasync,
    /// The file is opened with O_DIRECT.
    ODirect,
    /// The file is opened with O_DIRECT and O_SYNC.
    ODirectOSync,
    /// Only copied into a shared mapping of the file, or out of it.
    Mmap,
    /// The same, and msync with MS_ASYNC follows each write; on Linux that starts nothing.
    MmapMsAsync,
    /// The same, and msync with MS_SYNC follows each write.
    MmapMsSync,
}

impl Way {
    /// The name in the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::OSync => "o-sync",
            Self::Fsync => "fsync",
            Self::Fdatasync => "fdatasync",
            Self::ODirect => "o-direct",
            Self::ODirectOSync => "o-direct-o-sync",
            Self::Mmap => "mmap",
            Self::MmapMsAsync => "mmap-ms-async",
            Self::MmapMsSync => "mmap-ms-sync",
        }
    }

    fn maps(self) -> bool {
        matches!(self, Self::Mmap | Self::MmapMsAsync | Self::MmapMsSync)
    }

    fn flags(self) -> OFlags {
        match self {
            Self::Write | Self::Fsync | Self::Fdatasync => OFlags::empty(),
            Self::Mmap | Self::MmapMsAsync | Self::MmapMsSync => OFlags::empty(),
            Self::OSync => OFlags::SYNC,
            Self::ODirect => OFlags::DIRECT,
            Self::ODirectOSync => OFlags::DIRECT | OFlags::SYNC,
        }
    }
}

/// All parameters of a run.
#[derive(Clone, Debug)]
pub struct FilePlan {
    /// The operation.
    pub access: Access,
    /// The system calls.
    pub way: Way,
    /// Records in total, over every thread.
    pub count: u32,
    /// Bytes of a record; a multiple of 512 for direct I/O.
    pub record_bytes: usize,
    /// Records of each file; of one that is appended to, at the end.
    pub records: u32,
    /// Threads, each with a file.
    pub threads: u32,
    /// The seed of random positions.
    pub seed: u64,
}

/// Memory for direct I/O: it begins at a page.
struct Aligned {
    bytes: Vec<u8>,
    from: usize,
    length: usize,
}

impl Aligned {
    const ALIGN: usize = 4096;

    fn new(length: usize) -> Self {
        let bytes = vec![0; length + Self::ALIGN];
        let from = bytes.as_ptr().align_offset(Self::ALIGN).min(Self::ALIGN);
        Self {
            bytes,
            from,
            length,
        }
    }

    fn get(&mut self) -> &mut [u8] {
        let to = self.from + self.length;
        self.bytes.get_mut(self.from..to).unwrap_or_default()
    }
}

/// The filled files. Dropping this removes them.
#[derive(Debug)]
pub struct Prepared {
    plan: FilePlan,
    paths: Vec<PathBuf>,
}

impl FilePlan {
    /// The number of records of this thread.
    fn share(&self, thread: u32) -> u32 {
        let threads = self.threads.max(1);
        self.count / threads + u32::from(thread < self.count % threads)
    }

    /// The record of a thread's n-th operation.
    fn place(&self, thread: u32, nth: u32) -> u32 {
        match self.access.is_random() {
            true => Draws::of(self.seed ^ u64::from(thread) << 48, nth).below(self.records),
            false => nth % self.records.max(1),
        }
    }

    /// Fills in a record's content: the number of its write, 0 for that before the run.
    fn stamp(&self, thread: u32, place: u32, write: u32, record: &mut [u8]) {
        record.fill((write ^ place ^ thread) as u8);
        let stamp = u64::from(write) << 32 | u64::from(place);
        for (to, from) in record.iter_mut().zip(stamp.to_le_bytes()) {
            *to = from;
        }
    }

    /// Records of a file before the run.
    fn filled(&self) -> u32 {
        match self.access {
            Access::Append => 0,
            _ => self.records,
        }
    }

    /// Makes and fills the files in `dir`.
    pub fn prepare(&self, dir: &Path) -> Result<Prepared, Error> {
        let mut prepared = Prepared {
            plan: self.clone(),
            paths: Vec::new(),
        };
        let mut record = vec![0; self.record_bytes];
        for thread in 0..self.threads {
            let path = dir.join(format!("records-{thread}"));
            let mut file = File::create(&path).map_err(Error::io("create", &path))?;
            prepared.paths.push(path.clone());
            for place in 0..self.filled() {
                self.stamp(thread, place, 0, &mut record);
                file.write_all(&record).map_err(Error::io("fill", &path))?;
            }
            file.sync_all().map_err(Error::io("sync", &path))?;
        }
        Ok(prepared)
    }
}

impl Prepared {
    /// Runs the plan. It calls `gate` when all threads are ready; they start when `gate` returns.
    pub fn run(
        &self,
        control: &Control,
        stop: &AtomicBool,
        gate: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Finished, Error> {
        let threads = (0..).zip(&self.paths);
        let workers: Result<Vec<_>, Error> = threads
            .map(|(thread, path)| Records::open(&self.plan, thread, path))
            .collect();
        team::run_workers(workers?, control, stop, gate)
    }

    /// The files, one for each thread.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// `ok`, or the first record that differs from its last write.
    pub fn check(&self) -> Result<String, Error> {
        let plan = &self.plan;
        let mut record = vec![0; plan.record_bytes];
        let mut expected = record.clone();
        for (thread, path) in (0..).zip(&self.paths) {
            let file = File::open(path).map_err(Error::io("open", path))?;
            let mut last = vec![0; plan.records as usize];
            for nth in 0..plan.share(thread) {
                if let Some(last) = last.get_mut(plan.place(thread, nth) as usize)
                    && plan.access.writes()
                {
                    *last = nth + 1;
                }
            }
            for (place, write) in (0..).zip(last) {
                plan.stamp(thread, place, write, &mut expected);
                let offset = u64::from(place) * plan.record_bytes as u64;
                file.read_exact_at(&mut record, offset)
                    .map_err(Error::io("read", path))?;
                if record != expected {
                    return Ok(format!(
                        "file {thread}: record {place} is not write {write}"
                    ));
                }
            }
        }
        Ok("ok".to_owned())
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        for path in &self.paths {
            // It may be gone already. An error here cannot be reported.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// One thread's work.
struct Records<'a> {
    plan: &'a FilePlan,
    thread: u32,
    path: &'a Path,
    file: File,
    /// A mapping of the whole file, for a way that uses one.
    mapping: Option<Mapping>,
    buffer: Aligned,
    /// The number of prepared operations.
    nth: u32,
    offset: u64,
    expected: Vec<u8>,
}

impl<'a> Records<'a> {
    fn open(plan: &'a FilePlan, thread: u32, path: &'a Path) -> Result<Self, Error> {
        let flags = i32::try_from(plan.way.flags().bits()).unwrap_or(0);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(path)
            .map_err(Error::io("open", path))?;
        let mapping = plan
            .way
            .maps()
            .then(|| Mapping::of(&file).map_err(Error::io("map", path)))
            .transpose()?;
        Ok(Self {
            mapping,
            plan,
            thread,
            path,
            file,
            buffer: Aligned::new(plan.record_bytes),
            nth: 0,
            offset: 0,
            expected: vec![0; plan.record_bytes],
        })
    }

    fn write(&mut self) -> Result<(), Error> {
        let record = self.buffer.get();
        if let Some(mapping) = &mut self.mapping {
            let synced = mapping.write(self.offset, record).and_then(|()| {
                let length = record.len();
                match self.plan.way {
                    Way::MmapMsAsync => mapping.start_sync(self.offset, length),
                    Way::MmapMsSync => mapping.sync(self.offset, length),
                    _ => Ok(()),
                }
            });
            return synced.map_err(Error::io("write through a mapping of", self.path));
        }
        self.file
            .write_all_at(record, self.offset)
            .map_err(Error::io("write to", self.path))?;
        match self.plan.way {
            Way::Fsync => fsync(&self.file).map_err(Error::io("fsync", self.path)),
            Way::Fdatasync => fdatasync(&self.file).map_err(Error::io("fdatasync", self.path)),
            _ => Ok(()),
        }
    }

    fn read(&mut self) -> Result<(), Error> {
        let record = self.buffer.get();
        match &self.mapping {
            Some(mapping) => mapping.read(self.offset, record),
            None => self.file.read_exact_at(record, self.offset),
        }
        .map_err(Error::io("read", self.path))?;
        match *record == *self.expected {
            true => Ok(()),
            false => Err(Error::Wrong(format!(
                "{}: byte {}: a record is not what was written",
                self.path.display(),
                self.offset
            ))),
        }
    }
}

impl Worker for Records<'_> {
    fn prepare(&mut self) -> bool {
        if self.nth >= self.plan.share(self.thread) {
            return false;
        }
        let place = self.plan.place(self.thread, self.nth);
        self.nth += 1;
        self.offset = u64::from(place) * self.plan.record_bytes as u64;
        match self.plan.access.writes() {
            true => self
                .plan
                .stamp(self.thread, place, self.nth, self.buffer.get()),
            false => self.plan.stamp(self.thread, place, 0, &mut self.expected),
        }
        true
    }

    fn execute(&mut self) -> Result<(), Error> {
        match self.plan.access.writes() {
            true => self.write(),
            false => self.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static NEVER: AtomicBool = AtomicBool::new(false);

    fn plan(access: Access, way: Way) -> FilePlan {
        FilePlan {
            access,
            way,
            count: 101,
            record_bytes: 4096,
            records: 16,
            threads: 3,
            seed: 5,
        }
    }

    #[test]
    fn every_way_of_access_leaves_what_it_must_and_no_file() {
        let dir = tempfile::tempdir_in(".").unwrap();
        for access in [
            Access::SequentialWrite,
            Access::RandomWrite,
            Access::SequentialRead,
            Access::RandomRead,
        ] {
            for way in [
                Way::Write,
                Way::OSync,
                Way::Fsync,
                Way::Fdatasync,
                Way::ODirect,
                Way::ODirectOSync,
                Way::Mmap,
                Way::MmapMsAsync,
                Way::MmapMsSync,
            ] {
                let prepared = plan(access, way).prepare(dir.path()).unwrap();
                let control = Control::default();
                let finished = match prepared.run(&control, &NEVER, || Ok(())) {
                    // Direct I/O is not available here, as on tmpfs before Linux 6.6.
                    Err(Error::Io { doing, .. })
                        if doing == "open" && way.flags().contains(OFlags::DIRECT) =>
                    {
                        continue;
                    }
                    finished => finished.unwrap(),
                };
                assert_eq!(finished.latencies.count(), 101, "{access:?} {way:?}");
                assert_eq!(prepared.check().unwrap(), "ok", "{access:?} {way:?}");
            }
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_is_appended_to_is_empty_before_and_whole_after() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let plan = FilePlan {
            records: 101,
            threads: 1,
            ..plan(Access::Append, Way::Fdatasync)
        };
        let prepared = plan.prepare(dir.path()).unwrap();
        let bytes = || std::fs::metadata(&prepared.paths[0]).unwrap().len();
        assert_eq!(bytes(), 0);
        let control = Control::default();
        prepared.run(&control, &NEVER, || Ok(())).unwrap();
        assert_eq!(bytes(), 101 * 4096);
        assert_eq!(prepared.check().unwrap(), "ok");
    }

    #[test]
    fn a_record_that_is_another_is_found() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let prepared = plan(Access::SequentialWrite, Way::Write)
            .prepare(dir.path())
            .unwrap();
        prepared
            .run(&Control::default(), &NEVER, || Ok(()))
            .unwrap();
        let damage = |byte: u64| {
            let path = dir.path().join("records-2");
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&[0xEE], byte).unwrap();
        };
        damage(4096 * 7 + 100);
        assert!(
            prepared
                .check()
                .unwrap()
                .starts_with("file 2: record 7 is not")
        );
        let reading = plan(Access::SequentialRead, Way::Write)
            .prepare(dir.path())
            .unwrap();
        damage(4096 * 3);
        let error = reading
            .run(&Control::default(), &NEVER, || Ok(()))
            .unwrap_err();
        assert!(
            error.to_string().contains("is not what was written"),
            "{error}"
        );
    }
}
