//! blktrace's own files, one for each processor: binary records (`include/uapi/linux/blktrace_api.h`),
//! in the byte order of the traced machine. The first record's magic number tells it.
//!
//! ```text
//!  0  4  magic: 0x65617400, and the version in the last byte: 7
//!  4  4  sequence: of this processor       32  4  pid
//!  8  8  time: nanoseconds                 36  4  device: major << 20 | minor
//! 16  8  sector: of 512 bytes              40  4  cpu
//! 24  4  bytes                             44  2  error
//! 28  4  action: category << 16 | action   46  2  length of the data that follow
//! ```

use std::io::{self, BufRead, Read};

use super::blkparse::Action;
use super::{Asked, Kind, Line, SECTOR_BYTES};

/// Bytes of a record without its data.
const BYTES: usize = 48;

/// `BLK_IO_TRACE_MAGIC`; the lowest byte is the version.
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;

/// Categories, shifted as in a record's action: `BLK_TC_ACT(BLK_TC_...)`.
const WRITE: u32 = 1 << (16 + 1);
const FLUSH: u32 = 1 << (16 + 2);
const PC: u32 = 1 << (16 + 9);
const NOTIFY: u32 = 1 << (16 + 10);
const DISCARD: u32 = 1 << (16 + 13);
const FUA: u32 = 1 << (16 + 15);

/// A flag of the action: the data begin with the number of a control group.
const CGROUP: u32 = 1 << 8;

/// The last of the actions, which are numbered from 1.
const LAST_ACTION: u32 = 17;

/// Whether a file with this beginning is of blktrace, in either byte order and of any version.
pub fn is_blktrace(first: &[u8]) -> bool {
    matches!(
        first,
        [1..=9, b't', b'a', b'e', ..] | [b'e', b'a', b't', 1..=9, ..]
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

/// Why there is no next record.
#[derive(Debug)]
pub enum Problem {
    /// The file ends inside a record.
    CutOff(String),
    /// The file cannot be read, or a record does not begin where it must.
    Unreadable(String),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// The records of one file.
#[derive(Debug)]
pub struct Records<R> {
    input: R,
    /// The offset of the record that was read last, and of the next one.
    at: u64,
    next: u64,
    order: Option<Order>,
}

/// The fields of a record that a replay needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    time_ns: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    device: u32,
}

impl<R: BufRead> Records<R> {
    pub fn new(input: R) -> Self {
        Self {
            input,
            at: 0,
            next: 0,
            order: None,
        }
    }

    /// The offset of the record that was read last, or could not be read, in bytes.
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// The next record; `None` at the end.
    pub fn read(&mut self) -> Result<Option<Record>, Problem> {
        self.at = self.next;
        let mut bytes = Vec::with_capacity(BYTES);
        (&mut self.input)
            .take(BYTES as u64)
            .read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        if bytes.len() < BYTES {
            let has = bytes.len();
            return Err(cut_off(&format!("{has} of a record's {BYTES} bytes")));
        }
        let order = order_of(&bytes).map_err(Problem::Unreadable)?;
        if self.order.is_some_and(|first| first != order) {
            let said = "its byte order is not that of the first record";
            return Err(Problem::Unreadable(said.to_owned()));
        }
        self.order = Some(order);
        let (record, data) = Record::of(&bytes, order);
        let skipped = io::copy(
            &mut (&mut self.input).take(u64::from(data)),
            &mut io::sink(),
        )?;
        if skipped < u64::from(data) {
            return Err(cut_off(&format!(
                "{skipped} of the {data} bytes of data behind this record"
            )));
        }
        self.next += BYTES as u64 + skipped;
        Ok(Some(record))
    }
}

fn cut_off(has: &str) -> Problem {
    Problem::CutOff(format!("the file ends with {has}"))
}

/// The order of a record's bytes, by its magic number.
fn order_of(record: &[u8]) -> Result<Order, String> {
    let magic: [u8; 4] = Fields::new(record, Order::Little).next();
    for (order, magic) in [
        (Order::Little, u32::from_le_bytes(magic)),
        (Order::Big, u32::from_be_bytes(magic)),
    ] {
        match (magic & !0xFF, magic & 0xFF) {
            (MAGIC, VERSION) => return Ok(order),
            (MAGIC, version) => {
                return Err(format!(
                    "it has version {version} of blktrace's format, and only version {VERSION} can be read; \
                     make text of it with blkparse"
                ));
            }
            _ => {}
        }
    }
    Err("no record of blktrace begins here: its magic number is missing".to_owned())
}

/// The fields of a record, one after the other.
struct Fields<'a> {
    rest: &'a [u8],
    order: Order,
}

impl<'a> Fields<'a> {
    /// Of a whole record.
    fn new(record: &'a [u8], order: Order) -> Self {
        Self {
            rest: record,
            order,
        }
    }

    /// The next field, with its lowest byte first.
    fn next<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        if let Some((first, rest)) = self.rest.split_at_checked(N) {
            field.copy_from_slice(first);
            self.rest = rest;
        }
        if self.order == Order::Big {
            field.reverse();
        }
        field
    }

    fn next_u32(&mut self) -> u32 {
        u32::from_le_bytes(self.next())
    }

    fn next_u64(&mut self) -> u64 {
        u64::from_le_bytes(self.next())
    }
}

impl Record {
    /// A record, and the length of the data behind it.
    fn of(bytes: &[u8], order: Order) -> (Self, u16) {
        let mut fields = Fields::new(bytes, order);
        let (_magic, _sequence) = (fields.next_u32(), fields.next_u32());
        let (time_ns, sector) = (fields.next_u64(), fields.next_u64());
        let (bytes, action) = (fields.next_u32(), fields.next_u32());
        let (_pid, device, _cpu) = (fields.next_u32(), fields.next_u32(), fields.next_u32());
        let _error: [u8; 2] = fields.next();
        let data = u16::from_le_bytes(fields.next());
        let record = Self {
            time_ns,
            sector,
            bytes,
            action,
            device,
        };
        (record, data)
    }

    /// The request, if it is one and this is the action that counts. The rules are those of the text
    /// that blkparse makes of it.
    ///
    /// # Errors
    /// If there is no such action or sector.
    pub fn line(&self, counts: Action) -> Result<Line, String> {
        let has = |category: u32| self.action & category != 0;
        if has(NOTIFY) {
            return Ok(Line::Other);
        }
        let action = self.action & 0xFFFF & !CGROUP;
        if action == 0 || action > LAST_ACTION {
            return Err(format!("there is no action {action}"));
        }
        // A command for the device itself has no address.
        if action != counts.number() || has(PC) {
            return Ok(Line::Other);
        }
        let kind = match (has(DISCARD), has(WRITE)) {
            (true, _) => Some(Kind::Trim),
            (false, true) => Some(Kind::Write),
            (false, false) => (self.bytes > 0).then_some(Kind::Read),
        };
        let asked = Asked {
            kind,
            flush_before: has(FLUSH),
            fua: has(FUA),
        };
        let offset = self.sector.checked_mul(SECTOR_BYTES);
        let offset = match (self.bytes, offset) {
            // An empty flush has no sector.
            (0, _) => 0,
            (_, Some(offset)) => offset,
            (_, None) => return Err(format!("sector {} is beyond any device", self.sector)),
        };
        let device = format!("{},{}", self.device >> 20, self.device & 0xF_FFFF);
        let at_ns = i128::from(self.time_ns);
        Ok(asked.line(at_ns, &device, offset, u64::from(self.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftl::replay::formats::Request;

    /// A record, with `data` bytes behind it.
    fn record(order: Order, action: u32, sector: u64, bytes: u32, data: u16) -> Vec<u8> {
        let mut record = Vec::new();
        let mut field = |mut field: Vec<u8>| {
            if order == Order::Big {
                field.reverse();
            }
            record.extend(field);
        };
        for number in [MAGIC | VERSION, 3] {
            field(number.to_le_bytes().to_vec());
        }
        for number in [123_456_789_012, sector] {
            field(number.to_le_bytes().to_vec());
        }
        for number in [bytes, action, 697, 259 << 20 | 7, 2] {
            field(number.to_le_bytes().to_vec());
        }
        for number in [0, data] {
            field(number.to_le_bytes().to_vec());
        }
        assert_eq!(record.len(), BYTES);
        record.resize(BYTES + usize::from(data), 0xEE);
        record
    }

    /// Why there are no more lines, and the offset.
    type End = Option<(u64, Problem)>;

    /// The lines of a file.
    fn read(file: &[u8]) -> (Vec<Result<Line, String>>, End) {
        let mut records = Records::new(file);
        let mut lines = Vec::new();
        loop {
            match records.read() {
                Ok(Some(record)) => lines.push(record.line(Action::Issue)),
                Ok(None) => return (lines, None),
                Err(problem) => return (lines, Some((records.offset(), problem))),
            }
        }
    }

    #[test]
    fn both_byte_orders_have_the_same_records_and_data_are_skipped() {
        for order in [Order::Little, Order::Big] {
            let queue = 1 << (16 + 4);
            let file = [
                record(order, NOTIFY, 0, 0, 16),
                record(order, NOTIFY | 2 | CGROUP, 0, 0, 300),
                record(order, 1 | queue | WRITE, 16, 4096, 0),
                record(order, 7 | WRITE | FLUSH | FUA, 16, 4096, 0),
                record(order, 7 | CGROUP, 1 << 40, 512, 8),
                record(order, 7 | DISCARD | WRITE, 8, 1 << 20, 0),
                record(order, 7 | FLUSH, u64::MAX, 0, 0),
                record(order, 7 | WRITE, 8, 0, 0),
                record(order, 7 | PC, 0, 36, 16),
                record(order, 8 | WRITE, 16, 4096, 0),
            ]
            .concat();
            let (lines, problem) = read(&file);
            assert!(problem.is_none(), "{problem:?}");
            let others = lines.iter().filter(|line| **line == Ok(Line::Other));
            assert_eq!(others.count(), 6);
            let requests: Vec<Request> = lines
                .into_iter()
                .filter_map(|line| match line.expect("a line") {
                    Line::Request(request) => Some(request),
                    Line::Other => None,
                })
                .collect();
            let of = |kind, offset, bytes| Request {
                at_ns: 123_456_789_012,
                ..Request::new(0, "259,7", kind, offset, bytes)
            };
            assert_eq!(
                requests,
                [
                    Request {
                        flush_before: true,
                        fua: true,
                        ..of(Kind::Write, 8192, 4096)
                    },
                    of(Kind::Read, 1 << 49, 512),
                    of(Kind::Trim, 4096, 1 << 20),
                    of(Kind::Flush, 0, 0),
                ]
            );
        }
    }

    #[test]
    fn a_file_that_is_cut_off_at_any_byte_says_where() {
        let two = [
            record(Order::Little, 7, 8, 512, 16),
            record(Order::Little, 7, 8, 512, 16),
        ]
        .concat();
        for length in 0..=two.len() {
            let (lines, problem) = read(&two[..length]);
            assert_eq!(lines.len(), length / 64);
            match problem {
                None => assert_eq!(length % 64, 0),
                Some((offset, Problem::CutOff(said))) => {
                    assert_eq!(offset, length as u64 / 64 * 64, "{said}");
                    let has = match length % 64 {
                        header @ ..BYTES => format!("{header} of a record's 48 bytes"),
                        more => format!("{} of the 16 bytes of data", more - BYTES),
                    };
                    assert!(said.contains(&has), "{length}: {said}");
                }
                Some((_, problem)) => panic!("{length}: {problem:?}"),
            }
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let good = record(Order::Little, 7, 8, 512, 0);
        let other_order = record(Order::Big, 7, 8, 512, 0);
        let mut newer = good.clone();
        newer[0] = 8;
        for (second, said) in [
            (vec![0; BYTES], "magic number"),
            (newer, "version 8"),
            (other_order, "byte order"),
        ] {
            let (lines, problem) = read(&[&good[..], &second].concat());
            assert_eq!(lines.len(), 1);
            match problem {
                Some((48, Problem::Unreadable(why))) => assert!(why.contains(said), "{why}"),
                other => panic!("{other:?}"),
            }
        }
        for (action, sector, said) in [
            (18, 0, "no action 18"),
            (WRITE, 0, "no action 0"),
            (7 | WRITE, 1 << 55, "beyond any device"),
        ] {
            let (lines, _) = read(&record(Order::Little, action, sector, 512, 0));
            let error = lines[0].clone().expect_err("an error");
            assert!(error.contains(said), "{error}");
        }
    }
}
