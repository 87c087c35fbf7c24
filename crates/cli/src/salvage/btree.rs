//! SQLite's B-trees, read page by page where SQLite itself would give up. A missing page costs the
//! pages below it; a malformed cell costs its row.
//!
//! The format is that of SQLite's "Database File Format". A page may hold any bytes, so each page
//! is read once, and each length is checked against the bytes present.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::pages::PageSet;

/// The pages that exist.
pub struct Pages<'a> {
    pub file: &'a File,
    pub present: &'a PageSet,
    pub page_size: usize,
    /// Bytes of a page without the reserved bytes at its end.
    pub usable: usize,
}

impl Pages<'_> {
    /// A page; `None` where it is missing.
    pub fn read(&self, page: u32) -> Option<Vec<u8>> {
        if page == 0 || !self.present.contains(page) {
            return None;
        }
        let mut bytes = vec![0; self.page_size];
        let at = u64::from(page - 1) * self.page_size as u64;
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }
}

/// The kind of a B-tree page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    TableInner,
    TableLeaf,
    IndexInner,
    IndexLeaf,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        match byte {
            5 => Some(Kind::TableInner),
            13 => Some(Kind::TableLeaf),
            2 => Some(Kind::IndexInner),
            10 => Some(Kind::IndexLeaf),
            _ => None,
        }
    }

    fn is_inner(self) -> bool {
        matches!(self, Kind::TableInner | Kind::IndexInner)
    }

    /// Whether it belongs to a table with rowids.
    pub fn is_table(self) -> bool {
        matches!(self, Kind::TableInner | Kind::TableLeaf)
    }
}

/// A value of a row. Text is in the database's encoding.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Null,
    Integer(i64),
    Real(f64),
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

/// A row: its rowid, 0 in an index, and its values.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    pub page: u32,
    pub rowid: i64,
    pub values: Vec<Value>,
}

/// A page of a B-tree.
pub struct Page {
    no: u32,
    bytes: Vec<u8>,
    pub kind: Kind,
    /// The offsets of the cells.
    cells: Vec<usize>,
    right: Option<u32>,
}

impl Page {
    /// `None` where it is no page of a B-tree.
    pub fn parse(no: u32, bytes: Vec<u8>, usable: usize) -> Option<Page> {
        let begin = if no == 1 { 100 } else { 0 };
        let kind = Kind::of(*bytes.get(begin)?)?;
        let header = if kind.is_inner() { 12 } else { 8 };
        let count = usize::from(be16(&bytes, begin + 3)?);
        let pointers = begin + header;
        if pointers + 2 * count > usable {
            return None;
        }
        let cell = |nth| be16(&bytes, pointers + 2 * nth).map(usize::from);
        let cells = (0..count).map(cell).collect::<Option<Vec<_>>>()?;
        let right = match kind.is_inner() {
            true => Some(be32(&bytes, begin + 8)?),
            false => None,
        };
        Some(Page {
            no,
            bytes,
            kind,
            cells,
            right,
        })
    }

    /// The pages below, in order.
    pub fn children(&self) -> impl Iterator<Item = u32> + '_ {
        let cells = match self.kind.is_inner() {
            true => self.cells.as_slice(),
            false => &[],
        };
        cells
            .iter()
            .filter_map(|&at| be32(&self.bytes, at))
            .chain(self.right)
    }

    /// The rows of this page; an error for each that is malformed, or that needs a missing page.
    pub fn rows<'a>(
        &'a self,
        pages: &'a Pages<'_>,
        taken: &'a mut PageSet,
    ) -> impl Iterator<Item = Result<Row, Unreadable>> + 'a {
        let cells = match self.kind {
            Kind::TableInner => &[],
            _ => self.cells.as_slice(),
        };
        let mut room = pages.usable;
        cells.iter().map(move |&at| {
            let row = self.row(at, &mut room, pages, taken);
            row.ok_or(Unreadable)
        })
    }

    /// A row. Its bytes in the page itself count against `room`: cells do not overlap, so together
    /// they have no more bytes than the page.
    fn row(
        &self,
        at: usize,
        room: &mut usize,
        pages: &Pages<'_>,
        taken: &mut PageSet,
    ) -> Option<Row> {
        let at = if self.kind == Kind::IndexInner {
            at + 4
        } else {
            at
        };
        let (length, read) = varint(self.bytes.get(at..)?)?;
        let mut begin = at + read;
        let mut rowid = 0;
        if self.kind == Kind::TableLeaf {
            let (id, read) = varint(self.bytes.get(begin..)?)?;
            (rowid, begin) = (id as i64, begin + read);
        }
        let length = usize::try_from(length).ok()?;
        *room = room.checked_sub(local_bytes(self.kind, pages.usable, length)?)?;
        let payload = self.payload(begin, length, pages, taken)?;
        Some(Row {
            page: self.no,
            rowid,
            values: record(&payload)?,
        })
    }

    /// A payload, from here and its overflow pages.
    fn payload(
        &self,
        begin: usize,
        length: usize,
        pages: &Pages<'_>,
        taken: &mut PageSet,
    ) -> Option<Vec<u8>> {
        let local = local_bytes(self.kind, pages.usable, length)?;
        let end = begin.checked_add(local)?;
        if end > pages.usable {
            return None;
        }
        let mut payload = self.bytes.get(begin..end)?.to_vec();
        let mut next = match local < length {
            true => be32(&self.bytes, end)?,
            false => return Some(payload),
        };
        while payload.len() < length {
            let bytes = pages.read(next)?;
            // Each page belongs to one row, so no chain is endless.
            if !taken.insert(next).ok()? {
                return None;
            }
            next = be32(&bytes, 0)?;
            let more = (length - payload.len()).min(pages.usable - 4);
            payload.extend_from_slice(bytes.get(4..4 + more)?);
        }
        Some(payload)
    }
}

/// A row that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unreadable;

/// The bytes of a payload in the page itself. `None` where the payload is longer than SQLite
/// allows.
fn local_bytes(kind: Kind, usable: usize, length: usize) -> Option<usize> {
    const MOST: usize = 1_000_000_000;
    if length > MOST {
        return None;
    }
    let most = match kind {
        Kind::TableLeaf => usable - 35,
        _ => (usable - 12) * 64 / 255 - 23,
    };
    if length <= most {
        return Some(length);
    }
    let least = (usable - 12) * 32 / 255 - 23;
    let fitting = least + (length - least) % (usable - 4);
    Some(if fitting <= most { fitting } else { least })
}

/// The values of a record.
fn record(payload: &[u8]) -> Option<Vec<Value>> {
    let (header, mut at) = varint(payload)?;
    let header = usize::try_from(header).ok()?;
    let mut body = payload.get(header..)?;
    let mut values = Vec::new();
    while at < header {
        let (kind, read) = varint(payload.get(at..header)?)?;
        at += read;
        let (value, rest) = value(kind, body)?;
        values.push(value);
        body = rest;
    }
    (at == header).then_some(values)
}

fn value(kind: u64, body: &[u8]) -> Option<(Value, &[u8])> {
    let integer = |length: usize| {
        let (bytes, rest) = body.split_at_checked(length)?;
        let sign = if bytes.first()? & 0x80 != 0 { -1 } else { 0 };
        let number = bytes
            .iter()
            .fold(sign, |number: i64, &byte| number << 8 | i64::from(byte));
        Some((number, rest))
    };
    match kind {
        0 => Some((Value::Null, body)),
        1..=6 => {
            let length = [1, 2, 3, 4, 6, 8][kind as usize - 1];
            integer(length).map(|(number, rest)| (Value::Integer(number), rest))
        }
        7 => integer(8).map(|(number, rest)| (Value::Real(f64::from_bits(number as u64)), rest)),
        8 | 9 => Some((Value::Integer(kind as i64 - 8), body)),
        10 | 11 => None,
        _ => {
            let length = usize::try_from((kind - 12) / 2).ok()?;
            let (bytes, rest) = body.split_at_checked(length)?;
            let bytes = bytes.to_vec();
            let value = match kind % 2 {
                0 => Value::Blob(bytes),
                _ => Value::Text(bytes),
            };
            Some((value, rest))
        }
    }
}

/// A number in SQLite's variable length, and how many bytes it takes.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0;
    for (nth, &byte) in bytes.iter().take(9).enumerate() {
        if nth == 8 {
            return Some((number << 8 | u64::from(byte), 9));
        }
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((number, nth + 1));
        }
    }
    None
}

pub fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u16::from_be_bytes(*b))
}

pub fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u32::from_be_bytes(*b))
}

/// The result of a walk over a B-tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Walked {
    /// Pages that are missing, or not of a B-tree. The number of pages below them is unknown.
    pub missing_pages: u64,
    pub unreadable_rows: u64,
}

/// Walks over the B-tree at `root` and hands on its rows, in order where pages exist. It does not
/// read again a page that was `taken` by another tree.
///
/// # Errors
/// Those of `each`.
pub fn walk<E>(
    root: u32,
    is_table: bool,
    pages: &Pages<'_>,
    taken: &mut PageSet,
    each: &mut impl FnMut(Row) -> Result<(), E>,
) -> Result<Walked, E> {
    let mut walked = Walked::default();
    let mut stack = Vec::new();
    let go_to = |no, stack: &mut Vec<u32>, taken: &mut PageSet, walked: &mut Walked| {
        // Taken before it is read, so the stack holds each page once.
        match pages.present.contains(no) && taken.insert(no).unwrap_or(false) {
            true => stack.push(no),
            false => walked.missing_pages += 1,
        }
    };
    go_to(root, &mut stack, taken, &mut walked);
    while let Some(no) = stack.pop() {
        let page = pages
            .read(no)
            .and_then(|bytes| Page::parse(no, bytes, pages.usable));
        let Some(page) = page.filter(|page| page.kind.is_table() == is_table) else {
            walked.missing_pages += 1;
            continue;
        };
        for row in page.rows(pages, taken) {
            match row {
                Ok(row) => each(row)?,
                Err(Unreadable) => walked.unreadable_rows += 1,
            }
        }
        let below = stack.len();
        for child in page.children() {
            go_to(child, &mut stack, taken, &mut walked);
        }
        if let Some(children) = stack.get_mut(below..) {
            children.reverse();
        }
    }
    Ok(walked)
}
