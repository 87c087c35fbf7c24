//! The text of a page; `tests/html.rs` looks at one in a browser.

use onewrite_plot::{Arrangement, Axis, BarSeries, Bars, Unit, colors};

use super::*;

const NASTY: &str = "<script>alert(\"1\")</script> & 'x' </style> --> ü";

fn page() -> Page {
    let bars = Bars {
        title: NASTY.to_owned(),
        subtitle: None,
        categories: vec![NASTY.to_owned()],
        axis: Axis::new("bytes", Unit::Bytes),
        arrangement: Arrangement::Stacked,
        series: vec![BarSeries::new(NASTY, colors::LOG, [1.0])],
    };
    let mut table = Table::new([NASTY, "b"]);
    table.rows.push(vec![NASTY.to_owned(), NASTY.to_owned()]);
    let bar = Bar {
        name: NASTY.to_owned(),
        value: 1.0,
        text: NASTY.to_owned(),
        is_base: false,
    };
    let parts = vec![
        Part::Bars(vec![bar]),
        Part::Table(table),
        Part::Picture(bars.draw().unwrap(), NASTY.to_owned()),
        Part::Sentences(vec![NASTY.to_owned()]),
    ];
    let mut page = Page::of(NASTY, &[NASTY]).unwrap();
    page.lead = Some(NASTY.to_owned());
    page.problems.push(NASTY.to_owned());
    page.notes.push(NASTY.to_owned());
    page.fact(NASTY, NASTY);
    page.sections.push(Section::new(NASTY, NASTY, parts));
    page
}

#[test]
fn every_text_is_escaped() {
    let html = page().html();
    assert!(!html.contains("<script"), "{html}");
    assert_eq!(html.matches("</style>").count(), 1);
    // Title and heading, lead, problem, note, both of the fact, heading, intro. Also the bar's two,
    // the table's three, the picture's label, the text in the picture, and the sentence.
    assert!(html.matches("&lt;script&gt;").count() >= 15, "{html}");
}

#[test]
fn a_link_is_escaped_and_names_a_file_next_to_the_page() {
    let link = Link {
        file: "a\"b.html".to_owned(),
        title: NASTY.to_owned(),
        text: NASTY.to_owned(),
    };
    let html = Part::Links(vec![link]).html().into_string();
    assert!(html.contains("href=\"a&quot;b.html\""), "{html}");
    assert!(!html.contains("<script"), "{html}");
}

#[test]
fn a_terminal_s_table_has_the_same_heads_and_cells() {
    let mut terminal = comfy_table::Table::new();
    terminal.set_header(["mode", "our\nratio"]);
    terminal.add_row(["wal", "1.0"]);
    let table = Table::of_terminal(&terminal);
    assert_eq!(table.head, ["mode", "our ratio"]);
    assert_eq!(table.rows, [["wal", "1.0"]]);
}

#[test]
fn a_page_refers_to_nothing_outside() {
    let html = page().html();
    for reference in ["src=", "<link", "@import", "url(", "href="] {
        assert!(!html.contains(reference), "{reference}");
    }
    let without_names = html.replace("http://www.w3.org/2000/svg", "");
    assert!(!without_names.contains("http"), "{without_names}");
}

#[test]
fn bars_are_as_long_as_their_share_of_the_longest() {
    let bar = |value| Bar {
        name: "a".to_owned(),
        value,
        text: "1".to_owned(),
        is_base: false,
    };
    let html = bars_html(&[bar(50.0), bar(200.0), bar(f64::NAN), bar(-1.0)]).into_string();
    for width in ["width:25.0%", "width:100.0%", "width:0\"", "width:0.0%"] {
        assert!(html.contains(width), "{width}: {html}");
    }
    let nothing = bars_html(&[bar(0.0)]).into_string();
    assert!(nothing.contains("width:0\""), "{nothing}");
}

#[test]
fn columns_without_figures_are_left_out() {
    let mut table = Table::new(["mode", "a", "b"]);
    table
        .rows
        .push(["wal", "-", "1"].map(str::to_owned).to_vec());
    table.rows.push(["x", "-", "-"].map(str::to_owned).to_vec());
    let table = table.without_empty_columns("-");
    assert_eq!(table.head, ["mode", "b"]);
    assert_eq!(table.rows, [["wal", "1"], ["x", "-"]]);
}
