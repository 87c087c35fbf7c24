//! The page of `--html` in a real browser, at the width of a phone and of a desk. It shows
//! something, runs nothing, and is no wider than the screen.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{onewrite, path, text};

/// Debian's `chromium-headless-shell`, or a Chromium by another name.
const BROWSERS: [&str; 4] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
];

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .flat_map(|dir| BROWSERS.map(|name| dir.join(name)))
        .find(|file| file.is_file());
    if found.is_none() {
        println!("SKIPPED: no browser: {} is not installed", BROWSERS[0]);
    }
    found
}

/// The browser's output for a page; `how` is one of its output options.
fn browse(browser: &Path, page: &Path, width: u32, how: &str) -> Vec<u8> {
    let profile = tempfile::tempdir().expect("a directory");
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        // The browser resolves no name, so it could not get anything from elsewhere.
        .arg("--host-resolver-rules=MAP * ~NOTFOUND")
        .arg(format!("--user-data-dir={}", path(profile.path())))
        .arg(format!("--window-size={width},2000"))
        .arg(how)
        .arg(format!("file://{}", path(page)))
        .output()
        .expect("the browser");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    output.stdout
}

#[test]
fn a_page_is_shown_by_a_browser_and_fits_a_phone() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("report.html");
    let args = [
        "--dir",
        path(dir.path()),
        "--count",
        "60",
        "--modes",
        "wal,waldio,onewrite",
        "--repeat",
        "2",
    ];
    let output = onewrite("compare", &[&args[..], &["--html", path(&page)]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));

    // A copy that measures itself; the page has no script of its own.
    let html = std::fs::read_to_string(&page).expect("the page");
    assert!(!html.contains("<script"));
    let measuring = dir.path().join("measuring.html");
    let script = "<script>const e = document.documentElement; document.title = [e.scrollWidth, \
         innerWidth, document.querySelectorAll('.bar').length, \
         document.querySelectorAll('figure svg').length].join(' ')</script></body>";
    assert!(html.contains("</body>"));
    std::fs::write(&measuring, html.replace("</body>", script)).expect("a copy");
    for width in [500, 1100] {
        let dom = text(&browse(&browser, &measuring, width, "--dump-dom"));
        let title = dom
            .split_once("<title>")
            .and_then(|(_, rest)| rest.split_once('<'));
        let figures: Vec<u32> = title
            .map(|(title, _)| title)
            .unwrap_or_default()
            .split(' ')
            .filter_map(|figure| figure.parse().ok())
            .collect();
        let [wide, screen, bars, pictures] = figures[..] else {
            panic!("no figures in {title:?}");
        };
        assert_eq!((screen, bars), (width, 3));
        assert!(wide <= screen, "{wide} of {screen} pixels");
        // Without a private device there is only the picture of latencies.
        assert_eq!(pictures, 1);
    }

    let picture = dir.path().join("phone.png");
    let how = format!("--screenshot={}", path(&picture));
    browse(&browser, &page, 390, &how);
    let png = std::fs::read(&picture).expect("a picture of the page");
    assert!(
        png.starts_with(b"\x89PNG") && png.len() > 20_000,
        "{}",
        png.len()
    );
}

#[test]
fn a_page_that_could_not_be_written_is_refused_before_the_work() {
    let dir = tempfile::tempdir().expect("a directory");
    let nowhere = dir.path().join("missing/report.html");
    for file in [nowhere.as_path(), dir.path()] {
        // Enough transactions to take minutes.
        let args = [
            "--dir",
            path(dir.path()),
            "--count",
            "1000000",
            "--html",
            path(file),
        ];
        let output = onewrite("compare", &args);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(
            said.contains("--html") && !said.contains("device bytes"),
            "{said}"
        );
    }
}

#[test]
fn every_workload_s_page_has_its_figures_and_its_command() {
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("report.html");
    let common = [
        "--dir",
        path(dir.path()),
        "--html",
        path(&page),
        "--count",
        "80",
    ];
    let web = [
        "web",
        "--modes",
        "wal,onewrite",
        "--threads",
        "2",
        "--readers",
        "2",
    ];
    for (args, expected) in [
        (
            &["file", "--ways", "fdatasync,mmap"][..],
            ["Records a second", "mmap"],
        ),
        (&web[..], ["Each kind", "read"]),
    ] {
        let output = onewrite("bench", &[args, &common[..]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let html = std::fs::read_to_string(&page).expect("the page");
        for words in expected {
            assert!(html.contains(words), "{words}");
        }
        let command = format!("<code>onewrite bench {}", args[0]);
        assert!(html.contains(&command), "{command}");
        assert!(
            html.contains("&quot;kernel&quot;: "),
            "the document that --json prints"
        );
    }
}
