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
    #[inline]
    pub(crate) fn of(node: &NodeRef, view: u64) -> Visible {
        if node.plain(view) {
            return Visible::All(node.len());
        }
        Visible::sifted(node, view)
    }

    fn sifted(node: &NodeRef, view: u64) -> Visible {
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
            && node.len() > 0
        {
            let spans = node.spans();
            let integers = spans.integers();
            // The first one covers everything below the second, whatever its own key says.
            let not_larger = match find_integer(integers, 1, spans.ends(), key) {
                Ok(at) => {
                    let same = integers[at..].iter().take_while(|other| **other == key);
                    at + same.count()
                }
                Err(at) => at,
            };
            return Ok(not_larger - 1);
        }
        let visible = Visible::of(node, view);
        if visible.len() == 0 {
            let what = "no router is visible at the version that leads to it";
            return Err(Error::Damaged {
                page: node.page,
                what,
            });
        }
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
                None => find_integer(spans.integers(), 0, spans.ends(), key),
            };
            return Ok(match found {
                Ok(at) => {
                    node.prefetch_payload(at);
                    Place {
                        exact: Some(at),
                        ..Place::default()
                    }
                }
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
    /// not fetched again. After an error `steps` is no path.
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
            let is_there =
                |step: &Step| step.page == page && level.is_none_or(|l| l == step.node.level);
            if !steps.get(depth).is_some_and(is_there) {
                let node = self.node_of(page, tree, level)?;
                let step = Step {
                    page,
                    node,
                    index: 0,
                };
                match steps.get_mut(depth) {
                    Some(other) => *other = step,
                    None => steps.push(step),
                }
            }
            let step = &mut steps[depth];
            if step.node.level == 0 {
                steps.truncate(depth + 1);
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
    let alike = numbers.alike(number, keys.spans());
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

/// The place of an integer key among others in order, or the place where it would be; those before
/// `from` are known not to be larger. Keys mostly lie at even distances. So the first guess, from the
/// distance to the first and the last, is mostly the place or next to it, and steps that double lead
/// from there to the place. The caller knows the first and the last: reading them would be two lines of
/// the processor's cache.
fn find_integer(
    integers: &[i64],
    from: usize,
    (first, last): (i64, i64),
    key: i64,
) -> std::result::Result<usize, usize> {
    let (mut low, mut high) = (from, integers.len());
    if low >= high {
        return Err(low);
    }
    // Keys too far apart for these numbers only spoil the guess.
    let part = key.wrapping_sub(first) as f64;
    let whole = last.wrapping_sub(first).max(1) as f64;
    let guess = (part / whole * (high - 1) as f64) as u32 as usize;
    let mut probe = guess.clamp(low, high - 1);
    let mut step = 0;
    while low < high {
        match integers[probe].cmp(&key) {
            Ordering::Equal => return Ok(probe),
            Ordering::Less => {
                low = probe + 1;
                probe = low + step.min((high - low) / 2);
            }
            Ordering::Greater => {
                high = probe;
                probe = (high - step.min((high - low) / 2)).saturating_sub(1);
            }
        }
        step = 2 * step + 1;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As halving finds it, but for which of several equal keys.
    fn finds(integers: &[i64], from: usize, key: i64) {
        let ends = match integers {
            [] => (0, 0),
            [first, .., last] | [first @ last] => (*first, *last),
        };
        let (found, rest) = (find_integer(integers, from, ends, key), &integers[from..]);
        match found {
            Ok(at) => assert!(at >= from && integers[at] == key, "{key} in {integers:?}"),
            Err(at) => {
                let expected = rest.binary_search(&key).map_err(|at| from + at);
                assert_eq!(Err(at), expected, "{key} in {integers:?}");
            }
        }
    }

    #[test]
    fn an_integer_is_found_however_the_others_lie() {
        let even: Vec<i64> = (0..300).map(|n| 7 * n - 100).collect();
        let growing: Vec<i64> = (0..62).map(|n| 1 << n).collect();
        let shrinking: Vec<i64> = growing.iter().rev().map(|n| -n).collect();
        let far: Vec<i64> = [
            i64::MIN,
            i64::MIN + 1,
            -1,
            0,
            0,
            0,
            1,
            i64::MAX - 1,
            i64::MAX,
        ]
        .to_vec();
        for all in [even, growing, shrinking, far] {
            for length in 0..=all.len() {
                let part = &all[..length];
                for key in part.iter().chain(&[i64::MIN, i64::MAX, 0]) {
                    for near in [key.saturating_sub(1), *key, key.saturating_add(1)] {
                        finds(part, 0, near);
                        finds(part, length.min(1), near);
                    }
                }
            }
        }
    }
}
