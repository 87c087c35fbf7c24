//! Finds the source of the SQLite that the tests are linked with.

use std::path::PathBuf;
use std::process::Command;

/// The directory with its `sqlite3.c`, `sqlite3.h` and `sqlite3ext.h`.
pub fn sqlite_source() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Cargo never fetched the packages of other platforms.
    let libc = if cfg!(target_env = "musl") {
        "musl"
    } else {
        "gnu"
    };
    let platform = match std::env::consts::ARCH {
        "arm" => format!("armv7-unknown-linux-{libc}eabihf"),
        processor => format!("{processor}-unknown-linux-{libc}"),
    };
    let metadata = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--offline"])
        .args(["--filter-platform", &platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo metadata");
    let metadata: serde_json::Value =
        serde_json::from_slice(&metadata.stdout).expect("metadata in JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let sys = packages.iter().find(|p| p["name"] == "libsqlite3-sys");
    let manifest = sys.expect("libsqlite3-sys")["manifest_path"].as_str();
    PathBuf::from(manifest.expect("a path")).with_file_name("sqlite3")
}
