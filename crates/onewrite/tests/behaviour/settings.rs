//! Settings by URI and environment, for applications that set nothing themselves.

use super::{open, open_flags, sql, status, stock};
use rusqlite::OpenFlags;
use std::path::Path;
use std::process::Command;

#[test]
fn a_uri_names_mode_and_settings() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let uri = format!(
        "file:{}?vfs=onewrite&journal_mode=waldio&onewrite_layout=page4k&onewrite_sync=normal",
        path.display()
    );
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let open = || open_flags(uri.as_ref(), "onewrite", flags).expect("a connection");
    let db = open();
    sql(&db, "CREATE TABLE t(x)");
    drop(db);
    let db = open();
    sql(&db, "INSERT INTO t VALUES(1)");
    assert_eq!(sql(&db, "PRAGMA journal_mode"), "waldio");
    let status = status(&db);
    assert_eq!(
        (&status["layout"], &status["sync"]),
        (&"page4k".into(), &"normal".into())
    );
    // The application's own statement takes precedence.
    assert_eq!(sql(&db, "PRAGMA journal_mode=delete"), "delete");
    assert_eq!(sql(&db, "PRAGMA journal_mode"), "delete");
}

/// The error of `sqlite3_open` says what is wrong, and so does an unknown name.
#[test]
fn a_wrong_parameter_of_the_uri_refuses_the_database_and_says_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let uri = |parameter: &str| format!("file:{}?{parameter}", path.display());
    let count = || std::fs::read_dir(&directory).expect("a directory").count();
    for (parameter, why) in [
        ("journal_mode=wadlio", "unknown value 'wadlio'"),
        ("onewrite_linger=soon", "unknown value 'soon'"),
        ("onewrite_sync=sometimes", "unknown value 'sometimes'"),
        (
            "onewrite_upgrade_wal=wadlio",
            "onewrite_upgrade_wal: unknown value 'wadlio'",
        ),
        (
            "journal_mode=onewrite&onewrite_synk=full",
            "unknown URI parameter onewrite_synk",
        ),
        ("onewrite_status=1", "unknown URI parameter onewrite_status"),
    ] {
        let opened = open_flags(uri(parameter).as_ref(), "onewrite", flags);
        let refused = opened.expect_err(parameter).to_string();
        assert!(refused.contains(why), "{parameter}: {refused}");
        assert!(refused.contains(path.to_str().expect("UTF-8")), "{refused}");
        // Here SQLite has words of its own.
        let immutable = uri(&format!("immutable=1&{parameter}"));
        let immutable = open_flags(immutable.as_ref(), "onewrite", flags);
        immutable.expect_err("refused, too");
        let db = open_flags(":memory:".as_ref(), "onewrite", flags).expect("a connection");
        let attach = format!("ATTACH '{}' AS other", uri(parameter));
        let attached = super::outcome(&db, &attach);
        assert!(attached.starts_with("error 14"), "{parameter}: {attached}");
        assert_eq!(count(), 0, "{parameter}: no file is made");
    }
    // The parameters of other programs are ignored.
    let db = open_flags(
        uri("other_sync=full&onewrite_sync=full").as_ref(),
        "onewrite",
        flags,
    );
    assert_eq!(
        sql(&db.expect("a connection"), "PRAGMA onewrite_sync"),
        "full"
    );
}

/// A connection's URI says how to make the log. The connection that converts the database for it
/// must follow that.
#[test]
fn a_database_that_is_converted_by_its_uri_gets_the_log_that_the_uri_describes() {
    for (layout, init, direct) in [
        ("sector", "zero-fill", "off"),
        ("page4k", "unwritten", "auto"),
        ("page8k", "zero-fill", "auto"),
        ("embedded", "unwritten", "off"),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("db");
        // The database already has content, in a rollback mode, with room for frame headers.
        let db = open_flags(&path, "onewrite", OpenFlags::default()).expect("a connection");
        sql(&db, "PRAGMA onewrite_reserve_bytes=24");
        sql(&db, "CREATE TABLE t(x)");
        sql(&db, "INSERT INTO t VALUES(1)");
        drop(db);
        let uri = format!(
            "file:{}?journal_mode=waldio&onewrite_layout={layout}&onewrite_init={init}\
             &onewrite_direct_io={direct}",
            path.display()
        );
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
        let db = open_flags(uri.as_ref(), "onewrite", flags).expect("a connection");
        assert_eq!(sql(&db, "SELECT count(*) FROM t"), "1");
        sql(&db, "INSERT INTO t VALUES(2)");
        let status = status(&db);
        assert_eq!(status["mode"], "waldio");
        assert_eq!(status["layout"], layout);
        assert_eq!(status["init"], init);
        if direct == "off" {
            assert_eq!(status["direct_io"], false);
            assert_eq!(status["direct_io_why_not"], "direct I/O was turned off");
        }
        drop(db);
        assert_eq!(sql(&stock(&path), "SELECT count(*) FROM t"), "2");
    }
}

/// The child of the test below.
#[test]
#[ignore = "run by another test"]
fn child() {
    let path = std::env::var_os("ONEWRITE_TEST_DATABASE").expect("a path");
    onewrite::register().expect("the VFS onewrite");
    for _ in 0..2 {
        let db = rusqlite::Connection::open(&path).expect("a connection by the default VFS");
        if let Ok(word) = std::env::var("ONEWRITE_TEST_PRAGMA") {
            sql(&db, &word);
        }
        sql(&db, "CREATE TABLE IF NOT EXISTS t(x)");
        sql(&db, "INSERT INTO t VALUES(1)");
        let said = sql(&db, "PRAGMA journal_mode");
        // Without our VFS there is no status.
        let status: serde_json::Value =
            serde_json::from_str(&sql(&db, "PRAGMA onewrite_status")).unwrap_or_default();
        println!("warnings={}", status["warnings"]);
        let in_use = status["mode"].as_str().unwrap_or("stock");
        let compression = status["compression"].as_str();
        let compression = compression.map(|with| format!(",{with}"));
        println!("mode={said},{in_use}{}", compression.unwrap_or_default());
    }
}

/// What [`child`] prints for a database in this environment.
fn said(path: &Path, variables: &[(&str, &str)]) -> String {
    heard(path, variables).0
}

/// The same, and its standard error.
pub(super) fn heard(path: &Path, variables: &[(&str, &str)]) -> (String, String) {
    heard_from("settings::child", path, variables)
}

/// The same of another test that is only run so.
pub(super) fn heard_from(child: &str, path: &Path, variables: &[(&str, &str)]) -> (String, String) {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", child, "--ignored", "--nocapture"])
        .env("ONEWRITE_TEST_DATABASE", path)
        .envs(variables.iter().copied())
        .output()
        .expect("a child");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{}: {text}{errors}",
        path.display()
    );
    (text, errors)
}

/// A name, environment variables, the pragma's answer, and our mode in use.
type Case = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
);

#[test]
fn the_environment_chooses_for_applications_that_do_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let cases: [Case; 9] = [
        ("silent", &[], "waldio,waldio"),
        (
            "asks for direct",
            &[("ONEWRITE_JOURNAL_MODE", "direct")],
            "direct,direct",
        ),
        (
            "asks for a stock mode",
            &[("ONEWRITE_JOURNAL_MODE", "wal")],
            "delete,stock",
        ),
        (
            "asks for no mode",
            &[("ONEWRITE_JOURNAL_MODE", "waldo")],
            "delete,stock",
        ),
        (
            "says wal",
            &[("ONEWRITE_TEST_PRAGMA", "PRAGMA journal_mode=wal")],
            "wal,stock",
        ),
        (
            "says wal, and is upgraded",
            &[
                ("ONEWRITE_TEST_PRAGMA", "PRAGMA journal_mode=wal"),
                ("ONEWRITE_UPGRADE_WAL", "1"),
            ],
            // An application that asks for WAL may compare the answer.
            "wal,waldio",
        ),
        (
            "says wal, and is upgraded by name",
            &[
                ("ONEWRITE_TEST_PRAGMA", "PRAGMA journal_mode=wal"),
                ("ONEWRITE_UPGRADE_WAL", "direct"),
            ],
            "wal,direct",
        ),
        (
            "is not upgraded by a word that is no mode",
            &[
                ("ONEWRITE_TEST_PRAGMA", "PRAGMA journal_mode=wal"),
                ("ONEWRITE_UPGRADE_WAL", "0"),
            ],
            "wal,stock",
        ),
        (
            "says delete",
            &[
                ("ONEWRITE_TEST_PRAGMA", "PRAGMA journal_mode=delete"),
                ("ONEWRITE_UPGRADE_WAL", "1"),
            ],
            "delete,stock",
        ),
    ];
    for (name, variables, expected) in cases {
        let usual = [
            ("ONEWRITE_MAKE_DEFAULT", "1"),
            ("ONEWRITE_JOURNAL_MODE", "waldio"),
        ];
        // If a variable has two values, the later one counts.
        let text = said(&directory.path().join(name), &[&usual, variables].concat());
        let last = text.lines().rfind(|line| line.contains("mode="));
        assert!(
            last.is_some_and(|line| line.ends_with(&format!("mode={expected}"))),
            "{name}: {text}"
        );
    }
}

#[test]
fn the_uri_upgrades_wal_and_counts_more_than_the_environment() {
    let directory = tempfile::tempdir().expect("a directory");
    for (number, (parameters, variable, expected)) in [
        ("onewrite_upgrade_wal=onewrite", "0", "wal,onewrite"),
        ("onewrite_upgrade_wal=onewrite", "direct", "wal,onewrite"),
        ("onewrite_upgrade_wal=0", "onewrite", "wal,stock"),
        ("onewrite_upgrade_wal=1&journal_mode=swal", "0", "wal,swal"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = directory.path().join(number.to_string());
        let uri = format!("file:{}?{parameters}", path.display());
        let text = said(
            uri.as_ref(),
            &[
                ("ONEWRITE_TEST_PRAGMA", "PRAGMA journal_mode=wal"),
                ("ONEWRITE_MAKE_DEFAULT", "1"),
                ("ONEWRITE_UPGRADE_WAL", variable),
            ],
        );
        let last = text.lines().rfind(|line| line.contains("mode="));
        // Behind it is the compression, where there is one.
        let is_right = last.is_some_and(|line| line.contains(&format!("mode={expected}")));
        assert!(is_right, "{parameters}: {text}");
    }
}

/// The URI counts more than the environment.
#[test]
fn the_mode_of_the_uri_takes_the_place_of_wal_where_the_environment_names_another() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let uri = format!("file:{}?journal_mode=direct", path.display());
    let text = said(
        uri.as_ref(),
        &[
            ("ONEWRITE_TEST_PRAGMA", "PRAGMA journal_mode=wal"),
            ("ONEWRITE_MAKE_DEFAULT", "1"),
            ("ONEWRITE_UPGRADE_WAL", "onewrite"),
        ],
    );
    assert_eq!(text.matches("mode=wal,direct").count(), 2, "{text}");
}

/// Somebody has chosen that mode.
#[test]
fn a_database_in_one_of_our_modes_stays_in_it_where_an_application_asks_for_wal() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in ["direct", "waldio", "swal"] {
        let path = directory.path().join(mode);
        let db = open(&path);
        sql(&db, &format!("PRAGMA journal_mode={mode}"));
        sql(&db, "CREATE TABLE t(x)");
        drop(db);
        let text = said(
            &path,
            &[
                ("ONEWRITE_TEST_PRAGMA", "PRAGMA journal_mode=wal"),
                ("ONEWRITE_MAKE_DEFAULT", "1"),
                ("ONEWRITE_UPGRADE_WAL", "onewrite"),
            ],
        );
        let expected = format!("mode=wal,{mode}");
        assert_eq!(text.matches(&expected).count(), 2, "{text}");
    }
}

/// Pages smaller than a block cannot be exchanged with others. An application that asked for WAL
/// gets WAL, and no error.
#[test]
fn an_application_that_asks_for_wal_gets_it_where_pages_do_not_suit_the_upgrade() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("small pages");
    let db = stock(&path);
    sql(&db, "PRAGMA page_size=1024");
    sql(&db, "CREATE TABLE t(x)");
    drop(db);
    let text = said(
        &path,
        &[
            ("ONEWRITE_TEST_PRAGMA", "PRAGMA journal_mode=wal"),
            ("ONEWRITE_MAKE_DEFAULT", "1"),
            ("ONEWRITE_UPGRADE_WAL", "onewrite"),
            ("ONEWRITE_CHECKPOINT", "exchange"),
        ],
    );
    assert_eq!(text.matches("mode=wal,stock").count(), 2, "{text}");
}

#[test]
fn only_an_application_that_makes_it_the_default_gets_it_by_default() {
    let directory = tempfile::tempdir().expect("a directory");
    let (off, on) = ("delete,stock", "waldio,waldio");
    for (word, expected) in [
        ("0", off),
        ("no", off),
        ("", off),
        ("1", on),
        ("true", on),
        ("Yes", on),
        ("on", on),
    ] {
        let text = said(
            &directory.path().join(format!("db {word}")),
            &[
                ("ONEWRITE_MAKE_DEFAULT", word),
                ("ONEWRITE_JOURNAL_MODE", "waldio"),
            ],
        );
        assert!(text.contains(&format!("mode={expected}")), "{text}");
    }
}

/// The URI sets its own database, and overrides the environment.
#[test]
fn a_stock_word_in_the_uri_leaves_the_database_to_the_application() {
    let directory = tempfile::tempdir().expect("a directory");
    for word in ["wal", "delete"] {
        let path = directory.path().join(word);
        let uri = format!("file:{}?journal_mode={word}", path.display());
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
        let db = open_flags(uri.as_ref(), "onewrite", flags).expect("a connection");
        sql(&db, "CREATE TABLE t(x)");
        assert_eq!(sql(&db, "PRAGMA journal_mode"), "delete", "{word}");
        sql(&db, "PRAGMA onewrite_layout=sector");
        assert_eq!(sql(&db, "PRAGMA journal_mode=waldio"), "waldio", "{word}");
    }
}

#[test]
fn compression_is_set_and_told_and_logs_of_all_kinds_are_read() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in ["onewrite", "swal"] {
        let path = directory.path().join(mode);
        let db = super::open(&path);
        assert_eq!(sql(&db, "PRAGMA onewrite_compression"), "auto");
        assert_eq!(sql(&db, "PRAGMA onewrite_goal"), "balanced");
        assert_eq!(sql(&db, "PRAGMA onewrite_differences"), "on");
        assert_eq!(status(&db)["compression"], serde_json::Value::Null);
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
        sql(&db, "PRAGMA wal_autocheckpoint=0");
        sql(&db, "CREATE TABLE t(x, y)");
        let mut rows = 0;
        for with in ["auto", "lz4", "zstd", "none", "ZSTD", "auto"] {
            for differences in ["on", "off"] {
                let set = format!("PRAGMA onewrite_compression={with}");
                assert_eq!(sql(&db, &set), with.to_lowercase());
                let set = format!("PRAGMA onewrite_differences={differences}");
                assert_eq!(sql(&db, &set), differences);
                for _ in 0..4 {
                    rows += 1;
                    sql(&db, "INSERT INTO t VALUES(hex(randomblob(200)), 'text')");
                }
                let status = status(&db);
                assert_eq!(status["compression"], with.to_lowercase());
                assert_eq!(status["differences"], differences);
            }
        }
        let counted = &status(&db)["compressed"];
        assert!(counted["differences"].as_u64() > Some(5), "{counted}");
        // A connection that remembers nothing reads it back: recovery.
        let copied = directory.path().join(format!("{mode}-copy"));
        super::copy(&path, &copied);
        for path in [&path, &copied] {
            let late = super::open(path);
            let found = sql(&late, "SELECT count(*), count(DISTINCT x) FROM t");
            assert_eq!(found, format!("{rows}|{rows}"));
            assert_eq!(sql(&late, "PRAGMA integrity_check"), "ok");
        }
    }
}

#[test]
fn compression_is_refused_where_nothing_is_compressed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = super::open(&path);
    for (name, value) in [
        ("compression", "zstd"),
        ("differences", "off"),
        ("goal", "bytes"),
    ] {
        let set = format!("PRAGMA onewrite_{name}={value}");
        for mode in ["waldio", "direct"] {
            assert_eq!(sql(&db, "PRAGMA journal_mode=delete"), "delete");
            assert_eq!(sql(&db, &set), value);
            // Compressible content.
            assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
            assert_eq!(status(&db)[name], serde_json::Value::Null);
            let refused = super::outcome(&db, &set);
            assert!(refused.contains("does not compress pages"), "{refused}");
            assert_eq!(sql(&db, "PRAGMA journal_mode=delete"), "delete");
            assert_eq!(sql(&db, "PRAGMA journal_mode=swal"), "swal");
            assert_eq!(status(&db)[name], value);
        }
    }
    let wrong = super::outcome(&db, "PRAGMA onewrite_compression=brotli");
    assert!(
        wrong.contains("'brotli'") && wrong.contains("auto, lz4, zstd or none"),
        "{wrong}"
    );
}

#[test]
fn uri_and_environment_name_the_compression() {
    let directory = tempfile::tempdir().expect("a directory");
    let uri = format!(
        "file:{}?vfs=onewrite&journal_mode=onewrite&onewrite_compression=zstd\
         &onewrite_differences=off",
        directory.path().join("db").display()
    );
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let db = open_flags(uri.as_ref(), "onewrite", flags).expect("a connection");
    sql(&db, "CREATE TABLE t(x)");
    let status = status(&db);
    assert_eq!(status["compression"], "zstd");
    assert_eq!(status["differences"], "off");
    let text = said(
        &directory.path().join("environment"),
        &[
            ("ONEWRITE_MAKE_DEFAULT", "1"),
            ("ONEWRITE_JOURNAL_MODE", "swal"),
            ("ONEWRITE_COMPRESSION", "zstd"),
        ],
    );
    assert!(text.contains("mode=swal,swal,zstd"), "{text}");
}

/// The values of a setting as a statement has them; a form stands for one of its values.
fn sayable(setting: &onewrite::Setting) -> Vec<String> {
    let values = setting.values();
    let said = values.iter().map(|(word, _)| match *word {
        "'FRAMES,MILLISECONDS'" => "4,2".to_owned(),
        "'TIME'" => "50ms".to_owned(),
        "'SIZE'" => "150M".to_owned(),
        word => word.to_owned(),
    });
    said.collect()
}

#[test]
fn each_setting_answers_what_was_said_by_pragma_and_by_uri() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = super::open(&directory.path().join("db"));
    let fields = status(&db);
    for setting in &onewrite::SETTINGS {
        let pragma = setting.pragma;
        assert!(fields.get(setting.name()).is_some(), "{pragma}: {fields}");
        for value in sayable(setting) {
            let set = format!("PRAGMA {pragma}='{value}'");
            assert_eq!(sql(&db, &set), value, "{set}");
            assert_eq!(sql(&db, &set.to_uppercase()), value, "{set}");
            assert_eq!(sql(&db, &format!("PRAGMA {pragma}")), value, "{pragma}");
            let uri = format!(
                "file:{}?vfs=onewrite&{pragma}={value}",
                directory.path().join("uri").display()
            );
            let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
            let other = open_flags(uri.as_ref(), "onewrite", flags).expect("a connection");
            assert_eq!(sql(&other, &format!("PRAGMA {pragma}")), value, "{uri}");
        }
        let refused = super::outcome(&db, &format!("PRAGMA {pragma}=perhaps"));
        assert!(refused.contains("unknown value 'perhaps'"), "{refused}");
        for (word, _) in setting.values() {
            assert!(refused.contains(word), "{pragma}, {word}: {refused}");
        }
    }
}

/// Each setting that is a switch takes SQLite's words for one.
#[test]
fn a_switch_takes_every_word_of_sqlites_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = super::open(&directory.path().join("db"));
    for (setting, on) in [
        ("group_commit", "on"),
        ("read_durable", "on"),
        ("differences", "on"),
        ("direct_io", "auto"),
    ] {
        for (words, answer) in [
            (["on", "1", "yes", "true"], on),
            (["off", "0", "no", "false"], "off"),
        ] {
            for word in words {
                let set = format!("PRAGMA onewrite_{setting}={word}");
                assert_eq!(sql(&db, &set), answer, "{set}");
            }
        }
    }
}

#[test]
fn help_and_the_error_of_an_unknown_pragma_name_every_setting() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = super::open(&directory.path().join("db"));
    sql(&db, "PRAGMA onewrite_sync=full");
    let help = sql(&db, "PRAGMA onewrite_help");
    assert!(help.contains("onewrite_sync=full (auto | "), "{help}");
    assert!(help.contains("ONEWRITE_UPGRADE_WAL=1: "), "{help}");
    let unknown = super::outcome(&db, "PRAGMA onewrite_synch");
    let others = ["onewrite_status", "onewrite_help", "onewrite_make_default"];
    let settings = onewrite::SETTINGS.iter().map(|setting| setting.pragma);
    for pragma in settings.chain(others) {
        assert!(help.contains(pragma), "{pragma}: {help}");
        assert!(unknown.contains(pragma), "{pragma}: {unknown}");
    }
}

/// `onewrite_make_default=off` made it the default.
#[test]
fn a_pragma_that_sets_nothing_refuses_a_value() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = super::open(&directory.path().join("db"));
    for set in [
        "status=now",
        "metrics=1",
        "help=me",
        "make_default=off",
        "make_default=0",
    ] {
        let refused = super::outcome(&db, &format!("PRAGMA onewrite_{set}"));
        let (name, value) = set.split_once('=').expect("a value");
        let told = format!("onewrite_{name}: unknown value '{value}'");
        assert!(refused.contains(&told), "{set}: {refused}");
    }
    let other = rusqlite::Connection::open(directory.path().join("other")).expect("a database");
    let is_ours = other.query_row("PRAGMA onewrite_status", [], |row| row.get::<_, String>(0));
    assert!(is_ours.is_err(), "{is_ours:?}");
}

/// The advice to set it before `journal_mode` would not help.
#[test]
fn a_layout_that_the_mode_in_use_cannot_have_names_the_mode_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = super::open(&directory.path().join("db"));
    for mode in ["onewrite", "swal", "direct"] {
        assert_eq!(sql(&db, &format!("PRAGMA journal_mode={mode}")), mode);
        for layout in ["embedded", "page4k"] {
            let set = format!("PRAGMA onewrite_layout={layout}");
            let refused = super::outcome(&db, &set);
            assert!(refused.contains("is for journal_mode=waldio"), "{refused}");
        }
        assert_eq!(sql(&db, "PRAGMA journal_mode=delete"), "delete");
    }
    assert_eq!(sql(&db, "PRAGMA onewrite_layout"), "auto");
}
