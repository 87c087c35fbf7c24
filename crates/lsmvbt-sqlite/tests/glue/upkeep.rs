//! Random SQL as in [`differential`](crate::differential), while the database is shortened, read by
//! others, copied as a kill would leave it, and used with little memory. The answers stay stock's.
//!
//! `ONEWRITE_SEED`, `ONEWRITE_SEEDS` and `ONEWRITE_STEPS` as there.

use lsmvbt_sqlite::sqlite::Connection;

use crate::differential::{Random, number, statement};
use crate::support::{Setup, one};

/// Everything in the tables, and what each index says.
const CONTENT: [&str; 5] = [
    "SELECT * FROM t ORDER BY a",
    "SELECT * FROM w ORDER BY k, n",
    "SELECT * FROM p ORDER BY id",
    "SELECT b FROM t ORDER BY b",
    "SELECT name, sql FROM sqlite_schema ORDER BY name",
];

fn content(connection: &Connection) -> Vec<String> {
    CONTENT
        .iter()
        .map(|sql| match connection.query(sql) {
            Ok(rows) => format!("{rows:?}"),
            Err(error) => panic!("{sql}: {error}"),
        })
        .collect()
}

struct Run {
    setup: Setup,
    stock: Connection,
    other: Connection,
    /// A connection that reads, and what it has read.
    reader: Option<(Connection, Vec<String>)>,
    history: bool,
    copies: u32,
    seed: u64,
    step: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let setup = Setup::new();
        let [stock, other] = ["stock", "lsmvbt"].map(|engine| setup.open(engine, engine));
        for sql in crate::differential::SCHEMA {
            stock.execute(sql).expect(sql);
            other.execute(sql).expect(sql);
        }
        let (reader, history) = (None, false);
        Run {
            setup,
            stock,
            other,
            reader,
            history,
            copies: 0,
            seed,
            step: 0,
        }
    }

    fn place(&self) -> String {
        format!("ONEWRITE_SEED={}, step {}", self.seed, self.step)
    }

    fn both(&self, sql: &str) -> bool {
        let said = [&self.stock, &self.other].map(|connection| connection.query(sql));
        assert_eq!(
            said[0],
            said[1],
            "{}: {sql} (stock SQLite left)",
            self.place()
        );
        said[0].is_ok()
    }

    fn set(&self, sql: &str) {
        self.other
            .query(sql)
            .unwrap_or_else(|error| panic!("{}: {sql}: {error}", self.place()));
    }

    fn in_a_transaction(&self) -> bool {
        if self.stock.query("BEGIN").is_err() {
            return true;
        }
        self.stock.execute("ROLLBACK").expect("the end");
        false
    }

    fn upkeep(&mut self, random: &mut Random) {
        match random.below(8) {
            0 => self.vacuum(random),
            1 => self.set(&format!("PRAGMA incremental_vacuum({})", random.below(9))),
            2 => self.set(&format!("PRAGMA cache_size = {}", 2 + random.below(60))),
            3 => self.read(),
            4 => self.kill(random),
            // Not in a transaction.
            _ if self.in_a_transaction() => {}
            5 => {
                let torn = random.of(&["double", "trust"]);
                self.set(&format!("PRAGMA lsmvbt_torn = {torn}"));
            }
            6 => self.reopen(),
            _ => {
                let level = random.of(&["FULL", "NORMAL", "OFF"]);
                self.set(&format!("PRAGMA synchronous = {level}"));
            }
        }
    }

    fn vacuum(&mut self, random: &mut Random) {
        if self.in_a_transaction() {
            self.both("VACUUM");
            return;
        }
        if random.below(3) == 0 {
            self.history = !self.history;
            let kept = if self.history { 20 } else { 0 };
            self.set(&format!("PRAGMA lsmvbt_history = {kept}"));
        }
        if !self.history && self.reader.is_none() {
            assert!(self.both("VACUUM"), "{}: VACUUM", self.place());
        }
    }

    /// A reader begins, or sees what it has seen before and ends.
    fn read(&mut self) {
        match self.reader.take() {
            Some((reader, seen)) => {
                assert_eq!(content(&reader), seen, "{}: a snapshot", self.place());
                reader.execute("COMMIT").expect("the end of reading");
            }
            None => {
                let reader = self.setup.open("lsmvbt", "lsmvbt");
                reader.execute("BEGIN").expect("a beginning");
                let seen = content(&reader);
                self.reader = Some((reader, seen));
            }
        }
    }

    fn reopen(&mut self) {
        self.stock = self.setup.open("stock", "stock");
        self.other = self.setup.open("lsmvbt", "lsmvbt");
    }

    /// Another process opens what a kill of all would leave now, and goes on.
    fn kill(&mut self, random: &mut Random) {
        let committed = content(&self.setup.open("lsmvbt", "lsmvbt"));
        self.copies += 1;
        let name = format!("killed-{}", self.copies);
        std::fs::copy(self.setup.path("lsmvbt"), self.setup.path(&name)).expect("a copy");
        let copy = self.setup.open(&name, "lsmvbt");
        assert_eq!(content(&copy), committed, "{}: after a kill", self.place());
        let healthy = |when: &str| {
            let said = one(&copy, "PRAGMA integrity_check");
            assert_eq!(said, "ok", "{}: {when}", self.place());
        };
        healthy("after a kill");
        for _ in 0..random.below(12) {
            let _ = copy.query(&statement(random));
        }
        let _ = copy.query("ROLLBACK");
        copy.query("PRAGMA lsmvbt_history = 0").expect("no history");
        let before = content(&copy);
        copy.execute("VACUUM")
            .unwrap_or_else(|error| panic!("{}: VACUUM after a kill: {error}", self.place()));
        assert_eq!(
            content(&copy),
            before,
            "{}: VACUUM after a kill",
            self.place()
        );
        healthy("VACUUM after a kill");
        drop(copy);
        std::fs::remove_file(self.setup.path(&name)).expect("removed");
    }
}

#[test]
fn random_sql_with_upkeep_says_the_same_as_on_stock() {
    let first = number("ONEWRITE_SEED").unwrap_or(700_000);
    let steps = number("ONEWRITE_STEPS").unwrap_or(400);
    for seed in first..first + number("ONEWRITE_SEEDS").unwrap_or(1) {
        println!("ONEWRITE_SEED={seed} ONEWRITE_STEPS={steps}");
        says_the_same(seed, steps);
    }
}

fn says_the_same(seed: u64, steps: u64) {
    let mut random = Random::new(seed);
    let mut run = Run::new(seed);
    let mut succeeded = 0;
    for step in 0..steps {
        run.step = step;
        succeeded += u64::from(run.both(&statement(&mut random)));
        assert_eq!(run.stock.changes(), run.other.changes(), "{}", run.place());
        if random.below(20) == 0 {
            run.upkeep(&mut random);
        }
        if step % 250 == 249 {
            assert_eq!(content(&run.stock), content(&run.other), "{}", run.place());
            let said = one(&run.other, "PRAGMA integrity_check");
            assert_eq!(said, "ok", "{}", run.place());
        }
    }
    println!("{succeeded} statements succeeded, {} copies", run.copies);
    assert!(succeeded > steps / 2, "{succeeded} of {steps}");
}
