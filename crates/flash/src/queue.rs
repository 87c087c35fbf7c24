//! Several requests in flight, in the device's virtual time.
//!
//! The FTL does one command after the other, and so has one state. Only the times overlap. A
//! command begins when it arrives and has a place in the queue, even if the one before it is not
//! answered yet. Dies and channels know until when they are taken ([`crate::nand::clock`]): there a
//! command waits for those that came before it, and only for these. MQSim (Tavakkol et al., FAST
//! '18) has such queues for each chip. A flush waits for all answers, and everything after it for
//! the flush.
//!
//! A power cut during one command finds the earlier ones done. Their host has no answer yet, so
//! that this is one of the states it must expect.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ftl::Ftl;
use crate::nand::clock::Nanoseconds;

/// Requests in flight, as the times of their answers.
#[derive(Clone, Debug)]
pub struct Queue {
    depth: usize,
    answers: BinaryHeap<Reverse<u64>>,
    /// The time at which the latest request arrived without a time of its own.
    arrived: u64,
    /// The latest answer.
    latest: u64,
    /// The answer of the latest flush.
    flushed: u64,
}

/// A request that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// When it arrived. Its latency counts from there.
    pub arrived: u64,
    /// When it begins: the queue has a place for it, and no flush is in its way.
    pub begins: u64,
}

/// The order of a request among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// None.
    Any,
    /// After all before it, and before all after it.
    Flush,
}

impl Queue {
    /// An empty queue of at most `depth` requests, at least one.
    pub fn new(ftl: &Ftl, depth: usize) -> Self {
        let now = ftl.nand().now().0;
        Self {
            depth: depth.max(1),
            answers: BinaryHeap::new(),
            arrived: now,
            latest: now,
            flushed: now,
        }
    }

    /// Nothing is in flight any more: the device worked for itself, or was opened again.
    pub fn restart(&mut self, ftl: &Ftl) {
        *self = Self::new(ftl, self.depth);
    }

    /// The time of the latest answer.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// Lets a request begin that arrived at this time; without a time it arrives when it has a
    /// place. [`Self::answer`] must follow.
    pub fn begin(&mut self, ftl: &mut Ftl, arrival: Option<u64>, order: Order) -> Begun {
        let mut place = arrival.unwrap_or(self.arrived);
        while self.answers.len() >= self.depth
            && let Some(Reverse(answer)) = self.answers.pop()
        {
            place = place.max(answer);
        }
        if arrival.is_none() {
            self.arrived = place;
        }
        let in_its_way = match order {
            Order::Any => self.flushed,
            Order::Flush => self.latest,
        };
        let begins = place.max(in_its_way);
        ftl.nand_mut().continue_at(Nanoseconds(begins));
        Begun {
            arrived: arrival.unwrap_or(place),
            begins,
        }
    }

    /// The request that began is answered now. Returns that time.
    pub fn answer(&mut self, ftl: &Ftl, order: Order) -> u64 {
        let now = ftl.nand().now().0;
        self.answers.push(Reverse(now));
        self.latest = self.latest.max(now);
        if order == Order::Flush {
            self.flushed = self.latest;
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftl::{Config, Lpn};
    use crate::nand::timing::Timing;
    use crate::nand::{Geometry, Nand};

    /// Ready to read four pages of 4 KiB on as many dies, each on a channel.
    fn ftl() -> Ftl {
        let geometry = Geometry {
            page_bytes: 4096,
            pages_per_block: 16,
            ..Geometry::openssd(128)
        };
        let geometry = geometry.with_channels(4, 1);
        let nand = Nand::new(geometry, Timing::built_in("openssd").unwrap()).unwrap();
        let config = Config {
            table_capacity: 40,
            ..Config::new(400)
        };
        let (mut ftl, _) = Ftl::open(nand, config).unwrap();
        (0..4).for_each(|lpn| ftl.write(Lpn(lpn), &[1; 4096]).unwrap());
        ftl.flush().unwrap();
        ftl
    }

    /// The times from the first request to the answers of reads of these pages.
    fn read(depth: usize, pages: &[u32]) -> Vec<u64> {
        let mut ftl = ftl();
        let mut queue = Queue::new(&ftl, depth);
        let begin = queue.latest();
        let mut answer = |lpn: &u32| {
            queue.begin(&mut ftl, None, Order::Any);
            ftl.read(Lpn(*lpn)).unwrap();
            queue.answer(&ftl, Order::Any) - begin
        };
        pages.iter().map(&mut answer).collect()
    }

    #[test]
    fn reads_of_different_dies_overlap_and_those_of_one_die_wait_for_each_other() {
        let one = read(1, &[0])[0];
        assert_eq!(read(1, &[0, 1, 2, 3]), [one, 2 * one, 3 * one, 4 * one]);
        assert_eq!(read(2, &[0, 1, 2, 3]), [one, one, 2 * one, 2 * one]);
        assert_eq!(read(4, &[0, 1, 2, 3]), [one; 4]);
        assert_eq!(read(4, &[0, 0, 1, 0]), [one, 2 * one, one, 3 * one]);
    }

    #[test]
    fn a_flush_waits_for_all_before_it_and_all_after_it_wait_for_the_flush() {
        let mut ftl = ftl();
        let mut queue = Queue::new(&ftl, 8);
        let mut write = |order: Order, lpn: Option<u32>| {
            let begin = queue.begin(&mut ftl, None, order).begins;
            match lpn {
                Some(lpn) => ftl.write(Lpn(lpn), &[2; 4096]).unwrap(),
                None => ftl.flush().unwrap(),
            }
            (begin, queue.answer(&ftl, order))
        };
        let (first, _) = write(Order::Any, Some(5));
        let (second, moved) = write(Order::Any, Some(6));
        assert_eq!(first, second);
        let (begun, flushed) = write(Order::Flush, None);
        assert_eq!(begun, moved);
        // Both pages are on the medium: that took a program.
        assert!(flushed >= first + 1_300_000);
        assert_eq!(write(Order::Any, Some(7)).0, flushed);
    }

    #[test]
    fn a_request_that_waits_for_a_flush_or_before_one_has_arrived_before() {
        let mut ftl = ftl();
        let mut queue = Queue::new(&ftl, 3);
        let first = queue.latest();
        let mut begun = |order: Order| {
            let begun = queue.begin(&mut ftl, None, order);
            match order {
                Order::Any => _ = ftl.read(Lpn(0)).unwrap(),
                Order::Flush => ftl.flush().unwrap(),
            }
            (begun, queue.answer(&ftl, order))
        };
        let (_, one) = begun(Order::Any);
        let (_, two) = begun(Order::Any);
        let (flush, flushed) = begun(Order::Flush);
        assert_eq!((flush.arrived, flush.begins), (first, two));
        // The first read has left its place.
        let (behind, _) = begun(Order::Any);
        assert_eq!((behind.arrived, behind.begins), (one, flushed));
    }

    #[test]
    fn a_request_is_not_served_before_it_arrives() {
        let mut ftl = ftl();
        let mut queue = Queue::new(&ftl, 4);
        let at = queue.latest() + 5_000_000;
        let begun = Begun {
            arrived: at,
            begins: at,
        };
        assert_eq!(queue.begin(&mut ftl, Some(at), Order::Any), begun);
        ftl.read(Lpn(0)).unwrap();
        let answer = queue.answer(&ftl, Order::Any);
        assert_eq!(queue.begin(&mut ftl, Some(at), Order::Any), begun);
        ftl.read(Lpn(1)).unwrap();
        assert_eq!(queue.answer(&ftl, Order::Any), answer);
    }
}
