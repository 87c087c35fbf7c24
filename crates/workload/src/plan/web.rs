//! `web`: a web server's use of its database: many writers at once, each with short transactions,
//! alongside readers.
//!
//! | table | columns | rows before the run |
//! | --- | --- | --- |
//! | `page` | `id`, `title`, `body` (50 to 200 words), `views`, `comments` | 1,000 |
//! | `session` | `id`, `person`, `token`, `hits`, `last_seen` | 2,000 |
//! | `comment` | `id`, `page`, `session`, `body` (3 to 40 words), `created`; index (`page`, `created`) | 2,000 |
//!
//! A writer's transaction is one request of a session. Some sessions are busier, as are some pages:
//!
//! - 50 of 100: the session is seen again (one row changes).
//! - 30 of 100: and a page is viewed (two rows).
//! - 20 of 100: and a comment is written, and counted in its page (three rows and an index).
//!
//! A reader shows pages, one after the other, until the writers have ended. In one transaction it
//! reads the page, counts its comments and reads the newest 20 of them. The count must equal the
//! one in the page: a snapshot that shows half of a writer's transaction is an error.
//!
//! Counters add up in any order, and comments follow from their numbers. So the expected tables do
//! not depend on the order of commits. The workload's form is ours; none was published.
//!
//! On stock WAL a transaction is 1.78 frames on average over 300 transactions (seed 1; a test has
//! it).

use std::sync::atomic::AtomicBool;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::rows::{self, Found};
use super::{Op, Plan, Statement, Transaction, Work, Workload, created, populate_with, words};
use crate::Error;
use crate::databases::Databases;
use crate::draws::Draws;

const SCHEMA: &str = "
    CREATE TABLE page (
        id INTEGER PRIMARY KEY, title TEXT, body TEXT, views INTEGER, comments INTEGER);
    CREATE TABLE session (
        id INTEGER PRIMARY KEY, person TEXT, token TEXT, hits INTEGER, last_seen INTEGER);
    CREATE TABLE comment (
        id INTEGER PRIMARY KEY, page INTEGER, session INTEGER, body TEXT, created INTEGER);
    CREATE INDEX comment_by_page ON comment (page, created);";

const ADD_PAGE: &str = "INSERT INTO page VALUES (?1, ?2, ?3, 0, 0)";
const ADD_SESSION: &str = "INSERT INTO session VALUES (?1, ?2, ?3, 0, 0)";
const SEEN: &str =
    "UPDATE session SET hits = hits + 1, last_seen = max(last_seen, ?2) WHERE id = ?1";
const VIEWED: &str = "UPDATE page SET views = views + 1 WHERE id = ?1";
const ADD_COMMENT: &str = "INSERT INTO comment VALUES (?1, ?2, ?3, ?4, ?5)";
const COMMENTED: &str = "UPDATE page SET comments = comments + 1 WHERE id = ?1";

const SHOWN: &str = "SELECT comments, title, body FROM page WHERE id = ?1";
const COUNTED: &str = "SELECT count(*) FROM comment WHERE page = ?1";
const NEWEST: &str =
    "SELECT id, session, body FROM comment WHERE page = ?1 ORDER BY created DESC LIMIT 20";

const PAGES: u32 = 1_000;
const SESSIONS: u32 = 2_000;
const COMMENTS: u32 = 2_000;

/// The workload.
pub(super) struct Web {
    seed: u64,
    count: u32,
}

/// The effects of a request in addition to the session's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Nothing,
    View,
    Comment,
}

/// A writer's transaction.
struct Request {
    number: u32,
    session: u32,
    page: u32,
    effect: Effect,
    body: String,
}

impl Web {
    pub(super) fn of(plan: &Plan) -> Self {
        Self {
            seed: plan.seed,
            count: plan.count,
        }
    }

    /// The request with this number, counted from the first comment before the run.
    fn request(&self, number: u32) -> Request {
        let mut draws = Draws::of(self.seed, number);
        let session = draws.low_below(SESSIONS) + 1;
        let page = draws.low_below(PAGES) + 1;
        let effect = match draws.below(100) {
            _ if number < COMMENTS => Effect::Comment,
            0..50 => Effect::Nothing,
            50..80 => Effect::View,
            _ => Effect::Comment,
        };
        Request {
            number,
            session,
            page,
            effect,
            body: words::sentence(&mut draws, 3, 40),
        }
    }

    /// The committed requests at the end of the run.
    fn requests(&self) -> impl Iterator<Item = Request> {
        (0..self.count.saturating_add(COMMENTS)).map(|number| self.request(number))
    }

    fn page(&self, id: u32) -> [Value; 3] {
        // Numbers that no request has.
        let mut draws = Draws::of(!self.seed, id);
        let title = words::sentence(&mut draws, 2, 6);
        let body = words::sentence(&mut draws, 50, 200);
        [id.into(), title.into(), body.into()]
    }

    fn session(&self, id: u32) -> [Value; 3] {
        let mut draws = Draws::of(!self.seed, PAGES + id);
        let person = words::name(&mut draws);
        [id.into(), person.into(), draws.letters(32).into()]
    }

    /// One page as a reader shows it; its number of comments must match.
    fn show(&self, connection: &Connection, page: u32) -> rusqlite::Result<Option<String>> {
        let deferred = TransactionBehavior::Deferred;
        let transaction = rusqlite::Transaction::new_unchecked(connection, deferred)?;
        let says: Option<i64> = transaction
            .prepare_cached(SHOWN)?
            .query_row([page], |row| row.get(0))
            .optional()?;
        let count: i64 = transaction
            .prepare_cached(COUNTED)?
            .query_row([page], |row| row.get(0))?;
        let mut shown = 0;
        {
            let mut newest = transaction.prepare_cached(NEWEST)?;
            let mut newest = newest.query([page])?;
            while newest.next()?.is_some() {
                shown += 1;
            }
        }
        transaction.commit()?;
        let right = says == Some(count) && shown == count.min(20);
        Ok((!right).then(|| {
            format!(
                "a reader: page {page} says {says:?} comments, {count} are there, {shown} of 20 shown"
            )
        }))
    }
}

impl Request {
    fn id(&self) -> i64 {
        i64::from(self.number) + 1
    }

    fn comment(&self) -> Vec<Value> {
        vec![
            self.id().into(),
            self.page.into(),
            self.session.into(),
            self.body.clone().into(),
            created(self.number).into(),
        ]
    }

    fn statements(&self) -> Vec<Statement> {
        let seen = vec![self.session.into(), created(self.number).into()];
        let of_page = || vec![self.page.into()];
        let more = match self.effect {
            Effect::Nothing => Vec::new(),
            Effect::View => vec![(VIEWED, of_page())],
            Effect::Comment => vec![(ADD_COMMENT, self.comment()), (COMMENTED, of_page())],
        };
        std::iter::once((SEEN, seen))
            .chain(more)
            .map(|(sql, values)| Statement { sql, values })
            .collect()
    }
}

impl Workload for Web {
    fn populate(&self, databases: &mut Databases, stop: &AtomicBool) -> Result<(), Error> {
        let connection = databases.first_mut();
        connection
            .execute_batch(SCHEMA)
            .map_err(Error::sqlite("create tables"))?;
        populate_with(connection, stop, 1..PAGES + 1, |connection, id| {
            insert(connection, ADD_PAGE, self.page(id))
        })?;
        populate_with(connection, stop, 1..SESSIONS + 1, |connection, id| {
            insert(connection, ADD_SESSION, self.session(id))
        })?;
        populate_with(connection, stop, 0..COMMENTS, |connection, number| {
            let statements = self.request(number).statements();
            Transaction::new(Op::Web, number, statements).apply(connection)
        })
    }

    fn statements(&self) -> &'static [&'static str] {
        &[SEEN, VIEWED, ADD_COMMENT, COMMENTED, SHOWN, COUNTED, NEWEST]
    }

    fn work(&self, number: u32) -> Work {
        let request = self.request(number.saturating_add(COMMENTS));
        Work::Given(Transaction::new(Op::Web, number, request.statements()))
    }

    fn read(&self, reader: u32, number: u32, databases: &Databases) -> Result<(), Error> {
        let mut draws = Draws::of(self.seed ^ u64::from(reader + 1) << 40, number);
        let page = draws.low_below(PAGES) + 1;
        let wrong = self
            .show(databases.first(), page)
            .map_err(Error::sqlite(format!("a reader, page {page}")))?;
        wrong.map_or(Ok(()), |wrong| Err(Error::Wrong(wrong)))
    }

    fn compare(&self, databases: &Databases) -> Result<Found, Error> {
        self.compare_in(databases.first())
            .map_err(Error::sqlite("read the rows"))
    }
}

impl Web {
    fn compare_in(&self, connection: &Connection) -> rusqlite::Result<Found> {
        let mut views = vec![0i64; PAGES as usize + 1];
        let mut comments = vec![0i64; PAGES as usize + 1];
        let mut sessions = vec![(0i64, 0i64); SESSIONS as usize + 1];
        for request in self.requests() {
            let (hits, last_seen) = &mut sessions[request.session as usize];
            *hits += 1;
            // They come in the order of their times.
            *last_seen = created(request.number);
            views[request.page as usize] += i64::from(request.effect == Effect::View);
            comments[request.page as usize] += i64::from(request.effect == Effect::Comment);
        }
        let pages = (1..=PAGES).zip(views.into_iter().zip(comments).skip(1));
        let pages = pages.map(|(id, (views, comments))| {
            let mut row = Vec::from(self.page(id));
            row.extend([views.into(), comments.into()]);
            row
        });
        let pages = rows::compare(connection, "page", "SELECT * FROM page ORDER BY id", pages)?;
        let sessions = (1..=SESSIONS).zip(sessions.into_iter().skip(1));
        let sessions = sessions.map(|(id, (hits, last_seen))| {
            let mut row = Vec::from(self.session(id));
            row.extend([hits.into(), last_seen.into()]);
            row
        });
        let sql = "SELECT * FROM session ORDER BY id";
        let sessions = rows::compare(connection, "session", sql, sessions)?;
        let comments = self.requests();
        let comments = comments.filter(|request| request.effect == Effect::Comment);
        let comments = comments.map(|request| request.comment());
        let sql = "SELECT * FROM comment ORDER BY id";
        let comments = rows::compare(connection, "comment", sql, comments)?;
        Ok(pages.and(sessions).and(comments))
    }
}

fn insert(connection: &Connection, sql: &str, row: [Value; 3]) -> Result<(), Error> {
    let insert = || {
        let mut statement = connection.prepare_cached(sql)?;
        statement.execute(rusqlite::params_from_iter(row)).map(drop)
    };
    insert().map_err(Error::sqlite(sql))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web() -> Web {
        Web {
            seed: 4,
            count: 1_000,
        }
    }

    #[test]
    fn requests_have_the_shares_that_are_documented() {
        let web = web();
        let effects: Vec<Effect> = web
            .requests()
            .skip(2_000)
            .map(|request| request.effect)
            .collect();
        let share = |effect| effects.iter().filter(|other| **other == effect).count();
        assert_eq!(effects.len(), 1_000);
        for (effect, of_thousand) in [
            (Effect::Nothing, 500),
            (Effect::View, 300),
            (Effect::Comment, 200),
        ] {
            assert!(
                share(effect).abs_diff(of_thousand) < 45,
                "{effect:?}: {}",
                share(effect)
            );
        }
    }

    #[test]
    fn a_reader_accepts_what_is_whole_and_finds_half_a_transaction() {
        let web = web();
        let mut databases = Databases::in_memory(1).unwrap();
        web.populate(&mut databases, &AtomicBool::new(false))
            .unwrap();
        for number in 0..200 {
            web.work(number).commit(&databases).unwrap();
            web.read(0, number, &databases).unwrap();
        }
        let damage = "UPDATE page SET comments = comments + 1";
        databases.first().execute_batch(damage).unwrap();
        let error = web.read(0, 0, &databases).unwrap_err();
        assert!(error.to_string().contains("are there"), "{error}");
    }

    #[test]
    fn damage_in_any_table_is_found() {
        let web = web();
        let mut databases = Databases::in_memory(1).unwrap();
        web.populate(&mut databases, &AtomicBool::new(false))
            .unwrap();
        for number in (0..1_000).rev() {
            web.work(number).commit(&databases).unwrap();
        }
        let found = || web.compare(&databases).unwrap();
        assert_eq!(found().difference, None);
        for (table, damage) in [
            ("page", "UPDATE page SET views = views - 1 WHERE id = 1"),
            ("session", "UPDATE session SET hits = hits - 1 WHERE id = 9"),
            (
                "comment",
                "DELETE FROM comment WHERE id = (SELECT max(id) FROM comment)",
            ),
        ] {
            let connection = databases.first();
            connection.execute_batch("BEGIN").unwrap();
            assert_eq!(connection.execute(damage, ()).unwrap(), 1);
            assert!(found().difference.unwrap().starts_with(table), "{damage}");
            connection.execute_batch("ROLLBACK").unwrap();
        }
    }
}
