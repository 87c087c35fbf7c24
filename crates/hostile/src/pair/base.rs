//! Valid databases with their logs, made by the engine, as a crash leaves them; and every committed
//! state.

use std::ffi::CString;
use std::path::Path;
use std::sync::OnceLock;

use onewrite::log::scan::{Scan, Writers};
use onewrite::log::{Geometry, LogHeader};
use onewrite::mode::Layout;
use onewrite::wal::{FrameNo, PageSize};
use rusqlite::{Connection, OpenFlags};

use super::{Files, directory};

/// The database's content. Every reader uses the same statement.
pub const DIGEST: &str = "SELECT count(*), total(id * v), group_concat(substr(w, 1, 20) || length(w)) \
     FROM (SELECT * FROM t ORDER BY id)";

/// A committed state.
#[derive(Clone, Debug)]
pub struct State {
    /// The last frame of its transaction; 0 for the state in the database file.
    pub frame: u32,
    /// The result of [`DIGEST`].
    pub digest: String,
}

/// A database and its log.
#[derive(Clone, Debug)]
pub struct Base {
    /// A description for messages.
    pub name: String,
    /// The database file.
    pub database: Vec<u8>,
    /// `-onewrite`.
    pub log: Vec<u8>,
    /// `-wal`, of journal mode direct.
    pub wal: Vec<u8>,
    /// The starts of frames and their entries in the log, in bytes.
    pub places: Vec<usize>,
    /// The states committed since the last checkpoint, oldest first.
    pub states: Vec<State>,
    /// Stock SQLite does not know the log.
    pub is_guarded: bool,
}

/// How a base is made.
#[derive(Clone, Copy, Debug)]
struct Recipe {
    /// `None`: journal mode direct.
    layout: Option<&'static str>,
    page: usize,
    /// The log started again: frames of an older generation follow those of this one.
    restarted: bool,
    /// A transaction was rolled back after it had been written.
    rolled_back: bool,
    /// Pages use their reserved bytes.
    reserved: bool,
}

/// All of them, made at the first call.
pub fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| recipes().iter().map(make).collect())
}

fn recipes() -> Vec<Recipe> {
    let layouts = [
        Some("embedded"),
        Some("sector"),
        Some("page4k"),
        Some("page8k"),
        Some("packed"),
        Some("compressed"),
        Some("gathered"),
        None,
    ];
    let mut recipes = Vec::new();
    for layout in layouts {
        for (page, restarted, rolled_back) in [
            (512, false, true),
            (1024, true, true),
            (4096, true, false),
            (4096, false, true),
        ] {
            if layout == Some("gathered") && page < 4096 {
                // Its pages are whole blocks.
                continue;
            }
            recipes.push(Recipe {
                layout,
                page,
                restarted,
                rolled_back,
                reserved: false,
            });
        }
    }
    for (page, restarted) in [(512, false), (512, true), (4096, true)] {
        recipes.push(Recipe {
            layout: Some("embedded"),
            page,
            restarted,
            rolled_back: true,
            reserved: true,
        });
    }
    recipes
}

/// A connection that answers at once, even if another connection has the lock.
pub fn connect(path: &Path, vfs: &str, flags: OpenFlags) -> rusqlite::Result<Connection> {
    onewrite::register().expect("the VFS onewrite");
    let vfs = CString::new(vfs).expect("a name without zero bytes");
    let db = Connection::open_with_flags_and_vfs(path, flags, vfs.as_c_str())?;
    db.busy_timeout(std::time::Duration::ZERO)?;
    // The tests check the bytes read back, not the device.
    db.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(db)
}

/// The first row of a statement, as text.
pub fn text(db: &Connection, statement: &str) -> rusqlite::Result<String> {
    db.query_row(statement, [], |row| {
        let columns = row.as_ref().column_count();
        let column = |n| Ok(format!("{:?}", row.get_ref(n)?));
        let all: rusqlite::Result<Vec<String>> = (0..columns).map(column).collect();
        Ok(all?.join("|"))
    })
}

/// Makes the database in a rollback mode, with one row.
fn begin(recipe: &Recipe, path: &Path) {
    let db = connect(path, "onewrite", OpenFlags::default()).expect("a connection");
    let statements = format!(
        "PRAGMA page_size={};
         PRAGMA onewrite_reserve_bytes=24;
         CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER, w TEXT);
         CREATE INDEX by_v ON t(v);
         INSERT INTO t(v, w) VALUES(1, 'first')",
        recipe.page
    );
    db.execute_batch(&statements)
        .unwrap_or_else(|e| panic!("{recipe:?}: {e}"));
    drop(db);
    if recipe.reserved {
        let mut bytes = std::fs::read(path).expect("the database");
        for page in bytes.chunks_exact_mut(recipe.page) {
            let tail = page.len() - 24;
            page[tail..].fill(0xc5);
        }
        std::fs::write(path, bytes).expect("the database");
    }
}

fn make(recipe: &Recipe) -> Base {
    let directory = directory();
    let path = directory.path().join("db");
    let sql = |db: &Connection, statement: &str| {
        db.execute_batch(statement)
            .unwrap_or_else(|e| panic!("{recipe:?}: {statement}: {e}"));
    };
    begin(recipe, &path);
    let db = connect(&path, "onewrite", OpenFlags::default()).expect("a connection");
    let mode = match recipe.layout {
        None => "direct",
        Some("packed") => "onewrite",
        Some("compressed") => "swal",
        Some(layout) => {
            sql(&db, &format!("PRAGMA onewrite_layout={layout}"));
            "waldio"
        }
    };
    sql(&db, &format!("PRAGMA journal_mode={mode}"));
    sql(&db, "PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=10");
    let mut states = Vec::new();
    let note = |states: &mut Vec<State>, frame| {
        let digest = text(&db, DIGEST).expect("a digest");
        states.push(State { frame, digest });
    };
    // Nobody else commits, and every commit is published: this is the wal-index's last frame.
    let committed = || {
        let status: String = db
            .query_row("PRAGMA onewrite_status", [], |row| row.get(0))
            .expect("a status");
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        let frame = status["frames"].as_u64().expect("a number of frames");
        u32::try_from(frame).expect("a frame's number")
    };
    note(&mut states, 0);
    for round in 0..=u32::from(recipe.restarted) {
        if round > 0 {
            sql(&db, "PRAGMA wal_checkpoint(RESTART)");
            states.clear();
            note(&mut states, 0);
        }
        // The second generation is shorter: some of the first stays after it.
        for statement in history(recipe.page, round) {
            sql(&db, &statement);
            note(&mut states, committed());
        }
        if recipe.rolled_back {
            let many = format!(
                "BEGIN; WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<{}) \
                 INSERT INTO t(v, w) SELECT i, printf('%.*c', 300, 'r') FROM c; ROLLBACK",
                recipe.page / 8
            );
            sql(&db, &many);
        }
    }
    // Reading the database in this process takes SQLite's locks away. No other connection needs
    // them.
    let files = Files::read(&path);
    let (log, wal) = cut(files.log, files.wal, recipe);
    let base = Base {
        name: format!("{recipe:?}"),
        database: files.database,
        places: places(recipe, &log, states.last().map_or(0, |state| state.frame)),
        log,
        wal,
        states,
        is_guarded: recipe.layout.is_some(),
    };
    drop(db);
    base
}

fn history(page: usize, round: u32) -> Vec<String> {
    let row = |v: usize, length: usize| {
        format!("INSERT INTO t(v, w) VALUES({v}, printf('%.*c', {length}, 'a'))")
    };
    let all = vec![
        row(2, 30),
        row(3, page * 2 + 17),
        "UPDATE t SET w = w || 'b' WHERE v < 3".to_owned(),
        row(4, 5),
        format!("BEGIN; {}; {}; COMMIT", row(5, page), row(6, 60)),
        "DELETE FROM t WHERE v = 3".to_owned(),
        row(7, page / 2),
        "CREATE TABLE u(x)".to_owned(),
        row(8, 44),
    ];
    all.into_iter()
        .take(if round > 0 { 5 } else { 9 })
        .collect()
}

/// The log without most of the prepared places that are not yet used.
fn cut(mut log: Vec<u8>, mut wal: Vec<u8>, recipe: &Recipe) -> (Vec<u8>, Vec<u8>) {
    let unit = 8192;
    for file in [&mut log, &mut wal] {
        let used = file
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |at| at + 1);
        let keep = used.next_multiple_of(unit) + 4 * recipe.page.max(4096);
        file.truncate(keep);
    }
    (log, wal)
}

fn places(recipe: &Recipe, log: &[u8], last: u32) -> Vec<usize> {
    if let Some("packed" | "compressed") = recipe.layout {
        return found_places(log);
    }
    let name = recipe.layout.unwrap_or("stock");
    let mut layouts = Layout::ALL.into_iter();
    let layout = layouts.find(|layout| layout.to_string() == name);
    let geometry = layout.zip(PageSize::new(recipe.page as u32));
    let geometry = geometry.and_then(|(layout, page)| Geometry::new(layout, page, 1).ok());
    let Some(geometry) = geometry else {
        return Vec::new();
    };
    let frames = (1..=last + 2).map(FrameNo);
    let of_frame = |frame| {
        [
            geometry.slot(frame),
            geometry.header_offset(frame),
            geometry.entry_offset(frame),
        ]
    };
    frames.flat_map(of_frame).map(|at| at as usize).collect()
}

/// The frames without fixed positions, and the first block of each batch.
fn found_places(log: &[u8]) -> Vec<usize> {
    let header = LogHeader::parse(log).expect("a log's header");
    let wal = header.wal_header().expect("a WAL header");
    let geometry = Geometry::new(header.layout, wal.page_size, 1).expect("any unit will do");
    let scan = Scan::new(log, geometry, wal, Writers::None).expect("bytes in memory");
    let frames = scan.map(|found| found.expect("bytes in memory").offset as usize);
    frames.chain((4096..log.len()).step_by(4096)).collect()
}
