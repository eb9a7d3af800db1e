//! Traffic: between the containers, through host ports, and from containers to outside.

use std::net::{IpAddr, SocketAddr};

use lab::{Lab, Netns, tcp_says, udp_says};

use crate::network::{Attached, TCP, UDP};
use crate::show::{bad, good};

/// The host's addresses on its uplink. See `Lab::machine`.
const HOST: [&str; 2] = ["198.51.100.1", "2001:db8:51::1"];
/// The other machine's addresses.
const CLIENT: [&str; 2] = ["198.51.100.2", "2001:db8:51::2"];
/// The port on which the other machine serves.
const CLIENT_PORT: u16 = 80;

pub fn ping(from: &Attached, to: &Attached) -> bool {
    let reached = to.addresses().into_iter().map(|address| {
        let reached = from.container.reaches(&address.to_string());
        let answer = if reached { good("answers") } else { bad("is silent") };
        println!("  {:4} → {:4} {address:<16} {answer}", from.container.id, to.container.id);
        reached
    });
    // Every one is tried and shown.
    !reached.collect::<Vec<_>>().contains(&false)
}

/// The service in web is reached through host ports from the host, another machine, the other container and web itself.
/// Packets from web to outside have the host's address.
pub fn everywhere(lab: &Lab, client: &Netns, web: &Attached, db: &Attached) -> bool {
    let mut servers = Vec::new();
    for address in web.addresses() {
        servers.push(web.container.serve_tcp("web", &at(address, TCP.1)));
        servers.push(web.container.serve_udp("web", &at(address, UDP.1)));
    }
    servers.extend(CLIENT.map(|address| client.serve_tcp("client", &at(parsed(address), CLIENT_PORT))));

    let mut table = Table::new();
    for host in HOST.map(parsed) {
        for (who, netns) in
            [("host", lab.host()), ("client", client), ("db", &db.container), ("web", &web.container)]
        {
            table.row(who, netns, "tcp", at(host, TCP.0), "web", None);
            table.row(who, netns, "udp", at(host, UDP.0), "web", None);
        }
    }
    table.row("host", lab.host(), "tcp", at(parsed("127.0.0.1"), TCP.0), "web", None);
    for (far, seen_as) in CLIENT.into_iter().zip(HOST) {
        table.row("web", &web.container, "tcp", at(parsed(far), CLIENT_PORT), "client", Some(seen_as));
    }
    table.all_answered
}

struct Table {
    all_answered: bool,
}

impl Table {
    fn new() -> Self {
        println!("  {:<8} {:<5} {:<26} {:<12} SEEN THERE AS", "FROM", "VIA", "TO", "ANSWERED BY");
        Self { all_answered: true }
    }

    /// Connects, and shows the server's name and the client's address as the server sees it, which must be `seen_as`.
    fn row(&mut self, who: &str, from: &Netns, via: &str, to: String, expected: &str, seen_as: Option<&str>) {
        let answer = if via == "tcp" { tcp_says(from, &to) } else { udp_says(from, &to) };
        let answer = answer.unwrap_or_else(|| "nobody -".to_owned());
        let (by, seen) = answer.split_once(' ').unwrap_or((&answer, ""));
        let fine = by == expected && seen_as.is_none_or(|expected| expected == seen);
        self.all_answered &= fine;
        let by = if fine { good(&format!("{by:<12}")) } else { bad(&format!("{by:<12}")) };
        println!("  {who:<8} {via:<5} {to:<26} {by} {seen}");
    }
}

fn at(address: IpAddr, port: u16) -> String {
    SocketAddr::new(address, port).to_string()
}

fn parsed(address: &str) -> IpAddr {
    address.parse().expect("an address of the lab")
}
