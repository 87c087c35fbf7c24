//! Group synch, the frame memory, the log's space and the guard under a model checker. Shuttle runs
//! the threads of a test one at a time. At every lock, wait, atomic and write to the file it
//! chooses which thread runs next.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test -p onewrite-models --test model
//! ```
//!
//! `ONEWRITE_MODEL_RUNS` says how many orders each test tries. For one that fails shuttle prints
//! the schedule, for `ONEWRITE_MODEL_REPLAY`, and the seed, for `ONEWRITE_MODEL_SEED`.
//!
//! Real code: [`onewrite::commit`] and everything below it, with a file in memory and its locks. A
//! second process is a second opening of the log: its locks are as foreign as those of another
//! process. SQLite's part (the write lock, the wal-index, readers' marks) is in [`machine`]. A
//! process may die at any moment. That needs no kill, because the file's content is checked between
//! any two steps.

#![cfg(shuttle)]

mod guard;
mod machine;

use machine::{Connection, Machine, Process, Rules};
use onewrite::mode::GroupSynch;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The work of a thread.
type Work = Box<dyn FnOnce() + Send>;

const GROUP: GroupSynch = GroupSynch {
    frames: 4,
    interval: Duration::from_millis(2),
};

/// Commits are written one by one.
const SINGLY: Rules = Rules {
    group: None,
    group_commit: false,
    timely: false,
};
/// Several processes, or none that must be on time: the interval is not checked.
const GROUPED: Rules = Rules {
    group: Some(GROUP),
    group_commit: false,
    timely: false,
};
/// One process; the interval is checked.
const IN_TIME: Rules = Rules {
    group: Some(GROUP),
    group_commit: false,
    timely: true,
};

/// Commits share their flush.
const TOGETHER: Rules = Rules {
    group: None,
    group_commit: true,
    timely: false,
};

/// The share of the requested runs that a test gets, by the cost of a run.
const CHEAP: usize = 1;
const COSTLY: usize = 10;

/// Runs `test` in many orders: half of them drawn at every step, half with few changes of thread.
fn explore(share: usize, test: impl Fn() + Send + Sync + 'static) {
    /// State that outlives connections, and the injected failures, belong to the whole process.
    static ONE_TEST_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_TEST_AT_A_TIME
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    machine::watch_writes();
    let test = Arc::new(move || {
        onewrite::sync::reset_clock();
        test();
    });
    if let Ok(schedule) = std::env::var("ONEWRITE_MODEL_REPLAY") {
        return shuttle::replay(move || test(), &schedule);
    }
    if let Ok(seed) = std::env::var("ONEWRITE_MODEL_SEED") {
        let seed = seed.parse().expect("a number");
        return run(RandomScheduler::new_from_seed(seed, 1), &test);
    }
    let runs = std::env::var("ONEWRITE_MODEL_RUNS").map_or(1_000, |n| n.parse().expect("a number"));
    run(RandomScheduler::new(runs / share / 2), &test);
    run(PctScheduler::new(3, runs / share / 2), &test);
}

fn run(scheduler: impl Scheduler + 'static, test: &Arc<impl Fn() + Send + Sync + 'static>) {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    let test = Arc::clone(test);
    Runner::new(scheduler, config).run(move || test());
}

/// Runs each piece of work in its own thread, and waits for all.
fn together(works: Vec<Work>) {
    let threads: Vec<_> = works.into_iter().map(thread::spawn).collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
}

fn writing(process: &Arc<Process>, commits: u32, frames: u32) -> Work {
    let process = Arc::clone(process);
    Box::new(move || {
        let mut connection = process.connect();
        for _ in 0..commits {
            connection.commit(frames).expect("a commit");
        }
    })
}

fn reading(process: &Arc<Process>, times: u32) -> Work {
    let process = Arc::clone(process);
    Box::new(move || {
        let mut connection = process.connect();
        for _ in 0..times {
            connection.wait_for_news();
            connection.read_all().expect("every published frame");
        }
    })
}

/// A second process opens the log and does some work.
fn in_another(machine: &Arc<Machine>, work: impl FnOnce(Arc<Process>) + Send + 'static) -> Work {
    let machine = Arc::clone(machine);
    Box::new(move || work(machine.start()))
}

/// One connection of a process does some work.
fn connected(process: &Arc<Process>, work: impl FnOnce(Connection) + Send + 'static) -> Work {
    let process = Arc::clone(process);
    Box::new(move || work(process.connect()))
}

/// A process has the log open, and the given pieces of work run together. When all is done and the
/// process has closed the log, everything that was published is in the file.
fn check(
    rules: Rules,
    works: impl Fn(&Arc<Machine>, &Arc<Process>) -> Vec<Work> + Send + Sync + 'static,
) {
    explore(CHEAP, move || {
        let machine = Machine::new(rules);
        let process = machine.start();
        together(works(&machine, &process));
        drop(process);
        machine.check_all_written();
    });
}

#[test]
fn a_group_of_one_process_keeps_its_bounds() {
    check(IN_TIME, |machine, process| {
        vec![
            writing(process, 3, 1),
            writing(process, 2, 2),
            reading(process, 3),
            machine.watching(6),
        ]
    });
}

#[test]
fn a_second_process_sees_only_what_is_in_the_file() {
    check(GROUPED, |machine, first| {
        vec![
            writing(first, 3, 1),
            reading(first, 2),
            in_another(machine, |second| {
                reading(&second, 1)();
                writing(&second, 2, 1)();
            }),
            machine.watching(4),
        ]
    });
}

#[test]
fn restarts_do_not_bring_back_what_was() {
    check(SINGLY, |_, process| {
        vec![
            writing(process, 3, 2),
            reading(process, 3),
            connected(process, |mut connection| {
                for _ in 0..3 {
                    connection.wait_for_news();
                    connection.restart().expect("a checkpoint");
                    connection.commit(1).expect("a commit");
                }
            }),
        ]
    });
}

#[test]
fn a_restart_by_another_process_is_noticed() {
    check(SINGLY, |machine, first| {
        let second = machine.start();
        vec![
            writing(first, 2, 2),
            reading(first, 3),
            connected(&second, |mut connection| {
                connection.wait_for_news();
                connection.restart().expect("a checkpoint");
                connection.commit(2).expect("a commit");
            }),
        ]
    });
}

#[test]
fn a_connection_outside_a_group_writes_behind_it() {
    check(IN_TIME, |machine, process| {
        let mut alone = process.connect_alone();
        vec![
            writing(process, 3, 1),
            Box::new(move || {
                for frames in [1, 2] {
                    alone.commit(frames).expect("a commit");
                }
            }),
            connected(process, |mut connection| {
                connection.wait_for_news();
                connection.restart().expect("a checkpoint");
            }),
            machine.watching(3),
        ]
    });
}

#[test]
fn groups_and_restarts_of_one_process_and_another() {
    check(GROUPED, |machine, first| {
        vec![
            writing(first, 2, 1),
            in_another(machine, |second| {
                let mut connection = second.connect();
                connection.restart().expect("a checkpoint");
                connection.commit(2).expect("a commit");
                connection.read_all().expect("every published frame");
            }),
            reading(first, 2),
        ]
    });
}

#[test]
fn two_processes_extend_one_log() {
    // A chunk of the model has 16 frames.
    check(SINGLY, |machine, first| {
        let second = machine.start();
        vec![
            writing(first, 3, 5),
            writing(&second, 3, 5),
            reading(&second, 1),
            connected(first, |mut connection| {
                connection.shrink().expect("a shorter log");
            }),
        ]
    });
}

#[test]
fn after_a_failed_write_nothing_is_acknowledged_and_little_is_lost() {
    explore(CHEAP, || {
        let machine = Machine::new(GROUPED);
        let process = machine.start();
        let trying = |mut connection: Connection| -> Work {
            Box::new(move || {
                for _ in 0..3 {
                    // The machine knows whether it may fail, and what must hold if it does.
                    let _ = connection.commit(1);
                }
            })
        };
        machine.fail_a_write();
        together(vec![
            trying(process.connect()),
            trying(process.connect()),
            trying(process.connect_alone()),
            machine.watching(3),
        ]);
        machine.check_failure();
    });
}

#[test]
fn a_group_of_commits_is_durable_when_each_returns() {
    check(TOGETHER, |_, process| {
        vec![
            writing(process, 3, 1),
            writing(process, 3, 2),
            reading(process, 2),
        ]
    });
}

#[test]
fn processes_share_a_flush() {
    check(TOGETHER, |machine, process| {
        vec![
            writing(process, 3, 1),
            writing(process, 2, 1),
            in_another(machine, |other| {
                let mut connection = other.connect();
                for _ in 0..3 {
                    connection.commit(2).expect("a commit");
                }
                connection.read_all().expect("every frame");
            }),
        ]
    });
}

#[test]
fn the_log_starts_again_between_groups() {
    check(TOGETHER, |_, process| {
        vec![
            writing(process, 3, 1),
            writing(process, 3, 1),
            connected(process, |mut connection| {
                for _ in 0..3 {
                    connection.restart().expect("a checkpoint");
                }
            }),
        ]
    });
}

#[test]
fn a_failed_flush_fails_every_commit_that_waits_for_it() {
    explore(CHEAP, || {
        let machine = Machine::new(TOGETHER);
        let process = machine.start();
        machine.fail_a_flush();
        let works = (0..3).map(|_| {
            connected(&process, |mut connection| {
                for _ in 0..3 {
                    if connection.commit(1).is_err() {
                        break;
                    }
                }
            })
        });
        together(works.collect());
    });
}
