//! A database's methods for the wal-index: its mapping, and SQLite's locks in it.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::path::Path;

use rustix::param::page_size;

use super::database::database;
use super::vfs::locks_on;
use super::{failed, shielded, with_writer};
use crate::commit::{SharedLog, Writer};
use crate::storage::{Access, make_blocks, make_in_place};
use crate::vfs::background::Service;
use crate::vfs::company::{self, CHECKPOINT_LOCK, WRITE_LOCK};
use crate::vfs::database::Database;
use crate::vfs::ffi::{self, SQLITE_OK, sqlite3_file};
use crate::vfs::inner::Mapping;
use crate::vfs::locks::Held;
use crate::vfs::stall::Counts;

pub unsafe extern "C" fn db_shm_map(
    file: *mut sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: one of our databases; the mapping lasts until xShmUnmap.
    unsafe {
        let database = database(file);
        let inner = &database.inner;
        if region == 0 && inner.index().is_none() && !database.may_only_read_index {
            make_index(database);
        }
        let map = |extend| (inner.methods().xShmMap)(inner.file(), region, size, extend, out);
        let code = match extend != 0 && makes_blocks(database) {
            // SQLite opens the file, which it may empty, and does not make it longer.
            true => match (map(0), region_of_index(region, size, page_size())) {
                (SQLITE_OK, Some(part)) if has_own_locks(database, &database.paths.shm) => {
                    match make_blocks(&database.paths.shm, part) {
                        Err(e) if e.is_no_space() && (*out).is_null() => database.fail(&e.into()),
                        _ => map(extend),
                    }
                }
                (SQLITE_OK, _) => map(extend),
                (code, _) => code,
            },
            false => map(extend),
        };
        if region == 0 {
            let is_mapped = matches!(code, SQLITE_OK | ffi::SQLITE_READONLY);
            database.index.map_failed.set(!is_mapped);
            match code {
                SQLITE_OK => inner.mapped(*out, Mapping::Writable),
                // `readonly_shm=1`, or no permission: still mapped, and others keep it up to date.
                ffi::SQLITE_READONLY => inner.mapped(*out, Mapping::ReadOnly),
                _ => inner.unmapped(),
            }
        }
        code
    }
}

/// Makes the file of the wal-index where SQLite's own would be no place to store into on a full disk. Not
/// where SQLite's locks are POSIX locks: a close here could end those of another thread.
fn make_index(database: &Database) {
    let wants = |log: &SharedLog| {
        log.may_lack_space_for_mapped_blocks() && log.file().access() == Access::ReadWrite
    };
    if database.log().is_some_and(|log| wants(&log))
        && has_own_locks(database, &database.paths.database)
        && let Ok(permissions) = database.permissions()
    {
        // Otherwise SQLite makes it.
        let _ = make_in_place(&database.paths.shm, permissions);
    }
}

/// Whether to make the blocks of the wal-index, before SQLite stores there.
fn makes_blocks(database: &Database) -> bool {
    let wants =
        |log: &SharedLog| log.file().access() == Access::ReadWrite && log.leaves_holes_in_index();
    database.log().is_some_and(|log| wants(&log))
}

/// Whether a close of one of the database's files here ends no lock of another thread's.
fn has_own_locks(database: &Database, path: &Path) -> bool {
    locks_on(database.host, path, true) == Held::Ofd
}

/// The bytes of a region in the file, and those that SQLite maps with it, because the processor's pages
/// are larger.
fn region_of_index(region: c_int, size: c_int, page: usize) -> Option<Range<u64>> {
    let (region, size) = (u64::try_from(region).ok()?, u64::try_from(size).ok()?);
    let mapped = size.max(page as u64);
    let start = region.checked_mul(size)?;
    let start = start - start % mapped;
    Some(start..start.checked_add(mapped)?)
}

pub unsafe extern "C" fn db_shm_lock(
    file: *mut sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    shielded(|| {
        // SAFETY: one of our databases.
        let database = unsafe { database(file) };
        if database.keeps_lock(offset, flags) {
            return SQLITE_OK;
        }
        database.before_shm_unlock(offset, flags);
        if offset != CHECKPOINT_LOCK && flags & ffi::SQLITE_SHM_LOCK != 0 {
            database.has_just_committed.set(false);
        }
        match offset {
            WRITE_LOCK if flags & ffi::SQLITE_SHM_UNLOCK != 0 => {
                let commits = database
                    .writer
                    .borrow()
                    .as_ref()
                    .is_some_and(Writer::has_commit);
                let code =
                    database.watched(Counts::Phases, || write_unlock(database, count, flags));
                if !commits {
                    database.stall_without_commit();
                }
                database.tell_untold();
                code
            }
            // SQLite asks for it to begin to read, where another connection is just publishing a commit.
            // It looks again when it is refused. The application would find its database locked.
            WRITE_LOCK if database.is_of_the_background() => ffi::SQLITE_BUSY,
            WRITE_LOCK => write_lock(database, count, flags),
            CHECKPOINT_LOCK if count == 1 && flags & ffi::SQLITE_SHM_LOCK != 0 => {
                database.lock_for_checkpoint(flags)
            }
            _ if company::is_read_lock(offset, flags) => {
                database.stall_may_begin();
                database.watched(Counts::Phases, || read_lock(database, offset, flags))
            }
            _ if company::is_restart_lock(offset, count, flags)
                && flags & ffi::SQLITE_SHM_LOCK != 0 =>
            {
                database.lock_for_restart(flags)
            }
            _ => {
                if company::is_recovery_unlock(offset, count, flags) {
                    database.recovered();
                }
                let is_read_unlock = company::is_read_unlock(offset, flags);
                let durable = match is_read_unlock {
                    true => await_unannounced(database),
                    false => SQLITE_OK,
                };
                let code = database.inner.shm_lock(offset, count, flags);
                if code == SQLITE_OK && company::is_recovery_lock(offset, count, flags) {
                    database.recovery_begins();
                }
                database.note_checkpoint_lock(offset, count, flags, code);
                if company::is_restart_lock(offset, count, flags) {
                    database.restart_is_over();
                }
                if is_read_unlock {
                    database.note_read_lock(offset, false);
                    database.read_unlocked();
                }
                if code == SQLITE_OK { durable } else { code }
            }
        }
    })
}

fn write_lock(database: &Database, count: c_int, flags: c_int) -> c_int {
    database.stall_may_begin();
    let code = database.inner.shm_lock(WRITE_LOCK, count, flags);
    match code {
        SQLITE_OK => {
            database.write_locked();
            if let Some(writer) = database.writer.borrow_mut().as_mut() {
                writer.transaction_may_begin();
            }
        }
        ffi::SQLITE_BUSY => database.write_refused(),
        _ => {}
    }
    code
}

fn write_unlock(database: &Database, count: c_int, flags: c_int) -> c_int {
    let mut ended = SQLITE_OK;
    if database.held.write.replace(false) {
        let index = database.inner.index_view();
        database.last_commit.set(index);
        let mut resealed = None;
        ended = with_writer(database, |writer| {
            resealed = writer.take_resealed(index);
            writer.transaction_ends(index)
        });
        if resealed.is_none()
            && ended == SQLITE_OK
            && let Some(writer) = database.writer.borrow().as_ref()
        {
            writer.share_published(index);
        }
        if let (Some(resealed), Some(index)) = (resealed, index) {
            match resealed.commit == index.last_frame {
                true => {
                    if let Some(index) = database.inner.writable_index() {
                        index.correct(resealed.checksum);
                    }
                }
                // SQLite has filled a sector after it, which recovery must leave out.
                false => {
                    if let Some(writer) = database.writer.borrow_mut().as_mut() {
                        writer.forget_filling(resealed.commit);
                    }
                    database.inner.invalidate_index();
                }
            }
        }
    }
    let code = database.inner.shm_lock(WRITE_LOCK, count, flags);
    database.end_turn();
    if code == SQLITE_OK { ended } else { code }
}

fn read_lock(database: &Database, lock: c_int, flags: c_int) -> c_int {
    // With the first lock SQLite does not look again when it is refused.
    if database.before_read_lock() && lock != company::FIRST_READ_LOCK {
        return ffi::SQLITE_BUSY;
    }
    let code = database.inner.shm_lock(lock, 1, flags);
    if code != SQLITE_OK {
        return code;
    }
    match database.read_locked(lock) {
        Ok(()) => {
            database.note_read_lock(lock, true);
            SQLITE_OK
        }
        Err(e) => {
            let flags = ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_SHARED;
            database.inner.shm_lock(lock, 1, flags);
            failed(database, &e)
        }
    }
}

/// Makes a commit durable for which `SQLITE_FCNTL_COMMIT_PHASETWO` has not come (J29). The read lock
/// is still held, so the log cannot restart.
fn await_unannounced(database: &Database) -> c_int {
    with_writer(database, |writer| {
        writer.await_own(&|| database.inner.index_view())
    })
}

pub unsafe extern "C" fn db_shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: one of our databases.
    unsafe {
        let database = database(file);
        database.end_remapping();
        // The name may be another database's by now.
        let delete = match database.serves(Service::Lingers) && database.has_moved() {
            true => 0,
            false => delete,
        };
        let inner = &database.inner;
        inner.unmapped();
        (inner.methods().xShmUnmap)(inner.file(), delete)
    }
}

#[cfg(test)]
mod tests {
    use super::region_of_index;

    #[test]
    fn a_region_is_made_with_all_that_is_mapped_with_it() {
        const SIZE: i32 = 32 << 10;
        for (page, region, made) in [
            (4 << 10, 0, 0..32 << 10),
            (4 << 10, 3, 96 << 10..128 << 10),
            (64 << 10, 0, 0..64 << 10),
            (64 << 10, 1, 0..64 << 10),
            (64 << 10, 2, 64 << 10..128 << 10),
        ] {
            assert_eq!(region_of_index(region, SIZE, page), Some(made));
        }
    }
}
