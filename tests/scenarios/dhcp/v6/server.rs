//! A scripted DHCPv6 server.

use std::net::{Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lab::Netns;

/// All servers on the link.
const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const CLIENT_ID: u16 = 1;
const SERVER_ID: u16 = 2;
const IA_NA: u16 = 3;
const IA_ADDR: u16 = 5;
const PREFERENCE: u16 = 7;
const RAPID_COMMIT: u16 = 14;

pub const SOLICIT: u8 = 1;
const ADVERTISE: u8 = 2;
pub const REQUEST: u8 = 3;
pub const REPLY: u8 = 7;
pub const RELEASE: u8 = 8;

/// A client's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientMessage {
    pub kind: u8,
    pub xid: [u8; 3],
    pub duid: Vec<u8>,
}

impl ClientMessage {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let ([kind, xid @ ..], mut options) = bytes.split_first_chunk::<4>()?;
        let (kind, xid) = (*kind, *xid);
        while let Some(([a, b, c, d], rest)) = options.split_first_chunk::<4>() {
            let (value, behind) = rest.split_at_checked(u16::from_be_bytes([*c, *d]).into())?;
            if u16::from_be_bytes([*a, *b]) == CLIENT_ID {
                return Some(Self { kind, xid, duid: value.to_vec() });
            }
            options = behind;
        }
        None
    }

    /// A REPLY with an address, for rapid commit.
    pub fn reply(&self, address: &str) -> Vec<u8> {
        [self.acknowledge(), given(address, [1000, 2000]), option(RAPID_COMMIT, &[])].concat()
    }

    /// A REPLY with an address whose lifetimes are not in order.
    pub fn unusable(&self, address: &str) -> Vec<u8> {
        [self.acknowledge(), given(address, [2000, 1000])].concat()
    }

    /// An offer with the maximum preference.
    pub fn advertise(&self, address: &str) -> Vec<u8> {
        let mut message =
            [self.acknowledge(), given(address, [1000, 2000]), option(PREFERENCE, &[255])].concat();
        message[0] = ADVERTISE;
        message
    }

    /// A REPLY without an address.
    pub fn acknowledge(&self) -> Vec<u8> {
        let [a, b, c] = self.xid;
        let server = option(SERVER_ID, &[0, 4, 9, 9]);
        [vec![REPLY, a, b, c], option(CLIENT_ID, &self.duid), server].concat()
    }
}

/// An IA_NA with an address and its preferred and valid lifetimes.
fn given(address: &str, times: [u32; 2]) -> Vec<u8> {
    let address: Ipv6Addr = address.parse().unwrap();
    let address = option(IA_ADDR, &[&address.octets()[..], &times.map(u32::to_be_bytes).concat()].concat());
    option(IA_NA, &[&[1_u32, 500, 800].map(u32::to_be_bytes).concat(), &address[..]].concat())
}

fn option(number: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap();
    [&number.to_be_bytes()[..], &length.to_be_bytes(), value].concat()
}

/// Answers each message on eth0 of a machine, until it is dropped.
pub struct Server {
    received: Arc<Mutex<Vec<ClientMessage>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// `answers` gets a message, and the number of earlier ones of its type.
    pub fn start(
        machine: &Netns,
        answers: impl Fn(&ClientMessage, usize) -> Vec<Vec<u8>> + Send + 'static,
    ) -> Self {
        let link = machine.exec(&["ip", "-o", "link", "show", "eth0"]);
        let index = link.split(':').next().unwrap().parse().unwrap();
        let socket = machine.run(|| UdpSocket::bind("[::]:547")).unwrap();
        socket.join_multicast_v6(&SERVERS, index).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (received, ends) = (Arc::<Mutex<Vec<ClientMessage>>>::default(), Arc::<AtomicBool>::default());
        let (noted, end) = (Arc::clone(&received), Arc::clone(&ends));
        let thread = thread::spawn(move || {
            let mut packet = [0; 4096];
            while !end.load(Ordering::Relaxed) {
                let Ok((length, client)) = socket.recv_from(&mut packet) else { continue };
                let Some(message) = ClientMessage::parse(&packet[..length]) else { continue };
                let before = count(&noted, message.kind);
                let said = answers(&message, before);
                // Before the answer is sent.
                noted.lock().unwrap().push(message);
                for answer in said {
                    socket.send_to(&answer, client).unwrap();
                }
            }
        });
        Self { received, ends, thread: Some(thread) }
    }

    /// The received messages of a type.
    pub fn received(&self, kind: u8) -> Vec<ClientMessage> {
        self.received.lock().unwrap().iter().filter(|message| message.kind == kind).cloned().collect()
    }
}

/// Whether there is a message, and all others are repetitions of it.
pub fn is_one(received: &[ClientMessage]) -> bool {
    received.first().is_some_and(|first| received.iter().all(|other| other == first))
}

fn count(received: &Mutex<Vec<ClientMessage>>, kind: u8) -> usize {
    received.lock().unwrap().iter().filter(|message| message.kind == kind).count()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}
