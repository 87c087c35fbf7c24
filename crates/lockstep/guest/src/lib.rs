//! The engine, linked into one simulated process with a version of SQLite.

/// Makes `onewrite` the default VFS of the SQLite that it is linked with.
#[unsafe(no_mangle)]
pub extern "C" fn lockstep_register() -> i32 {
    // Asks the processor once here instead of in every order. The question is slow in a virtual
    // machine.
    #[cfg(target_arch = "x86_64")]
    let _ = std::is_x86_feature_detected!("sse4.2");
    i32::from(onewrite::register_as_default().is_err())
}
