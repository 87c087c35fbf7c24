//! SQLite's own functions, as the calling program or library would reach them without this library.
//!
//! A process may hold several SQLites. One that was opened by `dlopen` is not in the scope that
//! `RTLD_NEXT` searches. So this module finds the calling object, and looks the function up among
//! the libraries that the object is linked with. Connections and statements remember their SQLite.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

/// A connection, a statement, a value, and so on. Nothing here looks into them.
pub type Handle = *mut c_void;

/// `sqlite3_exec`'s callback.
pub type ExecCallback =
    Option<unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_char, *mut *mut c_char) -> c_int>;

/// The function that frees a bound value; also `SQLITE_STATIC` and `SQLITE_TRANSIENT`.
pub type Destructor = *mut c_void;

macro_rules! functions {
    ($($name:ident($($arg:ty),*) -> $ret:ty;)*) => {
        /// The functions of one SQLite; missing ones are `None`.
        pub struct Real {
            $(pub $name: Option<unsafe extern "C" fn($($arg),*) -> $ret>,)*
            /// It takes arguments of any kind.
            pub db_config: Option<unsafe extern "C" fn(Handle, c_int, ...) -> c_int>,
        }

        impl Real {
            /// # Safety
            /// `find` returns SQLite's functions by their names, or null.
            pub(crate) unsafe fn with(find: impl Fn(&CStr) -> *mut c_void) -> Real {
                // SAFETY: a null pointer is `None`, and the others have these types by their names.
                unsafe {
                    Real {
                        $($name: std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($arg),*) -> $ret>>(
                            find(name(concat!("sqlite3_", stringify!($name), "\0"))),
                        ),)*
                        db_config: std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn(Handle, c_int, ...) -> c_int>>(
                            find(c"sqlite3_db_config"),
                        ),
                    }
                }
            }
        }
    };
}

fn name(text: &'static str) -> &'static CStr {
    CStr::from_bytes_until_nul(text.as_bytes()).unwrap_or(c"")
}

functions! {
    open(*const c_char, *mut Handle) -> c_int;
    open_v2(*const c_char, *mut Handle, c_int, *const c_char) -> c_int;
    open16(*const c_void, *mut Handle) -> c_int;
    close(Handle) -> c_int;
    close_v2(Handle) -> c_int;
    prepare(Handle, *const c_char, c_int, *mut Handle, *mut *const c_char) -> c_int;
    prepare_v2(Handle, *const c_char, c_int, *mut Handle, *mut *const c_char) -> c_int;
    prepare_v3(Handle, *const c_char, c_int, u32, *mut Handle, *mut *const c_char) -> c_int;
    prepare16(Handle, *const c_void, c_int, *mut Handle, *mut *const c_void) -> c_int;
    prepare16_v2(Handle, *const c_void, c_int, *mut Handle, *mut *const c_void) -> c_int;
    prepare16_v3(Handle, *const c_void, c_int, u32, *mut Handle, *mut *const c_void) -> c_int;
    step(Handle) -> c_int;
    reset(Handle) -> c_int;
    finalize(Handle) -> c_int;
    clear_bindings(Handle) -> c_int;
    bind_null(Handle, c_int) -> c_int;
    bind_int(Handle, c_int, c_int) -> c_int;
    bind_int64(Handle, c_int, i64) -> c_int;
    bind_double(Handle, c_int, f64) -> c_int;
    bind_text(Handle, c_int, *const c_char, c_int, Destructor) -> c_int;
    bind_text64(Handle, c_int, *const c_char, u64, Destructor, u8) -> c_int;
    bind_text16(Handle, c_int, *const c_void, c_int, Destructor) -> c_int;
    bind_blob(Handle, c_int, *const c_void, c_int, Destructor) -> c_int;
    bind_blob64(Handle, c_int, *const c_void, u64, Destructor) -> c_int;
    bind_value(Handle, c_int, Handle) -> c_int;
    bind_zeroblob(Handle, c_int, c_int) -> c_int;
    bind_zeroblob64(Handle, c_int, u64) -> c_int;
    bind_pointer(Handle, c_int, *mut c_void, *const c_char, Destructor) -> c_int;
    exec(Handle, *const c_char, ExecCallback, *mut c_void, *mut *mut c_char) -> c_int;
    get_table(Handle, *const c_char, *mut *mut *mut c_char, *mut c_int, *mut c_int, *mut *mut c_char) -> c_int;
    db_filename(Handle, *const c_char) -> *const c_char;
    get_autocommit(Handle) -> c_int;
    data_count(Handle) -> c_int;
    column_type(Handle, c_int) -> c_int;
    column_int64(Handle, c_int) -> i64;
    column_double(Handle, c_int) -> f64;
    column_text(Handle, c_int) -> *const u8;
    column_blob(Handle, c_int) -> *const c_void;
    column_bytes(Handle, c_int) -> c_int;
    value_type(Handle) -> c_int;
    value_int64(Handle) -> i64;
    value_double(Handle) -> f64;
    value_text(Handle) -> *const u8;
    value_blob(Handle) -> *const c_void;
    value_bytes(Handle) -> c_int;
    create_function(Handle, *const c_char, c_int, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void) -> c_int;
    create_function_v2(Handle, *const c_char, c_int, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void) -> c_int;
    create_window_function(Handle, *const c_char, c_int, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void) -> c_int;
    create_collation(Handle, *const c_char, c_int, *mut c_void, *mut c_void) -> c_int;
    create_collation_v2(Handle, *const c_char, c_int, *mut c_void, *mut c_void, *mut c_void) -> c_int;
    create_module(Handle, *const c_char, *const c_void, *mut c_void) -> c_int;
    create_module_v2(Handle, *const c_char, *const c_void, *mut c_void, *mut c_void) -> c_int;
    blob_open(Handle, *const c_char, *const c_char, *const c_char, i64, c_int, *mut Handle) -> c_int;
    backup_init(Handle, *const c_char, Handle, *const c_char) -> Handle;
    deserialize(Handle, *const c_char, *mut u8, i64, i64, u32) -> c_int;
    load_extension(Handle, *const c_char, *const c_char, *mut *mut c_char) -> c_int;
    wal_autocheckpoint(Handle, c_int) -> c_int;
    wal_checkpoint(Handle, *const c_char) -> c_int;
    wal_checkpoint_v2(Handle, *const c_char, c_int, *mut c_int, *mut c_int) -> c_int;
    errmsg(Handle) -> *const c_char;
    free(*mut c_void) -> ();
    libversion() -> *const c_char;
}

/// All SQLites that this process calls, found so far. This library never unloads them.
static ALL: Mutex<Vec<&'static Real>> = Mutex::new(Vec::new());

/// The only one, as long as there is one.
static ONLY: AtomicPtr<Real> = AtomicPtr::new(ptr::null_mut());

/// The SQLite of the caller of the hook that calls this. `None` where there is none, which is
/// impossible: the caller found SQLite's name.
pub fn of_caller() -> Option<&'static Real> {
    // An extension calls through SQLite's own function table, and links no SQLite itself. Then the
    // object that called SQLite, which called the extension, identifies it.
    let found = find_in_callers(|module| Some((module, find(module, c"sqlite3_step")?)));
    let Some((module, probe)) = found else {
        return ALL
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .first()
            .copied();
    };
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let known = all.iter().find(|real| {
        real.step
            .is_some_and(|step| step as *const () as *mut c_void == probe)
    });
    if let Some(real) = known {
        return Some(real);
    }
    // SAFETY: the dynamic linker found them by their names.
    let real =
        Box::new(unsafe { Real::with(|name| find(module, name).unwrap_or(ptr::null_mut())) });
    let real: &'static Real = Box::leak(real);
    all.push(real);
    let only = match all.len() {
        1 => ptr::from_ref(real).cast_mut(),
        _ => ptr::null_mut(),
    };
    ONLY.store(only, Ordering::Release);
    Some(real)
}

/// The only SQLite, where there is only one.
pub fn only() -> Option<&'static Real> {
    // SAFETY: null, or a leaked box.
    unsafe { ONLY.load(Ordering::Acquire).as_ref() }
}

/// The dynamic linker's information about an address.
fn object_at(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: plain data that `dladdr` fills.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(address, &mut info) != 0).then_some(info)
    }
}

/// Asks `look` about each object on the stack but this library, the innermost first, until it finds
/// something. It gets their handles: null for the program itself.
fn find_in_callers<T>(mut look: impl FnMut(*mut c_void) -> Option<T>) -> Option<T> {
    let ours = object_at(of_caller as *const c_void).map(|info| info.dli_fbase);
    let (mut last, mut found) = (ours, None);
    stack::walk(&mut |frame| {
        let Some(object) = object_at(frame) else {
            return false;
        };
        let base = Some(object.dli_fbase);
        let is_new = base != ours && base != last;
        last = base;
        if is_new {
            let only_if_loaded = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
            // SAFETY: the name is the linker's own; the handle stays open.
            found = look(unsafe { libc::dlopen(object.dli_fname, only_if_loaded) });
        }
        found.is_some()
    });
    found
}

/// The return addresses on the stack.
///
/// The unwinder is the one that this library is linked with, not glibc's `backtrace`, which takes
/// that of libgcc. On 32-bit ARM an unwinder asks each frame's own code for the next one, and that
/// code may belong to another unwinder, which ends the program. So the walk goes no further than
/// needed: most often to the caller of this library.
mod stack {
    use std::ffi::{c_int, c_void};
    use std::ptr;

    const MOST: usize = 32;

    type Context = c_void;
    type Step = unsafe extern "C" fn(*mut Context, *mut c_void) -> c_int;

    unsafe extern "C" {
        fn _Unwind_Backtrace(step: Step, argument: *mut c_void) -> c_int;
    }

    /// `_URC_NO_REASON` and `_URC_END_OF_STACK`.
    const GO_ON: c_int = 0;
    const STOP: c_int = 5;

    struct Walk<'a> {
        look: &'a mut dyn FnMut(*mut c_void) -> bool,
        left: usize,
    }

    #[cfg(not(target_arch = "arm"))]
    unsafe fn address(context: *mut Context) -> usize {
        unsafe extern "C" {
            fn _Unwind_GetIP(context: *mut Context) -> usize;
        }
        // SAFETY: the unwinder's context.
        unsafe { _Unwind_GetIP(context) }
    }

    /// The same on 32-bit ARM, where `_Unwind_GetIP` is a macro.
    #[cfg(target_arch = "arm")]
    unsafe fn address(context: *mut Context) -> usize {
        unsafe extern "C" {
            fn _Unwind_VRS_Get(
                context: *mut Context,
                class: c_int,
                register: u32,
                form: c_int,
                value: *mut c_void,
            ) -> c_int;
        }
        /// `_UVRSC_CORE` and `_UVRSD_UINT32`.
        const CORE: c_int = 0;
        const UINT32: c_int = 0;
        const PROGRAM_COUNTER: u32 = 15;
        let mut value = 0u32;
        // SAFETY: the unwinder's context, and room for a register.
        unsafe {
            let value = ptr::from_mut(&mut value).cast();
            _Unwind_VRS_Get(context, CORE, PROGRAM_COUNTER, UINT32, value);
        }
        // Its lowest bit says that the code is Thumb's.
        value as usize & !1
    }

    /// # Safety
    /// The unwinder calls it, with the argument of `_Unwind_Backtrace`.
    unsafe extern "C" fn step(context: *mut Context, argument: *mut c_void) -> c_int {
        // SAFETY: by this function's contract.
        let (walk, address) = unsafe { (&mut *argument.cast::<Walk>(), address(context)) };
        walk.left -= 1;
        let is_over = (walk.look)(ptr::with_exposed_provenance_mut(address)) || walk.left == 0;
        if is_over { STOP } else { GO_ON }
    }

    /// Shows the addresses to `look`, the innermost first, until it returns true.
    pub fn walk(look: &mut dyn FnMut(*mut c_void) -> bool) {
        let mut walk = Walk { look, left: MOST };
        // SAFETY: the argument is what `step` takes it for.
        unsafe { _Unwind_Backtrace(step, ptr::from_mut(&mut walk).cast()) };
    }
}

/// A function of a module and the libraries it links, or of those loaded with the program.
fn find(module: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    let ours = object_at(of_caller as *const c_void)?.dli_fbase;
    let is_foreign = |address: *mut c_void| {
        !address.is_null() && object_at(address).is_some_and(|object| object.dli_fbase != ours)
    };
    // SAFETY: a handle of `dlopen`, and a name that ends.
    let in_module = match module.is_null() {
        true => ptr::null_mut(),
        false => unsafe { libc::dlsym(module, name.as_ptr()) },
    };
    if is_foreign(in_module) {
        return Some(in_module);
    }
    // SAFETY: as above.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    is_foreign(next).then_some(next)
}
