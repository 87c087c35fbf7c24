//! Finds the database that a log's name belongs to. SQLite always passes the same pointer for the
//! log of one connection's database.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::Mutex;

use crate::sync;
use crate::vfs::database::Database;

#[derive(Clone, Copy)]
struct Named(*const Database);

// SAFETY: only the thread that uses a connection follows the pointer to its database.
unsafe impl Send for Named {}

static LOG_NAMES: Mutex<Option<HashMap<usize, Named>>> = Mutex::new(None);

/// Enters a database that was just opened.
///
/// # Safety
/// `database` lives until [`forget`] is called with it.
pub unsafe fn enter(log_name: *const c_char, database: *const Database) {
    let mut names = sync::lock_static(&LOG_NAMES);
    names
        .get_or_insert_default()
        .insert(log_name.addr(), Named(database));
}

/// Removes a database that is about to be closed.
pub fn forget(database: *const Database) {
    let mut names = sync::lock_static(&LOG_NAMES);
    names
        .get_or_insert_default()
        .retain(|_, named| named.0 != database);
}

/// The database whose log has this name.
///
/// # Safety
/// `name` is null or a pointer that SQLite passed to a VFS method.
pub unsafe fn named(name: *const c_char) -> Option<&'static Database> {
    let names = sync::lock_static(&LOG_NAMES);
    let named = names.as_ref()?.get(&name.addr()).copied()?;
    // SAFETY: the entry is removed before the database is freed.
    Some(unsafe { &*named.0 })
}
