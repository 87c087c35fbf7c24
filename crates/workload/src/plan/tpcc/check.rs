//! The rules that must hold after any run, for any order of commits. They are the specification's
//! consistency conditions (clause 3.3.2), and the sums and counts that follow from the
//! transactions' inputs.
//!
//! The conditions alone would not notice the loss of a whole transaction. Orders, payments,
//! quantities and deliveries follow from the seed, and are counted here.

use rusqlite::Connection;

use super::input::Asks;
use super::load::PAID;
use super::{DISTRICTS, Tpcc};
use crate::plan::rows::Found;

/// The twelve conditions, each a query for violations, as a text.
pub(super) const CONDITIONS: [&str; 12] = [
    // W_YTD = sum(D_YTD)
    "SELECT format('warehouse %d: w_ytd is %d, its districts have %d', w_id, w_ytd, s)
     FROM (SELECT w_id, w_ytd, (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id) AS s
           FROM warehouse) WHERE w_ytd IS NOT s",
    // D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)
    "SELECT format('district %d/%d: the next order is %d, the last %d, the last new one %s',
                   d_w_id, d_id, d_next_o_id, o, coalesce(n, 'none'))
     FROM (SELECT d_w_id, d_id, d_next_o_id,
                  (SELECT max(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) AS o,
                  (SELECT max(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) AS n
           FROM district)
     WHERE d_next_o_id - 1 IS NOT o OR n <> o",
    // max(NO_O_ID) - min(NO_O_ID) + 1 = rows
    "SELECT format('district %d/%d: new orders %d to %d are %d rows',
                   no_w_id, no_d_id, min(no_o_id), max(no_o_id), count(*))
     FROM new_order GROUP BY no_w_id, no_d_id
     HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)",
    // sum(O_OL_CNT) = lines
    "SELECT format('district %d/%d: orders say %d lines, there are %d', d_w_id, d_id, o, l)
     FROM (SELECT d_w_id, d_id,
                  (SELECT sum(o_ol_cnt) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) AS o,
                  (SELECT count(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id) AS l
           FROM district) WHERE o IS NOT l",
    // O_CARRIER_ID is null where and only where there is a new order
    "SELECT format('order %d/%d/%d: carrier %s, %s new', w, d, o, coalesce(carrier, 'none'),
                   iif(n IS NULL, 'not', ''))
     FROM (SELECT o_w_id AS w, o_d_id AS d, o_id AS o, o_carrier_id AS carrier, no_o_id AS n
           FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id)
     WHERE (carrier IS NULL) <> (n IS NOT NULL)",
    // O_OL_CNT = lines of the order
    "SELECT format('order %d/%d/%d: o_ol_cnt is %s, there are %d lines', w, d, o, o_ol_cnt, n)
     FROM (SELECT ol_w_id AS w, ol_d_id AS d, ol_o_id AS o, count(*) AS n
           FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id)
     LEFT JOIN orders ON o_w_id = w AND o_d_id = d AND o_id = o WHERE o_ol_cnt IS NOT n",
    // OL_DELIVERY_D is null where and only where O_CARRIER_ID is
    "SELECT format('line %d/%d/%d/%d: delivered %s, carrier %s', ol_w_id, ol_d_id, ol_o_id, ol_number,
                   coalesce(ol_delivery_d, 'never'), coalesce(o_carrier_id, 'none'))
     FROM order_line JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
     WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)",
    // W_YTD = sum(H_AMOUNT)
    "SELECT format('warehouse %d: w_ytd is %d, its history %d', w_id, w_ytd, h)
     FROM warehouse LEFT JOIN
          (SELECT h_w_id, sum(h_amount) AS h FROM history GROUP BY h_w_id) ON h_w_id = w_id
     WHERE w_ytd IS NOT h",
    // D_YTD = sum(H_AMOUNT)
    "SELECT format('district %d/%d: d_ytd is %d, its history %d', d_w_id, d_id, d_ytd, h)
     FROM district LEFT JOIN
          (SELECT h_w_id, h_d_id, sum(h_amount) AS h FROM history GROUP BY h_w_id, h_d_id)
          ON h_w_id = d_w_id AND h_d_id = d_id
     WHERE d_ytd IS NOT h",
    // C_BALANCE = deliveries less payments
    "WITH delivered AS (
         SELECT o_w_id AS w, o_d_id AS d, o_c_id AS c, sum(ol_amount) AS a
         FROM order_line JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
         WHERE ol_delivery_d IS NOT NULL GROUP BY 1, 2, 3),
     paid AS (
         SELECT h_c_w_id AS w, h_c_d_id AS d, h_c_id AS c, sum(h_amount) AS a
         FROM history GROUP BY 1, 2, 3)
     SELECT format('customer %d/%d/%d: balance %d, delivered %d, paid %d', c_w_id, c_d_id, c_id,
                   c_balance, coalesce(delivered.a, 0), coalesce(paid.a, 0))
     FROM customer
     LEFT JOIN delivered ON delivered.w = c_w_id AND delivered.d = c_d_id AND delivered.c = c_id
     LEFT JOIN paid ON paid.w = c_w_id AND paid.d = c_d_id AND paid.c = c_id
     WHERE c_balance <> coalesce(delivered.a, 0) - coalesce(paid.a, 0)",
    // Orders that are not new = those delivered before the run + deliveries
    "SELECT format('district %d/%d: %d orders are delivered, customers say %d', w, d, o - n, before + c)
     FROM (SELECT d_w_id AS w, d_id AS d,
                  (SELECT count(*) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) AS o,
                  (SELECT count(*) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) AS n,
                  (SELECT sum(c_delivery_cnt) FROM customer
                   WHERE c_w_id = d_w_id AND c_d_id = d_id) AS c,
                  ?1 AS before
           FROM district) WHERE o - n <> before + c",
    // C_BALANCE + C_YTD_PAYMENT = deliveries
    "WITH delivered AS (
         SELECT o_w_id AS w, o_d_id AS d, o_c_id AS c, sum(ol_amount) AS a
         FROM order_line JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
         WHERE ol_delivery_d IS NOT NULL GROUP BY 1, 2, 3)
     SELECT format('customer %d/%d/%d: balance %d and paid %d, delivered %d', c_w_id, c_d_id, c_id,
                   c_balance, c_ytd_payment, coalesce(delivered.a, 0))
     FROM customer
     LEFT JOIN delivered ON delivered.w = c_w_id AND delivered.d = c_d_id AND delivered.c = c_id
     WHERE c_balance + c_ytd_payment <> coalesce(delivered.a, 0)",
];

const TABLES: [&str; 9] = [
    "warehouse",
    "district",
    "customer",
    "history",
    "new_order",
    "orders",
    "order_line",
    "item",
    "stock",
];

/// The sums of all transactions' inputs.
#[derive(Clone, Default)]
struct Sums {
    /// Orders of each district, one warehouse after the other.
    orders: Vec<i64>,
    payments: i64,
    paid: i64,
    lines: i64,
    remote_lines: i64,
    quantity: i64,
    /// Deliveries of each warehouse.
    deliveries: Vec<i64>,
}

impl Tpcc {
    /// The number of rows, and the first violation.
    pub(super) fn check(&self, connection: &Connection) -> rusqlite::Result<Found> {
        let mut rows = 0;
        for table in TABLES {
            rows += number(connection, &format!("SELECT count(*) FROM {table}"))?;
        }
        let difference = match self.broken_condition(connection)? {
            Some(broken) => Some(broken),
            None => self.wrong_sum(connection)?,
        };
        Ok(Found {
            rows: u64::try_from(rows).unwrap_or(0),
            difference,
        })
    }

    pub(super) fn broken_condition(
        &self,
        connection: &Connection,
    ) -> rusqlite::Result<Option<String>> {
        let before = self.scale.customers - self.scale.new_orders;
        for (number, sql) in (1..).zip(CONDITIONS) {
            let mut statement = connection.prepare(sql)?;
            let mut rows = match statement.parameter_count() {
                0 => statement.query(())?,
                _ => statement.query([before])?,
            };
            if let Some(row) = rows.next()? {
                let what: String = row.get(0)?;
                return Ok(Some(format!("condition {number} of 3.3.2: {what}")));
            }
        }
        Ok(None)
    }

    /// The first sum or count that differs from the inputs.
    fn wrong_sum(&self, connection: &Connection) -> rusqlite::Result<Option<String>> {
        let sums = self.sums();
        let customers = i64::from(self.scale.customers);
        let districts = i64::from(self.scale.warehouses * DISTRICTS);
        let all = customers * districts;
        let mut wanted = vec![
            (
                "SELECT count(*) FROM history".to_owned(),
                all + sums.payments,
            ),
            (
                "SELECT sum(h_amount) FROM history".to_owned(),
                all * PAID + sums.paid,
            ),
            (
                "SELECT sum(c_payment_cnt) FROM customer".to_owned(),
                all + sums.payments,
            ),
            ("SELECT sum(s_order_cnt) FROM stock".to_owned(), sums.lines),
            (
                "SELECT sum(s_remote_cnt) FROM stock".to_owned(),
                sums.remote_lines,
            ),
            ("SELECT sum(s_ytd) FROM stock".to_owned(), sums.quantity),
            (
                "SELECT count(*) FROM item".to_owned(),
                i64::from(self.scale.items),
            ),
        ];
        for (place, orders) in (0..).zip(&sums.orders) {
            let (warehouse, district) = (place / DISTRICTS + 1, place % DISTRICTS + 1);
            let sql = format!(
                "SELECT count(*) FROM orders WHERE o_w_id = {warehouse} AND o_d_id = {district}"
            );
            wanted.push((sql, customers + orders));
        }
        for (warehouse, deliveries) in (1..).zip(&sums.deliveries) {
            // With more of them some may have found a district without a new order.
            if *deliveries <= i64::from(self.scale.new_orders) {
                let sql =
                    format!("SELECT sum(c_delivery_cnt) FROM customer WHERE c_w_id = {warehouse}");
                wanted.push((sql, deliveries * i64::from(DISTRICTS)));
            }
        }
        for (sql, want) in wanted {
            let have = number(connection, &sql)?;
            if have != want {
                return Ok(Some(format!("\"{sql}\" is {have}, expected {want}")));
            }
        }
        Ok(None)
    }

    fn sums(&self) -> Sums {
        let warehouses = self.scale.warehouses as usize;
        let mut sums = Sums {
            orders: vec![0; warehouses * DISTRICTS as usize],
            deliveries: vec![0; warehouses],
            ..Sums::default()
        };
        for number in 0..self.count {
            let request = self.request(number);
            let place = request.warehouse as usize - 1;
            match &request.asks {
                Asks::NewOrder(order) if !order.rolls_back() => {
                    let district = place * DISTRICTS as usize + order.district as usize - 1;
                    sums.orders[district] += 1;
                    for line in &order.lines {
                        sums.lines += 1;
                        sums.quantity += i64::from(line.quantity);
                        sums.remote_lines += i64::from(line.supplier != request.warehouse);
                    }
                }
                Asks::Payment(payment) => {
                    sums.payments += 1;
                    sums.paid += payment.amount;
                }
                Asks::Delivery { .. } => sums.deliveries[place] += 1,
                Asks::NewOrder(_) | Asks::OrderStatus { .. } | Asks::StockLevel { .. } => {}
            }
        }
        sums
    }
}

/// The only figure of a query; 0 for none.
fn number(connection: &Connection, sql: &str) -> rusqlite::Result<i64> {
    connection.query_row(sql, (), |row| {
        Ok(row.get::<_, Option<i64>>(0)?.unwrap_or_default())
    })
}
