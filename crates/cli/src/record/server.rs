//! Receives the data of preloaded libraries.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::iter;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onewrite_record::event::Event;
use onewrite_record::wire::Input;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tempfile::TempDir;

use super::recorder::{Recorder, Source};
use crate::interrupt;

/// The recording ends when no process has been connected for this long after the program ended: its
/// children may be about to connect.
const QUIET: Duration = Duration::from_millis(100);

/// The time after which the user learns that processes of the program still run.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most bytes that a socket holds.
const SOCKET_BYTES: usize = 1 << 20;

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
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
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
        let mut streams = Streams {
            listener: self.listener,
            streams: Vec::new(),
            connected: Arc::clone(&connected),
        };
        // The thread ends with this process.
        thread::spawn(move || {
            // Without a socket to wait for, the processes of the program learn that nobody receives.
            while streams.receive(&recorder).is_ok() {}
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

/// All that is received. One thread does that, for the trace has the order in which events were sent.
/// A process may end and the next one begin before anybody has read what the first one sent.
struct Streams {
    listener: UnixListener,
    streams: Vec<Stream>,
    connected: Arc<AtomicUsize>,
}

impl Streams {
    /// Waits until there is something, and hands it over.
    fn receive(&mut self, recorder: &Recorder) -> io::Result<()> {
        let has_units = self.streams.iter().any(|stream| !stream.units.is_empty());
        self.wait(has_units)?;
        self.read();
        // Everything that was sent before the last of these has arrived by now.
        let newest = self.streams.iter().filter_map(|stream| stream.newest);
        if let Some(until) = newest.max() {
            self.read();
            while let Some(stream) = self.oldest(until) {
                stream.hand_over(recorder);
            }
        }
        self.streams
            .retain(|stream| !stream.is_over || !stream.units.is_empty());
        self.count();
        Ok(())
    }

    fn wait(&self, no_longer: bool) -> io::Result<()> {
        let listener = self.listener.as_fd();
        let descriptors = self.streams.iter().map(|stream| stream.socket.as_fd());
        let mut wanted: Vec<PollFd<'_>> = iter::once(listener)
            .chain(descriptors)
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        let now = Timespec::default();
        match poll(&mut wanted, no_longer.then_some(&now)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads what is there, of all that are connected.
    fn read(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            self.streams.extend(Stream::new(socket));
        }
        self.count();
        self.streams.iter_mut().for_each(Stream::read);
    }

    fn count(&self) {
        self.connected.store(self.streams.len(), Ordering::SeqCst);
    }

    /// The stream with the unit that was sent first, if that was not after `until`.
    fn oldest(&mut self, until: u64) -> Option<&mut Stream> {
        let streams = self.streams.iter_mut();
        let sent = |stream: &Stream| Some(stream.units.front()?.at).filter(|at| *at <= until);
        streams
            .filter_map(|stream| Some((sent(stream)?, stream)))
            .min_by_key(|(at, _)| *at)
            .map(|(_, stream)| stream)
    }
}

/// Events that were sent at once.
struct Unit {
    at: u64,
    events: Vec<Event>,
    /// The answers that the sender waits for.
    asked: usize,
}

/// The events of one process.
struct Stream {
    socket: UnixStream,
    source: Source,
    bytes: Vec<u8>,
    /// Events of a unit whose end has not been read.
    events: Vec<Event>,
    units: VecDeque<Unit>,
    /// When the last unit was sent that has been read.
    newest: Option<u64>,
    is_over: bool,
}

impl Stream {
    /// `None` if the socket is not to be used.
    fn new(socket: UnixStream) -> Option<Self> {
        socket.set_nonblocking(true).ok()?;
        Some(Self {
            socket,
            source: Source::default(),
            bytes: Vec::new(),
            events: Vec::new(),
            units: VecDeque::new(),
            newest: None,
            is_over: false,
        })
    }

    /// Reads what is there. A process that sends on and on is read no further than to what was there
    /// at the beginning.
    fn read(&mut self) {
        let end = self.bytes.len() + SOCKET_BYTES;
        while self.bytes.len() < end && !self.is_over {
            match Read::by_ref(&mut self.socket)
                .take((end - self.bytes.len()) as u64)
                .read_to_end(&mut self.bytes)
            {
                Ok(_) if self.bytes.len() == end => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => self.is_over = true,
            }
        }
        self.split();
    }

    /// Takes the whole records, and the units that they make.
    fn split(&mut self) {
        let mut input = Input(&self.bytes);
        let mut used = 0;
        while let Ok(record) = input.bytes() {
            used = self.bytes.len() - input.0.len();
            match Event::take(record) {
                Ok(Some(Event::Sent { at })) => {
                    let events = std::mem::take(&mut self.events);
                    push(&mut self.units, &mut self.newest, at, events);
                }
                Ok(Some(event)) => self.events.push(event),
                Ok(None) | Err(_) => {}
            }
        }
        self.bytes.drain(..used);
        if self.is_over && !self.events.is_empty() {
            let at = self.newest.unwrap_or_default();
            let events = std::mem::take(&mut self.events);
            push(&mut self.units, &mut self.newest, at, events);
        }
    }

    /// Hands the first unit over.
    fn hand_over(&mut self, recorder: &Recorder) {
        let Some(unit) = self.units.pop_front() else {
            return;
        };
        recorder.take(&mut self.source, unit.events);
        // Its databases have been copied by now.
        let answers = vec![1; unit.asked];
        self.is_over |= self.socket.write_all(&answers).is_err();
    }
}

/// Adds a unit. A clock that was set back does not change a stream's order.
fn push(units: &mut VecDeque<Unit>, newest: &mut Option<u64>, at: u64, events: Vec<Event>) {
    let at = at.max(newest.unwrap_or_default());
    *newest = Some(at);
    let asked = |event: &&Event| matches!(event, Event::Opening { .. });
    units.push_back(Unit {
        at,
        asked: events.iter().filter(asked).count(),
        events,
    });
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use onewrite_record::event::Event;
    use onewrite_record::file::Reader;

    use super::super::recorder::{Output, Recorder};
    use super::*;

    fn bytes(events: &[Event]) -> Vec<u8> {
        let mut bytes = Vec::new();
        events.iter().for_each(|event| event.put(&mut bytes));
        bytes
    }

    fn process(number: u64) -> Event {
        Event::Process {
            number,
            pid: number,
            arguments: Vec::new(),
        }
    }

    fn finalized(statement: u64, at: u64) -> [Event; 2] {
        [Event::Finalize { statement }, Event::Sent { at }]
    }

    /// The process that connects first sends last. The other one is gone before anybody reads, and a
    /// third one never says anything.
    #[test]
    fn events_are_in_the_order_in_which_they_were_sent() {
        let dir = tempfile::tempdir().expect("a directory");
        let trace = dir.path().join("trace");
        let recorder = Arc::new(Recorder::new(Output::open(&trace).expect("a trace"), None));
        let socket = Socket::listen(Some(&dir.path().join("socket"))).expect("a socket");
        let connect = || UnixStream::connect(socket.address()).expect("a connection");
        let (mut last, mut first, silent) = (connect(), connect(), connect());
        last.write_all(&bytes(&[process(1)])).expect("sent");
        first.write_all(&bytes(&[process(2)])).expect("sent");
        first.write_all(&bytes(&finalized(7, 10))).expect("sent");
        first.write_all(&bytes(&finalized(8, 11))).expect("sent");
        drop((first, silent));
        last.write_all(&bytes(&finalized(9, 12))).expect("sent");
        let server = socket.serve(Arc::clone(&recorder));
        let begin = Instant::now();
        while server.connected.load(Ordering::SeqCst) != 1 {
            assert!(begin.elapsed() < Duration::from_secs(60), "not received");
            thread::sleep(Duration::from_millis(1));
        }
        last.write_all(&bytes(&finalized(10, 13))).expect("sent");
        drop(last);
        server.drain(&recorder);
        recorder.finish().expect("a trace");
        let file = std::fs::File::open(&trace).expect("a trace");
        let mut reader = Reader::new(file).expect("a reader");
        let mut statements = Vec::new();
        while let Some(event) = reader.next_event().expect("an event") {
            if let Event::Finalize { statement } = event {
                statements.push(statement);
            }
        }
        assert_eq!(statements, [7, 8, 9, 10]);
    }
}
