//! It refuses bad requests, and no client holds up another.

use super::{Exporter, command, request};
use std::io::{Read, Write};
use std::net::TcpStream;

fn refusal(args: &[&str]) -> String {
    let output = command(args).output().expect("the command");
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    assert_eq!(output.stdout, b"");
    String::from_utf8(output.stderr).expect("UTF-8")
}

#[test]
fn a_wrong_configuration_is_refused_with_the_way_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("exporter.toml");
    let file = file.to_string_lossy();
    let without = command(&[]).output().expect("the command");
    assert_eq!(without.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&without.stderr).contains("<DATABASE>"));
    std::fs::write(&*file, "listen = '127.0.0.1:0'").expect("written");
    assert!(refusal(&["--config", &file]).contains("name one"));
    std::fs::remove_file(&*file).expect("removed");
    let said = refusal(&["--config", &file]);
    assert!(said.contains(&*file) && said.contains("TOML"), "{said}");
    std::fs::write(&*file, "database = ['a']").expect("written");
    let said = refusal(&["--config", &file]);
    assert!(said.contains(&*file) && said.contains("--help"), "{said}");
    std::fs::write(&*file, "listen = '0.0.0.0:0'\ndatabases = ['a']").expect("written");
    let said = refusal(&["--config", &file]);
    assert!(said.contains("--allow-remote"), "{said}");
    assert!(refusal(&["a["]).contains("a["));
    let other = Exporter::start(&["a"]);
    let said = refusal(&["a", "--listen", &other.address.to_string()]);
    let port = other.address.port().to_string();
    assert!(said.contains(&port) && said.contains("--listen"), "{said}");
}

#[test]
fn the_configuration_names_the_databases() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("exporter.toml");
    let one = directory.path().join("one.db");
    std::fs::write(&one, "no database").expect("written");
    let text = format!("databases = ['{}/*.db']", directory.path().display());
    std::fs::write(&file, text).expect("written");
    let exporter = Exporter::start(&["--config", &file.to_string_lossy(), "other.db"]);
    let samples = exporter.samples();
    let up = |name: &str| samples.get(&format!("onewrite_up{{database=\"{name}\"}}"));
    assert_eq!(up(&one.to_string_lossy()), Some(&0.0));
    assert_eq!(up("other.db"), Some(&0.0));
}

#[test]
fn only_what_a_scrape_needs_is_answered() {
    let exporter = Exporter::start(&["a"]);
    let status = |text: &str| {
        let (head, body) = request(exporter.address, text);
        let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
        (status, body)
    };
    assert!(exporter.get("/").1.contains("/metrics"));
    assert_eq!(status("GET /metrics?x=1 HTTP/1.1\r\n\r\n").0, "200");
    let head = status("HEAD /metrics HTTP/1.0\r\n\r\n");
    assert_eq!(head, ("200".to_owned(), String::new()));
    assert_eq!(status("GET /other HTTP/1.1\r\n\r\n").0, "404");
    assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n").0, "405");
    assert_eq!(status("\r\n\r\n").0, "405");
    assert_eq!(status(&"x".repeat(8 << 10)).0, "431");
}

#[test]
fn clients_that_say_nothing_do_not_hold_up_others() {
    let exporter = Exporter::start(&["a"]);
    let silent: Vec<_> = (0..8)
        .map(|_| TcpStream::connect(exporter.address).expect("a connection"))
        .collect();
    let mut slow = TcpStream::connect(exporter.address).expect("a connection");
    slow.write_all(b"GET /metr").expect("sent");
    assert!(exporter.text().contains("onewrite_up"));
    // They are closed in the end.
    for mut stream in silent.into_iter().chain([slow]) {
        stream
            .set_read_timeout(Some(super::PATIENCE))
            .expect("a timeout");
        assert_eq!(stream.read(&mut [0; 1]).expect("the end"), 0);
    }
}
