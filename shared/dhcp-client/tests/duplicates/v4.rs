//! IPv4: the client, and the server's answers.

use std::net::Ipv4Addr;

use dhcp_client::{Action, Client, Identity, Kind, Message, Options, Random, Time, Timing, To, options};

use super::{Act, LENGTHS, OFFERED, Protocol, Server, seconds};

#[derive(Debug)]
pub struct V4 {
    client: Client,
    identity: Identity,
}

fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host)
}

fn host(address: Ipv4Addr) -> u8 {
    address.octets()[3]
}

fn acts(actions: Vec<Action>) -> Vec<Act> {
    let act = |action| match action {
        Action::Send { to: To::Server { server, .. }, message } => Act::Send(Some(host(server)), message),
        Action::Send { message, .. } => Act::Send(None, message),
        Action::Bound(lease) => Act::Bound(host(lease.address)),
        Action::Lost(_) => Act::Lost,
        Action::Failed(_) => Act::Failed,
    };
    actions.into_iter().map(act).collect()
}

impl Protocol for V4 {
    fn acquire(id: u64, mac: [u8; 6], now: Time, random: Random) -> Self {
        let client_id = [&[0], &id.to_be_bytes()[..]].concat();
        let (broadcast, none) = (false, Vec::new);
        let identity =
            Identity { mac, client_id, broadcast, provide: none(), request: vec![], required: vec![] };
        Self { client: Client::acquire(identity.clone(), Timing::default(), now, random), identity }
    }

    fn resume(&mut self, now: Time, random: Random) -> bool {
        let Some(lease) = self.client.lease() else { return false };
        let lease = serde_json::from_str(&serde_json::to_string(lease).unwrap()).unwrap();
        self.client = Client::resume(self.identity.clone(), Timing::default(), lease, now, random);
        true
    }

    fn set_mac(&mut self, mac: [u8; 6]) {
        self.identity.mac = mac;
        self.client.set_mac(mac);
    }

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

    fn release(&mut self, _now: Time) -> Vec<Act> {
        acts(self.client.clone().release().into_iter().collect())
    }

    fn answer(server: &mut Server, request: &[u8], now: Time, random: &mut Random) -> Option<Vec<u8>> {
        let request = Message::decode(request).unwrap();
        let client = request.options.get(options::CLIENT_ID)?.to_vec();
        let named = request.options.address(options::SERVER_ID).map(host);
        let length = LENGTHS[(random.number() % 5) as usize];
        if named.is_some_and(|named| named != server.identifier) {
            return None;
        }
        let requested = request.options.address(options::REQUESTED_ADDRESS);
        let wants = host(requested.unwrap_or(request.ciaddr));
        match request.kind()? {
            Kind::Discover => {
                let offered = server.address_for(&client, now)?;
                server.bind(offered, &client, now + seconds(OFFERED));
                Some(reply(server, &request, Kind::Offer, address(offered), length))
            }
            Kind::Request => {
                let is_its = server.owner(wants, now) == Some(&client);
                if !is_its || random.number().is_multiple_of(50) {
                    return Some(reply(server, &request, Kind::Nak, Ipv4Addr::UNSPECIFIED, 0));
                }
                server.bind(wants, &client, now + seconds(length));
                Some(reply(server, &request, Kind::Ack, address(wants), length))
            }
            Kind::Release => {
                server.unbind(wants, &client);
                None
            }
            other => panic!("no client sends {other:?}"),
        }
    }
}

fn reply(server: &Server, request: &Message, kind: Kind, yiaddr: Ipv4Addr, length: u64) -> Vec<u8> {
    let mut all = Options::default();
    all.set(options::MESSAGE_TYPE, [kind as u8]);
    all.set(options::SERVER_ID, address(server.identifier).octets());
    all.set(options::CLIENT_ID, request.options.get(options::CLIENT_ID).unwrap());
    all.set(options::LEASE_TIME, u32::try_from(length).unwrap().to_be_bytes());
    Message { is_reply: true, yiaddr, ciaddr: Ipv4Addr::UNSPECIFIED, options: all, ..request.clone() }
        .encode()
}
