//! A real Prometheus scrapes the exporter, and a program that serves the pragma.

use super::{Ended, Exporter, get, has_prometheus, open, prepared, sql, until};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

/// A program that serves its metrics, and commits once for each scrape. It ends with the test.
fn program(path: &Path) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let path = path.to_owned();
    std::thread::spawn(move || {
        let db = open(&path);
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let _ = stream.read(&mut [0; 4096]);
            sql(&db, "INSERT INTO t VALUES(1)");
            let text = sql(&db, "PRAGMA onewrite_metrics");
            let kind = "Content-Type: text/plain; version=0.0.4";
            let length = text.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

/// A Prometheus in `directory` that scrapes each second.
struct Prometheus {
    _process: Ended,
    address: SocketAddr,
}

impl Prometheus {
    fn start(directory: &Path, exporter: SocketAddr, program: SocketAddr) -> Prometheus {
        let config = directory.join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - {{job_name: exporter, static_configs: [{{targets: ['{exporter}']}}]}}
  - {{job_name: program, static_configs: [{{targets: ['{program}']}}]}}
"
        );
        fs::write(&config, text).expect("written");
        // Another process may take the port meanwhile.
        until("Prometheus", || {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = free.local_addr().expect("its address");
            drop(free);
            let process = Command::new("prometheus")
                .arg(format!("--config.file={}", config.display()))
                .arg(format!(
                    "--storage.tsdb.path={}",
                    directory.join("data").display()
                ))
                .arg(format!("--web.listen-address={address}"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let mut process = Ended(process.expect("prometheus"));
            let is_ready = until("answer, or end", || {
                let ended = process.0.try_wait().expect("its status").map(|_| false);
                let ready = || std::net::TcpStream::connect(address).ok().map(|_| true);
                ended.or_else(ready)
            });
            is_ready.then_some(Prometheus {
                _process: process,
                address,
            })
        })
    }

    /// The result of a query: its series.
    fn query(&self, query: &str) -> Option<Vec<Value>> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (head, body) = get(self.address, &format!("/api/v1/query?query={escaped}"));
        let status = head.split(' ').nth(1);
        if status != Some("200") {
            // It answers 503 while it starts.
            assert_eq!(status, Some("503"), "{query}: {head}{body}");
            return None;
        }
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(answer["status"], "success", "{query}: {body}");
        Some(answer["data"]["result"].as_array().expect("series").clone())
    }

    /// The value of a query with one series.
    fn value(&self, query: &str) -> Option<f64> {
        let series = self.query(query)?;
        series.first()?["value"][1].as_str()?.parse().ok()
    }

    fn becomes(&self, query: &str, is_right: impl Fn(f64) -> bool) {
        until(query, || self.value(query).filter(|value| is_right(*value)));
    }
}

#[test]
fn a_real_prometheus_reads_both_sources_and_answers_the_dashboard() {
    if !has_prometheus() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("app.db");
    let db = prepared(&path, "onewrite");
    let exporter = Exporter::start(&[&path.to_string_lossy()]);
    let prometheus = Prometheus::start(directory.path(), exporter.address, program(&path));
    let of = |metric: &str, job: &str| {
        let path = path.display();
        format!("{metric}{{database=\"{path}\",job=\"{job}\"}}")
    };
    prometheus.becomes(&of("onewrite_up", "exporter"), |up| up == 1.0);
    prometheus.becomes(&of("onewrite_guarded", "exporter"), |guarded| {
        guarded == 1.0
    });
    prometheus.becomes(&of("onewrite_log_bytes", "exporter"), |bytes| {
        bytes > 4096.0
    });
    prometheus.becomes(&of("onewrite_poisoned", "program"), |poisoned| {
        poisoned == 0.0
    });
    let commits = of("onewrite_commit_duration_seconds_count", "program");
    prometheus.becomes(&commits, |commits| commits >= 3.0);
    prometheus.becomes("up{job='exporter'}", |up| up == 1.0);
    let p99 = "histogram_quantile(0.99, rate(onewrite_commit_duration_seconds_bucket[30s]))";
    prometheus.becomes(p99, |seconds| seconds > 0.0 && seconds < 60.0);
    let reader = open(&path);
    sql(&reader, "BEGIN");
    sql(&reader, "SELECT count(*) FROM t");
    sql(&db, "INSERT INTO t VALUES(2)");
    prometheus.becomes(&of("onewrite_read_marks_behind", "exporter"), |behind| {
        behind == 1.0
    });
    sql(&reader, "COMMIT");
    prometheus.becomes(&of("onewrite_read_marks_behind", "exporter"), |behind| {
        behind == 0.0
    });
    sql(&db, "PRAGMA wal_checkpoint");
    let age = of("onewrite_last_checkpoint_age_seconds", "program");
    prometheus.becomes(&age, |age| age >= 0.0);
    for query in super::dashboard::queries() {
        until(&query, || {
            prometheus.query(&query).filter(|series| !series.is_empty())
        });
    }
}
