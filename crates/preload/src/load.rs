//! `onewrite run`: loads the onewrite extension before the program opens its first database. The
//! extension is then the default VFS.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::Mutex;

use onewrite_record::{EXTENSION_VARIABLE, OPENED, REPORT_VARIABLE};

use crate::environment;
use crate::real::Real;
use crate::sink::say;
use crate::state;

/// `SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION`.
const ENABLE_LOAD_EXTENSION: c_int = 1005;

/// The SQLites that have loaded it, by the addresses of their function tables.
static LOADED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Loads the extension that the environment names into a SQLite, once. If that fails, standard
/// error says why, and the program keeps SQLite's own journal modes.
pub fn extension(real: &'static Real) {
    let Some(path) = environment::variable(EXTENSION_VARIABLE) else {
        return;
    };
    let Ok(mut loaded) = LOADED.lock() else {
        return;
    };
    let key = ptr::from_ref(real) as usize;
    if !state::is_outermost() || loaded.contains(&key) {
        return;
    }
    loaded.push(key);
    let result = CString::new(path.as_bytes()).map_err(|error| error.to_string());
    // SAFETY: the functions are SQLite's.
    let result = result.and_then(|path| state::within(|| unsafe { load(real, &path) }));
    if let Err(why) = &result {
        say(&format!("this program runs without onewrite: {why}"));
    }
    let line = match result {
        Ok(()) => format!("loaded {}", std::process::id()),
        Err(why) => format!("failed {} {why}", std::process::id()),
    };
    report(line.as_bytes());
}

/// Whether `onewrite run` waits for this program.
pub fn is_run() -> bool {
    environment::variable(REPORT_VARIABLE).is_some()
}

/// Reports a database that the program has opened, once. If the program leaves it guarded, the
/// command recovers it.
pub fn database(path: &[u8]) {
    static REPORTED: Mutex<BTreeSet<Vec<u8>>> = Mutex::new(BTreeSet::new());
    // A database in memory has no path.
    if path.is_empty() || path.contains(&b'\n') {
        return;
    }
    let is_new = REPORTED
        .lock()
        .is_ok_and(|mut all| all.insert(path.to_vec()));
    if is_new {
        report(&[OPENED.as_bytes(), path].concat());
    }
}

/// Reports a line to the command that started this program.
fn report(line: &[u8]) {
    let Some(file) = environment::variable(REPORT_VARIABLE) else {
        return;
    };
    // If the report fails, a message is missing, or the next open recovers the database.
    if let Ok(mut file) = OpenOptions::new().append(true).open(file) {
        let _ = file.write_all(&[line, b"\n"].concat());
    }
}

/// # Safety
/// The functions are those of one SQLite.
unsafe fn load(real: &Real, path: &CStr) -> Result<(), String> {
    let missing = || "its SQLite cannot load extensions".to_owned();
    let (open, close) = real.open_v2.zip(real.close_v2).ok_or_else(missing)?;
    let (load, configure) = real
        .load_extension
        .zip(real.db_config)
        .ok_or_else(missing)?;
    let errmsg = real.errmsg.ok_or_else(missing)?;
    let mut db = ptr::null_mut();
    // SAFETY: by this function's contract. The connection is closed again in every case.
    unsafe {
        let code = open(c":memory:".as_ptr(), &mut db, 6, ptr::null());
        if code != 0 {
            close(db);
            return Err(format!(
                "SQLite opens no database in memory: result code {code}"
            ));
        }
        let no_answer: *mut c_int = ptr::null_mut();
        configure(db, ENABLE_LOAD_EXTENSION, 1 as c_int, no_answer);
        let entry = c"sqlite3_onewrite_init";
        // The extension's own message arrives here, and nowhere else.
        let mut said: *mut c_char = ptr::null_mut();
        let code = load(db, path.as_ptr(), entry.as_ptr(), &mut said);
        let result = match code {
            0 => Ok(()),
            code => {
                let text = match said.is_null() {
                    true => errmsg(db),
                    false => said,
                };
                let text = CStr::from_ptr(text).to_string_lossy().into_owned();
                Err(format!(
                    "SQLite does not load {}: {text} ({code})",
                    path.to_string_lossy()
                ))
            }
        };
        if let Some(free) = real.free.filter(|_| !said.is_null()) {
            free(said.cast());
        }
        close(db);
        result
    }
}
