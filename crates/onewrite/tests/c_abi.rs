//! The C interface: a C program that is linked with the static library and with a SQLite, in the
//! ways that `onewrite.h` names.

#[path = "common/sqlite_source.rs"]
mod sqlite_source;

use sqlite_source::sqlite_source;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
#include "onewrite.h"

static char answer[64];

static int keep(void *unused, int columns, char **values, char **names) {
  (void)unused; (void)names;
  if (columns > 0 && values[0] != NULL) snprintf(answer, sizeof answer, "%s", values[0]);
  return 0;
}

static int run(sqlite3 *db, const char *sql, const char *expected) {
  char *error = NULL;
  answer[0] = 0;
  if (sqlite3_exec(db, sql, keep, NULL, &error) != SQLITE_OK) {
    printf("%s: %s\n", sql, error);
    return 1;
  }
  if (expected != NULL && strcmp(answer, expected) != 0) {
    printf("%s: %s instead of %s\n", sql, answer, expected);
    return 1;
  }
  return 0;
}

/* The read version and the log's id, as another VFS over ours sees them before there is a lock. */
static int reads_stock_header(sqlite3 *db) {
  static const unsigned char zeros[8];
  unsigned char header[100];
  sqlite3_file *file = NULL;
  if (sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK) return 0;
  if (file->pMethods->xRead(file, header, sizeof header, 0) != SQLITE_OK) return 0;
  return header[19] == 2 && memcmp(header + 72, zeros, 8) == 0;
}

int main(int argc, char **argv) {
  sqlite3 *db, *other;
  onewrite_api api;
  memset(&api, 0, sizeof api);
  if (argc != 2) return 2;
  /* A structure of another size, and a SQLite that is too old. */
  if (onewrite_register_with(&api, sizeof api - 1, SQLITE_VERSION_NUMBER, 0) == SQLITE_OK) return 3;
  if (onewrite_register_with(&api, sizeof api, 3039000, 0) == SQLITE_OK) return 4;
  if (strstr(onewrite_register_message(), "needs SQLite 3.40") == NULL) return 23;
  if (sqlite3_vfs_find("onewrite") != NULL) return 5;
  if (onewrite_register(0) != SQLITE_OK) return 6;
  if (onewrite_register(0) != SQLITE_OK) return 7;
  if (strcmp(sqlite3_vfs_find(NULL)->zName, "onewrite") == 0) return 8;
  if (sqlite3_open_v2(argv[1], &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "onewrite")) return 9;
  if (run(db, "PRAGMA journal_mode=waldio", "waldio")) return 10;
  if (run(db, "CREATE TABLE t(a); INSERT INTO t VALUES(1),(2),(3)", NULL)) return 11;
  if (run(db, "SELECT sum(a) FROM t", "6")) return 12;
  if (run(db, "PRAGMA integrity_check", "ok")) return 13;
  if (sqlite3_open_v2(argv[1], &other, SQLITE_OPEN_READONLY, "onewrite")) return 20;
  if (!reads_stock_header(other)) return 21;
  if (sqlite3_close(other) != SQLITE_OK) return 22;
  if (sqlite3_close(db) != SQLITE_OK) return 14;
  /* Through SQLite's own VFS: closed cleanly, it is a database like any other. */
  if (sqlite3_open_v2(argv[1], &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) return 15;
  if (run(db, "SELECT sum(a) FROM t", "6")) return 16;
  if (sqlite3_close(db) != SQLITE_OK) return 17;
  if (onewrite_register(1) != SQLITE_OK) return 18;
  if (strcmp(sqlite3_vfs_find(NULL)->zName, "onewrite") != 0) return 19;
  puts("done");
  return 0;
}
"#;

/// The libraries that `--print native-static-libs` names.
const LIBRARIES: [&str; 7] = [
    "-lgcc_s",
    "-lutil",
    "-lrt",
    "-lpthread",
    "-lm",
    "-ldl",
    "-lc",
];

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo
}

/// `libonewrite.a`, as cargo builds it. Tests are built with the library's Rust form only.
fn static_library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if std::env::var_os("ONEWRITE_BUILT").is_some() {
            // `scripts/test` has built everything. Another build would change the files that other
            // tests link with.
            let test = std::env::current_exe().expect("this program");
            let directory = test.ancestors().nth(2).expect("a target directory");
            return directory.join("libonewrite.a");
        }
        let built = cargo()
            .args([
                "build",
                "--package",
                "onewrite",
                "--message-format=json",
                "--offline",
            ])
            .output()
            .expect("cargo build");
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        let messages = String::from_utf8(built.stdout).expect("messages in UTF-8");
        let files = messages
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter_map(|message| message["filenames"].as_array().cloned())
            .flatten();
        let paths = files.filter_map(|file| file.as_str().map(PathBuf::from));
        let mut archives = paths.filter(|path| path.ends_with("libonewrite.a"));
        archives.next().expect("cargo built libonewrite.a")
    })
}

fn succeeded(output: Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    out.into_owned()
}

/// Compiles the program in `directory` with these additional arguments, and runs it on a database.
fn compile_and_run(directory: &Path, arguments: &[&str]) {
    compile(directory, PROGRAM, arguments);
    let output = Command::new(directory.join("program"))
        .arg(directory.join("test.db"))
        .env_remove("ONEWRITE_MAKE_DEFAULT")
        .env_remove("ONEWRITE_JOURNAL_MODE")
        .output();
    assert_eq!(succeeded(output.expect("the program")), "done\n");
}

/// Makes `program` in `directory`.
fn compile(directory: &Path, text: &str, arguments: &[&str]) {
    let source = directory.join("program.c");
    std::fs::write(&source, text).expect("a source file");
    let program = directory.join("program");
    let compiled = Command::new("cc")
        .args([
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-O1",
            "-o",
        ])
        .args([&program, &source])
        .arg("-I")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/include"))
        .args(arguments)
        .output();
    succeeded(compiled.expect("a C compiler"));
}

#[test]
fn a_c_program_with_its_own_sqlite_uses_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let sqlite = sqlite_source();
    let object = directory.path().join("sqlite3.o");
    let compiled = Command::new("cc")
        .args([
            "-O0",
            "-w",
            "-c",
            "-DHAVE_FDATASYNC=1",
            "-DSQLITE_THREADSAFE=1",
            "-o",
        ])
        .args([&object, &sqlite.join("sqlite3.c")])
        .output();
    succeeded(compiled.expect("a C compiler"));
    let (object, sqlite) = (path_text(&object), path_text(&sqlite));
    let library = path_text(static_library());
    let mut arguments = vec!["-I", sqlite, library, object];
    arguments.extend(LIBRARIES);
    compile_and_run(directory.path(), &arguments);
}

#[test]
fn a_c_program_with_the_systems_sqlite_uses_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let include = "#include <sqlite3.h>\n#if SQLITE_VERSION_NUMBER < 3040000\n#error\n#endif\nint main(void) { return 0; }\n";
    let probe = directory.path().join("probe.c");
    std::fs::write(&probe, include).expect("a source file");
    let found = Command::new("cc")
        .arg("-o")
        .args([&directory.path().join("probe"), &probe])
        .arg("-lsqlite3")
        .output();
    if !found.expect("a C compiler").status.success() {
        eprintln!("SKIPPED: no sqlite3.h and libsqlite3 of 3.40 or later (libsqlite3-dev) here");
        return;
    }
    let mut arguments = vec![path_text(static_library()), "-lsqlite3"];
    arguments.extend(LIBRARIES);
    compile_and_run(directory.path(), &arguments);
    compile(directory.path(), &example("c"), &arguments);
    let mut program = Command::new(directory.path().join("program"));
    succeeded(
        program
            .current_dir(&directory)
            .output()
            .expect("the program"),
    );
    assert!(directory.path().join("app.db").exists());
}

/// The example of a language in docs/languages.md.
fn example(language: &str) -> String {
    let page = include_str!("../../../docs/languages.md");
    let (_, from) = page
        .split_once(&format!("```{language}\n"))
        .expect("an example");
    from.split_once("```").expect("its end").0.to_owned()
}

/// A process may hold several SQLites, and each gets the VFS. It may also unload one and load it
/// again.
#[test]
fn every_sqlite_of_a_process_gets_the_vfs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name);
    let sqlite = sqlite_source();
    let shared = ["-O0", "-w", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-o"];
    let compiled = Command::new("cc")
        .args(shared)
        .args([&at("one.so"), &sqlite.join("sqlite3.c")])
        .output();
    succeeded(compiled.expect("a C compiler"));
    for name in ["two.so", "three.so"] {
        std::fs::copy(at("one.so"), at(name)).expect("a copy");
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c_abi/several.c");
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
    let compiled = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .args([&at("program"), Path::new(source)])
        .args(["-I", include, "-I", path_text(&sqlite)])
        .arg(static_library())
        // A function that is not called here names these symbols.
        .arg("-Wl,--unresolved-symbols=ignore-all")
        .args(LIBRARIES)
        .output();
    succeeded(compiled.expect("a C compiler"));
    let mut program = Command::new(at("program"));
    program.arg(directory.path());
    program.args(["one.so", "two.so", "three.so"].map(at));
    program.env_remove("ONEWRITE_MAKE_DEFAULT");
    program.env_remove("ONEWRITE_JOURNAL_MODE");
    assert_eq!(succeeded(program.output().expect("the program")), "done\n");
}

/// A program without any SQLite at link time can be linked; it may load one at run time. The
/// library resolves no function of SQLite by name.
#[test]
fn the_library_names_no_function_of_sqlite() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = directory.path().join("alone.c");
    let alone = "#include <stddef.h>\nint onewrite_register_with(const void *, size_t, int, int);\n\
                 int main(void) { return onewrite_register_with(NULL, 0, 0, 0) == 1 ? 0 : 1; }\n";
    std::fs::write(&source, alone).expect("a source file");
    let program = directory.path().join("alone");
    let compiled = Command::new("cc")
        .arg("-o")
        .args([&program, &source])
        .arg(static_library())
        .args(LIBRARIES)
        .output();
    succeeded(compiled.expect("a C compiler"));
    succeeded(Command::new(&program).output().expect("the program"));
    let symbols = Command::new("nm").arg(&program).output();
    let symbols = succeeded(symbols.expect("nm"));
    let sqlite: Vec<_> = symbols
        .lines()
        .filter(|line| line.contains(" U sqlite3_"))
        .collect();
    assert!(sqlite.is_empty(), "{sqlite:?}");
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
