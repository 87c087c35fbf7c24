//! The crash model: the protocol and nothing else, on pages of six entries and a disk that loses
//! writes.
//!
//! It shares no code with the engine. It is the oracle of the protocol. A run without any one rule
//! ([`Mutant`]) must fail, which shows that the rule is needed. A run with all rules must not fail.
//! `docs/lsmvbt.md` names the mutant next to each rule, and gives the rule the label that stands here.

mod cells;
mod disk;
mod late;
mod late_double;
mod read;
mod recovery;
mod rounds;
mod run;
mod stays;
mod tree;
mod txn;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use cells::{Bytes, Change};
use disk::Disk;
use late::Chain;

use crate::random::Random;

pub const INF: u64 = u64::MAX;
const REGION: u32 = 4;
const CAPACITY: usize = 6;
const RESERVE: usize = 1;
const CATALOG: u32 = 2;
/// Versions that a header reserves.
const RESERVED: u64 = 6;
/// Ranges of lost versions. With as many, marks are flushed before their pages, and none are added.
const MOST_LOST: usize = 4;

/// A rule of the protocol that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// MV1: The commit record names no pages.
    NoList,
    /// MV2: It names versions instead of checksums.
    NoChecksum,
    /// MV3: A broken commit falls back to the version before it instead of the highest `base`.
    PreviousVersion,
    /// MV4: Recovery undoes nothing.
    NoUndo,
    /// MV5: After recovery, the version numbers of broken commits are used again.
    ReuseVersions,
    /// MV6: A page can be used again in the transaction that frees it.
    ReuseAtOnce,
    /// MV7: A page can be used again before the transaction that freed it is durable.
    ReuseBeforeDurable,
    /// MV8: Garbage collection keeps what the transaction itself sees instead of what its base sees.
    CollectBase,
    /// MV9: Garbage collection does not keep the newest durable version.
    CollectDurable,
    /// MV10: An owner goes as soon as no view sees it, not when the oldest view has passed its end.
    OwnersByLifetime,
    /// MV11: Moved entries free pages as killed ones do.
    MovedFrees,
    /// MV12: A transaction that was spilled and rolled back is not undone on disk.
    NoUndoOfSpills,
    /// MV13: Where marks must be flushed before their pages, they are not.
    NoFlushOfMarks,
    /// MV15: Pages may have versions that no durable header reserves.
    BeyondReserved,
    /// MV16: Recovery goes on with the number after the newest that it sees.
    ReuseLostVersions,
    /// MV17: Pages that a lost version wrote last are read as they are.
    BelieveLost,
    /// MV18: Headers forget the lost versions.
    ForgetLost,
    /// MV14: Pages of a commit count where no header marks them.
    CountUnmarked,
    /// MV19: The first header after a recovery leaves lost versions above the floor.
    FloorBelowLost,
    /// MV20: Without a flush after each commit, the record names only its own commit's pages.
    RecordOfOneCommit,
    /// MV21: The page with the newest record is not the last one that the next commit writes.
    RecordInTheMiddle,
    /// MV22: It may be spilled.
    RecordSpilled,
    /// MV23: A page of any later version counts as a page of the commit before the broken one.
    AnyLaterPage,
    /// MV24: The recovered state is not flushed before the next write.
    NoFlushOfFound,
    /// MV25: Recovery does not flush what it has undone before it writes the header.
    NoFlushOfUndone,
    /// MV26: Double: pages are written in place before their slot has been flushed.
    NoFlushOfSlot,
    /// MV27: Double: recovery redoes the newer slot only.
    RedoOneSlot,
    /// MV28: Double: a round goes to the slot with the round before it.
    RoundIntoNewest,
    /// MV29: Double: the header of the first round is written before the pages of the commit before
    /// are flushed in place.
    SettledTooEarly,
    /// MV30: Double: pages of rounds are in no marked region.
    RoundUnmarked,
    /// MV31: Double: pages born in the transaction are not flushed before its last slot is written.
    NoFlushOfBorn,
    /// MV32: Double: any slot of a transaction commits it.
    AnySlotCommits,
    /// MV33: Double: pages are stripped in place, and not in rounds.
    StripInPlace,
    /// MV34: Double: of a page in two slots of a transaction, the image of any of them counts.
    RoundsInAnyOrder,
    /// MV35: Double: the rollback of a written transaction leaves its slot to be redone.
    SlotStaysUnsettled,
    /// MV36: Double: after rounds, only the new pages of the last slot are in marked regions.
    LastUnmarked,
    /// MV37: A change may be in a page that recovery does not reach.
    CarrierUnreached,
    /// MV38: A late page stays late when other pages are written.
    StaysLate,
    /// MV39: A page that comes home is not flushed before others are written.
    HomeUnflushed,
    /// MV40: Recovery writes its header without bringing the late page home.
    LateForgotten,
    /// MV41: The floor moves to the version of the carrier.
    FloorAboveCarrier,
    /// MV42: A page that comes home names the carrier's base, and not its version, as durable.
    HomeOfOldBase,
    /// MV43: The floor moves with the first late commit, over the record of another kind of commit.
    FloorAtBegin,
    /// MV44: A change counts where the page in place is not older.
    OldChange,
    /// MV45: Double: the page that comes home has another layout, and all that has ended.
    HomeAnew,
    /// MV46: Double: a change takes the gap of the page in place for empty.
    GapCounted,
    /// MV47: Double: a late page may lie on the way to its carrier, or in an unsettled slot.
    WayTorn,
    /// MV48: Double: the redo of slots writes over later pages that carry a change.
    RedoOverCarrier,
    /// MV49: Double: a repaired page is not flushed.
    RepairUnflushed,
    /// MV50: Double: any change that fits repairs a torn page.
    AnyCarrierRepairs,
    /// MV51: Double: at the end of a chain, the late page comes home without a slot.
    HomeInPlace,
    /// MV52: Double: a commit that changes the late page once more writes it, as with `Trust`.
    LateTwice,
    /// MV53: Double: the late page comes home through the slot of the newest commit.
    HomeIntoNewest,
    /// MV54: Double: after a repair, the next commit may write over the carrier.
    GoesOnAfterRepair,
    /// MV55: Double: the image of a late page has no entries that have ended, also where somebody reads them.
    ImageWithoutReaders,
    /// MV56: Double: a page that stays in its slot is written in place after the flush of the next slot.
    StaysAway,
    /// MV57: Double: a header settles the slot of such a page, which is not flushed in place.
    SettledInSlot,
    /// MV58: Double: where other handles live, no slot is redone that is older than what they see.
    StaysPublished,
    /// MV59: Double: recovery may leave a page in its slot that came home through it.
    HomeStays,
    /// No rule: Double: recovery may leave a page in its slot that is torn in place.
    TornStays,
    /// No rule: Double: the floor moves over a page that stays in its slot.
    FloorOverStays,
}

/// The reason why a run stops.
pub enum Stop {
    /// The power went, or the process died.
    Crash,
    /// The protocol is broken.
    Bug(String),
}

type Step<T> = Result<T, Stop>;

fn bug<T>(what: impl Into<String>) -> Step<T> {
    Err(Stop::Bug(what.into()))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Leaf,
    Inner,
    Catalog,
    Overflow,
}

/// The reason why an entry ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Lives,
    Moved,
    Killed,
    Replaced,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    Plain(u64),
    Chain(u32),
    Page(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ent {
    key: i64,
    start: u64,
    end: u64,
    why: Why,
    value: Value,
}

impl Ent {
    fn sees(&self, view: u64) -> bool {
        self.start <= view && view < self.end
    }

    fn live(&self) -> bool {
        self.end == INF
    }

    fn page(&self) -> Option<u32> {
        match self.value {
            Value::Page(p) => Some(p),
            _ => None,
        }
    }

    fn chain(&self) -> Option<u32> {
        match self.value {
            Value::Chain(p) => Some(p),
            _ => None,
        }
    }
}

/// A page, in memory.
#[derive(Clone)]
struct Page {
    kind: Kind,
    tree: u32,
    birth: u64,
    ents: Vec<Ent>,
    /// The level of an inner page, the content of an overflow page.
    data: u64,
}

impl Page {
    /// Takes back what happened after `state`.
    fn strip(&mut self, state: u64) {
        self.ents.retain(|e| e.start <= state);
        for e in &mut self.ents {
            if e.end != INF && e.end > state {
                e.end = INF;
                e.why = Why::Lives;
            }
        }
    }
}

/// A page as it was written once: `id` stands for its checksum.
#[derive(Clone)]
struct Image {
    page: Page,
    ver: u64,
    /// The version that its transaction began from.
    from: u64,
    base: u64,
    record: Option<Vec<(u32, u64)>>,
    /// The change of another page, which is late while it is older than this one.
    carries: Option<Rc<(u32, Page)>>,
    /// The same with `Double`.
    change: Option<Rc<Change>>,
    bytes: Rc<Bytes>,
    id: u64,
}

impl Image {
    /// An image that carries nothing.
    fn new(page: Page, ver: u64, from: u64, base: u64, id: u64) -> Image {
        Image {
            bytes: Rc::new(Bytes::of(&page, id)),
            page,
            ver,
            from,
            base,
            record: None,
            carries: None,
            change: None,
            id,
        }
    }
}

#[derive(Clone, Default)]
struct Header {
    seq: u64,
    marks: BTreeSet<u32>,
    floor: u64,
    /// Double: slots up to this version are not redone.
    settled: u64,
    free: BTreeSet<u32>,
    hwm: u32,
    /// No page has a higher version before another header is durable.
    reserved: u64,
    lost: Lost,
}

/// Ranges of versions that never happened: the last one before, and the last one of each.
type Lost = Vec<(u64, u64)>;

/// A slot of the double-write variant.
#[derive(Clone)]
struct Slot {
    version: u64,
    /// Its number among the slots of its transaction; 0: the only one.
    round: u64,
    /// Whether it commits its transaction.
    is_last: bool,
    images: BTreeMap<u32, Rc<Image>>,
    free: BTreeSet<u32>,
    hwm: u32,
}

/// The content of a version in the model: for each tree, its keys and values.
pub type World = BTreeMap<u32, BTreeMap<i64, u64>>;

struct Txn {
    version: u64,
    base: u64,
    dirty: HashMap<u32, Page>,
    own: HashSet<u32>,
    freed: BTreeSet<u32>,
    spilled: BTreeSet<u32>,
    free_at_base: BTreeSet<u32>,
    hwm_at_base: u32,
    /// The rounds written, of `double`; none before a header has prepared for them.
    rounds: Option<u64>,
    /// The pages that its last slot has, once that is durable.
    written: Option<Vec<(u32, Rc<Image>)>>,
}

/// The engine of the model.
struct Engine {
    disk: Disk,
    mutant: Option<Mutant>,
    double: bool,
    random: Random,
    snapshots: BTreeMap<u64, u64>,
    current: u64,
    durable: u64,
    next: u64,
    group: BTreeMap<u32, u64>,
    /// The page with the newest record.
    carrier: u32,
    marks: BTreeSet<u32>,
    free: BTreeSet<u32>,
    quarantine: BTreeSet<u32>,
    durable_free: BTreeSet<u32>,
    durable_hwm: u32,
    hwm: u32,
    ids: u64,
    slot: usize,
    txn: Option<Txn>,
    /// The state found by the open has been flushed, or needs no flush.
    found_flushed: bool,
    lost: Lost,
    /// The commits with a late page that are the newest ones.
    chain: Option<Chain>,
    /// The page that stays in its slot, and that slot.
    stays: Option<(u32, usize)>,
    /// Whether commits may have late pages.
    late: bool,
    late_commits: u64,
    /// Torn pages that their carriers have repaired.
    repairs: u64,
    /// Commits whose page stays in its slot, and such pages that recovery has left there.
    stay_commits: u64,
    left_in_slots: u64,
}

impl Engine {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn txn(&mut self) -> Step<&mut Txn> {
        self.txn.as_mut().ok_or(Stop::Bug("no transaction".into()))
    }

    fn version(&self) -> u64 {
        self.txn.as_ref().map_or(0, |t| t.version)
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// A page as the transaction or the disk has it.
    fn page(&self, page: u32) -> Step<Page> {
        if let Some(p) = self.txn.as_ref().and_then(|t| t.dirty.get(&page)) {
            return Ok(p.clone());
        }
        if let Some(late) = self.late_page(page) {
            return Ok(late.clone());
        }
        match self.newest_image(page) {
            Some(image) => Ok(self.without_lost(image)),
            None => bug(format!("page {page} was never written")),
        }
    }

    /// A page without the entries of lost versions.
    fn without_lost(&self, image: &Image) -> Page {
        let mut page = image.page.clone();
        let is_lost = |range: &&(u64, u64)| range.0 < image.ver && image.ver <= range.1;
        if !self.is(Mutant::BelieveLost)
            && let Some((after, _)) = self.lost.iter().find(is_lost)
        {
            page.strip(*after);
        }
        page
    }
}

use run::{Outcome, runs};

fn report(double: bool, mutant: Option<Mutant>, count: u64) -> Outcome {
    let outcome = runs(double, mutant, count);
    println!("double {double}, without {mutant:?}: {outcome:?}");
    outcome
}

#[test]
fn the_whole_protocol_keeps_every_commit() {
    for double in [false, true] {
        let outcome = report(
            double,
            None,
            crate::random::number("LSMVBT_MODEL_RUNS").unwrap_or(100),
        );
        assert_eq!(outcome.bugs, 0, "{outcome:?}");
        assert!(outcome.crashes > 0);
    }
}

#[test]
fn every_rule_is_needed() {
    every_mutant_is_caught(
        false,
        &[
            Mutant::NoList,
            Mutant::NoChecksum,
            Mutant::PreviousVersion,
            Mutant::NoUndo,
            Mutant::ReuseVersions,
            Mutant::ReuseAtOnce,
            Mutant::ReuseBeforeDurable,
            Mutant::CollectBase,
            Mutant::CollectDurable,
            Mutant::OwnersByLifetime,
            Mutant::MovedFrees,
            Mutant::NoUndoOfSpills,
            Mutant::NoFlushOfMarks,
            Mutant::BeyondReserved,
            Mutant::ReuseLostVersions,
            Mutant::BelieveLost,
            Mutant::ForgetLost,
            Mutant::FloorBelowLost,
            Mutant::CountUnmarked,
            Mutant::RecordOfOneCommit,
            Mutant::NoFlushOfFound,
            Mutant::NoFlushOfUndone,
            Mutant::RecordInTheMiddle,
            Mutant::RecordSpilled,
            Mutant::AnyLaterPage,
            Mutant::CarrierUnreached,
            Mutant::StaysLate,
            Mutant::HomeUnflushed,
            Mutant::LateForgotten,
            Mutant::FloorAboveCarrier,
            Mutant::HomeOfOldBase,
            Mutant::FloorAtBegin,
            Mutant::OldChange,
        ],
    );
}

#[test]
fn every_rule_of_double_is_needed() {
    every_mutant_is_caught(
        true,
        &[
            Mutant::NoUndo,
            Mutant::NoUndoOfSpills,
            Mutant::NoFlushOfMarks,
            Mutant::NoFlushOfFound,
            Mutant::NoFlushOfUndone,
            Mutant::NoFlushOfSlot,
            Mutant::RedoOneSlot,
            Mutant::RoundIntoNewest,
            Mutant::SettledTooEarly,
            Mutant::RoundUnmarked,
            Mutant::NoFlushOfBorn,
            Mutant::AnySlotCommits,
            Mutant::StripInPlace,
            Mutant::RoundsInAnyOrder,
            Mutant::SlotStaysUnsettled,
            Mutant::LastUnmarked,
            Mutant::CarrierUnreached,
            Mutant::StaysLate,
            Mutant::LateForgotten,
            Mutant::FloorAboveCarrier,
            Mutant::HomeAnew,
            Mutant::GapCounted,
            Mutant::WayTorn,
            Mutant::RedoOverCarrier,
            Mutant::RepairUnflushed,
            Mutant::AnyCarrierRepairs,
            Mutant::HomeInPlace,
            Mutant::LateTwice,
            Mutant::HomeIntoNewest,
            Mutant::GoesOnAfterRepair,
            Mutant::ImageWithoutReaders,
            Mutant::StaysAway,
            Mutant::SettledInSlot,
            Mutant::StaysPublished,
            Mutant::HomeStays,
        ],
    );
}

/// The engine does more here than the protocol needs: a page that stays in an unsettled slot is found there, whatever
/// stands in place, and wherever the floor is.
#[test]
fn what_is_no_rule_is_not_needed() {
    for mutant in [Mutant::TornStays, Mutant::FloorOverStays] {
        let outcome = report(true, Some(mutant), 100);
        assert_eq!(outcome.bugs, 0, "{outcome:?}");
        assert!(outcome.left_in_slots > 0);
    }
}

/// Seeds that caught a mutant for which the search from 0 takes long. They are tried first. Where the
/// model has changed they may catch nothing, and the search finds another one.
const CAUGHT_BY: &[(bool, Mutant, u64)] = &[
    (false, Mutant::ReuseBeforeDurable, 1099),
    (false, Mutant::BeyondReserved, 132),
    (false, Mutant::CountUnmarked, 1059),
    (false, Mutant::NoFlushOfUndone, 164),
    (false, Mutant::AnyLaterPage, 2484),
    (false, Mutant::CarrierUnreached, 297),
    (false, Mutant::HomeUnflushed, 317),
    (false, Mutant::HomeOfOldBase, 321),
    (false, Mutant::FloorAtBegin, 519),
    // Double.
    (true, Mutant::NoFlushOfMarks, 3095),
    (true, Mutant::NoFlushOfUndone, 682),
    (true, Mutant::LastUnmarked, 471),
    (true, Mutant::WayTorn, 1305),
    (true, Mutant::AnyCarrierRepairs, 12785),
    (true, Mutant::GoesOnAfterRepair, 6619),
    (true, Mutant::StaysAway, 401),
    (true, Mutant::SettledInSlot, 1039),
    (true, Mutant::StaysPublished, 919),
];

/// Runs with each mutant until it is caught, up to a limit. With `LSMVBT_FIRST` the search begins there,
/// and known seeds are not tried.
fn every_mutant_is_caught(double: bool, mutants: &[Mutant]) {
    let survives = |mutant: &&Mutant| runs_until_caught(double, **mutant, 20_000).bugs == 0;
    let survived: Vec<&Mutant> = mutants.iter().filter(survives).collect();
    assert!(survived.is_empty(), "not caught: {survived:?}");
}

fn runs_until_caught(double: bool, mutant: Mutant, most: u64) -> Outcome {
    let first = crate::random::number("LSMVBT_FIRST");
    let is_known = |known: &&(bool, Mutant, u64)| (known.0, known.1) == (double, mutant);
    let known = CAUGHT_BY.iter().find(is_known).map(|known| known.2);
    let first_of_all = known.filter(|_| first.is_none());
    let first = first.unwrap_or(0);
    let seeds = first_of_all.into_iter().chain(first..first + most);
    let outcome = run::until_caught(double, mutant, seeds);
    println!(
        "without {mutant:?}: caught after {} runs, {} crashes: {}",
        outcome.runs, outcome.crashes, outcome.first
    );
    outcome
}
