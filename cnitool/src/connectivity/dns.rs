//! DNS: each server that ADD reported answers. If the network has the plugin dnsname, each server resolves the other
//! container's name.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr};

use dnsname::probe::{Answer, query};
use netns::NetNs;

use super::pods::{Pod, id};
use super::{Outcome, Row, Test};

/// How often a query is sent until a server answers. The timeout of each is half a second.
const QUERIES: usize = 8;

/// Queries each server for the other container's name.
pub fn servers(test: &Test<'_>, a: &Pod, b: &Pod, rows: &mut Vec<Row>) {
    let has_names = test.network.plugins.iter().any(|plugin| plugin.kind.as_str() == "dnsname");
    let domain = Some(a.result.dns.domain.as_str()).filter(|domain| !domain.is_empty());
    let name = domain.map_or_else(|| id(b.name), |domain| format!("{}.{domain}", id(b.name)));
    let family_of = b.address(true).unwrap_or(Ipv6Addr::UNSPECIFIED.into());
    for server in a.result.dns.nameservers.iter().filter_map(|server| server.parse().ok()) {
        let outcome = match ask(&a.netns, server, &name, family_of) {
            Ok(Answer::Unknown) if has_names => {
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

/// A server's answer.
///
/// # Errors
/// If the server does not answer, or if the query cannot be sent, for example because a firewall refuses it.
fn ask(from: &NetNs, server: IpAddr, name: &str, family_of: IpAddr) -> io::Result<Answer> {
    for _ in 0..QUERIES {
        let answer = from.enter(|| query(server, name, family_of, true)).map_err(io::Error::other)??;
        if answer != Answer::Silence {
            return Ok(answer);
        }
    }
    Err(io::Error::new(ErrorKind::TimedOut, "the server does not answer"))
}
