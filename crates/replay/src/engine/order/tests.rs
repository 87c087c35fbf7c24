use super::*;

fn at(begin: u64, end: u64) -> Option<Interval> {
    Some(Interval { begin, end })
}

/// A schedule's steps: events by their number, as they began and ended.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    Begins(usize),
    Ends(usize),
}

/// The first event that began before another one which had returned before it was over.
fn violation(intervals: &[Interval], steps: &[Step]) -> Option<(usize, usize)> {
    let mut over = vec![false; intervals.len()];
    for step in steps {
        match step {
            Step::Ends(event) => over[*event] = true,
            Step::Begins(event) => {
                let begin = intervals[*event].begin;
                let before = |other: &usize| intervals[*other].end < begin && !over[*other];
                if let Some(other) = (0..intervals.len()).find(before) {
                    return Some((*event, other));
                }
            }
        }
    }
    None
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Connections that call one after the other; the trace has them in the order of their returns, a
/// little disturbed.
fn recording(random: &mut Random, connections: u64, calls: u64) -> Vec<(Key, Interval)> {
    let mut all = Vec::new();
    for connection in 0..connections {
        let mut now = random.below(20);
        for _ in 0..calls {
            let begin = now + random.below(10);
            now = begin + 1 + random.below(30);
            all.push(((1, connection), Interval { begin, end: now }));
        }
    }
    all.sort_by_cached_key(|(key, interval)| {
        (interval.end + random.below(3), interval.begin, key.1)
    });
    // A connection's own events stay in order.
    let mut own: HashMap<Key, Vec<Interval>> = HashMap::new();
    for (key, interval) in &all {
        own.entry(*key).or_default().push(*interval);
    }
    for intervals in own.values_mut() {
        intervals.sort_by_key(|one| std::cmp::Reverse(one.begin));
    }
    all.into_iter()
        .filter_map(|(key, _)| Some((key, own.get_mut(&key)?.pop()?)))
        .collect()
}

/// Plays a recording, ending running events at random.
fn schedule(random: &mut Random, all: &[(Key, Interval)]) -> (Vec<Step>, usize) {
    let mut order = Order::default();
    for (number, (key, interval)) in all.iter().enumerate() {
        order.add(*key, number as u64 + 1, Some(*interval), 1, number);
    }
    order.end();
    let (mut steps, mut running, mut most) = (Vec::new(), Vec::new(), 0);
    loop {
        while let Some((key, event)) = order.next() {
            steps.push(Step::Begins(event));
            running.push((key, event));
        }
        most = most.max(running.len());
        if running.is_empty() {
            break;
        }
        let (key, event) = running.swap_remove(random.below(running.len() as u64) as usize);
        steps.push(Step::Ends(event));
        order.complete(key);
    }
    assert!(order.is_empty());
    (steps, most)
}

#[test]
fn every_schedule_keeps_the_recorded_order_and_plays_everything() {
    let seed = 0x5EED_0001;
    println!("seed {seed}");
    let mut random = Random(seed);
    for round in 0..300 {
        let all = recording(&mut random, 2 + round % 9, 25);
        let intervals: Vec<Interval> = all.iter().map(|(_, interval)| *interval).collect();
        let (steps, most) = schedule(&mut random, &all);
        assert_eq!(steps.len(), 2 * all.len());
        assert_eq!(violation(&intervals, &steps), None, "round {round}");
        assert!(most > 1, "nothing overlapped in round {round}");
        // The same with one pair in the wrong order is found.
        let wrong = planted(&intervals, &steps);
        assert!(violation(&intervals, &wrong).is_some(), "round {round}");
    }
}

/// The last event begins first.
fn planted(intervals: &[Interval], steps: &[Step]) -> Vec<Step> {
    let last = (0..intervals.len()).max_by_key(|event| intervals[*event].begin);
    let last = Step::Begins(last.unwrap());
    let others = steps.iter().copied().filter(|step| *step != last);
    [last].into_iter().chain(others).collect()
}

const A: Key = (1, 1);
const B: Key = (1, 2);
const C: Key = (1, 3);

/// The events that begin now.
fn begun(order: &mut Order<&'static str>) -> Vec<&'static str> {
    std::iter::from_fn(|| order.next())
        .map(|(_, event)| event)
        .collect()
}

#[test]
fn only_what_overlapped_runs_together() {
    let mut order = Order::default();
    order.add(A, 1, at(10, 20), 0, "first");
    order.add(B, 2, at(15, 30), 0, "during");
    order.add(C, 3, at(21, 40), 0, "after");
    order.end();
    assert_eq!(begun(&mut order), ["first", "during"]);
    order.complete(B);
    assert_eq!(begun(&mut order), [""; 0]);
    order.complete(A);
    assert_eq!(begun(&mut order), ["after"]);
}

/// The writer's COMMIT had returned first, but in this mode the reader's lock prevents it.
#[test]
fn the_order_gives_way_only_when_every_event_waits_for_a_lock() {
    let mut order = Order::default();
    order.add(A, 1, at(10, 20), 0, "commit");
    order.add(B, 2, at(12, 18), 0, "select");
    order.add(A, 3, at(21, 22), 0, "begin");
    order.add(B, 4, at(30, 40), 0, "reader's end");
    order.end();
    assert_eq!(begun(&mut order), ["commit", "select"]);
    // The other still runs, and may release it.
    assert!(!order.waits(A));
    assert_eq!(begun(&mut order), [""; 0]);
    order.complete(B);
    // This waiter has not looked for the lock since then.
    assert!(!order.waits(A));
    assert_eq!(begun(&mut order), [""; 0]);
    order.tries(A);
    assert!(!order.waits(A));
    assert_eq!(begun(&mut order), ["reader's end"]);
    assert_eq!((order.passed, order.aside()), (1, 1));
    order.complete(B);
    order.complete(A);
    assert_eq!(begun(&mut order), ["begin"]);
    assert_eq!((order.waited, order.aside()), (1, 0));
    // Now nothing else can help.
    assert!(order.waits(A));
}

/// In the recording A had the lock first, and here B gets it. So B's COMMIT passes A's INSERT. An
/// event that began after both commits still comes last.
#[test]
fn the_order_holds_again_once_the_lock_may_be_free() {
    let mut order = Order::default();
    order.add(A, 1, at(10, 30), 0, "a inserts");
    order.add(A, 2, at(31, 50), 0, "a commits");
    order.add(B, 3, at(12, 60), 0, "b inserts");
    order.add(B, 4, at(61, 70), 0, "b commits");
    order.add(C, 5, at(80, 90), 0, "count");
    order.end();
    assert_eq!(begun(&mut order), ["a inserts", "b inserts"]);
    order.complete(B);
    order.tries(A);
    assert!(!order.waits(A));
    assert_eq!(begun(&mut order), ["b commits"]);
    order.complete(B);
    assert_eq!(begun(&mut order), [""; 0]);
    order.tries(A);
    order.complete(A);
    assert_eq!(begun(&mut order), ["a commits"]);
    order.complete(A);
    assert_eq!(begun(&mut order), ["count"]);
    assert_eq!((order.passed, order.aside()), (1, 0));
}

#[test]
fn reading_is_bounded_and_stays_ahead_of_what_begins() {
    let mut order = Order::default();
    let mut ordinal = 0;
    let mut add = |order: &mut Order<&'static str>| {
        ordinal += 1;
        order.add(A, ordinal, at(ordinal, ordinal + 1), 0, "event");
        ordinal
    };
    for _ in 0..LOOK_AHEAD {
        add(&mut order);
        assert_eq!(begun(&mut order), [""; 0]);
    }
    add(&mut order);
    assert_eq!(begun(&mut order), ["event"]);
    while order.has_room() {
        assert!(add(&mut order) <= MOST_EVENTS as u64 + 1);
    }
    let mut order = Order::default();
    order.add(A, 1, at(1, 2), MOST_BYTES, "large");
    assert!(!order.has_room());
    assert_eq!(begun(&mut order), ["large"]);
    assert!(order.has_room());
    // Read too late: something that began after its return is running.
    order.complete(A);
    order.add(A, 2, at(50, 60), 0, "other");
    order.end();
    assert_eq!(begun(&mut order), ["other"]);
    order.add(B, 3, at(40, 45), 0, "late");
    assert_eq!(order.late, 1);
    order.add(B, 4, None, 0, "without a time");
    assert_eq!(order.late, 1);
}

#[test]
fn a_clock_that_was_set_back_stops_nothing() {
    let mut order = Order::default();
    order.add(A, 1, at(100, 101), 0, "before");
    order.add(A, 2, at(10, 11), 0, "after");
    order.add(B, 3, at(12, 13), 0, "other");
    order.end();
    assert_eq!(begun(&mut order), ["other"]);
    order.complete(B);
    assert_eq!(begun(&mut order), ["before"]);
    order.complete(A);
    assert_eq!(begun(&mut order), ["after"]);
    order.complete(A);
    assert!(order.is_empty() && order.forget(A));
}
