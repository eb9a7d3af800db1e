//! Packets between containers and others, also through host ports, so that the kernel tracks connections.

use std::cell::Cell;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use serde_json::Value;

use lab::{Container, Lab};

/// The addresses of the host and of the other machine in the lab.
const HOST: [&str; 2] = ["198.51.100.1", "2001:db8:51::1"];
const FAR: [&str; 2] = ["198.51.100.2", "2001:db8:51::2"];
/// How many times a container sends. Its first datagram may be lost while a neighbour is resolved.
const TRIES: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(10);

/// The peers of containers: a client on the host, and another machine.
#[derive(Debug)]
pub struct Traffic {
    client: UdpSocket,
    far: UdpSocket,
    /// The number of datagrams that containers have sent. Each contains its number.
    sent: Cell<u64>,
}

impl Traffic {
    pub fn new(lab: &Lab) -> Self {
        let far = lab.machine("far").run(|| UdpSocket::bind("[::]:7"));
        let client = UdpSocket::bind("[::]:4000");
        let [far, client] = [far, client].map(|socket| socket.expect("bind a UDP socket"));
        far.set_read_timeout(Some(TIMEOUT)).expect("set a receive timeout");
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
            let source = (0..TRIES).find_map(|_| {
                self.sent.set(self.sent.get() + 1);
                let text = format!("{} {}", container.id, self.sent.get());
                socket.send_to(text.as_bytes(), at(to, 7)).ok()?;
                self.far_hears(&text)
            });
            let source = source.ok_or_else(|| format!("{} does not reach {to}", container.id))?;
            Ok(source == at(HOST[family], 0).0)
        });
        masqueraded.collect()
    }

    /// The source of the next datagram, if it has this text. An earlier one may arrive late.
    fn far_hears(&self, text: &str) -> Option<IpAddr> {
        let mut heard = [0; 64];
        let (length, from) = self.far.recv_from(&mut heard).ok()?;
        (&heard[..length] == text.as_bytes()).then(|| from.ip().to_canonical())
    }
}

fn at(ip: &str, port: u16) -> (IpAddr, u16) {
    (ip.parse().expect("an address"), port)
}
