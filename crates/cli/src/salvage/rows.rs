//! A new database from the rows that can be read, where the pages do not make a whole one.
//!
//! The statements in the schema make the tables, and the pages below their roots fill them. Leaf
//! pages below no known root go to the table `lost_and_found`, as with SQLite's recover extension:
//! `rootpgno` is the topmost known page above, `pgno` its own, `nfield` the number of values, `id`
//! the rowid, and `c0`, `c1`, ... the values.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde::Serialize;

use super::btree::{self, Page, Pages, Row, Value, Walked, be32};
use super::pages::{PageSet, look_up};
use super::shape::{Encoding, Shape, decoded, utf8};

/// The most values of a row in `lost_and_found`: SQLite's limit, less the four that come first.
const MOST_VALUES: usize = 1990;
/// The most levels between a page and its root.
const MOST_LEVELS: u32 = 64;

/// The result for a table.
#[derive(Serialize, Clone, Debug)]
pub struct Table {
    pub name: String,
    pub rows: u64,
    /// All of its pages exist, and every row could be read and kept.
    pub complete: bool,
}

/// The rows that were recovered one by one.
#[derive(Serialize, Clone, Debug, Default)]
pub struct Rows {
    /// The schema could be read.
    pub schema: bool,
    pub tables: Vec<Table>,
    /// Rows of pages that belong to no known table.
    pub lost_and_found: u64,
    /// Statements of the schema that could not be executed, and why.
    pub not_made: Vec<String>,
}

/// An object of the schema.
struct Object {
    kind: String,
    name: String,
    root: u32,
    sql: String,
}

/// Reads the existing pages of `pages` into a new database at `path`.
///
/// # Errors
/// In words: the new database cannot be written; the user wants to stop.
pub fn recover(pages: &Pages<'_>, path: &Path) -> Result<Rows, String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let new = Connection::open_with_flags_and_vfs(path, flags, "unix").map_err(in_words)?;
    let head = pages.read(1);
    let head = head.as_deref();
    let encoding = match head.and_then(|head| be32(head, 56)) {
        Some(2) => Encoding::Utf16le,
        Some(3) => Encoding::Utf16be,
        _ => Encoding::Utf8,
    };
    let pragma = match encoding {
        Encoding::Utf8 => "UTF-8",
        Encoding::Utf16le => "UTF-16le",
        Encoding::Utf16be => "UTF-16be",
    };
    new.execute_batch(&format!(
        "PRAGMA encoding='{pragma}'; PRAGMA page_size={}; PRAGMA journal_mode=off;
         PRAGMA synchronous=off; PRAGMA foreign_keys=off; PRAGMA ignore_check_constraints=on;
         PRAGMA trusted_schema=off; BEGIN",
        pages.page_size
    ))
    .map_err(in_words)?;
    let mut work = Work {
        pages,
        new: &new,
        encoding,
        taken: PageSet::default(),
        rows: Rows::default(),
    };
    work.all(head)?;
    let mut rows = work.rows;
    new.execute_batch("COMMIT").map_err(in_words)?;
    new.close().map_err(|(_, e)| in_words(e))?;
    if let Err(e) = check_schema(path) {
        drop_virtual_tables(path).map_err(in_words)?;
        rows.not_made.push(format!("virtual tables: {e}"));
    }
    Ok(rows)
}

fn check_schema(path: &Path) -> rusqlite::Result<()> {
    let new = Connection::open_with_flags_and_vfs(path, OpenFlags::SQLITE_OPEN_READ_WRITE, "unix")?;
    new.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// Virtual tables alone keep their statements as found. SQLite cannot read the schema if one of
/// these is malformed.
fn drop_virtual_tables(path: &Path) -> rusqlite::Result<()> {
    let new = Connection::open_with_flags_and_vfs(path, OpenFlags::SQLITE_OPEN_READ_WRITE, "unix")?;
    new.execute_batch(
        "PRAGMA writable_schema=on;
         DELETE FROM sqlite_schema WHERE type = 'table' AND rootpage = 0",
    )
}

fn in_words(error: rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => "no space is left there".to_owned(),
        _ => error.to_string(),
    }
}

struct Work<'a> {
    pages: &'a Pages<'a>,
    new: &'a Connection,
    encoding: Encoding,
    /// Pages that have an owner.
    taken: PageSet,
    rows: Rows,
}

impl Work<'_> {
    fn all(&mut self, head: Option<&[u8]>) -> Result<(), String> {
        let mut objects = Vec::new();
        if let Some(head) = head {
            self.take_free_pages(head);
            let schema = self.schema(&mut objects)?;
            self.rows.schema = schema == Walked::default();
        }
        for object in objects.iter().filter(|object| object.is_table()) {
            self.table(object)?;
        }
        for object in objects.iter().filter(|object| object.kind == "index") {
            // Their content is made again; their pages hold no rows of a table.
            self.walk(object.root, false, &mut |_| Ok(()))?;
        }
        self.lost()?;
        // Triggers come last: they must not act on recovered rows.
        for kind in ["index", "view", "trigger"] {
            for object in objects
                .iter()
                .filter(|object| object.kind == kind && !object.sql.is_empty())
            {
                if begins_with_create(&object.sql, kind) {
                    self.execute(object);
                } else {
                    self.not_made(object, "its statement makes something else");
                }
            }
        }
        for object in objects.iter().filter(|object| object.is_virtual()) {
            self.virtual_table(object);
        }
        Ok(())
    }

    /// Free pages hold nothing, or deleted rows.
    fn take_free_pages(&mut self, head: &[u8]) {
        let mut next = be32(head, 32).unwrap_or(0);
        while let Some(trunk) = self.pages.read(next) {
            if !self.taken.insert(next).unwrap_or(false) {
                return;
            }
            let most = self.pages.usable / 4 - 2;
            let count = be32(&trunk, 4).map_or(0, |count| (count as usize).min(most));
            for nth in 0..count {
                if let Some(leaf) = be32(&trunk, 8 + 4 * nth) {
                    let _ = self.taken.insert(leaf);
                }
            }
            next = be32(&trunk, 0).unwrap_or(0);
        }
    }

    fn schema(&mut self, objects: &mut Vec<Object>) -> Result<Walked, String> {
        let encoding = self.encoding;
        self.walk(1, true, &mut |row| {
            objects.extend(Object::of(&row, encoding));
            Ok(())
        })
    }

    fn walk(
        &mut self,
        root: u32,
        is_table: bool,
        each: &mut impl FnMut(Row) -> Result<(), String>,
    ) -> Result<Walked, String> {
        btree::walk(root, is_table, self.pages, &mut self.taken, each)
    }

    fn table(&mut self, object: &Object) -> Result<(), String> {
        look_up().map_err(|_| "stopped".to_owned())?;
        if !is_plain_table(&object.sql) {
            self.not_made(object, "its statement does not make a table");
            return Ok(());
        }
        if !self.execute(object) {
            return Ok(());
        }
        let Some(shape) = Shape::of(self.new, &object.name) else {
            self.not_made(object, "its columns are not known");
            return Ok(());
        };
        let (new, encoding) = (self.new, self.encoding);
        let (mut kept, mut refused) = (0, 0);
        let walked = self.walk(object.root, !shape.is_without_rowid, &mut |row| {
            match shape.insert(new, row, encoding) {
                Ok(true) => kept += 1,
                Ok(false) => refused += 1,
                Err(e) if is_fatal(&e) => return Err(in_words(e)),
                Err(_) => refused += 1,
            }
            Ok(())
        })?;
        self.rows.tables.push(Table {
            name: object.name.clone(),
            rows: kept,
            complete: walked == Walked::default() && refused == 0,
        });
        Ok(())
    }

    fn execute(&mut self, object: &Object) -> bool {
        match self.new.execute(&object.sql, []) {
            Ok(_) => true,
            Err(e) => {
                self.not_made(object, &e.to_string());
                false
            }
        }
    }

    fn not_made(&mut self, object: &Object, why: &str) {
        self.rows
            .not_made
            .push(format!("{} {}: {why}", object.kind, object.name));
    }

    /// Its shadow tables are in the schema as tables of their own.
    fn virtual_table(&mut self, object: &Object) {
        let insert = "INSERT INTO sqlite_schema VALUES('table', ?1, ?1, 0, ?2)";
        let done = self
            .new
            .execute_batch("PRAGMA writable_schema=on")
            .and_then(|()| self.new.execute(insert, [&object.name, &object.sql]));
        let _ = self.new.execute_batch("PRAGMA writable_schema=off");
        if let Err(e) = done {
            self.not_made(object, &e.to_string());
        }
    }

    /// Leaf pages below no known root.
    fn lost(&mut self) -> Result<(), String> {
        let mut parents = BTreeMap::new();
        let mut leaves = PageSet::default();
        let mut most = 0;
        let (pages, known) = (self.pages, self.taken.clone());
        for no in pages.present.iter().filter(|no| !known.contains(*no)) {
            look_up().map_err(|_| "stopped".to_owned())?;
            let page = pages.read(no);
            let page = page.and_then(|bytes| Page::parse(no, bytes, pages.usable));
            let Some(page) = page.filter(|page| page.kind.is_table()) else {
                continue;
            };
            for child in page
                .children()
                .filter(|child| pages.present.contains(*child))
            {
                parents.insert(child, no);
            }
            let rows = page.rows(pages, &mut self.taken).flatten();
            let longest = rows.map(|row| row.values.len()).max();
            if let Some(longest) = longest {
                most = most.max(longest.min(MOST_VALUES));
                leaves.insert(no).map_err(|e| e.to_string())?;
            }
        }
        if leaves.count() == 0 {
            return Ok(());
        }
        self.taken = known;
        self.keep_lost(&leaves, &parents, most)
    }

    fn keep_lost(
        &mut self,
        leaves: &PageSet,
        parents: &BTreeMap<u32, u32>,
        most: usize,
    ) -> Result<(), String> {
        let columns: String = (0..most).map(|nth| format!(", c{nth}")).collect();
        let table = free_name(self.new).map_err(in_words)?;
        let create = format!(
            "CREATE TABLE {table}(rootpgno INTEGER, pgno INTEGER, nfield INTEGER, id INTEGER{columns})"
        );
        self.new.execute_batch(&create).map_err(in_words)?;
        for no in leaves.iter() {
            look_up().map_err(|_| "stopped".to_owned())?;
            let page = self.pages.read(no);
            let page = page.and_then(|bytes| Page::parse(no, bytes, self.pages.usable));
            let Some(page) = page else { continue };
            let root = root_of(no, parents);
            for row in page.rows(self.pages, &mut self.taken).flatten() {
                let mut values = vec![
                    Value::Integer(root.into()),
                    Value::Integer(no.into()),
                    Value::Integer(row.values.len() as i64),
                    Value::Integer(row.rowid),
                ];
                let own = row.values.into_iter().take(most);
                values.extend(own.map(|value| decoded(value, self.encoding)));
                let places = vec!["?"; values.len()].join(",");
                let names: String = (4..values.len())
                    .map(|nth| format!(", c{}", nth - 4))
                    .collect();
                let insert = format!(
                    "INSERT INTO {table}(rootpgno, pgno, nfield, id{names}) VALUES({places})"
                );
                let statement = self.new.prepare_cached(&insert);
                let inserted = statement
                    .and_then(|mut insert| insert.execute(rusqlite::params_from_iter(&values)));
                match inserted {
                    Ok(_) => self.rows.lost_and_found += 1,
                    Err(e) if is_fatal(&e) => return Err(in_words(e)),
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }
}

/// The topmost known page above a page.
fn root_of(page: u32, parents: &BTreeMap<u32, u32>) -> u32 {
    let mut root = page;
    for _ in 0..MOST_LEVELS {
        match parents.get(&root) {
            Some(&parent) if parent != page => root = parent,
            _ => break,
        }
    }
    root
}

/// A name for `lost_and_found` that no table of the database has.
fn free_name(new: &Connection) -> rusqlite::Result<String> {
    for nth in 0.. {
        let name = match nth {
            0 => "lost_and_found".to_owned(),
            nth => format!("lost_and_found_{}", nth - 1),
        };
        let sql = "SELECT count(*) FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE";
        if new.query_row(sql, [&name], |row| row.get::<_, i64>(0))? == 0 {
            return Ok(name);
        }
    }
    Err(rusqlite::Error::QueryReturnedNoRows)
}

/// An error of the new database itself, not of a row.
fn is_fatal(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{
        CannotOpen, DatabaseCorrupt, DiskFull, OutOfMemory, SystemIoFailure,
    };
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(DiskFull | SystemIoFailure | OutOfMemory | DatabaseCorrupt | CannotOpen)
    )
}

impl Object {
    /// A row of the schema: type, name, table, root page, statement.
    fn of(row: &Row, encoding: Encoding) -> Option<Object> {
        let [kind, name, _, root, sql] = row.values.get(..5)? else {
            return None;
        };
        let text = |value: &Value| match value {
            Value::Text(bytes) => {
                Some(String::from_utf8_lossy(&utf8(bytes, encoding)).into_owned())
            }
            Value::Null => Some(String::new()),
            _ => None,
        };
        let root = match root {
            Value::Integer(root) => u32::try_from(*root).ok()?,
            _ => 0,
        };
        Some(Object {
            kind: text(kind)?,
            name: text(name)?,
            root,
            sql: text(sql)?,
        })
    }

    /// A table with its own rows that SQLite does not keep for itself.
    fn is_table(&self) -> bool {
        self.kind == "table"
            && self.root > 0
            && !self.name.to_ascii_lowercase().starts_with("sqlite_")
    }

    fn is_virtual(&self) -> bool {
        self.kind == "table" && self.root == 0 && begins_with_create(&self.sql, "virtual")
    }
}

/// Whether a statement begins with CREATE and this word; an index may be UNIQUE.
fn begins_with_create(sql: &str, word: &str) -> bool {
    let mut words = sql.split_ascii_whitespace();
    let is = |found: Option<&str>, word: &str| {
        found.is_some_and(|found| found.eq_ignore_ascii_case(word))
    };
    if !is(words.next(), "create") {
        return false;
    }
    match words.next() {
        Some(unique) if unique.eq_ignore_ascii_case("unique") => is(words.next(), word),
        other => is(other, word),
    }
}

/// Whether a statement is `CREATE TABLE name(...`, as SQLite keeps it: not `AS SELECT`, which would
/// run.
fn is_plain_table(sql: &str) -> bool {
    if !begins_with_create(sql, "table") {
        return false;
    }
    let behind = sql.trim_start().get(6..).map(str::trim_start);
    let Some(name) = behind.and_then(|rest| rest.get(5..)).map(str::trim_start) else {
        return false;
    };
    let closing = match name.chars().next() {
        Some('"') => '"',
        Some('`') => '`',
        Some('\'') => '\'',
        Some('[') => ']',
        _ => {
            let end = name.find(|c: char| c == '(' || c.is_ascii_whitespace());
            return end.is_some_and(|end| name[end..].trim_start().starts_with('('));
        }
    };
    let mut rest = &name[1..];
    while let Some(at) = rest.find(closing) {
        rest = &rest[at + 1..];
        // A doubled quote stands for itself.
        match rest.strip_prefix(closing).filter(|_| closing != ']') {
            Some(behind) => rest = behind,
            None => return rest.trim_start().starts_with('('),
        }
    }
    false
}
