//! Packets between containers and others, also through host ports, so that the kernel tracks connections.

use std::cell::Cell;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::Value;

use lab::{Container, Lab};

/// The addresses of the host and of the other machine in the lab.
const HOST: [&str; 2] = ["198.51.100.1", "2001:db8:51::1"];
const FAR: [&str; 2] = ["198.51.100.2", "2001:db8:51::2"];
/// When a container sends again. Datagrams are lost while a neighbour is resolved, and sending fails while an address or a route is not ready.
const AGAIN: Duration = Duration::from_secs(1);
/// When it gives up. A busy machine may need minutes until it forwards the first datagram.
const DEADLINE: Duration = Duration::from_secs(300);

/// The peers of containers: a client on the host, and another machine.
#[derive(Debug)]
pub struct Traffic {
    client: UdpSocket,
    far: UdpSocket,
    /// How many times containers have sent. All datagrams of one time contain its number.
    sent: Cell<u64>,
}

impl Traffic {
    pub fn new(lab: &Lab) -> Self {
        let far = lab.machine("far").run(|| UdpSocket::bind("[::]:7"));
        let client = UdpSocket::bind("[::]:4000");
        let [far, client] = [far, client].map(|socket| socket.expect("bind a UDP socket"));
        far.set_read_timeout(Some(AGAIN)).expect("set a receive timeout");
        Self { client, far, sent: Cell::new(0) }
    }

    /// Sends from a client to a host port. It does not wait for an answer.
    pub fn to_host_port(&self, port: u16) {
        for ip in HOST {
            // A host port may lead to an unreachable address.
            let _ = self.client.send_to(b"is anybody there?", at(ip, port));
        }
    }

    /// A container sends to the other machine, in each family of its result. Returns whether each datagram arrives with
    /// the host's address (masqueraded), or the reason if none arrives.
    pub fn from(&self, container: &Container, result: &Value) -> Result<Vec<bool>, String> {
        let ips = result["ips"].as_array().into_iter().flatten().filter_map(|ip| ip["address"].as_str());
        let masqueraded = ips.map(|ip| {
            let family = usize::from(ip.contains(':'));
            let (any, to) = (["0.0.0.0:0", "[::]:0"][family], FAR[family]);
            let socket = container.run(|| UdpSocket::bind(any)).map_err(|e| format!("bind {any}: {e}"))?;
            self.sent.set(self.sent.get() + 1);
            let text = format!("{} {}", container.id, self.sent.get());
            let start = Instant::now();
            let mut source = None;
            while source.is_none() && start.elapsed() < DEADLINE {
                let _ = socket.send_to(text.as_bytes(), at(to, 7));
                source = self.far_hears(&text);
            }
            let source = source.ok_or_else(|| format!("{} does not reach {to}", container.id))?;
            Ok(source == at(HOST[family], 0).0)
        });
        masqueraded.collect()
    }

    /// The source of a datagram with this text. Late datagrams of earlier times are skipped.
    fn far_hears(&self, text: &str) -> Option<IpAddr> {
        let mut heard = [0; 64];
        loop {
            let (length, from) = self.far.recv_from(&mut heard).ok()?;
            if &heard[..length] == text.as_bytes() {
                return Some(from.ip().to_canonical());
            }
        }
    }
}

fn at(ip: &str, port: u16) -> (IpAddr, u16) {
    (ip.parse().expect("an address"), port)
}
