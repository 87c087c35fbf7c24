//! SQLite's C interface, as far as a VFS needs it: the structures of `sqlite3.h`, and the function
//! table that the host passes.
//!
//! Nothing here links against SQLite. A loadable extension gets `sqlite3_api_routines` from the
//! host; a program that links SQLite builds the same [`Api`] from its own symbols. So the process
//! never contains a second SQLite because of us.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uchar, c_void};

pub type XOpen = unsafe extern "C" fn(
    *mut sqlite3_vfs,
    *const c_char,
    *mut sqlite3_file,
    c_int,
    *mut c_int,
) -> c_int;

/// `struct sqlite3_vfs`, version 3.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, non_snake_case)]
pub struct sqlite3_vfs {
    pub iVersion: c_int,
    pub szOsFile: c_int,
    pub mxPathname: c_int,
    pub pNext: *mut sqlite3_vfs,
    pub zName: *const c_char,
    pub pAppData: *mut c_void,
    pub xOpen: XOpen,
    pub xDelete: unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int) -> c_int,
    pub xAccess: unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int, *mut c_int) -> c_int,
    pub xFullPathname:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int, *mut c_char) -> c_int>,
    pub xDlOpen: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char) -> *mut c_void>,
    pub xDlError: Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int, *mut c_char)>,
    pub xDlSym: Option<
        unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void, *const c_char) -> Option<Untyped>,
    >,
    pub xDlClose: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void)>,
    pub xRandomness: Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int, *mut c_char) -> c_int>,
    pub xSleep: Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int) -> c_int>,
    pub xCurrentTime: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut f64) -> c_int>,
    pub xGetLastError: Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int, *mut c_char) -> c_int>,
    pub xCurrentTimeInt64: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut i64) -> c_int>,
    pub xSetSystemCall:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, Option<Untyped>) -> c_int>,
    pub xGetSystemCall:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char) -> Option<Untyped>>,
    pub xNextSystemCall:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char) -> *const c_char>,
}

/// A function pointer whose type only its two ends know.
pub type Untyped = unsafe extern "C" fn();

/// `struct sqlite3_file`: the head of every open file.
#[repr(C)]
#[allow(non_camel_case_types, non_snake_case)]
pub struct sqlite3_file {
    pub pMethods: *const sqlite3_io_methods,
}

type Fd = *mut sqlite3_file;

/// `struct sqlite3_io_methods`, version 3.
#[repr(C)]
#[allow(non_camel_case_types, non_snake_case)]
pub struct sqlite3_io_methods {
    pub iVersion: c_int,
    pub xClose: unsafe extern "C" fn(Fd) -> c_int,
    pub xRead: unsafe extern "C" fn(Fd, *mut c_void, c_int, i64) -> c_int,
    pub xWrite: unsafe extern "C" fn(Fd, *const c_void, c_int, i64) -> c_int,
    pub xTruncate: unsafe extern "C" fn(Fd, i64) -> c_int,
    pub xSync: unsafe extern "C" fn(Fd, c_int) -> c_int,
    pub xFileSize: unsafe extern "C" fn(Fd, *mut i64) -> c_int,
    pub xLock: unsafe extern "C" fn(Fd, c_int) -> c_int,
    pub xUnlock: unsafe extern "C" fn(Fd, c_int) -> c_int,
    pub xCheckReservedLock: unsafe extern "C" fn(Fd, *mut c_int) -> c_int,
    pub xFileControl: unsafe extern "C" fn(Fd, c_int, *mut c_void) -> c_int,
    pub xSectorSize: unsafe extern "C" fn(Fd) -> c_int,
    pub xDeviceCharacteristics: unsafe extern "C" fn(Fd) -> c_int,
    pub xShmMap: unsafe extern "C" fn(Fd, c_int, c_int, c_int, *mut *mut c_void) -> c_int,
    pub xShmLock: unsafe extern "C" fn(Fd, c_int, c_int, c_int) -> c_int,
    pub xShmBarrier: unsafe extern "C" fn(Fd),
    pub xShmUnmap: unsafe extern "C" fn(Fd, c_int) -> c_int,
    pub xFetch: unsafe extern "C" fn(Fd, i64, c_int, *mut *mut c_void) -> c_int,
    pub xUnfetch: unsafe extern "C" fn(Fd, i64, *mut c_void) -> c_int,
}

pub const SQLITE_OK: c_int = 0;
pub const SQLITE_ERROR: c_int = 1;
pub const SQLITE_BUSY: c_int = 5;
pub const SQLITE_LOCKED: c_int = 6;
pub const SQLITE_NOMEM: c_int = 7;
pub const SQLITE_READONLY: c_int = 8;
pub const SQLITE_READONLY_DBMOVED: c_int = SQLITE_READONLY | 4 << 8;
pub const SQLITE_IOERR: c_int = 10;
pub const SQLITE_NOTFOUND: c_int = 12;
pub const SQLITE_FULL: c_int = 13;
pub const SQLITE_CANTOPEN: c_int = 14;
pub const SQLITE_NOTICE: c_int = 27;
pub const SQLITE_WARNING: c_int = 28;
pub const SQLITE_OK_LOAD_PERMANENTLY: c_int = 256;
pub const SQLITE_IOERR_READ: c_int = SQLITE_IOERR | 1 << 8;
pub const SQLITE_IOERR_SHORT_READ: c_int = SQLITE_IOERR | 2 << 8;
pub const SQLITE_IOERR_WRITE: c_int = SQLITE_IOERR | 3 << 8;
pub const SQLITE_IOERR_FSYNC: c_int = SQLITE_IOERR | 4 << 8;
pub const SQLITE_IOERR_DELETE: c_int = SQLITE_IOERR | 10 << 8;
pub const SQLITE_IOERR_NOMEM: c_int = SQLITE_IOERR | 12 << 8;
pub const SQLITE_IOERR_DELETE_NOENT: c_int = SQLITE_IOERR | 23 << 8;
pub const SQLITE_IOERR_LOCK: c_int = SQLITE_IOERR | 15 << 8;
pub const SQLITE_IOERR_DATA: c_int = SQLITE_IOERR | 32 << 8;
pub const SQLITE_IOERR_CORRUPTFS: c_int = SQLITE_IOERR | 33 << 8;

pub const SQLITE_OPEN_READONLY: c_int = 0x1;
pub const SQLITE_OPEN_READWRITE: c_int = 0x2;
pub const SQLITE_OPEN_CREATE: c_int = 0x4;
/// A temporary file, which SQLite deletes: with `TEMP_DB`, `DELETEONCLOSE` and `EXCLUSIVE`.
pub const SQLITE_OPEN_TEMPORARY: c_int =
    0x200 | 0x8 | 0x10 | SQLITE_OPEN_CREATE | SQLITE_OPEN_READWRITE;
pub const SQLITE_OPEN_FULLMUTEX: c_int = 0x1_0000;
pub const SQLITE_OPEN_PRIVATECACHE: c_int = 0x4_0000;
pub const SQLITE_OPEN_MAIN_DB: c_int = 0x100;
pub const SQLITE_OPEN_SUPER_JOURNAL: c_int = 0x4000;
pub const SQLITE_OPEN_WAL: c_int = 0x80000;

pub const SQLITE_ACCESS_EXISTS: c_int = 0;

pub const SQLITE_SYNC_NORMAL: c_int = 2;

/// Ours: the database file identifies itself, even under another VFS.
pub const FCNTL_DATABASE: c_int = 0x6f6e_6577;
pub const SQLITE_FCNTL_LAST_ERRNO: c_int = 4;
pub const SQLITE_FCNTL_FILE_POINTER: c_int = 7;
pub const SQLITE_FCNTL_PERSIST_WAL: c_int = 10;
pub const SQLITE_FCNTL_VFSNAME: c_int = 12;
pub const SQLITE_FCNTL_PRAGMA: c_int = 14;
pub const SQLITE_FCNTL_BUSYHANDLER: c_int = 15;
pub const SQLITE_FCNTL_SYNC: c_int = 21;
pub const SQLITE_FCNTL_COMMIT_PHASETWO: c_int = 22;
pub const SQLITE_FCNTL_PDB: c_int = 30;
pub const SQLITE_FCNTL_RESERVE_BYTES: c_int = 38;
pub const SQLITE_FCNTL_HAS_MOVED: c_int = 20;
pub const SQLITE_FCNTL_CKPT_DONE: c_int = 37;
pub const SQLITE_FCNTL_CKPT_START: c_int = 39;

pub const SQLITE_SHM_UNLOCK: c_int = 1;
pub const SQLITE_SHM_LOCK: c_int = 2;
pub const SQLITE_SHM_SHARED: c_int = 4;
pub const SQLITE_SHM_EXCLUSIVE: c_int = 8;
pub const SQLITE_SHM_LOCK_EXCLUSIVE: c_int = 2 | 8;
pub const SQLITE_SHM_UNLOCK_EXCLUSIVE: c_int = 1 | 8;

/// `sqlite3_txn_state`: a write transaction.
pub const SQLITE_TXN_WRITE: c_int = 2;

pub const SQLITE_IOCAP_POWERSAFE_OVERWRITE: c_int = 0x1000;

/// A database connection; opaque.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct sqlite3 {
    _opaque: [c_uchar; 0],
}

/// A prepared statement; opaque.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct sqlite3_stmt {
    _opaque: [c_uchar; 0],
}

pub type ExecCallback =
    unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

macro_rules! api {
    ($( $field:ident = $slot:literal $symbol:ident ( $($arg:ty),* ) -> $ret:ty; )*) => {
        /// The functions of the host's SQLite that are used, each as `sqlite3_<name>`.
        ///
        /// `onewrite.h` declares the same structure, in the same order.
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct Api {
            /// `sqlite3_log`, the one with a format.
            pub log: unsafe extern "C" fn(c_int, *const c_char, ...),
            $( #[doc = stringify!($symbol)] pub $field: unsafe extern "C" fn($($arg),*) -> $ret, )*
        }

        impl Api {
            /// The slot of each function in `sqlite3_api_routines`.
            #[cfg(test)]
            pub const SLOTS: &[(&str, usize)] = &[("log", LOG_SLOT), $( (stringify!($field), $slot), )*];

            /// Reads the table that the host passes to an extension's entry point; `None` if a
            /// function is missing, as in a SQLite older than 3.39.
            ///
            /// # Safety
            /// `routines` points to the `sqlite3_api_routines` of a SQLite whose version was
            /// checked, see [`VERSION_SLOT`].
            pub unsafe fn from_routines(routines: *const Option<Untyped>) -> Option<Api> {
                // SAFETY: the table is an array of function pointers that only ever grows at its
                // end. Each slot holds a function of the type that it is given here.
                unsafe {
                    Some(Api {
                        log: std::mem::transmute::<
                            Untyped,
                            unsafe extern "C" fn(c_int, *const c_char, ...),
                        >((*routines.add(LOG_SLOT))?),
                        $( $field: std::mem::transmute::<
                            Untyped,
                            unsafe extern "C" fn($($arg),*) -> $ret,
                        >((*routines.add($slot))?), )*
                    })
                }
            }

            /// Reads the structure that a C program filled; `None` if it or a member is null.
            ///
            /// # Safety
            /// `members` points to a structure as `onewrite.h` declares it, or is null.
            pub unsafe fn from_members(members: *const Option<Untyped>) -> Option<Api> {
                if members.is_null() {
                    return None;
                }
                let count = size_of::<Api>() / size_of::<Option<Untyped>>();
                // SAFETY: by this function's contract. Only without a null is it an `Api`.
                unsafe {
                    let all = std::slice::from_raw_parts(members, count);
                    all.iter().all(Option::is_some).then(|| *members.cast::<Api>())
                }
            }

            /// Whether these are the same functions, at the same addresses.
            pub fn is_same(&self, other: &Api) -> bool {
                self.log as usize == other.log as usize
                    $( && self.$field as usize == other.$field as usize )*
            }

            /// The functions of the SQLite that this program is linked with.
            #[inline] // see vfs::register
            pub fn linked() -> Api {
                Api { log: sqlite3_log, $( $field: $symbol, )* }
            }

            /// The version of that SQLite.
            #[inline]
            pub fn linked_version() -> c_int {
                // SAFETY: it takes nothing and returns a constant.
                unsafe { sqlite3_libversion_number() }
            }
        }

        unsafe extern "C" {
            fn sqlite3_log(_: c_int, _: *const c_char, ...);
            fn sqlite3_libversion_number() -> c_int;
            $( fn $symbol($(_: $arg),*) -> $ret; )*
        }
    };
}

const LOG_SLOT: usize = 167;
/// `sqlite3_libversion_number`, to be asked before anything else of the table is touched.
pub const VERSION_SLOT: usize = 67;
/// `sqlite3_malloc`, which every SQLite has that loads extensions.
pub const MALLOC_SLOT: usize = 68;

api! {
    exec = 55 sqlite3_exec(*mut sqlite3, *const c_char, Option<ExecCallback>, *mut c_void, *mut *mut c_char) -> c_int;
    free = 58 sqlite3_free(*mut c_void) -> ();
    get_autocommit = 60 sqlite3_get_autocommit(*mut sqlite3) -> c_int;
    malloc64 = 197 sqlite3_malloc64(u64) -> *mut c_void;
    errmsg = 53 sqlite3_errmsg(*mut sqlite3) -> *const c_char;
    busy_timeout = 14 sqlite3_busy_timeout(*mut sqlite3, c_int) -> c_int;
    open_v2 = 135 sqlite3_open_v2(*const c_char, *mut *mut sqlite3, c_int, *const c_char) -> c_int;
    close_v2 = 179 sqlite3_close_v2(*mut sqlite3) -> c_int;
    file_control = 127 sqlite3_file_control(*mut sqlite3, *const c_char, c_int, *mut c_void) -> c_int;
    db_name = 264 sqlite3_db_name(*mut sqlite3, c_int) -> *const c_char;
    next_stmt = 152 sqlite3_next_stmt(*mut sqlite3, *mut sqlite3_stmt) -> *mut sqlite3_stmt;
    sql = 153 sqlite3_sql(*mut sqlite3_stmt) -> *const c_char;
    stmt_busy = 184 sqlite3_stmt_busy(*mut sqlite3_stmt) -> c_int;
    data_count = 48 sqlite3_data_count(*mut sqlite3_stmt) -> c_int;
    stmt_readonly = 185 sqlite3_stmt_readonly(*mut sqlite3_stmt) -> c_int;
    txn_state = 252 sqlite3_txn_state(*mut sqlite3, *const c_char) -> c_int;
    uri_parameter = 189 sqlite3_uri_parameter(*const c_char, *const c_char) -> *const c_char;
    uri_key = 245 sqlite3_uri_key(*const c_char, c_int) -> *const c_char;
    filename_wal = 248 sqlite3_filename_wal(*const c_char) -> *const c_char;
    vfs_find = 141 sqlite3_vfs_find(*const c_char) -> *mut sqlite3_vfs;
    vfs_register = 142 sqlite3_vfs_register(*mut sqlite3_vfs, c_int) -> c_int;
    db_mutex = 164 sqlite3_db_mutex(*mut sqlite3) -> *mut c_void;
    auto_extension = 192 sqlite3_auto_extension(Option<Untyped>) -> c_int;
}

#[cfg(test)]
#[path = "../../tests/common/sqlite_source.rs"]
mod sqlite_source;

#[cfg(test)]
mod tests {
    use super::Api;
    use super::sqlite_source::sqlite_source;

    /// The members of a C structure of function pointers, from behind `begin` to `end`.
    fn members<'a>(header: &'a str, begin: &str, end: &str) -> Vec<&'a str> {
        let from = header.find(begin).expect("the structure begins") + begin.len();
        let len = header[from..].find(end).expect("the structure ends");
        let named = header[from..from + len].split(';').filter_map(|member| {
            // "int (*exec)(...)"; a return type may have a parenthesis and a star of its own.
            let name = &member[member.find("(*")? + 2..];
            Some(&name[..name.find(')')?])
        });
        named.collect()
    }

    fn sqlite3ext_h() -> String {
        let header = sqlite_source().join("sqlite3ext.h");
        let header = std::fs::read_to_string(header).expect("sqlite3ext.h");
        header.replace("(SQLITE_CDECL*", "(*")
    }

    #[test]
    fn every_slot_is_that_of_the_hosts_function_table() {
        let header = sqlite3ext_h();
        let routines = members(&header, "struct sqlite3_api_routines {", "\n};");
        for &(name, slot) in Api::SLOTS {
            assert_eq!(routines.get(slot), Some(&name), "{name}");
        }
        assert_eq!(routines[super::VERSION_SLOT], "libversion_number");
        assert_eq!(routines[super::MALLOC_SLOT], "malloc");
    }

    #[test]
    fn onewrite_h_declares_the_same_functions_in_the_same_order() {
        let header = include_str!("../../include/onewrite.h");
        let declared = members(header, "typedef struct onewrite_api {", "} onewrite_api;");
        let used: Vec<_> = Api::SLOTS.iter().map(|(name, _)| *name).collect();
        assert_eq!(declared, used);
        for name in used {
            let assignment = format!("api.{name} = sqlite3_{name};");
            assert!(header.contains(&assignment), "{assignment}");
        }
        assert_eq!(size_of::<Api>(), declared.len() * size_of::<usize>());
    }
}
