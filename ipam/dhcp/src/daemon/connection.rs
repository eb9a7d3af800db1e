//! The daemon's side of the daemon protocol: the connection of one plugin.

use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use cni::{Code, Error, Result};
use dhcp_client::Time;
use rustix::event::PollFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};

use crate::wire::{self, LARGEST_REQUEST};

/// How long a plugin may take to send its request, and to read its answer.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a plugin may take to send its request while other connections wait. A plugin sends it immediately.
const CROWDED_TIMEOUT: Duration = Duration::from_secs(1);

/// A plugin's connection. It is non-blocking.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    state: State,
    /// Start of the timeout. None: the plugin waits for the daemon.
    since: Option<Time>,
}

#[derive(Debug)]
enum State {
    /// The request is being received, with the descriptor of the namespace.
    Reads(Vec<u8>, Option<OwnedFd>),
    /// The request is being processed.
    Waiting,
    /// The answer is being sent.
    Writes(Vec<u8>),
}

/// What happened on a connection.
#[derive(Debug)]
pub enum Event {
    /// Nothing yet.
    Nothing,
    /// A complete request, as a line, with its descriptor.
    Request(Vec<u8>, Option<File>),
    /// The answer was sent, or the plugin has closed the connection.
    Ended,
}

impl Connection {
    /// Accepts a connection. Only root is served.
    ///
    /// # Errors
    /// The peer that is refused, as a sentence.
    pub fn new(stream: UnixStream, now: Time) -> Result<Self, String> {
        let peer = sockopt::socket_peercred(&stream).map_err(|e| e.to_string())?;
        if !peer.uid.is_root() {
            return Err(format!(
                "refused the request of process {} of user {}: only root is allowed",
                peer.pid, peer.uid
            ));
        }
        stream.set_nonblocking(true).map_err(|e| e.to_string())?;
        Ok(Self { stream, state: State::Reads(Vec::new(), None), since: Some(now) })
    }

    /// The poll events to wait for. A closed connection is always reported.
    pub fn interest(&self) -> PollFlags {
        match self.state {
            State::Reads(..) => PollFlags::IN,
            State::Waiting => PollFlags::IN | PollFlags::RDHUP,
            State::Writes(_) => PollFlags::OUT,
        }
    }

    /// When the plugin has taken too long: earlier while other connections wait.
    pub fn deadline(&self, crowded: bool) -> Option<Time> {
        let timeout = match self.state {
            State::Reads(..) if crowded => CROWDED_TIMEOUT,
            _ => IDLE_TIMEOUT,
        };
        self.since.map(|since| since + timeout)
    }

    /// Whether the request is not yet complete.
    pub fn is_silent(&self) -> bool {
        matches!(self.state, State::Reads(..))
    }

    /// Receives or sends as much as possible now.
    pub fn read_more(&mut self) -> Event {
        match &mut self.state {
            State::Reads(..) => self.read(),
            // The plugin has closed the connection.
            State::Waiting => Event::Ended,
            State::Writes(_) => self.write(),
        }
    }

    fn read(&mut self) -> Event {
        let State::Reads(line, netns) = &mut self.state else { return Event::Nothing };
        loop {
            match receive(&self.stream, line, netns) {
                Ok(0) => return Event::Ended,
                Ok(_) if wire::is_go_plugin(line) => {
                    return self.answer(wire::TO_GO_PLUGIN.to_vec(), Time::now());
                }
                Ok(_) if line.last() == Some(&b'\n') => break,
                Ok(_) if line.len() > LARGEST_REQUEST => {
                    let text = format!("the request is larger than {LARGEST_REQUEST} bytes");
                    let refused = wire::reply(&Err(Error::new(Code::Decoding, text)));
                    return self.answer(refused, Time::now());
                }
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Event::Nothing,
                Err(_) => return Event::Ended,
            }
        }
        let (line, netns) = (std::mem::take(line), netns.take().map(File::from));
        (self.state, self.since) = (State::Waiting, None);
        Event::Request(line, netns)
    }

    /// Sends as much of the answer as possible now.
    pub fn answer(&mut self, answer: Vec<u8>, now: Time) -> Event {
        (self.state, self.since) = (State::Writes(answer), Some(now));
        self.write()
    }

    fn write(&mut self) -> Event {
        let State::Writes(answer) = &mut self.state else { return Event::Nothing };
        while !answer.is_empty() {
            match (&self.stream).write(answer) {
                Ok(count) => drop(answer.drain(..count)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Event::Nothing,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        Event::Ended
    }
}

/// Appends the received bytes, and keeps the first descriptor. 0: the plugin has closed the connection.
fn receive(stream: &UnixStream, line: &mut Vec<u8>, netns: &mut Option<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut block = [0; 16 << 10];
    let received =
        recvmsg(stream, &mut [IoSliceMut::new(&mut block)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            for descriptor in descriptors {
                // Further descriptors are closed here.
                if netns.is_none() {
                    *netns = Some(descriptor);
                }
            }
        }
    }
    line.extend_from_slice(block.get(..received.bytes).unwrap_or_default());
    Ok(received.bytes)
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
