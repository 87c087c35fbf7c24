//! The surroundings of the log in the model: SQLite's part, and the checks of our part.

use onewrite::commit::{CommitConfig, SharedLog, Writer};
use onewrite::log::shared::Committer;
use onewrite::log::{Geometry, Log, LogError, LogId, OpenLog};
use onewrite::mode::{GroupSynch, InitPolicy, JournalMode, Layout, SyncPolicy};
use onewrite::storage::observer::{Call, Observer, observe};
use onewrite::storage::{Access, DirectIo, Init, NewFile};
use onewrite::sync::Instant;
use onewrite::wal::{
    Checksum, FrameHeader, FrameNo, IndexView, PageNo, PageSize, Salts, WalHeader,
};
use shuttle::rand::Rng;
use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use shuttle::thread;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

const PAGE_BYTES: u32 = 512;

/// Writes until one fails. If not positive, none fails.
static WRITES_UNTIL_FAILURE: AtomicI64 = AtomicI64::new(0);
/// Flushes until one fails, likewise.
static FLUSHES_UNTIL_FAILURE: AtomicI64 = AtomicI64::new(0);
/// Distinguishes connections.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

std::thread_local! {
    /// The database of the running test. All threads of a model run on one thread.
    static CURRENT: RefCell<Weak<Machine>> = RefCell::default();
}

/// Lets others run before every call that changes the file, and fails one on demand.
struct Steps;

impl Observer for Steps {
    fn before(&self, _path: &Path, call: &Call<'_>) -> io::Result<()> {
        let mut random = shuttle::rand::thread_rng();
        let pause = match call {
            // Rare, and worst while another thread does all of something. So it may be slow.
            Call::Remove => 1 << random.gen_range(0..11),
            _ => random.gen_range(1..8),
        };
        for _ in 0..pause {
            thread::yield_now();
        }
        if let Some(machine) = CURRENT.with_borrow(Weak::upgrade) {
            machine.check_order();
        }
        let is_commit = matches!(call, Call::Write { offset, .. } if *offset > 0);
        if is_commit
            && let Some(machine) = CURRENT.with_borrow(Weak::upgrade)
            // There a flush fails while another connection writes; its commit fails when it is
            // published.
            && !machine.rules.group_commit
        {
            machine.check_trusted();
        }
        let is_flush = matches!(call, Call::Flush);
        if is_commit && is_due(&WRITES_UNTIL_FAILURE) || is_flush && is_due(&FLUSHES_UNTIL_FAILURE)
        {
            return Err(io::Error::from_raw_os_error(5));
        }
        if is_flush && let Some(machine) = CURRENT.with_borrow(Weak::upgrade) {
            // No other thread runs between this and the flush.
            machine.note_flush();
        }
        Ok(())
    }
}

fn is_due(countdown: &AtomicI64) -> bool {
    countdown.load(Relaxed) > 0 && countdown.fetch_sub(1, Relaxed) == 1
}

/// Makes every write a step of the model.
pub fn watch_writes() {
    observe(Box::new(Steps));
}

/// The subject of the test.
#[derive(Clone, Copy, Default)]
pub struct Rules {
    pub group: Option<GroupSynch>,
    /// Strict group commit.
    pub group_commit: bool,
    /// Whether the interval is checked exactly: the clock stands still while threads run, as long
    /// as there is one process.
    pub timely: bool,
}

/// SQLite's wal-index.
#[derive(Clone, Copy)]
struct Index {
    header: WalHeader,
    /// Whether the header is in the log. If not, it is written before frame 1.
    begun: bool,
    last: FrameNo,
    checksum: Checksum,
    /// When the last commit was published.
    published: Option<Instant>,
}

impl Index {
    fn view(&self) -> IndexView {
        let mut checksum = [0; 8];
        checksum[..4].copy_from_slice(&self.checksum[0].to_be_bytes());
        checksum[4..].copy_from_slice(&self.checksum[1].to_be_bytes());
        IndexView {
            salts: self.header.salts,
            last_frame: self.last,
            checksum,
            recovery: 0,
        }
    }
}

/// The database as all processes share it.
pub struct Machine {
    rules: Rules,
    page: PageSize,
    geometry: Geometry,
    id: LogId,
    path: PathBuf,
    /// SQLite's WRITER lock.
    write_lock: Mutex<()>,
    /// The readers' marks: a log is not restarted while a reader uses it.
    marks: RwLock<()>,
    index: Mutex<Index>,
    /// A copy of the wal-index, to read without a step of the model.
    peek: std::sync::Mutex<Index>,
    failed: Mutex<Vec<String>>,
    /// The generation, and how many of its frames the last flush found in the file.
    flushed: std::sync::Mutex<(Salts, u32)>,
    /// The logs that processes have opened. The mutex is not the model's: reading them is no step.
    logs: std::sync::Mutex<Vec<Weak<SharedLog>>>,
    file: File,
    _directory: tempfile::TempDir,
}

/// One process that has the log open.
pub struct Process {
    number: u32,
    machine: Arc<Machine>,
    log: Arc<SharedLog>,
}

/// One connection.
pub struct Connection {
    machine: Arc<Machine>,
    /// The wal-index at the last look.
    seen: (Salts, FrameNo),
    writer: Writer,
}

fn generation(number: u32) -> WalHeader {
    let page = PageSize::new(PAGE_BYTES).expect("a page size");
    WalHeader::build(page, number, Salts([number as u8 + 1; 8]))
}

/// The content of the page in a frame, from its generation and number.
fn content(salts: Salts, frame: FrameNo) -> Vec<u8> {
    let mut page = vec![salts.0[0]; PAGE_BYTES as usize];
    page[..4].copy_from_slice(&frame.0.to_be_bytes());
    page
}

fn open<'a>(path: &'a Path, page: PageSize) -> OpenLog<'a> {
    OpenLog {
        path,
        companions_of: path,
        mode: JournalMode::Waldio,
        page,
        access: Access::ReadWrite,
        new_file: NewFile {
            mode: 0o600,
            owner: None,
        },
        init: InitPolicy::Always(Init::ZeroFill),
        direct: DirectIo::Never,
        patience: &onewrite::storage::Short,
    }
}

impl Machine {
    /// A guarded database with an empty log.
    pub fn new(rules: Rules) -> Arc<Machine> {
        WRITES_UNTIL_FAILURE.store(0, Relaxed);
        FLUSHES_UNTIL_FAILURE.store(0, Relaxed);
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let path = directory.path().join("db-onewrite");
        let page = PageSize::new(PAGE_BYTES).expect("a page size");
        let log = Log::create(&open(&path, page), Layout::Page4k).expect("a log");
        let header = generation(0);
        let index = Index {
            header,
            begun: false,
            last: FrameNo(0),
            checksum: header.checksum(),
            published: None,
        };
        let machine = Arc::new(Machine {
            rules,
            page,
            geometry: *log.geometry(),
            id: log.id().expect("an id"),
            write_lock: Mutex::new(()),
            marks: RwLock::new(()),
            index: Mutex::new(index),
            peek: std::sync::Mutex::new(index),
            failed: Mutex::new(Vec::new()),
            flushed: std::sync::Mutex::new((header.salts, 0)),
            logs: std::sync::Mutex::default(),
            file: File::open(&path).expect("the log"),
            path,
            _directory: directory,
        });
        CURRENT.replace(Arc::downgrade(&machine));
        machine
    }

    /// A process opens the database.
    pub fn start(self: &Arc<Self>) -> Arc<Process> {
        let log = Log::open_guarded(&open(&self.path, self.page), self.id).expect("the log");
        let log = Arc::new(SharedLog::from(log));
        let mut logs = self.logs.lock().expect("no panic");
        logs.push(Arc::downgrade(&log));
        Arc::new(Process {
            number: logs.len() as u32,
            machine: Arc::clone(self),
            log,
        })
    }

    /// Makes one of the next few writes fail.
    pub fn fail_a_write(&self) {
        let which = shuttle::rand::thread_rng().gen_range(1..4);
        WRITES_UNTIL_FAILURE.store(which, Relaxed);
    }

    /// Makes one of the next few flushes fail.
    pub fn fail_a_flush(&self) {
        let which = shuttle::rand::thread_rng().gen_range(1..4);
        FLUSHES_UNTIL_FAILURE.store(which, Relaxed);
    }

    /// From now on, the file's current content survives a power cut.
    fn note_flush(&self) {
        let index = *self.peek.lock().expect("no panic");
        let salts = index.header.salts;
        let whole = self.in_file(salts, index.last.plus(6));
        *self.flushed.lock().expect("no panic") = (salts, whole);
    }

    /// Checks that everything up to a frame survives a power cut.
    fn check_durable(&self, salts: Salts, frame: FrameNo, what: &str) {
        let flushed = *self.flushed.lock().expect("no panic");
        assert!(
            flushed.0 != salts || flushed.1 >= frame.0,
            "{what} frame {frame}, and {} frames are durable",
            flushed.1
        );
    }

    /// Checks the file repeatedly: its content at that time would remain if every process died.
    pub fn watching(self: &Arc<Self>, times: u32) -> Box<dyn FnOnce() + Send> {
        let machine = Arc::clone(self);
        Box::new(move || {
            for _ in 0..times {
                machine.check_bounds();
                thread::yield_now();
            }
        })
    }

    fn index(&self) -> Index {
        *self.index.lock().expect("no panic")
    }

    fn is_in_file(&self, salts: Salts, frame: FrameNo) -> bool {
        let mut page = vec![0; PAGE_BYTES as usize];
        let at = self.geometry.page_offset(frame);
        self.file.read_exact_at(&mut page, at).is_ok() && page == content(salts, frame)
    }

    /// How many frames of the generation the file holds, counted from the first.
    fn in_file(&self, salts: Salts, last: FrameNo) -> u32 {
        let mut frames = (1..=last.0).map(|frame| self.is_in_file(salts, FrameNo(frame)));
        let whole = frames.by_ref().take_while(|there| *there).count() as u32;
        assert!(
            !frames.any(|there| there),
            "frames behind {whole} were written before the next"
        );
        whole
    }

    /// A frame is about to be written. This must not happen after a write failed that others build
    /// on.
    fn check_trusted(&self) {
        let logs = self.logs.lock().expect("no panic");
        let mut open = logs.iter().filter_map(Weak::upgrade);
        assert!(
            open.all(|log| log.poisoned().is_none()),
            "a frame is written to a log that is not to be trusted"
        );
    }

    /// No frame is in the file before its predecessor, published or not.
    fn check_order(&self) {
        let index = self.index();
        if self.failures().is_empty() {
            self.in_file(index.header.salts, index.last.plus(6));
        }
    }

    /// Checks the mode's promise: what the death of every process would leave.
    fn check_bounds(&self) {
        let index = self.index();
        let written = self.in_file(index.header.salts, index.last);
        let lacking = index.last.0 - written;
        let allowed = self.rules.group.map_or(0, |group| group.frames - 1);
        assert!(
            lacking <= allowed || !self.failures().is_empty(),
            "{lacking} published frames are not in the file"
        );
        let Some((group, published)) = self.rules.group.zip(index.published) else {
            return;
        };
        let late = Instant::now() - published > group.interval;
        assert!(
            lacking == 0 || !self.rules.timely || !late,
            "{lacking} frames still wait after {:?}",
            Instant::now() - published
        );
    }

    fn failures(&self) -> Vec<String> {
        self.failed.lock().expect("no panic").clone()
    }

    /// When every process has closed the database, everything is in the file.
    pub fn check_all_written(&self) {
        let index = self.index();
        let written = self.in_file(index.header.salts, index.last);
        assert_eq!(written, index.last.0, "frames in the file after the close");
        assert_eq!(self.failures(), Vec::<String>::new());
    }

    /// After a failed write, every later commit failed.
    pub fn check_failure(&self) {
        let index = self.index();
        let written = self.in_file(index.header.salts, index.last);
        let lost = index.last.0 - written;
        let allowed = self.rules.group.map_or(0, |group| group.frames);
        assert!(lost <= allowed, "{lost} acknowledged frames are lost");
    }
}

impl Process {
    /// A new connection.
    pub fn connect(&self) -> Connection {
        self.connect_with(self.machine.rules.group)
    }

    /// A new connection that does not take part in group synch.
    pub fn connect_alone(&self) -> Connection {
        self.connect_with(None)
    }

    fn connect_with(&self, group_synch: Option<GroupSynch>) -> Connection {
        let committer =
            Committer(u64::from(self.number) << 32 | CONNECTIONS.fetch_add(1, Relaxed) + 1);
        let config = CommitConfig {
            sync: SyncPolicy::Full,
            group_synch,
            group_commit: Some(self.machine.rules.group_commit),
            ..CommitConfig::default()
        };
        Connection {
            machine: Arc::clone(&self.machine),
            seen: (generation(0).salts, FrameNo(0)),
            writer: Writer::new(Arc::clone(&self.log), config, committer),
        }
    }
}

impl Connection {
    /// A transaction of so many frames, as SQLite writes it at `synchronous=FULL`.
    pub fn commit(&mut self, frames: u32) -> Result<(), LogError> {
        let machine = Arc::clone(&self.machine);
        // A reader's mark, which the connection keeps until the commit has returned.
        let _mark = machine.rules.group_commit.then(|| mark(&machine));
        let writer = machine.write_lock.lock().expect("no panic");
        self.writer.transaction_may_begin();
        let mut index = machine.index();
        let written = self.write_frames(&mut index, frames);
        let done = match written {
            Ok(()) => {
                let failed_before = !machine.failures().is_empty();
                index.published = Some(Instant::now());
                *machine.index.lock().expect("no panic") = index;
                *machine.peek.lock().expect("no panic") = index;
                let published = self.end_commit(writer, index.view());
                assert!(
                    published.is_err() || !failed_before || self.writer.log().poisoned().is_none(),
                    "a commit was acknowledged on a poisoned log"
                );
                published
            }
            Err(e) => {
                let before = machine.index();
                let ended = self.writer.transaction_ends(Some(before.view()));
                Err(ended.err().unwrap_or(e))
            }
        };
        if let Err(e) = &done {
            machine.failed.lock().expect("no panic").push(e.to_string());
        } else if machine.failures().is_empty() {
            machine.check_bounds();
        }
        done
    }

    /// The commit is published: SQLite releases the write lock, and then reports the commit.
    fn end_commit(&mut self, lock: MutexGuard<'_, ()>, index: IndexView) -> Result<(), LogError> {
        let machine = Arc::clone(&self.machine);
        if !machine.rules.group_commit {
            return self.writer.published(Some(index));
        }
        self.writer.transaction_ends(Some(index))?;
        drop(lock);
        self.writer.published(Some(machine.index().view()))?;
        self.writer.await_own(&|| Some(machine.index().view()))?;
        machine.check_durable(index.salts, index.last_frame, "acknowledged is");
        Ok(())
    }

    fn write_frames(&mut self, index: &mut Index, frames: u32) -> Result<(), LogError> {
        let before = Some(index.view());
        let view = || before;
        if !index.begun {
            self.writer.write(&index.header.bytes, 0, &view)?;
            index.begun = true;
        }
        for left in (0..frames).rev() {
            let frame = index.last.plus(1);
            let page = content(index.header.salts, frame);
            let commit = if left == 0 { frame.0 } else { 0 };
            let number = PageNo(frame.0);
            let header = FrameHeader::build(number, commit, &index.header, index.checksum, &page);
            let at = self.machine.page.frame_range(frame).start;
            self.writer.write(&header.to_bytes(), at, &view)?;
            self.writer.write(&page, at + 24, &view)?;
            (index.last, index.checksum) = (frame, header.checksum);
        }
        self.writer.sync(before, &|| true)
    }

    /// Lets others run until one of them has committed, or for long enough: all may have finished.
    pub fn wait_for_news(&mut self) {
        for _ in 0..200 {
            let index = self.machine.index();
            let now = (index.header.salts, index.last);
            if now != std::mem::replace(&mut self.seen, now) {
                return;
            }
            thread::yield_now();
        }
    }

    /// A read transaction: every frame of the snapshot has its committed content.
    pub fn read_all(&mut self) -> Result<(), LogError> {
        let machine = Arc::clone(&self.machine);
        let _mark = mark(&machine);
        let index = machine.index();
        if machine.rules.group_commit {
            let log = Arc::clone(self.writer.log());
            log.await_deferred(index.view(), &|| Some(machine.index().view()))?;
            machine.check_durable(index.header.salts, index.last, "read is");
        }
        for frame in 1..=index.last.0 {
            let frame = FrameNo(frame);
            let mut page = vec![0; PAGE_BYTES as usize];
            let at = machine.page.frame_range(frame).start + 24;
            self.writer.read(&mut page, at, Some(index.view()))?;
            let expected = content(index.header.salts, frame);
            assert!(page == expected, "frame {frame} is another one");
            thread::yield_now();
        }
        Ok(())
    }

    /// A checkpoint. The next commit then restarts the log, unless a reader uses it.
    pub fn restart(&mut self) -> Result<(), LogError> {
        let machine = Arc::clone(&self.machine);
        self.writer.drain()?;
        let _writer = machine.write_lock.lock().expect("no panic");
        let Ok(_marks) = machine.marks.try_write() else {
            return Ok(());
        };
        // Frames reach the log before their pages reach the database.
        self.writer.drain()?;
        let mut index = machine.index.lock().expect("no panic");
        let written = machine.in_file(index.header.salts, index.last);
        assert_eq!(written, index.last.0, "frames in the file at a checkpoint");
        index.header = generation(index.header.checkpoints + 1);
        (index.begun, index.last) = (false, FrameNo(0));
        index.checksum = index.header.checksum();
        index.published = None;
        *machine.peek.lock().expect("no panic") = *index;
        Ok(())
    }

    /// Does what `journal_size_limit` asks for: under the write lock, cuts the log to the frames
    /// that count.
    pub fn shrink(&mut self) -> Result<(), LogError> {
        let machine = Arc::clone(&self.machine);
        let _writer = machine.write_lock.lock().expect("no panic");
        let end = machine.page.frame_range(machine.index().last).end;
        self.writer.truncate(end)
    }
}

fn mark(machine: &Machine) -> RwLockReadGuard<'_, ()> {
    machine.marks.read().expect("no panic")
}
