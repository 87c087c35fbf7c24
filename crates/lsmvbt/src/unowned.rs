//! Pages of a write transaction to which no entry leads any more, whether it commits or not.
//!
//! A page that is collected loses dead entries, and the pages that these own die with the transaction. A
//! rollback, also to a savepoint, takes that back in memory. A page that was written meanwhile, in a spill
//! or a commit that is taken back, does not get these entries again. The rollback only undoes
//! what began or ended in the transaction. So the pages that they owned die all the same: with the transaction
//! if it commits, and otherwise once it has been undone on disk.
//!
//! That is safe for the reason that made the entries collectable. No version needs these pages that is
//! read, kept, or could come back by a crash. The base is durable before they are given back. An entry may
//! still lead there, where a full disk left the page as it was. The same holds where a savepoint brings
//! back a page that was dirty before it. The entry finds that the page is free, or was born later.
//!
//! The pages that were written are noted by tree, too: for one that the transaction takes back.

use foldhash::{HashMap, HashSet};

use crate::core::{Core, Txn};
use crate::error::Result;
use crate::page::NodeRef;

/// See the module.
#[derive(Default)]
pub(crate) struct Unowned {
    /// The page whose dead entries are being collected.
    collecting: Option<u32>,
    /// By the page whose dead entries were collected since it was last written: the pages that died with
    /// them.
    collected: HashMap<u32, Vec<u32>>,
    pages: HashSet<u32>,
    /// By tree: pages of it that were written before the commit. Some may belong to other trees by now.
    spilled: HashMap<u32, HashSet<u32>>,
}

impl Unowned {
    /// A page dies.
    pub(crate) fn dies(&mut self, page: u32) {
        if let Some(of) = self.collecting {
            self.collected.entry(of).or_default().push(page);
        }
    }

    pub(crate) fn contains(&self, page: u32) -> bool {
        self.pages.contains(&page)
    }
}

impl Txn {
    /// A page stands in place as this transaction has made it, with this checksum, or is about to. From
    /// now on a rollback must look at it, and does not bring back the entries that were collected in it.
    pub(crate) fn note_written(&mut self, page: u32, crc: u32) {
        self.spilled.insert(page, crc);
        let died = self.unowned.collected.remove(&page).unwrap_or_default();
        // A savepoint may have taken back some of them, with their entries.
        let died = died.into_iter().filter(|page| self.freed.contains(page));
        self.unowned.pages.extend(died);
    }

    /// A page of a tree was written before the commit, and may leave the memory.
    pub(crate) fn note_spilled(&mut self, page: u32, tree: u32) {
        self.unowned.spilled.entry(tree).or_default().insert(page);
    }

    /// The pages of a tree that this transaction has made or changed, and perhaps some of other trees.
    pub(crate) fn pages_of(&self, tree: u32) -> Vec<u32> {
        let of_tree = |(page, node): (&u32, &NodeRef)| (node.tree == tree).then_some(*page);
        let in_memory = self.dirty.iter().filter_map(of_tree);
        let spilled = self.unowned.spilled.get(&tree).into_iter().flatten();
        let is_of_this = |page: &u32| self.own.contains(page) || self.spilled.contains_key(page);
        let written = spilled.copied().filter(is_of_this);
        let mut pages: Vec<u32> = in_memory.chain(written).collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }
}

impl Core {
    /// Collects in a page: what dies meanwhile was owned by its entries.
    pub(crate) fn collecting(
        &mut self,
        page: u32,
        collect: impl FnOnce(&mut Core) -> Result<()>,
    ) -> Result<()> {
        self.txn()?.unowned.collecting = Some(page);
        let collected = collect(self);
        self.txn()?.unowned.collecting = None;
        collected
    }

    /// Gives back the pages of a transaction that is undone, on disk as well.
    pub(crate) fn give_back_unowned(&mut self) -> Result<()> {
        let pages = std::mem::take(&mut self.txn()?.unowned.pages);
        pages
            .into_iter()
            .for_each(|page| self.space.map.insert(page));
        Ok(())
    }
}
