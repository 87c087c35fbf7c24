//! Cuts SQLite's amalgamation and compiles it with the C part of the glue.
//!
//! The amalgamation is the one in the package `libsqlite3-sys`, whose build script gives us its
//! directory. It comes from the registry, Cargo.lock verifies it, and it is never committed here.
//! The build fails for an amalgamation that `onewrite-sqlite-split` was not made for.
//!
//! `LSMVBT_SQLITE_CFLAGS` adds flags for the C compiler, as for a build with SQLite's assertions
//! (`-DSQLITE_DEBUG`) or with AddressSanitizer (`-fsanitize=address`).

use std::error::Error;
use std::path::{Path, PathBuf};

/// The options of Debian's library, so that ours can replace it, and those that SQLite recommends.
const DEFINES: &[(&str, &str)] = &[
    ("SQLITE_THREADSAFE", "1"),
    ("SQLITE_USE_URI", "1"),
    ("SQLITE_ENABLE_COLUMN_METADATA", "1"),
    ("SQLITE_ENABLE_DBPAGE_VTAB", "1"),
    ("SQLITE_ENABLE_DBSTAT_VTAB", "1"),
    ("SQLITE_ENABLE_FTS3", "1"),
    ("SQLITE_ENABLE_FTS3_PARENTHESIS", "1"),
    ("SQLITE_ENABLE_FTS3_TOKENIZER", "1"),
    ("SQLITE_ENABLE_FTS4", "1"),
    ("SQLITE_ENABLE_FTS5", "1"),
    ("SQLITE_ENABLE_GEOPOLY", "1"),
    ("SQLITE_ENABLE_LOAD_EXTENSION", "1"),
    ("SQLITE_ENABLE_MATH_FUNCTIONS", "1"),
    ("SQLITE_ENABLE_PREUPDATE_HOOK", "1"),
    ("SQLITE_ENABLE_RTREE", "1"),
    ("SQLITE_ENABLE_SESSION", "1"),
    ("SQLITE_ENABLE_STAT4", "1"),
    ("SQLITE_ENABLE_STMTVTAB", "1"),
    ("SQLITE_ENABLE_UNLOCK_NOTIFY", "1"),
    ("SQLITE_MAX_SCHEMA_RETRY", "25"),
    ("SQLITE_MAX_VARIABLE_NUMBER", "250000"),
    ("SQLITE_SECURE_DELETE", "1"),
    ("SQLITE_SOUNDEX", "1"),
    ("HAVE_FDATASYNC", "1"),
    ("HAVE_GMTIME_R", "1"),
    ("HAVE_ISNAN", "1"),
    ("HAVE_LOCALTIME_R", "1"),
    ("HAVE_PREAD", "1"),
    ("HAVE_PWRITE", "1"),
    ("HAVE_USLEEP", "1"),
];

/// The options of the SQLite in `libsqlite3-sys`, for programs in which this library replaces it.
/// Their stock databases must behave as before.
const AS_BUNDLED: &[(&str, &str)] = &[
    ("SQLITE_CORE", "1"),
    ("SQLITE_DEFAULT_FOREIGN_KEYS", "1"),
    ("SQLITE_ENABLE_API_ARMOR", "1"),
    ("SQLITE_ENABLE_COLUMN_METADATA", "1"),
    ("SQLITE_ENABLE_DBSTAT_VTAB", "1"),
    ("SQLITE_ENABLE_FTS3", "1"),
    ("SQLITE_ENABLE_FTS3_PARENTHESIS", "1"),
    ("SQLITE_ENABLE_FTS5", "1"),
    ("SQLITE_ENABLE_LOAD_EXTENSION", "1"),
    ("SQLITE_ENABLE_RTREE", "1"),
    ("SQLITE_ENABLE_STAT4", "1"),
    ("SQLITE_SOUNDEX", "1"),
    ("SQLITE_THREADSAFE", "1"),
    ("SQLITE_USE_URI", "1"),
    ("HAVE_FDATASYNC", "1"),
    ("HAVE_ISNAN", "1"),
    ("HAVE_LOCALTIME_R", "1"),
    ("HAVE_USLEEP", "1"),
    ("_POSIX_THREAD_SAFE_FUNCTIONS", "1"),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=c");
    println!("cargo:rerun-if-env-changed=LSMVBT_SQLITE_CFLAGS");
    let source = variable("DEP_SQLITE3_INCLUDE")?;
    let output = PathBuf::from(variable("OUT_DIR")?);
    let amalgamation = Path::new(&source).join("sqlite3.c");
    println!("cargo:rerun-if-changed={}", amalgamation.display());
    let text = std::fs::read_to_string(&amalgamation)
        .map_err(|error| format!("{}: {error}", amalgamation.display()))?;
    let split = onewrite_sqlite_split::split(&text)
        .map_err(|error| format!("{}: {error}", amalgamation.display()))?;
    let file = output.join("sqlite3_two_engines.c");
    std::fs::write(&file, split)?;

    let mut build = cc::Build::new();
    build
        .file(&file)
        .include("c")
        .include(&source)
        .warnings(false);
    let in_place = std::env::var_os("CARGO_FEATURE_IN_PLACE_OF_BUNDLED").is_some();
    for (name, value) in if in_place { AS_BUNDLED } else { DEFINES } {
        build.define(name, *value);
    }
    // Compiles in half the time. Nobody debugs SQLite's own code, and tests do not wait for it.
    if variable("PROFILE")? == "debug" {
        build.opt_level(1).debug(false);
    }
    // In c/public.c.
    build.define("SQLITE_EXTRA_INIT", "lsmvbtExtraInit");
    for flag in std::env::var("LSMVBT_SQLITE_CFLAGS")
        .unwrap_or_default()
        .split_whitespace()
    {
        build.flag(flag);
    }
    // Its unused functions are those that only other builds call.
    build
        .flag_if_supported("-Wno-unused-function")
        .compile("sqlite3_two_engines");
    for library in ["m", "pthread", "dl"] {
        println!("cargo:rustc-link-lib={library}");
    }
    Ok(())
}

fn variable(name: &str) -> Result<String, Box<dyn Error>> {
    std::env::var(name).map_err(|error| format!("{name}: {error}").into())
}
