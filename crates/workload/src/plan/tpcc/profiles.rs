//! The five transactions (clauses 2.4.2, 2.5.2, 2.6.2, 2.7.4 and 2.8.2), each on one connection.
//!
//! Writing transactions take the write lock at their beginning, where the busy handler can wait for
//! it. A write on an earlier snapshot would fail.

use rusqlite::{Connection, OptionalExtension, Params, Row, Transaction, TransactionBehavior};

use super::DISTRICTS;
use super::input::{Asks, Customer, NewOrder, Payment, Request};
use crate::Error;

const WAREHOUSE_TAX: &str = "SELECT w_tax FROM warehouse WHERE w_id = ?1";
const DISTRICT_NEXT: &str =
    "SELECT d_tax, d_next_o_id FROM district WHERE d_w_id = ?1 AND d_id = ?2";
const TAKE_NEXT: &str =
    "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ?1 AND d_id = ?2";
const BUYER: &str = "SELECT c_discount, c_last, c_credit FROM customer \
     WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3";
const ADD_ORDER: &str = "INSERT INTO orders VALUES (?1, ?2, ?3, ?4, ?5, NULL, ?6, ?7)";
const ADD_NEW_ORDER: &str = "INSERT INTO new_order VALUES (?1, ?2, ?3)";
const ITEM: &str = "SELECT i_price, i_name, i_data FROM item WHERE i_id = ?1";
const STOCK_OF: [&str; DISTRICTS as usize] = [
    "SELECT s_quantity, s_dist_01, s_data FROM stock WHERE s_w_id = ?1 AND s_i_id = ?2",
    "SELECT s_quantity, s_dist_02, s_data FROM stock WHERE s_w_id = ?1 AND s_i_id = ?2",
    "SELECT s_quantity, s_dist_03, s_data FROM stock WHERE s_w_id = ?1 AND s_i_id = ?2",
    "SELECT s_quantity, s_dist_04, s_data FROM stock WHERE s_w_id = ?1 AND s_i_id = ?2",
    "SELECT s_quantity, s_dist_05, s_data FROM stock WHERE s_w_id = ?1 AND s_i_id = ?2",
    "SELECT s_quantity, s_dist_06, s_data FROM stock WHERE s_w_id = ?1 AND s_i_id = ?2",
    "SELECT s_quantity, s_dist_07, s_data FROM stock WHERE s_w_id = ?1 AND s_i_id = ?2",
    "SELECT s_quantity, s_dist_08, s_data FROM stock WHERE s_w_id = ?1 AND s_i_id = ?2",
    "SELECT s_quantity, s_dist_09, s_data FROM stock WHERE s_w_id = ?1 AND s_i_id = ?2",
    "SELECT s_quantity, s_dist_10, s_data FROM stock WHERE s_w_id = ?1 AND s_i_id = ?2",
];
const TAKE_STOCK: &str = "UPDATE stock SET s_quantity = ?3, s_ytd = s_ytd + ?4, \
     s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + ?5 \
     WHERE s_w_id = ?1 AND s_i_id = ?2";
const ADD_LINE: &str = "INSERT INTO order_line VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL, ?7, ?8, ?9)";

const PAY_WAREHOUSE: &str = "UPDATE warehouse SET w_ytd = w_ytd + ?2 WHERE w_id = ?1 \
     RETURNING w_name, w_street_1, w_street_2, w_city, w_state, w_zip";
const PAY_DISTRICT: &str = "UPDATE district SET d_ytd = d_ytd + ?3 WHERE d_w_id = ?1 AND d_id = ?2 \
     RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip";
const OF_NAME: &str = "SELECT c_id FROM customer \
     WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_last = ?3 ORDER BY c_first";
const CUSTOMER: &str = "SELECT c_credit, c_data, c_balance, c_first, c_middle, c_last, c_street_1, \
     c_street_2, c_city, c_state, c_zip, c_phone, c_since, c_credit_lim, c_discount \
     FROM customer WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3";
const PAY_GOOD: &str = "UPDATE customer SET c_balance = c_balance - ?4, \
     c_ytd_payment = c_ytd_payment + ?4, c_payment_cnt = c_payment_cnt + 1 \
     WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3";
const PAY_BAD: &str = "UPDATE customer SET c_balance = c_balance - ?4, \
     c_ytd_payment = c_ytd_payment + ?4, c_payment_cnt = c_payment_cnt + 1, c_data = ?5 \
     WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3";
const ADD_HISTORY: &str = "INSERT INTO history VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

const LAST_ORDER: &str = "SELECT o_id, o_entry_d, o_carrier_id FROM orders \
     WHERE o_w_id = ?1 AND o_d_id = ?2 AND o_c_id = ?3 ORDER BY o_id DESC LIMIT 1";
const LINES: &str = "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d \
     FROM order_line WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3";

const OLDEST_NEW: &str = "SELECT min(no_o_id) FROM new_order WHERE no_w_id = ?1 AND no_d_id = ?2";
const TAKE_NEW: &str = "DELETE FROM new_order WHERE no_w_id = ?1 AND no_d_id = ?2 AND no_o_id = ?3";
const CARRY: &str = "UPDATE orders SET o_carrier_id = ?4 \
     WHERE o_w_id = ?1 AND o_d_id = ?2 AND o_id = ?3 RETURNING o_c_id";
const DELIVER: &str = "UPDATE order_line SET ol_delivery_d = ?4 \
     WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3";
const AMOUNT: &str = "SELECT sum(ol_amount) FROM order_line \
     WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3";
const CHARGE: &str = "UPDATE customer SET c_balance = c_balance + ?4, \
     c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3";

const LOW: &str = "SELECT count(DISTINCT s_i_id) FROM order_line \
     JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id \
     WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id >= ?3 - 20 AND ol_o_id < ?3 AND s_quantity < ?4";

/// All of them.
pub(super) const STATEMENTS: &[&str] = &[
    WAREHOUSE_TAX,
    DISTRICT_NEXT,
    TAKE_NEXT,
    BUYER,
    ADD_ORDER,
    ADD_NEW_ORDER,
    ITEM,
    STOCK_OF[0],
    STOCK_OF[1],
    STOCK_OF[2],
    STOCK_OF[3],
    STOCK_OF[4],
    STOCK_OF[5],
    STOCK_OF[6],
    STOCK_OF[7],
    STOCK_OF[8],
    STOCK_OF[9],
    TAKE_STOCK,
    ADD_LINE,
    PAY_WAREHOUSE,
    PAY_DISTRICT,
    OF_NAME,
    CUSTOMER,
    PAY_GOOD,
    PAY_BAD,
    ADD_HISTORY,
    LAST_ORDER,
    LINES,
    OLDEST_NEW,
    TAKE_NEW,
    CARRY,
    DELIVER,
    AMOUNT,
    CHARGE,
    LOW,
];

/// The most characters of `c_data`.
const DATA: usize = 500;

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Committed,
    /// An item did not exist.
    RolledBack,
}

impl Request {
    /// Executes it. A new-order that must roll back does so, and no other transaction may.
    pub(crate) fn execute(&self, connection: &Connection) -> Result<(), Error> {
        let doing = || format!("{} {}, {}", self.op.name(), self.number, self.kind());
        let outcome = self.executed(connection).map_err(Error::sqlite(doing()))?;
        let meant = match &self.asks {
            Asks::NewOrder(order) if order.rolls_back() => Outcome::RolledBack,
            _ => Outcome::Committed,
        };
        match outcome == meant {
            true => Ok(()),
            false => Err(Error::Wrong(format!("{}: {outcome:?}", doing()))),
        }
    }

    fn executed(&self, connection: &Connection) -> rusqlite::Result<Outcome> {
        let behavior = match &self.asks {
            Asks::OrderStatus { .. } | Asks::StockLevel { .. } => TransactionBehavior::Deferred,
            _ => TransactionBehavior::Immediate,
        };
        let transaction = Transaction::new_unchecked(connection, behavior)?;
        let outcome = match &self.asks {
            Asks::NewOrder(order) => self.new_order(&transaction, order)?,
            Asks::Payment(payment) => self.payment(&transaction, payment)?,
            Asks::OrderStatus { district, customer } => {
                self.order_status(&transaction, *district, customer)?
            }
            Asks::Delivery { carrier } => self.delivery(&transaction, *carrier)?,
            Asks::StockLevel {
                district,
                threshold,
            } => self.stock_level(&transaction, *district, *threshold)?,
        };
        match outcome {
            Outcome::Committed => transaction.commit()?,
            Outcome::RolledBack => transaction.rollback()?,
        }
        Ok(outcome)
    }

    fn new_order(&self, on: &Connection, order: &NewOrder) -> rusqlite::Result<Outcome> {
        let (warehouse, district) = (self.warehouse, order.district);
        let _tax: i64 = one(on, WAREHOUSE_TAX, [warehouse], first)?;
        let id: i64 = one(on, DISTRICT_NEXT, [warehouse, district], |row| row.get(1))?;
        change(on, TAKE_NEXT, [warehouse, district])?;
        let _discount: i64 = one(on, BUYER, [warehouse, district, order.customer], first)?;
        let local = order.lines.iter().all(|line| line.supplier == warehouse);
        let lines = order.lines.len() as i64;
        let row = (
            warehouse,
            district,
            id,
            order.customer,
            self.at,
            lines,
            local,
        );
        change(on, ADD_ORDER, row)?;
        change(on, ADD_NEW_ORDER, (warehouse, district, id))?;
        let stock_of = STOCK_OF[(district as usize - 1) % STOCK_OF.len()];
        for (number, line) in (1..).zip(&order.lines) {
            let Some(price) = maybe_one(on, ITEM, [line.item], first::<i64>)? else {
                return Ok(Outcome::RolledBack);
            };
            let key = [line.supplier, line.item];
            let (have, info): (i64, String) =
                one(on, stock_of, key, |row| Ok((row.get(0)?, row.get(1)?)))?;
            let quantity = i64::from(line.quantity);
            let left = match have >= quantity + 10 {
                true => have - quantity,
                false => have - quantity + 91,
            };
            let remote = line.supplier != warehouse;
            change(
                on,
                TAKE_STOCK,
                (line.supplier, line.item, left, quantity, remote),
            )?;
            let amount = quantity * price;
            let row = (
                warehouse,
                district,
                id,
                number,
                line.item,
                line.supplier,
                quantity,
                amount,
                info,
            );
            change(on, ADD_LINE, row)?;
        }
        Ok(Outcome::Committed)
    }

    fn payment(&self, on: &Connection, payment: &Payment) -> rusqlite::Result<Outcome> {
        let (warehouse, district, amount) = (self.warehouse, payment.district, payment.amount);
        let warehouse_name: String = one(on, PAY_WAREHOUSE, (warehouse, amount), first)?;
        let district_name: String = one(on, PAY_DISTRICT, (warehouse, district, amount), first)?;
        let (at, within) = (payment.customer_warehouse, payment.customer_district);
        let id = found(on, at, within, &payment.customer)?;
        let (credit, data): (String, String) = one(on, CUSTOMER, (at, within, id), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
        if credit == "BC" {
            let data = format!("{id} {within} {at} {district} {warehouse} {amount} {data}");
            let data: String = data.chars().take(DATA).collect();
            change(on, PAY_BAD, (at, within, id, amount, data))?;
        } else {
            change(on, PAY_GOOD, (at, within, id, amount))?;
        }
        let data = format!("{warehouse_name}    {district_name}");
        let row = (id, within, at, district, warehouse, self.at, amount, data);
        change(on, ADD_HISTORY, row)?;
        Ok(Outcome::Committed)
    }

    fn order_status(
        &self,
        on: &Connection,
        district: u32,
        customer: &Customer,
    ) -> rusqlite::Result<Outcome> {
        let id = found(on, self.warehouse, district, customer)?;
        let key = (self.warehouse, district, id);
        let _balance: i64 = one(on, CUSTOMER, key, |row| row.get(2))?;
        let order: i64 = one(on, LAST_ORDER, key, first)?;
        let mut lines = on.prepare_cached(LINES)?;
        let mut lines = lines.query((self.warehouse, district, order))?;
        while lines.next()?.is_some() {}
        Ok(Outcome::Committed)
    }

    fn delivery(&self, on: &Connection, carrier: u32) -> rusqlite::Result<Outcome> {
        let warehouse = self.warehouse;
        for district in 1..=DISTRICTS {
            let oldest: Option<i64> = one(on, OLDEST_NEW, [warehouse, district], first)?;
            // A district without undelivered orders is left out.
            let Some(order) = oldest else { continue };
            let key = (warehouse, district, order);
            change(on, TAKE_NEW, key)?;
            let customer: i64 = one(on, CARRY, (warehouse, district, order, carrier), first)?;
            let mut lines = on.prepare_cached(DELIVER)?;
            lines.execute((warehouse, district, order, self.at))?;
            let amount: i64 = one(on, AMOUNT, key, first)?;
            change(on, CHARGE, (warehouse, district, customer, amount))?;
        }
        Ok(Outcome::Committed)
    }

    fn stock_level(
        &self,
        on: &Connection,
        district: u32,
        threshold: u32,
    ) -> rusqlite::Result<Outcome> {
        let key = [self.warehouse, district];
        let next: i64 = one(on, DISTRICT_NEXT, key, |row| row.get(1))?;
        let _low: i64 = one(on, LOW, (self.warehouse, district, next, threshold), first)?;
        Ok(Outcome::Committed)
    }
}

/// The customer's id; of several customers with the name, the one in the middle.
fn found(
    on: &Connection,
    warehouse: u32,
    district: u32,
    customer: &Customer,
) -> rusqlite::Result<i64> {
    let name = match customer {
        Customer::Id(id) => return Ok(i64::from(*id)),
        Customer::LastName(name) => name,
    };
    let mut statement = on.prepare_cached(OF_NAME)?;
    let ids = statement.query_map((warehouse, district, name), first)?;
    let ids: Vec<i64> = ids.collect::<rusqlite::Result<_>>()?;
    let middle = ids.len().div_ceil(2).wrapping_sub(1);
    let id = ids.get(middle).copied();
    id.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

fn first<T: rusqlite::types::FromSql>(row: &Row<'_>) -> rusqlite::Result<T> {
    row.get(0)
}

/// The only row of a query, or of a change that returns its changed row.
fn one<T>(
    on: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    maybe_one(on, sql, values, read)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

fn maybe_one<T>(
    on: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    on.prepare_cached(sql)?.query_row(values, read).optional()
}

/// Changes exactly one row.
fn change(on: &Connection, sql: &str, values: impl Params) -> rusqlite::Result<()> {
    match on.prepare_cached(sql)?.execute(values)? {
        1 => Ok(()),
        rows => Err(rusqlite::Error::StatementChangedRows(rows)),
    }
}
