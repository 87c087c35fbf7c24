//! Cuts the power at every point of a recording, in every way that the model allows or in many
//! random ones. Opens and checks each result.

use super::chance::Cut;
use super::disk::{self, Content, Disk, Everything, Image, Nothing};
use super::history::{self, Config, History, Player, Step};
use super::random::Random;
use super::record::{self, Event, File, Reach};
use std::collections::HashMap;
use std::path::Path;

/// Counters, printed at the end.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub histories: u64,
    pub events: u64,
    /// Images that were opened and checked.
    pub images: u64,
    /// Images after a second crash, in or after the recovery from a first one.
    pub second: u64,
    /// Guarded images on which stock SQLite was tried.
    pub refused_by_stock: u64,
    /// Images equal to an earlier one.
    pub same: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.histories += other.histories;
        self.events += other.events;
        self.images += other.images;
        self.second += other.second;
        self.refused_by_stock += other.refused_by_stock;
        self.same += other.same;
    }
}

/// The numbers of transactions that an image may hold.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    least: u32,
    most: u32,
}

pub struct Explorer<'a> {
    pub config: Config,
    pub history: &'a History,
    /// The digest after each number of transactions.
    pub digests: Vec<u64>,
    /// The directory where images are written.
    pub directory: &'a Path,
    pub random: Random,
    /// Random cuts at each point.
    pub cuts: u32,
    /// Beyond the certain images, one point in so many is checked.
    pub sparse: u64,
    pub counts: Counts,
    seen: HashMap<u64, u32>,
}

/// The defect of an image.
type Wrong = String;

impl<'a> Explorer<'a> {
    pub fn new(
        config: Config,
        history: &'a History,
        digests: Vec<u64>,
        directory: &'a Path,
        random: Random,
    ) -> Explorer<'a> {
        Explorer {
            config,
            history,
            digests,
            directory,
            random,
            cuts: 2,
            sparse: 1,
            counts: Counts::default(),
            seen: HashMap::new(),
        }
    }

    /// Cuts the power at every point of `events`.
    ///
    /// # Errors
    /// The defect of the first image that is wrong.
    pub fn explore(&mut self, disk: Disk, events: &[Event]) -> Result<(), Wrong> {
        let allowed = Allowed { least: 0, most: 0 };
        self.explore_from(disk, events, allowed, 0)
    }

    fn explore_from(
        &mut self,
        mut disk: Disk,
        events: &[Event],
        mut allowed: Allowed,
        depth: u32,
    ) -> Result<(), Wrong> {
        self.counts.events += events.len() as u64;
        for point in 0..=events.len() {
            let at = |e: Wrong| format!("{e}\n  power cut after {}", describe(events, point));
            if let Some(event) = point.checked_sub(1).map(|last| &events[last]) {
                match event {
                    Event::Begin(k) => allowed.most = allowed.most.max(*k),
                    Event::Durable(k) => allowed.least = *k,
                    _ => {}
                }
                if let Some(begun) = in_flight(event) {
                    let mut disk = disk.clone();
                    disk.apply(&begun);
                    self.cut_at_random(&disk, allowed, depth).map_err(at)?;
                }
                disk.apply(event);
                if matches!(event, Event::Begin(_)) || self.is_one_of_many(event, depth) {
                    continue;
                }
            }
            self.check(&disk.image(&mut Everything), allowed, depth)
                .map_err(at)?;
            self.check(&disk.image(&mut Nothing), allowed, depth)
                .map_err(at)?;
            if self.random.one_in(self.sparse) {
                self.cut_at_random(&disk, allowed, depth).map_err(at)?;
            }
            if depth == 0 && self.random.one_in(6 * self.sparse) {
                self.go_on_after_a_kill(&disk, allowed).map_err(at)?;
            }
        }
        Ok(())
    }

    /// A checkpoint of a large log, or a large transaction, writes many pages, all alike.
    fn is_one_of_many(&mut self, event: &Event, depth: u32) -> bool {
        let one_of_many = match event {
            Event::Write { file, reach, .. } => {
                *file == File::Database || self.sparse > 1 && *reach == Reach::Buffered
            }
            _ => false,
        };
        let often = if one_of_many { self.sparse } else { 1 };
        !self.random.one_in(often * (1 + u64::from(depth)))
            && !matches!(event, Event::Durable(_) | Event::Flush(_))
    }

    fn cut_at_random(&mut self, disk: &Disk, allowed: Allowed, depth: u32) -> Result<(), Wrong> {
        for _ in 0..self.cuts {
            let image = disk.image(&mut Cut::new(&mut self.random));
            self.check(&image, allowed, depth)
                .map_err(|e| format!("{e}\n  with a random cut"))?;
        }
        Ok(())
    }

    /// The process dies, and another continues with all that it wrote; then the power is cut.
    /// Writes that the first one had not flushed are still in doubt.
    fn go_on_after_a_kill(&mut self, disk: &Disk, allowed: Allowed) -> Result<(), Wrong> {
        disk::store(&disk.image(&mut Everything), self.directory);
        let (found, events) = self.recover_and_go_on(allowed, true)?;
        let allowed = Allowed {
            least: allowed.least,
            most: self.most_after(found, allowed),
        };
        self.explore_from(disk.clone(), &events, allowed, 1)
            .map_err(|e| format!("{e}\n  in what a second process did after a kill"))
    }

    /// When commits need not be durable, a lost commit may come back, as in stock SQLite. Its
    /// frames arrived, those before it did not, and the next process writes exactly those again.
    fn most_after(&self, found: u32, before: Allowed) -> u32 {
        let is_at_normal = |step: &Step| matches!(step, Step::AtNormal(_));
        let all_durable =
            self.config.commits_are_durable() && !self.history.steps.iter().any(is_at_normal);
        match all_durable {
            true => found,
            false => before.most,
        }
    }

    fn check(&mut self, image: &Image, allowed: Allowed, depth: u32) -> Result<(), Wrong> {
        let digest = image.iter().fold(1u64, |digest, (name, content)| {
            (digest.rotate_left(17) ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ content.digest()
        });
        let k = match self.seen.get(&digest) {
            Some(k) => {
                self.counts.same += 1;
                *k
            }
            None => {
                let k = self.open(image, allowed, depth).map_err(|e| {
                    // Leaves the image for inspection.
                    disk::store(image, self.directory);
                    format!("{e}\n  {}", list(image))
                })?;
                self.seen.insert(digest, k);
                k
            }
        };
        if k < allowed.least || k > allowed.most {
            disk::store(image, self.directory);
            return Err(format!(
                "it holds {k} transactions, and must hold {} to {}\n  {}",
                allowed.least,
                allowed.most,
                list(image)
            ));
        }
        Ok(())
    }

    /// Opens an image. Returns how many transactions it holds.
    fn open(&mut self, image: &Image, allowed: Allowed, depth: u32) -> Result<u32, Wrong> {
        self.counts.images += 1;
        self.counts.second += u64::from(depth > 0);
        disk::store(image, self.directory);
        let database = image.get(record::DATABASE);
        let guarded = database.is_some_and(|content| content.byte(19) == onewrite::GUARD_BYTE);
        if guarded && self.random.one_in(3) {
            self.show_to_stock(image)?;
        }
        let again = depth == 0 && self.random.one_in(12 * self.sparse);
        if again {
            let going_on = self.random.one_in(2);
            let (k, events) = self.recover_and_go_on(allowed, going_on)?;
            let allowed = Allowed {
                least: k,
                most: self.most_after(k, allowed),
            };
            let disk = Disk::after(image, self.config.device);
            self.explore_from(disk, &events, allowed, 1)
                .map_err(|e| format!("{e}\n  in or after the recovery from a first crash"))?;
            return Ok(k);
        }
        let connection = history::open(self.directory, "onewrite").map_err(|e| e.to_string())?;
        let k = self.verify(&connection)?;
        connection.close().map_err(|(_, e)| format!("close: {e}"))?;
        if self.random.one_in(4) {
            let stock = history::open(self.directory, "unix").map_err(|e| e.to_string())?;
            let same = self
                .verify(&stock)
                .map_err(|e| format!("stock, later: {e}"))?;
            if same != k {
                return Err(format!("stock finds {same} transactions, onewrite {k}"));
            }
        }
        Ok(k)
    }

    /// Checks that the database holds exactly what its transactions made. Returns their number.
    fn verify(&self, connection: &rusqlite::Connection) -> Result<u32, Wrong> {
        let (k, digest) = history::look(connection).map_err(|e| format!("reading: {e}"))?;
        match self.digests.get(k as usize) {
            Some(expected) if *expected == digest => {}
            _ => return Err(format!("it is not what {k} transactions make")),
        }
        let checked =
            history::run(connection, "PRAGMA integrity_check").map_err(|e| e.to_string())?;
        match checked.as_deref() {
            Some("ok") => Ok(k),
            other => Err(format!("integrity_check with {k} transactions: {other:?}")),
        }
    }

    /// Opens the database in the directory while recording, and maybe runs the next transactions.
    /// Returns the number of transactions found, and the recording.
    fn recover_and_go_on(
        &mut self,
        allowed: Allowed,
        going_on: bool,
    ) -> Result<(u32, Vec<Event>), Wrong> {
        record::start(self.directory);
        let result = self.recover(allowed, going_on);
        let events = record::stop(self.directory);
        Ok((result?, events))
    }

    fn recover(&mut self, allowed: Allowed, going_on: bool) -> Result<u32, Wrong> {
        let mut player = Player::new(self.directory, &self.config, 0);
        let connection = player.connection().map_err(|e| format!("opening: {e}"))?;
        let k = self.verify(connection)?;
        if k < allowed.least || k > allowed.most {
            return Err(format!("it holds {k} transactions, not {allowed:?}"));
        }
        let mode = history::run(connection, "PRAGMA journal_mode").map_err(|e| e.to_string())?;
        player.done = k;
        player.found_in(mode.as_deref().unwrap_or_default());
        if going_on {
            let next = self.history.transactions();
            for statements in next.into_iter().skip(k as usize).take(2) {
                player
                    .step(&Step::Transaction(statements.clone()))
                    .map_err(|e| format!("going on: {e}"))?;
            }
        }
        player.close().map_err(|e| format!("closing: {e}"))?;
        Ok(k)
    }

    /// Stock SQLite must refuse a guarded database, and change nothing.
    fn show_to_stock(&mut self, image: &Image) -> Result<(), Wrong> {
        self.counts.refused_by_stock += 1;
        let stock = history::open(self.directory, "unix").map_err(|e| e.to_string())?;
        let code = match history::run(&stock, "SELECT count(*) FROM sqlite_schema") {
            Err(e) => e.sqlite_error_code(),
            Ok(_) => return Err("stock SQLite reads a guarded database".to_owned()),
        };
        if code != Some(rusqlite::ErrorCode::NotADatabase) {
            return Err(format!(
                "stock SQLite says {code:?}, not NotADatabase, to a guarded database"
            ));
        }
        drop(stock);
        let gone = |name: &&&str| !self.directory.join(name).exists();
        if let Some(name) = image.keys().find(gone) {
            return Err(format!("stock SQLite has removed {name}"));
        }
        for entry in std::fs::read_dir(self.directory).map_err(|e| e.to_string())? {
            let path = entry.map_err(|e| e.to_string())?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let before = name.and_then(|name| image.get(name));
            if before != Some(&Content::read_from(&path)) {
                return Err(format!("stock SQLite has changed {}", path.display()));
            }
        }
        Ok(())
    }
}

/// A write-through write that a power cut interrupts is not durable yet.
fn in_flight(event: &Event) -> Option<Event> {
    match event {
        Event::Write {
            file,
            offset,
            bytes,
            reach: Reach::Through,
        } => Some(Event::Write {
            file: *file,
            offset: *offset,
            bytes: bytes.clone(),
            reach: Reach::Direct,
        }),
        _ => None,
    }
}

fn list(image: &Image) -> String {
    let files = image.iter().map(|(name, content)| {
        let guard = match *name == record::DATABASE && content.byte(19) == onewrite::GUARD_BYTE {
            true => " (guarded)",
            false => "",
        };
        format!("{name}: {} bytes{guard}", content.size)
    });
    files.collect::<Vec<_>>().join(", ")
}

/// The last calls before a point.
fn describe(events: &[Event], point: usize) -> String {
    let first = point.saturating_sub(24);
    let lines = events[first..point]
        .iter()
        .enumerate()
        .map(|(i, event)| match event {
            Event::Write {
                file,
                offset,
                bytes,
                reach,
            } => format!(
                "{}: write {file:?} at {offset}, {} bytes, {reach:?}",
                first + i,
                bytes.len()
            ),
            other => format!("{}: {other:?}", first + i),
        });
    format!(
        "{point} of {} calls, the last of them\n    {}",
        events.len(),
        lines.collect::<Vec<_>>().join("\n    ")
    )
}
