//! What the processes that use a log tell each other, in a page of shared memory beside it
//! (`-onewrite-shm`): how far the log is durable, which commits are published and not yet durable, who
//! committed last, how many have come to be flushed ([`super::arrivals`]), and whether the log is poisoned.
//!
//! None of it is needed after a crash. Whoever opens a log that nobody else has open begins with a
//! page of zeros. Where there is no page to be had a process keeps these words to itself: then it
//! knows of no commit but its own to be durable, and flushes more than it must.
//!
//! A *mark* is a frame number with a tag of its generation, in one word, so that it is read and raised
//! at once. It is true for ever: what was flushed stays on the device. A mark of another generation
//! says nothing.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use crate::log::arrivals::Arrivals;
use crate::storage::observer::company_lasts;
use crate::storage::{
    Access, NewFile, SharedPage, SharedWords, StorageError, lock_path, remove_file,
};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::fence;
use crate::waits::TOGETHER;
use crate::wal::{FrameNo, Salts, be32};

/// The form of the words that this version understands: "ows" and a number. The lower half of the word
/// tells for which run of the system they are: what one left behind says nothing to the next.
const FORM: u64 = 0x6f77_7301_0000_0000;

/// Who commits: a connection of a process. Only a hint to who else is at work, so that it need not
/// be unique beyond doubt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committer(pub u64);

impl Committer {
    fn process(self) -> u64 {
        self.0 >> 32
    }
}

/// Who else commits to the log at this time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Company {
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
    let mut name = log.to_owned().into_os_string();
    name.push("-shm");
    PathBuf::from(name)
}

fn mark(salts: Salts, frame: FrameNo) -> u64 {
    u64::from(tag(salts)) << 32 | u64::from(frame.0)
}

/// Never 0, the tag of a mark that nobody has set.
fn tag(salts: Salts) -> u32 {
    (be32(&salts.0, 0).rotate_left(16) ^ be32(&salts.0, 4)).max(1)
}

fn frame_of(word: &AtomicU64, salts: Salts) -> Option<FrameNo> {
    let value = word.load(Ordering::Acquire);
    (value >> 32 == u64::from(tag(salts))).then_some(FrameNo(value as u32))
}

impl Shared {
    /// Words that this process keeps to itself.
    pub fn private() -> Shared {
        Shared {
            page: SharedPage::private(),
        }
    }

    /// Opens the shared page of a log. `alone`: nobody else has the log open, nor can open it now.
    ///
    /// # Errors
    /// There is no such page to be had, or it is of another version.
    pub fn open(
        log: &Path,
        access: Access,
        new: NewFile,
        alone: bool,
    ) -> Result<Shared, StorageError> {
        let path = path_of(log);
        if alone {
            // Not overwritten: a file of somebody else's that stands there by a link is not ours to
            // write to, and an old one may have been left with other permissions.
            remove_file(&path)?;
        }
        let page = SharedPage::open(&path, access, new)?;
        if let Some(words) = page.writable() {
            // Any process may be the first to come here.
            let _ = words
                .form
                .compare_exchange(0, form(), Ordering::AcqRel, Ordering::Acquire);
        }
        match page.form.load(Ordering::Acquire) == form() {
            true => Ok(Shared { page }),
            false => Ok(Shared::private()),
        }
    }

    /// Removes the page of a log that nobody uses any more, and the file that its writers locked.
    ///
    /// # Errors
    /// It is there and cannot be removed.
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

    /// Every frame up to this one of this generation is on the device for good.
    pub fn durable(&self, salts: Salts) -> Option<FrameNo> {
        frame_of(&self.page.durable, salts)
    }

    /// Notes that. Only to be called for frames that were published, or are by the caller's hand
    /// about to be, when the flush began.
    pub fn set_durable(&self, salts: Salts, frame: FrameNo) {
        let Some(words) = self.words() else { return };
        let _ = words
            .durable
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |present| {
                let is_of_this = present >> 32 == u64::from(tag(salts));
                let is_known = is_of_this && present as u32 >= frame.0;
                (!is_known).then_some(mark(salts, frame))
            });
    }

    /// Nothing is known of the log any more.
    pub fn forget_durable(&self) {
        if let Some(words) = self.words() {
            words.durable.store(0, Ordering::Release);
        }
    }

    /// The last frame of a commit that is published before it is durable. Under the write lock.
    ///
    /// Whoever sees the frame published sees this mark, too, and finds the frame in the page cache: SQLite
    /// publishes it by plain stores, which the fence keeps behind all that came before.
    pub fn set_deferred(&self, salts: Salts, frame: FrameNo) {
        if let Some(words) = self.words() {
            words.deferred.store(mark(salts, frame), Ordering::Release);
        }
        fence(Ordering::Release);
    }

    /// The frame up to which commits of this generation may not be durable yet; `None` where all are
    /// that were promised to be.
    ///
    /// Of what the caller has seen published before: the fence keeps this look behind that one, and is the other half
    /// of that in [`Shared::set_deferred`].
    pub fn deferred(&self, salts: Salts) -> Option<FrameNo> {
        fence(Ordering::Acquire);
        let deferred = frame_of(&self.page.deferred, salts)?;
        (self.durable(salts) < Some(deferred)).then_some(deferred)
    }

    /// Notes that `who` commits, under the write lock.
    pub fn note_committer(&self, who: Committer) {
        let Some(words) = self.words() else { return };
        let before = Committer(words.committer.load(Ordering::Relaxed));
        if before == who {
            return;
        }
        words.committer.store(who.0, Ordering::Relaxed);
        if before.0 == 0 {
            return;
        }
        self.note_company(before.process() != who.process());
    }

    /// Notes that somebody else is at it too.
    pub fn note_company(&self, in_another_process: bool) {
        let Some(words) = self.words() else { return };
        let now = now();
        words.changed.store(now, Ordering::Relaxed);
        if in_another_process {
            words.process_changed.store(now, Ordering::Relaxed);
        }
    }

    /// Who else has committed a moment ago, or has tried to.
    pub fn company(&self) -> Company {
        let changed = self.page.changed.load(Ordering::Relaxed);
        if changed == 0 {
            return Company::None;
        }
        let now = now();
        // The model checker has a time of its own.
        let lasts = company_lasts(TOGETHER).as_nanos() as u64;
        let is_recent = |then: u64| cfg!(shuttle) || now.saturating_sub(then) < lasts;
        let processes = self.page.process_changed.load(Ordering::Relaxed);
        match (is_recent(changed), processes != 0 && is_recent(processes)) {
            (_, true) => Company::Processes,
            (true, false) => Company::Connections,
            (false, false) => Company::None,
        }
    }

    /// Who has come to be flushed.
    pub fn arrivals(&self) -> Arrivals<'_> {
        Arrivals {
            words: self.words(),
        }
    }

    /// Says to all processes that the log is poisoned.
    pub fn poison(&self) {
        if let Some(words) = self.words() {
            words.poisoned.store(1, Ordering::Release);
        }
    }

    /// Whether some process has said so.
    pub fn is_poisoned(&self) -> bool {
        self.page.poisoned.load(Ordering::Acquire) != 0
    }

    /// How often somebody has flushed for others; see [`Shared::wait_for_flush`].
    pub fn flushes(&self) -> u32 {
        self.page.flushes.load(Ordering::Acquire)
    }

    /// The flush is over: wakes all of other processes who wait for it.
    pub fn note_flush(&self) {
        if let Some(words) = self.words() {
            words.flushes.fetch_add(1, Ordering::AcqRel);
            crate::sync::futex_wake(&words.flushes, u32::MAX);
        }
    }

    /// Waits until somebody has flushed once more than `seen` times, or some time has passed.
    pub fn wait_for_flush(&self, seen: u32, most: Duration) {
        crate::sync::futex_wait(&self.page.flushes, seen, most);
    }

    /// How often the write lock was released; see [`Shared::wait_for_release`].
    pub fn releases(&self) -> u32 {
        self.page.releases.load(Ordering::Acquire)
    }

    /// The write lock was released: wakes those of other processes who wait for that.
    pub fn note_release(&self) {
        if let Some(words) = self.words() {
            words.releases.fetch_add(1, Ordering::AcqRel);
            crate::sync::futex_wake(&words.releases, 1);
        }
    }

    /// Waits until the write lock is released once more than `seen` times, or some time has passed.
    pub fn wait_for_release(&self, seen: u32, most: Duration) {
        crate::sync::futex_wait(&self.page.releases, seen, most);
    }
}

/// The form, for this run of the system.
fn form() -> u64 {
    static RUN: OnceLock<u32> = OnceLock::new();
    let run = RUN.get_or_init(|| {
        let id = std::fs::read("/proc/sys/kernel/random/boot_id");
        // Without it every run is the same, and the page of one that crashed is made anew by whoever
        // opens the log to write.
        id.map_or(0, |id| crc32c::crc32c(&id))
    });
    FORM | u64::from(*run)
}

/// Nanoseconds of CLOCK_MONOTONIC, the same for all processes. Never 0.
fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Who is alone begins anew.
        let third = open(true);
        assert!(third.is_shared() && !third.is_poisoned() && third.durable(OLD).is_none());
    }

    #[test]
    fn company_is_told_by_who_committed_a_moment_ago() {
        let shared = Shared::private();
        for _ in 0..2 {
            shared.note_committer(Committer(1 << 32 | 1));
            assert_eq!(shared.company(), Company::None);
        }
        shared.note_committer(Committer(1 << 32 | 2));
        assert_eq!(shared.company(), Company::Connections);
        shared.note_committer(Committer(2 << 32 | 1));
        assert_eq!(shared.company(), Company::Processes);
        std::thread::sleep(TOGETHER);
        assert_eq!(shared.company(), Company::None);
    }
}
