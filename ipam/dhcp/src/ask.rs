//! The plugin's side of the daemon protocol: sends a request and receives its answer.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use cni::{Code, Error, Result};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, sendmsg, socket_with, sockopt,
};
use serde_json::Value;

use crate::key::Family;
use crate::offline::MOST_MESSAGES;
use crate::wire::{self, Op, Request, read_reply};

/// Timeout for requests about at most one lease, except requests for it, which have [`ACQUIRE_TIMEOUT`].
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout for a request for a lease. Normally the daemon gives up earlier (`-resendtimeout`). This limit only prevents
/// the plugin from hanging.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3600);

/// How long the daemon may need for a batch of stale leases, if their servers do not answer, and to write to the disk.
const BATCH_TIMEOUT: Duration = Duration::from_secs(6);

/// How many times a request to a busy daemon is sent. The daemon keeps each connection open for at least a second.
const TRIES: usize = 60;

/// Maximum size of an answer in bytes. The list of a thousand leases has a million.
const LARGEST_ANSWER: u64 = 64 << 20;

/// The daemon's answer.
#[derive(Debug)]
pub enum DaemonAnswer {
    /// The daemon has answered.
    Answered(Result<Value>),
    /// No daemon listens on the socket.
    NoDaemon(io::Error),
}

/// Sends a request, with an open namespace, and waits for the answer.
///
/// # Errors
/// Code 5 if the socket cannot be used. Code 11 if the daemon does not answer in time.
pub fn ask(socket: &Path, request: &Request, netns: Option<BorrowedFd<'_>>) -> Result<DaemonAnswer> {
    for _ in 0..TRIES {
        if let Some(answer) = ask_once(socket, request, netns)? {
            return Ok(answer);
        }
    }
    Ok(DaemonAnswer::Answered(read_reply(&wire::busy())))
}

/// Sends the request once. None: the daemon closed the connection before it read the request, because it has too many
/// connections.
fn ask_once(socket: &Path, request: &Request, netns: Option<BorrowedFd<'_>>) -> Result<Option<DaemonAnswer>> {
    let failed = |e: &io::Error| match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::new(
            Code::TryAgainLater,
            format!("the DHCP daemon on {} does not answer", socket.display()),
        )
        .detail("read its log: journalctl -u cni-dhcp.service"),
        _ => Error::io(format!("ask the DHCP daemon on {}", socket.display()), e),
    };
    let stream = match open(socket, timeout(request)) {
        Err(e) if is_not_running(&e) => return Ok(Some(DaemonAnswer::NoDaemon(e))),
        opened => opened.map_err(|e| failed(&e))?,
    };
    let line = request.line()?;
    match send(&stream, &line, netns) {
        // The daemon closed the connection. Its answer, if any, contains the reason.
        Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
        sent => sent.map_err(|e| failed(&e))?,
    }
    let answer = receive(&stream).map_err(|e| failed(&e))?;
    if answer == wire::busy() {
        return Ok(None);
    }
    Ok(Some(DaemonAnswer::Answered(read_reply(&answer))))
}

/// Timeout for the answer. The daemon releases stale leases in batches, one after the other.
fn timeout(request: &Request) -> Duration {
    let batches = (request.stale.len() * Family::ALL.len()).div_ceil(MOST_MESSAGES);
    match request.op {
        Op::Acquire => ACQUIRE_TIMEOUT,
        _ => REQUEST_TIMEOUT + BATCH_TIMEOUT * u32::try_from(batches).unwrap_or(u32::MAX),
    }
}

/// A connection to the daemon with timeouts for sending and receiving.
pub(crate) fn open(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The send timeout also limits connect(2), which blocks while the daemon's queue is full.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(REQUEST_TIMEOUT))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(timeout))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

fn is_not_running(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::ConnectionRefused
            // No socket can have such a path: it is too long, or contains a NUL.
            | ErrorKind::InvalidFilename
            | ErrorKind::InvalidInput
    )
}

/// Sends a line. The descriptor is attached to the first bytes.
fn send(mut stream: &UnixStream, line: &[u8], netns: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if let Some(netns) = &netns {
        ancillary.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(netns)));
    }
    let sent = sendmsg(stream, &[IoSlice::new(line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    stream.write_all(line.get(sent..).unwrap_or_default())
}

/// The answer's line, or the part that arrived before the daemon closed the connection.
fn receive(stream: &UnixStream) -> io::Result<Vec<u8>> {
    let (mut answer, mut block) = (Vec::new(), [0; 4096]);
    let mut limited = stream.take(LARGEST_ANSWER);
    while answer.last() != Some(&b'\n') {
        match limited.read(&mut block) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(block.get(..count).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // The part that arrived before is returned.
            Err(e) if e.kind() == ErrorKind::ConnectionReset => break,
            Err(e) => return Err(e),
        }
    }
    Ok(answer)
}

/// Code 11: no daemon listens on the socket. `remedy`: how the caller names another socket.
pub fn no_daemon(socket: &Path, cause: &io::Error, remedy: &str) -> Error {
    Error::io(format!("ask the DHCP daemon on {}", socket.display()), cause)
        .with_code(Code::TryAgainLater)
        .detail("start it: systemctl start cni-dhcp.socket, or `dhcp daemon`")
        .detail(format!("if its socket has another path, {remedy}"))
}

/// The remedy of a plugin that uses another socket than the daemon.
pub const SET_SOCKET: &str = "set daemonSocketPath";

/// The daemon's answer to a request.
///
/// # Errors
/// Code 11 if no daemon runs or it does not answer in time. Code 5 if the socket cannot be used. Otherwise the daemon's
/// own error.
pub fn answer(socket: &Path, request: &Request, netns: Option<BorrowedFd<'_>>) -> Result<Value> {
    match ask(socket, request, netns)? {
        DaemonAnswer::Answered(answer) => answer,
        DaemonAnswer::NoDaemon(e) => Err(no_daemon(socket, &e, SET_SOCKET)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;
    use crate::v6::RELEASING;
    use crate::wire::reply;

    #[test]
    fn a_request_to_a_daemon_with_too_many_connections_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("dhcp.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = thread::spawn(move || {
            for answer in [wire::busy(), wire::busy(), reply(&Ok(Value::Null))] {
                listener.accept().unwrap().0.write_all(&answer).unwrap();
            }
        });
        let answer = ask(&socket, &Request::new(Op::List, ""), None).unwrap();
        assert!(matches!(answer, DaemonAnswer::Answered(Ok(Value::Null))), "{answer:?}");
        daemon.join().unwrap();
    }

    /// Of servers that do not answer: 50 attachments with leases of both families, or 100 with one, are a batch.
    #[test]
    fn the_timeout_of_gc_suffices_for_all_batches_of_stale_leases() {
        let gc = |count| {
            let stale = vec![("container".to_owned(), "eth0".to_owned()); count];
            timeout(&Request { stale, ..Request::new(Op::Gc, "net") })
        };
        assert_eq!(gc(0), REQUEST_TIMEOUT);
        for count in [1_usize, 50, 51, 1500, 10_000] {
            let batches = u32::try_from((2 * count).div_ceil(MOST_MESSAGES)).unwrap();
            assert!(gc(count) >= REQUEST_TIMEOUT + RELEASING * batches, "{count}");
        }
        assert_eq!(timeout(&Request::new(Op::List, "")), REQUEST_TIMEOUT);
    }
}
