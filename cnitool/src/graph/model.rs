//! Model of the graph, independent of its format.

use std::collections::BTreeMap;

use runtime::Entry;
use serde_json::{Value, json};

use super::trunk::{self, Trunk};
use crate::live::{Live, kind, state};
use crate::ports::Port;
use crate::runtimes;

/// The trunks and containers of a host.
#[derive(Debug, Default, PartialEq)]
pub struct Graph {
    /// The objects to which interfaces are connected: bridges, masters of macvlans, or the host itself.
    pub trunks: Vec<Trunk>,
    /// Container namespaces.
    pub containers: Vec<Container>,
}

/// A namespace with its interfaces.
#[derive(Debug, PartialEq)]
pub struct Container {
    pub id: String,
    pub netns: String,
    /// Whether the namespace exists. None: the namespace cannot be read.
    pub alive: Option<bool>,
    pub runtime: Option<&'static str>,
    pub interfaces: Vec<Interface>,
}

/// An attachment.
#[derive(Debug, PartialEq)]
pub struct Interface {
    pub name: String,
    /// The kind of the interface, unless it is a veth: `macvlan private`.
    pub kind: Option<String>,
    pub network: String,
    pub state: &'static str,
    pub addresses: Vec<String>,
    /// `hostIP:hostPort/protocol → containerPort`
    pub ports: Vec<Port>,
    /// The other end of a veth, on the host.
    pub host_end: Option<String>,
    /// Position in [`Graph::trunks`].
    pub trunk: usize,
}

impl Graph {
    /// Builds the graph from results and the state of the kernel.
    pub fn of(entries: &[Entry], host: &Live) -> Self {
        let mut graph = Self::default();
        let mut containers: BTreeMap<(String, String), Vec<Interface>> = BTreeMap::new();
        let mut known = BTreeMap::new();
        for entry in entries {
            let netns =
                entry.attach.netns.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
            let key = (entry.attach.attachment.container.to_string(), netns);
            let inside = entry.attach.netns.as_deref().map_or(Ok(None), Live::at);
            let alive = inside.as_ref().ok().map(Option::is_some);
            known.insert(key.clone(), (alive, runtimes::of_attachment(entry)));
            let mut interface = graph.interface(entry, host, inside.as_ref().ok().and_then(Option::as_ref));
            if alive.is_none() {
                interface.state = "unknown";
            }
            containers.entry(key).or_default().push(interface);
        }
        let container = |((id, netns), mut interfaces): ((String, String), Vec<Interface>)| {
            interfaces.sort_by(|a, b| a.name.cmp(&b.name));
            let (alive, runtime) = known.get(&(id.clone(), netns.clone())).copied().unwrap_or_default();
            Container { id, netns, alive, runtime, interfaces }
        };
        graph.containers = containers.into_iter().map(container).collect();
        graph
    }

    /// The objects of the graph as JSON.
    pub fn json(&self) -> Value {
        let trunk =
            |t: &Trunk| json!({"name": t.name, "kind": t.kind, "state": t.state, "addresses": t.addresses});
        let interface = |i: &Interface| {
            json!({
                "name": i.name, "kind": i.kind, "network": i.network, "state": i.state, "addresses": i.addresses, "ports": i.ports.iter().map(Port::json).collect::<Vec<_>>(),
                "hostEnd": i.host_end, "trunk": self.trunks[i.trunk].name,
            })
        };
        let container = |c: &Container| {
            let interfaces: Vec<Value> = c.interfaces.iter().map(interface).collect();
            json!({"containerID": c.id, "netns": c.netns, "alive": c.alive, "runtime": c.runtime, "interfaces": interfaces})
        };
        json!({
            "trunks": self.trunks.iter().map(trunk).collect::<Vec<_>>(),
            "containers": self.containers.iter().map(container).collect::<Vec<_>>(),
        })
    }

    fn interface(&mut self, entry: &Entry, host: &Live, inside: Option<&Live>) -> Interface {
        let result = entry.result().unwrap_or_default();
        let at = &entry.attach.attachment;
        let link = inside.and_then(|live| live.link(&at.ifname));
        let (trunk, host_end) = trunk::of(&result, host, inside.zip(link), &at.container);
        Interface {
            name: at.ifname.to_string(),
            kind: link.and_then(kind).filter(|kind| kind != "veth"),
            network: entry.network.to_string(),
            state: link.map_or("gone", state),
            addresses: result.ips_of(&at.ifname).map(|ip| ip.address.to_string()).collect(),
            ports: Port::of(entry),
            host_end,
            trunk: self.add(trunk),
        }
    }

    /// The index of a trunk. Adds the trunk if it is new.
    fn add(&mut self, trunk: Trunk) -> usize {
        let found = self.trunks.iter().position(|other| other.name == trunk.name);
        found.unwrap_or_else(|| {
            self.trunks.push(trunk);
            self.trunks.len() - 1
        })
    }
}

impl Container {
    /// The container id and its owner.
    pub fn title(&self) -> String {
        let of = runtimes::beyond_id(self.runtime).map(|runtime| format!(" of {runtime}"));
        format!("{}{}", self.id, of.unwrap_or_default())
    }
}

impl Interface {
    /// The name and the kind.
    pub fn title(&self) -> String {
        let kind = self.kind.as_ref().map(|kind| format!(" ({kind})"));
        format!("{}{}", self.name, kind.unwrap_or_default())
    }
}
