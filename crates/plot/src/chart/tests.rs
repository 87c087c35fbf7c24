use crate::frame;
use crate::{
    Arrangement, Axis, BarSeries, Bars, LineSeries, Lines, Moved, Picture, Scale, Series, Shape,
    Traffic, Unit, colors,
};

/// The text of a picture, and the pixels that it takes: left, top, right, bottom. Without the labels
/// of upright axes.
fn texts(picture: &Picture) -> Vec<(&str, [f64; 4])> {
    let mut found = Vec::new();
    for part in picture.svg().split("<text").skip(1) {
        let (tag, rest) = part.split_once('>').unwrap();
        if tag.contains("rotate") {
            continue;
        }
        let of = |name: &str| {
            let value = tag.split_once(&format!(" {name}=\"")).unwrap().1;
            value.split_once('"').unwrap().0
        };
        let number = |name: &str| of(name).parse::<f64>().unwrap();
        let text = rest.split_once("</text>").unwrap().0.trim();
        let (x, y, high) = (number("x"), number("y"), number("font-size"));
        let wide = f64::from(frame::width(text, high as i32));
        let left = match of("text-anchor") {
            "start" => x,
            "middle" => x - wide / 2.0,
            _ => x - wide,
        };
        // Digits and capitals take some seven tenths of the height.
        let high = 0.7 * high;
        let top = match of("dy") {
            "0.76em" => y,
            "0.5ex" => y - high / 2.0,
            _ => y - high,
        };
        found.push((text, [left, top, left + wide, top + high]));
    }
    found
}

/// No text lies on another or outside of the picture, and there are ticks enough.
fn check(picture: &Picture, ticks: usize) {
    let texts = texts(picture);
    let (wide, high) = picture.size();
    for (index, (text, [left, top, right, bottom])) in texts.iter().enumerate() {
        let inside = [
            *left,
            *top,
            f64::from(wide) - right,
            f64::from(high) - bottom,
        ];
        assert!(inside.iter().all(|room| *room >= 0.0), "{text} {inside:?}");
        for (other, place) in &texts[..index] {
            let apart =
                *left > place[2] || place[0] > *right || *top > place[3] || place[1] > *bottom;
            assert!(apart, "{text} lies on {other}: {}", picture.svg());
        }
    }
    let is_number =
        |(text, _): &&(&str, _)| text.chars().all(|c| c.is_ascii_digit() || ",.".contains(c));
    let numbers = texts.iter().filter(is_number).count();
    assert!(numbers >= ticks, "{numbers} numbers: {}", picture.svg());
}

fn series(name: &str) -> Series {
    Series {
        name: name.to_owned(),
        color: colors::LOG,
        shape: Shape::Diamond,
    }
}

const UNITS: [Unit; 3] = [Unit::Bytes, Unit::Seconds, Unit::Number];

#[test]
fn no_number_of_lines_lies_on_another() {
    let ends = [
        1e-3, 0.7, 3.0, 64.0, 100.0, 256.0, 4096.0, 77_777.0, 1e6, 3.3e8, 1e12,
    ];
    for unit in UNITS {
        for x_scale in [Scale::Linear, Scale::Logarithmic] {
            for (least, most) in ends
                .iter()
                .flat_map(|most| ends.map(|least| (least, *most)))
            {
                let lines = Lines {
                    title: "Lines".to_owned(),
                    subtitle: None,
                    x: Axis::new("threads", unit),
                    x_scale,
                    y: Axis::new("rate", unit),
                    lines: vec![LineSeries {
                        series: series("log"),
                        points: vec![(least, least), (most, most)],
                    }],
                };
                check(&lines.draw().unwrap(), 3);
            }
        }
    }
}

#[test]
fn no_number_of_bars_lies_on_another() {
    for unit in UNITS {
        for most in [
            0.0, 1e-3, 0.7, 3.0, 100.0, 4096.0, 77_777.0, 1e6, 3.3e8, 1e12,
        ] {
            for arrangement in [Arrangement::Stacked, Arrangement::Grouped] {
                let bars = Bars {
                    title: "Bars".to_owned(),
                    subtitle: None,
                    categories: [
                        "wal",
                        "a name that is much too long for its room in a picture",
                    ]
                    .map(str::to_owned)
                    .to_vec(),
                    axis: Axis::new("written", unit),
                    arrangement,
                    series: ["log", "journal"]
                        .map(|name| BarSeries::new(name, colors::LOG, [most, most / 3.0]))
                        .to_vec(),
                };
                check(&bars.draw().unwrap(), 4);
            }
        }
    }
}

#[test]
fn no_number_of_traffic_lies_on_another() {
    for seconds in [1e-9, 1e-3, 0.7, 3.0, 100.0, 1e5] {
        for bytes in [0, 1, 512, 4096, 77_777, 1 << 30, 1 << 50] {
            let moved = Moved {
                at_s: seconds / 2.0,
                bytes,
                series: 0,
            };
            let traffic = Traffic {
                title: "Traffic".to_owned(),
                subtitle: None,
                seconds,
                series: vec![series("log")],
                legend: true,
                moved: vec![moved],
            };
            check(&traffic.draw().unwrap(), 4);
        }
    }
}

#[test]
fn points_that_are_not_finite_are_left_out() {
    let lines = |points: &[(f64, f64)]| Lines {
        title: "Lines".to_owned(),
        subtitle: None,
        x: Axis::new("threads", Unit::Number),
        x_scale: Scale::Logarithmic,
        y: Axis::new("rate", Unit::Number),
        lines: vec![LineSeries {
            series: series("log"),
            points: points.to_vec(),
        }],
    };
    let drawn = |points: &[(f64, f64)]| lines(points).draw().unwrap();
    let all = [
        (1.0, 2.0),
        (f64::INFINITY, 1.0),
        (3.0, f64::NAN),
        (8.0, f64::INFINITY),
        (8.0, 3.0),
    ];
    // The same picture each time it is drawn, too.
    assert_eq!(drawn(&all), drawn(&[all[0], all[4]]));
    assert!(!drawn(&all).svg().contains("NaN"));
}
