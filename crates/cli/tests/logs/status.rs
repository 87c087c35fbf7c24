//! `onewrite status`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Output;

use onewrite_iotrace::scratch::{Mounted, private_mounts};
use rustix::mount::{MountFlags, mount_remount};
use serde_json::{Value, json};

use super::case::Case;
use super::verify::MODES;
use super::writer::{FOUR_COMMITS, Then, Writer};
use super::{companion, lossy, onewrite, run, snapshot, stock};

impl Case {
    /// The document and the exit code. No file changes, and none is made.
    fn status(&self) -> (Value, i32) {
        let before = snapshot(self.directory.path());
        let found = document(&self.database());
        assert_eq!(snapshot(self.directory.path()), before);
        found
    }

    /// It exits with 0: the document, with the text for people.
    fn told(&self) -> (Value, String) {
        let (found, code) = self.status();
        assert_eq!(code, 0, "{found:#}");
        let output = run(onewrite(&[
            "status",
            self.database().to_str().expect("UTF-8"),
        ]));
        assert_eq!(output.status.code(), Some(0));
        (found, lossy(&output.stdout))
    }

    /// Whether stock SQLite opens a copy of the database and its own files.
    fn stock_opens(&self) -> bool {
        let copies = tempfile::tempdir().expect("a directory");
        let copy = copies.path().join("copy.db");
        for suffix in ["", "-wal", "-journal"] {
            if self.file(suffix).exists() {
                fs::copy(self.file(suffix), companion(&copy, suffix)).expect("a copy");
            }
        }
        let read = stock(&copy)
            .and_then(|stock| stock.query_row("SELECT * FROM sqlite_schema", [], |_| Ok(())));
        read.is_ok()
    }
}

/// The command on a file.
fn status_of(file: &Path, more: &[&str]) -> Output {
    let mut command = onewrite(&["status"]);
    command.args(more).arg("--").arg(file);
    run(command)
}

fn document(file: &Path) -> (Value, i32) {
    let output = status_of(file, &["--json"]);
    let document = serde_json::from_slice(&output.stdout);
    let document = document.unwrap_or_else(|e| {
        let (out, err) = (lossy(&output.stdout), lossy(&output.stderr));
        panic!("{e}: {out:?} {err:?}")
    });
    (document, output.status.code().expect("no signal"))
}

/// There is no document. Returns the message.
fn refused(file: &Path) -> String {
    let output = status_of(file, &["--json"]);
    assert_eq!(output.status.code(), Some(1), "{file:?}");
    assert!(output.stdout.is_empty(), "{file:?}");
    lossy(&output.stderr)
}

#[test]
fn every_mode_is_told_in_use_after_a_kill_and_closed() {
    for (mode, layout) in MODES {
        let case = Case::new();
        let start = || Writer::start(&case.database(), mode, layout, FOUR_COMMITS, Then::Wait);
        let writer = start();
        let pid = writer.pid();
        let is_guarded = !["direct", "wal"].contains(&mode);
        let whose = if mode == "wal" { "stock" } else { "onewrite" };
        let check = |found: &Value, state: &str| {
            assert_eq!(
                (&found["kind"], &found["journal_mode"], &found["state"]),
                (&json!(whose), &json!(mode), &json!(state)),
                "{layout}: {found:#}"
            );
            assert_eq!(found["stock_sqlite_opens"], case.stock_opens(), "{found:#}");
            let is_own = found["log"]["format_version"].is_number();
            // Stock SQLite removes its log at the last close.
            assert_eq!(is_own, mode != "wal", "{found:#}");
            assert_eq!(found["way_out"].is_string(), mode != "wal", "{found:#}");
            let copy = found["copy"].as_str().expect("a string");
            assert_eq!(
                copy.contains("onewrite backup"),
                state == "in-use",
                "{copy}"
            );
            let log = found["log"]["path"].as_str().expect("a path");
            assert_eq!(copy.contains(log), state == "needs-recovery", "{copy}");
        };
        // In use.
        let (live, text) = case.told();
        check(&live, "in-use");
        assert_eq!(live["guarded"], is_guarded);
        let pids: Vec<&Value> = live["programs"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|it| &it["pid"])
            .collect();
        assert_eq!(pids, [&json!(pid)], "{live:#}");
        assert!(text.contains(&format!("({pid})")), "{text}");
        let log = &live["log"];
        assert!(log["transactions"].as_u64() >= Some(4), "{live:#}");
        assert_eq!(log["frames_not_checkpointed"], log["frames"], "{live:#}");
        // After a kill.
        writer.kill();
        let (dead, text) = case.told();
        check(&dead, "needs-recovery");
        assert_eq!(dead["guarded"], is_guarded);
        assert_eq!(dead["programs"], json!([]));
        assert_eq!(&dead["log"], log, "{dead:#}");
        assert!(text.contains("needs recovery"), "{text}");
        assert_eq!(text.contains("onewrite detach"), mode != "wal", "{text}");
        // Closed.
        let case = Case::new();
        Writer::start(&case.database(), mode, layout, FOUR_COMMITS, Then::Wait).finish();
        let (closed, text) = case.told();
        assert_eq!(
            (
                &closed["state"],
                &closed["journal_mode"],
                &closed["stock_sqlite_opens"]
            ),
            (&json!("clean"), &json!(mode), &json!(true)),
            "{closed:#}"
        );
        assert!(case.stock_opens());
        let copy = closed["copy"].as_str().expect("a string");
        assert!(copy.contains("the file alone is complete"), "{copy}");
        assert!(text.contains(copy), "{text}");
        let frames = match mode {
            "wal" => Value::Null,
            _ => json!([0, 0]),
        };
        let log = &closed["log"];
        let told = log
            .as_object()
            .map(|log| json!([log["frames"], log["frames_not_checkpointed"]]));
        assert_eq!(told.unwrap_or_default(), frames, "{closed:#}");
    }
}

#[test]
fn what_a_checkpoint_copied_is_told_apart_while_it_is_in_use() {
    for (mode, layout) in MODES {
        let case = Case::new();
        let sql = format!("{FOUR_COMMITS} PRAGMA wal_checkpoint;");
        let writer = Writer::start(&case.database(), mode, layout, &sql, Then::Wait);
        let (found, text) = case.told();
        let log = &found["log"];
        assert!(log["frames"].as_u64() >= Some(4), "{mode}: {found:#}");
        assert_eq!(log["frames_not_checkpointed"], 0, "{mode}: {found:#}");
        assert!(text.contains("all checkpointed"), "{text}");
        writer.finish();
    }
}

#[test]
fn a_stock_database_in_a_rollback_mode_is_one() {
    let case = Case::new();
    let start = |sql: &str| Writer::start(&case.database(), "delete", "auto", sql, Then::Wait);
    // An idle connection holds no lock.
    let idle = start(FOUR_COMMITS);
    let (found, text) = case.told();
    let is = |found: &Value, state: &str| {
        let words = (&found["kind"], &found["journal_mode"], &found["state"]);
        let expected = (&json!("stock"), &json!("rollback"), &json!(state));
        assert_eq!(words, expected, "{found:#}");
        assert_eq!(found["stock_sqlite_opens"], true);
        assert_eq!(
            (&found["log"], &found["way_out"]),
            (&Value::Null, &Value::Null)
        );
    };
    is(&found, "in-use");
    assert_eq!(found["programs"][0]["pid"], idle.pid());
    assert!(
        text.contains("rollback mode") && text.contains("it is stock"),
        "{text}"
    );
    idle.finish();
    let (found, text) = case.told();
    is(&found, "clean");
    assert!(
        text.contains("can open it") && text.contains("clean"),
        "{text}"
    );
    // At OFF the journal is hot from its first byte on.
    let writer = start("PRAGMA synchronous=off; BEGIN; INSERT INTO t VALUES(9, 'nine');");
    is(&case.told().0, "in-use");
    writer.kill();
    let (found, text) = case.told();
    is(&found, "needs-recovery");
    assert!(text.contains("rolls it back"), "{text}");
}

#[test]
fn an_empty_file_is_an_empty_database_and_other_files_are_refused_with_the_reason() {
    let case = Case::new();
    fs::write(case.database(), "").expect("a file");
    let (found, text) = case.told();
    assert_eq!(
        (&found["kind"], &found["state"]),
        (&json!("stock"), &json!("clean"))
    );
    assert!(
        text.contains("0 bytes") && text.contains("without tables"),
        "{text}"
    );
    fs::remove_file(case.database()).expect("the file");

    let at = |name: &str| case.directory.path().join(name);
    fs::write(at("hello"), "hello").expect("a file");
    fs::create_dir(at("directory")).expect("a directory");
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), 0o600.into()).expect("a pipe");
    for (name, words) in [
        ("none", "no such file"),
        ("hello", "begins with \"hello\""),
        ("directory", "this is a directory"),
        ("pipe", "not a regular file"),
    ] {
        let (file, said) = (at(name), refused(&at(name)));
        assert!(
            said.contains(words) && said.contains(file.to_str().expect("UTF-8")),
            "{said}"
        );
        assert!(!said.contains("os error"), "{said}");
    }
    let said = refused(Path::new("file:///tmp/none.db?mode=ro"));
    assert!(said.contains("give the path"), "{said}");
    let mut names: Vec<_> = fs::read_dir(case.directory.path())
        .expect("it")
        .map(|it| it.expect("it").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["directory", "hello", "pipe"], "nothing was made");
}

#[test]
fn a_file_next_to_a_database_leads_to_it() {
    let case = Case::killed("onewrite", "auto");
    let database = case.database();
    let database = database.to_str().expect("UTF-8");
    for suffix in ["-onewrite", "-shm", "-onewrite-shm", "-onewrite-lock"] {
        let said = refused(&case.file(suffix));
        assert!(
            said.contains(&format!("onewrite status {database}\n")),
            "{said}"
        );
    }
    // The log of a removed database.
    let log = case.directory.path().join("other.db-onewrite");
    fs::copy(case.file("-onewrite"), &log).expect("a copy");
    let said = refused(&log);
    assert!(
        said.contains("not there") && said.contains("onewrite inspect"),
        "{said}"
    );
    let renamed = case.directory.path().join("a log");
    fs::rename(&log, &renamed).expect("another name");
    assert!(refused(&renamed).contains("this is a log"));
}

#[test]
fn what_is_wrong_is_told_and_is_another_exit_code() {
    let case = Case::killed("onewrite", "auto");
    let whole = fs::read(case.file("-onewrite")).expect("the log");
    let mut newer = whole.clone();
    super::make_newer(&mut newer);
    fs::write(case.file("-onewrite"), &newer).expect("the log");
    let broken = |words: &str| {
        let (found, code) = case.status();
        assert_eq!((code, &found["state"]), (1, &json!("broken")), "{found:#}");
        assert!(found["problems"].to_string().contains(words), "{found:#}");
        // No command before the problems are seen: it could drop transactions.
        let advice = (&found["way_out"], &found["copy"]);
        assert_eq!(advice, (&Value::Null, &Value::Null), "{found:#}");
        let output = status_of(&case.database(), &[]);
        assert_eq!(output.status.code(), Some(1));
        let text = lossy(&output.stdout);
        assert!(
            text.contains(words) && text.contains("onewrite verify"),
            "{text}"
        );
        found
    };
    let found = broken("use a newer onewrite");
    assert_eq!(
        (&found["log"]["format_version"], &found["journal_mode"]),
        (&json!(9), &Value::Null)
    );
    assert_eq!(found["log"]["frames_not_checkpointed"], Value::Null);
    fs::remove_file(case.file("-onewrite")).expect("the log");
    broken("missing");
    fs::write(case.file("-onewrite"), &whole).expect("the log");
    fs::write(
        case.file("-journal"),
        [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7, 0, 0],
    )
    .expect("a journal");
    broken("a file of stock SQLite");
    fs::remove_file(case.file("-journal")).expect("the journal");
    assert_eq!(case.told().0["state"], "needs-recovery");
    fs::write(case.database(), "").expect("an empty file");
    broken("never replayed");
}

#[test]
fn names_of_any_kind_are_read_and_the_way_out_is_one_word_of_a_shell() {
    let case = Case::killed("onewrite", "auto");
    let names: [&[u8]; 6] = [
        b"a b.db",
        b"it's.db",
        b"-x.db",
        b"new\nline.db",
        b"\xff.db",
        b"x.db?mode=ro",
    ];
    for name in names {
        let name = OsStr::from_bytes(name);
        let directory = tempfile::tempdir().expect("a directory");
        let database = directory.path().join(name);
        for suffix in ["", "-onewrite"] {
            fs::copy(case.file(suffix), companion(&database, suffix)).expect("a copy");
        }
        let mut command = onewrite(&["status", "--json", "--"]);
        command.arg(name).current_dir(directory.path());
        let output = run(command);
        let found: Value = serde_json::from_slice(&output.stdout).expect("a document");
        assert_eq!(
            (output.status.code(), &found["state"]),
            (Some(0), &json!("needs-recovery"))
        );
        let Some(name) = name.to_str() else { continue };
        assert_eq!(found["file"], name);
        // A shell finds the file by it.
        let words = found["way_out"].as_str().expect("a command");
        let word = words.strip_prefix("onewrite detach ").expect(words);
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", &format!("test -f {word}")])
            .current_dir(directory.path());
        assert!(run(shell).status.success(), "{word}");
    }
    // A link leads to the files next to its target.
    let link = case.directory.path().join("link.db");
    std::os::unix::fs::symlink(case.database(), &link).expect("a link");
    let (found, code) = document(&link);
    assert_eq!(
        (code, &found["journal_mode"]),
        (0, &json!("onewrite")),
        "{found:#}"
    );
}

/// The files of a database in use, as a kill leaves them. This process does not read them: closing
/// them would drop the locks of its own connections.
fn crashed(case: &Case) -> Case {
    let copies = Case::new();
    for suffix in ["", "-wal", "-shm", "-journal", "-onewrite"] {
        if case.file(suffix).exists() {
            let mut copy = std::process::Command::new("cp");
            copy.args([case.file(suffix), copies.file(suffix)]);
            assert!(run(copy).status.success());
        }
    }
    copies
}

#[test]
fn files_of_stock_sqlite_are_seen_next_to_a_log_that_remembers_a_mode() {
    for mode in ["onewrite", "waldio", "swal"] {
        let case = Case::new();
        Writer::start(&case.database(), mode, "auto", FOUR_COMMITS, Then::Wait).finish();
        let connection = stock(&case.database()).expect("stock SQLite");
        let rows = "PRAGMA wal_autocheckpoint=0;
            INSERT INTO t VALUES(8, 'eight'); INSERT INTO t VALUES(9, 'nine');";
        connection.execute_batch(rows).expect(rows);
        let check = |found: &Value, state: &str| {
            let log = &found["log"];
            assert_eq!(found["state"], state, "{found:#}");
            assert!(
                log["path"].as_str().is_some_and(|it| it.ends_with("-wal")),
                "{found:#}"
            );
            let counts = [
                &log["frames"],
                &log["transactions"],
                &log["frames_not_checkpointed"],
            ];
            assert_eq!(counts, [&json!(2); 3], "{found:#}");
        };
        check(&document(&case.database()).0, "in-use");
        let dead = crashed(&case);
        let (found, text) = dead.told();
        check(&found, "needs-recovery");
        assert!(
            text.contains("2 transactions") && !text.contains("holds everything"),
            "{text}"
        );
        // A rollback mode.
        let sql = "PRAGMA journal_mode=delete; PRAGMA synchronous=off;
            BEGIN; INSERT INTO t VALUES(10, 'ten');";
        connection.execute_batch(sql).expect(sql);
        let (found, text) = crashed(&case).told();
        assert_eq!(found["state"], "needs-recovery", "{found:#}");
        assert!(
            text.contains("rolls it back") && !text.contains("holds everything"),
            "{text}"
        );
        drop(connection);
        // The way out keeps the rows.
        let way_out = onewrite(&["detach", dead.database().to_str().expect("UTF-8")]);
        assert!(run(way_out).status.success());
        let rows = stock(&dead.database()).expect("stock SQLite");
        assert_eq!(super::number(&rows, "SELECT count(*) FROM t"), 5);
    }
}

#[test]
fn damage_that_the_header_of_a_database_shows_is_told() {
    let case = Case::new();
    Writer::start(&case.database(), "delete", "auto", FOUR_COMMITS, Then::Wait).finish();
    let whole = fs::read(case.database()).expect("the database");
    let mut bad_page_size = whole.clone();
    bad_page_size[16..18].copy_from_slice(&[0, 3]);
    for (content, words, opens) in [
        (
            &whole[..5000],
            "cut short: 5000 bytes, but its header counts 8192",
            true,
        ),
        (&whole[..4096], "cut short: 4096 bytes", false),
        (&bad_page_size, "impossible page size", false),
        (
            b"SQLite format 3\0abc",
            "cut short: 19 bytes of its header",
            false,
        ),
    ] {
        fs::write(case.database(), content).expect("a database");
        let (found, code) = case.status();
        assert_eq!((code, &found["state"]), (1, &json!("broken")), "{found:#}");
        assert!(found["problems"].to_string().contains(words), "{found:#}");
        assert_eq!(case.stock_opens(), opens, "{words}");
        assert_eq!(found["stock_sqlite_opens"], opens, "{found:#}");
        let text = lossy(&status_of(&case.database(), &[]).stdout);
        assert_eq!(text.contains("can open it"), opens, "{text}");
        assert!(!text.contains("it is stock"), "{text}");
    }
}

#[test]
fn nothing_is_said_about_the_content_of_a_log_without_a_header() {
    let case = Case::killed("onewrite", "auto");
    let whole = fs::read(case.file("-onewrite")).expect("the log");
    for damage in [&[0; 4096][..], &[0xff; 12]] {
        let mut log = whole.clone();
        log[..damage.len()].copy_from_slice(damage);
        fs::write(case.file("-onewrite"), &log).expect("the log");
        let (found, code) = case.status();
        assert_eq!((code, &found["state"]), (1, &json!("broken")), "{found:#}");
        for field in ["frames", "transactions", "frames_not_checkpointed"] {
            assert_eq!(found["log"][field], Value::Null, "{found:#}");
        }
        let text = lossy(&status_of(&case.database(), &[]).stdout);
        assert!(
            text.contains("cannot be told") && !text.contains("holds everything"),
            "{text}"
        );
        // The engine takes it for damaged, too.
        let detach = onewrite(&["detach", case.database().to_str().expect("UTF-8")]);
        assert_eq!(run(detach).status.code(), Some(1));
        assert_eq!(fs::read(case.file("-onewrite")).expect("the log"), log);
    }
}

#[test]
fn a_wal_index_without_its_log_was_not_closed() {
    for mode in ["wal", "direct"] {
        let case = Case::killed(mode, "auto");
        let check = || {
            let (found, text) = case.told();
            assert_eq!(found["state"], "needs-recovery", "{found:#}");
            assert!(text.contains("-shm is there"), "{text}");
            assert!(!text.contains("complete"), "{text}");
            let database = case.database();
            let verified = run(onewrite(&["verify", database.to_str().expect("UTF-8")]));
            assert_eq!(verified.status.code(), Some(0));
            let verified = lossy(&verified.stdout);
            assert!(verified.contains("-shm is there"), "{verified}");
        };
        fs::write(case.file("-wal"), "").expect("an empty log");
        check();
        fs::remove_file(case.file("-wal")).expect("the log");
        check();
        fs::remove_file(case.file("-shm")).expect("the wal-index");
        let (found, text) = case.told();
        assert_eq!(found["state"], "clean", "{found:#}");
        assert!(!text.contains("-shm"), "{text}");
    }
}

/// A user who may only read cannot remove the wal-index when it closes the database.
#[test]
fn a_wal_index_that_names_no_commit_says_nothing_is_missing() {
    for mode in ["wal", "direct", "onewrite"] {
        let case = Case::new();
        Writer::start(&case.database(), mode, "auto", FOUR_COMMITS, Then::Wait).finish();
        // As SQLite makes it over a log without frames: two copies of a header.
        let mut header = [0; 48];
        header[..4].copy_from_slice(&3_007_000_u32.to_ne_bytes());
        header[12] = 1;
        let made = [&header[..], &header[..], &[0; 32_672][..]].concat();
        for index in [made, vec![0; 32_768], Vec::new()] {
            fs::write(case.file("-shm"), &index).expect("a wal-index");
            fs::write(case.file("-wal"), "").expect("an empty log");
            let (found, text) = case.told();
            assert_eq!(found["state"], "clean", "{mode}: {found:#}");
            let database = case.database();
            let verified = run(onewrite(&["verify", database.to_str().expect("UTF-8")]));
            assert_eq!(verified.status.code(), Some(0));
            for text in [text, lossy(&verified.stdout)] {
                assert!(text.contains("names no commit"), "{mode}: {text}");
                for alarm in ["not closed", "lost", "deleted"] {
                    assert!(!text.contains(alarm), "{mode}: {alarm}: {text}");
                }
            }
        }
    }
}

#[test]
fn a_name_does_not_reach_the_terminal_raw() {
    let case = Case::killed("onewrite", "auto");
    let name = case.directory.path().join("a\n\u{1b}[31m\u{9b}b.db");
    for suffix in ["", "-onewrite"] {
        fs::copy(case.file(suffix), companion(&name, suffix)).expect("a copy");
    }
    let told = status_of(&name, &[]);
    let refused = status_of(&companion(&name, "-onewrite"), &[]);
    for shown in [lossy(&told.stdout), lossy(&refused.stderr)] {
        assert!(shown.contains(r"a\n\u{1b}[31m\u{9b}b.db"), "{shown:?}");
        let is_raw = |c: char| c.is_control() && c != '\n';
        assert!(!shown.contains(is_raw), "{shown:?}");
    }
    assert_eq!(told.status.code(), Some(0));
    assert!(!lossy(&told.stdout).contains("a\n"));
}

#[test]
fn another_name_of_the_same_file_is_told() {
    let case = Case::killed("onewrite", "auto");
    assert!(!case.told().1.contains("names"));
    let link = case.directory.path().join("other.db");
    fs::hard_link(case.database(), link).expect("another name");
    let (found, text) = case.told();
    let note = found["notes"].to_string();
    assert!(note.contains("2 names"), "{found:#}");
    assert!(text.contains("2 names"), "{text}");
}

#[test]
fn a_command_line_without_a_database_or_with_two_is_wrong() {
    for arguments in [
        &["status"][..],
        &["status", "a.db", "b.db"],
        &["status", "--no", "a.db"],
    ] {
        assert_eq!(run(onewrite(arguments)).status.code(), Some(2));
    }
}

#[test]
fn a_user_without_rights_and_a_file_system_that_is_read_only_do() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: takes root");
        return;
    }
    private_mounts().expect("a mount namespace");
    let case = Case::killed("onewrite", "auto");
    let place = tempfile::tempdir().expect("a directory");
    let mounted = Mounted::with_options(
        Path::new("onewrite-test"),
        place.path(),
        "tmpfs",
        Some(c"size=64m,mode=755"),
    );
    let mounted = mounted.expect("a file system");
    let database = place.path().join("test.db");
    for suffix in ["", "-onewrite"] {
        fs::copy(case.file(suffix), companion(&database, suffix)).expect("a copy");
    }
    let open = std::os::unix::fs::PermissionsExt::from_mode;
    let programs = tempfile::tempdir().expect("a directory");
    fs::set_permissions(programs.path(), open(0o755)).expect("permissions");
    let program = programs.path().join("onewrite");
    onewrite_common::files::copy_program(env!("CARGO_BIN_EXE_onewrite"), &program);
    let nobody = || {
        let mut command = std::process::Command::new(&program);
        command
            .arg("status")
            .arg(&database)
            .uid(65_534)
            .gid(65_534)
            .current_dir("/");
        run(command)
    };
    fs::set_permissions(&database, open(0o644)).expect("permissions");
    fs::set_permissions(companion(&database, "-onewrite"), open(0o644)).expect("permissions");
    mount_remount(place.path(), MountFlags::RDONLY, c"").expect("read-only");
    let output = nobody();
    let text = lossy(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{text}{}",
        lossy(&output.stderr)
    );
    assert!(
        text.contains("needs recovery") && text.contains("without root"),
        "{text}"
    );
    mount_remount(place.path(), MountFlags::empty(), c"").expect("writable");
    for suffix in ["-onewrite", ""] {
        fs::set_permissions(companion(&database, suffix), open(0o600)).expect("permissions");
        let output = nobody();
        let said = lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("no permission to read it, or the log"),
            "{said}"
        );
    }
    mounted.unmount().expect("unmounted");
}
