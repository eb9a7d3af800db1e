//! Host ports of an attachment's ADD request, and whether their rules exist.

use std::net::{IpAddr, SocketAddr};

use cni::{AsWritten, Code, addr, json};
use netfilter::{Firewall, HostPorts, Owner};
use portmap::Conf;
use runtime::Entry;
use serde_json::{Value, json};

/// The capability that lets a plugin forward ports.
const CAPABILITY: &str = "portMappings";

/// A port mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Empty: all addresses of the host.
    host_ip: String,
    host_port: u64,
    container_port: u64,
    protocol: String,
    state: State,
}

/// The destination of packets to the port.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    ToContainer,
    /// The rules are not those that ADD installed.
    Missing,
    /// Another attachment has requested the same port, and receives the packets.
    Taken(String),
    /// No plugin of the network declares the capability, so ADD did not get the port.
    NotForwarded,
    /// The container has exited, or the plugin is not portmap.
    Unknown,
    /// The rules cannot be read: the cause.
    Unread(String),
}

impl Port {
    /// The ports in an attachment's ADD request.
    pub fn of(entry: &Entry) -> Vec<Self> {
        let mappings = mappings(entry);
        let rules = rules(entry);
        let port = |mapping: &Value| {
            let mut port = Self::read(mapping);
            port.state = match &rules {
                Ok(Rules::Whole { taken }) => {
                    let holder = taken.iter().find_map(|line| port.holder_in(line));
                    holder.map_or(State::ToContainer, State::Taken)
                }
                Ok(Rules::NotRequested) => State::NotForwarded,
                Ok(Rules::Unknown) => State::Unknown,
                Err(e) if is_difference(e) => State::Missing,
                Err(e) => State::Unread(e.to_string()),
            };
            port
        };
        mappings.iter().map(port).collect()
    }

    /// A mapping as the runtime writes it.
    pub fn read(mapping: &Value) -> Self {
        let number = |key| json::member(mapping, key).and_then(Value::as_u64).unwrap_or_default();
        let text = |key| json::member(mapping, key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let protocol = Some(text("protocol").to_ascii_lowercase()).filter(|protocol| !protocol.is_empty());
        Self {
            host_ip: text("hostIP"),
            host_port: number("hostPort"),
            container_port: number("containerPort"),
            protocol: protocol.unwrap_or_else(|| "tcp".to_owned()),
            state: State::Unknown,
        }
    }

    /// The new holder of the port, if this line of [`Firewall::taken`] is about it: `HOLDER has it now: map tcp 8080
    /// to 10.1.0.5:80`, or with an address of the host `tcp 192.0.2.1:8080`.
    fn holder_in(&self, line: &str) -> Option<String> {
        let (holder, rule) = line.split_once(" has it now: ")?;
        let text = rule.split(' ').skip_while(|word| *word != self.protocol).nth(1)?;
        let (address, port) = match text.parse::<SocketAddr>() {
            Ok(socket) => (Some(socket.ip()), socket.port()),
            Err(_) => (None, text.parse().ok()?),
        };
        let is_same = address == self.address() && u64::from(port) == self.host_port;
        is_same.then(|| holder.to_owned())
    }

    /// The address of the host. None: all of its addresses.
    fn address(&self) -> Option<IpAddr> {
        addr::parse_host_ip(&self.host_ip)
    }

    /// `HOSTIP:HOSTPORT/PROTOCOL → PORT`, and the problem if there is one.
    pub fn text(&self) -> String {
        let Self { host_ip, host_port, container_port, protocol, state } = self;
        let host_ip = if host_ip.is_empty() { "*" } else { host_ip };
        let state = match state {
            State::ToContainer | State::Unknown => String::new(),
            State::Missing => " missing".to_owned(),
            State::Taken(holder) => format!(" taken by {holder}"),
            State::NotForwarded => {
                format!(" not forwarded: no plugin of the network declares {CAPABILITY}")
            }
            State::Unread(cause) => format!(", rules cannot be read: {cause}"),
        };
        format!("{host_ip}:{host_port}/{protocol} → {container_port}{state}")
    }

    pub fn is_missing(&self) -> bool {
        self.state == State::Missing
    }

    /// Why the port's rules cannot be read. None if they can.
    pub fn cause(&self) -> Option<&str> {
        match &self.state {
            State::Unread(cause) => Some(cause),
            _ => None,
        }
    }

    pub fn json(&self) -> Value {
        let (state, holder) = match &self.state {
            State::ToContainer => (Some("there"), None),
            State::Missing => (Some("missing"), None),
            State::Taken(holder) => (Some("taken"), Some(holder)),
            State::NotForwarded => (Some("notForwarded"), None),
            State::Unknown | State::Unread(_) => (None, None),
        };
        json!({
            "hostIP": Some(&self.host_ip).filter(|ip| !ip.is_empty()),
            "hostPort": self.host_port,
            "protocol": self.protocol,
            "containerPort": self.container_port,
            "state": state,
            "takenBy": holder,
        })
    }
}

fn mappings(entry: &Entry) -> &[Value] {
    let mappings = entry.attach.capability_args.get(CAPABILITY).and_then(Value::as_array);
    mappings.map(Vec::as_slice).unwrap_or_default()
}

/// The rules of an attachment's host ports.
enum Rules {
    /// The rules are those that ADD installed. `taken` are the ports that other attachments have ([`Firewall::taken`]).
    Whole { taken: Vec<String> },
    /// No plugin of the network declares the capability.
    NotRequested,
    /// The container has exited, or the plugin is not portmap.
    Unknown,
}

/// The rules of an attachment's host ports, compared with the ruleset.
///
/// # Errors
/// If the rules are not those that ADD installed ([`is_difference`]), or cannot be read.
fn rules(entry: &Entry) -> runtime::Result<Rules> {
    if mappings(entry).is_empty() || !entry.exists()? {
        return Ok(Rules::Unknown);
    }
    let network = entry.network()?;
    let mut declaring = network.plugins.iter().filter(|plugin| plugin.capabilities.contains(CAPABILITY));
    if declaring.clone().next().is_none() {
        return Ok(Rules::NotRequested);
    }
    let Some(plugin) = declaring.find(|plugin| plugin.kind.as_str() == "portmap") else {
        return Ok(Rules::Unknown);
    };
    let mut request = json::parse(&network.request(plugin)?, "the request")?;
    request["runtimeConfig"] = json!({CAPABILITY: mappings(entry)});
    let conf = Conf::try_from(AsWritten::from(request))?;
    let at = &entry.attach.attachment;
    let Some(ports) = conf.host_ports(&entry.result()?, &at.ifname)? else { return Ok(Rules::Unknown) };
    let firewall = Firewall::open_for(HostPorts::KIND, conf.backend)?;
    Ok(Rules::Whole { taken: firewall.taken(&Owner::new(&entry.network, at), &ports)? })
}

/// Whether an error of [`Firewall::taken`] reports rules that are missing or changed. The remedy in its details shows
/// this. The iptables tools also fail with this remedy if they lack a capability.
fn is_difference(error: &runtime::Error) -> bool {
    error.failures().any(|failure| {
        let (error, details) = (&failure.error, failure.error.details());
        error.code() == Code::Internal as u32
            && details.contains("`cnitool repair")
            && !details.contains("CAP_NET_ADMIN")
    })
}
