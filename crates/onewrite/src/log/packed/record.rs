//! One frame in a log of variable positions: its own header, then the compressed page.
//!
//! ```text
//! packed                               compressed (S-WAL)
//!  0  4  page number                    0  4  page number
//!  4  4  pages of the database after    4  4  the same
//!        a commit, else 0               8  8  salts
//!  8  8  SQLite's checksum             16  8  SQLite's checksum
//! 16  4  kind (top 4 bits), unfinished 24  4  the same
//!        (bit 27), length of the data
//! 20     the data                      28     the data
//! ```
//!
//! Big-endian, as in SQLite's own files. SQLite's bytes are rebuilt from it exactly; the checksums
//! are SQLite's and unchanged. `packed` stores the salts once in a batch. *Unfinished* marks a
//! frame whose salts SQLite has left zero (see `commit::seal`).
//!
//! The kind gives each record's own compression, so a log may hold records of all kinds. In a
//! [`Kind::Delta`], the number of another frame comes before the data, four bytes: its page is the
//! dictionary. In a [`Kind::Ranges`] it is the page that the ranges change. That frame holds its page
//! whole, so no chains of differences arise. In a record with
//! *supersedes* (bit 26), the number of the frame that it replaces comes before the data. Only
//! `compressed` has these; a batch itself says where it begins.

use super::codec::{self, Method};
use super::ranges;
use crate::storage::AlignedBuf;
use crate::wal::{FRAME_HEADER_BYTES, FrameHeader, FrameNo, PageNo, PageSize, Salts, array, be32};

/// How a record stores its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Uncompressed.
    Stored,
    /// Compressed by itself.
    Whole(Method),
    /// Compressed with the page of this frame as its dictionary.
    Delta(Method, FrameNo),
    /// The byte ranges that differ from the page of this frame.
    Ranges(FrameNo),
}

/// A record of the present generation whose kind this version does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownKind(pub u8);

impl Kind {
    fn code(self) -> u32 {
        match self {
            Kind::Stored => 0,
            Kind::Whole(Method::Lz4) => 1,
            Kind::Delta(Method::Lz4, _) => 2,
            Kind::Whole(Method::Zstd) => 3,
            Kind::Delta(Method::Zstd, _) => 4,
            Kind::Ranges(_) => 5,
        }
    }

    /// The frame that is needed to read it.
    pub fn base(self) -> Option<FrameNo> {
        match self {
            Kind::Delta(_, base) | Kind::Ranges(base) => Some(base),
            Kind::Stored | Kind::Whole(_) => None,
        }
    }

    /// Whether a record of this kind may have so many bytes of data. Another is no record.
    pub fn takes(self, data: usize, page: PageSize) -> bool {
        match self {
            Kind::Stored => data == page.bytes(),
            Kind::Whole(_) | Kind::Delta(..) | Kind::Ranges(_) => (1..page.bytes()).contains(&data),
        }
    }

    /// Bytes of the frame number before the data.
    pub fn number_bytes(self) -> usize {
        match self.base() {
            Some(_) => NUMBER,
            None => 0,
        }
    }
}

/// The fields of a record's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// In a batch, which has the salts.
    Packed,
    /// On its own: S-WAL's compression header.
    Compressed,
}

const UNFINISHED: u32 = 1 << 27;
const SUPERSEDES: u32 = 1 << 26;
const LENGTH: u32 = SUPERSEDES - 1;
/// Bytes of a frame number before the data.
const NUMBER: usize = 4;

impl Form {
    /// Bytes of a record's header, before any frame number.
    pub fn header_bytes(self) -> usize {
        match self {
            Form::Packed => 20,
            Form::Compressed => 28,
        }
    }

    /// Bytes before the first record of one write.
    pub fn head_bytes(self) -> usize {
        match self {
            Form::Packed => super::batch::HEADER_BYTES,
            Form::Compressed => 0,
        }
    }

    /// The most bytes in a record of such a page.
    pub fn most_bytes(self, page: PageSize) -> usize {
        self.header_bytes() + NUMBER + page.bytes()
    }
}

/// A record's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// SQLite's frame header.
    pub frame: FrameHeader,
    /// How the page is stored.
    pub kind: Kind,
    /// The frame that this one replaces, if it is not the next one.
    pub supersedes: Option<FrameNo>,
    /// Bytes from the record's start to the data.
    pub head: usize,
    /// Bytes of the data.
    pub data: usize,
}

/// The most bytes before a record's data: SQLite's header, a word, and two frame numbers.
const MAX_HEAD_BYTES: usize = FRAME_HEADER_BYTES + 4 + 2 * 4;

impl Record {
    /// Bytes in total.
    pub fn bytes(&self) -> usize {
        self.head + self.data
    }

    /// Reads a record's header. `None` if there is none, or if it is impossible.
    ///
    /// `generation` are the salts of the log's present generation: a record of another generation
    /// is none.
    ///
    /// # Errors
    /// A record of this generation that this version cannot read.
    pub fn parse(
        bytes: &[u8],
        form: Form,
        page: PageSize,
        generation: Salts,
    ) -> Result<Option<Record>, UnknownKind> {
        let Some(fixed) = bytes.get(..form.header_bytes()) else {
            return Ok(None);
        };
        let at = form.header_bytes() - 4;
        let word = be32(fixed, at);
        let unfinished = word & UNFINISHED != 0;
        let salts = match (form, unfinished) {
            (Form::Compressed, _) => Salts(array(&fixed[8..16])),
            (Form::Packed, true) => Salts([0; 8]),
            (Form::Packed, false) => generation,
        };
        if salts != generation && !(unfinished && salts == Salts([0; 8])) {
            return Ok(None);
        }
        let mut head = form.header_bytes();
        let mut number = || {
            let number = FrameNo(be32(bytes.get(head..head + NUMBER)?, 0));
            head += NUMBER;
            (number.0 != 0).then_some(number)
        };
        let supersedes = match word & SUPERSEDES {
            0 => None,
            _ => match number() {
                None => return Ok(None),
                number => number,
            },
        };
        let delta = |method, number: Option<FrameNo>| number.map(|of| Kind::Delta(method, of));
        let kind = match word >> 28 {
            0 => Some(Kind::Stored),
            1 => Some(Kind::Whole(Method::Lz4)),
            2 => delta(Method::Lz4, number()),
            3 => Some(Kind::Whole(Method::Zstd)),
            4 => delta(Method::Zstd, number()),
            5 => number().map(Kind::Ranges),
            // Without salts, any bytes after the end of a log may look like this.
            _ if salts != generation && form == Form::Compressed => None,
            kind => return Err(UnknownKind(kind as u8)),
        };
        let Some(kind) = kind else {
            return Ok(None);
        };
        let data = (word & LENGTH) as usize;
        let frame = FrameHeader {
            page: PageNo(be32(fixed, 0)),
            commit_pages: be32(fixed, 4),
            salts,
            checksum: [be32(fixed, at - 8), be32(fixed, at - 4)],
        };
        Ok(
            (kind.takes(data, page) && frame.page.0 != 0).then_some(Record {
                frame,
                kind,
                supersedes,
                head,
                data,
            }),
        )
    }

    /// Appends a record to `out`, with SQLite's header, and data as `kind` says.
    pub fn append(
        out: &mut AlignedBuf,
        form: Form,
        header: &[u8; FRAME_HEADER_BYTES],
        kind: Kind,
        supersedes: Option<FrameNo>,
        data: &[u8],
    ) {
        let mut head = [0; MAX_HEAD_BYTES];
        let mut bytes = 0;
        let mut put = |part: &[u8]| {
            head[bytes..bytes + part.len()].copy_from_slice(part);
            bytes += part.len();
        };
        put(&header[..8]);
        if form == Form::Compressed {
            put(&header[8..16]);
        }
        put(&header[16..24]);
        let unfinished = match header[8..16] == [0; 8] {
            true => UNFINISHED,
            false => 0,
        };
        let superseding = supersedes.map_or(0, |_| SUPERSEDES);
        let word = kind.code() << 28 | unfinished | superseding | data.len() as u32;
        put(&word.to_be_bytes());
        if let Some(frame) = supersedes {
            put(&frame.0.to_be_bytes());
        }
        if let Some(base) = kind.base() {
            put(&base.0.to_be_bytes());
        }
        out.extend_from_slice(&head[..bytes]);
        out.extend_from_slice(data);
    }
}

/// Extracts a page from a record's data. `base` is the dictionary of a delta. `false` if the data
/// are damaged.
pub fn unpack(kind: Kind, data: &[u8], base: &[u8], page: &mut [u8]) -> bool {
    match kind {
        Kind::Stored if data.len() == page.len() => {
            page.copy_from_slice(data);
            true
        }
        Kind::Stored => false,
        Kind::Whole(method) => codec::decompress(method, data, None, page),
        Kind::Delta(method, _) => codec::decompress(method, data, Some(base), page),
        Kind::Ranges(_) => ranges::apply(data, base, page),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LZ4: Kind = Kind::Whole(Method::Lz4);

    fn page_size() -> PageSize {
        PageSize::new(512).expect("512 is a page size")
    }

    fn header(salts: Salts) -> FrameHeader {
        FrameHeader {
            page: PageNo(7),
            commit_pages: 9,
            salts,
            checksum: [1, 2],
        }
    }

    #[test]
    fn what_is_appended_is_parsed() {
        let salts = Salts(*b"generati");
        for form in [Form::Packed, Form::Compressed] {
            for (kind, data) in [
                (Kind::Stored, vec![3; 512]),
                (Kind::Whole(Method::Lz4), vec![4; 100]),
                (Kind::Whole(Method::Zstd), vec![4; 200]),
                (Kind::Delta(Method::Lz4, FrameNo(3)), vec![5; 10]),
                (Kind::Delta(Method::Zstd, FrameNo(4)), vec![5; 20]),
                (Kind::Ranges(FrameNo(4)), vec![5; 20]),
            ] {
                for supersedes in [None, Some(FrameNo(2))] {
                    for of in [salts, Salts([0; 8])] {
                        let mut out = AlignedBuf::new();
                        let frame = header(of);
                        Record::append(&mut out, form, &frame.to_bytes(), kind, supersedes, &data);
                        let record = Record::parse(&out, form, page_size(), salts);
                        let record = record.expect("a known kind").expect("a record");
                        assert_eq!((record.frame, record.kind), (frame, kind));
                        assert_eq!(record.supersedes, supersedes);
                        assert_eq!(record.bytes(), out.len());
                        assert_eq!(out[record.head..], data);
                        assert!(out.len() <= form.most_bytes(page_size()) + NUMBER);
                    }
                }
            }
        }
    }

    #[test]
    fn lengths_and_numbers_that_cannot_be_are_no_record() {
        let salts = Salts([1; 8]);
        let parse = |kind, page: u32, data: &[u8]| {
            let mut out = AlignedBuf::new();
            let mut frame = header(salts);
            frame.page = PageNo(page);
            Record::append(&mut out, Form::Packed, &frame.to_bytes(), kind, None, data);
            Record::parse(&out, Form::Packed, page_size(), salts).expect("a known kind")
        };
        assert!(parse(LZ4, 1, &[1; 511]).is_some());
        assert!(parse(LZ4, 1, &[1; 512]).is_none());
        assert!(parse(LZ4, 1, &[]).is_none());
        assert!(parse(LZ4, 0, &[1; 9]).is_none());
        assert!(parse(Kind::Stored, 1, &[1; 511]).is_none());
        assert!(parse(Kind::Delta(Method::Zstd, FrameNo(0)), 1, &[1; 9]).is_none());
        assert!(parse(Kind::Ranges(FrameNo(0)), 1, &[1; 9]).is_none());
    }

    #[test]
    fn bytes_behind_the_end_are_of_no_newer_version() {
        let mut bytes = [0; 64];
        bytes[3] = 7;
        // An unknown kind in an unfinished record, whose salts are zero.
        bytes[Form::Compressed.header_bytes() - 4] = 0xf8;
        let parsed = Record::parse(&bytes, Form::Compressed, page_size(), Salts([1; 8]));
        assert_eq!(parsed, Ok(None));
    }

    #[test]
    fn a_kind_of_a_newer_version_is_told_from_no_record() {
        let salts = Salts([1; 8]);
        for form in [Form::Packed, Form::Compressed] {
            for kind in 6..16u8 {
                let mut out = AlignedBuf::new();
                let frame = header(salts);
                Record::append(&mut out, form, &frame.to_bytes(), LZ4, None, &[1; 9]);
                let at = form.header_bytes() - 4;
                out[at] = kind << 4 | out[at] & 0xf;
                let parse = |generation| Record::parse(&out, form, page_size(), generation);
                assert_eq!(parse(salts), Err(UnknownKind(kind)));
                if form == Form::Compressed {
                    assert_eq!(parse(Salts([2; 8])), Ok(None), "of another generation");
                }
            }
        }
    }
}
