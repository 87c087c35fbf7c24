//! The formats of block traces: one line or record at a time to a request.
//!
//! ```text
//! events    `onewrite trace --events`: one JSON object a line
//! blktrace  blktrace's own files: binary records
//! blkparse  the text of blktrace's blkparse
//! fio       fio's iolog, versions 2 and 3
//! msr       MSR Cambridge (Narayanan et al., FAST 2008): comma-separated
//! ```
//!
//! A line is a request, or something that is known not to be one, or an error. Nothing is dropped
//! without a count.

mod blkparse;
pub mod blktrace;
mod events;
mod fio;
mod msr;

pub use blkparse::Action;
use serde::Serialize;

/// Bytes of the sectors that blktrace and blkparse count in.
const SECTOR_BYTES: u64 = 512;

/// The formats.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// `onewrite trace --events`: one JSON object a line
    Events,
    /// blktrace's own files, one for each processor: NAME is NAME.blktrace.0, NAME.blktrace.1 and so on
    Blktrace,
    /// Text of blktrace's blkparse, in its default format
    Blkparse,
    /// fio's iolog, version 2 or 3
    Fio,
    /// MSR Cambridge: Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime
    Msr,
}

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    /// A discard, or sectors to fill with zeros.
    Trim,
    Flush,
}

/// A request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it arrived, in nanoseconds from any moment of the trace.
    pub at_ns: i128,
    /// The disk, file or run that it belongs to.
    pub of: String,
    pub kind: Kind,
    /// In bytes.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub bytes: u64,
    /// The cache is flushed before it.
    pub flush_before: bool,
    /// It is durable when it returns.
    pub fua: bool,
}

impl Request {
    fn new(at_ns: i128, of: &str, kind: Kind, offset: u64, bytes: u64) -> Self {
        Self {
            at_ns,
            of: of.to_owned(),
            kind,
            offset,
            bytes,
            flush_before: false,
            fua: false,
        }
    }
}

/// A line or record of a trace that the format knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    Request(Request),
    /// Not a request: a header, another event, a statistic.
    Other,
}

/// The operation of a request in blktrace's terms, which blkparse shows as RWBS.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// `None` for `N` and the like.
    kind: Option<Kind>,
    flush_before: bool,
    fua: bool,
}

impl Asked {
    /// The request at this place.
    fn line(self, at_ns: i128, device: &str, offset: u64, bytes: u64) -> Line {
        let kind = match (self.kind, bytes) {
            (Some(Kind::Flush), _) => Kind::Flush,
            (_, 0) if self.flush_before => Kind::Flush,
            (None, _) | (_, 0) => return Line::Other,
            (Some(kind), _) => kind,
        };
        let is_flush = kind == Kind::Flush;
        let bytes = if is_flush { 0 } else { bytes };
        Line::Request(Request {
            flush_before: self.flush_before && !is_flush,
            fua: self.fua && !is_flush,
            ..Request::new(at_ns, device, kind, offset, bytes)
        })
    }
}

/// Reads the lines of one trace.
#[derive(Debug)]
pub enum Reader {
    Events,
    Blkparse(blkparse::Reader),
    Fio(fio::Reader),
    Msr,
}

impl Format {
    /// The format of a trace with this first line.
    pub fn of(line: &str) -> Option<Self> {
        let line = line.trim();
        if line.starts_with('{') {
            Some(Self::Events)
        } else if fio::version(line).is_some() {
            Some(Self::Fio)
        } else if msr::is_first(line) {
            Some(Self::Msr)
        } else if blkparse::is_first(line) {
            Some(Self::Blkparse)
        } else {
            None
        }
    }

    /// The reader of its lines; `None` for blktrace, which has none.
    pub fn reader(self, action: Action) -> Option<Reader> {
        Some(match self {
            Self::Events => Reader::Events,
            Self::Blktrace => return None,
            Self::Blkparse => Reader::Blkparse(blkparse::Reader::new(action)),
            Self::Fio => Reader::Fio(fio::Reader::default()),
            Self::Msr => Reader::Msr,
        })
    }
}

impl Reader {
    /// The next line.
    ///
    /// # Errors
    /// If the format has no such line: why.
    pub fn line(&mut self, line: &str) -> Result<Line, String> {
        let line = line.trim();
        if line.is_empty() {
            return Ok(Line::Other);
        }
        match self {
            Self::Events => events::line(line),
            Self::Blkparse(reader) => reader.line(line),
            Self::Fio(reader) => reader.line(line),
            Self::Msr => msr::line(line),
        }
    }
}

/// A number of a line.
fn number<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, String> {
    let parsed = text.parse();
    parsed.map_err(|_| format!("{what} {text:?} is not a number in range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests of a text, and the lines that are none.
    fn read(text: &str) -> (Vec<Request>, usize) {
        let first = text.lines().next().expect("a line");
        let format = Format::of(first).expect("a known format");
        let mut reader = format.reader(Action::Issue).expect("a format of lines");
        let (mut requests, mut others) = (Vec::new(), 0);
        for line in text.lines() {
            match reader.line(line).expect(line) {
                Line::Request(request) => requests.push(request),
                Line::Other => others += 1,
            }
        }
        (requests, others)
    }

    fn refused(format: Format, lines: &[&str]) -> String {
        let mut reader = format.reader(Action::Issue).expect("a format of lines");
        let (last, before) = lines.split_last().expect("a line");
        for line in before {
            reader.line(line).expect(line);
        }
        reader.line(last).expect_err(last)
    }

    #[test]
    fn the_text_of_blkparse_has_what_the_device_got() {
        let text = "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  P   N [kjournald]
  8,0    3        3     0.000002197   697  D   W 223490 + 8 [kjournald]
  8,0    3        4     0.000010000   697  D FWFSM 16 + 8 [jbd2]
  8,0    3        5     0.000020000     0  D  FN [kworker/3:1H]
  8,0    3        6     0.000030000   697  D   D 4096 + 2048 [fstrim]
  8,0    3        7     0.000040000   697  D  RA 8 + 16 [cat]
  8,0    3        8     0.000050000   697  D  WZ 8 + 16 [cat]
  8,0    3        9     0.000060000   697  C   W 223490 + 8 [0]
  8,0    3       10     0.000070000   697  D   R 36 (12 00 00 00 24 00 ..) [smartctl]
  8,0    3        0     0.000080000     0  m   N cfq697 insert_request
CPU3 (8,0):
 Reads Queued:           0,        0KiB	 Writes Queued:           1,        4KiB
Throughput (R/W): 0KiB/s / 1KiB/s
Events (8,0): 11 entries
";
        let (requests, others) = read(text);
        let short: Vec<_> = requests
            .iter()
            .map(|r| (r.kind, r.offset, r.bytes, r.flush_before, r.fua, r.at_ns))
            .collect();
        assert_eq!(
            short,
            [
                (Kind::Write, 223_490 * 512, 4096, false, false, 2197),
                (Kind::Write, 8192, 4096, true, true, 10_000),
                (Kind::Flush, 0, 0, false, false, 20_000),
                (Kind::Trim, 4096 * 512, 1 << 20, false, false, 30_000),
                (Kind::Read, 4096, 8192, false, false, 40_000),
                (Kind::Trim, 4096, 8192, false, false, 50_000),
            ]
        );
        assert_eq!(others, 9);
        assert!(requests.iter().all(|request| request.of == "8,0"));
    }

    #[test]
    fn both_versions_of_fios_iolog_have_times() {
        let v2 = "fio version 2 iolog
/dev/sda add
/dev/sda open
/dev/sda write 4096 8192
/dev/sda wait 1500 0
/dev/sda trim 0 4096
/dev/sda wait 500 0
/dev/sda sync 0 0
/dev/sda datasync 0 0
/dev/sda read 12 4
/dev/sda close
";
        let (requests, others) = read(v2);
        let short: Vec<_> = requests
            .iter()
            .map(|r| (r.kind, r.offset, r.bytes, r.at_ns))
            .collect();
        assert_eq!(
            short,
            [
                (Kind::Write, 4096, 8192, 0),
                (Kind::Trim, 0, 4096, 1_500_000),
                (Kind::Flush, 0, 0, 2_000_000),
                (Kind::Flush, 0, 0, 2_000_000),
                (Kind::Read, 12, 4, 2_000_000),
            ]
        );
        assert_eq!(others, 6);
        let v3 = "fio version 3 iolog
0 a add
2 a open
10 a write 0 512
1000 a sync 0 0
2000 b read 512 512
3000 a close
";
        let (requests, others) = read(v3);
        let short: Vec<_> = requests
            .iter()
            .map(|r| (r.kind, r.of.as_str(), r.offset, r.bytes, r.at_ns))
            .collect();
        assert_eq!(
            short,
            [
                (Kind::Write, "a", 0, 512, 10_000),
                (Kind::Flush, "a", 0, 0, 1_000_000),
                (Kind::Read, "b", 512, 512, 2_000_000),
            ]
        );
        assert_eq!(others, 4);
    }

    #[test]
    fn a_trace_of_msr_has_ticks_of_100_ns_and_disks() {
        let text = "128166372003061629,hm,1,Read,383496192,32768,413
128166372016382155,hm,0,Write,2822144,4096,9073
";
        let (requests, others) = read(text);
        assert_eq!(others, 0);
        assert_eq!(
            requests[0],
            Request::new(
                12_816_637_200_306_162_900,
                "hm_1",
                Kind::Read,
                383_496_192,
                32_768
            )
        );
        assert_eq!(requests[1].at_ns - requests[0].at_ns, 1_332_052_600);
        assert_eq!((requests[1].kind, &*requests[1].of), (Kind::Write, "hm_0"));
        let header = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n";
        assert_eq!(read(&format!("{header}{text}")).1, 1);
    }

    #[test]
    fn our_own_events_have_every_operation() {
        let text = r#"{"op":"write","queued_us":-2.5,"issued_us":3,"completed_us":9.0,"address":512,"bytes":24,"flush_before":true,"fua":true,"sync":true}
{"op":"discard","queued_us":null,"issued_us":4.0,"completed_us":9.0,"address":0,"bytes":8,"mode":"wal"}
{"op":"trim","address":0,"bytes":8}
{"op":"flush_request","completed_us":11.5,"address":0,"bytes":0}
{"op":"flush","completed_us":11.5,"address":0,"bytes":0}
"#;
        let (requests, others) = read(text);
        assert_eq!(others, 1);
        assert!(requests[0].flush_before && requests[0].fua);
        let short: Vec<_> = requests
            .iter()
            .map(|r| (r.kind, r.of.as_str(), r.at_ns))
            .collect();
        assert_eq!(
            short,
            [
                (Kind::Write, "", -2500),
                (Kind::Trim, "wal", 4000),
                (Kind::Trim, "", 0),
                (Kind::Flush, "", 11_500),
            ]
        );
    }

    #[test]
    fn what_a_format_does_not_have_is_an_error() {
        for (format, lines, said) in [
            (
                Format::Events,
                &[r#"{"op":"erase","address":0,"bytes":1}"#][..],
                "\"erase\"",
            ),
            (Format::Events, &["what"], "expected"),
            (
                Format::Blkparse,
                &["8,0 3 1 0.5 697 J W 1 + 8 [x]"],
                "\"J\"",
            ),
            (
                Format::Blkparse,
                &["8,0 3 1 0.5 697 D W -1 + 8 [x]"],
                "\"-1\"",
            ),
            (
                Format::Blkparse,
                &["8,0 3 1 0.5 697 D W 36893488147419103 + 8 [x]"],
                "beyond",
            ),
            (
                Format::Blkparse,
                &["8,0 3 1 0.5 697 D ZR 1 + 8 [x]"],
                "\"ZR\"",
            ),
            (
                Format::Blkparse,
                &["8,0 3 1 0.5 697 D WQ 1 + 8 [x]"],
                "\"WQ\"",
            ),
            (Format::Blkparse, &["8,0 3 1 x 697 D W 1 + 8 [x]"], "\"x\""),
            (Format::Blkparse, &["8,0 3 1"], "fields"),
            (Format::Fio, &["a write 0 1"], "fio version"),
            (
                Format::Fio,
                &["fio version 2 iolog", "a append 0 1"],
                "\"append\"",
            ),
            (
                Format::Fio,
                &["fio version 2 iolog", "a write 0"],
                "offset and length",
            ),
            (
                Format::Fio,
                &["fio version 3 iolog", "x a write 0 1"],
                "\"x\"",
            ),
            (
                Format::Fio,
                &["fio version 3 iolog", "1 a wait 0 1"],
                "\"wait\"",
            ),
            (Format::Fio, &["fio version 4 iolog"], "version 4"),
            (Format::Msr, &["1,hm,1,Erase,0,1,2"], "\"Erase\""),
            (Format::Msr, &["1,hm,1,Read,0,1"], "7 fields"),
            (
                Format::Msr,
                &["1,hm,1,Read,0,99999999999999999999,2"],
                "Size",
            ),
        ] {
            let error = refused(format, lines);
            assert!(error.contains(said), "{lines:?}: {error}");
        }
        for line in ["", "hello", "1,2,3", "fio version 9 iolog", "8;0 1 1"] {
            assert_eq!(Format::of(line), None, "{line}");
        }
    }
}
