//! Packets between containers and others, also through host ports, so that the kernel tracks connections.

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
}

impl Traffic {
    pub fn new(lab: &Lab) -> Self {
        let far = lab.machine("far").run(|| UdpSocket::bind("[::]:7"));
        let client = UdpSocket::bind("[::]:4000");
        let [far, client] = [far, client].map(|socket| socket.expect("bind a UDP socket"));
        far.set_read_timeout(Some(TIMEOUT)).expect("set a receive timeout");
        Self { client, far }
    }

    /// Sends from a client to a host port. It does not wait for an answer.
    pub fn to_host_port(&self, port: u16) {
        for ip in HOST {
            // A host port may lead to an unreachable address.
            let _ = self.client.send_to(b"is anybody there?", at(ip, port));
        }
    }

    /// A container sends to the other machine, in each family of its result. Returns the reason if that fails.
    pub fn from(&self, container: &Container, result: &Value) -> Result<(), String> {
        let ips = result["ips"].as_array().into_iter().flatten().filter_map(|ip| ip["address"].as_str());
        for v4 in ips.map(|ip| !ip.contains(':')) {
            let (any, to) = if v4 { ("0.0.0.0:0", FAR[0]) } else { ("[::]:0", FAR[1]) };
            let socket = container.run(|| UdpSocket::bind(any)).map_err(|e| format!("bind {any}: {e}"))?;
            let arrived = (0..TRIES).any(|_| {
                socket.send_to(container.id.as_bytes(), at(to, 7)).is_ok() && self.far_hears(&container.id)
            });
            arrived.then_some(()).ok_or_else(|| format!("{} does not reach {to}", container.id))?;
        }
        Ok(())
    }

    fn far_hears(&self, what: &str) -> bool {
        let mut heard = [0; 64];
        self.far.recv(&mut heard).is_ok_and(|length| &heard[..length] == what.as_bytes())
    }
}

fn at(ip: &str, port: u16) -> (IpAddr, u16) {
    (ip.parse().expect("an address"), port)
}
