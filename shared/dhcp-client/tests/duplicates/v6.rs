//! IPv6: the client, and the server's answers.

use std::net::Ipv6Addr;

use dhcp_client::v6::{Action, Client, Duid, Identity, Kind, Message, Options};
use dhcp_client::{Random, Time};

use super::{Act, LENGTHS, OFFERED, Protocol, Server, TIMEOUT, seconds};

const CLIENT_ID: u16 = 1;
const SERVER_ID: u16 = 2;
const IA_NA: u16 = 3;
const IA_ADDR: u16 = 5;
const STATUS: u16 = 13;
const RAPID_COMMIT: u16 = 14;
const NO_ADDRS_AVAIL: u16 = 2;
const NO_BINDING: u16 = 3;
const NOT_ON_LINK: u16 = 4;

#[derive(Debug)]
pub struct V6 {
    client: Client,
    identity: Identity,
}

fn address(host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into())
}

fn host(address: Ipv6Addr) -> u8 {
    address.octets()[15]
}

fn acts(actions: Vec<Action>) -> Vec<Act> {
    let act = |action| match action {
        Action::Send(message) => Some(Act::Send(None, message)),
        Action::Bound(lease) => Some(Act::Bound(host(lease.address))),
        Action::Lost(_) => Some(Act::Lost),
        Action::Failed(_) => Some(Act::Failed),
        Action::Released => None,
    };
    actions.into_iter().filter_map(act).collect()
}

impl Protocol for V6 {
    /// The client is identified by the attachment, not by its hardware address.
    fn acquire(id: u64, _mac: [u8; 6], now: Time, random: Random) -> Self {
        let identity = Identity { duid: Duid::of_digest(u128::from(id).to_be_bytes()), iaid: 1 };
        Self { client: Client::acquire(identity.clone(), TIMEOUT, now, random), identity }
    }

    fn resume(&mut self, now: Time, random: Random) -> bool {
        let Some(lease) = self.client.lease() else { return false };
        let lease = serde_json::from_str(&serde_json::to_string(lease).unwrap()).unwrap();
        self.client = Client::resume(self.identity.clone(), lease, now, random);
        true
    }

    fn set_mac(&mut self, _mac: [u8; 6]) {}

    fn lease(&self) -> Option<(u8, Option<Time>)> {
        self.client.lease().map(|lease| (host(lease.address), lease.expiry))
    }

    fn deadline(&self) -> Option<Time> {
        self.client.deadline()
    }

    fn tick(&mut self, now: Time) -> Vec<Act> {
        acts(self.client.tick(now))
    }

    fn receive(&mut self, now: Time, packet: &[u8]) -> Vec<Act> {
        acts(self.client.receive(now, packet))
    }

    fn release(&mut self, now: Time) -> Vec<Act> {
        self.client.release(now);
        self.tick(now)
    }

    fn answer(server: &mut Server, request: &[u8], now: Time, random: &mut Random) -> Option<Vec<u8>> {
        let request = Message::decode(request).unwrap();
        let client = request.options.get(CLIENT_ID)?;
        let duid = [0, 3, server.identifier];
        if request.options.get(SERVER_ID).is_some_and(|named| *named != duid) {
            return None;
        }
        let its = server.address_of(client, now);
        let wants = requested(&request);
        let length = LENGTHS[(random.number() % 5) as usize];
        let until = now + seconds(length);
        let mut options = Options::default().with(SERVER_ID, duid).with(CLIENT_ID, client);
        let kind = if request.kind == Kind::Solicit { Kind::Advertise } else { Kind::Reply };
        let is_rapid = request.kind == Kind::Solicit && random.number().is_multiple_of(2);
        let is_refused = random.number().is_multiple_of(50);
        options = match request.kind {
            Kind::Solicit | Kind::Request if is_refused => options.with(IA_NA, status(NO_ADDRS_AVAIL)),
            Kind::Solicit | Kind::Request => {
                let gives = server.address_for(client, now)?;
                let is_given = is_rapid || request.kind == Kind::Request;
                server.bind(gives, client, if is_given { until } else { now + seconds(OFFERED) });
                options.with(IA_NA, association(gives, length))
            }
            Kind::Renew | Kind::Rebind if its.is_none() || its != wants || is_refused => {
                options.with(IA_NA, status(NO_BINDING))
            }
            Kind::Renew | Kind::Rebind => {
                server.bind(its?, client, until);
                options.with(IA_NA, association(its?, length))
            }
            Kind::Confirm if is_refused => options.with(STATUS, NOT_ON_LINK.to_be_bytes()),
            Kind::Confirm => options,
            Kind::Release => {
                server.unbind(wants?, client);
                options
            }
            other => panic!("no client sends {other:?}"),
        };
        let (kind, options) = match is_rapid && !is_refused {
            true => (Kind::Reply, options.with(RAPID_COMMIT, [])),
            false => (kind, options),
        };
        Some(Message { kind, xid: request.xid, options }.encode())
    }
}

/// The address in a message.
fn requested(request: &Message) -> Option<u8> {
    let options = Options::decode(request.options.get(IA_NA)?.get(12..)?)?;
    let octets: [u8; 16] = options.get(IA_ADDR)?.get(..16)?.try_into().ok()?;
    Some(host(octets.into()))
}

/// An IA_NA without T1 and T2. The client chooses them.
fn association(host: u8, length: u64) -> Vec<u8> {
    let valid = u32::try_from(length).unwrap();
    let value = [&address(host).octets()[..], &(valid / 2).to_be_bytes(), &valid.to_be_bytes()].concat();
    [&[0, 0, 0, 1][..], &[0; 8], &Options::default().with(IA_ADDR, value).encode()].concat()
}

/// An IA_NA with only a status.
fn status(number: u16) -> Vec<u8> {
    [&[0, 0, 0, 1][..], &[0; 8], &Options::default().with(STATUS, number.to_be_bytes()).encode()].concat()
}
