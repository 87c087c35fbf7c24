//! The tables in `docs/reference/events.md`, made from [`EVENTS`].

use super::EVENTS;

const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/reference/events.md"
);
/// If this variable is set, the test writes the page, as that of the settings does.
const WRITE: &str = "ONEWRITE_WRITE_SETTINGS";
const BEGIN: &str = "<!-- begin events: from the list in vfs/events.rs -->\n";
const END: &str = "<!-- end events -->\n";

fn tables() -> String {
    let mut text = String::new();
    for kind in EVENTS {
        text += &format!("\n### `{}`\n\nWritten when {}.\n\n", kind.name, kind.when);
        text += "| field | meaning |\n| --- | --- |\n";
        for (name, meaning) in kind.fields {
            text += &format!("| `{name}` | {meaning} |\n");
        }
    }
    text
}

#[test]
fn the_page_has_the_events_as_they_are() {
    let page = std::fs::read_to_string(PAGE).expect("docs/reference/events.md");
    let (before, rest) = page.split_once(BEGIN).expect("a place for the tables");
    let (_, after) = rest.split_once(END).expect("an end of the tables");
    let expected = format!("{before}{BEGIN}{}\n{END}{after}", tables());
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(PAGE, &expected).expect("written");
    } else {
        assert!(
            page == expected,
            "docs/reference/events.md is not as the list has it: run {WRITE}=1 cargo test -p onewrite \
             --lib the_page_has_the_events_as_they_are"
        );
    }
}
