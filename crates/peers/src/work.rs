//! The workloads: their operations, the order of these, and the content that the store must have
//! afterwards.
//!
//! Every value follows from its key. So every read can be checked at once, and a store can be
//! verified without a record of the operations.

use std::ops::Range;

use onewrite_common::random::mixed;
use serde::{Deserialize, Serialize};

use crate::engine::{Result, Session, Table, Transaction};

/// Bytes of a row.
const ROW_BYTES: usize = 100;
/// Bytes of a message of [`Workload::App`].
const MESSAGE_BYTES: usize = 300;
/// Conversations of [`Workload::App`].
const CHATS: u64 = 200;
/// A message's key: the upper bits are its conversation, these lower ones its place there.
const PLACE_BITS: u32 = 32;
/// Rows of a transaction of [`Workload::Bulk`].
const BULK_ROWS: u64 = 1000;
/// Rows of [`Workload::Get`] and [`Workload::Scan`].
const READ_ROWS: u64 = 200_000;
/// Rows of a scan.
const SCAN_ROWS: usize = 100;
/// Rows that verification of a store reads at a time.
const VERIFY_ROWS: usize = 10_000;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// One row a transaction, in the order of keys.
    Commit,
    /// A message filed as in a messenger: its conversation read and changed, the message before it
    /// read, the message and its entry by time inserted.
    App,
    /// 1,000 rows a transaction, in the order of keys.
    Bulk,
    /// One row of 200,000 read, at a random place.
    Get,
    /// 100 rows read from a random place on.
    Scan,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Self; 5] = [Self::Commit, Self::App, Self::Bulk, Self::Get, Self::Scan];

    /// The workload's name.
    pub fn name(self) -> &'static str {
        ["commit", "app", "bulk", "get", "scan"][self as usize]
    }

    /// A description of one operation.
    pub fn is(self) -> &'static str {
        match self {
            Self::Commit => "one row of 100 bytes a durable transaction, in the order of keys",
            Self::App => {
                "a message filed: a conversation read and changed, the message before read, a message of 300 \
                 bytes and its entry by time inserted; a durable transaction"
            }
            Self::Bulk => "1,000 rows of 100 bytes a durable transaction, in the order of keys",
            Self::Get => "one of 200,000 rows read, anywhere",
            Self::Scan => "100 of 200,000 rows read, from anywhere on",
        }
    }

    /// Whether it writes.
    pub fn writes(self) -> bool {
        matches!(self, Self::Commit | Self::App | Self::Bulk)
    }

    /// The operations that correspond to `count` durable transactions.
    pub fn of_count(self, count: u64) -> u64 {
        match self {
            Self::Commit | Self::App => count,
            Self::Bulk => (count / 20).max(1),
            Self::Get => count * 50,
            Self::Scan => count * 2,
        }
    }

    /// Operations before the measured ones. After them, logs have started again from the beginning.
    pub fn warm_up(self) -> u64 {
        match self {
            Self::Commit => 1200,
            Self::App => 500,
            Self::Bulk => 10,
            Self::Get | Self::Scan => 1000,
        }
    }
}

/// The operations of one of `threads` threads that share `operations`.
pub fn share(operations: Range<u64>, thread: usize, threads: usize) -> impl Iterator<Item = u64> {
    operations.skip(thread).step_by(threads)
}

/// The value of a key: hexadecimal digits, which a compressor can halve at most.
fn value(key: u64, bytes: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(bytes + 16);
    let mut part = key;
    while value.len() < bytes {
        part = mixed(part);
        value.extend_from_slice(format!("{part:016x}").as_bytes());
    }
    value.truncate(bytes);
    value
}

/// Fills the store before the measurement.
pub fn populate(workload: Workload, session: &mut dyn Session) -> Result<()> {
    match workload {
        Workload::Commit | Workload::Bulk => Ok(()),
        Workload::App => session.write(&mut |transaction| {
            (0..CHATS).try_for_each(|chat| put_chat(transaction, chat, 0))
        }),
        Workload::Get | Workload::Scan => {
            (0..READ_ROWS / BULK_ROWS).try_for_each(|number| bulk(session, number))
        }
    }
}

/// Executes an operation.
pub fn operate(workload: Workload, session: &mut dyn Session, number: u64) -> Result<()> {
    match workload {
        Workload::Commit => session.put(Table::Row, number, &value(number, ROW_BYTES)),
        Workload::App => session.write(&mut |transaction| file_message(transaction, number)),
        Workload::Bulk => bulk(session, number),
        Workload::Get => {
            let key = mixed(number) % READ_ROWS;
            let found = session.get(Table::Row, key)?;
            same(found.as_deref(), key, ROW_BYTES)
        }
        Workload::Scan => {
            let first = mixed(number) % (READ_ROWS - SCAN_ROWS as u64);
            let mut next = first;
            session.scan(Table::Row, first, SCAN_ROWS, &mut |key, _| {
                let expected = std::mem::replace(&mut next, key + 1);
                in_order(key, expected)
            })?;
            in_order(next, first + SCAN_ROWS as u64)
        }
    }
}

fn bulk(session: &mut dyn Session, number: u64) -> Result<()> {
    session.write(&mut |transaction| {
        let mut keys = number * BULK_ROWS..(number + 1) * BULK_ROWS;
        keys.try_for_each(|key| transaction.put(Table::Row, key, &value(key, ROW_BYTES)))
    })
}

fn put_chat(transaction: &mut dyn Transaction, chat: u64, messages: u64) -> Result<()> {
    let mut bytes = messages.to_be_bytes().to_vec();
    // The conversation's title and its other data.
    bytes.extend(value(chat, ROW_BYTES));
    transaction.put(Table::Chat, chat, &bytes)
}

/// The number of messages in a conversation, from its row.
fn messages(chat: u64, row: Option<&[u8]>) -> Result<u64> {
    let row = row.ok_or_else(|| format!("conversation {chat} is gone"))?;
    let (count, about) = row.split_at_checked(8).ok_or("a conversation is cut")?;
    same(Some(about), chat, ROW_BYTES)?;
    Ok(u64::from_be_bytes(count.try_into()?))
}

fn file_message(transaction: &mut dyn Transaction, number: u64) -> Result<()> {
    let chat = mixed(number) % CHATS;
    let place = messages(chat, transaction.get(Table::Chat, chat)?.as_deref())?;
    let key = chat << PLACE_BITS | place;
    if place > 0 {
        let before = transaction.get(Table::Row, key - 1)?;
        same(before.as_deref(), key - 1, MESSAGE_BYTES)?;
    }
    transaction.put(Table::Row, key, &value(key, MESSAGE_BYTES))?;
    transaction.put(Table::Time, number, &key.to_be_bytes())?;
    put_chat(transaction, chat, place + 1)
}

fn same(found: Option<&[u8]>, key: u64, bytes: usize) -> Result<()> {
    match found {
        Some(found) if found == value(key, bytes) => Ok(()),
        Some(_) => Err(format!("row {key} has a value that nobody gave it").into()),
        None => Err(format!("row {key} is gone").into()),
    }
}

fn in_order(found: u64, expected: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(format!("row {found} where row {expected} should be").into())
}

/// Reads everything back: exactly the operations `0..operations` must have happened. Returns the
/// number of rows.
pub fn verify(workload: Workload, session: &mut dyn Session, operations: u64) -> Result<u64> {
    match workload {
        Workload::App => verify_app(session, operations),
        Workload::Commit => verify_rows(session, operations),
        Workload::Bulk => verify_rows(session, operations * BULK_ROWS),
        Workload::Get | Workload::Scan => verify_rows(session, READ_ROWS),
    }
}

fn verify_rows(session: &mut dyn Session, rows: u64) -> Result<u64> {
    let mut next = 0;
    all(session, Table::Row, &mut |key, bytes| {
        in_order(key, std::mem::replace(&mut next, key + 1))?;
        same(Some(bytes), key, ROW_BYTES)
    })?;
    match next == rows {
        true => Ok(rows),
        false => Err(format!("{next} rows, and {rows} were committed").into()),
    }
}

fn verify_app(session: &mut dyn Session, operations: u64) -> Result<u64> {
    let mut expected: Vec<u64> = vec![0; CHATS as usize];
    for number in 0..operations {
        expected[(mixed(number) % CHATS) as usize] += 1;
    }
    let mut next = 0;
    all(session, Table::Chat, &mut |chat, row| {
        in_order(chat, std::mem::replace(&mut next, chat + 1))?;
        let (found, expected) = (messages(chat, Some(row))?, expected[chat as usize]);
        match found == expected {
            true => Ok(()),
            false => Err(format!("conversation {chat}: {found} messages, not {expected}").into()),
        }
    })?;
    in_order(next, CHATS)?;
    let mut rows = expected
        .iter()
        .zip(0..)
        .flat_map(|(count, chat)| (0..*count).map(move |place| chat << PLACE_BITS | place));
    all(session, Table::Row, &mut |key, message| {
        in_order(key, rows.next().unwrap_or(u64::MAX))?;
        same(Some(message), key, MESSAGE_BYTES)
    })?;
    if let Some(key) = rows.next() {
        return Err(format!("message {key} is gone").into());
    }
    let (mut next, mut places) = (0, vec![Vec::new(); CHATS as usize]);
    all(session, Table::Time, &mut |number, key| {
        in_order(number, std::mem::replace(&mut next, number + 1))?;
        let key = u64::from_be_bytes(key.try_into()?);
        let chat = mixed(number) % CHATS;
        in_order(key >> PLACE_BITS, chat)?;
        places[chat as usize].push(key & ((1 << PLACE_BITS) - 1));
        Ok(())
    })?;
    in_order(next, operations)?;
    for (mut places, chat) in places.into_iter().zip(0..) {
        places.sort_unstable();
        if !places.iter().copied().eq(0..expected[chat]) {
            return Err(
                format!("conversation {chat}: entries by time that are not its messages").into(),
            );
        }
    }
    Ok(CHATS + 2 * operations)
}

/// All rows of a table, read in pieces. An engine may keep everything that a snapshot needs.
fn all(
    session: &mut dyn Session,
    table: Table,
    each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut first = 0;
    loop {
        let mut found = 0;
        session.scan(table, first, VERIFY_ROWS, &mut |key, value| {
            (first, found) = (key + 1, found + 1);
            each(key, value)
        })?;
        if found < VERIFY_ROWS {
            return Ok(());
        }
    }
}
