//! The engine as it is linked into one simulated process, with a SQLite of some version.

/// Makes `onewrite` the default VFS of the SQLite that this is linked with.
#[unsafe(no_mangle)]
pub extern "C" fn lockstep_register() -> i32 {
    // Asks the processor now, and not once in every order: in a virtual machine that is slow.
    #[cfg(target_arch = "x86_64")]
    let _ = std::is_x86_feature_detected!("sse4.2");
    i32::from(onewrite::register_as_default().is_err())
}
