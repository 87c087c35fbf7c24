//! The image of a process: a copy of the library that holds SQLite, the engine and their libc. It
//! has data and memory of its own. A snapshot restores them.

use libc::{c_char, c_int, c_long, c_void};
use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;
use std::ptr;

/// The function that an image calls instead of the system.
pub type Host = extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

/// Bytes of a process's memory, as in `c/guest.c`.
const ARENA: usize = 48 << 20;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident: $symbol:literal fn($($argument:ty),*) -> $ret:ty;)*) => {
        /// Functions of an image.
        #[derive(Clone, Copy)]
        pub struct Api {
            $($(#[$doc])* pub $name: unsafe extern "C" fn($($argument),*) -> $ret,)*
        }

        impl Api {
            /// # Safety
            /// The library has these functions with these types.
            unsafe fn of(library: *mut c_void) -> Api {
                $(
                    // SAFETY: by this function's contract.
                    let $name = unsafe {
                        let symbol = libc::dlsym(library, concat!($symbol, "\0").as_ptr().cast());
                        assert!(!symbol.is_null(), "the library lacks {}", $symbol);
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $ret>(symbol)
                    };
                )*
                Api { $($name,)* }
            }
        }
    };
}

/// A connection of SQLite.
pub type Db = *mut c_void;
/// A prepared statement of SQLite.
pub type Statement = *mut c_void;

functions! {
    begin: "ls_begin" fn(Host, *mut u8) -> ();
    register: "ls_register" fn(c_int) -> c_int;
    arena_used: "ls_arena_used" fn() -> usize;
    open: "sqlite3_open_v2" fn(*const c_char, *mut Db, c_int, *const c_char) -> c_int;
    close: "sqlite3_close" fn(Db) -> c_int;
    exec: "sqlite3_exec" fn(Db, *const c_char, *const c_void, *const c_void, *const c_void) -> c_int;
    prepare: "sqlite3_prepare_v2" fn(Db, *const c_char, c_int, *mut Statement, *const c_void) -> c_int;
    step: "sqlite3_step" fn(Statement) -> c_int;
    reset: "sqlite3_reset" fn(Statement) -> c_int;
    finalize: "sqlite3_finalize" fn(Statement) -> c_int;
    bind: "sqlite3_bind_int64" fn(Statement, c_int, i64) -> c_int;
    column: "sqlite3_column_int64" fn(Statement, c_int) -> i64;
    text: "sqlite3_column_text" fn(Statement, c_int) -> *const c_char;
    message: "sqlite3_errmsg" fn(Db) -> *const c_char;
    extended: "sqlite3_extended_errcode" fn(Db) -> c_int;
    busy_timeout: "sqlite3_busy_timeout" fn(Db, c_int) -> c_int;
    checkpoint: "sqlite3_wal_checkpoint_v2" fn(Db, *const c_char, c_int, *mut c_int, *mut c_int) -> c_int;
    autocheckpoint: "sqlite3_wal_autocheckpoint" fn(Db, c_int) -> c_int;
    get_autocommit: "sqlite3_get_autocommit" fn(Db) -> c_int;
    version: "sqlite3_libversion" fn() -> *const c_char;
}

/// A copy of a process's memory.
#[derive(Clone)]
pub struct Memory {
    areas: Vec<Box<[u8]>>,
}

/// See the module.
pub struct Image {
    pub api: Api,
    name: CString,
    arena: *mut u8,
    /// Writable data of the library and of its thread.
    areas: Vec<(*mut u8, usize)>,
}

impl Image {
    /// Loads a copy of the library. Loading the same file again would return the same image.
    ///
    /// # Errors
    /// The copy cannot be made or loaded.
    pub fn load(library: &Path, host: Host) -> io::Result<Image> {
        let copy = tempfile::Builder::new().suffix(".so").tempfile()?;
        std::fs::copy(library, copy.path())?;
        let name = CString::new(copy.path().as_os_str().as_encoded_bytes())?;
        // SAFETY: the library is the one that scripts/lockstep built, and its functions have these
        // types.
        unsafe {
            let loaded = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            if loaded.is_null() {
                let why = CStr::from_ptr(libc::dlerror()).to_string_lossy();
                return Err(io::Error::other(why.into_owned()));
            }
            let api = Api::of(loaded);
            let arena = libc::mmap(
                ptr::null_mut(),
                ARENA,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            if arena == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let arena = arena.cast();
            (api.begin)(host, arena);
            let mut image = Image {
                api,
                name,
                arena,
                areas: Vec::new(),
            };
            image.find_areas();
            Ok(image)
        }
    }

    /// Finds the library's writable data. Its thread-local part exists after its first use.
    pub fn find_areas(&mut self) {
        struct Search<'a> {
            name: &'a CStr,
            areas: Vec<(*mut u8, usize)>,
        }
        unsafe extern "C" fn look(
            info: *mut libc::dl_phdr_info,
            _size: usize,
            search: *mut c_void,
        ) -> c_int {
            // SAFETY: the loader passes a loaded object, and the pointer that this code gave it.
            unsafe {
                let (info, search) = (&*info, &mut *search.cast::<Search<'_>>());
                if CStr::from_ptr(info.dlpi_name) != search.name {
                    return 0;
                }
                for number in 0..usize::from(info.dlpi_phnum) {
                    let header = &*info.dlpi_phdr.add(number);
                    let size = header.p_memsz as usize;
                    if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0 {
                        let at = (info.dlpi_addr + header.p_vaddr) as *mut u8;
                        search.areas.push((at, size));
                    } else if header.p_type == libc::PT_TLS && !info.dlpi_tls_data.is_null() {
                        search.areas.push((info.dlpi_tls_data.cast(), size));
                    }
                }
                1
            }
        }
        let mut search = Search {
            name: &self.name,
            areas: Vec::new(),
        };
        // SAFETY: `look` gets the search.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
        let areas = search.areas;
        assert!(areas.len() > 1, "data of the library, and of its thread");
        self.areas = areas;
    }

    fn all_areas(&self) -> impl Iterator<Item = (*mut u8, usize)> {
        // SAFETY: a function of the library without arguments.
        let used = unsafe { (self.api.arena_used)() };
        self.areas.iter().copied().chain([(self.arena, used)])
    }

    /// Bytes that a snapshot copies.
    pub fn size(&self) -> usize {
        self.all_areas().map(|(_, size)| size).sum()
    }

    /// Copies its memory. No code of the image may run meanwhile.
    pub fn snapshot(&self) -> Memory {
        // SAFETY: the areas are mapped, and nobody changes them now.
        let copy = |(at, size): (*mut u8, usize)| unsafe {
            Box::from(std::slice::from_raw_parts(at, size))
        };
        Memory {
            areas: self.all_areas().map(copy).collect(),
        }
    }

    /// Restores its memory. No code of the image may run meanwhile.
    pub fn restore(&self, to: &Memory) {
        let areas = self.areas.iter().map(|(at, _)| *at).chain([self.arena]);
        for (at, bytes) in areas.zip(&to.areas) {
            // SAFETY: the areas were mapped when the snapshot was taken, and stay mapped.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
        }
    }
}
