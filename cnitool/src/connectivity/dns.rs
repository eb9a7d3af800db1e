//! DNS: each server that ADD reported answers. If the network has the plugin dnsname, each server resolves the other
//! container's name.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant};

use dnsname::probe::{ANSWER_TIMEOUT, Answer, Query, is_temporary};

use super::pods::{Pod, id};
use super::{Outcome, Row, Test};

/// Timeout for an answer. The query is sent again after each [`ANSWER_TIMEOUT`].
const TIMEOUT: Duration = Duration::from_secs(4);

/// Queries each server for the other container's name.
pub fn servers(test: &Test<'_>, a: &Pod, b: &Pod, rows: &mut Vec<Row>) {
    let has_names = test.network.plugins.iter().any(|plugin| plugin.kind.as_str() == "dnsname");
    let domain = Some(a.result.dns.domain.as_str()).filter(|domain| !domain.is_empty());
    let name = domain.map_or_else(|| id(b.name), |domain| format!("{}.{domain}", id(b.name)));
    let family_of = b.address(true).unwrap_or(Ipv6Addr::UNSPECIFIED.into());
    for server in a.result.dns.nameservers.iter().filter_map(|server| server.parse().ok()) {
        let outcome = match ask(test, a, server, &name, family_of) {
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

/// A server's answer to a container.
///
/// # Errors
/// If the server does not answer or refuses the query, or if the query cannot be sent, for example because a firewall drops it.
fn ask(test: &Test<'_>, from: &Pod, server: IpAddr, name: &str, family_of: IpAddr) -> io::Result<Answer> {
    let open = || Query::new(server, name, family_of, true);
    let query = from.netns.enter(open).map_err(io::Error::other)??;
    let mut failed = io::Error::new(ErrorKind::TimedOut, "the server does not answer");
    let start = Instant::now();
    while start.elapsed() < TIMEOUT && !test.is_stopped() {
        match query.send() {
            Ok(Answer::Silence) => {}
            Err(e) if is_temporary(&e) => {
                failed = e;
                thread::sleep(ANSWER_TIMEOUT);
            }
            answer => return answer,
        }
    }
    Err(failed)
}
