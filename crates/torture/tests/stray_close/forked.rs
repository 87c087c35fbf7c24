//! A child of fork that keeps its parent's connection, against the rules.

use super::program::{Kind, Library, Program};
use super::{Fixture, LOGGED, assert_rows, five_rows, insert_five};

fn has_python() -> bool {
    Library::present().contains(&Library::Debian)
}

#[test]
fn a_child_that_closes_the_connection_takes_nothing_from_its_parent() {
    if !has_python() {
        return;
    }
    for mode in LOGGED {
        let fixture = Fixture::new();
        let database = fixture.database();
        let mut parent = five_rows(Library::Debian, mode.name, &database);
        let child = parent.say("fork close");
        assert!(child.ends_with("closed"), "{child}");
        // It is not checkpointed, deleted or unguarded, and no other process does that either.
        let mut other = Program::with(Library::Debian, Kind::Ours, &database);
        assert_eq!(other.must("SELECT count(*) FROM t"), "5", "{mode:?}");
        other.close();
        assert!(fixture.file(mode.log).exists(), "{mode:?}");
        insert_five(&mut parent);
        parent.kill();
        assert_rows(Kind::Ours, &database, 10, mode.name);
    }
}

#[test]
fn a_killed_parents_locks_do_not_live_on_in_its_child() {
    if !has_python() {
        return;
    }
    for mode in LOGGED {
        let fixture = Fixture::new();
        let database = fixture.database();
        let mut parent = five_rows(Library::Debian, mode.name, &database);
        parent.must("BEGIN IMMEDIATE");
        let child = parent.say("fork idle");
        assert!(child.ends_with("idle"), "{child}");
        let input = parent.kill_and_keep_input();
        // The child lives, but holds no lock that keeps others out.
        let mut other = Program::with(Library::Debian, Kind::Ours, &database);
        insert_five(&mut other);
        other.must("PRAGMA journal_mode=delete");
        other.close();
        assert_rows(Kind::Stock, &database, 10, mode.name);
        drop(input);
    }
}
