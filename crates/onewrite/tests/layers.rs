//! The rooms of `src` stand in one order, and each uses only those below it.
//!
//! [`ROOMS`] is that order. `docs/design.md` and `src/lib.rs` are held to it, so that a new room is
//! entered in all three. A path in a comment counts like any other: a room whose documentation needs
//! the rooms above it is not understood alone.

use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom.
const ROOMS: [&str; 10] = [
    "wal",
    "sync",
    "waits",
    "storage",
    "mode",
    "log",
    "checkpoint",
    "commit",
    "plan",
    "vfs",
];

/// A path in a source file that leads to another room, or to the crate's root.
#[derive(PartialEq, Eq, Debug)]
struct Arrow {
    line: usize,
    to: String,
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn files(of: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(of).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The room of a file, and how many modules deep the file is below the crate's root.
fn room_of(file: &Path) -> (String, usize) {
    let inside = file.strip_prefix(source()).expect("a file of the source");
    let mut modules: Vec<_> = inside
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    modules.pop_if(|last| last == "mod");
    let depth = modules.len();
    (modules.swap_remove(0), depth)
}

/// Every path that begins at the crate's root: by `crate::`, or by as many `super::` as the file is
/// deep. Modules inside a file are not followed.
fn arrows(text: &str, depth: usize) -> Vec<Arrow> {
    let mut found = Vec::new();
    let mut add = |at: usize, to: &str| {
        let line = text[..at].matches('\n').count() + 1;
        let to = to.to_owned();
        found.push(Arrow { line, to });
    };
    for (at, _) in text.match_indices("crate::") {
        let is_a_word = text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if !is_a_word {
            let heads = heads(&text[at + "crate::".len()..]);
            heads.iter().for_each(|head| add(at, head));
        }
    }
    let up = "super::".repeat(depth);
    for (at, _) in text.match_indices(&up) {
        let heads = heads(text[at + up.len()..].trim_start_matches("super::"));
        let rooms = heads.iter().filter(|head| ROOMS.contains(&head.as_str()));
        rooms.for_each(|room| add(at, room));
    }
    found
}

/// The first word of a path, or of each path in braces.
fn heads(rest: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        let is_of_word = |c: &char| c.is_alphanumeric() || *c == '_' || *c == '*';
        text.trim_start().chars().take_while(is_of_word).collect()
    };
    let Some(list) = rest.strip_prefix('{') else {
        return vec![word(rest)];
    };
    let mut heads = vec![word(list)];
    let mut depth = 1;
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' if depth == 1 => heads.push(word(&list[at + 1..])),
            _ => {}
        }
    }
    heads.retain(|head| !head.is_empty());
    heads
}

/// The faults of these arrows of a file in `room`.
fn wrong(room: &str, arrows: &[Arrow]) -> Vec<String> {
    let level = |room: &str| ROOMS.iter().position(|known| *known == room);
    let from = level(room);
    let is_upward = |arrow: &&Arrow| level(&arrow.to).is_none_or(|to| Some(to) > from);
    arrows
        .iter()
        .filter(is_upward)
        .map(|arrow| match level(&arrow.to) {
            Some(_) => format!(
                "{}: {room} uses {}, which is above it",
                arrow.line, arrow.to
            ),
            None => format!("{}: crate::{} is in no room", arrow.line, arrow.to),
        })
        .collect()
}

#[test]
fn a_room_uses_only_rooms_below_it() {
    let mut all = Vec::new();
    files(&source(), &mut all);
    all.retain(|file| *file != source().join("lib.rs"));
    assert!(all.len() > 100, "the source was found");
    let mut found = Vec::new();
    for file in all {
        let (room, depth) = room_of(&file);
        assert!(ROOMS.contains(&room.as_str()), "{room} is not in ROOMS");
        let text = fs::read_to_string(&file).expect("a file");
        for what in wrong(&room, &arrows(&text, depth)) {
            found.push(format!("{}:{what}", file.display()));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn an_upward_path_is_found_however_it_is_written() {
    for (depth, text) in [
        (1, "use crate::commit::Writer;"),
        (
            2,
            "use crate::{\n    mode::{Layout, plan},\n    commit,\n};",
        ),
        (2, "let counts = crate::commit::Counts::default();"),
        (2, "//! See [`crate::commit`]."),
        (1, "use super::commit::Writer;"),
        (
            3,
            "use super::super::super::{storage::Init, commit::Writer};",
        ),
    ] {
        let found = wrong("log", &arrows(text, depth));
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].contains("log uses commit"), "{found:?}");
    }
    for (depth, text) in [
        (2, "use crate::storage::{Init, commit};"),
        (2, "use super::commit::Writer;"),
        (1, "pub(crate) fn commit() {}"),
    ] {
        assert_eq!(wrong("log", &arrows(text, depth)), [""; 0], "{text}");
    }
    let root = wrong("vfs", &arrows("use crate::*; crate::register()", 2));
    assert_eq!(root.len(), 2, "{root:?}");
}

#[test]
fn the_map_and_the_crate_have_these_rooms() {
    let design = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/design.md");
    let design = fs::read_to_string(design).expect("docs/design.md");
    let rows = design
        .lines()
        .skip_while(|line| !line.starts_with("| room |"))
        .skip(2)
        .map_while(|line| line.strip_prefix("| `"));
    let names: Vec<_> = rows.filter_map(|row| row.split('`').next()).collect();
    let from_the_top: Vec<_> = ROOMS.iter().rev().copied().collect();
    assert_eq!(names, from_the_top, "the rooms of docs/design.md");

    let root = fs::read_to_string(source().join("lib.rs")).expect("src/lib.rs");
    let mut modules: Vec<_> = root
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod "))
        .map(|module| module.trim_end_matches(';'))
        .collect();
    modules.dedup();
    let mut rooms = ROOMS.to_vec();
    rooms.sort_unstable();
    assert_eq!(modules, rooms, "the modules of src/lib.rs");
}
