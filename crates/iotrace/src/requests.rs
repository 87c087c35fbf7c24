//! Joins queued pieces, issued requests and completions into I/Os.
//!
//! The block layer joins neighboring pieces of several tasks into one request, and splits large
//! ones. So pieces are kept by sector until a completion takes their sectors, and so is the
//! request's issue. A request may want a flush before or after its data, on a device with a cache
//! that cannot do that by itself. Such a request completes once with its data. It completes again,
//! without sectors, after its last flush.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use crate::events::{Bio, Letters, Request};
use crate::extents::Extents;
use crate::io::{Asked, Io, Op, Owner, Piece, Task, TaskId};

/// Part of a completed request: the queued piece, if it was seen.
pub(crate) struct Part {
    pub(crate) sectors: Range<u64>,
    pub(crate) letters: Letters,
    pub(crate) task: Option<TaskId>,
}

/// A queued piece that waits for its completion.
#[derive(Clone, Copy, PartialEq)]
struct Waiting {
    at_ns: u64,
    letters: Letters,
    task: TaskId,
    ours: bool,
}

/// Requests of one kind in flight, by sector.
#[derive(Default)]
struct Lane {
    queued: Extents<Waiting>,
    issued: Extents<u64>,
}

/// The requests in flight, and the tasks seen.
pub(crate) struct Requests {
    /// Whether the device makes a single write durable (FUA).
    has_fua: bool,
    /// Whether it is a part of a disk, so that a request without sectors may belong to another
    /// part.
    is_part: bool,
    lanes: HashMap<Op, Lane>,
    /// The issue times of flushes in flight.
    flushes: VecDeque<u64>,
    /// Requests that wait for a flush without data.
    flush_requests: VecDeque<Waiting>,
    /// Requests that complete again after their data, by their first sector.
    completed_again: HashSet<u64>,
    pub(crate) tasks: Vec<Task>,
    known_tasks: HashMap<(u32, [u8; 16]), TaskId>,
}

impl Requests {
    pub(crate) fn new(has_fua: bool, is_part: bool) -> Self {
        Self {
            has_fua,
            is_part,
            lanes: HashMap::new(),
            flushes: VecDeque::new(),
            flush_requests: VecDeque::new(),
            completed_again: HashSet::new(),
            tasks: Vec::new(),
            known_tasks: HashMap::new(),
        }
    }

    pub(crate) fn queue(&mut self, at_ns: u64, bio: &Bio) {
        let task = self.task(bio.tid, bio.name);
        let waiting = Waiting {
            at_ns,
            letters: bio.letters,
            task,
            ours: bio.ours,
        };
        if bio.sectors == 0 {
            self.flush_requests.push_back(waiting);
            return;
        }
        let sectors = bio.start..bio.start.saturating_add(bio.sectors);
        let lane = self.lanes.entry(bio.letters.op).or_default();
        lane.queued.give(sectors, waiting);
    }

    pub(crate) fn issue(&mut self, at_ns: u64, request: &Request) {
        if request.letters.op == Op::Flush {
            self.flushes.push_back(at_ns);
        } else if request.sectors > 0 {
            let sectors = request.start..request.start.saturating_add(request.sectors);
            let lane = self.lanes.entry(request.letters.op).or_default();
            lane.issued.give(sectors, at_ns);
        }
    }

    /// The I/O that a completion ends, if any. `owners` gives the owners of a part's sectors.
    pub(crate) fn complete(
        &mut self,
        at_ns: u64,
        request: &Request,
        error: i32,
        owners: impl FnMut(&Part, &mut Vec<Piece>),
    ) -> Option<Io> {
        let io = match (request.letters.op, request.sectors) {
            (Op::Flush, _) => self.complete_flush(at_ns),
            (_, 0) => self.complete_without_data(at_ns, request)?,
            _ => self.complete_data(at_ns, request, owners),
        };
        Some(Io { error, ..io })
    }

    fn complete_flush(&mut self, at_ns: u64) -> Io {
        // The waiting task, if there is only one: a flush can answer several.
        let mut tasks = self.flush_requests.iter().map(|waiting| waiting.task);
        let task = tasks
            .next()
            .filter(|first| tasks.all(|task| task == *first));
        Io {
            op: Op::Flush,
            queued_ns: None,
            issued_ns: self.flushes.pop_front(),
            completed_ns: at_ns,
            sector: 0,
            sectors: 0,
            asked: Asked::default(),
            error: 0,
            pieces: vec![without_data(task)],
        }
    }

    fn complete_without_data(&mut self, at_ns: u64, request: &Request) -> Option<Io> {
        if self.completed_again.remove(&request.start) {
            return None;
        }
        let waiting = self.flush_requests.pop_front();
        if !waiting.map_or(!self.is_part, |waiting| waiting.ours) {
            return None;
        }
        Some(Io {
            op: Op::FlushRequest,
            queued_ns: waiting.map(|waiting| waiting.at_ns),
            issued_ns: None,
            completed_ns: at_ns,
            sector: 0,
            sectors: 0,
            asked: waiting.map_or(request.letters.asked, |waiting| waiting.letters.asked),
            error: 0,
            pieces: vec![without_data(waiting.map(|waiting| waiting.task))],
        })
    }

    fn complete_data(
        &mut self,
        at_ns: u64,
        request: &Request,
        mut owners: impl FnMut(&Part, &mut Vec<Piece>),
    ) -> Io {
        let all = request.start..request.start.saturating_add(request.sectors);
        let lane = self.lanes.entry(request.letters.op).or_default();
        let parts = lane.queued.owners(all.clone());
        lane.queued.free(all.clone());
        let issued = lane.issued.owners(all.clone());
        lane.issued.free(all.clone());
        let mut io = Io {
            op: request.letters.op,
            queued_ns: None,
            issued_ns: issued.first().and_then(|(at, _)| *at),
            completed_ns: at_ns,
            sector: request.start,
            sectors: request.sectors,
            asked: request.letters.asked,
            error: 0,
            pieces: Vec::new(),
        };
        let mut start = request.start;
        for (waiting, sectors) in parts {
            let letters = waiting.map_or(request.letters, |waiting| waiting.letters);
            io.asked.flush_before |= letters.asked.flush_before;
            io.asked.fua |= letters.asked.fua;
            io.asked.sync |= letters.asked.sync;
            io.asked.metadata |= letters.asked.metadata;
            let queued = waiting.map(|waiting| waiting.at_ns);
            io.queued_ns = match (io.queued_ns, queued) {
                (Some(first), Some(this)) => Some(first.min(this)),
                (first, this) => first.or(this),
            };
            let part = Part {
                sectors: start..start + sectors,
                letters,
                task: waiting.map(|waiting| waiting.task),
            };
            owners(&part, &mut io.pieces);
            start += sectors;
        }
        if io.asked.flush_before || (io.asked.fua && !self.has_fua) {
            self.completed_again.insert(request.start);
        }
        io
    }

    fn task(&mut self, tid: u32, name: [u8; 16]) -> TaskId {
        *self.known_tasks.entry((tid, name)).or_insert_with(|| {
            let end = name.iter().position(|byte| *byte == 0);
            let text = name.get(..end.unwrap_or(name.len())).unwrap_or_default();
            self.tasks.push(Task {
                tid,
                pid: None,
                name: String::from_utf8_lossy(text).into_owned(),
            });
            TaskId(self.tasks.len() as u32 - 1)
        })
    }
}

fn without_data(task: Option<TaskId>) -> Piece {
    Piece {
        sectors: 0,
        owner: Owner::Unknown,
        task,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(text: &str) -> Letters {
        Letters::parse(text.as_bytes()).unwrap()
    }

    fn bio(text: &str, start: u64, sectors: u64, tid: u32) -> Bio {
        let mut name = [0; 16];
        name[..3].copy_from_slice(b"app");
        Bio {
            letters: letters(text),
            start,
            sectors,
            tid,
            name,
            ours: true,
        }
    }

    fn request(text: &str, start: u64, sectors: u64) -> Request {
        Request {
            letters: letters(text),
            start,
            sectors,
        }
    }

    fn complete(requests: &mut Requests, at: u64, request: &Request) -> Option<Io> {
        requests.complete(at, request, 0, |part, pieces| {
            pieces.push(Piece {
                sectors: part.sectors.end - part.sectors.start,
                owner: Owner::Unknown,
                task: part.task,
            });
        })
    }

    #[test]
    fn a_request_joins_what_several_tasks_handed_in() {
        let mut requests = Requests::new(false, false);
        requests.queue(10, &bio("WS", 100, 8, 1));
        requests.queue(11, &bio("WM", 108, 16, 2));
        // Another one, elsewhere, and a read of the same sectors.
        requests.queue(12, &bio("W", 500, 8, 3));
        requests.queue(13, &bio("R", 100, 8, 3));
        requests.issue(20, &request("WS", 100, 24));
        requests.issue(22, &request("R", 100, 8));
        let io = complete(&mut requests, 30, &request("WS", 100, 24)).unwrap();
        assert_eq!(
            (io.queued_ns, io.issued_ns, io.completed_ns),
            (Some(10), Some(20), 30)
        );
        assert_eq!(
            (io.sector, io.bytes(), io.device_ns()),
            (100, 24 * 512, Some(10))
        );
        assert!(io.asked.sync && io.asked.metadata && !io.asked.fua);
        let pieces: Vec<_> = io.pieces.iter().map(|p| (p.sectors, p.task)).collect();
        assert_eq!(pieces, [(8, Some(TaskId(0))), (16, Some(TaskId(1)))]);
        assert_eq!(requests.tasks[1].tid, 2);
        let read = complete(&mut requests, 31, &request("R", 100, 8)).unwrap();
        assert_eq!((read.op, read.issued_ns), (Op::Read, Some(22)));
        assert_eq!(read.pieces[0].task, Some(TaskId(2)));
    }

    #[test]
    fn a_request_that_is_completed_in_parts_is_counted_as_the_device_counts_bytes() {
        let mut requests = Requests::new(false, false);
        requests.queue(1, &bio("W", 0, 16, 1));
        requests.issue(2, &request("W", 0, 16));
        let first = complete(&mut requests, 3, &request("W", 0, 8)).unwrap();
        let second = complete(&mut requests, 4, &request("W", 8, 8)).unwrap();
        for io in [&first, &second] {
            assert_eq!(
                (io.bytes(), io.queued_ns, io.issued_ns),
                (4096, Some(1), Some(2))
            );
        }
    }

    #[test]
    fn a_write_with_flushes_around_it_is_one_write() {
        let mut requests = Requests::new(false, false);
        requests.queue(1, &bio("FWFSM", 64, 8, 1));
        requests.issue(2, &request("FF", 0, 0));
        let flush = complete(&mut requests, 3, &request("FF", u64::MAX, 0)).unwrap();
        assert_eq!(
            (flush.op, flush.issued_ns, flush.bytes()),
            (Op::Flush, Some(2), 0)
        );
        requests.issue(4, &request("WSM", 64, 8));
        let write = complete(&mut requests, 5, &request("WSM", 64, 8)).unwrap();
        assert!(write.asked.flush_before && write.asked.fua);
        assert_eq!(write.op, Op::Write);
        requests.issue(6, &request("FF", 0, 0));
        complete(&mut requests, 7, &request("FF", u64::MAX, 0)).unwrap();
        assert_eq!(complete(&mut requests, 7, &request("WSM", 64, 0)), None);
        // An empty request, as fdatasync sends, is a request by itself.
        requests.queue(8, &bio("FWS", 0, 0, 2));
        requests.issue(9, &request("FF", 0, 0));
        let flush = complete(&mut requests, 10, &request("FF", u64::MAX, 0)).unwrap();
        assert_eq!(flush.pieces[0].task, Some(TaskId(1)));
        let empty = complete(&mut requests, 11, &request("WS", 0, 0)).unwrap();
        assert_eq!((empty.op, empty.queued_ns), (Op::FlushRequest, Some(8)));
        assert!(empty.asked.flush_before);
    }

    #[test]
    fn a_device_with_fua_completes_such_a_write_once() {
        let mut requests = Requests::new(true, false);
        requests.queue(1, &bio("WFS", 0, 8, 1));
        requests.issue(2, &request("WFS", 0, 8));
        assert!(
            complete(&mut requests, 3, &request("WFS", 0, 8))
                .unwrap()
                .asked
                .fua
        );
        let empty = complete(&mut requests, 4, &request("WS", 0, 0)).unwrap();
        assert_eq!(empty.op, Op::FlushRequest);
    }

    #[test]
    fn a_flush_of_another_part_of_the_disk_is_not_ours() {
        let mut requests = Requests::new(false, true);
        let theirs = Bio {
            ours: false,
            ..bio("FWS", 0, 0, 1)
        };
        requests.queue(1, &theirs);
        requests.queue(2, &bio("FWS", 0, 0, 2));
        assert_eq!(complete(&mut requests, 3, &request("WS", 0, 0)), None);
        let ours = complete(&mut requests, 4, &request("WS", 0, 0)).unwrap();
        assert_eq!(ours.queued_ns, Some(2));
        // If nobody was seen to ask for it, it is another part's.
        assert_eq!(complete(&mut requests, 5, &request("WS", 0, 0)), None);
    }

    #[test]
    fn what_began_before_the_trace_has_no_task_and_no_time() {
        let mut requests = Requests::new(false, false);
        let io = complete(&mut requests, 3, &request("W", 5, 8)).unwrap();
        assert_eq!((io.queued_ns, io.issued_ns), (None, None));
        assert_eq!((io.pieces.len(), io.pieces[0].task), (1, None));
    }
}
