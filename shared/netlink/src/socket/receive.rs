//! Receiving answers with their status, and events of multicast groups.

use std::cell::OnceCell;
use std::io::{self, ErrorKind, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, NetlinkAddr, bind, getsockname, recv, recvmsg, setsockopt, sockopt};

use super::{KERNEL, Socket};
use crate::error::RequestError;
use crate::uapi::*;
use crate::wire::{self, Attributes, Frames, MessageRef, read_i32, read_str, read_u32};

/// Timeout for answers of the kernel, which usually take microseconds.
const ANSWER: Duration = Duration::from_secs(30);

/// Size of the receive buffer for events, in bytes. Reading a large nftables ruleset, or a repair, may take seconds.
const EVENTS_BUFFER: usize = 4 << 20;

/// Length of the error number at the start of `struct nlmsgerr` and of the end of a dump.
const ERROR_NUMBER: usize = 4;

/// A deadline that reads the clock only if the answer does not arrive immediately.
pub(super) struct Deadline(OnceCell<Instant>);

impl Deadline {
    /// A deadline for an answer, from the moment of waiting.
    pub(super) const fn for_answer() -> Self {
        Self(OnceCell::new())
    }

    fn left(&self) -> Duration {
        let now = Instant::now();
        self.0.get_or_init(|| now + ANSWER).saturating_duration_since(now)
    }
}

impl From<Instant> for Deadline {
    fn from(instant: Instant) -> Self {
        Self(OnceCell::from(instant))
    }
}

impl Socket {
    /// Joins a multicast group, for [`Socket::next_event`].
    ///
    /// # Errors
    /// If the group does not exist.
    pub fn subscribe(&self, group: u32) -> Result<(), RequestError> {
        self.port.set(Some(self.own_port()?));
        self.set(NETLINK_ADD_MEMBERSHIP, group)
    }

    /// Requests a receive buffer for many events. The default is 208 KiB. Failures are ignored.
    pub fn make_room_for_events(&self) {
        setsockopt(self, sockopt::RcvBufForce, &EVENTS_BUFFER).ok();
    }

    /// Leaves a multicast group and drops its pending events.
    ///
    /// # Errors
    /// If the group does not exist.
    pub fn unsubscribe(&self, group: u32) -> Result<(), RequestError> {
        self.set(NETLINK_DROP_MEMBERSHIP, group)?;
        self.drain(&mut self.buffer.borrow_mut())
    }

    /// Waits for events and passes each pending one's type and payload to `event`.
    ///
    /// # Errors
    /// ETIMEDOUT at the deadline; ENOBUFS if events were lost and the state must be read again.
    pub fn next_event(
        &self,
        deadline: Instant,
        mut event: impl FnMut(u16, &[u8]),
    ) -> Result<(), RequestError> {
        let mut take = |frame: MessageRef<'_>| {
            if frame.kind >= NLMSG_MIN_TYPE {
                event(frame.kind, frame.payload);
            }
        };
        self.receive(&deadline.into(), &mut take)?;
        // Read all pending events: a full queue has no room for the answer to the next request.
        let mut buffer = self.buffer.borrow_mut();
        while let Some(length) = self.try_receive(&mut buffer)? {
            Frames::new(&buffer[..length]).for_each(&mut take);
        }
        Ok(())
    }

    /// Waits for a datagram of the kernel and splits it into messages.
    pub(super) fn receive(
        &self,
        deadline: &Deadline,
        mut take: impl FnMut(MessageRef<'_>),
    ) -> Result<(), RequestError> {
        let mut buffer = self.buffer.borrow_mut();
        let length = loop {
            match self.try_receive(&mut buffer)? {
                Some(length) => break length,
                None => self.wait(deadline)?,
            }
        };
        let mut frames = Frames::new(&buffer[..length]);
        frames.by_ref().for_each(&mut take);
        if frames.is_cut_off() {
            return Err(RequestError::own(ErrorKind::InvalidData, "the kernel's reply is malformed"));
        }
        Ok(())
    }

    /// Receives the next datagram and returns its length. Datagrams of other senders are dropped.
    fn try_receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, RequestError> {
        loop {
            let mut parts = [IoSliceMut::new(buffer)];
            let received =
                recvmsg::<NetlinkAddr>(self.fd.as_raw_fd(), &mut parts, None, MsgFlags::MSG_DONTWAIT);
            match received {
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => {
                    self.drain(buffer)?;
                    return Err(Errno::ENOBUFS.into());
                }
                Err(errno) => return Err(errno.into()),
                Ok(got) if got.address.is_none_or(|from| from.pid() != KERNEL) => {}
                Ok(got) if got.flags.contains(MsgFlags::MSG_TRUNC) => {
                    return Err(RequestError::own(
                        ErrorKind::InvalidData,
                        "the kernel's reply was cut short",
                    ));
                }
                Ok(got) => return Ok(Some(got.bytes)),
            }
        }
    }

    /// Empties the queue after an overflow, to make room for the answer to a request.
    fn drain(&self, buffer: &mut [u8]) -> Result<(), RequestError> {
        loop {
            match recv(self.fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(_) | Err(Errno::EINTR | Errno::ENOBUFS) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The address of the socket. The kernel assigns it with the first request, or here.
    fn own_port(&self) -> Result<u32, RequestError> {
        let fd = self.fd.as_raw_fd();
        let address: NetlinkAddr = getsockname(fd)?;
        if address.pid() != 0 {
            return Ok(address.pid());
        }
        bind(fd, &NetlinkAddr::new(0, 0))?;
        Ok(getsockname::<NetlinkAddr>(fd)?.pid())
    }

    fn wait(&self, deadline: &Deadline) -> Result<(), RequestError> {
        // Rounded up, because poll(2) counts in milliseconds.
        let left = deadline.left() + Duration::from_micros(999);
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => Err(Errno::ETIMEDOUT.into()),
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl MessageRef<'_> {
    /// Decodes an NLMSG_ERROR or NLMSG_DONE. The error number 0 is an acknowledgement.
    ///
    /// # Errors
    /// The kernel's error number, with its explanation if there is one.
    pub fn status(&self) -> Result<(), RequestError> {
        match read_i32(self.payload) {
            Some(0) => Ok(()),
            Some(error) => Err(RequestError::new(
                io::Error::from_raw_os_error(error.saturating_abs()),
                self.explanation(),
            )),
            None => {
                Err(RequestError::own(ErrorKind::InvalidData, "the kernel's acknowledgement is malformed"))
            }
        }
    }

    /// Text of the extended acknowledgement, after the error number and the request (an NLMSG_DONE has no request).
    fn explanation(&self) -> Option<String> {
        if self.flags & NLM_F_ACK_TLVS == 0 {
            return None;
        }
        let request = match self.kind {
            NLMSG_DONE => 0,
            _ if self.flags & NLM_F_CAPPED != 0 => wire::HEADER,
            _ => read_u32(self.payload.get(ERROR_NUMBER..)?)?.try_into().ok()?,
        };
        let header = ERROR_NUMBER.checked_add(request).filter(|length| *length <= self.payload.len())?;
        read_str(Attributes::after(header, self.payload).get(NLMSGERR_ATTR_MSG)?).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use nix::sched::{CloneFlags, unshare};
    use nix::sys::socket::sendto;

    use super::*;
    use crate::uapi::RTM_NEWLINK;
    use crate::wire::Message;
    use crate::{Link, Netlink, Protocol, link};

    #[test]
    fn an_answer_that_is_not_the_kernels_is_ignored() {
        let thread = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("the tests need root");
            let nl = Netlink::open().unwrap();
            let port = nl.socket.own_port().unwrap();
            // A message about a nonexistent link from another process, with the expected sequence number.
            let mut forged = Message::new(RTM_NEWLINK, 0, &link::header(0, 7, 0, 0));
            forged.put_str(3, "forged");
            let sequence = nl.socket.sequence.get() + 1;
            let theirs = Socket::open(Protocol::Route).unwrap();
            let to_us = NetlinkAddr::new(port, 0);
            sendto(theirs.fd.as_raw_fd(), forged.finish(sequence), &to_us, MsgFlags::empty()).unwrap();
            let names: Vec<_> = nl.links().unwrap().into_iter().map(|Link { name, .. }| name).collect();
            assert!(names.contains(&"lo".to_owned()) && !names.contains(&"forged".to_owned()), "{names:?}");
        });
        thread.join().unwrap();
    }
}
