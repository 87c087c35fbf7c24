//! Rates of the engine on a file: `cargo bench -p lsmvbt [-- DIRECTORY]`. Prints its measurements,
//! on the file system of the directory (the system's temporary one if none is given).

use std::path::{Path, PathBuf};
use std::time::Instant;

use lsmvbt::{Caching, Db, DirectFile, Durability, Options, Result, Torn, TreeKind};

fn open(path: &Path, torn: Torn) -> Result<Db> {
    let file = DirectFile::open(path, Caching::Direct).map_err(|source| lsmvbt::Error::Io {
        what: "opening the file",
        source,
    })?;
    Db::open(
        Box::new(file),
        Options {
            torn,
            ..Options::default()
        },
    )
}

fn told(what: &str, count: u64, begun: Instant) {
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{what:40} {count:>9} in {seconds:>8.3} s: {:>10.0} a second",
        count as f64 / seconds
    );
}

fn run(dir: &Path, torn: Torn) -> Result<()> {
    let path = dir.join(format!("bench-{torn:?}"));
    let mut db = open(&path, torn)?;
    println!("{torn:?}");
    db.begin_write()?;
    let tree = db.create_tree(TreeKind::Integer)?;
    let bulk = db.create_tree(TreeKind::Integer)?;
    db.commit(Durability::Flush)?;

    let before = db.stats();
    let begun = Instant::now();
    for i in 0..1000 {
        db.begin_write()?;
        db.put_integer(tree, i, &[1; 100])?;
        db.commit(Durability::Flush)?;
    }
    told("  inserts of 100 bytes, one a commit", 1000, begun);
    let after = db.stats();
    let pages = after.pages_written + after.slot_pages_written + after.header_pages_written
        - before.pages_written
        - before.slot_pages_written
        - before.header_pages_written;
    println!(
        "  pages: {pages}, flushes: {}",
        after.flushes - before.flushes
    );

    let begun = Instant::now();
    db.begin_write()?;
    for i in 0..200_000 {
        db.put_integer(bulk, i, &[1; 100])?;
    }
    db.commit(Durability::Flush)?;
    told("  inserts in one commit", 200_000, begun);

    let view = db.snapshot()?;
    let begun = Instant::now();
    let mut cursor = db.cursor(view.version(), bulk)?;
    for i in 0..200_000 {
        cursor.seek_integer(&mut db, (i * 7919) % 200_000)?;
        std::hint::black_box(cursor.local()?);
    }
    told("  point reads", 200_000, begun);
    let begun = Instant::now();
    let mut count = 0;
    let mut more = cursor.first(&mut db)?;
    while more {
        std::hint::black_box(cursor.local()?);
        count += 1;
        more = cursor.next(&mut db)?;
    }
    told("  rows scanned", count, begun);
    drop(view);

    // As after a crash: the header still has its marks.
    let copy = dir.join(format!("copy-{torn:?}"));
    for i in 0..1000 {
        db.begin_write()?;
        db.put_integer(tree, i, &[2; 100])?;
        db.commit(Durability::Flush)?;
    }
    std::fs::copy(&path, &copy).map_err(|source| lsmvbt::Error::Io {
        what: "copying the file",
        source,
    })?;
    let begun = Instant::now();
    let recovered = open(&copy, torn)?;
    println!(
        "  recovery: {:?}, {} pages read",
        begun.elapsed(),
        recovered.stats().pages_read
    );
    Ok(())
}

fn main() {
    let dir = std::env::args()
        .skip(1)
        .find(|a| !a.starts_with('-'))
        .map(PathBuf::from);
    let home = tempfile::tempdir_in(dir.unwrap_or_else(std::env::temp_dir)).expect("a directory");
    for torn in [Torn::Trust, Torn::Double] {
        if let Err(e) = run(home.path(), torn) {
            eprintln!("{e}");
            std::process::exit(1);
        }
    }
}
