//! The tables and their initial content (clauses 1.3 and 4.3.3).

use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::input::{C_NAME_LOAD, between, last_name, nurand};
use super::{DISTRICTS, Tpcc};
use crate::Error;
use crate::connection::{self, Checkpoint};
use crate::draws::{Draws, shuffle};
use crate::plan::CREATED;

const SCHEMA: &str = "
    CREATE TABLE warehouse (
        w_id INTEGER PRIMARY KEY, w_name TEXT, w_street_1 TEXT, w_street_2 TEXT, w_city TEXT,
        w_state TEXT, w_zip TEXT, w_tax INTEGER, w_ytd INTEGER);
    CREATE TABLE district (
        d_w_id INTEGER, d_id INTEGER, d_name TEXT, d_street_1 TEXT, d_street_2 TEXT, d_city TEXT,
        d_state TEXT, d_zip TEXT, d_tax INTEGER, d_ytd INTEGER, d_next_o_id INTEGER,
        PRIMARY KEY (d_w_id, d_id)) WITHOUT ROWID;
    CREATE TABLE customer (
        c_w_id INTEGER, c_d_id INTEGER, c_id INTEGER, c_first TEXT, c_middle TEXT, c_last TEXT,
        c_street_1 TEXT, c_street_2 TEXT, c_city TEXT, c_state TEXT, c_zip TEXT, c_phone TEXT,
        c_since INTEGER, c_credit TEXT, c_credit_lim INTEGER, c_discount INTEGER, c_balance INTEGER,
        c_ytd_payment INTEGER, c_payment_cnt INTEGER, c_delivery_cnt INTEGER, c_data TEXT,
        PRIMARY KEY (c_w_id, c_d_id, c_id)) WITHOUT ROWID;
    CREATE INDEX customer_by_name ON customer (c_w_id, c_d_id, c_last, c_first);
    CREATE TABLE history (
        h_c_id INTEGER, h_c_d_id INTEGER, h_c_w_id INTEGER, h_d_id INTEGER, h_w_id INTEGER,
        h_date INTEGER, h_amount INTEGER, h_data TEXT);
    CREATE TABLE new_order (
        no_w_id INTEGER, no_d_id INTEGER, no_o_id INTEGER,
        PRIMARY KEY (no_w_id, no_d_id, no_o_id)) WITHOUT ROWID;
    CREATE TABLE orders (
        o_w_id INTEGER, o_d_id INTEGER, o_id INTEGER, o_c_id INTEGER, o_entry_d INTEGER,
        o_carrier_id INTEGER, o_ol_cnt INTEGER, o_all_local INTEGER,
        PRIMARY KEY (o_w_id, o_d_id, o_id)) WITHOUT ROWID;
    CREATE INDEX orders_by_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);
    CREATE TABLE order_line (
        ol_w_id INTEGER, ol_d_id INTEGER, ol_o_id INTEGER, ol_number INTEGER, ol_i_id INTEGER,
        ol_supply_w_id INTEGER, ol_delivery_d INTEGER, ol_quantity INTEGER, ol_amount INTEGER,
        ol_dist_info TEXT, PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)) WITHOUT ROWID;
    CREATE TABLE item (
        i_id INTEGER PRIMARY KEY, i_im_id INTEGER, i_name TEXT, i_price INTEGER, i_data TEXT);
    CREATE TABLE stock (
        s_w_id INTEGER, s_i_id INTEGER, s_quantity INTEGER, s_dist_01 TEXT, s_dist_02 TEXT,
        s_dist_03 TEXT, s_dist_04 TEXT, s_dist_05 TEXT, s_dist_06 TEXT, s_dist_07 TEXT,
        s_dist_08 TEXT, s_dist_09 TEXT, s_dist_10 TEXT, s_ytd INTEGER, s_order_cnt INTEGER,
        s_remote_cnt INTEGER, s_data TEXT, PRIMARY KEY (s_w_id, s_i_id)) WITHOUT ROWID;";

const WAREHOUSE: &str = "INSERT INTO warehouse VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const DISTRICT: &str = "INSERT INTO district VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
const CUSTOMER: &str = "INSERT INTO customer VALUES (?1, ?2, ?3, ?4, 'OE', ?5, ?6, ?7, ?8, ?9, ?10, \
     ?11, ?12, ?13, 5000000, ?14, -1000, 1000, 1, 0, ?15)";
const HISTORY: &str = "INSERT INTO history VALUES (?1, ?2, ?3, ?2, ?3, ?4, 1000, ?5)";
const NEW_ORDER: &str = "INSERT INTO new_order VALUES (?1, ?2, ?3)";
const ORDER: &str = "INSERT INTO orders VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1)";
const LINE: &str = "INSERT INTO order_line VALUES (?1, ?2, ?3, ?4, ?5, ?1, ?6, 5, ?7, ?8)";
const ITEM: &str = "INSERT INTO item VALUES (?1, ?2, ?3, ?4, ?5)";
const STOCK: &str = "INSERT INTO stock VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, \
     ?13, 0, 0, 0, ?14)";

/// Cents that each customer has paid before the run.
pub(super) const PAID: i64 = 1_000;

/// Rows of items and of stocks to commit at once, and to checkpoint.
const ROWS_AT_ONCE: u32 = 10_000;

/// The purpose of a table's draws; each purpose has separate draws.
#[derive(Clone, Copy)]
enum Table {
    Warehouse = 1,
    District = 2,
    Customer = 3,
    History = 4,
    Order = 5,
    Item = 6,
    Stock = 7,
}

/// Values of different types as a row.
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$(rusqlite::types::Value::from($value)),*] };
}

impl Tpcc {
    /// Creates and fills the tables.
    pub(super) fn load(&self, connection: &mut Connection, stop: &AtomicBool) -> Result<(), Error> {
        connection
            .execute_batch(SCHEMA)
            .map_err(Error::sqlite("create tables"))?;
        self.in_parts(connection, stop, "items", |number| self.item(number))?;
        for warehouse in 1..=self.scale.warehouses {
            self.in_parts(connection, stop, "stocks", |number| {
                self.stock(warehouse, number)
            })?;
            part(connection, stop, "a warehouse", |connection| {
                insert(connection, WAREHOUSE, self.warehouse(warehouse))
            })?;
            for district in 1..=DISTRICTS {
                part(connection, stop, "a district", |connection| {
                    self.load_district(connection, warehouse, district)
                })?;
            }
        }
        Ok(())
    }

    /// One row for each item, several thousand at a time.
    fn in_parts(
        &self,
        connection: &mut Connection,
        stop: &AtomicBool,
        what: &str,
        row: impl Fn(u32) -> (&'static str, Vec<Value>),
    ) -> Result<(), Error> {
        let mut from = 1;
        while from <= self.scale.items {
            let to = (from + ROWS_AT_ONCE).min(self.scale.items + 1);
            part(connection, stop, what, |connection| {
                (from..to).try_for_each(|number| {
                    let (sql, values) = row(number);
                    insert(connection, sql, values)
                })
            })?;
            from = to;
        }
        Ok(())
    }

    fn load_district(
        &self,
        connection: &Connection,
        warehouse: u32,
        district: u32,
    ) -> rusqlite::Result<()> {
        let customers = self.scale.customers;
        insert(connection, DISTRICT, self.district(warehouse, district))?;
        for id in 1..=customers {
            let row = self.customer(warehouse, district, id);
            insert(connection, CUSTOMER, row)?;
            let mut draws = self.draws(Table::History, [warehouse, district, id]);
            let row = values![id, district, warehouse, CREATED, text(&mut draws, 12, 24)];
            insert(connection, HISTORY, row)?;
        }
        // Every customer has one order, in a separate random order.
        let mut order_of: Vec<u32> = (1..=customers).collect();
        let place = u64::from(warehouse) << 8 | u64::from(district);
        shuffle(&mut order_of, self.seed ^ place << 30);
        for (id, customer) in (1..).zip(order_of) {
            self.load_order(connection, [warehouse, district, id], customer)?;
        }
        Ok(())
    }

    fn load_order(
        &self,
        connection: &Connection,
        key: [u32; 3],
        customer: u32,
    ) -> rusqlite::Result<()> {
        let [warehouse, district, id] = key;
        let mut draws = self.draws(Table::Order, key);
        let delivered = id <= self.scale.customers - self.scale.new_orders;
        let carrier = delivered.then(|| between(&mut draws, 1, 10));
        let lines = between(&mut draws, 5, 15);
        let row = values![warehouse, district, id, customer, CREATED, carrier, lines];
        insert(connection, ORDER, row)?;
        for number in 1..=lines {
            let item = between(&mut draws, 1, self.scale.items);
            let amount = match delivered {
                true => 0,
                false => between(&mut draws, 1, 999_999),
            };
            let info = draws.letters(24);
            let on = delivered.then_some(CREATED);
            let row = values![warehouse, district, id, number, item, on, amount, info];
            insert(connection, LINE, row)?;
        }
        match delivered {
            true => Ok(()),
            false => insert(connection, NEW_ORDER, values![warehouse, district, id]),
        }
    }

    fn warehouse(&self, id: u32) -> Vec<Value> {
        let mut draws = self.draws(Table::Warehouse, [id, 0, 0]);
        let mut row = values![id, text(&mut draws, 6, 10)];
        row.extend(address(&mut draws));
        let tax = draws.below(2_001);
        let paid = i64::from(DISTRICTS * self.scale.customers) * PAID;
        row.extend(values![tax, paid]);
        row
    }

    fn district(&self, warehouse: u32, id: u32) -> Vec<Value> {
        let mut draws = self.draws(Table::District, [warehouse, id, 0]);
        let mut row = values![warehouse, id, text(&mut draws, 6, 10)];
        row.extend(address(&mut draws));
        let tax = draws.below(2_001);
        let paid = i64::from(self.scale.customers) * PAID;
        row.extend(values![tax, paid, self.scale.customers + 1]);
        row
    }

    fn customer(&self, warehouse: u32, district: u32, id: u32) -> Vec<Value> {
        let mut draws = self.draws(Table::Customer, [warehouse, district, id]);
        let name = match id - 1 < self.scale.names() {
            true => id - 1,
            false => nurand(&mut draws, 255, C_NAME_LOAD, 0, self.scale.names() - 1),
        };
        let first = text(&mut draws, 8, 16);
        let mut row = values![warehouse, district, id, first, last_name(name)];
        row.extend(address(&mut draws));
        let phone = digits(&mut draws, 16);
        let credit = if draws.below(10) == 0 { "BC" } else { "GC" };
        let discount = draws.below(5_001);
        let data = text(&mut draws, 300, 500);
        row.extend(values![phone, CREATED, credit.to_owned(), discount, data]);
        row
    }

    fn item(&self, id: u32) -> (&'static str, Vec<Value>) {
        let mut draws = self.draws(Table::Item, [id, 0, 0]);
        let image = between(&mut draws, 1, 10_000);
        let name = text(&mut draws, 14, 24);
        let price = between(&mut draws, 100, 10_000);
        (ITEM, values![id, image, name, price, data(&mut draws)])
    }

    fn stock(&self, warehouse: u32, item: u32) -> (&'static str, Vec<Value>) {
        let mut draws = self.draws(Table::Stock, [warehouse, item, 0]);
        let mut row = values![warehouse, item, between(&mut draws, 10, 100)];
        row.extend((0..DISTRICTS).map(|_| Value::Text(draws.letters(24))));
        row.push(data(&mut draws).into());
        (STOCK, row)
    }

    fn draws(&self, table: Table, [first, second, third]: [u32; 3]) -> Draws {
        let place = u64::from(first) << 32 | u64::from(second) << 4 | table as u64;
        // Numbers that no transaction has.
        Draws::of(!self.seed ^ place << 8, third)
    }
}

/// One transaction of the load, checkpointed, so that no log grows as large as the database.
fn part(
    connection: &mut Connection,
    stop: &AtomicBool,
    what: &str,
    fill: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<(), Error> {
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let filled = || -> rusqlite::Result<()> {
        let transaction = connection.transaction()?;
        fill(&transaction)?;
        transaction.commit()
    };
    filled().map_err(Error::sqlite(format!("load {what}")))?;
    connection::checkpoint(connection, Checkpoint::Full)
}

fn insert(connection: &Connection, sql: &str, row: Vec<Value>) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(sql)?;
    statement.execute(params_from_iter(row)).map(drop)
}

fn text(draws: &mut Draws, least: u32, most: u32) -> String {
    let length = between(draws, least, most);
    draws.letters(length as usize)
}

fn digits(draws: &mut Draws, count: u32) -> String {
    (0..count)
        .filter_map(|_| char::from_digit(draws.below(10), 10))
        .collect()
}

/// Two streets, a city, a state and a zip code.
fn address(draws: &mut Draws) -> Vec<Value> {
    let streets = [text(draws, 10, 20), text(draws, 10, 20)];
    let [first, second] = streets;
    let (city, state) = (text(draws, 10, 20), draws.letters(2));
    values![first, second, city, state, digits(draws, 4) + "11111"]
}

/// In one of ten it has "ORIGINAL" somewhere.
fn data(draws: &mut Draws) -> String {
    const ORIGINAL: &str = "ORIGINAL";
    let mut data = text(draws, 26, 50);
    if draws.below(10) == 0 {
        let room = (data.len() - ORIGINAL.len()) as u32;
        let from = draws.below(room + 1) as usize;
        data.replace_range(from..from + ORIGINAL.len(), ORIGINAL);
    }
    data
}
