//! Finding entries at a view.

use std::cmp::Ordering;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::page::{Entry, NodeRef};
use crate::types::PageNo;

/// Levels that a tree may have; more than any file can fill.
pub(crate) const MAX_LEVEL: u8 = 40;

/// What is looked for.
pub(crate) enum Target<'a> {
    /// An integer key.
    Integer(i64),
    /// A key in the order of bytes.
    Bytes(&'a [u8]),
    /// Whatever the caller calls equal.
    Custom(&'a mut dyn FnMut(&[u8]) -> Result<Ordering>),
    /// Before everything.
    First,
    /// Behind everything.
    Last,
}

/// Where in a leaf: indexes of entries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) exact: Option<usize>,
    pub(crate) before: Option<usize>,
    pub(crate) after: Option<usize>,
}

/// One level of a way down.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) page: u32,
    pub(crate) node: NodeRef,
    pub(crate) index: usize,
}

/// The entries of a node that a view sees, as indexes.
pub(crate) enum Visible {
    All(usize),
    Some(Vec<u16>),
}

impl Visible {
    pub(crate) fn of(node: &NodeRef, view: u64) -> Visible {
        if node.plain(view) {
            return Visible::All(node.entries().len());
        }
        let entries = node.entries().iter().enumerate();
        Visible::Some(
            entries
                .filter(|(_, e)| e.visible(view))
                .map(|(i, _)| i as u16)
                .collect(),
        )
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Visible::All(n) => *n,
            Visible::Some(v) => v.len(),
        }
    }

    pub(crate) fn at(&self, i: usize) -> usize {
        match self {
            Visible::All(_) => i,
            Visible::Some(v) => usize::from(v[i]),
        }
    }
}

impl Core {
    /// How a stored entry lies to what is looked for.
    pub(crate) fn compare(
        &mut self,
        node: &NodeRef,
        e: &Entry,
        target: &mut Target<'_>,
    ) -> Result<Ordering> {
        match target {
            Target::Integer(key) => Ok(e.key.cmp(key)),
            Target::First => Ok(Ordering::Greater),
            Target::Last => Ok(Ordering::Less),
            Target::Bytes(key) if e.key_len as usize <= usize::from(e.local) => {
                Ok(node.local(e)[..e.key_len as usize].cmp(key))
            }
            Target::Bytes(key) => Ok(self.whole_key(node, e)?.as_slice().cmp(key)),
            Target::Custom(compare) if e.overflow == 0 => {
                // What lies behind the slice is readable: the node's heap is padded.
                compare(&node.local_padded(e)[..usize::from(e.local)])
            }
            Target::Custom(compare) => {
                let mut key = self.whole_key(node, e)?;
                let len = key.len();
                key.resize(len + crate::page::PADDING, 0);
                compare(&key[..len])
            }
        }
    }

    /// How the entry at an index lies to what is looked for.
    fn compare_at(
        &mut self,
        node: &NodeRef,
        at: usize,
        target: &mut Target<'_>,
    ) -> Result<Ordering> {
        if let Target::Custom(compare) = target
            && let Some(key) = node.whole_local(at)
        {
            return compare(key);
        }
        let e = node.entries()[at];
        self.compare(node, &e, target)
    }

    /// The router to follow: the last visible one that is not greater, or the first.
    pub(crate) fn choose(
        &mut self,
        node: &NodeRef,
        view: u64,
        target: &mut Target<'_>,
    ) -> Result<usize> {
        if let Some(key) = integer_of_all(node, view, target)
            && let [_, others @ ..] = node.entries()
        {
            // The first one covers everything below the second, whatever its own key says.
            return Ok(match find_integer(others, key) {
                Ok(at) => at + others[at..].iter().take_while(|e| e.key == key).count(),
                Err(before) => before,
            });
        }
        let visible = Visible::of(node, view);
        let (mut low, mut high) = (0, visible.len());
        if high == 0 {
            let what = "no router is visible at the version that leads to it";
            return Err(Error::Damaged {
                page: node.page,
                what,
            });
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let order = self.compare_at(node, visible.at(middle), target)?;
            self.equal_router |= order == Ordering::Equal;
            if order == Ordering::Greater {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(visible.at(low))
    }

    /// The place of what is looked for in a leaf.
    pub(crate) fn place(
        &mut self,
        node: &NodeRef,
        view: u64,
        target: &mut Target<'_>,
    ) -> Result<Place> {
        if let Some(key) = integer_of_all(node, view, target) {
            return Ok(match find_integer(node.entries(), key) {
                Ok(at) => Place {
                    exact: Some(at),
                    ..Place::default()
                },
                Err(at) => Place {
                    exact: None,
                    before: at.checked_sub(1),
                    after: (at < node.entries().len()).then_some(at),
                },
            });
        }
        let visible = Visible::of(node, view);
        let (mut low, mut high) = (0, visible.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let at = visible.at(middle);
            match self.compare_at(node, at, target)? {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => {
                    return Ok(Place {
                        exact: Some(at),
                        ..Place::default()
                    });
                }
            }
        }
        Ok(Place {
            exact: None,
            before: low.checked_sub(1).map(|i| visible.at(i)),
            after: (low < visible.len()).then(|| visible.at(low)),
        })
    }

    /// Goes down from a root to the leaf where `target` belongs. The leaf's index is not set.
    pub(crate) fn descend(
        &mut self,
        root: u32,
        tree: u32,
        view: u64,
        target: &mut Target<'_>,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let (mut page, mut level) = (root, None);
        loop {
            let node = self.node_of(page, tree, level)?;
            if node.level > MAX_LEVEL {
                return Err(Error::Damaged {
                    page: PageNo(page),
                    what: "its level is too high",
                });
            }
            if node.level == 0 {
                steps.push(Step {
                    page,
                    node,
                    index: 0,
                });
                return Ok(());
            }
            let index = self.choose(&node, view, target)?;
            let child = node.entries()[index].child;
            level = Some(node.level - 1);
            steps.push(Step { page, node, index });
            page = child;
        }
    }

    /// Goes down to the first or last leaf below the entry at the last step.
    pub(crate) fn descend_edge(
        &mut self,
        tree: u32,
        view: u64,
        last: bool,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        while let Some(step) = steps.last() {
            let Some(level) = step.node.level.checked_sub(1) else {
                return Ok(());
            };
            let page = step.node.entries()[step.index].child;
            let node = self.node_of(page, tree, Some(level))?;
            let index = if node.level == 0 {
                0
            } else {
                let mut edge = if last { Target::Last } else { Target::First };
                self.choose(&node, view, &mut edge)?
            };
            steps.push(Step { page, node, index });
        }
        Ok(())
    }
}

/// The integer key that is looked for, where a node shows all its entries to the view: what nearly every search by rowid
/// comes down to, and worth doing without a call for each entry.
fn integer_of_all(node: &NodeRef, view: u64, target: &Target<'_>) -> Option<i64> {
    match target {
        Target::Integer(key) if node.plain(view) => Some(*key),
        _ => None,
    }
}

/// Where an integer key stands among entries in order, or would stand. Rowids are mostly dense, so the first guess, by how
/// far it lies between the first and the last, is mostly the place or next to it.
fn find_integer(entries: &[Entry], key: i64) -> std::result::Result<usize, usize> {
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
        return Err(0);
    };
    if key < first.key {
        return Err(0);
    }
    if key > last.key {
        return Err(entries.len());
    }
    let (mut low, mut high) = (0, entries.len());
    let part = key.wrapping_sub(first.key) as u64 as f64;
    let whole = last.key.wrapping_sub(first.key) as u64 as f64;
    let mut probe = (part / whole.max(1.0) * (high - 1) as f64) as usize;
    while low < high {
        match entries[probe].key.cmp(&key) {
            Ordering::Equal => return Ok(probe),
            Ordering::Less => low = probe + 1,
            Ordering::Greater => high = probe,
        }
        probe = low + (high - low) / 2;
    }
    Err(low)
}

/// The next visible entry behind (or before) index `from` of a node; `None` as `from`: from the edge.
pub(crate) fn neighbor(
    node: &NodeRef,
    view: u64,
    from: Option<usize>,
    back: bool,
) -> Option<usize> {
    let entries = node.entries();
    if back {
        let end = from.unwrap_or(entries.len());
        entries[..end].iter().rposition(|e| e.visible(view))
    } else {
        let begin = from.map_or(0, |i| i + 1);
        entries
            .get(begin..)?
            .iter()
            .position(|e| e.visible(view))
            .map(|i| begin + i)
    }
}

/// The visible entry that is so many places behind (or before) the one at `from`.
pub(crate) fn over(
    node: &NodeRef,
    view: u64,
    from: usize,
    back: bool,
    count: usize,
) -> Option<usize> {
    if node.plain(view) {
        let at = if back {
            from.checked_sub(count)
        } else {
            from.checked_add(count)
        };
        return at.filter(|at| *at < node.entries().len());
    }
    (0..count).try_fold(from, |at, _| neighbor(node, view, Some(at), back))
}
