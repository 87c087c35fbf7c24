//! Pictures are complete SVG documents, the PNG shows the same as the SVG, and neither needs
//! anything installed.
//!
//! `ONEWRITE_PICTURES=DIR` keeps the drawn pictures for inspection.

use std::path::{Path, PathBuf};

use onewrite_plot::{
    Addresses, Arrangement, Axis, BarSeries, Bars, Cell, Cells, Heat, LineSeries, Lines, Mark,
    Moved, Picture, Region, Scale, Series, Shape, Traffic, Unit, colors, stack,
};
use resvg::tiny_skia::{Pixmap, PremultipliedColorU8};

fn series() -> Vec<Series> {
    [
        ("file-system journal", colors::FS_JOURNAL, Shape::Square),
        ("database & <more>", colors::DATABASE, Shape::Circle),
        ("log", colors::LOG, Shape::Triangle),
    ]
    .map(|(name, color, shape)| Series {
        name: name.to_owned(),
        color,
        shape,
    })
    .to_vec()
}

fn addresses() -> Addresses {
    let mark = |at_ms: f64, address: u64, kib: u64, series| Mark {
        at_s: at_ms / 1e3,
        address,
        bytes: kib << 10,
        series,
    };
    Addresses {
        title: "One insert".to_owned(),
        subtitle: Some("ext4".to_owned()),
        size: Addresses::SIZE,
        seconds: 0.004,
        series: series(),
        regions: vec![Region {
            name: "file-system journal".to_owned(),
            bytes: 256 << 20..272 << 20,
        }],
        marks: vec![
            mark(0.5, 130 << 20, 4, 2),
            mark(1.0, 256 << 20, 4, 0),
            mark(1.2, (256 << 20) + 4096, 28, 0),
            mark(3.0, (130 << 20) + 8192, 8, 1),
        ],
        flushes: vec![0.0008, 0.0020],
    }
}

fn traffic() -> Traffic {
    Traffic {
        title: "Traffic".to_owned(),
        subtitle: None,
        seconds: 10.0,
        series: series(),
        legend: true,
        moved: (0..1_000)
            .map(|n| Moved {
                at_s: f64::from(n) / 100.0,
                bytes: u64::from(n as u32 % 7) * 4096,
                series: n as usize % 3,
            })
            .collect(),
    }
}

fn bars(arrangement: Arrangement) -> Bars {
    Bars {
        title: "Bytes a transaction".to_owned(),
        subtitle: Some("one row inserted, ext4".to_owned()),
        categories: vec!["delete".to_owned(), "wal".to_owned(), "onewrite".to_owned()],
        axis: Axis::new("written", Unit::Bytes),
        arrangement,
        series: vec![
            BarSeries::new("journal", colors::FS_JOURNAL, [45_056.0, 20_480.0, 0.0]),
            BarSeries {
                name: "log".to_owned(),
                color: colors::LOG,
                values: vec![Some(12_288.0), Some(8_192.0), None],
            },
        ],
    }
}

fn lines() -> Lines {
    let line = |index: usize, factor: f64| LineSeries {
        series: series()[index].clone(),
        points: (0..6)
            .map(|n| (f64::from(1 << n), factor * f64::from(n + 1)))
            .collect(),
    };
    Lines {
        title: "Rate by threads".to_owned(),
        subtitle: None,
        x: Axis::new("threads", Unit::Number),
        x_scale: Scale::Logarithmic,
        y: Axis::new("commits a second", Unit::Number),
        lines: vec![line(0, 200.0), line(2, 2_500.0)],
    }
}

fn all() -> Vec<(&'static str, Picture)> {
    let pictures = [
        ("addresses", addresses().draw().unwrap()),
        ("traffic", traffic().draw().unwrap()),
        ("stacked", bars(Arrangement::Stacked).draw().unwrap()),
        ("grouped", bars(Arrangement::Grouped).draw().unwrap()),
        ("lines", lines().draw().unwrap()),
    ];
    let both = stack(&[pictures[0].1.clone(), pictures[1].1.clone()], "Both");
    pictures.into_iter().chain([("both", both)]).collect()
}

/// The pixels of a picture in its own size.
fn pixels(picture: &Picture) -> Pixmap {
    let png = picture.png(1.0).unwrap();
    Pixmap::decode_png(&png).unwrap()
}

fn count(pixmap: &Pixmap, wanted: impl Fn(PremultipliedColorU8) -> bool) -> usize {
    pixmap
        .pixels()
        .iter()
        .filter(|pixel| wanted(**pixel))
        .count()
}

#[test]
fn every_picture_is_drawn_in_the_size_it_has_on_white() {
    for (name, picture) in all() {
        let pixmap = pixels(&picture);
        assert_eq!((pixmap.width(), pixmap.height()), picture.size(), "{name}");
        let total = pixmap.pixels().len();
        let white = count(&pixmap, |p| {
            (p.red(), p.green(), p.blue()) == (255, 255, 255)
        });
        assert!(
            white > total / 2,
            "{name}: {white} of {total} pixels are white"
        );
        assert_eq!(count(&pixmap, |p| p.alpha() != 255), 0, "{name}");
        // Text uses the built-in font: without a font there would be almost no dark pixel.
        let dark = count(&pixmap, |p| {
            p.red() < 120 && p.green() < 120 && p.blue() < 120
        });
        assert!(dark > 300, "{name}: {dark} dark pixels");
        if let Some(dir) = std::env::var_os("ONEWRITE_PICTURES").map(PathBuf::from) {
            picture.save(&dir.join(format!("{name}.png"))).unwrap();
            picture.save(&dir.join(format!("{name}.svg"))).unwrap();
        }
    }
}

#[test]
fn a_kind_is_seen_where_it_is_and_only_then() {
    // A color counts as seen where red, green and blue dominate as they do in the series' color.
    let above = |a: u8, b: u8, by: u8| a > b.saturating_add(by);
    let green =
        |p: PremultipliedColorU8| above(p.green(), p.red(), 60) && above(p.green(), p.blue(), 20);
    let with = pixels(&addresses().draw().unwrap());
    assert!(count(&with, green) > 50);
    let mut without = addresses();
    without.marks.retain(|mark| mark.series != 2);
    assert_eq!(count(&pixels(&without.draw().unwrap()), green), 0);
}

#[test]
fn an_svg_stands_by_itself() {
    for (name, picture) in all() {
        let svg = picture.svg();
        assert!(svg.starts_with("<svg xmlns="), "{name}");
        assert!(svg.trim_end().ends_with("</svg>"), "{name}");
        assert_eq!(svg.matches("<svg").count(), 1, "{name}");
        let links = svg.matches("http").count();
        assert_eq!(links, 1, "{name}: only the namespace is a link");
        for never in ["<script", "href", "<image", "@import", "<foreignObject"] {
            assert!(!svg.contains(never), "{name}: {never}");
        }
        if name == "addresses" {
            assert!(svg.contains("database &amp; &lt;more&gt;"), "{svg}");
        }
    }
}

#[test]
fn nothing_to_show_is_an_empty_picture_and_no_error() {
    let nothing = Addresses {
        marks: Vec::new(),
        flushes: Vec::new(),
        seconds: 0.0,
        ..addresses()
    };
    nothing.draw().unwrap();
    let nothing = Traffic {
        moved: Vec::new(),
        seconds: 0.0,
        ..traffic()
    };
    nothing.draw().unwrap();
    let nothing = Bars {
        categories: Vec::new(),
        series: Vec::new(),
        ..bars(Arrangement::Stacked)
    };
    nothing.draw().unwrap();
    let nothing = Lines {
        lines: Vec::new(),
        ..lines()
    };
    nothing.draw().unwrap();
}

#[test]
fn figures_that_are_none_or_absurd_are_not_drawn_as_bars() {
    let mut picture = bars(Arrangement::Grouped);
    picture.series[0].values = vec![Some(f64::NAN), Some(-1.0), Some(f64::INFINITY)];
    let svg = picture.draw().unwrap().svg().to_owned();
    assert_eq!(svg.matches("not measured").count(), 4, "{svg}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn a_file_is_what_its_name_says() {
    let dir = tempfile::tempdir().unwrap();
    let picture = lines().draw().unwrap();
    let (svg, png) = (dir.path().join("a.SVG"), dir.path().join("a.png"));
    picture.save(&svg).unwrap();
    picture.save(&png).unwrap();
    assert_eq!(std::fs::read_to_string(&svg).unwrap(), picture.svg());
    let twice = Pixmap::decode_png(&std::fs::read(&png).unwrap()).unwrap();
    assert_eq!(twice.width(), 2 * picture.size().0);
    let error = picture.save(Path::new("a.jpg")).unwrap_err().to_string();
    assert!(
        error.contains("a.jpg") && error.contains(".svg or .png"),
        "{error}"
    );
    let error = picture.save(Path::new("/no/such/a.svg")).unwrap_err();
    assert!(error.to_string().contains("/no/such/a.svg"), "{error}");
    assert!(picture.png(1e9).is_err());
}

#[test]
fn a_map_has_a_cell_for_each_number() {
    let mut map = Heat {
        title: "Wear".to_owned(),
        subtitle: None,
        what: "erases".to_owned(),
        without: "bad block".to_owned(),
        cells: (0..500).map(|cell| Some(f64::from(cell))).collect(),
    };
    let whole = map.draw().unwrap().svg().matches("<rect").count();
    map.cells[3] = None;
    let svg = map.draw().unwrap().svg().to_owned();
    assert!(whole >= 500, "{whole}");
    assert!(svg.contains("bad block"), "{svg}");
    map.cells.clear();
    map.draw().unwrap();
}

#[test]
fn a_table_of_cells_has_every_cell_that_is_not_empty_and_its_word() {
    let cell = |kind, word: &str| {
        Some(Cell {
            kind,
            word: word.to_owned(),
        })
    };
    let cells = Cells {
        title: "A mode".to_owned(),
        subtitle: None,
        kinds: series(),
        columns: vec![
            ("none".to_owned(), "1t".to_owned()),
            ("emmc".to_owned(), "8t".to_owned()),
        ],
        rows: vec![
            ("insert".to_owned(), vec![cell(0, "ok"), cell(2, "rbcp")]),
            ("app & more".to_owned(), vec![None, cell(1, "?")]),
        ],
    };
    let svg = cells.draw().unwrap().svg().to_owned();
    for word in ["insert", "app &amp; more", "none", "8t", "ok", "rbcp", "?"] {
        assert!(svg.contains(&format!("\n{word}\n")), "{word}: {svg}");
    }
    let empty = Cells {
        rows: Vec::new(),
        ..cells
    };
    let rects = |svg: &str| svg.matches("<rect").count();
    assert_eq!(rects(&svg), rects(empty.draw().unwrap().svg()) + 3);
}
