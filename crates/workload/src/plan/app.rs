//! `app`: each transaction files one message, as a messenger or mail application does.
//!
//! | table | columns | indexes |
//! | --- | --- | --- |
//! | `conversation` | `id`, `title`, `total`, `unread`, `last_sent`, `last_text` | |
//! | `message` | `id`, `conversation`, `sender`, `sent`, `unread`, `body` | (`conversation`, `sent`), `sender` |
//! | `recipient` | `message`, `address` | `address` |
//! | `label` | `message`, `name` | `name` |
//! | `attachment` | `message`, `content` | |
//!
//! A transaction runs between `BEGIN IMMEDIATE` and `COMMIT`:
//!
//! - A row into `message`: one of 64 conversations (some are busier), one of 200 senders, and 3 to
//!   30 words of a vocabulary of some 200, 83 characters on average.
//! - Its conversation's counters: one more message; one more unread if it came from others (two of
//!   three). It becomes the last message, with its first words, unless a message sent later is
//!   there already.
//! - In one of two a row into `recipient`, an address of some 23 characters; in one of four one
//!   into `label` as well. So a row goes into one, two or three indexed tables.
//! - In one of 20 a BLOB of 1 to 8 KiB into `attachment`. It looks random, because pictures and
//!   voice are already compressed.
//!
//! The 64 conversations and 1,000 similar messages exist before the run. So pages are as full, and
//! changes as spread out, as in a database in use. The seed and a message's number determine its
//! whole content, even its id, and counters add up in any order. So the expected tables do not
//! depend on the order of commits.
//!
//! On stock WAL a transaction is 6.02 frames on average over 300 transactions (seed 1; a test has
//! it).

use std::sync::atomic::AtomicBool;

use rusqlite::Connection;
use rusqlite::types::Value;

use super::rows::{self, Found};
use super::{Op, Plan, Statement, Transaction, Work, Workload, created, populate_with, words};
use crate::Error;
use crate::databases::Databases;
use crate::draws::Draws;

const SCHEMA: &str = "
    CREATE TABLE conversation (
        id INTEGER PRIMARY KEY, title TEXT, total INTEGER, unread INTEGER,
        last_sent INTEGER, last_text TEXT);
    CREATE TABLE message (
        id INTEGER PRIMARY KEY, conversation INTEGER, sender INTEGER, sent INTEGER,
        unread INTEGER, body TEXT);
    CREATE INDEX message_by_conversation ON message (conversation, sent);
    CREATE INDEX message_by_sender ON message (sender);
    CREATE TABLE recipient (message INTEGER PRIMARY KEY, address TEXT);
    CREATE INDEX recipient_by_address ON recipient (address);
    CREATE TABLE label (message INTEGER PRIMARY KEY, name TEXT);
    CREATE INDEX label_by_name ON label (name);
    CREATE TABLE attachment (message INTEGER PRIMARY KEY, content BLOB);";

const CONVERSATION: &str = "INSERT INTO conversation VALUES (?1, ?2, 0, 0, 0, '')";
const MESSAGE: &str = "INSERT INTO message VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const COUNT: &str = "UPDATE conversation SET total = total + 1, unread = unread + ?2, \
     last_text = CASE WHEN last_sent < ?3 THEN ?4 ELSE last_text END, \
     last_sent = max(last_sent, ?3) WHERE id = ?1";
const RECIPIENT: &str = "INSERT INTO recipient VALUES (?1, ?2)";
const LABEL: &str = "INSERT INTO label VALUES (?1, ?2)";
const ATTACHMENT: &str = "INSERT INTO attachment VALUES (?1, ?2)";

/// Messages that exist before the run.
const HISTORY: u32 = 1_000;

const CONVERSATIONS: u32 = 64;
const SENDERS: u32 = 200;

/// Characters of a message that its conversation shows.
const PREVIEW: usize = 32;

const LABELS: &[&str] = &[
    "inbox",
    "friends",
    "family",
    "work",
    "travel",
    "bills",
    "orders",
    "later",
    "important",
    "newsletters",
];

/// The workload.
pub(super) struct App {
    seed: u64,
    count: u32,
}

/// The data that one transaction stores.
struct Message {
    id: i64,
    conversation: u32,
    sender: u32,
    sent: i64,
    unread: u32,
    body: String,
    recipient: Option<String>,
    label: Option<&'static str>,
    attachment: Option<Vec<u8>>,
}

/// The content of a conversation's row.
#[derive(Clone, Default)]
struct Conversation {
    total: i64,
    unread: i64,
    last_sent: i64,
    last_text: String,
}

impl App {
    pub(super) fn of(plan: &Plan) -> Self {
        Self {
            seed: plan.seed,
            count: plan.count,
        }
    }

    /// The messages after the end of the run.
    fn messages(&self) -> impl Iterator<Item = Message> {
        (0..self.count.saturating_add(HISTORY)).map(|number| self.message(number))
    }

    /// The message with this number, counted from the first one of the history.
    fn message(&self, number: u32) -> Message {
        let mut draws = Draws::of(self.seed, number);
        let conversation = draws.low_below(CONVERSATIONS) + 1;
        let sender = draws.low_below(SENDERS) + 1;
        let unread = u32::from(draws.below(3) > 0);
        let body = words::sentence(&mut draws, 3, 30);
        let tables = draws.below(4);
        let recipient = (tables >= 2).then(|| words::address(&mut draws));
        let label = if tables == 3 {
            draws.pick(LABELS).copied()
        } else {
            None
        };
        let attachment = (draws.below(20) == 0).then(|| {
            let length = 1_024 + draws.below(7 * 1_024 + 1);
            draws.bytes(length as usize)
        });
        Message {
            id: i64::from(number) + 1,
            conversation,
            sender,
            sent: created(number),
            unread,
            body,
            recipient,
            label,
            attachment,
        }
    }

    fn title(&self, conversation: u32) -> String {
        // Numbers that no message has.
        words::name(&mut Draws::of(self.seed, u32::MAX - conversation))
    }

    fn insert_conversations(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let transaction = connection.transaction()?;
        for id in 1..=CONVERSATIONS {
            transaction.execute(CONVERSATION, (id, self.title(id)))?;
        }
        transaction.commit()
    }

    /// The expected counters of all conversations, in the order of their ids.
    fn counted(&self) -> Vec<Conversation> {
        let mut all = vec![Conversation::default(); CONVERSATIONS as usize];
        for message in self.messages() {
            let Some(counted) = all.get_mut(message.conversation as usize - 1) else {
                continue;
            };
            counted.total += 1;
            counted.unread += i64::from(message.unread);
            // Messages come in the order of their sending.
            counted.last_sent = message.sent;
            counted.last_text = message.preview();
        }
        all
    }
}

impl Message {
    fn preview(&self) -> String {
        self.body.chars().take(PREVIEW).collect()
    }

    fn row(&self) -> Vec<Value> {
        vec![
            self.id.into(),
            self.conversation.into(),
            self.sender.into(),
            self.sent.into(),
            self.unread.into(),
            self.body.clone().into(),
        ]
    }

    /// The row of this message in a table that has rows only for some messages, if there is one.
    fn part(&self, value: Option<impl Into<Value>>) -> Option<Vec<Value>> {
        value.map(|value| vec![self.id.into(), value.into()])
    }

    fn recipient(&self) -> Option<Vec<Value>> {
        self.part(self.recipient.clone())
    }

    fn label(&self) -> Option<Vec<Value>> {
        self.part(self.label.map(str::to_owned))
    }

    fn attachment(&self) -> Option<Vec<Value>> {
        self.part(self.attachment.clone())
    }

    fn statements(&self) -> Vec<Statement> {
        let count = vec![
            self.conversation.into(),
            self.unread.into(),
            self.sent.into(),
            self.preview().into(),
        ];
        let always = [(MESSAGE, Some(self.row())), (COUNT, Some(count))];
        let sometimes = [
            (RECIPIENT, self.recipient()),
            (LABEL, self.label()),
            (ATTACHMENT, self.attachment()),
        ];
        always
            .into_iter()
            .chain(sometimes)
            .filter_map(|(sql, values)| values.map(|values| Statement { sql, values }))
            .collect()
    }
}

impl App {
    /// The transaction with this number.
    pub(super) fn transaction(&self, number: u32) -> Transaction {
        let message = self.message(number.saturating_add(HISTORY));
        Transaction::new(Op::App, number, message.statements())
    }
}

impl Workload for App {
    fn populate(&self, databases: &mut Databases, stop: &AtomicBool) -> Result<(), Error> {
        let connection = databases.first_mut();
        connection
            .execute_batch(SCHEMA)
            .map_err(Error::sqlite("create tables"))?;
        self.insert_conversations(connection)
            .map_err(Error::sqlite("insert the conversations"))?;
        populate_with(connection, stop, 0..HISTORY, |connection, number| {
            let statements = self.message(number).statements();
            Transaction::new(Op::App, number, statements).apply(connection)
        })
    }

    fn statements(&self) -> &'static [&'static str] {
        &[MESSAGE, COUNT, RECIPIENT, LABEL, ATTACHMENT]
    }

    fn work(&self, number: u32) -> Work {
        Work::Given(self.transaction(number))
    }

    fn compare(&self, databases: &Databases) -> Result<Found, Error> {
        self.compare_in(databases.first())
            .map_err(Error::sqlite("read the rows"))
    }
}

impl App {
    fn compare_in(&self, connection: &Connection) -> rusqlite::Result<Found> {
        let conversations = (1..).zip(self.counted()).map(|(id, counted): (u32, _)| {
            vec![
                id.into(),
                self.title(id).into(),
                counted.total.into(),
                counted.unread.into(),
                counted.last_sent.into(),
                counted.last_text.into(),
            ]
        });
        let sql = "SELECT * FROM conversation ORDER BY id";
        let conversations = rows::compare(connection, "conversation", sql, conversations)?;
        let sql = "SELECT * FROM message ORDER BY id";
        let messages = self.messages().map(|message| message.row());
        let messages = rows::compare(connection, "message", sql, messages)?;
        let sql = "SELECT * FROM recipient ORDER BY message";
        let recipients = self.messages().filter_map(|message| message.recipient());
        let recipients = rows::compare(connection, "recipient", sql, recipients)?;
        let sql = "SELECT * FROM label ORDER BY message";
        let labels = self.messages().filter_map(|message| message.label());
        let labels = rows::compare(connection, "label", sql, labels)?;
        let sql = "SELECT * FROM attachment ORDER BY message";
        let attachments = self.messages().filter_map(|message| message.attachment());
        let attachments = rows::compare(connection, "attachment", sql, attachments)?;
        Ok(messages
            .and(conversations)
            .and(recipients)
            .and(labels)
            .and(attachments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app() -> App {
        App {
            seed: 9,
            count: 3_000,
        }
    }

    /// The mix in the head of this file.
    #[test]
    fn the_mix_is_the_one_that_is_documented() {
        let messages: Vec<Message> = app().messages().collect();
        assert_eq!(messages.len(), 4_000);
        let share = |has: &dyn Fn(&Message) -> bool| {
            messages.iter().filter(|message| has(message)).count() as f64 / 4_000.0
        };
        let near = |got: f64, want: f64| (got - want).abs() < 0.03;
        assert!(near(share(&|message| message.recipient.is_some()), 0.5));
        assert!(near(share(&|message| message.label.is_some()), 0.25));
        assert!(near(share(&|message| message.attachment.is_some()), 0.05));
        assert!(near(share(&|message| message.unread == 1), 2.0 / 3.0));
        assert_eq!(
            share(&|message| message.label.is_some() && message.recipient.is_none()),
            0.0
        );
        for message in &messages {
            assert!((1..=CONVERSATIONS).contains(&message.conversation));
            assert!((1..=SENDERS).contains(&message.sender));
            let blob = message.attachment.as_ref().map(Vec::len);
            assert!(blob.is_none_or(|bytes| (1_024..=8_192).contains(&bytes)));
        }
    }

    #[test]
    fn every_transaction_uses_statements_that_are_prepared_before_the_run() {
        let app = app();
        for number in 0..100 {
            let transaction = app.transaction(number);
            assert!((2..=5).contains(&transaction.statements.len()));
            for Statement { sql, .. } in transaction.statements {
                assert!(app.statements().contains(&sql));
            }
        }
    }
}
