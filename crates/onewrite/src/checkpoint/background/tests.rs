//! The thread's state without SQLite.

use super::*;
use crate::wal::Salts;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

const LONGEST: Duration = Duration::from_secs(600);

fn serving(
    background: &Arc<Background>,
    checkpoint: impl FnMut() -> Result<(), String> + Send + 'static,
) -> Result<JoinHandle<()>, String> {
    let its = Arc::clone(background);
    Ok(std::thread::spawn(move || {
        let _ends = its.until_it_ends();
        its.serve(checkpoint);
    }))
}

/// A log that is due for its first pass, in its `generation`.
fn long(generation: u8) -> Fill {
    Fill {
        salts: Salts([generation; 8]),
        frames: 1_250,
        copied: 0,
        threshold: 1_000,
    }
}

#[test]
fn no_checkpoint_runs_next_to_a_hold() {
    let background = Arc::new(Background::default());
    let count = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&count);
    let checkpoint = move || {
        its.fetch_add(1, Ordering::SeqCst);
        Ok(())
    };
    assert!(background.leave(long(1), || serving(&background, checkpoint)));
    assert!(background.await_idle(LONGEST));
    assert_eq!(count.load(Ordering::SeqCst), 1);
    hold(&background);
    assert!(background.leave(long(2), || unreachable!("it has a thread")));
    assert!(!background.await_idle(Duration::from_millis(1)));
    assert_eq!(count.load(Ordering::SeqCst), 1);
    background.release();
    assert!(background.await_idle(LONGEST));
    assert_eq!(count.load(Ordering::SeqCst), 2);
    background.stop();
    assert!(!background.has_thread());
}

#[test]
fn a_failure_and_a_panic_end_the_thread() {
    let background = Arc::new(Background::default());
    let fails = || Err("the disk is full".to_owned());
    assert!(background.leave(long(1), || serving(&background, fails)));
    background.stop();
    // Whether it was stopped before it began is open.
    background.give_up("the disk is full".to_owned());
    assert!(!background.leave(long(1), || unreachable!("it has failed")));
    assert_eq!(
        background.counts().failure.as_deref(),
        Some("the disk is full")
    );

    let background = Arc::new(Background::default());
    let panics = || panic!("on purpose");
    assert!(background.leave(long(1), || serving(&background, panics)));
    assert!(background.await_idle(LONGEST));
    background.stop();
    assert!(background.leave(long(1), || serving(&background, || Ok(()))));
    background.stop();
}

/// `clone` may return EAGAIN for a moment.
#[test]
fn without_a_thread_commits_checkpoint_and_later_one_tries_again() {
    let background = Arc::new(Background::default());
    let none = || Err("there is none".to_owned());
    assert!(!background.leave(long(1), none));
    for _ in 0..SPARED {
        assert!(!background.leave(long(1), || unreachable!("it is too early")));
    }
    assert!(!background.leave(long(1), none));
    assert_eq!(
        background.counts().failure.as_deref(),
        Some("there is none")
    );
    for _ in 0..SPARED {
        assert!(!background.leave(long(1), || unreachable!("it is too early")));
    }
    assert!(background.leave(long(1), || serving(&background, || Ok(()))));
    assert!(background.await_idle(LONGEST));
    assert_eq!(background.counts().failure, None);
    assert_eq!(background.counts().checkpoints, 1);
    hold(&background);
    background.release();
    background.stop();
}

#[test]
fn what_is_left_is_copied_in_a_quiet_moment() {
    let background = Arc::new(Background::default());
    let quiet = Fill {
        frames: 1_000,
        ..long(1)
    };
    assert!(background.leave(quiet, || serving(&background, || Ok(()))));
    let begun = Instant::now();
    while background.counts().is_busy {
        assert!(begun.elapsed() < LONGEST, "it takes too long");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(background.counts().checkpoints, 1);
    // Once, even if the log has not restarted.
    assert!(background.leave(quiet, || unreachable!("it has a thread")));
    assert!(!background.counts().is_busy);
    background.stop();
}

/// Another process may keep the database open, and nobody would make this pass.
#[test]
fn what_is_left_is_copied_before_the_thread_ends() {
    for frames in [1_000, 1_250] {
        let background = Arc::new(Background::default());
        let fill = Fill { frames, ..long(1) };
        assert!(background.leave(fill, || serving(&background, || Ok(()))));
        background.stop();
        assert_eq!(background.counts().checkpoints, 1, "{frames} frames");
        assert!(!background.counts().is_busy);
    }
}

/// `exit` does not wait for a lock that the exiting thread may have.
#[test]
fn an_exit_waits_for_the_pass_and_not_for_ever() {
    let background = Arc::new(Background::default());
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let (begin, has_begun) = std::sync::mpsc::channel();
    let slow = move || {
        let _ = begin.send(());
        let _ = may_go_on.recv_timeout(LONGEST);
        Ok(())
    };
    assert!(background.leave(long(1), || serving(&background, slow)));
    assert_eq!(has_begun.recv_timeout(LONGEST), Ok(()));
    let end = Instant::now() + Duration::from_millis(20);
    background.hold_at_exit(end);
    assert!(Instant::now() >= end);
    let state = background.state();
    background.hold_at_exit(Instant::now());
    drop(state);
    drop(go_on);
    background.hold_at_exit(Instant::now() + LONGEST);
    assert!(background.leave(long(2), || unreachable!("it has a thread")));
    assert!(!background.await_idle(Duration::from_millis(20)));
    background.stop();
    assert_eq!(background.counts().checkpoints, 1);
}

fn hold(background: &Background) {
    Background::hold_all([background]);
}

#[test]
fn the_threads_of_several_logs_that_open_are_waited_for_once() {
    let all: [Arc<Background>; 3] = Default::default();
    let mut go_on = Vec::new();
    for background in &all {
        let (goes_on, may_go_on) = std::sync::mpsc::channel::<()>();
        go_on.push(goes_on);
        let its = Arc::clone(background);
        let slow = || {
            Ok(std::thread::spawn(move || {
                let _ends = its.until_it_ends();
                let _ = may_go_on.recv_timeout(LONGEST);
            }))
        };
        assert!(background.leave(long(1), slow));
    }
    let begun = Instant::now();
    Background::hold_all(all.iter().map(|it| &**it));
    let waited = begun.elapsed();
    assert!((TO_OPEN..2 * TO_OPEN).contains(&waited), "{waited:?}");
    drop(go_on);
    for background in &all {
        background.release();
        // The thread ends by itself, and `stop` does not wait for one that is slow to open.
        let begun = Instant::now();
        while background.has_thread() {
            assert!(begun.elapsed() < LONGEST, "it takes too long");
            std::thread::yield_now();
        }
    }
}

/// An automatic extension of the application waits for a lock that the closing thread has.
#[test]
fn no_close_and_no_checkpoint_wait_for_ever_for_a_thread_that_opens() {
    let background = Arc::new(Background::default());
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let its = Arc::clone(&background);
    let slow = || {
        Ok(std::thread::spawn(move || {
            let _ends = its.until_it_ends();
            let _ = may_go_on.recv_timeout(LONGEST);
            its.serve(|| Ok(()));
        }))
    };
    assert!(background.leave(long(1), slow));
    let begun = Instant::now();
    hold(&background);
    background.release();
    assert!(!background.stop());
    assert!(!background.stop());
    let waited = begun.elapsed();
    assert!(waited < 2 * TO_OPEN, "each waited anew: {waited:?}");
    drop(go_on);
    let begun = Instant::now();
    while background.has_thread() {
        assert!(begun.elapsed() < LONGEST, "it takes too long");
        std::thread::yield_now();
    }
    assert_eq!(background.counts().checkpoints, 0);
    assert!(background.leave(long(2), || serving(&background, || Ok(()))));
    assert!(background.await_idle(LONGEST));
    assert_eq!(background.counts().checkpoints, 1);
    assert!(background.stop());
}

#[test]
fn writers_wait_for_the_pass_that_is_to_catch_up() {
    let background = Arc::new(Background::default());
    assert!(background.leave(long(1), || serving(&background, || Ok(()))));
    assert!(background.await_idle(LONGEST));
    assert!(!background.writers_wait());
    hold(&background);
    let longer = Fill {
        frames: 1_375,
        copied: 1_250,
        ..long(1)
    };
    assert!(background.leave(longer, || unreachable!("it has a thread")));
    assert!(background.writers_wait());
    background.release();
    assert!(background.await_idle(LONGEST));
    assert!(!background.writers_wait());
    background.stop();
}

/// Its last step may take long: it is no longer in SQLite then, and has nothing of the log.
#[test]
fn no_commit_waits_for_a_thread_that_has_almost_ended() {
    let background = Arc::new(Background::default());
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let its = Arc::clone(&background);
    let slow = || {
        Ok(std::thread::spawn(move || {
            drop(its.until_it_ends());
            let _ = may_go_on.recv_timeout(LONGEST);
        }))
    };
    assert!(background.leave(long(1), slow));
    let begun = Instant::now();
    while background.has_thread() {
        assert!(begun.elapsed() < LONGEST, "it takes too long");
        std::thread::yield_now();
    }
    let (left, is_left) = std::sync::mpsc::channel();
    let its = Arc::clone(&background);
    // Not joined if the test fails: it would wait for ever.
    std::thread::spawn(move || {
        let _ = left.send(its.leave(long(2), || serving(&its, || Ok(()))));
    });
    let found = is_left.recv_timeout(Duration::from_secs(20));
    assert_eq!(found, Ok(true), "it has waited");
    drop(go_on);
    background.stop();
}
