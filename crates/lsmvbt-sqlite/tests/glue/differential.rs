//! The same random SQL on stock SQLite and on the other engine: the same rows, the same errors.
//!
//! `ONEWRITE_SEED` sets the statements, `ONEWRITE_SEEDS` the number of seeds from there on, and
//! `ONEWRITE_STEPS` the number of statements of each (3,000).

use onewrite_common::random::SplitMix64;

use crate::support::{Setup, on_other_engines, one};

on_other_engines! {
    random_sql_says_the_same_as_on_stock
}

pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.next()
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[usize::try_from(self.below(choices.len() as u64)).expect("an index")]
    }

    fn value(&mut self) -> String {
        match self.below(9) {
            0 => "NULL".to_owned(),
            1 | 2 => format!("{}", self.below(60)),
            3 => format!("{}.5", self.below(40)),
            4 => format!(
                "'{}'",
                self.of(&["a", "A", "b ", "B", "abc", "aBC", "", "zz", "ä"])
            ),
            5 => format!("'k{}'", self.below(50)),
            6 => format!("x'{:04x}'", self.below(50)),
            7 => format!("printf('%.{}c', 'x')", self.below(6000)),
            _ => format!("-{}", self.next() >> 1),
        }
    }
}

/// Seeds that once found a difference.
const FOUND_SOMETHING: [u64; 2] = [1004, 500_009];

pub const SCHEMA: &[&str] = &[
    "CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE, c, d COLLATE NOCASE, CHECK (c IS NULL OR c <> 13))",
    "CREATE INDEX tc ON t(c, d DESC)",
    "CREATE INDEX te ON t(lower(d)) WHERE c IS NOT NULL",
    "CREATE TABLE w(k COLLATE NOCASE, n, v, PRIMARY KEY(k, n)) WITHOUT ROWID",
    "CREATE INDEX wv ON w(v)",
    "CREATE TABLE p(id INTEGER PRIMARY KEY, t REFERENCES t(b) ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TRIGGER tr AFTER DELETE ON w WHEN old.n > 20 BEGIN INSERT OR IGNORE INTO t(b, c) VALUES (old.k, old.v); END",
];

pub fn statement(random: &mut Random) -> String {
    let conflict = random.of(&[
        "",
        "OR REPLACE",
        "OR IGNORE",
        "OR FAIL",
        "OR ABORT",
        "OR ROLLBACK",
    ]);
    let (v1, v2, v3) = (random.value(), random.value(), random.value());
    let (m, n) = (random.below(12) + 2, random.below(60));
    let column = random.of(&["a", "b", "c", "d"]);
    match random.below(30) {
        0..=4 => format!("INSERT {conflict} INTO t(b, c, d) VALUES ({v1}, {v2}, {v3})"),
        5 => format!("INSERT {conflict} INTO t VALUES ({n}, {v1}, {v2}, {v3})"),
        6..=8 => format!("INSERT {conflict} INTO w VALUES ({v1}, {n}, {v2})"),
        9 => format!("INSERT {conflict} INTO t(b, c, d) SELECT v, n, k FROM w WHERE n % {m} = 0"),
        10 => format!("INSERT {conflict} INTO w SELECT d, a % 50, c FROM t WHERE a % {m} = 0 AND d NOTNULL"),
        11 => format!("UPDATE {conflict} t SET {column} = {v1} WHERE c = {v2}"),
        12 => format!("UPDATE {conflict} t SET a = a + {n} WHERE a % {m} = 0"),
        13 => format!("UPDATE {conflict} t SET c = {v1}, d = b WHERE d >= {v2}"),
        14 => format!("UPDATE {conflict} w SET k = upper(k), v = {v1} WHERE n % {m} = 0"),
        15 => format!("UPDATE {conflict} w SET n = n + 1 WHERE k > {v1}"),
        16 => format!("DELETE FROM t WHERE {column} = {v1}"),
        17 => format!("DELETE FROM t WHERE a % {m} = 0 AND c > {v1} RETURNING a, b"),
        18 => format!("DELETE FROM w WHERE v <= {v1} AND n % {m} = 1"),
        19 => format!("INSERT {conflict} INTO p(t) SELECT b FROM t WHERE a % {m} = 0"),
        20 => format!("SELECT * FROM t WHERE {column} > {v1} ORDER BY c, d DESC, a LIMIT 20"),
        21 => format!("SELECT * FROM w WHERE k >= {v1} ORDER BY k DESC, n LIMIT 20"),
        22 => format!("SELECT count(*), sum(length(v)) FROM w JOIN t ON t.d = w.k WHERE w.n % {m} = 0"),
        23 => format!("SELECT a, (SELECT max(n) FROM w WHERE v = t.c) FROM t ORDER BY {column}, a LIMIT 15"),
        24 => random.of(&["BEGIN", "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK", "COMMIT"]).to_owned(),
        25 => random.of(&["SAVEPOINT a", "SAVEPOINT b", "RELEASE a", "RELEASE b"]).to_owned(),
        26 => random.of(&["ROLLBACK TO a", "ROLLBACK TO b", "ROLLBACK TO a", "REINDEX t"]).to_owned(),
        27 => format!("INSERT INTO w VALUES ({v1}, {n}, {v2}) ON CONFLICT DO UPDATE SET v = excluded.v || v"),
        28 => random
            .of(&[
                "CREATE TABLE IF NOT EXISTS s AS SELECT * FROM t",
                "DROP TABLE IF EXISTS s",
                "CREATE INDEX IF NOT EXISTS ts ON t(b, c)",
                "DROP INDEX IF EXISTS ts",
                "DELETE FROM p",
            ])
            .to_owned(),
        _ => "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM w), (SELECT count(*) FROM p), total_changes()".to_owned(),
    }
}

fn random_sql_says_the_same_as_on_stock(engine: &str) {
    let steps = number("ONEWRITE_STEPS").unwrap_or(3000);
    let Some(first) = number("ONEWRITE_SEED") else {
        return FOUND_SOMETHING
            .iter()
            .for_each(|seed| says_the_same(engine, *seed, steps));
    };
    for seed in first..first + number("ONEWRITE_SEEDS").unwrap_or(1) {
        says_the_same(engine, seed, steps);
    }
}

pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect(name))
}

fn says_the_same(engine: &str, seed: u64, steps: u64) {
    println!("ONEWRITE_SEED={seed} ONEWRITE_STEPS={steps}");
    let mut random = Random::new(seed);
    let setup = Setup::new();
    let [stock, other] = ["stock", engine].map(|engine| setup.open(engine, engine));
    for sql in SCHEMA {
        stock.execute(sql).expect(sql);
        other.execute(sql).expect(sql);
    }
    let (mut succeeded, mut failed) = (0, 0);
    for step in 0..steps {
        let sql = statement(&mut random);
        let said = [&stock, &other].map(|connection| connection.query(&sql));
        assert_eq!(
            said[0], said[1],
            "ONEWRITE_SEED={seed}, step {step}: {sql} (stock SQLite left)"
        );
        assert_eq!(
            stock.changes(),
            other.changes(),
            "ONEWRITE_SEED={seed}, step {step}: {sql}"
        );
        if said[0].is_ok() {
            succeeded += 1
        } else {
            failed += 1
        }
        if step % 500 == 499 {
            for sql in [
                "PRAGMA integrity_check",
                "SELECT * FROM t ORDER BY a",
                "SELECT * FROM w ORDER BY k, n",
            ] {
                assert_eq!(
                    stock.query(sql),
                    other.query(sql),
                    "ONEWRITE_SEED={seed}, step {step}: {sql}"
                );
            }
            assert_eq!(
                one(&other, "PRAGMA integrity_check"),
                "ok",
                "ONEWRITE_SEED={seed}, step {step}"
            );
        }
    }
    println!("{succeeded} statements succeeded, {failed} failed, alike");
    assert!(
        succeeded > steps / 2,
        "too few statements succeed to show much: {succeeded} of {steps}"
    );
}
