//! A device next to a model of it, under random commands, with power cuts and failing programs.
//!
//! The model is a byte array. For each logical page it has the current version, and the versions
//! that a power cut may leave instead. A version is a number. The page's bytes follow from page and
//! version, so that no page can be confused with another.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::counts::Counts;
use super::make::Make;
use crate::ftl::oob::{Content, Oob};
use crate::ftl::{Ftl, FtlError, Lpn, Tid};
use crate::nand::timing::Timing;
use crate::nand::{BlockNo, Nand, NandError, Ppn};
use crate::queue::{Order, Queue};
use crate::random::Random;

/// The possible contents of a page after a power cut: the durable version, and everything since.
#[derive(Clone, Debug)]
struct PageModel {
    versions: Vec<u64>,
}

impl PageModel {
    fn current(&self) -> u64 {
        self.versions.last().copied().unwrap_or(0)
    }
}

/// A device and its model.
pub(super) struct Pair {
    make: Make,
    /// `None` only while the power is off.
    device: Option<Ftl>,
    queue: Queue,
    pages: Vec<PageModel>,
    active: BTreeMap<Tid, BTreeMap<Lpn, u64>>,
    next_version: u64,
    random: Random,
    pub(super) counts: Counts,
    /// Pages that were needed when the power went; none after recovery.
    before_cut: Vec<Ppn>,
    /// The NAND of a device that cannot be opened.
    closed: Option<Nand>,
    /// Whether an error of the device ends its life: a worn-out one is replaced.
    pub(super) is_worn_out: bool,
    /// Whether it has too little time to move blocks, so that it may lose pages.
    pub(super) may_lose: bool,
    /// Whether an error was found that no bit errors explain.
    pub(super) has_invented: bool,
    /// Whether recovery has failed as bit errors took what it needs.
    has_lost_bookkeeping: bool,
}

/// The version of a page that was lost to bit errors: reads of it fail.
const LOST: u64 = u64::MAX;

/// A broken rule.
pub(super) type Violation = String;

impl Pair {
    pub(super) fn new(make: Make, seed: u64) -> Result<Self, Violation> {
        let timing = Timing::built_in("openssd").ok_or("no such NAND")?;
        let mut nand = Nand::new(make.geometry, timing)?;
        if make.config.pairs {
            nand = nand.with_pairs()?;
        }
        if let Some(errors) = make.errors() {
            nand = nand.with_bit_errors(errors);
        }
        let mut random = Random::new(seed);
        nand.faults.random = Random::new(random.next());
        nand.faults.fail_one_in = make.fail_one_in;
        if make.fail_one_in > 0 {
            // A factory delivers bad blocks too.
            nand.mark_bad(BlockNo(random.below(make.geometry.blocks() as usize) as u32))
                .map_err(|error| error.to_string())?;
        }
        let (device, _) =
            Ftl::open_as(nand, make.config, make.flaw).map_err(|error| error.to_string())?;
        let page = PageModel { versions: vec![0] };
        Ok(Self {
            make,
            queue: Queue::new(&device, make.depth),
            device: Some(device),
            pages: vec![page; make.config.logical_pages as usize],
            active: BTreeMap::new(),
            next_version: 1,
            random,
            counts: Counts {
                devices: 1,
                ..Counts::default()
            },
            before_cut: Vec::new(),
            closed: None,
            is_worn_out: false,
            may_lose: false,
            has_invented: false,
            has_lost_bookkeeping: false,
        })
    }

    fn device(&mut self) -> Result<&mut Ftl, Violation> {
        self.device
            .as_mut()
            .ok_or_else(|| "the power is off".to_owned())
    }

    /// The power goes after this many NAND operations.
    pub(super) fn cut_after(&mut self, operations: u64) -> Result<(), Violation> {
        self.device()?.nand_mut().faults.power_off_after = Some(operations);
        Ok(())
    }

    /// NAND operations so far.
    pub(super) fn nand_operations(&mut self) -> Result<u64, Violation> {
        let done = self.device()?.nand().operations();
        Ok(done.reads + done.programs + done.erases)
    }

    fn bytes(&self, lpn: Lpn, version: u64) -> Vec<u8> {
        let bytes = self.make.geometry.page_bytes as usize;
        if version == 0 {
            return vec![0; bytes];
        }
        let mut word = Random::of_part(version, u64::from(lpn.0));
        (0..bytes / 8)
            .flat_map(|_| word.next().to_be_bytes())
            .collect()
    }

    fn some_page(&mut self) -> Lpn {
        let pages = self.pages.len();
        // Half of the commands go to an eighth of the pages.
        match self.random.percent(50) {
            true => Lpn(self.random.below(pages.div_ceil(8)) as u32),
            false => Lpn(self.random.below(pages) as u32),
        }
    }

    fn some_transaction(&mut self) -> Tid {
        Tid(1 + self.random.below(4) as u64)
    }

    /// One random command. `Ok(false)`: the power went in it.
    pub(super) fn step(&mut self) -> Result<bool, Violation> {
        self.counts.operations += 1;
        let command = self.random.below(100);
        let order = match command {
            80..85 => Order::Flush,
            _ => Order::Any,
        };
        if let Some(device) = &mut self.device {
            self.queue.begin(device, None, order);
        }
        let done = self.command(command);
        if let Some(device) = &self.device {
            self.queue.answer(device, order);
        }
        done
    }

    fn command(&mut self, command: usize) -> Result<bool, Violation> {
        match command {
            0..30 => self.write(),
            30..62 => self.write_in(),
            62..72 => self.read(),
            72..77 => self.trim(),
            77..80 => self.trim_in(),
            80..85 => self.flush(),
            85..96 => self.commit(),
            96..98 => self.merge(),
            _ => self.abort(),
        }
    }

    /// The outcome of a command: `Some` if it was done, `None` if the power went or a refusal was
    /// expected.
    fn outcome<T>(
        &mut self,
        done: Result<T, FtlError>,
        what: &str,
    ) -> Result<Option<T>, Violation> {
        self.take_lost()?;
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error) if error.is_power_off() => Ok(None),
            Err(FtlError::WornOut { .. }) if self.make.fail_one_in > 0 => {
                self.is_worn_out = true;
                Ok(None)
            }
            Err(error) => Err(format!("{what}: {error}")),
        }
    }

    /// The device has marked pages as lost before it did a command.
    fn take_lost(&mut self) -> Result<(), Violation> {
        let lost = match &mut self.device {
            Some(device) => std::mem::take(&mut device.lost),
            None => return Ok(()),
        };
        for page in lost {
            if !page.is_true || !self.may_lose {
                return Err(format!("a page was lost: {page:?}"));
            }
            self.counts.marked_lost += 1;
            match page.content {
                Content::Data(lpn) => {
                    let versions = &mut self.pages[lpn.0 as usize].versions;
                    // The version before a trim may come back.
                    let at = versions.len() - usize::from(page.is_trimmed);
                    versions.insert(at, LOST);
                }
                Content::Transaction(tid, lpn) => {
                    self.active.entry(tid).or_default().insert(lpn, LOST);
                }
                // Memory has it.
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that a read found a version.
    fn check_read(
        &mut self,
        lpn: Lpn,
        read: Result<Arc<[u8]>, FtlError>,
        version: u64,
    ) -> Result<(), Violation> {
        match read {
            Err(FtlError::Lost { page }) if page == lpn && version == LOST => Ok(()),
            // It is not marked yet.
            Err(FtlError::Nand(NandError::Uncorrectable(ppn)))
                if self.may_lose && self.device()?.nand().is_lost(ppn, 0) =>
            {
                Ok(())
            }
            Ok(_) if version == LOST => {
                self.has_invented = true;
                Err(format!("page {} is lost, and can be read", lpn.0))
            }
            read => match self.outcome(read, "read")? {
                Some(found) if *found != *self.bytes(lpn, version) => {
                    Err(format!("page {} is not version {version}", lpn.0))
                }
                _ => Ok(()),
            },
        }
    }

    fn is_off(&self) -> bool {
        self.device
            .as_ref()
            .is_none_or(|device| !device.nand().is_on())
    }

    fn holder(&self, lpn: Lpn) -> Option<Tid> {
        let mut holders = self
            .active
            .iter()
            .filter(|(_, pages)| pages.contains_key(&lpn));
        holders.next().map(|(tid, _)| *tid)
    }

    fn new_version(&mut self) -> u64 {
        self.next_version += 1;
        self.next_version
    }

    /// Whether a refusal is the right one: another transaction has the page.
    fn is_conflict(
        &mut self,
        lpn: Lpn,
        tid: Option<Tid>,
        done: &Result<(), FtlError>,
    ) -> Result<bool, Violation> {
        let other = self.holder(lpn).filter(|holder| Some(*holder) != tid);
        match (done, other) {
            (Err(FtlError::Conflict { page, holder }), Some(other))
                if *page == lpn && *holder == other =>
            {
                self.counts.conflicts += 1;
                Ok(true)
            }
            (Err(FtlError::Conflict { .. }), _) => {
                Err(self.invented(format!("page {} conflicts with nobody", lpn.0)))
            }
            (Ok(()), Some(other)) => Err(format!(
                "page {} could be written though transaction {} has it",
                lpn.0, other.0
            )),
            _ => Ok(false),
        }
    }

    fn write(&mut self) -> Result<bool, Violation> {
        let (lpn, version) = (self.some_page(), self.new_version());
        let bytes = self.bytes(lpn, version);
        let done = self.device()?.write(lpn, &bytes);
        self.written(lpn, version, done, "write")
    }

    fn trim(&mut self) -> Result<bool, Violation> {
        let lpn = self.some_page();
        let done = self.device()?.trim(lpn);
        self.written(lpn, 0, done, "trim")
    }

    fn written(
        &mut self,
        lpn: Lpn,
        version: u64,
        done: Result<(), FtlError>,
        what: &str,
    ) -> Result<bool, Violation> {
        if self.is_conflict(lpn, None, &done)? {
            return Ok(true);
        }
        let done = self.outcome(done, what)?;
        // If the power went, it may be there or not: the later check knows.
        if done.is_some() || self.is_off() {
            self.pages[lpn.0 as usize].versions.push(version);
        }
        Ok(!self.is_off())
    }

    fn write_in(&mut self) -> Result<bool, Violation> {
        let (tid, lpn, version) = (
            self.some_transaction(),
            self.some_page(),
            self.new_version(),
        );
        let bytes = self.bytes(lpn, version);
        let done = self.device()?.write_in(tid, lpn, &bytes);
        self.written_in(tid, lpn, version, done)
    }

    fn trim_in(&mut self) -> Result<bool, Violation> {
        let (tid, lpn) = (self.some_transaction(), self.some_page());
        let done = self.device()?.trim_in(tid, lpn);
        self.written_in(tid, lpn, 0, done)
    }

    fn written_in(
        &mut self,
        tid: Tid,
        lpn: Lpn,
        version: u64,
        done: Result<(), FtlError>,
    ) -> Result<bool, Violation> {
        if self.is_conflict(lpn, Some(tid), &done)? {
            return Ok(true);
        }
        if let Err(FtlError::TableFull { capacity }) = done {
            let entries: usize = self.active.values().map(BTreeMap::len).sum();
            self.counts.table_full += 1;
            return match entries == capacity as usize && capacity == self.make.config.table_capacity
            {
                true => Ok(true),
                false => Err(self.invented(format!("the table is full with {entries} entries"))),
            };
        }
        if self.outcome(done, "write in a transaction")?.is_some() {
            self.active.entry(tid).or_default().insert(lpn, version);
        }
        Ok(!self.is_off())
    }

    fn read(&mut self) -> Result<bool, Violation> {
        let (lpn, tid) = (self.some_page(), self.some_transaction());
        let committed = self.pages[lpn.0 as usize].current();
        let own = self
            .active
            .get(&tid)
            .and_then(|pages| pages.get(&lpn))
            .copied();
        let outside = self.device()?.read(lpn);
        let inside = self.device()?.read_in(tid, lpn);
        for (read, version) in [(outside, committed), (inside, own.unwrap_or(committed))] {
            self.check_read(lpn, read, version)?;
        }
        Ok(!self.is_off())
    }

    fn flush(&mut self) -> Result<bool, Violation> {
        let done = self.device()?.flush();
        if self.outcome(done, "flush")?.is_some() {
            self.check_valid()?;
            for page in &mut self.pages {
                page.versions = vec![page.current()];
            }
            let pages = (0..).zip(&self.pages);
            let lost = pages.filter(|(_, page)| page.current() == LOST);
            for lpn in lost.map(|(lpn, _)| Lpn(lpn)).collect::<Vec<_>>() {
                let read = self.device()?.read(lpn);
                self.check_read(lpn, read, LOST)?;
            }
        }
        Ok(!self.is_off())
    }

    fn commit(&mut self) -> Result<bool, Violation> {
        let tid = self.some_transaction();
        let done = self.device()?.commit(tid);
        let done = self.outcome(done, "commit")?;
        match (done, self.is_off()) {
            (Some(()), _) => {
                for (lpn, version) in self.active.remove(&tid).unwrap_or_default() {
                    self.pages[lpn.0 as usize].versions = vec![version];
                }
                self.counts.commits += 1;
                self.check_valid()?;
            }
            (None, true) => {
                let in_doubt = self.active.remove(&tid).unwrap_or_default();
                self.active.clear();
                self.recover(in_doubt)?;
                return Ok(true);
            }
            (None, false) => {}
        }
        Ok(!self.is_off())
    }

    fn merge(&mut self) -> Result<bool, Violation> {
        let (from, into) = (self.some_transaction(), self.some_transaction());
        let done = self.device()?.merge(from, into);
        if self.outcome(done, "merge")?.is_some() {
            let moved = self.active.remove(&from).unwrap_or_default();
            self.counts.merged += moved.len() as u64;
            self.active.entry(into).or_default().extend(moved);
        }
        Ok(!self.is_off())
    }

    fn abort(&mut self) -> Result<bool, Violation> {
        let tid = self.some_transaction();
        let done = self.device()?.abort(tid);
        self.active.remove(&tid);
        self.outcome(done, "abort")?;
        Ok(!self.is_off())
    }

    /// The power comes back. Opens the device, even if the power goes again meanwhile, and checks
    /// every page. Transactions were active; one may have been about to commit.
    pub(super) fn recover(&mut self, in_doubt: BTreeMap<Lpn, u64>) -> Result<(), Violation> {
        self.counts.cuts += 1;
        self.counts.commits_in_doubt += u64::from(!in_doubt.is_empty());
        self.active.clear();
        self.before_cut = self.needed();
        self.reopen()?;
        let found = self.found(&in_doubt)?;
        let mut committed: Option<bool> = None;
        for (lpn, version) in found {
            let page = &mut self.pages[lpn.0 as usize];
            let (is_old, is_new) = (
                page.versions.contains(&version),
                in_doubt.get(&lpn) == Some(&version),
            );
            let is_in_doubt = in_doubt.contains_key(&lpn);
            match (is_in_doubt, is_old, is_new) {
                (_, false, false) => {
                    return Err(format!(
                        "page {} has version {version}, and could have {:?} (in doubt: {:?})",
                        lpn.0,
                        page.versions,
                        in_doubt.get(&lpn)
                    ));
                }
                // Both at once show nothing: it was trimmed before, and trimmed again.
                (true, is_old, is_new) if is_old != is_new => {
                    if committed.is_some_and(|committed| committed != is_new) {
                        return Err(format!(
                            "a transaction was committed in part: page {}",
                            lpn.0
                        ));
                    }
                    committed = Some(is_new);
                }
                _ => {}
            }
            page.versions = vec![version];
        }
        self.before_cut.clear();
        self.check_valid()
    }

    fn reopen(&mut self) -> Result<(), Violation> {
        let device = self.device.take().ok_or("there is no device")?;
        self.counts.collected += device.statistics().gc_blocks;
        self.counts.scrubbed += device.statistics().scrub_blocks;
        self.counts.padded += device.statistics().padding_writes;
        self.counts.written_back += device.statistics().map_write_backs;
        self.counts.multi_plane += device.statistics().multi_plane;
        self.counts.failures = device.nand().operations().failures;
        let mut nand = device.into_nand();
        nand.power_off();
        loop {
            nand.power_on();
            if self.random.percent(20) {
                nand.faults.power_off_after = Some(self.random.below(200) as u64);
            }
            // Opening takes the NAND, so a cut leaves this copy. Recovery writes nothing, which is
            // checked.
            let (mut kept, before) = (nand.clone(), nand.operations());
            match Ftl::open_as(nand, self.make.config, self.make.flaw) {
                Ok((device, _)) => {
                    let after = device.nand().operations();
                    if (before.programs, before.erases) != (after.programs, after.erases) {
                        return Err(self.invented("recovery wrote".to_owned()));
                    }
                    self.queue.restart(&device);
                    self.device = Some(device);
                    self.device()?.nand_mut().faults.power_off_after = None;
                    return Ok(());
                }
                Err(error) if error.is_power_off() => {
                    self.counts.cuts += 1;
                    self.counts.cuts_in_recovery += 1;
                    kept.power_off();
                    nand = kept;
                }
                Err(error) => {
                    if let FtlError::LostBookkeeping { page, .. } = &error {
                        let is_explained = self.explain(&kept, *page);
                        self.has_lost_bookkeeping |= is_explained;
                        self.has_invented |= !is_explained;
                    }
                    self.closed = Some(kept);
                    return Err(format!("the device cannot be opened: {error}"));
                }
            }
        }
    }

    /// A violation that no lost page explains.
    fn invented(&mut self, violation: Violation) -> Violation {
        self.has_invented = true;
        violation
    }

    /// Whether bit errors explain that recovery cannot read a page: those of the page, or those of the
    /// newest root. Pages that an older root names may have been programmed again.
    fn explain(&self, nand: &Nand, page: Ppn) -> bool {
        let more = 4 * self.make.geometry.pages_per_block;
        let is_lost = |ppn| nand.is_lost(ppn, more);
        let roots = nand.programmed().filter_map(|(ppn, oob)| {
            let oob = Oob::decode(oob)?;
            (oob.content == Content::Root).then_some((oob.sequence, ppn))
        });
        is_lost(page) || roots.max().is_some_and(|(_, root)| is_lost(root))
    }

    /// Pages that the device needs now.
    fn needed(&self) -> Vec<Ppn> {
        let valid = |device: &Ftl| {
            let blocks = device.blocks.all();
            blocks
                .flat_map(|block| device.blocks.valid_pages(block))
                .collect()
        };
        self.device.as_ref().map(valid).unwrap_or_default()
    }

    /// Whether a needed page has more bit errors than can be corrected. Only then may a device break
    /// its guarantees. A root is no valid page, so recovery's own answer counts as well.
    pub(super) fn has_lost_a_page(&self) -> bool {
        if self.has_lost_bookkeeping {
            return true;
        }
        let needed = self.needed();
        let mut pages = self.before_cut.iter().chain(&needed);
        match (&self.device, &self.closed) {
            (Some(device), _) => pages.any(|page| device.nand().is_lost(*page, 0)),
            // Recovery has read each page a few times more.
            (None, Some(nand)) => {
                let more = 4 * self.make.geometry.pages_per_block;
                pages.any(|page| nand.is_lost(*page, more))
            }
            (None, None) => false,
        }
    }

    /// The version of every page.
    fn found(&mut self, in_doubt: &BTreeMap<Lpn, u64>) -> Result<Vec<(Lpn, u64)>, Violation> {
        let mut found = Vec::with_capacity(self.pages.len());
        for number in 0..self.pages.len() {
            let lpn = Lpn(number as u32);
            let read = self.device()?.read(lpn);
            let mut versions: Vec<u64> = self.pages[number].versions.clone();
            versions.extend(in_doubt.get(&lpn));
            let is_lost = read.as_ref().is_err_and(FtlError::is_lost);
            if is_lost && versions.contains(&LOST) {
                found.push((lpn, LOST));
                continue;
            }
            let bytes = read.map_err(|error| format!("page {number} after a cut: {error}"))?;
            versions.retain(|version| *version != LOST);
            let version = versions
                .iter()
                .rev()
                .find(|version| *bytes == *self.bytes(lpn, **version));
            let version = version.ok_or_else(|| {
                format!("page {number} after a cut is none of versions {versions:?}")
            })?;
            found.push((lpn, *version));
        }
        Ok(found)
    }

    /// No page leaks: those that are valid are those that something needs, and the model knows how
    /// many logical pages there are.
    fn check_valid(&mut self) -> Result<(), Violation> {
        let written = self.pages.iter().filter(|page| page.current() != 0).count();
        let device = self.device()?;
        let valid: u32 = device.wear().valid.iter().sum();
        let (needed, mapped) = (device.needed_pages(), device.map.mapped().count());
        let told = || {
            format!(
                "{valid} pages are valid and {needed} are needed; {mapped} are mapped, and {written} were written"
            )
        };
        match (valid as usize == needed, mapped == written) {
            (true, true) => Ok(()),
            // A lost page may come back in its first version, as zeros.
            (true, false) => Err(told()),
            (false, _) => Err(self.invented(told())),
        }
    }

    /// Cuts now, between two commands.
    pub(super) fn cut(&mut self) -> Result<(), Violation> {
        self.device()?.nand_mut().power_off();
        self.recover(BTreeMap::new())
    }
}
