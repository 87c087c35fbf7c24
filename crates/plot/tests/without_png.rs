//! A build without the feature `png` draws SVG, and names the way to a PNG.
#![cfg(not(feature = "png"))]

use std::path::Path;

use onewrite_plot::{Arrangement, Axis, Bars, Picture, Unit};

#[test]
fn who_asks_for_a_png_is_told_the_way_to_it_and_no_file_is_made() {
    let bars = Bars {
        title: "Bytes".to_owned(),
        subtitle: None,
        categories: Vec::new(),
        axis: Axis::new("written", Unit::Bytes),
        arrangement: Arrangement::Stacked,
        series: Vec::new(),
    };
    let dir = tempfile::tempdir().unwrap();
    let (svg, png) = (dir.path().join("a.svg"), dir.path().join("a.PNG"));
    let picture = bars.draw().unwrap();
    for error in [picture.save(&png), Picture::is_png(&png).map(drop)] {
        let error = error.unwrap_err().to_string();
        for part in ["a.PNG", "write .svg", "--features png"] {
            assert!(error.contains(part), "{error}");
        }
    }
    assert!(!png.exists());
    picture.save(&svg).unwrap();
    assert_eq!(std::fs::read_to_string(&svg).unwrap(), picture.svg());
    let error = Picture::is_png(Path::new("a.jpg")).unwrap_err().to_string();
    assert!(error.contains(".svg or .png"), "{error}");
}
