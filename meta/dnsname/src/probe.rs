//! A minimal DNS client (RFC 1035, section 4): asks a server whether it knows a name.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process;
use std::time::Duration;

/// The port of DNS.
const PORT: u16 = 53;

/// Timeout for an answer. After it, the caller sends the query again.
pub const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// Length of a header in bytes.
const HEADER: usize = 12;

/// The answer of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The name has an address of the requested family.
    Known,
    /// The name has no such address.
    Unknown,
    /// There was no answer.
    Silence,
}

/// Queries the network's own server for the address of a name, in the same address family as `family_of`. The server does not forward the
/// query to other servers.
///
/// # Errors
/// If no socket can be opened.
pub(crate) fn ask(server: IpAddr, name: &str, family_of: IpAddr) -> io::Result<Answer> {
    match Query::new(server, name, family_of, false).and_then(|query| query.send()) {
        // The server does not listen yet, or the address is still being tested for duplicates.
        Err(e) if e.kind() == ErrorKind::ConnectionRefused || is_temporary(&e) => Ok(Answer::Silence),
        answer => answer,
    }
}

/// A query for the address of a name.
#[derive(Debug)]
pub struct Query {
    socket: UdpSocket,
    server: IpAddr,
    id: [u8; 2],
    packet: Vec<u8>,
}

impl Query {
    /// A query to a server, for an address in the same address family as `family_of`. With `recursion`, the server may forward the query. The
    /// socket belongs to the present network namespace.
    ///
    /// # Errors
    /// If no socket can be opened.
    pub fn new(server: IpAddr, name: &str, family_of: IpAddr, recursion: bool) -> io::Result<Self> {
        let own: SocketAddr =
            if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
        let socket = UdpSocket::bind(own)?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let [high, low, ..] = process::id().to_ne_bytes();
        let id = [high, low];
        Ok(Self { socket, server, id, packet: question(id, name, family_of, recursion) })
    }

    /// Sends the query, and waits for [`ANSWER_TIMEOUT`]. The answer may also be that to an earlier sending: a server that asks others may need
    /// longer.
    ///
    /// # Errors
    /// If the query cannot be sent, or if the server refuses it.
    pub fn send(&self) -> io::Result<Answer> {
        self.socket.connect((self.server, PORT))?;
        self.socket.send(&self.packet)?;
        let mut answer = [0; 512];
        match self.socket.recv(&mut answer) {
            Ok(length) => Ok(read(self.id, answer.get(..length).unwrap_or_default())),
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                Ok(Answer::Silence)
            }
            Err(e) => Err(e),
        }
    }
}

/// Whether an error may go away without a change of the server: neighbours and routes appear, and addresses are tested for duplicates.
pub fn is_temporary(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::AddrNotAvailable
            | ErrorKind::PermissionDenied
    )
}

fn question(id: [u8; 2], name: &str, family_of: IpAddr, recursion: bool) -> Vec<u8> {
    let kind: u8 = if family_of.is_ipv4() { 1 } else { 28 };
    let mut packet = vec![id[0], id[1], recursion.into(), 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        // A label has at most 63 bytes.
        packet.push(u8::try_from(label.len()).unwrap_or_default());
        packet.extend(label.as_bytes());
    }
    packet.extend([0, 0, kind, 0, 1]);
    packet
}

/// Parses an answer. Packets that do not belong to the query are ignored.
fn read(id: [u8; 2], packet: &[u8]) -> Answer {
    let Some(&[high, low, flags, code, _, _, answers_high, answers_low, ..]) =
        packet.first_chunk::<HEADER>().map(|header| &header[..])
    else {
        return Answer::Silence;
    };
    if [high, low] != id || flags & 0x80 == 0 {
        return Answer::Silence;
    }
    let has_answers = answers_high != 0 || answers_low != 0;
    if code & 0xf == 0 && has_answers { Answer::Known } else { Answer::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_the_name_and_the_type_of_the_addresses_family() {
        let packet = question([1, 2], "_a-1.dns.podman", "10.0.0.1".parse().unwrap(), false);
        assert_eq!(packet, b"\x01\x02\0\0\0\x01\0\0\0\0\0\0\x04_a-1\x03dns\x06podman\0\0\x01\0\x01");
        let packet = question([1, 2], "a", "fd00::1".parse().unwrap(), true);
        assert_eq!(packet, b"\x01\x02\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x1c\0\x01");
    }

    #[test]
    fn only_an_answer_to_the_question_says_anything() {
        let answer = |flags: u8, code: u8, count: u8| [1, 2, flags, code, 0, 1, 0, count, 0, 0, 0, 0];
        assert_eq!(read([1, 2], &answer(0x85, 0x80, 1)), Answer::Known);
        assert_eq!(read([1, 2], &answer(0x85, 0x80, 0)), Answer::Unknown);
        assert_eq!(read([1, 2], &answer(0x85, 0x83, 0)), Answer::Unknown, "NXDOMAIN");
        assert_eq!(read([1, 2], &answer(0x05, 0, 1)), Answer::Silence, "a question");
        assert_eq!(read([3, 4], &answer(0x85, 0, 1)), Answer::Silence, "another id");
        assert_eq!(read([1, 2], &[1, 2, 0x85]), Answer::Silence);
    }
}
