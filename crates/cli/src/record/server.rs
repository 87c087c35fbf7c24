//! Receives the data of preloaded libraries.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onewrite_record::event::Event;
use onewrite_record::wire::Input;
use tempfile::TempDir;

use super::recorder::Recorder;
use crate::interrupt;

/// The recording ends when no process has been connected for this long after the program ended: its
/// children may be about to connect.
const QUIET: Duration = Duration::from_millis(100);

/// The time after which the user learns that processes of the program still run.
const PATIENCE: Duration = Duration::from_secs(2);

/// The address that programs connect to: in a temporary directory, or where the user says.
struct SocketFile {
    _dir: TempDir,
    address: PathBuf,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A temporary directory takes its socket with it. Elsewhere no process listens there any
        // more.
        let _ = std::fs::remove_file(&self.address);
    }
}

/// A socket that programs can connect to; they wait until the server receives.
pub struct Socket {
    socket: SocketFile,
    listener: UnixListener,
}

impl Socket {
    /// Begins to listen.
    pub fn listen(at: Option<&Path>) -> Result<Self, String> {
        let dir = tempfile::Builder::new()
            .prefix("onewrite-record-")
            .tempdir()
            .map_err(|error| format!("cannot make a temporary directory: {error}"))?;
        let address = at.map_or_else(|| dir.path().join("socket"), Path::to_owned);
        let listener = UnixListener::bind(&address)
            .map_err(|error| format!("cannot listen at {}: {error}", address.display()))?;
        let socket = SocketFile { _dir: dir, address };
        Ok(Self { socket, listener })
    }

    /// Where it listens.
    pub fn address(&self) -> &Path {
        &self.socket.address
    }

    /// Begins to receive.
    pub fn serve(self, recorder: Arc<Recorder>) -> Server {
        let connected = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connected);
        // The thread ends with this process.
        thread::spawn(move || {
            for stream in self.listener.incoming().flatten() {
                let (recorder, count) = (Arc::clone(&recorder), Arc::clone(&count));
                count.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    receive(stream, &recorder);
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Server {
            _socket: self.socket,
            connected,
        }
    }
}

/// The receiver.
pub struct Server {
    _socket: SocketFile,
    connected: Arc<AtomicUsize>,
}

impl Server {
    /// Waits until no process is connected any more, or the user stops it.
    pub fn drain(&self, recorder: &Recorder) {
        let (begin, mut told) = (Instant::now(), false);
        let mut quiet_since = Instant::now();
        while quiet_since.elapsed() < QUIET {
            thread::sleep(Duration::from_millis(10));
            let connected = self.connected.load(Ordering::SeqCst);
            if connected > 0 {
                quiet_since = Instant::now();
            }
            if connected > 0 && begin.elapsed() > PATIENCE && !told {
                told = true;
                eprintln!(
                    "onewrite: {connected} processes that the program started still run, and are recorded; \
                     Ctrl-C ends the recording"
                );
            }
            if interrupt::is_requested() && told {
                return;
            }
            recorder.flush_now_and_then();
        }
    }
}

/// Receives everything that one process sends, until it ends.
fn receive(mut stream: UnixStream, recorder: &Recorder) {
    let mut source = recorder.source();
    let mut bytes = Vec::new();
    let mut piece = vec![0; 256 << 10];
    loop {
        let length = match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        bytes.extend_from_slice(piece.get(..length).unwrap_or_default());
        let (used, asked) = take_all(&bytes, |events| recorder.take(&mut source, events));
        bytes.drain(..used);
        // Its databases have been copied by now.
        for _ in 0..asked {
            if stream.write_all(&[1]).is_err() {
                return;
            }
        }
    }
}

/// Hands over the whole records at the beginning of some bytes. Returns the number of these bytes,
/// and of the records that need an answer.
fn take_all(bytes: &[u8], hand_over: impl FnOnce(Vec<Event>)) -> (usize, usize) {
    let mut input = Input(bytes);
    let (mut events, mut asked) = (Vec::new(), 0);
    let mut used = 0;
    while let Ok(record) = input.bytes() {
        used = bytes.len() - input.0.len();
        if let Ok(Some(event)) = Event::take(record) {
            asked += usize::from(matches!(event, Event::Opening { .. }));
            events.push(event);
        }
    }
    hand_over(events);
    (used, asked)
}
