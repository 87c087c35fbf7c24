//! `onewrite top` while more events come than it can take: it says how many are lost, and a signal ends
//! it.
//!
//! A program of its own: the events of these tests are those of the whole machine, and other tests'
//! `top` would lose its own.

#[path = "common/mod.rs"]
mod common;
#[path = "top/running.rs"]
mod running;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use running::{PATIENCE, Top, number};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// More calls than a ring buffer of 4 MiB has room for: each is two events of 24 bytes or more.
const FLOOD: u32 = 400_000;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: a trace takes root");
    }
    is_root
}

fn ends(top: &mut Top) {
    let begin = Instant::now();
    while top.0.try_wait().expect("its end").is_none() {
        assert!(begin.elapsed() < PATIENCE, "it does not end");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Calls `fdatasync` on a file in memory.
fn flood(file: &File, calls: u32) {
    for _ in 0..calls {
        let _ = rustix::fs::fdatasync(file);
    }
}

fn file_in_memory() -> File {
    tempfile::tempfile_in("/dev/shm").expect("a file in memory")
}

#[test]
fn lost_events_are_told() {
    if !is_root() {
        return;
    }
    let signal =
        |top: &Top, signal| kill_process(Pid::from_child(&top.0), signal).expect("a signal");
    let run = |args: &[&str]| {
        let top = Top::start(args);
        signal(&top, Signal::STOP);
        flood(&file_in_memory(), FLOOD);
        signal(&top, Signal::CONT);
        top
    };
    let document = run(&["--json", "--for", "600s"]).stop();
    assert!(number(&document["lost_events"]) > 0, "{document:#}");
    let mut top = run(&["--once", "--for", "600s"]);
    signal(&top, Signal::INT);
    let table = std::io::read_to_string(top.0.stdout.take().expect("a pipe")).expect("a table");
    assert!(table.contains("the kernel lost "), "{table}");
    ends(&mut top);
}

/// Threads that cause events without an end, until this is dropped.
struct Flood {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    fn start(threads: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let of = |_| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                let file = file_in_memory();
                while !is_over.load(Relaxed) {
                    flood(&file, 1000);
                }
            })
        };
        Self {
            threads: (0..threads).map(of).collect(),
            is_over,
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        self.threads
            .drain(..)
            .for_each(|thread| drop(thread.join()));
    }
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Twice as many threads as processors leave it a part of one. A step that ends only when there are no
/// new events would never see the signal.
#[test]
fn a_signal_ends_it_while_events_come_faster_than_it_takes_them() {
    if !is_root() {
        return;
    }
    let mut top = Top::start(&["--json", "--for", "600s"]);
    let flood = Flood::start(2 * processors());
    thread::sleep(Duration::from_secs(2));
    kill_process(Pid::from_child(&top.0), Signal::TERM).expect("a signal");
    let output = top.0.stdout.take().expect("a pipe");
    let reading = thread::spawn(move || std::io::read_to_string(output));
    ends(&mut top);
    drop(flood);
    let document = reading.join().expect("no panic").expect("a document");
    let document: Value = serde_json::from_str(&document).expect("one JSON document");
    assert!(number(&document["lost_events"]) > 0, "{document:#}");
}
