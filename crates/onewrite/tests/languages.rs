//! The example for Rust in docs/languages.md runs. It is in a program of its own, for its working directory.

#[test]
fn the_example_for_rust_runs() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    std::env::set_current_dir(&directory)?;
    onewrite::register()?;
    let flags = rusqlite::OpenFlags::default();
    let db = rusqlite::Connection::open_with_flags_and_vfs("app.db", flags, onewrite::VFS_NAME)?;
    let mode: String = db.query_row("PRAGMA journal_mode=onewrite", (), |row| row.get(0))?;
    assert_eq!(mode, "onewrite");
    db.execute_batch("PRAGMA synchronous=FULL; CREATE TABLE IF NOT EXISTS t(x)")?;
    db.execute("INSERT INTO t VALUES(?)", [1])?;
    let lines =
        |text: &str| -> Vec<String> { text.lines().map(|line| line.trim().to_owned()).collect() };
    let page = include_str!("../../../docs/languages.md");
    let own = lines(include_str!("languages.rs"));
    let example = lines(
        page.split_once("```rust\n")
            .expect("an example")
            .1
            .split_once("```")
            .expect("its end")
            .0,
    );
    assert!(
        own.windows(example.len()).any(|part| part == example),
        "{example:?}"
    );
    // The trap of the page.
    let by_name = |row: &rusqlite::Row<'_>| row.get::<_, String>("journal_mode");
    let pragma = db.query_row("PRAGMA journal_mode", (), by_name);
    assert!(pragma.is_err(), "{pragma:?}");
    let named = db.query_row("SELECT journal_mode FROM pragma_journal_mode", (), by_name);
    assert_eq!(named?, "onewrite");
    Ok(())
}
