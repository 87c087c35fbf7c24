//! The check accepts the result of a plan's transactions, in any order, and finds everything else.

use rusqlite::Connection;

use super::*;
use crate::connection::{Checkpoint, Settings};
use crate::mode::{Mode, Synchronous};

const OPS: [Op; 5] = [Op::Insert, Op::Update, Op::Delete, Op::Indexed, Op::App];

fn plan(op: Op, workers: u32) -> Plan {
    Plan {
        op,
        count: 50,
        record_size: 100,
        updates: 5,
        warm_up: 0,
        warehouses: 1,
        readers: 0,
        rate: None,
        order: Order::Random,
        seed: 7,
        workers,
    }
}

/// The numbers of all transactions, one worker's after the other's.
fn numbers(plan: &Plan) -> Vec<u32> {
    (0..plan.workers)
        .flat_map(|worker| plan.numbers(worker))
        .collect()
}

/// A database in memory after these transactions of the plan.
fn executed_in(plan: &Plan, numbers: impl IntoIterator<Item = u32>) -> Databases {
    let mut connection = Databases::in_memory(1).unwrap();
    plan.populate(&mut connection, &AtomicBool::new(false))
        .unwrap();
    let workload = plan.workload();
    for number in numbers {
        workload.work(number).commit(&connection).unwrap();
    }
    connection
}

/// As [`executed_in`], the whole plan.
fn executed(plan: &Plan) -> Databases {
    executed_in(plan, numbers(plan))
}

fn damaged(plan: &Plan, damage: &str) -> Checked {
    let connection = executed(plan);
    connection.first().execute_batch(damage).unwrap();
    assert!(connection.first().changes() > 0, "{damage}");
    plan.check(&connection).unwrap()
}

#[test]
fn the_check_accepts_what_the_plan_does() {
    for op in OPS {
        for workers in [1, 3] {
            let plan = plan(op, workers);
            let checked = plan.check(&executed(&plan)).unwrap();
            assert!(checked.is_ok(), "{op:?} {workers}: {checked:?}");
            match op {
                Op::Insert | Op::Update | Op::Indexed => assert_eq!(checked.rows, 50),
                Op::Delete => assert_eq!(checked.rows, 0),
                // Conversations, messages, and the rows that belong to some of them.
                _ => assert!(checked.rows > 64 + 1_050, "{checked:?}"),
            }
        }
    }
}

#[test]
fn the_order_of_commits_does_not_matter() {
    for op in OPS {
        let plan = plan(op, 3);
        let backwards = executed_in(&plan, (0..50).rev());
        let checked = plan.check(&backwards).unwrap();
        assert!(checked.is_ok(), "{op:?}: {checked:?}");
    }
}

#[test]
fn one_worker_alone_gives_ids_out_in_order() {
    for op in [Op::Insert, Op::Indexed] {
        let plan = plan(op, 1);
        let backwards = executed_in(&plan, (0..50).rev());
        assert_ne!(plan.check(&backwards).unwrap().content, "ok", "{op:?}");
    }
}

#[test]
fn the_same_seed_stores_the_same_and_another_does_not() {
    for op in OPS {
        let transactions = |seed| {
            let workload = Plan {
                seed,
                ..plan(op, 1)
            }
            .workload();
            let all = (0..50).map(|number| workload.work(number));
            all.collect::<Vec<_>>()
        };
        assert_eq!(transactions(7), transactions(7));
        if op != Op::Delete {
            assert_ne!(transactions(7), transactions(8), "{op:?}");
        }
    }
    let other = Plan {
        seed: 8,
        ..plan(Op::App, 1)
    };
    let checked = other.check(&executed(&plan(Op::App, 1))).unwrap();
    assert!(!checked.is_ok());
}

/// Any acknowledged transaction may be the missing one.
#[test]
fn a_transaction_that_is_missing_is_found() {
    for op in OPS {
        for lost in [0, 17, 49] {
            let plan = plan(op, 2);
            let others = numbers(&plan).into_iter().filter(|number| *number != lost);
            let checked = plan.check(&executed_in(&plan, others)).unwrap();
            assert!(!checked.is_ok(), "{op:?} without {lost}");
            assert_eq!(checked.integrity_check, "ok");
        }
    }
}

#[test]
fn the_check_finds_what_is_wrong() {
    for (op, damage, found) in [
        (Op::Insert, "DELETE FROM mobibench WHERE id = 50", "49 rows"),
        (
            Op::Insert,
            "UPDATE mobibench SET value = 'x' WHERE id = 9",
            "id 9 holds another",
        ),
        (
            Op::Insert,
            "UPDATE mobibench SET created = 1 WHERE id = 3",
            "was never stored",
        ),
        (
            Op::Update,
            "UPDATE mobibench SET created = created + 1 WHERE id = 4",
            "id 4 holds",
        ),
        (
            Op::Delete,
            "INSERT INTO mobibench VALUES (1, 'a', 2)",
            "1 rows, expected 0",
        ),
    ] {
        let checked = damaged(&plan(op, 1), damage);
        assert!(checked.content.contains(found), "{damage}: {checked:?}");
        assert!(!checked.is_ok());
    }
}

#[test]
fn a_wrong_row_of_an_indexed_table_is_found() {
    for (damage, found) in [
        (
            "DELETE FROM contact WHERE id = 50",
            "contact: 49 rows, expected 50",
        ),
        ("UPDATE contact SET id = 90 WHERE id = 9", "expected 9"),
        (
            "UPDATE contact SET name = name || 'x' WHERE id = 9",
            "name is",
        ),
        (
            "UPDATE contact SET phone = phone + 1 WHERE id = 9",
            "phone is",
        ),
        (
            "UPDATE contact SET body = 'x' WHERE id = 9",
            "body is \"x\", expected",
        ),
        (
            "UPDATE contact SET created = NULL WHERE id = 9",
            "created is NULL",
        ),
        (
            "INSERT INTO contact SELECT 51, name, phone, body, created FROM contact WHERE id = 1",
            "51 rows",
        ),
    ] {
        for workers in [1, 2] {
            let checked = damaged(&plan(Op::Indexed, workers), damage);
            let named = workers > 1 || checked.content.contains(found);
            assert!(named && !checked.is_ok(), "{damage}: {checked:?}");
        }
    }
}

#[test]
fn a_wrong_row_of_any_table_of_the_application_is_found() {
    for (damage, found) in [
        (
            "DELETE FROM message WHERE id = 1050",
            "message: 1049 rows, expected 1050",
        ),
        (
            "UPDATE message SET body = 'x' WHERE id = 1020",
            "message: id 1020: body is \"x\", expected",
        ),
        (
            "UPDATE message SET sender = sender + 1 WHERE id = 7",
            "message: id 7: sender is",
        ),
        (
            "UPDATE conversation SET unread = unread - 1 WHERE id = 5",
            "conversation: id 5: unread is",
        ),
        (
            "UPDATE conversation SET total = total + 1 WHERE id = 64",
            "conversation: id 64: total is",
        ),
        (
            "UPDATE conversation SET last_text = 'x' WHERE id = 1",
            "conversation: id 1: last_text is \"x\"",
        ),
        (
            "DELETE FROM recipient WHERE message = (SELECT max(message) FROM recipient)",
            "recipient: ",
        ),
        (
            "UPDATE label SET name = 'x' WHERE message = (SELECT max(message) FROM label)",
            "name is \"x\", expected",
        ),
        (
            "UPDATE attachment SET content = zeroblob(length(content)) WHERE message = \
             (SELECT max(message) FROM attachment)",
            "content is a BLOB of",
        ),
    ] {
        let checked = damaged(&plan(Op::App, 1), damage);
        assert!(checked.content.contains(found), "{damage}: {checked:?}");
        assert!(!checked.is_ok());
    }
}

#[test]
fn a_lost_update_is_found() {
    let plan = plan(Op::Update, 1);
    let checked = {
        let others = (0..50).filter(|number| *number != 4);
        plan.check(&executed_in(&plan, others)).unwrap()
    };
    assert!(checked.content.starts_with("id 5 holds another value"));
}

#[test]
fn workers_share_every_transaction_once() {
    for op in OPS {
        for order in [Order::Id, Order::Random] {
            let plan = Plan {
                order,
                ..plan(op, 4)
            };
            let mut numbers = numbers(&plan);
            assert!(!numbers.is_sorted());
            numbers.sort_unstable();
            assert_eq!(numbers, (0..50).collect::<Vec<_>>());
        }
    }
}

/// Pages that a transaction writes to a stock log, on average over 300: the figures in the modules'
/// heads.
#[test]
fn a_transaction_is_as_many_frames_as_documented() {
    let frames = |op| {
        let plan = Plan {
            count: 300,
            order: Order::Id,
            seed: 1,
            ..plan(op, 1)
        };
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            mode: Mode::parse("wal").unwrap(),
            synchronous: Synchronous::Off,
            autocheckpoint: 0,
        };
        let path = dir.path().join("a.db");
        let mut databases = Databases::open(&settings, &path, plan.databases()).unwrap();
        plan.populate(&mut databases, &AtomicBool::new(false))
            .unwrap();
        databases.checkpoint(Checkpoint::Truncate).unwrap();
        for number in numbers(&plan) {
            let transaction = plan.workload().work(number);
            transaction.commit(&databases).unwrap();
        }
        let in_log = |connection: &Connection| {
            let sql = "PRAGMA wal_checkpoint(PASSIVE)";
            connection
                .query_row(sql, (), |row| row.get::<_, f64>(1))
                .unwrap()
        };
        databases.all().map(in_log).sum::<f64>() / 300.0
    };
    let documented = [
        (Op::Insert, 1.05),
        (Op::Indexed, 3.07),
        (Op::App, 6.02),
        (Op::Mail, 5.84),
        (Op::Messenger, 1.97),
        (Op::Message, 1.93),
        (Op::Sns, 2.9),
        (Op::Partsupply, 5.0),
        (Op::Web, 1.78),
    ];
    let measured = documented.map(|(op, _)| (op, (frames(op) * 100.0).round() / 100.0));
    assert_eq!(measured, documented);
    for (op, frames) in measured {
        let most = if op == Op::Partsupply {
            20.0
        } else {
            frames.round()
        };
        assert_eq!(f64::from(op.frames()), most);
    }
}

/// These two have many rows, and the checks of every op above check few rows often.
#[test]
fn a_wrong_row_of_partsupply_and_of_ycsb_is_found() {
    for (op, table, damage) in [
        (
            Op::Partsupply,
            "partsupp",
            "UPDATE partsupp SET ps_availqty = ps_availqty + 1 WHERE ps_partkey = 77",
        ),
        (
            Op::YcsbA,
            "usertable",
            "UPDATE usertable SET field3 = 'x' WHERE ycsb_key = 500",
        ),
        (
            Op::YcsbD,
            "usertable",
            "DELETE FROM usertable WHERE ycsb_key = 9999",
        ),
        (
            Op::YcsbE,
            "usertable",
            "DELETE FROM usertable WHERE ycsb_key > 10000",
        ),
        (
            Op::YcsbF,
            "usertable",
            "UPDATE usertable SET field0 = field1",
        ),
    ] {
        let plan = plan(op, 3);
        let databases = executed_in(&plan, (0..50).rev());
        let checked = plan.check(&databases).unwrap();
        assert!(
            checked.is_ok() && checked.rows >= 10_000,
            "{op:?}: {checked:?}"
        );
        let changed = databases.first().execute(damage, ()).unwrap();
        assert!(changed > 0, "{damage}");
        let checked = plan.check(&databases).unwrap();
        assert!(checked.content.starts_with(table), "{op:?}: {checked:?}");
    }
}
