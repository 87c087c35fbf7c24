//! Finding entries at a view.

use std::cmp::Ordering;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::page::{Entry, NodeRef};
use crate::payloads::{Found, Payloads, Sought, halve};
use crate::types::PageNo;

/// Levels that a tree may have; more than any file can fill.
pub(crate) const MAX_LEVEL: u8 = 40;

/// The sought key.
pub(crate) enum Target<'a> {
    /// An integer key.
    Integer(i64),
    /// A key in the order of bytes.
    Bytes(&'a [u8]),
    /// A key that the caller compares.
    Custom(&'a mut dyn Sought),
    /// Before everything.
    First,
    /// After everything.
    Last,
}

/// A place in a leaf: indexes of entries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) exact: Option<usize>,
    pub(crate) before: Option<usize>,
    pub(crate) after: Option<usize>,
}

/// One level of a path down.
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
            return Visible::All(node.len());
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

    pub(crate) fn indexes(self) -> Vec<u16> {
        match self {
            Visible::All(n) => (0..n).map(|i| i as u16).collect(),
            Visible::Some(v) => v,
        }
    }

    /// The index of the entry in the node.
    pub(crate) fn at(&self, i: usize) -> usize {
        match self {
            Visible::All(_) => i,
            Visible::Some(v) => usize::from(v[i]),
        }
    }
}

impl Core {
    /// The order of a stored entry relative to the sought key.
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
            Target::Custom(sought) if e.overflow == 0 => {
                // Bytes after the slice are readable: the node's heap is padded.
                sought.compare(&node.local_padded(e)[..usize::from(e.local)])
            }
            Target::Custom(sought) => {
                let mut key = self.whole_key(node, e)?;
                let len = key.len();
                key.resize(len + crate::page::PADDING, 0);
                sought.compare(&key[..len])
            }
        }
    }

    /// Searches the visible entries of a node by halving; those before `from` are known not to be
    /// larger.
    fn search(
        &mut self,
        node: &NodeRef,
        visible: &Visible,
        from: usize,
        target: &mut Target<'_>,
    ) -> Result<Found> {
        if let Target::Custom(sought) = target {
            let sifted;
            let spans = match visible {
                Visible::All(_) => node.spans(),
                Visible::Some(v) => {
                    sifted = node.spans_of(v.iter().map(|i| &node.entries()[usize::from(*i)]));
                    &sifted
                }
            };
            if let Some(spans) = spans.whole() {
                let keys = node.payloads(spans);
                return match visible {
                    Visible::All(_) => search_all(node, keys, from, *sought),
                    Visible::Some(_) => sought.search(keys, from),
                };
            }
        }
        halve(from, visible.len(), |at| {
            let e = node.entries()[visible.at(at)];
            self.compare(node, &e, target)
        })
    }

    /// The router to follow: the last visible one that is not greater, or the first.
    pub(crate) fn choose(
        &mut self,
        node: &NodeRef,
        view: u64,
        target: &mut Target<'_>,
    ) -> Result<usize> {
        if let Some(key) = integer_of_all(node, view, target)
            && let [_, others @ ..] = node.spans().integers()
            && let [first, .., last] | [first @ last] = *others
        {
            return Ok(match find_integer(others, (first, last), key) {
                Ok(at) => {
                    at + others[at..]
                        .iter()
                        .take_while(|other| **other == key)
                        .count()
                }
                Err(before) => before,
            });
        }
        let visible = Visible::of(node, view);
        if visible.len() == 0 {
            let what = "no router is visible at the version that leads to it";
            return Err(Error::Damaged {
                page: node.page,
                what,
            });
        }
        // The first one covers everything below the second, whatever its own key says.
        let found = self.search(node, &visible, 1, target)?;
        self.equal_router |= found.equal;
        Ok(visible.at(found.not_larger - 1))
    }

    /// The place of the sought key in a leaf.
    pub(crate) fn place(
        &mut self,
        node: &NodeRef,
        view: u64,
        target: &mut Target<'_>,
    ) -> Result<Place> {
        if let Some(key) = integer_of_all(node, view, target) {
            let spans = node.spans();
            let found = match spans.consecutive() {
                Some((first, _)) if key < first => Err(0),
                Some((_, last)) if key > last => Err(node.len()),
                Some((first, _)) => Ok((key - first) as usize),
                None => find_integer(spans.integers(), spans.ends(), key),
            };
            return Ok(match found {
                Ok(at) => Place {
                    exact: Some(at),
                    ..Place::default()
                },
                Err(at) => Place {
                    exact: None,
                    before: at.checked_sub(1),
                    after: (at < node.len()).then_some(at),
                },
            });
        }
        let visible = Visible::of(node, view);
        let found = self.search(node, &visible, 0, target)?;
        let before = found.not_larger.checked_sub(1).map(|i| visible.at(i));
        if found.equal {
            return Ok(Place {
                exact: before,
                ..Place::default()
            });
        }
        Ok(Place {
            exact: None,
            before,
            after: (found.not_larger < visible.len()).then(|| visible.at(found.not_larger)),
        })
    }

    /// Goes down from a root to the leaf where `target` belongs. The leaf's index is not set.
    /// `steps` may hold an earlier path at the same view, which no writer changes. Its nodes are
    /// not fetched again.
    pub(crate) fn descend(
        &mut self,
        root: u32,
        tree: u32,
        view: u64,
        target: &mut Target<'_>,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let (mut page, mut level) = (root, None);
        for depth in 0.. {
            if steps.get(depth).is_none_or(|step| step.page != page) {
                steps.truncate(depth);
                let node = self.node_of(page, tree, level)?;
                let index = 0;
                steps.push(Step { page, node, index });
            }
            let step = &mut steps[depth];
            if step.node.level == 0 {
                break;
            }
            if step.node.level > MAX_LEVEL {
                return Err(Error::Damaged {
                    page: PageNo(page),
                    what: "its level is too high",
                });
            }
            step.index = self.choose(&step.node, view, target)?;
            page = step.node.child(step.index);
            level = Some(step.node.level - 1);
        }
        Ok(())
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
            let page = step.node.child(step.index);
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

/// Searches all entries of a node. It uses their abbreviated keys if there are any, and compares
/// only those whose number is the sought one's.
fn search_all(
    node: &NodeRef,
    keys: Payloads<'_>,
    from: usize,
    sought: &mut dyn Sought,
) -> Result<Found> {
    let Some((numbers, number)) = node.abbreviated(keys, from, sought) else {
        return sought.search(keys, from);
    };
    let alike = numbers.alike(number);
    let begin = alike.start;
    if alike.is_empty() {
        return Ok(Found {
            not_larger: begin,
            equal: false,
        });
    }
    let found = sought.search(keys.part(alike), 0)?;
    Ok(Found {
        not_larger: begin + found.not_larger,
        ..found
    })
}

/// The sought integer key, where a node shows all its entries to the view. Nearly every search by
/// rowid comes here, so it makes no call for each entry.
fn integer_of_all(node: &NodeRef, view: u64, target: &Target<'_>) -> Option<i64> {
    match target {
        Target::Integer(key) if node.plain(view) => Some(*key),
        _ => None,
    }
}

/// The place of an integer key among others in order, or the place where it would be. Rowids are
/// mostly dense. So the first guess, from its distance to the first and the last, is mostly the
/// place or next to it. A caller that knows these two passes them: each would be a line of the
/// processor's cache.
fn find_integer(
    integers: &[i64],
    (first, last): (i64, i64),
    key: i64,
) -> std::result::Result<usize, usize> {
    if integers.is_empty() || key < first {
        return Err(0);
    }
    if key > last {
        return Err(integers.len());
    }
    let (mut low, mut high) = (0, integers.len());
    let part = key.wrapping_sub(first) as u64 as f64;
    let whole = last.wrapping_sub(first) as u64 as f64;
    let mut probe = (part / whole.max(1.0) * (high - 1) as f64) as usize;
    while low < high {
        match integers[probe].cmp(&key) {
            Ordering::Equal => return Ok(probe),
            Ordering::Less => low = probe + 1,
            Ordering::Greater => high = probe,
        }
        probe = low + (high - low) / 2;
    }
    Err(low)
}

/// The next visible entry after (or before) index `from` of a node; `None` as `from`: from the
/// edge.
pub(crate) fn neighbor(
    node: &NodeRef,
    view: u64,
    from: Option<usize>,
    back: bool,
) -> Option<usize> {
    if node.plain(view) {
        let at = match (from, back) {
            (None, false) => Some(0),
            (None, true) => node.len().checked_sub(1),
            (Some(from), false) => Some(from + 1),
            (Some(from), true) => from.checked_sub(1),
        };
        return at.filter(|at| *at < node.len());
    }
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
