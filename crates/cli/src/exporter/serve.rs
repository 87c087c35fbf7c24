//! As much of HTTP as a scrape needs: GET and HEAD of two pages, one request a connection.
//!
//! A request has a bound of bytes and of time, and there is a bound of connections. So a client that
//! says nothing, or never ends, cannot hold up the others for long.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use onewrite_common::exposition::CONTENT_TYPE;

/// A longer request is refused.
const MAX_REQUEST_BYTES: usize = 8 << 10;
/// A request must be complete after this time, and each write of the answer.
const TIME: Duration = Duration::from_secs(5);
/// More connections at once are closed.
const MAX_CONNECTIONS: usize = 16;
/// After a failed `accept`: there may be no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

const HOME: &str = "onewrite exporter: the metrics are at /metrics\n";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Answers requests until the process ends.
pub fn forever(listener: &TcpListener, metrics: impl Fn() -> String + Send + Sync + 'static) {
    let metrics = Arc::new(metrics);
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let place = Place::of(&open);
        if place.is_beyond() {
            continue;
        }
        let metrics = Arc::clone(&metrics);
        let work = move || {
            let _place = place;
            // The client sees that it failed.
            let _ = answer(stream, &*metrics);
        };
        // Without a thread the connection is closed.
        let _ = std::thread::Builder::new().spawn(work);
    }
}

/// One of the open connections.
struct Place {
    open: Arc<AtomicUsize>,
    before: usize,
}

impl Place {
    fn of(open: &Arc<AtomicUsize>) -> Place {
        Place {
            before: open.fetch_add(1, Ordering::Relaxed),
            open: Arc::clone(open),
        }
    }

    fn is_beyond(&self) -> bool {
        self.before >= MAX_CONNECTIONS
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(mut stream: TcpStream, metrics: &dyn Fn() -> String) -> io::Result<()> {
    stream.set_write_timeout(Some(TIME))?;
    let Some(request) = request(&mut stream)? else {
        return respond(
            &mut stream,
            "431 Request Header Fields Too Large",
            PLAIN,
            "",
            true,
        );
    };
    let line = request
        .split(|byte| *byte == b'\r' || *byte == b'\n')
        .next();
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let with_body = match method {
        "GET" => true,
        "HEAD" => false,
        _ => return respond(&mut stream, "405 Method Not Allowed", PLAIN, "", true),
    };
    match target.split('?').next() {
        Some("/metrics") => respond(&mut stream, "200 OK", CONTENT_TYPE, &metrics(), with_body),
        Some("/") => respond(&mut stream, "200 OK", PLAIN, HOME, with_body),
        _ => respond(&mut stream, "404 Not Found", PLAIN, HOME, with_body),
    }
}

/// The request up to the empty line; `None` if it is too long.
fn request(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let end = Instant::now() + TIME;
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while !request.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        if request.len() >= MAX_REQUEST_BYTES {
            return Ok(None);
        }
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(rest))?;
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => request.extend_from_slice(&piece[..n]),
        }
    }
    Ok(Some(request))
}

fn respond(
    stream: &mut TcpStream,
    status: &str,
    kind: &str,
    body: &str,
    with_body: bool,
) -> io::Result<()> {
    let length = body.len();
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    );
    if with_body {
        text += body;
    }
    stream.write_all(text.as_bytes())?;
    stream.shutdown(Shutdown::Write)
}
