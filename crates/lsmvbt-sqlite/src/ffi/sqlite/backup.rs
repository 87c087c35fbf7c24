//! `sqlite3_backup`: copies a database page by page over another one.

use std::ffi::{c_char, c_int};
use std::ptr::NonNull;

use super::{Connection, Error, Opaque, Result, c_string, code};

unsafe extern "C" {
    fn sqlite3_backup_finish(backup: *mut Opaque) -> c_int;
    fn sqlite3_backup_init(
        to: *mut Opaque,
        to_name: *const c_char,
        from: *mut Opaque,
        from_name: *const c_char,
    ) -> *mut Opaque;
    fn sqlite3_backup_step(backup: *mut Opaque, pages: c_int) -> c_int;
}

/// A backup that has begun. Dropping it gives it up.
pub struct Backup<'a> {
    raw: NonNull<Opaque>,
    to: &'a Connection,
}

impl<'a> Backup<'a> {
    pub(super) fn new(to: &'a Connection, from: &'a Connection, schema: &str) -> Result<Self> {
        let schema = c_string(schema)?;
        // SAFETY: both connections are open, and outlive the backup; C strings.
        let raw = unsafe {
            sqlite3_backup_init(
                to.db.as_ptr(),
                c"main".as_ptr(),
                from.db.as_ptr(),
                schema.as_ptr(),
            )
        };
        let raw = NonNull::new(raw).ok_or_else(|| to.error())?;
        Ok(Self { raw, to })
    }

    /// Copies so many pages, or all that are left if the number is negative; false if none are left.
    ///
    /// # Errors
    /// SQLite's.
    pub fn step(&self, pages: i32) -> Result<bool> {
        // SAFETY: it is not finished.
        match unsafe { sqlite3_backup_step(self.raw.as_ptr(), pages) } {
            code::OK => Ok(true),
            code::DONE => Ok(false),
            code => Err(Error {
                code,
                message: "a step of the backup failed".to_owned(),
            }),
        }
    }

    /// Ends it.
    ///
    /// # Errors
    /// SQLite's, of a step that failed.
    pub fn finish(self) -> Result<()> {
        let (raw, to) = (self.raw, self.to);
        std::mem::forget(self);
        // SAFETY: finished once.
        to.check(unsafe { sqlite3_backup_finish(raw.as_ptr()) })
    }
}

impl Drop for Backup<'_> {
    fn drop(&mut self) {
        // SAFETY: finished once.
        unsafe { sqlite3_backup_finish(self.raw.as_ptr()) };
    }
}
