//! A netlink socket: requests, dumps, batches and events.

mod receive;

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::io::ErrorKind;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, sendto, setsockopt, socket,
    sockopt,
};

use crate::error::RequestError;
use crate::uapi::*;
use crate::wire::{Message, MessageRef};
use receive::Deadline;

/// The kernel fills a dump's datagrams up to this size if the buffer has it (`netlink_dump()`).
const BUFFER: usize = 32 << 10;

/// What surely fits a socket's send buffer.
const SEND_ROOM: usize = 64 << 10;

/// How often a dump is begun anew because the tables changed meanwhile.
const DUMP_TRIES: u32 = 32;

/// The kernel's address.
const KERNEL: u32 = 0;

/// The part of the kernel to talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// NETLINK_ROUTE: links, addresses, routes.
    Route,
    /// NETLINK_NETFILTER: nf_tables, conntrack.
    Netfilter,
}

/// A netlink socket. It works on the namespace that it was opened in.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    sequence: Cell<u32>,
    /// Our address, from the first subscription on: until then nothing arrives but answers.
    port: Cell<Option<u32>>,
    /// The dump whose answer was not read to its end.
    unread: Cell<Option<u32>>,
    dump_tries: Cell<u32>,
    buffer: RefCell<Vec<u8>>,
}

impl Socket {
    /// Opens a socket in the calling thread's namespace. Requests are checked strictly by the kernel, and refused with
    /// an explanation, where it can do that: strict checks, and with them filters of dumps, need Linux 4.20.
    ///
    /// # Errors
    /// If descriptors run out, or the kernel does not have the protocol.
    pub fn open(protocol: Protocol) -> Result<Self, RequestError> {
        let number = match protocol {
            Protocol::Route => SockProtocol::NetlinkRoute,
            Protocol::Netfilter => SockProtocol::NetlinkNetFilter,
        };
        let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, number)?;
        let this = Self {
            fd,
            sequence: Cell::new(0),
            port: Cell::new(None),
            unread: Cell::new(None),
            dump_tries: Cell::new(DUMP_TRIES),
            buffer: RefCell::new(vec![0; BUFFER]),
        };
        this.set(NETLINK_CAP_ACK, 1)?;
        this.set(NETLINK_EXT_ACK, 1)?;
        if protocol == Protocol::Route {
            // A wish: what a dump lists besides is left out by who asked for it.
            this.set(NETLINK_GET_STRICT_CHK, 1).ok();
        }
        Ok(this)
    }

    /// Sends a request, hands what it answers to `reply` (type and payload), and waits for the acknowledgement.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn request(
        &self,
        mut message: Message,
        mut reply: impl FnMut(u16, &[u8]),
    ) -> Result<(), RequestError> {
        message.add_flags(NLM_F_ACK);
        let sequence = self.begin().map_err(RequestError::unanswered)?;
        self.send_message(&mut message, sequence).map_err(RequestError::unanswered)?;
        let deadline = Deadline::for_answer();
        let mut outcome = None;
        while outcome.is_none() {
            self.receive(&deadline, |frame| {
                if self.is_answer(&frame, sequence) && outcome.is_none() {
                    match frame.kind {
                        NLMSG_ERROR => outcome = Some(frame.status()),
                        kind => reply(kind, frame.payload),
                    }
                }
            })
            .map_err(RequestError::unanswered)?;
        }
        outcome.unwrap_or(Ok(()))
    }

    /// Asks for one object, and returns what `parse` makes of its payload. No acknowledgement follows the answer.
    ///
    /// # Errors
    /// The kernel's refusal; that `parse` makes nothing of the answer.
    pub fn query<T>(
        &self,
        mut message: Message,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<T, RequestError> {
        let sequence = self.begin()?;
        self.send_message(&mut message, sequence)?;
        let deadline = Deadline::for_answer();
        let malformed = || RequestError::own(ErrorKind::InvalidData, "the kernel's reply is malformed");
        loop {
            let mut answer = None;
            self.receive(&deadline, |frame| {
                if self.is_answer(&frame, sequence) && answer.is_none() {
                    answer = Some(match frame.kind {
                        NLMSG_ERROR => frame.status().and_then(|()| Err(malformed())),
                        _ => parse(frame.payload).ok_or_else(malformed),
                    });
                }
            })?;
            if let Some(answer) = answer {
                return answer;
            }
        }
    }

    /// Sets how often a dump is begun if the tables change meanwhile. With 0, it is begun once, and its result is accepted: for a
    /// caller that receives events and knows what has changed.
    pub fn set_dump_tries(&self, tries: u32) {
        self.dump_tries.set(tries);
    }

    /// Sets the number of tries of a new socket again.
    pub fn reset_dump_tries(&self) {
        self.dump_tries.set(DUMP_TRIES);
    }

    /// Asks for all objects of a kind, and keeps what `parse` makes of their payloads. If the kernel says that they
    /// changed meanwhile, it is asked again: what is returned was there at one moment.
    ///
    /// # Errors
    /// The kernel's refusal; or that the tables never stand still.
    pub fn dump<T>(
        &self,
        mut message: Message,
        parse: impl Fn(u16, &[u8]) -> Option<T>,
    ) -> Result<Vec<T>, RequestError> {
        message.add_flags(NLM_F_DUMP);
        let tries = self.dump_tries.get();
        for _ in 0..tries.max(1) {
            let sequence = self.begin()?;
            self.send_message(&mut message, sequence)?;
            let (found, interrupted) = self.collect(sequence, &parse, |_| false)?;
            if !interrupted || tries == 0 {
                return Ok(found);
            }
        }
        Err(RequestError::own(ErrorKind::WouldBlock, "the list kept changing while it was read"))
    }

    /// As [`Socket::dump`], but once, and only until there is enough. The rest of the answer is read, and thrown away,
    /// when the socket is used again.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn dump_until<T>(
        &self,
        mut message: Message,
        parse: impl Fn(u16, &[u8]) -> Option<T>,
        enough: impl Fn(&[T]) -> bool,
    ) -> Result<Vec<T>, RequestError> {
        message.add_flags(NLM_F_DUMP);
        let sequence = self.begin()?;
        self.send_message(&mut message, sequence)?;
        self.collect(sequence, parse, enough).map(|(found, _)| found)
    }

    /// The number of a new request. The kernel begins no second dump before the first one was read.
    fn begin(&self) -> Result<u32, RequestError> {
        if let Some(unread) = self.unread.get() {
            self.collect(unread, |_, _| None::<()>, |_| false)?;
        }
        Ok(self.next_sequence())
    }

    fn collect<T>(
        &self,
        sequence: u32,
        parse: impl Fn(u16, &[u8]) -> Option<T>,
        enough: impl Fn(&[T]) -> bool,
    ) -> Result<(Vec<T>, bool), RequestError> {
        let deadline = Deadline::for_answer();
        let (mut found, mut interrupted, mut end) = (Vec::new(), false, None);
        self.unread.set(Some(sequence));
        while end.is_none() && !enough(&found) {
            self.receive(&deadline, |frame| {
                if !self.is_answer(&frame, sequence) || end.is_some() {
                    return;
                }
                interrupted |= frame.flags & NLM_F_DUMP_INTR != 0;
                match frame.kind {
                    NLMSG_ERROR | NLMSG_DONE => {
                        self.unread.set(None);
                        end = Some(frame.status());
                    }
                    kind => found.extend(parse(kind, frame.payload)),
                }
            })
            .inspect_err(|_| self.unread.set(None))?;
        }
        end.unwrap_or(Ok(()))?;
        Ok((found, interrupted))
    }

    /// Sends several messages at once, and waits until each that asked for an acknowledgement (NLM_F_ACK) has it.
    ///
    /// # Errors
    /// The first refusal, with the position of the refused message.
    pub fn batch(&self, messages: &mut [Message]) -> Result<(), (usize, RequestError)> {
        if self.unread.get().is_some() {
            self.begin().map_err(|r| (0, r))?;
        }
        let first = self.sequence.get().wrapping_add(1);
        let mut bytes = Vec::new();
        let mut waiting = 0_usize;
        for (position, message) in messages.iter_mut().enumerate() {
            refuse_too_long(message).map_err(|r| (position, r))?;
            waiting += usize::from(message.wants_acknowledgement());
            bytes.extend_from_slice(message.finish(self.next_sequence()));
        }
        self.make_room(bytes.len()).and_then(|()| self.send(&bytes)).map_err(|r| (0, r))?;
        let deadline = Deadline::for_answer();
        let mut refused = None;
        while waiting > 0 {
            let received = self.receive(&deadline, |frame| {
                let position = frame.sequence.wrapping_sub(first) as usize;
                if position >= messages.len() || !self.is_for_us(&frame) || frame.kind != NLMSG_ERROR {
                    return;
                }
                waiting = waiting.saturating_sub(1);
                if let (Err(refusal), None) = (frame.status(), &refused) {
                    refused = Some((position, refusal));
                }
            });
            // A refused batch is not acknowledged message by message.
            if let Some(refused) = refused.take() {
                return Err(refused);
            }
            received.map_err(|r| (0, r))?;
        }
        Ok(())
    }

    fn next_sequence(&self) -> u32 {
        // 0 is what events have.
        let next = self.sequence.get().checked_add(1).unwrap_or(1);
        self.sequence.set(next);
        next
    }

    /// Whether a message answers the request of a number. An event may bear the same: that of the request of another
    /// process that caused it.
    fn is_answer(&self, frame: &MessageRef<'_>, sequence: u32) -> bool {
        frame.sequence == sequence && self.is_for_us(frame)
    }

    fn is_for_us(&self, frame: &MessageRef<'_>) -> bool {
        self.port.get().is_none_or(|port| port == frame.port)
    }

    fn send_message(&self, message: &mut Message, sequence: u32) -> Result<(), RequestError> {
        refuse_too_long(message)?;
        self.send(message.finish(sequence))
    }

    /// What is sent at once must fit the socket's buffer: 208 KiB, if the host does not say otherwise.
    fn make_room(&self, length: usize) -> Result<(), RequestError> {
        if length > SEND_ROOM {
            setsockopt(&self.fd, sockopt::SndBufForce, &(2 * length))?;
        }
        Ok(())
    }

    fn send(&self, bytes: &[u8]) -> Result<(), RequestError> {
        let kernel = NetlinkAddr::new(KERNEL, 0);
        loop {
            match sendto(self.fd.as_raw_fd(), bytes, &kernel, MsgFlags::empty()) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(_) => return Ok(()),
            }
        }
    }

    #[allow(unsafe_code)]
    fn set(&self, option: c_int, value: u32) -> Result<(), RequestError> {
        let length = size_of::<u32>() as libc::socklen_t;
        // SAFETY: the descriptor is open as long as `self`, and the option's value is a u32 that outlives the call.
        let outcome = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_NETLINK,
                option,
                (&raw const value).cast(),
                length,
            )
        };
        Errno::result(outcome).map(drop).map_err(RequestError::from)
    }
}

/// The descriptor, for the caller to close.
impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.fd
    }
}

/// To be waited for together with other descriptors, for [`Socket::next_event`].
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn refuse_too_long(message: &Message) -> Result<(), RequestError> {
    if message.is_too_long() { Err(Errno::EMSGSIZE.into()) } else { Ok(()) }
}
