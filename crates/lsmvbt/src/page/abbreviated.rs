//! Abbreviated keys of a node, made when it has been searched a few times: to make them each key is looked at, which a search by
//! comparison does not do.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::payloads::{Payloads, Sought};

/// Searches that go without.
const SEARCHES: u8 = 2;

/// The numbers of all keys of a node.
#[derive(Debug)]
pub(crate) struct Numbers {
    kind: u32,
    /// The first key that is compared with: a router covers what lies before the second one, whatever its own key is.
    from: usize,
    all: Vec<u64>,
}

impl Numbers {
    fn new(kind: u32, all: Vec<u64>, from: usize) -> Numbers {
        debug_assert!(all.get(from..).is_none_or(<[u64]>::is_sorted));
        Numbers { kind, from, all }
    }

    /// The keys that may be the sought one: their number is its own. Those before are smaller.
    pub(crate) fn alike(&self, number: u64) -> Range<usize> {
        let Some(compared) = self.all.get(self.from..) else {
            return 0..0;
        };
        let begin = compared.partition_point(|other| *other < number);
        let count = match compared[begin..].split_first() {
            Some((first, others)) if *first == number => {
                1 + others.partition_point(|other| *other == number)
            }
            _ => 0,
        };
        let begin = self.from + begin;
        begin..begin + count
    }
}

/// See the module. A node that is copied, to be changed, has none.
#[derive(Debug, Default)]
pub(crate) struct Abbreviated {
    made: OnceLock<Numbers>,
    searches: AtomicU8,
}

impl Clone for Abbreviated {
    fn clone(&self) -> Abbreviated {
        Abbreviated::default()
    }
}

impl Abbreviated {
    /// A key comes or goes.
    pub(crate) fn forget(&mut self) {
        *self = Abbreviated::default();
    }

    /// The numbers of all keys, and that of the sought one. `keys` are all that the node has, those behind
    /// the first `from` in order.
    #[inline]
    pub(crate) fn of(
        &self,
        keys: Payloads<'_>,
        from: usize,
        sought: &dyn Sought,
    ) -> Option<(&Numbers, u64)> {
        let wanted = sought.abbreviation()?;
        let made = match self.made.get() {
            Some(made) => made,
            None => self.make(keys, from, wanted.kind, sought)?,
        };
        let fits = made.kind == wanted.kind && made.all.len() == keys.spans().len();
        fits.then_some((made, wanted.sought))
    }

    #[cold]
    fn make(
        &self,
        keys: Payloads<'_>,
        from: usize,
        kind: u32,
        sought: &dyn Sought,
    ) -> Option<&Numbers> {
        let searches = self.searches.load(Ordering::Relaxed);
        if searches < SEARCHES {
            self.searches.store(searches + 1, Ordering::Relaxed);
            return None;
        }
        let all = sought.abbreviate(keys);
        Some(self.made.get_or_init(|| Numbers::new(kind, all, from)))
    }
}
