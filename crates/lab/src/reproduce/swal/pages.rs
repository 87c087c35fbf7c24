//! Figures 4 and 9: the compressed size of each transaction's pages, and the time of compression.
//!
//! The applications run in stock WAL without a checkpoint. Then each page of the log is compressed
//! by itself, as in S-WAL, with the compressor of `swal`. The paper does not name its library.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use onewrite::log::packed::codec::{self, Method};
use onewrite::wal::{FRAME_HEADER_BYTES, HEADER_BYTES};
use onewrite_workload::connection::{Checkpoint, Settings};
use onewrite_workload::databases::{self, Databases};
use onewrite_workload::mode::{Mode, Synchronous};
use onewrite_workload::plan::Op;
use onewrite_workload::team::{self, Control};

use super::data::{self, APPLICATIONS};
use super::{AUTOCHECKPOINT, GENERATED, length};
use crate::reproduce::experiment::Experiment;
use crate::reproduce::outcome::{Kind, Predicted, Reason, Row, Shown, Side, explain};
use onewrite_cli::interrupt;

/// Transactions of an application whose pages are kept, at most.
const MOST: u32 = 1_000;

/// Bytes of a page in the workloads.
const PAGE: usize = 4096;

const A_TENTH: &str = "pages that compress to a tenth";
const A_HALF: &str = "pages that compress to a half";
const MEDIAN: &str = "median size";
const TIME: &str = "compression of a transaction";

/// The pages of each transaction of an application, from all its files.
pub struct Logged {
    /// One transaction after the other, file by file.
    pub transactions: Vec<Vec<LoggedPage>>,
}

/// A page of a log.
pub struct LoggedPage {
    /// The file, counted, and the page's number in it.
    of: (usize, u32),
    bytes: Vec<u8>,
}

impl Logged {
    fn pages(&self) -> impl Iterator<Item = &[u8]> {
        self.transactions
            .iter()
            .flatten()
            .map(|page| page.bytes.as_slice())
    }
}

/// The size of a packed log of an application in blocks of 4 KiB a transaction, from the contents of
/// its pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blocks {
    /// Pages that a transaction logs.
    pub pages: f64,
    /// Each page compressed by itself.
    pub alone: f64,
    /// The same with differences from each page's last whole version, as `swal` stores them.
    pub with_differences: f64,
    /// All pages of a transaction compressed as one.
    pub together: f64,
    /// The first and the third with zstd.
    pub zstd_alone: f64,
    pub zstd_together: f64,
}

/// The shares of a page's own size, and of a page, up to which `swal` stores a difference. A page
/// that differs more is stored whole again (`onewrite`'s `log::packed::packer`).
const DIFFERENCE_PART: usize = 4;
const SMALL_DIFFERENCE_PART: usize = 16;

/// A page's last whole version, and its compressed size.
struct Whole<'a> {
    bytes: &'a [u8],
    size: usize,
}

/// The pages that the logs hold whole, by file and number.
#[derive(Default)]
struct Wholes<'a> {
    pages: BTreeMap<(usize, u32), Whole<'a>>,
    /// Frames of each file's log.
    frames: BTreeMap<usize, usize>,
}

impl<'a> Wholes<'a> {
    /// A transaction is over. After a checkpoint its log begins again, and no difference refers to
    /// what was there before.
    fn end(&mut self, pages: &[LoggedPage]) {
        let Some(file) = pages.first().map(|page| page.of.0) else {
            return;
        };
        let frames = self.frames.entry(file).or_default();
        *frames += pages.len();
        if *frames >= AUTOCHECKPOINT as usize {
            *frames = 0;
            self.pages.retain(|(of, _), _| *of != file);
        }
    }

    /// The size of a page that takes `own` bytes by itself: as a difference, or whole.
    fn size(&mut self, page: &'a LoggedPage, own: usize, space: &mut [u8]) -> usize {
        let base = self.pages.get(&page.of);
        let difference = base.and_then(|base| {
            let size = codec::compress(Method::Lz4, &page.bytes, Some(base.bytes), space)?;
            let most = own.max(base.size) / DIFFERENCE_PART;
            (size <= PAGE / SMALL_DIFFERENCE_PART || size < most).then_some(size)
        });
        difference.unwrap_or_else(|| {
            let bytes = page.bytes.as_slice();
            self.pages.insert(page.of, Whole { bytes, size: own });
            own
        })
    }
}

/// Blocks a transaction by the compressed sizes of its pages. Each compressed piece has a header as
/// in a WAL, and so has the transaction. The sum is rounded up to whole blocks.
pub fn blocks(experiment: &Experiment<'_>, op: Op) -> Result<Blocks, String> {
    let logged = logged(experiment, op)?;
    let count = f64::from(length(experiment.choice(), op).clamp(1, MOST));
    Ok(packed(&logged, count))
}

fn packed(logged: &Logged, count: f64) -> Blocks {
    let largest = logged.transactions.iter().map(Vec::len).max().unwrap_or(1);
    let mut space = vec![0; codec::space_for(PAGE * largest.max(1))];
    let mut wholes = Wholes::default();
    let mut sum = Blocks::default();
    for pages in &logged.transactions {
        let mut size = |method, bytes: &[u8]| {
            let size = codec::compress(method, bytes, None, &mut space).unwrap_or(bytes.len());
            FRAME_HEADER_BYTES + size.min(bytes.len())
        };
        let all: Vec<u8> = pages.iter().flat_map(|page| page.bytes.clone()).collect();
        let alone: Vec<usize> = pages
            .iter()
            .map(|page| size(Method::Lz4, &page.bytes))
            .collect();
        let zstd = pages.iter().map(|page| size(Method::Zstd, &page.bytes));
        sum.zstd_alone += whole_blocks(zstd.sum());
        sum.together += whole_blocks(size(Method::Lz4, &all));
        sum.zstd_together += whole_blocks(size(Method::Zstd, &all));
        let fewer = pages.iter().zip(&alone).map(|(page, alone)| {
            let own = alone - FRAME_HEADER_BYTES;
            FRAME_HEADER_BYTES + wholes.size(page, own, &mut space)
        });
        sum.with_differences += whole_blocks(fewer.sum());
        wholes.end(pages);
        sum.alone += whole_blocks(alone.iter().sum());
        sum.pages += pages.len() as f64;
    }
    Blocks {
        pages: sum.pages / count,
        alone: sum.alone / count,
        with_differences: sum.with_differences / count,
        together: sum.together / count,
        zstd_alone: sum.zstd_alone / count,
        zstd_together: sum.zstd_together / count,
    }
}

/// Blocks of a transaction of so many bytes.
fn whole_blocks(bytes: usize) -> f64 {
    (HEADER_BYTES + bytes).div_ceil(PAGE) as f64
}

/// Runs an application and reads what it logged.
fn logged(experiment: &Experiment<'_>, op: Op) -> Result<Logged, String> {
    let text = |error: onewrite_workload::Error| error.to_string();
    let plan = experiment.plan(op, length(experiment.choice(), op).min(MOST));
    let dir = experiment.directory("pages")?;
    let path = dir.path().join("test.db");
    let settings = Settings {
        mode: Mode::parse("wal").map_err(text)?,
        synchronous: Synchronous::Off,
        autocheckpoint: 0,
    };
    let stop = interrupt::requested();
    let mut databases = Databases::open(&settings, &path, plan.databases()).map_err(text)?;
    plan.populate(&mut databases, stop).map_err(text)?;
    databases.checkpoint(Checkpoint::Truncate).map_err(text)?;
    let mut seats = [databases];
    team::run(&plan, 0, &mut seats, &Control::default(), stop, || Ok(())).map_err(text)?;
    let mut transactions = Vec::new();
    for (file, database) in databases::paths(&path, plan.databases()).enumerate() {
        let mut log = database.into_os_string();
        log.push("-wal");
        let bytes = fs::read(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        transactions.extend(frames(file, &bytes)?);
    }
    let [databases] = seats;
    databases.close().map_err(text)?;
    Ok(Logged { transactions })
}

/// The pages of a log of stock SQLite, by transaction. Nothing else writes the log, and it was
/// never reused.
fn frames(file: usize, log: &[u8]) -> Result<Vec<Vec<LoggedPage>>, String> {
    let mut transactions = vec![Vec::new()];
    let Some(frames) = log.get(HEADER_BYTES..) else {
        return Ok(Vec::new());
    };
    for frame in frames.chunks_exact(FRAME_HEADER_BYTES + PAGE) {
        let (header, page) = frame.split_at(FRAME_HEADER_BYTES);
        if let Some(transaction) = transactions.last_mut() {
            let number = header
                .first_chunk()
                .map_or(0, |bytes| u32::from_be_bytes(*bytes));
            transaction.push(LoggedPage {
                of: (file, number),
                bytes: page.to_vec(),
            });
        }
        // Bytes 4 to 7: the size of the database after a commit, else 0.
        if header.get(4..8).is_some_and(|size| size != [0; 4]) {
            transactions.push(Vec::new());
        }
    }
    match transactions.pop() {
        Some(last) if last.is_empty() => Ok(transactions),
        _ => Err("a log does not end with a commit".to_owned()),
    }
}

/// The compressed size of each page in bytes; its full size if it does not compress.
fn sizes(logged: &Logged, method: Method) -> Vec<usize> {
    let mut space = vec![0; codec::space_for(PAGE)];
    let size = |page: &[u8]| codec::compress(method, page, None, &mut space).unwrap_or(PAGE);
    let mut sizes: Vec<usize> = logged.pages().map(size).collect();
    sizes.sort_unstable();
    sizes
}

/// The share of sizes up to `most`.
fn share(sorted: &[usize], most: usize) -> f64 {
    sorted.partition_point(|size| *size <= most) as f64 / sorted.len().max(1) as f64
}

/// Figure 4: the compressed size of pages.
pub fn figure_4(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let mut rows = Vec::new();
    for one in &APPLICATIONS {
        let sorted = sizes(&logged(experiment, one.op)?, Method::Lz4);
        let row = |quantity, unit| Row::new(one.name, quantity, unit, Kind::Counted).ran("LZ4");
        let tenth = (one.op == Op::Messenger).then_some(data::MESSENGER_TO_A_TENTH);
        let half = (one.op == Op::Sns).then_some(data::SNS_TO_A_HALF);
        let median = onewrite_common::middle(&sorted).map(|size| *size as f64);
        rows.extend([
            row(A_TENTH, "of 1")
                .paper(tenth)
                .ours(Some(share(&sorted, PAGE / 10)))
                .judged(),
            row(A_HALF, "of 1")
                .paper(half)
                .ours(Some(share(&sorted, PAGE / 2)))
                .judged(),
            row(MEDIAN, "bytes").ours(median).judged(),
        ]);
    }
    let differences = explain(&rows, SIZE_REASONS, experiment)?;
    Ok(Shown {
        figure: "figure-4",
        title: "what journaled pages compress to",
        how: format!(
            "every page of 4 KiB that the first {MOST} transactions of each application log, by itself"
        ),
        rows,
        differences,
        sequences: Vec::new(),
        notes: vec![
            GENERATED.to_owned(),
            "the paper does not name its library; ours is LZ4, as in swal".to_owned(),
        ],
    })
}

const BOTH: &str = "the share by zstd, and by LZ4";
const ZSTD: &str = "the share by zstd";

const SIZE_REASONS: &[Reason] = &[
    Reason {
        of: |_| true,
        side: Side::Below,
        sentence: "LZ4 repeats strings and codes nothing by frequency; with a library that does, as the paper's may, \
                   pages come to the paper's sizes.",
        count: BOTH,
        predict: with_zstd,
    },
    Reason {
        of: |_| true,
        side: Side::Below,
        sentence: "The generated pages, words drawn at random and BLOBs that do not compress, repeat themselves less \
                   than those that the paper recorded and never published, whatever the library.",
        count: ZSTD,
        predict: not_with_zstd,
    },
];

/// The same row with zstd.
fn by_zstd(experiment: &Experiment<'_>, row: &Row) -> Result<(f64, String), String> {
    let one = APPLICATIONS.iter().find(|one| one.name == row.name);
    let one = one.ok_or("no such application")?;
    let logged = logged(experiment, one.op)?;
    let (lz4, zstd) = (sizes(&logged, Method::Lz4), sizes(&logged, Method::Zstd));
    let most = if row.quantity == A_TENTH {
        PAGE / 10
    } else {
        PAGE / 2
    };
    let share_by_zstd = share(&zstd, most);
    let hard = 1.0 - share(&lz4, PAGE * 9 / 10);
    let told = format!(
        "{share_by_zstd:.2} with zstd; {:.0} % of the pages keep more than nine tenths of their size",
        hard * 100.0
    );
    Ok((share_by_zstd, told))
}

/// The paper's share without what frequencies bring.
fn with_zstd(experiment: &mut Experiment<'_>, row: &Row) -> Result<Predicted, String> {
    let (zstd, told) = by_zstd(experiment, row)?;
    let figure = without_frequencies(row, zstd);
    Ok(Predicted::of_row(figure, "the same share:", told))
}

/// The paper's share less what zstd adds to the share by LZ4, which is the row's.
fn without_frequencies(row: &Row, zstd: f64) -> f64 {
    row.compared_paper() - (zstd - row.compared_figure())
}

/// The share of any library: that of the one which compresses most.
fn not_with_zstd(experiment: &mut Experiment<'_>, row: &Row) -> Result<Predicted, String> {
    let (zstd, told) = by_zstd(experiment, row)?;
    Ok(Predicted::of_row(zstd, "the same share:", told))
}

/// Microseconds of compression for each transaction's pages, sorted.
fn times(logged: &Logged, method: Method) -> Vec<f64> {
    let mut space = vec![0; codec::space_for(PAGE)];
    let mut times: Vec<f64> = logged
        .transactions
        .iter()
        .map(|pages| {
            let begun = Instant::now();
            for page in pages {
                std::hint::black_box(codec::compress(method, &page.bytes, None, &mut space));
            }
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Figure 9: how long compression takes.
pub fn figure_9(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let mut rows = Vec::new();
    for one in &APPLICATIONS {
        let logged = logged(experiment, one.op)?;
        for (method, name) in [(Method::Lz4, "LZ4"), (Method::Zstd, "zstd")] {
            let times = times(&logged, method);
            let average = times.iter().sum::<f64>() / times.len().max(1) as f64;
            let row = Row::new(one.name, TIME, "us", Kind::Timed).ran(name);
            rows.push(
                row.paper(Some(data::COMPRESSION_US))
                    .ours(Some(average))
                    .judged(),
            );
        }
    }
    let differences = explain(&rows, TIME_REASONS, experiment)?;
    Ok(Shown {
        figure: "figure-9",
        title: "compression time of a transaction",
        how: format!(
            "all pages that a transaction logs, each by itself; mean of the first {MOST} transactions of each application"
        ),
        rows,
        differences,
        sequences: Vec::new(),
        notes: vec![GENERATED.to_owned()],
    })
}

const A_PAGE: &str = "pages a transaction, and the time of a page by zstd in all applications";

const TIME_REASONS: &[Reason] = &[Reason {
    of: |row| row.ran.as_deref() == Some("zstd"),
    side: Side::Above,
    sentence: "zstd compresses by frequency as well, which takes longer than repeating strings alone, as LZ4 does; the \
               paper does not name its library.",
    count: A_PAGE,
    predict: by_the_page,
}];

/// The mean number of pages a transaction, times the mean time of a page in all applications.
fn by_the_page(experiment: &mut Experiment<'_>, row: &Row) -> Result<Predicted, String> {
    let (mut of_app, mut us, mut pages) = (f64::NAN, 0.0, 0.0);
    for one in &APPLICATIONS {
        let logged = logged(experiment, one.op)?;
        let of_one = logged.pages().count() as f64;
        us += times(&logged, Method::Zstd).iter().sum::<f64>();
        pages += of_one;
        if one.name == row.name {
            of_app = of_one / logged.transactions.len().max(1) as f64;
        }
    }
    let a_page = us_a_page(us, pages);
    Ok(Predicted::of_row(
        of_app * a_page,
        &format!("{a_page:.0} us a page by zstd; pages a transaction:"),
        format!("{of_app:.1}"),
    ))
}

/// The mean time of a page.
fn us_a_page(us: f64, pages: f64) -> f64 {
    us / pages.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::outcome::tests::can_fail;

    /// A fifth of Messenger's pages compress to a tenth; in the paper half.
    #[test]
    fn the_shares_by_zstd_can_speak_against_their_reasons() {
        let row = Row::new("Messenger", A_TENTH, "of 1", Kind::Counted)
            .paper(Some(data::MESSENGER_TO_A_TENTH))
            .ours(Some(0.2))
            .judged();
        // Planted: zstd as LZ4, and far more than the paper.
        let wrong = [0.2, 0.95].map(|zstd| without_frequencies(&row, zstd));
        can_fail(
            &row,
            SIZE_REASONS,
            BOTH,
            without_frequencies(&row, 0.45),
            &wrong,
        );
        // The share by zstd itself: near LZ4's, and planted near the paper's.
        can_fail(&row, SIZE_REASONS, ZSTD, 0.25, &[0.45, 0.5, 0.0]);
    }

    #[test]
    fn the_time_of_a_page_can_speak_against_its_reason() {
        let row = Row::new("Mail", TIME, "us", Kind::Timed)
            .ran("zstd")
            .paper(Some(data::COMPRESSION_US))
            .ours(Some(520.0))
            .judged();
        // 10 pages a transaction. Planted: half of the pages, half of the time, and all twice.
        let a_page = us_a_page(52_000.0, 1_000.0);
        let wrong = [
            5.0 * a_page,
            10.0 * us_a_page(26_000.0, 1_000.0),
            20.0 * a_page,
        ];
        can_fail(&row, TIME_REASONS, A_PAGE, 10.0 * a_page, &wrong);
    }

    #[test]
    fn a_log_is_cut_into_its_transactions() {
        let mut log = vec![0; HEADER_BYTES];
        for (size, fill) in [(0u32, 1u8), (2, 2), (3, 3)] {
            let mut frame = vec![fill; FRAME_HEADER_BYTES + PAGE];
            frame[4..8].copy_from_slice(&size.to_be_bytes());
            log.extend(frame);
        }
        let found = frames(0, &log).unwrap();
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        assert!(found[0][1].bytes.iter().all(|byte| *byte == 2));
        assert_eq!(frames(0, &[]).unwrap().len(), 0);
        let unfinished = &log[..HEADER_BYTES + FRAME_HEADER_BYTES + PAGE];
        assert!(frames(0, unfinished).is_err());
    }

    /// Three equal pages of random bytes compress as one, and not each by itself.
    #[test]
    fn pages_that_repeat_each_other_take_fewer_blocks_together() {
        let mut state = 1u64;
        let mut byte = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as u8
        };
        let bytes: Vec<u8> = (0..PAGE).map(|_| byte()).collect();
        let page = |number| LoggedPage {
            of: (0, number),
            bytes: bytes.clone(),
        };
        let logged = Logged {
            transactions: vec![vec![page(1), page(2), page(3)], vec![page(1)]],
        };
        let blocks = packed(&logged, 2.0);
        assert_eq!((blocks.pages, blocks.alone), (2.0, 3.0));
        // The second transaction's page is the last whole version, unchanged.
        assert_eq!(blocks.with_differences, 2.5);
        assert_eq!((blocks.together, blocks.zstd_together), (2.0, 2.0));
    }

    /// A page of a log with this many random bytes, of its own for each version.
    fn version(random: usize, seed: u8) -> LoggedPage {
        let mut state = u64::from(seed);
        let mut bytes = vec![0; PAGE];
        for byte in bytes.iter_mut().take(random) {
            state = onewrite_common::random::mixed(state);
            *byte = state as u8;
        }
        LoggedPage { of: (0, 1), bytes }
    }

    #[test]
    fn a_page_that_changed_much_is_whole_again_and_the_next_difference_is_from_there() {
        let mut space = vec![0; codec::space_for(PAGE)];
        let mut wholes = Wholes::default();
        let first = version(2_000, 1);
        let little = {
            let mut page = version(2_000, 1);
            page.bytes[7] ^= 1;
            page
        };
        let (other, again) = (version(2_000, 2), version(2_000, 2));
        let mut size = |page| wholes.size(page, 2_010, &mut space);
        assert_eq!(size(&first), 2_010);
        assert!(size(&little) < 100);
        assert_eq!(size(&other), 2_010);
        assert!(size(&again) < 100);
        // Planted: had the difference been from the version before, this would be small.
        assert_eq!(size(&first), 2_010);
        // A new log has nothing that a difference could refer to.
        for _ in 0..AUTOCHECKPOINT {
            wholes.end(std::slice::from_ref(&first));
        }
        assert_eq!(wholes.size(&first, 2_010, &mut space), 2_010);
    }

    #[test]
    fn shares_are_of_sorted_sizes() {
        let sorted = [100, 409, 410, 4096];
        assert_eq!(share(&sorted, PAGE / 10), 0.5);
        assert_eq!(share(&sorted, PAGE), 1.0);
        assert_eq!(share(&[], PAGE), 0.0);
    }
}
