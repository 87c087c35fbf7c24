//! The connection to the recorder: a Unix socket, and the bytes that wait to be sent.
//!
//! The program does not know that the descriptor is in use. It may close it, and open a file of its
//! own in its place. So before each send this module compares the descriptor with the one it
//! opened. If they differ, it leaves the descriptor alone for good, and opens a new one. When the
//! recorder is gone, the recording ends.

use std::ffi::c_int;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;

use onewrite_record::SOCKET_VARIABLE;

use crate::environment;
use onewrite_record::event::Event;

/// Bytes that may wait; the end of a transaction does not wait.
const WAITING_BYTES: usize = 64 << 10;

/// Descriptors from here on disturb programs that choose low ones less.
const LOWEST_DESCRIPTOR: c_int = 200;

/// See the module.
pub struct Sink {
    socket: Option<Socket>,
    waiting: Vec<u8>,
    process: u64,
}

struct Socket {
    descriptor: c_int,
    identity: (u64, u64),
}

impl Socket {
    fn open() -> Option<Self> {
        let stream = UnixStream::connect(environment::variable(SOCKET_VARIABLE)?).ok()?;
        let low = stream.into_raw_fd();
        // SAFETY: a descriptor that this type opened.
        let high = unsafe { libc::fcntl(low, libc::F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR) };
        let descriptor = match high {
            -1 => low,
            high => {
                // SAFETY: nothing else has it.
                drop(unsafe { OwnedFd::from_raw_fd(low) });
                high
            }
        };
        Some(Self {
            descriptor,
            identity: identity(descriptor)?,
        })
    }

    fn is_ours(&self) -> bool {
        identity(self.descriptor) == Some(self.identity)
    }

    fn send(&self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            // SAFETY: the bytes are there.
            let sent = unsafe {
                libc::send(
                    self.descriptor,
                    bytes.as_ptr().cast(),
                    bytes.len(),
                    libc::MSG_NOSIGNAL,
                )
            };
            match sent {
                1.. => bytes = bytes.get(sent as usize..).unwrap_or_default(),
                _ if is_interrupted() => {}
                _ => return false,
            }
        }
        true
    }

    fn receive_byte(&self) -> bool {
        let mut byte = 0u8;
        loop {
            // SAFETY: room for a byte.
            let got = unsafe { libc::recv(self.descriptor, (&raw mut byte).cast(), 1, 0) };
            match got {
                1 => return true,
                -1 if is_interrupted() => {}
                _ => return false,
            }
        }
    }

    fn close(self) {
        if self.is_ours() {
            // SAFETY: this type owns it.
            drop(unsafe { OwnedFd::from_raw_fd(self.descriptor) });
        }
    }
}

fn is_interrupted() -> bool {
    std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
}

fn identity(descriptor: c_int) -> Option<(u64, u64)> {
    // SAFETY: plain data that `fstat64` fills.
    unsafe {
        let mut stat: libc::stat64 = std::mem::zeroed();
        (libc::fstat64(descriptor, &mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
    }
}

/// Writes a message to standard error, in one write.
pub fn say(text: &str) {
    let line = format!("onewrite: {text}\n");
    // SAFETY: the bytes are there. Nothing is left to do if it fails.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

impl Sink {
    /// Connects where the environment names a recorder and it answers.
    pub fn open() -> Option<Self> {
        environment::variable(SOCKET_VARIABLE)?;
        let process = (u64::from(std::process::id()) << 32) | (super::state::now() & 0xFFFF_FFFF);
        let mut sink = Self {
            socket: None,
            waiting: Vec::new(),
            process,
        };
        if !sink.connect() {
            say("the recorder does not answer: this process is not recorded");
            return None;
        }
        Some(sink)
    }

    fn connect(&mut self) -> bool {
        self.socket = Socket::open();
        let Some(socket) = &self.socket else {
            return false;
        };
        let mut arguments = Vec::new();
        for argument in std::env::args_os() {
            arguments.extend_from_slice(argument.as_bytes());
            arguments.push(0);
        }
        let mut hello = Vec::new();
        let pid = u64::from(std::process::id());
        Event::Process {
            number: self.process,
            pid,
            arguments,
        }
        .put(&mut hello);
        socket.send(&hello)
    }

    /// Adds an event.
    pub fn put(&mut self, event: &Event) {
        event.put(&mut self.waiting);
        if self.waiting.len() >= WAITING_BYTES {
            self.flush();
        }
    }

    /// Sends the waiting bytes.
    pub fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let at = super::state::now();
        Event::Sent { at }.put(&mut self.waiting);
        let sent = self.ready() && self.socket.as_ref().is_some_and(|s| s.send(&self.waiting));
        self.waiting.clear();
        if !sent {
            self.end();
        }
    }

    /// Adds an event and waits until the recorder has handled it.
    pub fn ask(&mut self, event: &Event) {
        event.put(&mut self.waiting);
        self.flush();
        if self
            .socket
            .as_ref()
            .is_some_and(|socket| !socket.receive_byte())
        {
            self.end();
        }
    }

    /// Whether there is still a recorder.
    pub fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    fn ready(&mut self) -> bool {
        match &self.socket {
            None => false,
            Some(socket) if socket.is_ours() => true,
            Some(_) => self.connect(),
        }
    }

    fn end(&mut self) {
        if let Some(socket) = self.socket.take() {
            say("the recorder is gone: nothing is recorded from here on");
            socket.close();
        }
    }
}
