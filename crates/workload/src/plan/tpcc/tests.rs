//! Inputs have the specification's shares, transactions keep the conditions, and each condition and
//! sum finds its violation.

use rusqlite::Connection;

use super::check::CONDITIONS;
use super::input::{Asks, Customer, last_name};
use super::*;
use crate::plan::Order;

fn plan(op: Op, count: u32, workers: u32) -> Plan {
    Plan {
        op,
        count,
        warm_up: 0,
        record_size: 100,
        updates: 5,
        warehouses: 2,
        order: Order::Id,
        seed: 11,
        workers,
        readers: 0,
        rate: None,
    }
}

/// Two small warehouses.
fn tpcc(op: Op, count: u32, workers: u32) -> Tpcc {
    let scale = Scale {
        warehouses: 2,
        items: 200,
        customers: 60,
        new_orders: 20,
    };
    Tpcc::with(&plan(op, count, workers), scale)
}

fn executed(tpcc: &Tpcc, numbers: impl IntoIterator<Item = u32>) -> Databases {
    let mut databases = Databases::in_memory(1).unwrap();
    tpcc.populate(&mut databases, &AtomicBool::new(false))
        .unwrap();
    for number in numbers {
        tpcc.work(number).commit(&databases).unwrap();
    }
    databases
}

fn difference(tpcc: &Tpcc, connection: &Connection) -> Option<String> {
    tpcc.check(connection).unwrap().difference
}

#[test]
fn what_is_loaded_and_every_transaction_after_it_keep_the_conditions() {
    for op in [Op::Tpcc, Op::TpccRead] {
        for workers in [1, 2, 5] {
            let tpcc = tpcc(op, 460, workers);
            let loaded = executed(&tpcc, []);
            assert_eq!(
                tpcc.broken_condition(loaded.first()).unwrap(),
                None,
                "{op:?} {workers}"
            );
            let databases = executed(&tpcc, (0..460).rev());
            assert_eq!(
                difference(&tpcc, databases.first()),
                None,
                "{op:?} {workers}"
            );
        }
    }
}

#[test]
fn rows_are_as_many_as_the_specification_says() {
    let databases = executed(&tpcc(Op::Tpcc, 0, 1), []);
    let count = |table: &str| -> u32 {
        let sql = format!("SELECT count(*) FROM {table}");
        databases
            .first()
            .query_row(&sql, (), |row| row.get(0))
            .unwrap()
    };
    assert_eq!(count("warehouse"), 2);
    assert_eq!(count("district"), 20);
    assert_eq!(count("customer"), 20 * 60);
    assert_eq!(count("history"), 20 * 60);
    assert_eq!(count("orders"), 20 * 60);
    assert_eq!(count("new_order"), 20 * 20);
    assert_eq!((count("item"), count("stock")), (200, 400));
    let lines = f64::from(count("order_line")) / f64::from(count("orders"));
    assert!((lines - 10.0).abs() < 0.5, "{lines}");
    let full = Scale::full(3);
    assert_eq!(
        (full.items, full.customers, full.new_orders),
        (100_000, 3_000, 900)
    );
}

/// The deck of clause 5.2.4.2, and the shares of unusual inputs.
#[test]
fn the_mix_and_the_inputs_are_those_of_the_specification() {
    let tpcc = Tpcc::with(&plan(Op::Tpcc, 23_000, 2), Scale::full(2));
    let mut kinds = std::collections::BTreeMap::new();
    let (mut remote, mut lines, mut by_name, mut elsewhere) = (0, 0, 0, 0);
    for number in 0..23_000 {
        let request = tpcc.request(number);
        assert_eq!(request.warehouse, number % 2 + 1);
        *kinds.entry(request.kind()).or_insert(0) += 1;
        match request.asks {
            Asks::NewOrder(order) => {
                assert!((5..=15).contains(&order.lines.len()));
                lines += order.lines.len();
                let other = |line: &&super::input::Line| line.supplier != request.warehouse;
                remote += order.lines.iter().filter(other).count();
            }
            Asks::Payment(payment) => {
                assert!((100..=500_000).contains(&payment.amount));
                by_name += u32::from(matches!(payment.customer, Customer::LastName(_)));
                elsewhere += u32::from(payment.customer_warehouse != request.warehouse);
            }
            _ => {}
        }
    }
    let rolled_back = kinds["new-order, rolled back"];
    assert_eq!(kinds["new-order"] + rolled_back, 10_000);
    assert!((60..140).contains(&rolled_back), "{rolled_back}");
    for (kind, times) in [
        ("payment", 10_000),
        ("order-status", 1_000),
        ("delivery", 1_000),
        ("stock-level", 1_000),
    ] {
        assert_eq!(kinds[kind], times, "{kind}");
    }
    assert!((5_800..6_200).contains(&by_name), "{by_name}");
    assert!((1_350..1_650).contains(&elsewhere), "{elsewhere}");
    let share = remote as f64 / lines as f64;
    assert!((share - 0.01).abs() < 0.003, "{share}");
    assert_eq!(last_name(371), "PRICALLYOUGHT");
}

#[test]
fn the_reading_mix_reads_in_95_of_100() {
    let tpcc = tpcc(Op::TpccRead, 2_000, 1);
    let writes = (0..2_000)
        .filter(|number| matches!(tpcc.request(*number).asks, Asks::NewOrder(_)))
        .count();
    assert_eq!(writes, 100);
}

#[test]
fn one_worker_works_for_every_warehouse() {
    let tpcc = tpcc(Op::Tpcc, 100, 1);
    let at = |warehouse| {
        let mine = |number: &u32| tpcc.request(*number).warehouse == warehouse;
        (0..100).filter(mine).count()
    };
    assert_eq!(at(1) + at(2), 100);
    assert!(at(1) > 20 && at(2) > 20);
}

#[test]
fn a_new_order_with_an_item_that_is_not_there_leaves_nothing() {
    let tpcc = Tpcc::with(&plan(Op::Tpcc, 5_000, 1), tpcc(Op::Tpcc, 0, 1).scale);
    let databases = executed(&tpcc, []);
    let changes = || databases.first().total_changes();
    let rolls_back = (0..5_000)
        .find(|number| tpcc.request(*number).kind() == "new-order, rolled back")
        .unwrap();
    let next = "SELECT group_concat(d_next_o_id) FROM district";
    let next = || -> String {
        databases
            .first()
            .query_row(next, (), |row| row.get(0))
            .unwrap()
    };
    let (before, changed) = (next(), changes());
    tpcc.work(rolls_back).commit(&databases).unwrap();
    assert!(
        changes() > changed,
        "it has done work before it rolled back"
    );
    assert_eq!(next(), before);
}

/// An acknowledged transaction is missing.
#[test]
fn a_transaction_that_is_missing_is_found() {
    let tpcc = tpcc(Op::Tpcc, 230, 2);
    let kinds = ["new-order", "payment", "delivery"];
    for kind in kinds {
        let lost = (0..230)
            .find(|number| tpcc.request(*number).kind() == kind)
            .unwrap();
        let databases = executed(&tpcc, (0..230).filter(|number| *number != lost));
        let difference = difference(&tpcc, databases.first());
        assert!(
            difference.is_some_and(|found| found.contains("expected")),
            "{kind}"
        );
    }
}

#[test]
fn each_condition_finds_what_breaks_it() {
    let tpcc = tpcc(Op::Tpcc, 46, 1);
    let damages = [
        "UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 2",
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 4",
        "DELETE FROM new_order WHERE no_w_id = 2 AND no_d_id = 3 AND no_o_id = 50",
        "DELETE FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 9 AND ol_o_id = 3 AND ol_number = 1",
        "UPDATE orders SET o_carrier_id = NULL WHERE o_w_id = 1 AND o_d_id = 2 AND o_id = 7",
        "UPDATE orders SET o_ol_cnt = o_ol_cnt + iif(o_id = 1, 1, -1)
         WHERE o_w_id = 1 AND o_d_id = 1 AND o_id IN (1, 2)",
        "UPDATE order_line SET ol_delivery_d = NULL WHERE ol_w_id = 2 AND ol_d_id = 2 AND ol_o_id = 5",
        "UPDATE history SET h_w_id = 3 - h_w_id WHERE rowid = 5",
        "UPDATE history SET h_d_id = h_d_id + 1 WHERE rowid = 5",
        "UPDATE customer SET c_balance = c_balance + 1, c_ytd_payment = c_ytd_payment - 1
         WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
        "UPDATE customer SET c_delivery_cnt = c_delivery_cnt + 1
         WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
        "UPDATE customer SET c_ytd_payment = c_ytd_payment + 1
         WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
    ];
    assert_eq!(damages.len(), CONDITIONS.len());
    let databases = executed(&tpcc, 0..46);
    let connection = databases.first();
    for (number, damage) in (1..).zip(damages) {
        connection.execute_batch("BEGIN").unwrap();
        connection.execute_batch(damage).unwrap();
        assert!(connection.changes() > 0, "{damage}");
        let found = difference(&tpcc, connection).unwrap();
        let expected = format!("condition {number} of 3.3.2: ");
        assert!(found.starts_with(&expected), "{damage}: {found}");
        connection.execute_batch("ROLLBACK").unwrap();
    }
    assert_eq!(difference(&tpcc, connection), None);
}
