//! Values whose abbreviated keys are equal, or nearly: the search must still distinguish them. It
//! seeks every value in nodes that have been searched before, by each comparison. The answers are
//! those of stock SQLite.

use crate::support::{Setup, run};
use lsmvbt_sqlite::sqlite::Connection;

/// They include integers that round to one real number, and texts with a common prefix.
const VALUES: &[&str] = &[
    "NULL",
    "0",
    "-0.0",
    "1",
    "-1",
    "0.5",
    "1e-320",
    "-1e-320",
    "1e300",
    "-1e300",
    "9e999",
    "-9e999",
    "255",
    "-129",
    "65536",
    "9007199254740992",
    "9007199254740993",
    "9007199254740992.0",
    "9223372036854775807",
    "9223372036854775806",
    "9223372036854775808.0",
    "-9223372036854775808",
    "-9223372036854775807",
    "-9223372036854775808.0",
    "''",
    "'a'",
    "'A'",
    "'a '",
    "'a' || char(0)",
    "'abcdefgh'",
    "'abcdefghi'",
    "'ABCDEFGHI'",
    "'abcdefgz'",
    "char(1114111)",
    "printf('%01000d', 7)",
    "x''",
    "x'00'",
    "x'0000'",
    "x'6162636465666768'",
    "x'616263646566676869'",
    "x'ffffffffffffffffff'",
    "zeroblob(700)",
];

const ORDERS: &[&str] = &[
    "x",
    "x DESC",
    "x COLLATE NOCASE",
    "x COLLATE RTRIM DESC",
    "x, y DESC",
];

const COMPARISONS: &[&str] = &["=", "IS", "<", "<=", ">", ">="];

/// The values, each several times, with others around them, far enough apart for several leaves.
fn fill(connection: &Connection, order: &str) {
    let values: Vec<String> = VALUES.iter().map(|value| format!("({value})")).collect();
    let script = format!(
        "CREATE TABLE t(x, y);
         CREATE TABLE v(x);
         INSERT INTO v VALUES {};
         INSERT INTO t SELECT v.x, k.value FROM v, json_each('[1,2,3]') k;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900)
           INSERT INTO t SELECT i * 3 - 1000, i FROM n UNION ALL SELECT i * 0.37, i FROM n
             UNION ALL SELECT 'abcdefg' || i, i FROM n UNION ALL SELECT CAST('abc' || i AS BLOB), i FROM n;
         CREATE INDEX i ON t({order});",
        values.join(", ")
    );
    for statement in script.split_inclusive(';') {
        run(connection, statement);
    }
}

fn answers(connection: &Connection, order: &str) -> Vec<String> {
    let collation = order
        .split(' ')
        .skip_while(|word| *word != "COLLATE")
        .nth(1);
    let collate = collation.map_or(String::new(), |name| format!("COLLATE {name}"));
    let mut answers = Vec::new();
    for comparison in COMPARISONS {
        let query = format!(
            "SELECT v.rowid || ': ' || (SELECT count(*) || ' ' || coalesce(sum(y), 0) FROM t INDEXED BY i
               WHERE t.x {comparison} v.x {collate}) FROM v"
        );
        let rows = connection.query(&query).expect(&query);
        answers.extend(rows.iter().map(|row| format!("{comparison} {}", row[0])));
    }
    answers
}

#[test]
fn what_abbreviated_keys_do_not_tell_is_compared() {
    for (at, order) in ORDERS.iter().enumerate() {
        let setup = Setup::new();
        let [stock, ours] = ["stock", "lsmvbt"].map(|engine| {
            let connection = setup.open(&format!("{engine}{at}"), engine);
            fill(&connection, order);
            // The first answers come from nodes that have no abbreviated keys yet.
            [answers(&connection, order), answers(&connection, order)]
        });
        assert!(stock[0].len() == VALUES.len() * COMPARISONS.len());
        assert_eq!(stock[0], stock[1]);
        assert_eq!(stock[0], ours[0], "{order}");
        assert_eq!(stock[0], ours[1], "{order}");
    }
}
