//! Small histories of a database: transactions, checkpoints, changes of the journal mode, closes.
//!
//! A transaction is the same SQL wherever and whenever it runs, and counts itself. So a stock
//! database in memory tells what the database holds after the first `k`.

use super::random::Random;
use super::record::{self, DATABASE, Device, Event};
use rusqlite::{Connection, OpenFlags};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// The settings of a history.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub mode: &'static str,
    pub layout: &'static str,
    pub page: u32,
    pub device: Device,
    pub sync: &'static str,
    pub synchronous: &'static str,
    /// `onewrite_synchronous`.
    pub floor: &'static str,
    /// The pragma of the connection whose commits need not be durable.
    pub less: &'static str,
    pub group: &'static str,
    pub group_commit: &'static str,
    /// `onewrite_compression` and `onewrite_differences`, in the modes that have them.
    pub compressing: Option<(&'static str, &'static str)>,
    /// Whether the reserved bytes of every page of the first database hold data.
    pub reserved_in_use: bool,
    /// Whether a write may damage the rest of its sectors (`psow=0`): SQLite pads each commit to
    /// their end.
    pub pads_commits: bool,
}

impl Config {
    pub const USUAL: Config = Config {
        mode: "waldio",
        layout: "embedded",
        page: 4096,
        device: Device::Fua,
        sync: "auto",
        synchronous: "FULL",
        floor: "none",
        less: "synchronous=NORMAL",
        group: "off",
        group_commit: "auto",
        compressing: None,
        reserved_in_use: false,
        pads_commits: false,
    };

    /// Whether frame headers stand in reserved bytes.
    pub fn embeds_headers(&self) -> bool {
        self.mode == "waldio" && self.layout == "embedded"
    }

    /// Whether a commit that has returned survives a power cut.
    pub fn commits_are_durable(&self) -> bool {
        (self.synchronous != "NORMAL" || self.floor == "full")
            && self.sync != "normal"
            && self.group == "off"
    }
}

#[derive(Clone, Debug)]
pub enum Step {
    /// A transaction that counts itself: the statements between BEGIN and COMMIT.
    Transaction(Vec<String>),
    /// The same, by a second connection, which is less durable: [`Config::less`].
    AtNormal(Vec<String>),
    /// The same, by a third connection, which is as durable as the first: they share their flushes.
    Turn(Vec<String>),
    /// The same, by a stock connection.
    AtStock(Vec<String>),
    /// A transaction of the first connection that is a whole group of group synch: one frame fills
    /// it.
    Grouped(Vec<String>),
    /// A statement of the stock connection, with no lasting change.
    StockSql(String),
    /// Statements with no lasting change.
    Sql(Vec<String>),
    /// `PRAGMA journal_mode`; `None` is the configuration's mode.
    Mode(Option<&'static str>),
    Reopen,
}

pub struct History {
    pub name: &'static str,
    pub steps: Vec<Step>,
    /// Transactions that run only after a crash.
    pub spare: Vec<Step>,
}

impl History {
    pub fn transactions(&self) -> Vec<&Vec<String>> {
        let steps = self.steps.iter().chain(&self.spare);
        let statements = steps.filter_map(|step| match step {
            Step::Transaction(statements)
            | Step::AtNormal(statements)
            | Step::Turn(statements)
            | Step::AtStock(statements)
            | Step::Grouped(statements) => Some(statements),
            _ => None,
        });
        statements.collect()
    }
}

/// SQLite's own VFS, recorded: below ours, and for stock connections.
const RECORDED: &str = "recorder";

/// Opens the database of a directory.
pub fn open(directory: &Path, vfs: &str) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let vfs = std::ffi::CString::new(vfs).expect("a name");
    Connection::open_with_flags_and_vfs(directory.join(DATABASE), flags, vfs.as_c_str())
}

/// Opens the database with a configuration.
fn open_as(config: &Config, directory: &Path) -> rusqlite::Result<Connection> {
    if !config.pads_commits {
        return open(directory, "onewrite");
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI;
    let uri = format!("file:{}?psow=0", directory.join(DATABASE).display());
    Connection::open_with_flags_and_vfs(uri, flags, c"onewrite")
}

/// Runs a statement to its end. Returns the first column of its first row.
fn run_all(connection: &Connection, statements: &[String]) -> rusqlite::Result<()> {
    let mut each = statements.iter();
    each.try_for_each(|sql| run(connection, sql).map(drop))
}

pub fn run(connection: &Connection, sql: &str) -> rusqlite::Result<Option<String>> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut first = None;
    while let Some(row) = rows.next()? {
        if first.is_none() {
            first = Some(row.get_ref(0)?.as_str_or_number());
        }
    }
    Ok(first)
}

trait AsText {
    fn as_str_or_number(&self) -> String;
}

impl AsText for rusqlite::types::ValueRef<'_> {
    fn as_str_or_number(&self) -> String {
        match self {
            rusqlite::types::ValueRef::Integer(n) => n.to_string(),
            rusqlite::types::ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
            other => format!("{other:?}"),
        }
    }
}

const SCHEMA: [&str; 4] = [
    "CREATE TABLE count(k INTEGER)",
    "INSERT INTO count VALUES(0)",
    "CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER, w TEXT)",
    "CREATE INDEX by_v ON t(v, id)",
];

/// The number of transactions in the database, and a digest of everything in it.
pub fn look(connection: &Connection) -> rusqlite::Result<(u32, u64)> {
    let mut digest = DefaultHasher::new();
    let mut tables = Vec::new();
    let mut statement =
        connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY type DESC, name")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (name, sql): (String, String) = (row.get(0)?, row.get(1)?);
        sql.hash(&mut digest);
        tables.push(name);
    }
    let Some(_) = tables.iter().find(|name| *name == "count") else {
        return Ok((0, digest.finish()));
    };
    let k = connection.query_row("SELECT k FROM count", [], |row| row.get(0))?;
    let mut statement = connection.prepare("SELECT id, v, w FROM t ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (id, v): (i64, i64) = (row.get(0)?, row.get(1)?);
        (id, v, row.get_ref(2)?.as_str()?).hash(&mut digest);
    }
    Ok((k, digest.finish()))
}

pub fn transact(connection: &Connection, statements: &[String]) -> rusqlite::Result<()> {
    run(connection, "BEGIN")?;
    for statement in statements {
        run(connection, statement)?;
    }
    run(connection, "UPDATE count SET k = k + 1")?;
    run(connection, "COMMIT").map(drop)
}

/// The digest after each number of transactions.
pub fn digests(history: &History, fresh: bool) -> Vec<u64> {
    let connection = Connection::open_in_memory().expect("memory");
    if !fresh {
        make_schema(&connection).expect("a schema");
    }
    let digest = |connection: &Connection| look(connection).expect("a digest").1;
    let mut digests = vec![digest(&connection)];
    for statements in history.transactions() {
        transact(&connection, statements).expect("a transaction in memory");
        digests.push(digest(&connection));
    }
    digests
}

fn make_schema(connection: &Connection) -> rusqlite::Result<()> {
    for sql in SCHEMA {
        run(connection, sql)?;
    }
    for i in 0..6 {
        let sql = format!("INSERT INTO t(v, w) VALUES({i}, printf('%.*c', 100, 'a'))");
        run(connection, &sql)?;
    }
    Ok(())
}

/// Statements that a fresh database's first transaction begins with.
pub fn schema() -> Vec<String> {
    SCHEMA.iter().map(|&sql| sql.to_owned()).collect()
}

/// Makes the first database of a history, in rollback mode.
pub fn make_first(directory: &Path, config: &Config) {
    let connection = open(directory, "onewrite").expect("a database");
    let sql = |sql: &str| run(&connection, sql).expect(sql);
    sql(&format!("PRAGMA page_size={}", config.page));
    if config.embeds_headers() {
        sql("PRAGMA onewrite_reserve_bytes=24");
    }
    make_schema(&connection).expect("a schema");
    drop(connection);
    if config.reserved_in_use {
        use_reserved_bytes(&directory.join(DATABASE), config.page as usize);
    }
}

/// SQLite writes a page's reserved bytes back as it read them.
fn use_reserved_bytes(database: &Path, page: usize) {
    let mut bytes = std::fs::read(database).expect("the database");
    for (no, page) in bytes.chunks_exact_mut(page).enumerate() {
        let tail = page.len() - 24;
        page[tail..].fill(0xc0 | no as u8 & 0xf);
    }
    std::fs::write(database, bytes).expect("the database");
}

/// Runs histories on a database. Notes in its recording when a transaction begins and when it is
/// promised.
pub struct Player<'a> {
    pub directory: &'a Path,
    pub config: &'a Config,
    /// Transactions so far.
    pub done: u32,
    connection: Option<Connection>,
    at_normal: Option<Connection>,
    turns: Option<Connection>,
    stock: Option<Connection>,
    mode: &'static str,
}

impl<'a> Player<'a> {
    pub fn new(directory: &'a Path, config: &'a Config, done: u32) -> Player<'a> {
        Player {
            directory,
            config,
            done,
            connection: None,
            at_normal: None,
            turns: None,
            stock: None,
            mode: "delete",
        }
    }

    /// The database was found in this mode.
    pub fn found_in(&mut self, mode: &str) {
        let known = ["wal", "delete", self.config.mode];
        self.mode = known
            .into_iter()
            .find(|known| *known == mode)
            .unwrap_or("another");
    }

    /// SQLite's rollback journal is not safe below FULL: its checksums cover one byte in 200. The
    /// floor comes after the level, so that the log holds it, and no pragma.
    fn synchronous(&self, mode: &str) -> [String; 3] {
        let level = match mode == self.config.mode {
            true => self.config.synchronous,
            false => "FULL",
        };
        [
            "PRAGMA onewrite_synchronous=none".to_owned(),
            format!("PRAGMA synchronous={level}"),
            format!("PRAGMA onewrite_synchronous={}", self.config.floor),
        ]
    }

    pub fn connection(&mut self) -> rusqlite::Result<&Connection> {
        if self.connection.is_none() {
            let connection = open_as(self.config, self.directory)?;
            let config = self.config;
            for pragma in [
                format!("PRAGMA page_size={}", config.page),
                format!("PRAGMA onewrite_sync={}", config.sync),
                "PRAGMA wal_autocheckpoint=0".to_owned(),
                // The smallest cache that SQLite takes, so that large transactions spill.
                "PRAGMA cache_size=10".to_owned(),
                format!("PRAGMA onewrite_group_synch='{}'", config.group),
                format!("PRAGMA onewrite_group_commit={}", config.group_commit),
            ] {
                run(&connection, &pragma)?;
            }
            run_all(&connection, &self.synchronous(self.mode))?;
            if let Some((with, differences)) = config.compressing {
                run(&connection, &format!("PRAGMA onewrite_compression={with}"))?;
                run(
                    &connection,
                    &format!("PRAGMA onewrite_differences={differences}"),
                )?;
            }
            self.connection = Some(connection);
        }
        Ok(self.connection.as_ref().expect("just opened"))
    }

    fn at_normal(&mut self) -> rusqlite::Result<&Connection> {
        if self.at_normal.is_none() {
            let connection = open_as(self.config, self.directory)?;
            run(&connection, &format!("PRAGMA {}", self.config.less))?;
            run(&connection, "PRAGMA wal_autocheckpoint=0")?;
            self.at_normal = Some(connection);
        }
        Ok(self.at_normal.as_ref().expect("just opened"))
    }

    fn turns(&mut self) -> rusqlite::Result<&Connection> {
        if self.turns.is_none() {
            let connection = open_as(self.config, self.directory)?;
            let level = self.synchronous(self.mode);
            let group_commit = format!("PRAGMA onewrite_group_commit={}", self.config.group_commit);
            run_all(&connection, &level)?;
            for sql in [&group_commit, "PRAGMA wal_autocheckpoint=0"] {
                run(&connection, sql)?;
            }
            self.turns = Some(connection);
        }
        Ok(self.turns.as_ref().expect("just opened"))
    }

    fn stock(&mut self) -> rusqlite::Result<&Connection> {
        if self.stock.is_none() {
            let connection = open(self.directory, RECORDED)?;
            for sql in ["PRAGMA synchronous=FULL", "PRAGMA wal_autocheckpoint=0"] {
                run(&connection, sql)?;
            }
            self.stock = Some(connection);
        }
        Ok(self.stock.as_ref().expect("just opened"))
    }

    /// A transaction was acknowledged.
    fn acknowledged(&mut self) {
        self.done += 1;
        let own = self.mode == self.config.mode || self.mode == "wal";
        if self.config.commits_are_durable() && own {
            self.note(Event::Durable(self.done));
        }
    }

    fn note(&self, event: Event) {
        record::note(self.directory, event);
    }

    pub fn play(&mut self, steps: &[Step]) -> rusqlite::Result<()> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    pub fn step(&mut self, step: &Step) -> rusqlite::Result<()> {
        match step {
            Step::Transaction(statements) => self.transact_by(Self::connection, statements),
            Step::Turn(statements) => self.transact_by(Self::turns, statements),
            Step::AtStock(statements) => self.transact_by(Self::stock, statements),
            Step::StockSql(statement) => run(self.stock()?, statement).map(drop),
            Step::AtNormal(statements) => {
                self.note(Event::Begin(self.done + 1));
                transact(self.at_normal()?, statements)?;
                self.done += 1;
                Ok(())
            }
            Step::Grouped(statements) => {
                let group = |bounds: &str| format!("PRAGMA onewrite_group_synch='{bounds}'");
                run(self.connection()?, &group("1,10000"))?;
                self.note(Event::Begin(self.done + 1));
                transact(self.connection()?, statements)?;
                self.acknowledged();
                let usual = group(self.config.group);
                run(self.connection()?, &usual).map(drop)
            }
            Step::Sql(statements) => {
                let connection = self.connection()?;
                for statement in statements {
                    run(connection, statement)?;
                }
                Ok(())
            }
            Step::Mode(mode) => self.switch(mode.unwrap_or(self.config.mode)),
            Step::Reopen => self.close(),
        }
    }

    /// A transaction of a connection, which is opened before.
    fn transact_by(
        &mut self,
        connection: fn(&mut Self) -> rusqlite::Result<&Connection>,
        statements: &[String],
    ) -> rusqlite::Result<()> {
        connection(self)?;
        self.note(Event::Begin(self.done + 1));
        transact(connection(self)?, statements)?;
        self.acknowledged();
        Ok(())
    }

    fn switch(&mut self, mode: &'static str) -> rusqlite::Result<()> {
        let config = *self.config;
        let (on_the_way, there) = (self.synchronous("delete"), self.synchronous(mode));
        let connection = self.connection()?;
        run_all(connection, &on_the_way)?;
        let ours = mode == config.mode;
        if ours && mode == "waldio" {
            run(
                connection,
                &format!("PRAGMA onewrite_layout={}", config.layout),
            )?;
        }
        let found = run(connection, &format!("PRAGMA journal_mode={mode}"))?;
        assert_eq!(found.as_deref(), Some(mode), "the journal mode");
        run_all(connection, &there)?;
        self.mode = mode;
        if ours {
            self.note(Event::Durable(self.done));
        }
        Ok(())
    }

    pub fn close(&mut self) -> rusqlite::Result<()> {
        for connection in [self.at_normal.take(), self.turns.take(), self.stock.take()]
            .into_iter()
            .flatten()
        {
            connection.close().map_err(|(_, e)| e)?;
        }
        if let Some(connection) = self.connection.take() {
            connection.close().map_err(|(_, e)| e)?;
            if self.mode == self.config.mode {
                self.note(Event::Durable(self.done));
            }
        }
        Ok(())
    }
}

/// Makes histories.
pub struct Maker<'a> {
    pub page: u32,
    pub random: &'a mut Random,
    made: u32,
}

impl Maker<'_> {
    pub fn new(page: u32, random: &mut Random) -> Maker<'_> {
        Maker {
            page,
            random,
            made: 0,
        }
    }

    /// Rows of a third of a page.
    fn rows(&mut self, count: u32) -> String {
        let length = self.page / 3;
        let letter = char::from(b'a' + self.random.below(26) as u8);
        let factor = 1 + self.random.below(97);
        let made = self.made;
        format!(
            "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<{count}) \
             INSERT INTO t(v, w) SELECT i*{factor}%1000, printf('{made}.%d.%.*c', i, {length}, \
             '{letter}') FROM c"
        )
    }

    fn small(&mut self) -> Vec<String> {
        self.made += 1;
        let (made, v) = (self.made, self.random.below(1000));
        let letter = char::from(b'a' + self.random.below(26) as u8);
        vec![match self.random.below(4) {
            0 => format!("UPDATE t SET v = v + {v} WHERE id % 5 = {}", made % 5),
            1 => format!(
                "DELETE FROM t WHERE id = (SELECT max(id) FROM t) - {}",
                v % 3
            ),
            _ => format!("INSERT INTO t(v, w) VALUES({v}, printf('{made}.%.*c', 100, '{letter}'))"),
        }]
    }

    pub fn one(&mut self) -> Step {
        Step::Transaction(self.small())
    }

    pub fn at_normal(&mut self) -> Step {
        Step::AtNormal(self.small())
    }

    pub fn grouped(&mut self) -> Step {
        Step::Grouped(self.small())
    }

    pub fn turn(&mut self) -> Step {
        Step::Turn(self.small())
    }

    pub fn at_stock(&mut self) -> Step {
        Step::AtStock(self.small())
    }

    pub fn some(&mut self, count: usize) -> Vec<Step> {
        (0..count).map(|_| self.one()).collect()
    }

    /// A transaction that changes about so many pages.
    pub fn pages(&mut self, pages: u32) -> Step {
        self.made += 1;
        Step::Transaction(vec![self.rows(pages * 2)])
    }

    /// A transaction of the connection that takes turns with the other. It changes so many of the
    /// pages that [`Maker::pages`] has made, two rows each.
    pub fn turn_of(&mut self, pages: u32) -> Step {
        self.made += 1;
        let length = self.page / 3;
        let last = format!("SELECT id FROM t ORDER BY id DESC LIMIT 2 * {pages}");
        Step::Turn(vec![format!(
            "UPDATE t SET w = printf('{}.%d.%.*c', id, {length}, 'u') WHERE id IN ({last})",
            self.made
        )])
    }

    /// Spills, rolls back to a savepoint, and writes other pages in place of the spilled ones.
    pub fn spill_and_savepoint(&mut self) -> Step {
        self.made += 1;
        let letter = char::from(b'A' + self.random.below(26) as u8);
        let length = self.page / 3;
        Step::Transaction(vec![
            self.rows(60),
            "SAVEPOINT a".to_owned(),
            format!("UPDATE t SET w = printf('%d.%.*c', id, {length}, '{letter}')"),
            self.rows(40),
            "ROLLBACK TO a".to_owned(),
            self.rows(30),
            "SAVEPOINT b".to_owned(),
            "DELETE FROM t WHERE id % 3 = 0".to_owned(),
            "RELEASE b".to_owned(),
            "RELEASE a".to_owned(),
        ])
    }

    pub fn rolled_back(&mut self, pages: u32) -> Step {
        self.made += 1;
        Step::Sql(vec![
            "BEGIN".to_owned(),
            self.rows(pages * 2),
            "UPDATE t SET v = v + 1".to_owned(),
            "ROLLBACK".to_owned(),
        ])
    }

    /// Keeps the database small.
    pub fn shrink(&mut self) -> Step {
        self.made += 1;
        Step::Transaction(vec!["DELETE FROM t WHERE id > 6".to_owned()])
    }
}

pub fn checkpoint(how: &str) -> Step {
    Step::Sql(vec![format!("PRAGMA wal_checkpoint({how})")])
}
