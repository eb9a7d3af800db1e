//! Netlink socket: requests, dumps, batches and events.

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

/// Size of the receive buffer. The kernel fills a dump's datagrams up to 32 KiB (`netlink_dump()`).
const BUFFER: usize = 32 << 10;

/// Bytes that fit every send buffer.
const SEND_ROOM: usize = 64 << 10;

/// Attempts of a dump while the objects change.
const DUMP_TRIES: u32 = 32;

/// The kernel's address.
const KERNEL: u32 = 0;

/// Subsystem of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// NETLINK_ROUTE: links, addresses, routes.
    Route,
    /// NETLINK_NETFILTER: nf_tables, conntrack.
    Netfilter,
}

/// A netlink socket, which works in the namespace in which it was opened.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    sequence: Cell<u32>,
    /// Our address, from the first subscription on: before, only answers arrive.
    port: Cell<Option<u32>>,
    /// Sequence number of a dump whose answer was not read to its end.
    unread: Cell<Option<u32>>,
    dump_tries: Cell<u32>,
    dump_limit: Cell<usize>,
    buffer: RefCell<Vec<u8>>,
}

impl Socket {
    /// Opens a socket in the calling thread's namespace. If it can, the kernel checks requests strictly and explains refusals. Strict
    /// checks, and the dump filters that depend on them, need Linux 4.20.
    ///
    /// # Errors
    /// If no descriptor is free, or the kernel does not have the protocol.
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
            dump_limit: Cell::new(usize::MAX),
            buffer: RefCell::new(vec![0; BUFFER]),
        };
        this.set(NETLINK_CAP_ACK, 1)?;
        this.set(NETLINK_EXT_ACK, 1)?;
        if protocol == Protocol::Route {
            // Optional: callers filter dumps themselves.
            this.set(NETLINK_GET_STRICT_CHK, 1).ok();
        }
        Ok(this)
    }

    /// Sends a request, passes each answer's type and payload to `reply`, and waits for the acknowledgement.
    ///
    /// # Errors
    /// If the kernel refuses the request.
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

    /// Requests one object and parses the answer. No acknowledgement follows the answer.
    ///
    /// # Errors
    /// If the kernel refuses the request, or `parse` returns `None`.
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

    /// Sets the number of attempts of a dump while the objects change. With 0, the result of the first attempt is accepted: for a caller
    /// that receives events and knows the changes.
    pub fn set_dump_tries(&self, tries: u32) {
        self.dump_tries.set(tries);
    }

    /// Restores the default number of attempts.
    pub fn reset_dump_tries(&self) {
        self.dump_tries.set(DUMP_TRIES);
    }

    /// Limits each later list to a number of objects and of attempts. For a process that must not wait for a namespace whose owner has many
    /// objects, or changes them all the time. After a longer list, requests fail until its rest has been read, so drop the socket.
    pub fn limit_dumps(&self, objects: usize, tries: u32) {
        self.dump_limit.set(objects);
        self.dump_tries.set(tries);
    }

    /// Lists all objects of a kind and parses each. Repeats the dump if the objects changed meanwhile, so the result is consistent.
    ///
    /// # Errors
    /// If the kernel refuses the request, the objects change during all attempts, or there are more than [`Socket::limit_dumps`] allows.
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

    /// Like [`Socket::dump`], but once, and only until `enough`. The rest of the answer is dropped when the socket is used again.
    ///
    /// # Errors
    /// If the kernel refuses the request.
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

    /// The sequence number of a new request. The kernel starts no second dump before the first is read.
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
        let (mut objects, limit) = (0_usize, self.dump_limit.get());
        self.unread.set(Some(sequence));
        while end.is_none() && !enough(&found) {
            if objects > limit {
                let text = format!("there are more than {limit}");
                return Err(RequestError::own(ErrorKind::QuotaExceeded, text));
            }
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
                    kind => {
                        objects += 1;
                        found.extend(parse(kind, frame.payload));
                    }
                }
            })
            .inspect_err(|_| self.unread.set(None))?;
        }
        end.unwrap_or(Ok(()))?;
        Ok((found, interrupted))
    }

    /// Sends several messages together, and waits for the acknowledgement of each message with NLM_F_ACK.
    ///
    /// # Errors
    /// The first refusal, with the index of the refused message.
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
            // After a refusal, the other messages of the batch are not acknowledged.
            if let Some(refused) = refused.take() {
                return Err(refused);
            }
            received.map_err(|r| (0, r))?;
        }
        Ok(())
    }

    fn next_sequence(&self) -> u32 {
        // Events have the sequence number 0.
        let next = self.sequence.get().checked_add(1).unwrap_or(1);
        self.sequence.set(next);
        next
    }

    /// Whether a message answers a request. An event can have the same sequence number, that of another process's request.
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

    /// Enlarges the send buffer for a batch. The default is 208 KiB.
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
        // SAFETY: the descriptor is open, and the option's value is a u32 that outlives the call.
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

    /// The cookie of the namespace in which the socket was opened. `None` before Linux 5.14.
    #[allow(unsafe_code)]
    pub(crate) fn netns_cookie(&self) -> Option<u64> {
        let (mut cookie, mut length) = (0_u64, size_of::<u64>() as libc::socklen_t);
        // SAFETY: the descriptor is open, and the kernel writes at most `length` bytes, which is the cookie's size.
        let outcome = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NETNS_COOKIE,
                (&raw mut cookie).cast(),
                &raw mut length,
            )
        };
        Errno::result(outcome).is_ok().then_some(cookie)
    }
}

/// The descriptor, for the caller to close.
impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.fd
    }
}

/// For polling together with other descriptors, before [`Socket::next_event`].
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn refuse_too_long(message: &Message) -> Result<(), RequestError> {
    if message.is_too_long() { Err(Errno::EMSGSIZE.into()) } else { Ok(()) }
}
