//! Clean nodes in memory, up to a limit: second chance, with no reordering on a hit.

use foldhash::HashMap;

use crate::page::NodeRef;

struct Slot {
    node: NodeRef,
    used: bool,
}

/// Clean nodes by page number.
pub(crate) struct Cache {
    slots: HashMap<u32, Slot>,
    clock: Vec<u32>,
    hand: usize,
    limit: usize,
}

impl Cache {
    pub(crate) fn new(limit: usize) -> Cache {
        Cache {
            slots: HashMap::default(),
            clock: Vec::new(),
            hand: 0,
            limit: limit.max(16),
        }
    }

    /// Holds `limit` nodes from now on.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.max(16);
        while self.slots.len() > self.limit {
            self.evict();
        }
    }

    pub(crate) fn get(&mut self, page: u32) -> Option<NodeRef> {
        let slot = self.slots.get_mut(&page)?;
        slot.used = true;
        slot.node.touch();
        Some(slot.node.clone())
    }

    /// See [`crate::page::Node::prefetch`].
    pub(crate) fn prefetch(&self, page: u32) {
        if let Some(slot) = self.slots.get(&page) {
            slot.node.prefetch();
        }
    }

    pub(crate) fn insert(&mut self, page: u32, node: NodeRef) {
        if let Some(slot) = self.slots.get_mut(&page) {
            slot.node = node;
            slot.used = true;
            return;
        }
        while self.slots.len() >= self.limit {
            self.evict();
        }
        // Without memory for its place, the node is not kept.
        if self.slots.try_reserve(1).is_err() || self.clock.try_reserve(1).is_err() {
            return;
        }
        self.slots.insert(page, Slot { node, used: false });
        self.clock.push(page);
    }

    fn evict(&mut self) {
        while !self.clock.is_empty() {
            self.hand %= self.clock.len();
            let page = self.clock[self.hand];
            match self.slots.get_mut(&page) {
                Some(slot) if slot.used => {
                    slot.used = false;
                    self.hand += 1;
                }
                Some(_) => {
                    self.slots.remove(&page);
                    self.clock.swap_remove(self.hand);
                    return;
                }
                None => {
                    self.clock.swap_remove(self.hand);
                }
            }
        }
        self.slots.clear();
    }

    pub(crate) fn remove(&mut self, page: u32) {
        if self.slots.remove(&page).is_some()
            && let Some(at) = self.clock.iter().position(|p| *p == page)
        {
            self.clock.swap_remove(at);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.clock.clear();
        self.hand = 0;
    }
}
