//! DNS: each server that ADD reported answers. If the network has the plugin dnsname, each server resolves the other
//! container's name.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use netns::NetNs;

use super::pods::{Pod, id};
use super::{Outcome, Row, Test};

const TIMEOUT: Duration = Duration::from_secs(4);
const AGAIN: Duration = Duration::from_secs(1);

/// RFC 1035, section 4.1.1: recursion desired; one question.
const HEADER: [u8; 10] = [1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
/// Record types (RFC 1035, RFC 3596).
const A: u8 = 1;
const AAAA: u8 = 28;

/// Queries each server for the other container's name.
pub fn servers(test: &Test<'_>, a: &Pod, b: &Pod, rows: &mut Vec<Row>) {
    let has_names = test.network.plugins.iter().any(|plugin| plugin.kind.as_str() == "dnsname");
    let domain = Some(a.result.dns.domain.as_str()).filter(|domain| !domain.is_empty());
    let name = domain.map_or_else(|| id(b.name), |domain| format!("{}.{domain}", id(b.name)));
    let kind = if b.address(true).is_some() { A } else { AAAA };
    for server in a.result.dns.nameservers.iter().filter_map(|server| server.parse().ok()) {
        let outcome = match ask(&a.netns, server, &name, kind) {
            Ok(answers) if has_names && answers == 0 => {
                let remedy =
                    "check dnsname's files in /run/containers/cni/dnsname, and that its dnsmasq is running";
                Outcome::failed(format!("the server does not know {name}"), remedy)
            }
            Ok(_) => Outcome::Passed(if has_names { name.clone() } else { String::new() }),
            Err(e) => Outcome::failed(
                e.to_string(),
                "start the DNS server, let the host's firewall accept UDP port 53 from containers, or correct `dns` of the network",
            ),
        };
        rows.push(Row::new("DNS", a.label(), server.to_string(), outcome));
    }
}

/// The number of answers in a server's reply.
fn ask(from: &NetNs, server: IpAddr, name: &str, kind: u8) -> io::Result<u16> {
    let any: IpAddr = if server.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = from.enter(|| UdpSocket::bind((any, 0))).map_err(io::Error::other)??;
    socket.connect(SocketAddr::new(server, 53))?;
    socket.set_read_timeout(Some(AGAIN))?;
    let id = (std::process::id() as u16).to_be_bytes();
    let query = [&id[..], &HEADER, &question(name, kind)].concat();
    let (start, mut buffer) = (Instant::now(), [0; 512]);
    while start.elapsed() < TIMEOUT {
        let received = socket.send(&query).and_then(|_| socket.recv(&mut buffer));
        match received {
            Ok(length) if length >= 12 && buffer[..2] == id => {
                return Ok(u16::from_be_bytes([buffer[6], buffer[7]]));
            }
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => return Err(e),
            _ => {}
        }
    }
    Err(io::Error::new(ErrorKind::TimedOut, "the server does not answer"))
}

fn question(name: &str, kind: u8) -> Vec<u8> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    let labels = labels.map(|label| label.as_bytes().get(..63).unwrap_or(label.as_bytes()));
    let mut question: Vec<u8> = labels.flat_map(|label| [&[label.len() as u8], label].concat()).collect();
    question.extend([0, 0, kind, 0, 1]);
    question
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_written_label_by_label() {
        assert_eq!(question("b.dns", A), [1, b'b', 3, b'd', b'n', b's', 0, 0, 1, 0, 1]);
    }
}
