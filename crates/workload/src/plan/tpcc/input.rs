//! A terminal's requests: inputs as clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1 and 2.8.1 draw them.

use super::{DISTRICTS, Op, Scale, Tpcc};
use crate::draws::{Draws, shuffle};
use crate::plan::created;

/// `C` of `NURand` for customers' ids, items and last names. Any numbers will do, but the last must
/// have some distance from that of the load (clause 2.1.6.1).
const C_CUSTOMER: u32 = 259;
const C_ITEM: u32 = 7_911;
const C_NAME_RUN: u32 = 223;
pub(super) const C_NAME_LOAD: u32 = 123;

/// This many of a hundred new-orders roll back.
const ROLLED_BACK: u32 = 1;

/// One transaction of a terminal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(super) op: Op,
    pub(super) number: u32,
    /// Its time of entry, in seconds since 1970.
    pub(super) at: i64,
    /// The terminal's warehouse.
    pub(super) warehouse: u32,
    pub(super) asks: Asks,
}

/// The kind of transaction, with its inputs.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Asks {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus { district: u32, customer: Customer },
    Delivery { carrier: u32 },
    StockLevel { district: u32, threshold: u32 },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct NewOrder {
    pub(super) district: u32,
    pub(super) customer: u32,
    pub(super) lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) item: u32,
    pub(super) supplier: u32,
    pub(super) quantity: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Payment {
    pub(super) district: u32,
    pub(super) customer_warehouse: u32,
    pub(super) customer_district: u32,
    pub(super) customer: Customer,
    /// In cents.
    pub(super) amount: i64,
}

/// The identification of a customer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Customer {
    Id(u32),
    LastName(String),
}

/// The kinds on a deck's cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Card {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

const STANDARD: &[(Card, u32)] = &[
    (Card::NewOrder, 10),
    (Card::Payment, 10),
    (Card::OrderStatus, 1),
    (Card::Delivery, 1),
    (Card::StockLevel, 1),
];

const READING: &[(Card, u32)] = &[
    (Card::NewOrder, 1),
    (Card::OrderStatus, 10),
    (Card::StockLevel, 9),
];

impl Request {
    /// Its name in the report.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.asks {
            Asks::NewOrder(order) if order.rolls_back() => "new-order, rolled back",
            Asks::NewOrder(_) => "new-order",
            Asks::Payment(_) => "payment",
            Asks::OrderStatus { .. } => "order-status",
            Asks::Delivery { .. } => "delivery",
            Asks::StockLevel { .. } => "stock-level",
        }
    }
}

impl NewOrder {
    /// Whether one of its items does not exist.
    pub(super) fn rolls_back(&self) -> bool {
        self.lines.iter().any(|line| line.item == 0)
    }
}

impl Tpcc {
    /// The transaction with this number.
    pub(super) fn request(&self, number: u32) -> Request {
        let mut draws = Draws::of(self.seed, number);
        let warehouse = self.home(number, &mut draws);
        let district = between(&mut draws, 1, DISTRICTS);
        let scale = self.scale;
        let asks = match self.card(number) {
            Card::NewOrder => Asks::NewOrder(new_order(&mut draws, scale, warehouse, district)),
            Card::Payment => Asks::Payment(payment(&mut draws, scale, warehouse, district)),
            Card::OrderStatus => Asks::OrderStatus {
                district,
                customer: customer(&mut draws, scale),
            },
            Card::Delivery => Asks::Delivery {
                carrier: between(&mut draws, 1, 10),
            },
            Card::StockLevel => Asks::StockLevel {
                district,
                threshold: between(&mut draws, 10, 20),
            },
        };
        Request {
            op: self.op,
            number,
            at: created(number),
            warehouse,
            asks,
        }
    }

    /// The warehouse of the terminal that has this number.
    fn home(&self, number: u32, draws: &mut Draws) -> u32 {
        let (worker, all) = (number % self.workers, self.scale.warehouses);
        if self.workers >= all {
            return worker % all + 1;
        }
        // One of those that this worker stands for, at regular intervals.
        let its_own = (all - 1 - worker) / self.workers + 1;
        worker + draws.below(its_own) * self.workers + 1
    }

    fn card(&self, number: u32) -> Card {
        let mix = match self.op {
            Op::TpccRead => READING,
            _ => STANDARD,
        };
        let cards: Vec<Card> = mix
            .iter()
            .flat_map(|(card, times)| std::iter::repeat_n(*card, *times as usize))
            .collect();
        let mut places: Vec<u32> = (0..).take(cards.len()).collect();
        let deck = number as usize / cards.len();
        shuffle(&mut places, self.seed ^ (deck as u64) << 20);
        let place = places.get(number as usize % cards.len());
        place
            .and_then(|place| cards.get(*place as usize))
            .copied()
            .unwrap_or(Card::NewOrder)
    }
}

fn new_order(draws: &mut Draws, scale: Scale, warehouse: u32, district: u32) -> NewOrder {
    let customer = nurand(draws, 1023, C_CUSTOMER, 1, scale.customers);
    let count = between(draws, 5, 15);
    let rolls_back = draws.below(100) < ROLLED_BACK;
    let mut lines: Vec<Line> = (0..count)
        .map(|_| Line {
            item: nurand(draws, 8191, C_ITEM, 1, scale.items),
            supplier: match draws.below(100) {
                0 => another(draws, scale, warehouse),
                _ => warehouse,
            },
            quantity: between(draws, 1, 10),
        })
        .collect();
    if let (true, Some(last)) = (rolls_back, lines.last_mut()) {
        last.item = 0;
    }
    NewOrder {
        district,
        customer,
        lines,
    }
}

fn payment(draws: &mut Draws, scale: Scale, warehouse: u32, district: u32) -> Payment {
    let (customer_warehouse, customer_district) = match draws.below(100) {
        0..15 => (
            another(draws, scale, warehouse),
            between(draws, 1, DISTRICTS),
        ),
        _ => (warehouse, district),
    };
    Payment {
        district,
        customer_warehouse,
        customer_district,
        customer: customer(draws, scale),
        amount: i64::from(between(draws, 100, 500_000)),
    }
}

/// By last name in 60 of 100.
fn customer(draws: &mut Draws, scale: Scale) -> Customer {
    match draws.below(100) {
        0..60 => {
            let name = nurand(draws, 255, C_NAME_RUN, 0, scale.names() - 1);
            Customer::LastName(last_name(name))
        }
        _ => Customer::Id(nurand(draws, 1023, C_CUSTOMER, 1, scale.customers)),
    }
}

/// A different warehouse, if there is another.
fn another(draws: &mut Draws, scale: Scale, warehouse: u32) -> u32 {
    if scale.warehouses == 1 {
        return warehouse;
    }
    let other = between(draws, 1, scale.warehouses - 1);
    if other < warehouse { other } else { other + 1 }
}

pub(super) fn between(draws: &mut Draws, least: u32, most: u32) -> u32 {
    least + draws.below(most.saturating_sub(least) + 1)
}

/// Clause 2.1.6: some numbers come more often than others.
pub(super) fn nurand(draws: &mut Draws, a: u32, c: u32, least: u32, most: u32) -> u32 {
    let drawn = between(draws, 0, a) | between(draws, least, most);
    (drawn + c) % (most - least + 1) + least
}

/// Clause 4.3.2.3: a syllable for each of three digits.
pub(super) fn last_name(number: u32) -> String {
    const SYLLABLES: [&str; 10] = [
        "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
    ];
    [number / 100, number / 10, number]
        .map(|digit| SYLLABLES[digit as usize % 10])
        .concat()
}
