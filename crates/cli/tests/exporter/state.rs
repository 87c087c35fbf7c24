//! The samples say what is so.

use super::{Exporter, check_with_promtool, has_prometheus, open, prepared, sql};
use onewrite::storage::{Access, Create, DirectIo, LockByte, LockKind, LogFile};
use onewrite_common::files::companion;
use std::path::Path;

fn named(metric: &str, path: &Path) -> String {
    format!("{metric}{{database=\"{}\"}}", path.display())
}

#[test]
fn the_exporter_shows_what_all_processes_share() {
    for mode in ["onewrite", "direct"] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("app.db");
        let db = prepared(&path, mode);
        let pattern = directory.path().join("*");
        let none = directory.path().join("none.db");
        let exporter = Exporter::start(&[&pattern.to_string_lossy(), &none.to_string_lossy()]);
        let is = |metric: &str, expected: f64| {
            let text = exporter.text();
            let found = super::samples(&text).get(&named(metric, &path)).copied();
            assert_eq!(found, Some(expected), "{mode}, {metric}:\n{text}");
        };
        let reader = open(&path);
        sql(&reader, "BEGIN");
        sql(&reader, "SELECT count(*) FROM t");
        is("onewrite_read_marks_in_use", 1.0);
        is("onewrite_read_marks_behind", 0.0);
        for _ in 0..3 {
            sql(&db, "INSERT INTO t VALUES(1)");
        }
        let status = sql(&db, "PRAGMA onewrite_status");
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        is("onewrite_up", 1.0);
        is("onewrite_in_use", 1.0);
        is("onewrite_poisoned", 0.0);
        is("onewrite_problems", 0.0);
        is("onewrite_guarded", f64::from(u8::from(mode == "onewrite")));
        let number = |field: &str| status[field].as_f64().expect("a number");
        is("onewrite_log_bytes", number("log_bytes"));
        is("onewrite_log_frames", number("frames"));
        is("onewrite_uncheckpointed_frames", number("frames"));
        is("onewrite_read_marks_behind", 1.0);
        is("onewrite_oldest_reader_frames", 3.0);
        is("onewrite_oldest_reader_pid", std::process::id().into());
        let age = exporter.samples()[&named("onewrite_log_change_age_seconds", &path)];
        assert!((0.0..600.0).contains(&age), "{age}");
        sql(&db, "PRAGMA wal_checkpoint");
        is("onewrite_uncheckpointed_frames", 3.0);
        sql(&reader, "COMMIT");
        sql(&db, "PRAGMA wal_checkpoint");
        is("onewrite_uncheckpointed_frames", 0.0);
        is("onewrite_read_marks_behind", 0.0);
        is("onewrite_oldest_reader_frames", 0.0);
        let text = exporter.text();
        assert!(!text.contains("\nonewrite_oldest_reader_pid{"), "{text}");
        assert!(text.contains(&format!("mode=\"{mode}\"")), "{text}");
        assert_eq!(super::samples(&text)[&named("onewrite_up", &none)], 0.0);
        if has_prometheus() {
            check_with_promtool(&text);
            check_with_promtool(&sql(&db, "PRAGMA onewrite_metrics"));
        }
        drop((db, reader));
        is("onewrite_in_use", 0.0);
        is("onewrite_guarded", 0.0);
        let text = exporter.text();
        assert!(!text.contains("onewrite_log_frames"), "{text}");
        // The pattern means no file next to a database.
        assert_eq!(text.matches("\nonewrite_up{").count(), 2, "{text}");
        assert_eq!(exporter.end(), Some(0));
    }
}

/// A process that could not write the log holds this lock.
#[test]
fn poison_is_seen() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("app.db");
    let db = prepared(&path, "onewrite");
    let exporter = Exporter::start(&[&path.to_string_lossy()]);
    let poisoned = named("onewrite_poisoned", &path);
    assert_eq!(exporter.samples()[&poisoned], 0.0);
    let log = companion(&path, "-onewrite");
    let log = LogFile::open(&log, Create::Never, Access::ReadWrite, DirectIo::Never);
    let log = log.expect("the log");
    let locked = log.try_lock(LockByte::Poison, LockKind::Exclusive);
    assert!(locked.expect("no error"), "nobody has poisoned it");
    let samples = exporter.samples();
    assert_eq!(samples[&poisoned], 1.0);
    assert_eq!(samples[&named("onewrite_problems", &path)], 1.0);
    drop((log, db));
}
