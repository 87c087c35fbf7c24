//! How far a device jumps from one request to the next.
//!
//! A request seeks if it does not begin where the one before it ended, in the order in which the
//! device got them. Requests of all processes take part, because the device serves them all.

use crate::io::{Io, Op};
use crate::percentiles::Percentiles;

/// The jumps to the requests of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeks {
    /// Requests that another one came before.
    pub requests: u64,
    /// Those that begin where the one before ended.
    pub sequential: u64,
    /// Distances of the others in bytes, forwards or backwards; `None` if there are none.
    pub distance: Option<Percentiles>,
    /// The sum of these distances, in bytes.
    pub total_bytes: u64,
}

/// The operations that have a place on the device. What is discarded is not moved to.
const MOVING: [Op; 2] = [Op::Read, Op::Write];

/// The seeks of these requests, by operation.
pub fn of<'a>(ios: impl Iterator<Item = &'a Io>) -> Vec<(Op, Seeks)> {
    let moving = ios.filter(|io| MOVING.contains(&io.op) && io.sectors > 0);
    let mut issued: Vec<(u64, &Io)> = moving.filter_map(|io| Some((io.issued_ns?, io))).collect();
    issued.sort_by_key(|(at, _)| *at);
    let mut jumps = MOVING.map(|op| (op, Vec::new()));
    for pair in issued.windows(2) {
        let [(_, before), (_, io)] = pair else {
            continue;
        };
        let end = before.sector + before.sectors;
        let jump = io.sector.abs_diff(end) * crate::device::SECTOR_BYTES;
        if let Some((_, jumps)) = jumps.iter_mut().find(|(op, _)| *op == io.op) {
            jumps.push(jump);
        }
    }
    let all = jumps.into_iter().filter(|(_, jumps)| !jumps.is_empty());
    all.map(|(op, jumps)| (op, Seeks::over(jumps))).collect()
}

impl Seeks {
    fn over(mut jumps: Vec<u64>) -> Self {
        let requests = jumps.len() as u64;
        jumps.retain(|jump| *jump > 0);
        Self {
            requests,
            sequential: requests - jumps.len() as u64,
            total_bytes: jumps.iter().sum(),
            distance: Percentiles::of(jumps),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Asked;

    fn io(op: Op, issued_ns: Option<u64>, sector: u64, sectors: u64) -> Io {
        Io {
            op,
            queued_ns: None,
            issued_ns,
            completed_ns: 1_000,
            sector,
            sectors,
            asked: Asked::default(),
            error: 0,
            pieces: Vec::new(),
        }
    }

    #[test]
    fn a_request_behind_the_one_before_is_sequential() {
        // In the order of completion; the third was issued first.
        let ios = [
            io(Op::Write, Some(20), 8, 8),
            io(Op::Write, Some(30), 100, 8),
            io(Op::Write, Some(10), 0, 8),
            io(Op::Read, Some(40), 98, 2),
        ];
        let seeks = of(ios.iter());
        let write = seeks.iter().find(|(op, _)| *op == Op::Write).unwrap().1;
        // 0..8, 8..16, then 84 sectors to 100..108.
        assert_eq!((write.requests, write.sequential), (2, 1));
        assert_eq!(write.total_bytes, 84 * 512);
        assert_eq!(write.distance.unwrap().max, 84 * 512);
        // Back from 108 to 98.
        let read = seeks.iter().find(|(op, _)| *op == Op::Read).unwrap().1;
        assert_eq!((read.requests, read.total_bytes), (1, 10 * 512));
    }

    #[test]
    fn what_has_no_place_or_no_time_of_issue_is_left_out() {
        let ios = [
            io(Op::Write, Some(10), 0, 8),
            io(Op::Flush, Some(20), 0, 0),
            io(Op::Discard, Some(30), 500, 8),
            io(Op::Write, None, 900, 8),
            io(Op::Write, Some(40), 8, 8),
        ];
        let seeks = of(ios.iter());
        let [(Op::Write, write)] = seeks[..] else {
            panic!("{seeks:?}");
        };
        assert_eq!((write.requests, write.sequential), (1, 1));
        assert_eq!(write.distance, None);
        assert_eq!(of([].iter()), []);
    }
}
