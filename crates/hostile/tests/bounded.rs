//! Runs every target on its kept corpus and on random inputs, without a fuzzer, so that it runs
//! everywhere.
//!
//! `ONEWRITE_FUZZ_SEED=N` repeats the same inputs. `ONEWRITE_FUZZ_PERCENT=N` makes more or fewer of
//! them. The test prints inputs that break a promise in hexadecimal.

use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use onewrite_hostile::{TARGETS, Target};
use onewrite_torture::random::Random;

/// Counts panics, including those that the VFS turned into an error of SQLite's.
static PANICS: AtomicU32 = AtomicU32::new(0);
static LAST: Mutex<String> = Mutex::new(String::new());

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target.name);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&directory)
        .unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let read = |path: &PathBuf| std::fs::read(path).expect("an input");
    files.iter().map(read).collect()
}

/// A kept input with some changes, or random bytes.
fn draw(random: &mut Random, corpus: &[Vec<u8>], max_bytes: usize) -> Vec<u8> {
    let mut bytes = match corpus.is_empty() || random.one_in(4) {
        true => Vec::new(),
        false => random.choose(corpus).clone(),
    };
    if bytes.is_empty() {
        let length = random.below(max_bytes as u64 + 1);
        bytes = (0..length).map(|_| random.next() as u8).collect();
    }
    for _ in 0..random.below(6) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(5) {
            0 => bytes.insert(at, random.next() as u8),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => bytes.truncate(at),
            3 => bytes.extend((0..random.below(9)).map(|_| random.next() as u8)),
            _ => bytes
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte ^= random.next() as u8),
        }
    }
    bytes.truncate(max_bytes);
    bytes
}

/// Runs one input; returns the broken promise.
fn broken(target: &Target, input: &[u8]) -> Option<String> {
    let before = PANICS.load(Ordering::SeqCst);
    let _ = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let after = PANICS.load(Ordering::SeqCst);
    (after > before).then(|| {
        LAST.lock()
            .map_or_else(|e| e.into_inner().clone(), |text| text.clone())
    })
}

/// One test for all: the panic hook belongs to the process.
#[test]
fn no_target_breaks_a_promise() {
    panic::set_hook(Box::new(|info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        if let Ok(mut last) = LAST.lock() {
            *last = info.to_string();
        }
    }));
    let seed = number("ONEWRITE_FUZZ_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_nanos() as u64)
    });
    let percent = number("ONEWRITE_FUZZ_PERCENT").unwrap_or(100);
    println!("ONEWRITE_FUZZ_SEED={seed}");
    let mut found = Vec::new();
    for (nth, target) in TARGETS.iter().enumerate() {
        let begun = std::time::Instant::now();
        let mut random = Random::of_part(seed, nth as u64);
        let corpus = corpus(target);
        let runs = u64::from(target.runs) * percent / 100;
        let random_inputs = (0..runs).map(|_| draw(&mut random, &corpus, target.max_bytes));
        let kept = corpus.iter().cloned();
        let mut count = 0;
        for input in kept.chain(random_inputs) {
            count += 1;
            if let Some(what) = broken(target, &input) {
                found.push(format!("{} {}: {what}", target.name, hex(&input)));
                break;
            }
        }
        let seconds = begun.elapsed().as_secs_f32();
        println!(
            "{}: {count} inputs, {} of them kept, {seconds:.1} s",
            target.name,
            corpus.len()
        );
    }
    let _ = panic::take_hook();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
