//! Opening and recovery.
//!
//! Recovery reads the header, the marked regions, and nothing else. With T the highest `ver` in
//! them:
//!
//! - T is not above F, which is the floor or the settled version of `double`: nothing happened
//!   since, v\* = F.
//! - The commit record of T is there, and every page it names has the checksum it names: v\* = T.
//! - Otherwise v\* is the highest of F and every `base` seen. That version was durable when some
//!   page of the broken commit was written, and is the newest such version.
//!
//! Then recovery undoes every page that has `ver` above v\* and was born by v\*. It removes entries
//! that started after v\*, and takes back ends after v\*. It writes the page with `ver` = T. The
//! version numbers up to T are used up. With `double`, it does that in rounds: see
//! [`crate::rounds`].

use std::collections::BTreeSet;
use std::time::Duration;

use crate::cache::Cache;
use crate::core::Core;
use crate::double::{Redone, is_double, protect};
use crate::error::{Error, Result};
use crate::freemap::{FIRST, FreeMap, is_fixed};
use crate::header::{Header, Marks, is_magic, newer_format};
use crate::home::Late;
use crate::make::blank_header;
use crate::page::{self, Image, PageType, Stamp, u64_at};
use crate::rounds::{Round, first_round_of_recovery};
use crate::shared::{
    self, AGAIN, CURRENT, DURABLE, EPOCH, FREE_SEQ, FREED, HEADER_DURABLE, HEADER_SEQ, HWM, LATE,
    LATE_COMMITS, NEXT, ONLY_READ, POISON, READY, SETTLED, SLOT, SLOT_COMMITS, SLOT_LARGEST, STAYS,
    UNHEALED, WRITING,
};
use crate::slots::Slots;
use crate::stays::Stays;
use crate::storage::{Lock, LockMode, READERS, Storage};
use crate::types::{Options, PAGE_SIZE, PageNo, Stats};

/// Milliseconds that an open waits for another one that is recovering.
const OPEN_TRIES: u32 = 2000;

/// Times that a handle reads the header while others write new ones.
pub(crate) const HEADER_TRIES: u32 = 100;

/// The data of a page that recovery needs.
pub(crate) struct Seen {
    pub(crate) page: u32,
    pub(crate) kind: u8,
    pub(crate) birth: u64,
    pub(crate) ver: u64,
    pub(crate) from: Option<u64>,
    pub(crate) base: u64,
    pub(crate) crc: u32,
    pub(crate) carries: bool,
    /// The page whose change it carries; 0: none.
    pub(crate) late: u32,
}

pub(crate) fn seen(image: &Image, page: u32, salt: u64) -> Option<Seen> {
    page::verify(image, PageNo(page), salt).ok()?;
    let (birth, ver) = (u64_at(image, 24), u64_at(image, 32));
    let kind = image[16];
    (kind <= PageType::Record.byte() && birth <= ver && ver != u64::MAX).then(|| Seen {
        page,
        kind,
        birth,
        ver,
        from: page::from_of(image),
        base: u64_at(image, 40),
        crc: page::crc_of(image),
        carries: image[18] & 1 == 1 && kind != PageType::Record.byte(),
        late: page::change::late_page_of(image),
    })
}

impl Core {
    /// Opens the database.
    pub(crate) fn open(storage: Box<dyn Storage>, options: Options) -> Result<Core> {
        let double = is_double(options.torn, &*storage);
        let mut core = Core {
            double,
            salt: 0,
            cache: Cache::new(options.cache_pages),
            found: Default::default(),
            options,
            stats: Stats::default(),
            header: blank_header(0),
            lost: Default::default(),
            healing: None,
            marked_by: 0,
            header_flushed: false,
            slots_may_have_moved: false,
            space: Default::default(),
            unflushed: Default::default(),
            chain: Default::default(),
            ring: 0,
            epoch: 0,
            held: Default::default(),
            snapshots: Vec::new(),
            txn: None,
            durable_keeps_since: 0,
            changes: Default::default(),
            generation: 0,
            since_pass: 0,
            number: 0,
            is_waiting: false,
            dead_pages: Default::default(),
            equal_router: false,
            walked: Default::default(),
            is_told: false,
            storage,
        };
        core.lock_patiently(Lock::RECOVER, LockMode::Exclusive)?;
        let opened = core.open_locked();
        core.unlock(Lock::RECOVER, LockMode::Exclusive)?;
        opened.map(|()| core)
    }

    pub(crate) fn lock_patiently(&self, lock: Lock, mode: LockMode) -> Result<()> {
        for _ in 0..OPEN_TRIES {
            if self
                .storage
                .lock(lock, mode)
                .map_err(Error::io("taking a lock"))?
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Error::Busy)
    }

    pub(crate) fn lock_now(&self, lock: Lock, mode: LockMode) -> Result<bool> {
        self.storage
            .lock(lock, mode)
            .map_err(Error::io("taking a lock"))
    }

    fn open_locked(&mut self) -> Result<()> {
        if self.lock_now(Lock::OPEN, LockMode::Exclusive)? {
            // No other handle has it open: the content of shared memory has no owner.
            let begun = self.open_first();
            self.unlock(Lock::OPEN, LockMode::Exclusive)?;
            begun?;
            return self.lock_patiently(Lock::OPEN, LockMode::Shared);
        }
        self.lock_patiently(Lock::OPEN, LockMode::Shared)?;
        if self.load(READY)? != shared::MAGIC {
            self.unlock(Lock::OPEN, LockMode::Shared)?;
            return Err(Error::Busy);
        }
        let joined = self.join();
        if joined.is_err() {
            self.unlock(Lock::OPEN, LockMode::Shared)?;
        }
        joined
    }

    /// Learns the state from the handles that have it open.
    fn join(&mut self) -> Result<()> {
        self.learn_file()?;
        self.check_poison()?;
        self.learn_torn()?;
        self.header = self.read_header_of_others()?;
        self.salt = self.header.salt;
        self.learn_lost()?;
        self.tell_only_read()?;
        self.skip_own_news()
    }

    /// Tells that a handle has it open which cannot leave a clean header.
    fn tell_only_read(&self) -> Result<()> {
        match self.options.read_only {
            true => self.store(ONLY_READ, 1),
            false => Ok(()),
        }
    }

    fn open_first(&mut self) -> Result<()> {
        self.store(READY, 0)?;
        self.store(AGAIN, 1)?;
        for word in [
            POISON,
            WRITING,
            SETTLED,
            SLOT,
            DURABLE,
            CURRENT,
            HWM,
            UNHEALED,
            FREED,
            HEADER_DURABLE,
            ONLY_READ,
            SLOT_COMMITS,
            SLOT_LARGEST,
            LATE,
            LATE_COMMITS,
            STAYS,
        ] {
            self.store(word, 0)?;
        }
        self.declare_lost(0, 0)?;
        for i in 0..shared::WAITERS {
            self.store(shared::WAITING + i, 0)?;
        }
        for i in 0..READERS {
            self.store(shared::MARK_LOW + i, 0)?;
            self.store(shared::MARK_HIGH + i, 0)?;
        }
        self.keep_found();
        self.header = match self.read_header() {
            Err(Error::NotADatabase | Error::Damaged { .. }) if self.never_formatted()? => {
                self.forget_found();
                self.format()?;
                self.store(AGAIN, 0)?;
                self.read_header()?
            }
            header => header?,
        };
        self.salt = self.header.salt;
        self.store(UNHEALED, self.header.lives_unhealed())?;
        let clean = self.header.marks.is_empty();
        if clean {
            let floor = self.header.floor;
            self.space.map = self.read_maps(&self.header.clone())?.unwrap_or_default();
            protect(&mut self.space.map, &self.header);
            self.begin_life(floor, floor)?;
        } else if self.options.read_only {
            return Err(Error::NeedsRecovery);
        } else {
            self.recover(0)?;
        }
        self.learn_lost()?;
        self.tell_file()?;
        self.tell_torn()?;
        self.tell_only_read()?;
        self.store(READY, shared::MAGIC)
    }

    /// Shared memory for a database in which this version is the only one, known to be durable.
    fn begin_life(&mut self, version: u64, durable: u64) -> Result<()> {
        self.forget_found();
        // The number of a transaction that was rolled back may be settled, above the version that
        // counts. It is not used again: recovery would leave out the slot of its commit.
        let over = version.max(self.header.settled);
        self.store(DURABLE, durable)?;
        self.store(SETTLED, over)?;
        self.store(NEXT, over + 1)?;
        self.store(HEADER_SEQ, self.header.seq)?;
        let epoch = self.load(EPOCH)?;
        self.store(EPOCH, epoch + 1)?;
        let words = (self.space.map.hwm as usize).div_ceil(64);
        // Where nobody has come here since the shared memory was made, its map is zeros: no page is free. To
        // store them once more would take a page of it for each 128 MiB of the file.
        let has_zeros = epoch == 0;
        for i in 0..words {
            let word = self.space.map.words().get(i).copied().unwrap_or(0);
            if word != 0 || !has_zeros {
                self.store(shared::free_word(i), word)?;
            }
        }
        self.store(HWM, u64::from(self.space.map.hwm))?;
        let seq = self.load(FREE_SEQ)? + 1;
        self.space.published_whole(words, seq);
        self.store(FREE_SEQ, seq)?;
        self.unflushed.flushed_to(durable);
        self.space.set_version(version);
        self.cache.clear();
        self.store(CURRENT, version)?;
        self.store(WRITING, 0)?;
        self.skip_own_news()
    }

    // ---- the header

    /// The newest header that is whole, with all its maps.
    pub(crate) fn read_header(&mut self) -> Result<Header> {
        let mut found: Vec<Header> = Vec::new();
        let (mut magic, mut newer) = (false, None);
        for page in [0, 1] {
            let image = self.read_image(page)?;
            newer = newer.or(newer_format(&image));
            magic |= is_magic(&image[..]);
            found.extend(Header::decode(&image, PageNo(page))?);
        }
        found.sort_by_key(|h| std::cmp::Reverse(h.seq));
        // An upgrade that was cut: an earlier release would find the older one, and take it.
        let is_newest_format = found.iter().all(|header| header.is_newest_format);
        for header in found {
            self.salt = header.salt;
            if self.read_maps(&header)?.is_some() {
                // Its writer may have died before it flushed it.
                self.header_flushed = false;
                return Ok(Header {
                    is_newest_format,
                    ..header
                });
            }
        }
        if let Some(newer) = newer {
            // A header that is whole counts more than these bytes, which may be damaged.
            Err(newer)
        } else if magic {
            Err(Error::Damaged {
                page: PageNo(0),
                what: "neither header is whole",
            })
        } else {
            Err(Error::NotADatabase)
        }
    }

    /// The newest header, while other handles may write more of them: two, while this one reads, make
    /// a map that it reads one of a later header. Then it reads again.
    pub(crate) fn read_header_of_others(&mut self) -> Result<Header> {
        for _ in 1..HEADER_TRIES {
            let before = self.load(HEADER_SEQ)?;
            let read = self.read_header();
            let is_same = self.load(HEADER_SEQ)? == before;
            match read {
                Ok(header) if is_same => return Ok(header),
                // 0: a writer is at it, or died there.
                Err(e) if is_same && before != 0 => return Err(e),
                Err(e @ (Error::Io { .. } | Error::NoMemory)) => return Err(e),
                Ok(_) | Err(_) => std::thread::yield_now(),
            }
        }
        self.read_header()
    }

    /// True if no header was written after the one that this handle knows.
    pub(crate) fn knows_newest_header(&mut self) -> Result<bool> {
        match self.load(HEADER_SEQ)? {
            0 => Ok(self.read_header_of_others()?.seq == self.header.seq),
            seq => Ok(seq == self.header.seq),
        }
    }

    /// The free map of a header; `None` if a map does not match it.
    fn read_maps(&mut self, header: &Header) -> Result<Option<FreeMap>> {
        if let Some(free) = self.found_map(header) {
            return Ok(Some(free));
        }
        let mut free = FreeMap::new(header.hwm.max(FIRST));
        for (span, map) in header.maps.iter().enumerate() {
            if map.copy > 1 {
                continue;
            }
            let at =
                span as u32 * crate::freemap::SPAN + crate::freemap::MAP_AT[usize::from(map.copy)];
            let image = self.read_image(at)?;
            let whole = page::verify(&image, PageNo(at), header.salt).is_ok()
                && page::crc_of(&image) == map.crc
                && free.decode(&image, span).is_some();
            if !whole {
                return Ok(None);
            }
        }
        self.note_found_map(header, &free);
        Ok(Some(free))
    }

    // ---- recovery

    /// A writer died while other handles live: as after a crash, but with active readers.
    pub(crate) fn recover_live(&mut self) -> Result<()> {
        self.keep_found();
        let recovered = self.recover_published();
        self.forget_found();
        recovered
    }

    fn recover_published(&mut self) -> Result<()> {
        self.learn_torn()?;
        self.header = self.read_header()?;
        self.header_flushed = false;
        self.store(HEADER_DURABLE, 0)?;
        // The power is on: the published pages are there, flushed or not, and readers may be using
        // them.
        let published = self.load(CURRENT)?;
        self.recover(published)
    }

    /// Recovers. `published`: a version that is known to be whole, 0 if none is known.
    fn recover(&mut self, published: u64) -> Result<()> {
        self.store(UNHEALED, self.load(UNHEALED)? + 1)?;
        self.store(FREED, 0)?;
        self.healing = None;
        self.announce_regions()?;
        let again = self.load(AGAIN)? != 0;
        if again {
            self.write_header_again()?;
            self.write_slots_again()?;
        }
        let Redone {
            newest,
            next_slot,
            unsettled,
            places,
            stays,
        } = self.redo_slots(published)?;
        let redone = newest.map(|(version, _)| version);
        if published == 0 {
            self.store(SLOT, u64::from(next_slot))?;
        }
        let (pages, late) = self.find_pages(&places, unsettled, &stays)?;
        // A slot may be there without the header of its commit, which marks what was born in it.
        let header = &self.header;
        let unmarked = pages
            .iter()
            .any(|s| s.birth > header.floor && !header.marks(s.page));
        if again {
            // Pages of commits through slots are in place again, and as durable as their slots.
            self.write_pages_again(&pages, redone.unwrap_or(0))?;
            self.store(AGAIN, 0)?;
        }
        if published == 0 {
            self.flush_what_may_go(&pages)?;
        }
        // A settled version is durable and in place: a commit through a slot, which carries no
        // record to identify it.
        let floor = self.header.floor.max(self.header.settled).max(published);
        let top = pages
            .iter()
            .map(|s| s.ver)
            .max()
            .unwrap_or(floor)
            .max(floor);
        // Only the last slot of a transaction makes it whole (MV32).
        let is_redone = newest.is_some_and(|(version, round)| version == top && round.is_last);
        if top == floor || is_redone || self.is_complete(top, &pages)? {
            let slots_hold_news = redone.is_some() && (!self.double || unmarked);
            // A commit of `double` may tear a free page that the record of `top` names. If numbers
            // were reserved, a header that needs no record is durable before its first page is
            // written: its number is above them (MV15).
            let needs_record =
                self.double && top > floor && redone != Some(top) && self.header.reserved == 0;
            // With `double`, a page comes home through a slot.
            let needs_slot = self.double && late.is_some() && Slots::of(&self.header).is_none();
            if published == 0 && !slots_hold_news && !needs_record && !needs_slot {
                return self.go_on(top, &pages, newest, stays);
            }
            self.redo_what_stays(stays)?;
            if late.is_some() {
                self.flush_what_was_found()?;
                self.take_back(top, top, &pages, newest, next_slot)?;
                self.flush_storage()?;
            }
            return self.begin_again(top, top, &pages, published);
        }
        self.redo_what_stays(stays)?;
        // Not `top - 1` (MV3): that version may never have been durable.
        let bases = pages.iter().map(|s| s.base);
        let durable = bases.max().unwrap_or(floor).max(floor);
        let state = self.whole_before(top, durable, &pages)?;
        self.flush_what_was_found()?;
        self.take_back(top, state, &pages, newest, next_slot)?;
        self.flush_storage()?; // MV25
        self.begin_again(state, top, &pages, published)
    }

    /// The pages that recovery looks at, and the late one. `places` are those of the slots that are not settled,
    /// of which `unsettled` is the newest version.
    fn find_pages(
        &mut self,
        places: &[u32],
        unsettled: u64,
        stays: &Option<(Stays, Box<Image>)>,
    ) -> Result<(Vec<Seen>, Option<Late>)> {
        let mut pages = self.look_at_regions(places)?;
        if let Some((Stays { page, .. }, image)) = stays {
            pages.retain(|s| s.page != *page);
            pages.extend(seen(image, *page, self.salt));
            pages.sort_unstable_by_key(|s| s.page);
        }
        let than = self.header.floor.max(self.header.settled).max(unsettled);
        self.repair_late_page(&mut pages, than)?;
        let late = self.learn_late(&pages, than, unsettled == 0)?;
        Ok((pages, late))
    }

    /// Strips the pages of the broken commit `top` to `state`, and brings the late page home (MV40).
    fn take_back(
        &mut self,
        top: u64,
        state: u64,
        pages: &[Seen],
        newest: Option<(u64, Round)>,
        next_slot: u32,
    ) -> Result<()> {
        let changed = pages.iter().filter(|s| s.ver > state && s.birth <= state);
        let late = self.late()?.map(|late| late.page);
        let changed: BTreeSet<u32> = changed.map(|s| s.page).chain(late).collect();
        let changed: Vec<u32> = changed.into_iter().collect();
        let stamp = Stamp {
            ver: top,
            from: state,
            durable: state,
        };
        let next = match self.double && !changed.is_empty() {
            true => {
                self.prepare_rounds_of_recovery(changed.len(), pages, state)?;
                Some(first_round_of_recovery(top, newest, next_slot))
            }
            false => None,
        };
        self.strip_pages(&changed, stamp, next) // MV4
    }

    /// Later writes build on the recovered state. It must still be there after the next crash, so
    /// it is flushed before anything is written (MV24).
    pub(crate) fn flush_what_was_found(&mut self) -> Result<()> {
        // Another handle's flush may have covered its header.
        if self.header_flushed || self.load(HEADER_DURABLE)? == self.header.seq {
            Ok(())
        } else {
            self.flush_storage()
        }
    }

    /// The newest commit is whole: everything is as its writer left it, and the header stays. The
    /// writer may have died before it flushed the commit. Nothing is known to be durable then, so
    /// that the next handle to begin a write transaction flushes.
    fn go_on(
        &mut self,
        version: u64,
        pages: &[Seen],
        newest: Option<(u64, Round)>,
        stays: Option<(Stays, Box<Image>)>,
    ) -> Result<()> {
        self.space.map = self.rebuild_free(pages, version)?;
        let durable = if self.header_flushed { version } else { 0 };
        let reserved = self.header.reserved;
        self.declare_lost(version, reserved.max(version))?;
        self.begin_life(version, durable)?;
        // None of these numbers is used again (MV16).
        self.store(NEXT, reserved.max(version) + 1)?;
        self.set_stays(stays.map(|(stays, _)| stays))?;
        match newest {
            // The slots are not settled.
            Some(_) => self.store(SETTLED, self.header.settled),
            None => Ok(()),
        }
    }

    /// The state becomes `state`, under the number `top` at least, starting from a header that says
    /// so.
    ///
    /// After a crash the header is not flushed. The header before it leads to the same state, and
    /// is not overwritten until this one is durable. With other live handles it is flushed: nothing
    /// else may record the version that was published and not flushed. The marks stay there too, so
    /// that the next handle to open it flushes that version before it relies on it.
    fn begin_again(&mut self, state: u64, top: u64, pages: &[Seen], published: u64) -> Result<()> {
        let free = self.rebuild_free(pages, state)?;
        // Live handles must notice the recovery, so the version moves in any case: past all numbers that were given
        // (MV5). The handle of a transaction that was rolled back knows its number.
        let given = match published {
            0 => 0,
            _ => self.newest_over()?,
        };
        let mut version = top.max(given);
        let mut header = self.header.clone();
        if published == 0 && header.reserved > 0 {
            // The lost ones are not above the floor (MV19), and none is used again (MV5, MV16).
            version = version.max(header.reserved);
            self.declare_lost(state, version)?;
        }
        header.floor = version;
        header.settled = version;
        if published == 0 {
            header.marks = Marks::Some(Default::default());
            header.reserved = 0;
        }
        self.write_header(header, Some(&free))?;
        if published != 0 {
            self.flush_storage()?;
        }
        self.set_late(None)?;
        self.space.map = free;
        self.begin_life(version, version)
    }

    /// Pages that the file has, whatever is in them.
    pub(crate) fn pages_of_file(&self) -> Result<u32> {
        let pages = self.file_size()? / PAGE_SIZE as u64;
        Ok(u32::try_from(pages).unwrap_or(u32::MAX))
    }

    /// Reads the marked regions, these pages, and those to which changes lead; not the slots. Leaves out pages that are not newer
    /// than the floor: no record names them, and the free map has them.
    pub(crate) fn look_at_regions(&mut self, others: &[u32]) -> Result<Vec<Seen>> {
        let end = self.pages_of_file()?;
        let pages = self.pages_to_look_at(others, end);
        let mut found = self.look_at_pages(&pages)?;
        self.follow_changes(&mut found, end)?;
        Ok(found)
    }

    /// The free map of a state: pages free at the floor, less those born since, and with those born
    /// after the state.
    pub(crate) fn rebuild_free(&mut self, pages: &[Seen], state: u64) -> Result<FreeMap> {
        let header = self.header.clone();
        let old = self.read_maps(&header)?.ok_or(Error::Damaged {
            page: PageNo(0),
            what: "its free map is not whole",
        })?;
        let in_use = |s: &&Seen| {
            s.birth <= state
                && s.kind != PageType::Record.byte()
                && (s.birth > header.floor || (!old.contains(s.page) && s.page < old.hwm))
        };
        let end = pages
            .iter()
            .filter(in_use)
            .map(|s| s.page + 1)
            .max()
            .unwrap_or(0);
        let mut free = old.clone();
        free.hwm = old.hwm.max(end);
        for page in old.hwm..free.hwm {
            if !is_fixed(page) {
                free.insert(page);
            }
        }
        for s in pages {
            if in_use(&s) {
                free.remove(s.page);
            } else if s.birth > state && s.page < free.hwm && !is_fixed(s.page) {
                free.insert(s.page);
            }
        }
        protect(&mut free, &header);
        Ok(free)
    }
}
