//! What is drawn, whatever it is drawn with.

use std::collections::BTreeMap;

use cni::{AddResult, Interface as Reported};
use netlink::{Link, LinkKind};
use runtime::Entry;
use serde_json::{Value, json};

use crate::live::{Live, state};
use crate::ports::mapped_ports;

/// Everything in the picture.
#[derive(Debug, Default, PartialEq)]
pub struct Graph {
    /// What host ends hang on: bridges, or the host itself.
    pub trunks: Vec<Trunk>,
    /// Container namespaces.
    pub containers: Vec<Container>,
}

/// A bridge of the host, or another thing that several attachments share.
#[derive(Debug, PartialEq)]
pub struct Trunk {
    pub name: String,
    pub kind: String,
    pub state: &'static str,
    pub addresses: Vec<String>,
}

/// A namespace with its interfaces.
#[derive(Debug, PartialEq)]
pub struct Container {
    pub id: String,
    pub netns: String,
    pub alive: bool,
    pub interfaces: Vec<Interface>,
}

/// An attachment.
#[derive(Debug, PartialEq)]
pub struct Interface {
    pub name: String,
    pub network: String,
    pub state: &'static str,
    pub addresses: Vec<String>,
    /// `hostIP:hostPort/protocol → containerPort`
    pub ports: Vec<String>,
    /// The interface's other end.
    pub host_end: Option<String>,
    /// Position in [`Graph::trunks`].
    pub trunk: usize,
}

impl Graph {
    /// Draws from results, and from what the kernel has.
    pub fn of(entries: &[Entry], host: &Live) -> Self {
        let mut graph = Self::default();
        let mut containers: BTreeMap<(String, String), Vec<Interface>> = BTreeMap::new();
        let mut alive = BTreeMap::new();
        for entry in entries {
            let netns =
                entry.attach.netns.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
            let key = (entry.attach.attachment.container.to_string(), netns);
            let inside = entry.attach.netns.as_deref().and_then(Live::at);
            alive.insert(key.clone(), inside.is_some());
            let interface = graph.interface(entry, host, inside.as_ref());
            containers.entry(key).or_default().push(interface);
        }
        let container = |((id, netns), interfaces): ((String, String), _)| {
            let alive = alive.get(&(id.clone(), netns.clone())).copied().unwrap_or_default();
            Container { id, netns, alive, interfaces }
        };
        graph.containers = containers.into_iter().map(container).collect();
        graph
    }

    /// The picture's parts, for programs.
    pub fn json(&self) -> Value {
        let trunk =
            |t: &Trunk| json!({"name": t.name, "kind": t.kind, "state": t.state, "addresses": t.addresses});
        let interface = |i: &Interface| {
            json!({
                "name": i.name, "network": i.network, "state": i.state, "addresses": i.addresses, "ports": i.ports,
                "hostEnd": i.host_end, "trunk": self.trunks[i.trunk].name,
            })
        };
        let container = |c: &Container| {
            let interfaces: Vec<Value> = c.interfaces.iter().map(interface).collect();
            json!({"containerID": c.id, "netns": c.netns, "alive": c.alive, "interfaces": interfaces})
        };
        json!({
            "trunks": self.trunks.iter().map(trunk).collect::<Vec<_>>(),
            "containers": self.containers.iter().map(container).collect::<Vec<_>>(),
        })
    }

    fn interface(&mut self, entry: &Entry, host: &Live, inside: Option<&Live>) -> Interface {
        let result = entry.result().unwrap_or_default();
        let name = entry.attach.attachment.ifname.as_str();
        let (shared, host_end) = sort(&result, host);
        let trunk = match shared {
            Some(link) => self.trunk(&link.name, Some(&link), host),
            None => self.trunk("host", None, host),
        };
        let addresses = result.ips_of(name);
        Interface {
            name: name.to_owned(),
            network: entry.network.to_string(),
            state: inside.and_then(|live| live.link(name)).map_or("gone", state),
            addresses: addresses.map(|ip| ip.address.to_string()).collect(),
            ports: mapped_ports(entry),
            host_end: host_end.map(|interface| interface.name.clone()),
            trunk,
        }
    }

    /// The position of a trunk, which is added when it is seen first.
    fn trunk(&mut self, name: &str, link: Option<&Link>, host: &Live) -> usize {
        if let Some(found) = self.trunks.iter().position(|trunk| trunk.name == name) {
            return found;
        }
        let addresses = link.map(|link| {
            host.addresses_of(link).filter(|a| a.scope == 0).map(|a| a.net.to_string()).collect()
        });
        self.trunks.push(Trunk {
            name: name.to_owned(),
            kind: link.map_or("without a bridge", |link| link.kind_name().unwrap_or_default()).to_owned(),
            state: link.map_or("up", |link| if link.index == 0 { "gone" } else { state(link) }),
            addresses: addresses.unwrap_or_default(),
        });
        self.trunks.len() - 1
    }
}

/// Of a result's interfaces on the host: the bridge that is shared, and the host end that is a port of it. What the
/// kernel does not know any more is told by the order that plugins report them in: the bridge first.
fn sort<'a>(result: &'a AddResult, host: &Live) -> (Option<Link>, Option<&'a Reported>) {
    let on_host: Vec<&Reported> = result.host_interfaces().collect();
    let is_bridge = |name: &str| host.link(name).is_some_and(|link| link.is("bridge"));
    let end = on_host.iter().rfind(|i| !is_bridge(&i.name)).copied();
    let master = end.and_then(|end| host.master(host.link(&end.name)?));
    let reported = on_host.iter().find_map(|i| host.link(&i.name).filter(|link| link.is("bridge")));
    if let Some(link) = master.or(reported) {
        return (Some(link.clone()), end);
    }
    match on_host[..] {
        [shared, .., end] => {
            let kind = Some(LinkKind::Bridge { vlan_filtering: false });
            let gone = Link { name: shared.name.clone(), kind, ..Link::default() };
            (Some(gone), Some(end))
        }
        _ => (None, end),
    }
}
