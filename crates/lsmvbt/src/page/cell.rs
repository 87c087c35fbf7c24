//! Cells: the bytes of one entry.
//!
//! | part | what |
//! | --- | --- |
//! | flags | 1 byte: 1 dead, 2 moved, 4 killed, 8 replaced, 16 overflow |
//! | start | distance from the page's `birth`, folded |
//! | end | the same; only if dead |
//! | child | 4 bytes; only in inner and catalog pages |
//! | key | folded integer; only in integer trees and catalog pages |
//! | total | bytes of the payload; not in inner pages of integer trees and in catalog pages |
//! | key length | of the payload; only in leaves of bytes trees |
//! | local | the payload's beginning, [`local_len`] bytes |
//! | overflow | 4 bytes: first page of the chain; only if there is one |

use super::node::{Ended, Entry, INF};
use super::{OVERFLOW_BYTES, PageType, varint};
use crate::types::TreeKind;

/// A longer key goes to overflow pages, so that four entries always fit into a page.
pub(crate) const MAX_LOCAL: usize = 880;
/// The same for a row in the leaf of an integer tree, whose routers do not carry it: three fit.
const MAX_LOCAL_ROW: usize = 1300;
/// The shortest beginning of a payload that has a chain.
pub(crate) const MIN_LOCAL: usize = 64;

/// The bytes of a payload that stay in the cell: all, or the rest after filling whole pages.
/// `is_row`: it is of an integer tree.
pub(crate) fn local_len(total: usize, is_row: bool) -> usize {
    let most = if is_row { MAX_LOCAL_ROW } else { MAX_LOCAL };
    if total <= most {
        return total;
    }
    let left = MIN_LOCAL + (total - MIN_LOCAL) % OVERFLOW_BYTES;
    if left <= most { left } else { MIN_LOCAL }
}

/// The parts of the cells of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) child: bool,
    pub(crate) integer: bool,
    pub(crate) payload: bool,
    pub(crate) key_len: bool,
}

impl Shape {
    pub(crate) fn of(kind: PageType, tree: Option<TreeKind>) -> Shape {
        let integer = tree.is_none_or(|t| t == TreeKind::Integer);
        Shape {
            child: kind.routes(),
            integer,
            payload: !(kind.routes() && integer),
            key_len: kind == PageType::Leaf && tree == Some(TreeKind::Bytes),
        }
    }
}

fn flags(e: &Entry) -> u8 {
    let ended = match (e.end == INF, e.ended) {
        (true, _) => 0,
        (false, Ended::Moved) => 1 | 2,
        (false, Ended::Killed) => 1 | 4,
        (false, Ended::Replaced) => 1 | 8,
    };
    ended | if e.overflow != 0 { 16 } else { 0 }
}

fn distance(version: u64, birth: u64) -> u64 {
    varint::fold(version.wrapping_sub(birth) as i64)
}

/// Bytes of an entry's cell.
pub(crate) fn len(e: &Entry, shape: Shape, birth: u64) -> usize {
    let mut n = 1 + varint::len(distance(e.start, birth));
    if e.end != INF {
        n += varint::len(distance(e.end, birth));
    }
    if shape.child {
        n += 4;
    }
    if shape.integer {
        n += varint::len(varint::fold(e.key));
    }
    if shape.payload {
        n += varint::len(u64::from(e.total)) + usize::from(e.local);
        if shape.key_len {
            n += varint::len(u64::from(e.key_len));
        }
    }
    n + if e.overflow != 0 { 4 } else { 0 }
}

/// Appends an entry's cell; `local` is its local payload.
pub(crate) fn put(out: &mut Vec<u8>, e: &Entry, local: &[u8], shape: Shape, birth: u64) {
    out.push(flags(e));
    varint::put(out, distance(e.start, birth));
    if e.end != INF {
        varint::put(out, distance(e.end, birth));
    }
    if shape.child {
        out.extend_from_slice(&e.child.to_le_bytes());
    }
    if shape.integer {
        varint::put(out, varint::fold(e.key));
    }
    if shape.payload {
        varint::put(out, u64::from(e.total));
        if shape.key_len {
            varint::put(out, u64::from(e.key_len));
        }
        out.extend_from_slice(local);
    }
    if e.overflow != 0 {
        out.extend_from_slice(&e.overflow.to_le_bytes());
    }
}

fn u32_from(bytes: &[u8], at: &mut usize) -> Option<u32> {
    let part: [u8; 4] = bytes.get(*at..*at + 4)?.try_into().ok()?;
    *at += 4;
    Some(u32::from_le_bytes(part))
}

/// Reads the cell at an offset; `None` if there is no valid cell. The entry's `off` is its local
/// payload's place.
pub(crate) fn get(bytes: &[u8], offset: usize, shape: Shape, birth: u64) -> Option<Entry> {
    let mut at = offset;
    let flags = *bytes.get(at)?;
    at += 1;
    let version = |at: &mut usize| {
        let v = birth.checked_add_signed(varint::unfold(varint::get(bytes, at)?))?;
        (v != INF).then_some(v)
    };
    let start = version(&mut at)?;
    let (end, ended) = match flags & 15 {
        0 => (INF, Ended::Killed),
        3 => (version(&mut at)?, Ended::Moved),
        5 => (version(&mut at)?, Ended::Killed),
        9 => (version(&mut at)?, Ended::Replaced),
        _ => return None,
    };
    let mut e = Entry {
        start,
        end,
        ended,
        ..Entry::default()
    };
    if flags & !31 != 0 || end <= start {
        return None;
    }
    if shape.child {
        e.child = u32_from(bytes, &mut at)?;
    }
    if shape.integer {
        e.key = varint::unfold(varint::get(bytes, &mut at)?);
    }
    if shape.payload {
        e.total = u32::try_from(varint::get(bytes, &mut at)?).ok()?;
        e.key_len = if shape.key_len {
            u32::try_from(varint::get(bytes, &mut at)?).ok()?
        } else if shape.integer {
            0
        } else {
            e.total
        };
        let local = local_len(e.total as usize, shape.integer);
        e.local = local as u16;
        e.off = at as u32;
        at += local;
        if e.key_len > e.total || (local < e.total as usize) != (flags & 16 != 0) {
            return None;
        }
    } else if flags & 16 != 0 {
        return None;
    }
    if flags & 16 != 0 {
        e.overflow = u32_from(bytes, &mut at)?;
        if e.overflow == 0 {
            return None;
        }
    }
    (at <= bytes.len()).then_some(e)
}
