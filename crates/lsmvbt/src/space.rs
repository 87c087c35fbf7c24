//! The pages that nobody uses. There is this handle's copy of the free map, and the map in shared
//! memory. Pages that a commit has freed are kept back until it is durable.

use std::mem;

use foldhash::HashMap;

use crate::core::Core;
use crate::error::Result;
use crate::freemap::FreeMap;
use crate::shared::{self, DURABLE, FREE_SEQ, HWM};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub(crate) map: FreeMap,
    /// The version of `map`; 0: none.
    version: u64,
    /// The number of changes to the map in shared memory when `map` was read or published.
    seq: u64,
    /// The map in shared memory.
    published: Vec<u64>,
    /// Pages freed by commits of this handle that are not durable yet (MV7). In shared memory they are
    /// free: another handle that writes next flushes first.
    quarantine: Vec<(u64, Vec<u32>)>,
}

impl Space {
    /// True if the map is that of this version.
    pub(crate) fn is_of(&self, version: u64) -> bool {
        self.version == version
    }

    pub(crate) fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// True if the map in shared memory, with so many changes and pages, is the one here.
    pub(crate) fn is_published(&self, seq: u64, hwm: u32) -> bool {
        self.seq == seq && self.map.hwm == hwm && self.version != 0
    }

    /// Takes the map in shared memory. It has the pages that this handle kept back, unless another
    /// handle uses them already.
    pub(crate) fn learn(&mut self, words: Vec<u64>, hwm: u32, seq: u64) {
        self.published = words.clone();
        self.map = FreeMap::from_words(words, hwm);
        self.seq = seq;
        self.quarantine.clear();
    }

    /// The map is in shared memory as it is here, and nothing is kept back.
    pub(crate) fn published_whole(&mut self, words: usize, seq: u64) {
        self.map.forget_touched();
        self.published = self.map.words().to_vec();
        self.published.resize(words, 0);
        self.quarantine.clear();
        self.seq = seq;
    }

    /// Keeps pages back until the version that freed them is durable.
    pub(crate) fn keep_back(&mut self, version: u64, pages: Vec<u32>) {
        self.quarantine.push((version, pages));
    }

    pub(crate) fn keeps_any_back(&self) -> bool {
        !self.quarantine.is_empty()
    }

    pub(crate) fn keeps_back(&self, page: u32) -> bool {
        let mut kept_back = self.quarantine.iter();
        kept_back.any(|(_, pages)| pages.contains(&page))
    }

    /// Pages freed by commits up to this version can be used now.
    fn release(&mut self, durable: u64) {
        for (version, pages) in mem::take(&mut self.quarantine) {
            if version > durable {
                self.quarantine.push((version, pages));
                continue;
            }
            for page in pages {
                self.map.insert(page);
            }
        }
    }

    /// The words of the map that have pages kept back, and these pages' bits.
    fn kept_back(&self) -> HashMap<usize, u64> {
        let mut words: HashMap<usize, u64> = HashMap::default();
        for page in self.quarantine.iter().flat_map(|(_, pages)| pages) {
            *words.entry((page / 64) as usize).or_default() |= 1 << (page % 64);
        }
        words
    }

    /// A word as it belongs into shared memory.
    fn word(&self, number: usize, kept_back: &HashMap<usize, u64>) -> u64 {
        let free = self.map.words().get(number).copied().unwrap_or(0);
        free | kept_back.get(&number).copied().unwrap_or(0)
    }

    /// The words that may differ from those in shared memory.
    fn news(&mut self, kept_back: &HashMap<usize, u64>) -> Vec<usize> {
        let words = (self.map.hwm as usize).div_ceil(64);
        let known = self.published.len();
        self.published.resize(words, 0);
        let mut news = self.map.touched().to_vec();
        news.extend(kept_back.keys());
        news.sort_unstable();
        news.dedup();
        // Past the known part, an earlier and larger file may have left any value.
        news.retain(|word| *word < known.min(words));
        news.extend(known..words);
        news
    }

    /// True if no changed word was left out.
    fn published_all(&self, kept_back: &HashMap<usize, u64>) -> bool {
        let mut published = self.published.iter().enumerate();
        published.all(|(number, word)| *word == self.word(number, kept_back))
    }
}

impl Core {
    /// Pages freed by commits that have become durable can be used now (MV7).
    pub(crate) fn release_quarantine(&mut self) -> Result<()> {
        let durable = self.load(DURABLE)?;
        self.space.release(durable);
        self.protect_slots();
        Ok(())
    }

    /// Writes the free map to shared memory, as far as it changed.
    ///
    /// Pages that this handle still keeps back are free there. Any other handle that begins to
    /// write first makes the commit durable, so it may use these pages. It must also know of them.
    /// Otherwise an entry that leads to one of them would free it again, and it would be allocated
    /// twice.
    ///
    /// A process may die between any two of these stores, and no version be written then:
    /// - First the number of changes. So all others read the map, whichever words are there by then.
    /// - A lower end comes before the words. Otherwise the pages between the two would neither be free
    ///   nor in use. Whoever reads the map ignores what its last word says of pages behind the end, and
    ///   writes that word before it publishes another end.
    /// - A higher end comes after the words: some may be left from an earlier file.
    pub(crate) fn publish_free(&mut self) -> Result<()> {
        let kept_back = self.space.kept_back();
        let known = self.space.published.len();
        let mut news = Vec::new();
        for number in self.space.news(&kept_back) {
            let word = self.space.word(number, &kept_back);
            if number >= known || self.space.published[number] != word {
                news.push((number, word));
            }
        }
        if !news.is_empty() {
            self.space.seq = self.load(FREE_SEQ)? + 1;
            self.store(FREE_SEQ, self.space.seq)?;
        }
        let hwm = u64::from(self.space.map.hwm);
        if hwm < self.load(HWM)? {
            self.store(HWM, hwm)?;
        }
        for (number, word) in news {
            self.store(shared::free_word(number), word)?;
            self.space.published[number] = word;
        }
        self.space.map.forget_touched();
        debug_assert!(self.space.published_all(&kept_back));
        self.store(HWM, hwm)
    }
}
