//! The state that processes share while they use a log, in a page of memory next to it
//! (`-onewrite-shm`). It holds how far the log is durable, which commits are published and not yet
//! durable, and who committed last. It also holds how many commits wait for a flush
//! ([`super::arrivals`]), which block the next commit may share ([`super::open_block`]), and whether
//! the log is poisoned. Behind it may lie pages that processes have published ([`super::page_ring`]).
//!
//! None of it is needed after a crash. A process that opens a log alone begins with a page of
//! zeros. If no page is available, a process uses private words. Then it knows of no durable
//! commits but its own, and flushes more than necessary.
//!
//! A *mark* is a frame number with a tag of its history, in one word, so that it is read and raised
//! atomically. It is true forever, because flushed frames stay on the device. A mark of another history
//! says nothing: the log may have restarted, or recovery may have dropped the frame.

use onewrite_common::files::companion;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use crate::log::arrivals::Arrivals;
use crate::log::open_block::OpenBlock;
use crate::storage::observer::company_lasts;
use crate::storage::{
    Access, Make, NewFile, SharedPage, SharedSlots, SharedWords, SlotLayout, StorageError,
    lock_path, remove_file,
};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{fence, spin_until};
use crate::waits::{TOGETHER, TURN_SPIN};
use crate::wal::{FrameNo, History, be32};

/// The form of the words that this version understands: "ows" and a number. The lower half of the
/// word identifies the run of the system: words from an earlier run mean nothing.
const FORM: u64 = 0x6f77_7302_0000_0000;

/// The form of the slots for pages: "owp" and a number. The lower half of the word is a page's size.
const SLOTS_FORM: u64 = 0x6f77_7002_0000_0000;

/// A process that reads what others log notes that no more often, in milliseconds.
const NOTE_READER_EVERY: u32 = 25;
/// It counts as one for so long after it has noted that, in milliseconds.
const READER_LASTS: u32 = 250;

/// The identity of a committing connection. It is only a hint to who else is active, so it need not
/// be strictly unique.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committer(pub u64);

impl Committer {
    fn process(self) -> u64 {
        self.0 >> 32
    }
}

/// Who else commits to the log now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Contention {
    /// Nobody.
    None,
    /// Other connections of this process.
    Connections,
    /// Other processes.
    Processes,
}

/// See the module.
pub struct Shared {
    page: SharedPage,
}

/// The path of the shared page of a log.
pub fn path_of(log: &Path) -> PathBuf {
    companion(log, "-shm")
}

fn mark(history: History, frame: FrameNo) -> u64 {
    u64::from(tag(history)) << 32 | u64::from(frame.0)
}

/// Never 0, which is the tag of an unset mark.
fn tag(history: History) -> u32 {
    let salts = &history.salts.0;
    (be32(salts, 0).rotate_left(16) ^ be32(salts, 4) ^ history.recovery).max(1)
}

/// Raises a mark. One of another history is replaced.
fn raise(word: &AtomicU64, history: History, frame: FrameNo) {
    let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |present| {
        let is_of_this = present >> 32 == u64::from(tag(history));
        let is_known = is_of_this && present as u32 >= frame.0;
        (!is_known).then_some(mark(history, frame))
    });
}

fn frame_of(word: &AtomicU64, history: History) -> Option<FrameNo> {
    let value = word.load(Ordering::Acquire);
    (value >> 32 == u64::from(tag(history))).then_some(FrameNo(value as u32))
}

impl Shared {
    /// Words that only this process uses.
    pub fn private() -> Shared {
        Shared {
            page: SharedPage::private(),
        }
    }

    /// Opens the shared page of a log. `alone`: no other process has the log open, or can open it
    /// now.
    ///
    /// # Errors
    /// No such page is available, or it is of another version.
    pub fn open(
        log: &Path,
        access: Access,
        new: NewFile,
        alone: bool,
    ) -> Result<Shared, StorageError> {
        let path = path_of(log);
        if alone {
            // It is not overwritten: a file of another user that is there through a link is not
            // ours to write. An old file may also have other permissions.
            remove_file(&path)?;
        }
        let page = SharedPage::open(&path, access, new)?;
        if let Some(words) = page.writable() {
            // Any process may be the first here.
            let _ = words
                .form
                .compare_exchange(0, form(), Ordering::AcqRel, Ordering::Acquire);
        }
        match page.form.load(Ordering::Acquire) == form() {
            true => Ok(Shared { page }),
            false => Ok(Shared::private()),
        }
    }

    /// Removes the page of a log that is no longer in use, and the file that its writers locked.
    ///
    /// # Errors
    /// It exists and cannot be removed.
    pub fn remove(log: &Path) -> Result<(), StorageError> {
        remove_file(&lock_path(log))?;
        remove_file(&path_of(log))
    }

    /// Whether other processes see this.
    pub fn is_shared(&self) -> bool {
        self.page.is_shared()
    }

    fn words(&self) -> Option<&SharedWords> {
        self.page.writable()
    }

    /// Every frame up to this one of this history is durable.
    pub fn durable(&self, history: impl Into<History>) -> Option<FrameNo> {
        frame_of(&self.page.durable, history.into())
    }

    /// Notes that. Call it only for frames that were published when the flush began, or that the
    /// caller is about to publish.
    pub fn set_durable(&self, history: impl Into<History>, frame: FrameNo) {
        if let Some(words) = self.words() {
            raise(&words.durable, history.into(), frame);
        }
    }

    /// Forgets how far the log is durable.
    pub fn forget_durable(&self) {
        if let Some(words) = self.words() {
            words.durable.store(0, Ordering::Release);
        }
    }

    /// The last frame of a commit that is published before it is durable. Under the write lock.
    ///
    /// A process that sees the frame published also sees this mark, and finds the frame in the page
    /// cache. SQLite publishes it by plain stores, which the fence keeps after everything before.
    pub fn set_deferred(&self, history: impl Into<History>, frame: FrameNo) {
        if let Some(words) = self.words() {
            let mark = mark(history.into(), frame);
            words.deferred.store(mark, Ordering::Release);
        }
        fence(Ordering::Release);
    }

    /// The frame up to which promised commits of this history may not be durable yet; `None` if all are.
    ///
    /// This covers commits that the caller has seen published before. The fence keeps this load
    /// after that one, and pairs with the fence in [`Shared::set_deferred`].
    pub fn deferred(&self, history: impl Into<History>) -> Option<FrameNo> {
        let history = history.into();
        fence(Ordering::Acquire);
        let deferred = frame_of(&self.page.deferred, history)?;
        (self.durable(history) < Some(deferred)).then_some(deferred)
    }

    /// Notes that a connection commits, under the write lock.
    pub fn note_committer(&self, committer: Committer) {
        let Some(words) = self.words() else { return };
        let before = Committer(words.committer.load(Ordering::Relaxed));
        if before == committer {
            return;
        }
        words.committer.store(committer.0, Ordering::Relaxed);
        if before.0 == 0 {
            return;
        }
        self.note_contention(before.process() != committer.process());
    }

    /// Notes that another committer is active too.
    pub fn note_contention(&self, in_another_process: bool) {
        let Some(words) = self.words() else { return };
        let now = now();
        words.changed.store(now, Ordering::Relaxed);
        if in_another_process {
            words.process_changed.store(now, Ordering::Relaxed);
        }
    }

    /// A number that changes when company is noted.
    pub fn company_noted(&self) -> u64 {
        self.page.changed.load(Ordering::Relaxed)
    }

    /// Who else has committed a moment ago, or has tried to.
    pub fn contention(&self) -> Contention {
        let changed = self.page.changed.load(Ordering::Relaxed);
        if changed == 0 {
            return Contention::None;
        }
        let now = now();
        let lasts = company_lasts(TOGETHER).as_nanos() as u64;
        // A process in another time namespace may have noted a time that is far in the future. The
        // model checker has its own time.
        let is_recent = |then: u64| cfg!(shuttle) || now.abs_diff(then) < lasts;
        let processes = self.page.process_changed.load(Ordering::Relaxed);
        match (is_recent(changed), processes != 0 && is_recent(processes)) {
            (_, true) => Contention::Processes,
            (true, false) => Contention::Connections,
            (false, false) => Contention::None,
        }
    }

    /// Notes that a process reads frames that it has not logged itself. Two such processes are enough:
    /// every process then sees one that is not itself.
    pub fn note_reader(&self, reader: Committer) {
        let Some(words) = self.words() else { return };
        let (process, now) = (reader.process(), now_millis());
        let noted = process << 32 | u64::from(now);
        let present = words
            .readers
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        if let Some(own) = present.iter().position(|word| word >> 32 == process) {
            if age(present[own], now) >= NOTE_READER_EVERY {
                words.readers[own].store(noted, Ordering::Relaxed);
            }
            return;
        }
        let free = present
            .iter()
            .position(|&word| word == 0 || age(word, now) >= READER_LASTS);
        if let Some(free) = free {
            // If another thread or process has it now, the next read tries again.
            let _ = words.readers[free].compare_exchange(
                present[free],
                noted,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// Whether another process reads frames that it has not logged itself.
    pub fn has_other_readers(&self, than: Committer) -> bool {
        self.page.readers.iter().any(|word| {
            let word = word.load(Ordering::Relaxed);
            let is_other = word != 0 && word >> 32 != than.process();
            is_other && age(word, now_millis()) < READER_LASTS
        })
    }

    /// Whether a process has made slots for pages.
    pub fn has_slots(&self) -> bool {
        self.page.slots.load(Ordering::Acquire) != 0
    }

    /// The slots for pages; `None` if there are none of this form, and none can be made.
    pub fn slots(&self, layout: SlotLayout, make: Make) -> Option<SharedSlots> {
        let form = SLOTS_FORM | layout.page_bytes as u64;
        let slots = self.page.slots(layout, make).ok()?;
        if let Some(words) = self.words().filter(|_| make == Make::IfMissing) {
            // After their blocks were made. Any process may be the first here.
            let _ = words
                .slots
                .compare_exchange(0, form, Ordering::AcqRel, Ordering::Acquire);
        }
        (self.page.slots.load(Ordering::Acquire) == form).then_some(slots)
    }

    /// The commits that wait for a flush.
    pub fn arrivals(&self) -> Arrivals<'_> {
        Arrivals {
            words: self.words(),
        }
    }

    /// The block at the log's end that the next commit of a group may share.
    pub fn open_block(&self) -> OpenBlock<'_> {
        OpenBlock {
            words: self.words(),
        }
    }

    /// Tells all processes that the log is poisoned.
    pub fn poison(&self) {
        if let Some(words) = self.words() {
            words.poisoned.store(1, Ordering::Release);
        }
    }

    /// Whether a process has reported that.
    pub fn is_poisoned(&self) -> bool {
        self.page.poisoned.load(Ordering::Acquire) != 0
    }

    /// How often a process has flushed for others; see [`Shared::wait_for_flush`].
    pub fn flushes(&self) -> u32 {
        self.page.flushes.load(Ordering::Acquire)
    }

    /// The flush has ended: wakes all waiters of other processes.
    pub fn note_flush(&self) {
        if let Some(words) = self.words() {
            words.flushes.fetch_add(1, Ordering::AcqRel);
            crate::sync::futex_wake(&words.flushes, u32::MAX);
        }
    }

    /// Waits until there was one more flush than `seen`, or some time has passed.
    pub fn wait_for_flush(&self, seen: u32, most: Duration) {
        crate::sync::futex_wait(&self.page.flushes, seen, most);
    }

    /// Notes that a wait for the log's restart failed: no connection of any process waits for it again
    /// before the log has this many frames. Another process may have noted more frames just now.
    pub fn set_restart_failed(&self, history: impl Into<History>, until: FrameNo) {
        if let Some(words) = self.words() {
            raise(&words.restart_failed, history.into(), until);
        }
    }

    /// See [`Shared::set_restart_failed`]; `None` if no wait of this generation has failed.
    pub fn restart_failed(&self, history: impl Into<History>) -> Option<FrameNo> {
        frame_of(&self.page.restart_failed, history.into())
    }

    /// How often the write lock was released; see [`Shared::wait_for_release`].
    pub fn releases(&self) -> u32 {
        self.page.releases.load(Ordering::Acquire)
    }

    /// The write lock was released: wakes a waiter of another process, unless one looks for that.
    pub fn note_release(&self) {
        let Some(words) = self.words() else { return };
        words.releases.fetch_add(1, Ordering::AcqRel);
        // Before the look. A waiter that ends its own look takes its note back, and then looks once more.
        fence(Ordering::SeqCst);
        if !is_watched(words.watched.load(Ordering::Relaxed), now()) {
            crate::sync::futex_wake(&words.releases, 1);
        }
    }

    /// Looks for a release after `seen` without sleeping. Returns whether it has come; `None` if another
    /// waiter of any process looks.
    pub fn watch_for_release(&self, seen: u32, most: Duration) -> Option<bool> {
        // Other processes are not part of the model.
        let words = self.words().filter(|_| !cfg!(any(shuttle, loom)))?;
        let (present, now) = (words.watched.load(Ordering::Relaxed), now());
        let replace = |old, new| {
            words
                .watched
                .compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
        };
        if is_watched(present, now) || replace(present, now).is_err() {
            return None;
        }
        let has_come = || words.releases.load(Ordering::Relaxed) != seen;
        spin_until(most, has_come);
        // If another waiter took this one for dead, the note is its own.
        let _ = replace(now, 0);
        fence(Ordering::SeqCst);
        Some(has_come())
    }

    /// Waits until the write lock was released once more than `seen`, or some time has passed.
    pub fn wait_for_release(&self, seen: u32, most: Duration) {
        crate::sync::futex_wait(&self.page.releases, seen, most);
    }
}

/// Whether a shared page that begins with these bytes is of this run of the system. `false` where the
/// system has no id for its runs.
pub fn is_of_this_run(page: &[u8; 8]) -> bool {
    form() != FORM && u64::from_ne_bytes(*page) == form()
}

/// Whether a waiter looks for a release. It may have died, or got no processor. So its note holds for twice
/// the time of a look.
fn is_watched(noted: u64, now: u64) -> bool {
    noted != 0 && now.abs_diff(noted) < 2 * TURN_SPIN.as_nanos() as u64
}

/// The form, for this run of the system.
fn form() -> u64 {
    static RUN: OnceLock<u32> = OnceLock::new();
    let run = RUN.get_or_init(|| {
        let id = std::fs::read("/proc/sys/kernel/random/boot_id");
        // Without it every run looks the same. Then the process that opens the log to write makes
        // the page of a crashed run again.
        id.map_or(0, |id| crc32c::crc32c(&id))
    });
    FORM | u64::from(*run)
}

/// Nanoseconds of CLOCK_MONOTONIC, the same for all processes. Never 0.
fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64).max(1)
}

/// A number that differs from moment to moment.
pub fn moment() -> u64 {
    now()
}

/// The same, as far as a part of a word holds it.
pub(super) fn now_millis() -> u32 {
    (now() / 1_000_000) as u32
}

/// The milliseconds since the time in the lower half of a word. Another time namespace may be ahead.
pub(super) fn age(noted: u64, now: u32) -> u32 {
    (now.wrapping_sub(noted as u32) as i32).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::Salts;

    const OLD: Salts = Salts([1, 2, 3, 4, 5, 6, 7, 8]);
    const NEW: Salts = Salts([1, 2, 3, 5, 9, 6, 7, 8]);

    #[test]
    fn a_mark_only_rises_and_only_within_its_generation() {
        let shared = Shared::private();
        assert_eq!(shared.durable(OLD), None);
        shared.set_durable(OLD, FrameNo(7));
        shared.set_durable(OLD, FrameNo(5));
        assert_eq!(shared.durable(OLD), Some(FrameNo(7)));
        assert_eq!(shared.durable(NEW), None);
        shared.set_durable(NEW, FrameNo(0));
        assert_eq!(
            (shared.durable(OLD), shared.durable(NEW)),
            (None, Some(FrameNo(0)))
        );
    }

    /// Another process has waited longer, and sees a longer log.
    #[test]
    fn a_failed_wait_for_the_restart_stays_as_the_longest_log_has_it() {
        let shared = Shared::private();
        shared.set_restart_failed(OLD, FrameNo(90));
        shared.set_restart_failed(OLD, FrameNo(80));
        assert_eq!(shared.restart_failed(OLD), Some(FrameNo(90)));
        shared.set_restart_failed(NEW, FrameNo(10));
        assert_eq!(
            (shared.restart_failed(OLD), shared.restart_failed(NEW)),
            (None, Some(FrameNo(10)))
        );
    }

    /// A leader has looked before recovery dropped a frame, and raises the mark after it.
    #[test]
    fn a_mark_says_nothing_of_what_comes_after_a_recovery() {
        let shared = Shared::private();
        let after = |recovery| History {
            salts: OLD,
            recovery,
        };
        shared.set_deferred(after(2), FrameNo(6));
        shared.set_durable(after(1), FrameNo(9));
        assert_eq!(shared.durable(after(1)), Some(FrameNo(9)));
        assert_eq!(shared.durable(after(2)), None);
        assert_eq!(shared.deferred(after(2)), Some(FrameNo(6)));
        shared.set_durable(after(2), FrameNo(6));
        assert_eq!(shared.deferred(after(2)), None);
    }

    #[test]
    fn deferred_commits_are_those_beyond_the_durable_mark() {
        let shared = Shared::private();
        shared.set_deferred(OLD, FrameNo(4));
        assert_eq!(shared.deferred(OLD), Some(FrameNo(4)));
        assert_eq!(shared.deferred(NEW), None);
        shared.set_durable(OLD, FrameNo(3));
        assert_eq!(shared.deferred(OLD), Some(FrameNo(4)));
        shared.set_durable(OLD, FrameNo(4));
        assert_eq!(shared.deferred(OLD), None);
    }

    #[test]
    fn a_page_of_another_run_of_the_system_is_not_believed() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let log = directory.path().join("log");
        let new = NewFile {
            mode: 0o600,
            owner: None,
        };
        let open = |alone| Shared::open(&log, Access::ReadWrite, new, alone).expect("a page");
        let first = open(true);
        first.set_durable(OLD, FrameNo(9));
        first.poison();
        assert_eq!(open(false).durable(OLD), Some(FrameNo(9)));
        let words = first.words().expect("writable");
        words.form.store(form() + 1, Ordering::Release);
        let second = open(false);
        assert!(!second.is_poisoned() && second.durable(OLD).is_none());
        assert!(!second.is_shared());
        // A process that is alone begins again.
        let third = open(true);
        assert!(third.is_shared() && !third.is_poisoned() && third.durable(OLD).is_none());
    }

    #[test]
    fn contention_is_inferred_from_the_commits_of_a_moment_ago() {
        let shared = Shared::private();
        for _ in 0..2 {
            shared.note_committer(Committer(1 << 32 | 1));
            assert_eq!(shared.contention(), Contention::None);
        }
        shared.note_committer(Committer(1 << 32 | 2));
        assert_eq!(shared.contention(), Contention::Connections);
        shared.note_committer(Committer(2 << 32 | 1));
        assert_eq!(shared.contention(), Contention::Processes);
        std::thread::sleep(TOGETHER);
        assert_eq!(shared.contention(), Contention::None);
    }

    #[test]
    fn each_of_many_processes_sees_another_one_that_reads() {
        let shared = Shared::private();
        let process = |number: u64| Committer(number << 32 | 7);
        assert!(!shared.has_other_readers(process(1)));
        shared.note_reader(process(1));
        assert!(!shared.has_other_readers(process(1)), "it is alone");
        assert!(shared.has_other_readers(process(2)));
        (1..=8).for_each(|number| shared.note_reader(process(number)));
        assert!((1..=8).all(|number| shared.has_other_readers(process(number))));
        // The first two read no longer.
        std::thread::sleep(Duration::from_millis(READER_LASTS.into()));
        assert!((1..=8).all(|number| !shared.has_other_readers(process(number))));
        (3..=8).for_each(|number| shared.note_reader(process(number)));
        assert!((1..=8).all(|number| shared.has_other_readers(process(number))));
    }

    const LONG: Duration = Duration::from_secs(3600);

    /// The note of a waiter that looks, or has died meanwhile.
    fn note_watched(shared: &Shared, since: Duration) {
        let words = shared.words().expect("words of this process");
        let then = now() - since.as_nanos() as u64;
        words.watched.store(then, Ordering::Relaxed);
    }

    #[test]
    fn one_waiter_of_all_processes_looks_for_the_end_of_a_turn() {
        let shared = Shared::private();
        let seen = shared.releases();
        let words = shared.words().expect("words of this process");
        let watch = |most| shared.watch_for_release(seen, most);
        let later = Duration::from_secs(1);
        assert_eq!(watch(Duration::ZERO), Some(false));
        assert_eq!(words.watched.load(Ordering::Relaxed), 0, "it has ended");
        // Another process looks. Its clock may be ahead of this one's.
        words.watched.store(now() + 40_000, Ordering::Relaxed);
        assert_eq!(watch(LONG), None);
        note_watched(&shared, later);
        shared.note_release();
        assert_eq!(watch(LONG), Some(true), "the other one has died");
        assert_eq!(words.watched.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_waiter_that_died_while_it_looked_keeps_no_wake_from_others() {
        let shared = Shared::private();
        note_watched(&shared, 2 * TURN_SPIN);
        let seen = shared.releases();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| shared.wait_for_release(seen, LONG));
            // Until it sleeps, or hardly later.
            std::thread::sleep(Duration::from_millis(20));
            let began = now();
            shared.note_release();
            sleeper.join().expect("no panic");
            assert!(now() - began < LONG.as_nanos() as u64);
        });
    }

    /// The clock of a time namespace may be hours ahead. Writers would wait for a process that ended
    /// long ago.
    #[test]
    fn a_commit_in_the_future_of_this_clock_is_not_recent() {
        let shared = Shared::private();
        let words = shared.words().expect("words of this process");
        let later = now() + 3_600_000_000_000;
        words.changed.store(later, Ordering::Relaxed);
        words.process_changed.store(later, Ordering::Relaxed);
        assert_eq!(shared.contention(), Contention::None);
    }
}
