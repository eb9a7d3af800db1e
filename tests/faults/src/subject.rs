//! What is swept: the plugins of a network, and which of them is made to fail.

use serde_json::{Value, json};

use super::manager::TOOL;
use lab::under_test;

/// The UDP port of the host that portmap leads to the container.
pub const HOST_PORT: u16 = 5353;

/// A network, and the plugin of it that is hit.
#[derive(Clone, Debug)]
pub struct Subject {
    pub name: &'static str,
    /// The network's plugins up to the one that is hit.
    pub plugins: Vec<Value>,
    /// Not the last plugin is hit but the one that it delegates to.
    pub delegate: Option<&'static str>,
    /// Not the last plugin is hit but programs that it starts.
    pub tools: &'static [&'static str],
    /// The iptables tools are those of before nf_tables.
    pub legacy: bool,
    /// Whether what is hit sets up that connections are led elsewhere, or seen under another address.
    pub translates: bool,
    /// What the attachment that stays all the time claims.
    pub beside: Beside,
}

/// The host ports of the attachment that stays, beside those of the one that is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Other ones.
    Others,
    /// The same, claimed before: it waits while the other one is there.
    Older,
    /// The same, claimed again after the other one's ADD, which waits from then on.
    Newer,
}

impl Subject {
    fn of(name: &'static str, plugins: Vec<Value>) -> Self {
        Self {
            name,
            plugins,
            delegate: None,
            tools: &[],
            legacy: false,
            translates: false,
            beside: Beside::Others,
        }
    }

    /// The address plugin and what calls it.
    pub fn bridge() -> Self {
        Self {
            name: "bridge",
            plugins: vec![bridge(json!({}))],
            delegate: None,
            tools: &[],
            legacy: false,
            translates: false,
            beside: Beside::Others,
        }
    }

    /// The same, hit in the delegate.
    pub fn delegated() -> Self {
        Self { name: "host-local under bridge", delegate: Some("host-local"), ..Self::bridge() }
    }

    /// iptables-restore in the family that comes second, while the first one's rules are there already.
    pub fn tool() -> Self {
        let tools = &["ip6tables-restore"];
        Self { name: "ip6tables-restore under bridge", tools, ..Self::guarded("iptables") }
    }

    /// The same for host ports, in the family that comes first.
    pub fn tool_of_portmap() -> Self {
        let tools = &["iptables-restore"];
        Self { name: "iptables-restore under portmap", tools, ..Self::portmap("iptables") }
    }

    /// The variant of before nf_tables, in both families.
    pub fn legacy_tool() -> Self {
        let tools =
            &["iptables-restore", "ip6tables-restore", "iptables-legacy-restore", "ip6tables-legacy-restore"];
        let name = "iptables-legacy-restore under portmap";
        Self { name, tools, legacy: true, ..Self::portmap("iptables") }
    }

    pub fn guarded(backend: &str) -> Self {
        let name = if backend == "nftables" {
            "bridge, ipMasq, macspoofchk, nftables"
        } else {
            "bridge, ipMasq, macspoofchk, iptables"
        };
        let keys = json!({"ipMasq": true, "ipMasqBackend": backend, "macspoofchk": true});
        Self {
            name,
            plugins: vec![bridge(keys)],
            delegate: None,
            tools: &[],
            legacy: false,
            translates: true,
            beside: Beside::Others,
        }
    }

    pub fn portmap(backend: &str) -> Self {
        let name = if backend == "nftables" { "portmap, nftables" } else { "portmap, iptables" };
        let mappings = json!([
            {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": HOST_PORT, "containerPort": 53, "protocol": "udp"},
        ]);
        let portmap = json!({
            "type": "portmap", "backend": backend, "snat": true, "capabilities": {"portMappings": true},
            "runtimeConfig": {"portMappings": mappings},
        });
        Self {
            name,
            plugins: vec![bridge(json!({})), portmap],
            delegate: None,
            tools: &[],
            legacy: false,
            translates: true,
            beside: Beside::Others,
        }
    }

    /// Host ports that two attachments claim: when the one that is hit is gone, they lead to the one that stays. No datagrams: they
    /// would be the one's or the other's, as it comes.
    pub fn claimed(backend: &str, beside: Beside) -> Self {
        let name = match (backend, beside) {
            ("nftables", Beside::Newer) => "portmap, a port that a newer attachment claims, nftables",
            ("nftables", _) => "portmap, a port that an older attachment claims, nftables",
            (_, Beside::Newer) => "portmap, a port that a newer attachment claims, iptables",
            _ => "portmap, a port that an older attachment claims, iptables",
        };
        Self { name, translates: false, beside, ..Self::portmap(backend) }
    }

    pub fn tuning() -> Self {
        let tuning = json!({
            "type": "tuning", "mtu": 1400, "mac": "02:00:00:00:00:77", "promisc": true, "allmulti": true,
            "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1", "net.core.somaxconn": "500"},
        });
        Self {
            name: "tuning",
            plugins: vec![bridge(json!({})), tuning],
            delegate: None,
            tools: &[],
            legacy: false,
            translates: false,
            beside: Beside::Others,
        }
    }

    pub fn loopback() -> Self {
        Self::of("loopback", vec![json!({"type": "loopback"})])
    }

    /// A chain, hit in the runtime that calls it.
    pub fn managed() -> Self {
        Self {
            name: "cnitool",
            plugins: vec![json!({"type": TOOL})],
            delegate: None,
            tools: &[],
            legacy: false,
            translates: false,
            beside: Beside::Others,
        }
    }

    /// The plugins of that chain. A MAC address that tuning sets is not the one that bridge guards.
    pub(super) fn chain() -> Vec<Value> {
        let [mut bridge, tuning] = [Self::guarded("nftables"), Self::tuning()].map(|subject| subject.plugins);
        let mut tuning = tuning.last().cloned().unwrap_or_default();
        tuning["mac"].take();
        bridge.push(tuning);
        bridge
    }

    /// Whether there is something to hit. cnitool is ours, whoever is under test, and the reference that is tested knows
    /// iptables only.
    pub fn is_there(&self) -> bool {
        if under_test().reference && (self.is_managed() || self.name.ends_with("nftables")) {
            return false;
        }
        let name = self.target()["type"].as_str().unwrap_or_default();
        self.is_managed() || under_test().dir.join(name).exists()
    }

    /// Whether cnitool is called.
    pub(super) fn is_managed(&self) -> bool {
        self.target()["type"] == TOOL
    }

    /// All of them.
    pub fn all() -> Vec<Self> {
        vec![
            Self::loopback(),
            Self::bridge(),
            Self::delegated(),
            Self::guarded("nftables"),
            Self::guarded("iptables"),
            Self::tuning(),
            Self::portmap("nftables"),
            Self::portmap("iptables"),
            Self::claimed("nftables", Beside::Older),
            Self::claimed("nftables", Beside::Newer),
            Self::claimed("iptables", Beside::Older),
            Self::claimed("iptables", Beside::Newer),
            Self::tool(),
            Self::tool_of_portmap(),
            Self::legacy_tool(),
            Self::managed(),
        ]
    }

    /// The same for the attachment beside it: its host ports are the next ones, unless both claim the same.
    pub fn of_the_one_beside(&self) -> Self {
        let mut other = self.clone();
        if self.beside != Beside::Others {
            return other;
        }
        let mappings = other.plugins.iter_mut().filter_map(|plugin| {
            plugin.pointer_mut("/runtimeConfig/portMappings").and_then(Value::as_array_mut)
        });
        for mapping in mappings.flatten() {
            mapping["hostPort"] = json!(mapping["hostPort"].as_u64().map(|port| port + 1));
        }
        other
    }

    /// The plugin that is called.
    pub fn target(&self) -> &Value {
        self.plugins.last().expect("a plugin")
    }
}

fn bridge(keys: Value) -> Value {
    let mut bridge = json!({
        "type": "bridge", "bridge": "br0", "isDefaultGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00:1:2::/64"}]]},
    });
    let target = bridge.as_object_mut().expect("an object");
    target.extend(keys.as_object().expect("an object").clone());
    bridge
}
