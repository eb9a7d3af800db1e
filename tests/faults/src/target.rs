//! A target of the sweeps: a network, and the part of it that is hit.

use std::path::PathBuf;

use lab::dhcp::has_dnsmasq;
use lab::{Call, Container, Feature, Lab, firewalld, ours, skip, together, under_test};
use serde_json::{Value, json};

use crate::cnitool;
use crate::plugin_file::PluginFile;
use crate::services::Services;

/// The interface that is attached.
pub const IFNAME: &str = "eth0";

/// A plugin with everything that the sweeps need to know. `targets.rs` lists them.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: &'static str,
    /// The plugins of the network, up to the one that is hit.
    pub network: Vec<Value>,
    pub hit: Hit,
    /// Ferrule's separate executables, which start their IPAM plugin as a process, whatever else is under test.
    pub single: bool,
    /// Preparations on the host, as lines for `sh`.
    pub host: &'static str,
    /// The kernel features that it needs.
    pub needs: &'static [Feature],
    /// The backend of the target's rules, if it has any.
    pub backend: Option<&'static str>,
    /// Whether Debian's firewalld runs on the host. The rules of its zones are part of the compared state.
    pub firewalld: bool,
    /// Whether the target translates addresses of connections.
    pub translates: bool,
    /// Whether addresses come from a DHCP server. The server and the daemon run during the sweep.
    pub dhcp: bool,
    /// Whether the iptables tools are the legacy ones.
    pub legacy: bool,
    /// The host ports of the attachment that stays.
    pub staying_ports: StayingPorts,
    /// Differences in the configuration of that attachment.
    pub staying_changes: Value,
    /// The network of that attachment. Empty: the same one.
    pub staying_network: Vec<Value>,
    /// Whether no attachment stays: ADD creates the objects that attachments share, and DEL removes the last rules.
    pub alone: bool,
    /// A shared link on the host that DEL keeps. It is deleted before each hit ADD, which creates it again.
    pub creates: Option<&'static str>,
    /// Its files on disk.
    pub state: Option<StateFiles>,
    /// The capabilities that each command needs, with these changes of the configuration (null: without that key).
    pub capabilities: Vec<(Value, [Capabilities; COMMANDS.len()])>,
}

/// The commands of the protocol, in the order of [`Target::capabilities`].
pub const COMMANDS: [&str; 5] = ["ADD", "DEL", "CHECK", "GC", "STATUS"];

/// Names of setpriv(1).
pub type Capabilities = &'static [&'static str];

/// The part of a network that is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// Its last plugin.
    Plugin,
    /// The plugin to which its last plugin delegates.
    Delegate(&'static str),
    /// Programs that its last plugin starts.
    Tools(&'static [&'static str]),
    /// cnitool, which runs all plugins.
    Runtime,
}

/// The host ports of the attachment that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StayingPorts {
    /// Other ports.
    Others,
    /// The same ports, claimed earlier: it waits while the attachment under test exists.
    Older,
    /// The same ports, claimed again after the ADD of the attachment under test, which waits from then on.
    Newer,
}

/// A plugin's directory, and the files that it reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct StateFiles {
    pub directory: &'static str,
    pub files: &'static [PluginFile],
}

impl Default for Target {
    fn default() -> Self {
        Self {
            name: "",
            network: Vec::new(),
            hit: Hit::Plugin,
            single: false,
            host: "",
            needs: &[],
            backend: None,
            firewalld: false,
            translates: false,
            dhcp: false,
            legacy: false,
            staying_ports: StayingPorts::Others,
            staying_changes: json!({}),
            staying_network: Vec::new(),
            alone: false,
            creates: None,
            state: None,
            capabilities: Vec::new(),
        }
    }
}

impl Target {
    /// All targets that can run here: the executables exist, and the kernel has the features. A plugin that delegates
    /// occurs twice: with its IPAM plugin in its own process, and as a separate process.
    pub fn all() -> Vec<Self> {
        Self::of(|_| true)
    }

    /// The selected targets. Those that cannot run here are reported as skipped, with the reason.
    pub fn of(expected: impl Fn(&Self) -> bool) -> Vec<Self> {
        let all = crate::targets::all().into_iter().flat_map(Self::in_all_layouts);
        let (mut here, mut left_out) = (Vec::new(), Vec::new());
        for target in all.filter(|target| expected(target)) {
            match target.lacks() {
                Some(why) => left_out.push(format!("{} ({why})", target.title())),
                None => here.push(target),
            }
        }
        if !left_out.is_empty() {
            skip(&format!("not tried: {}", left_out.join(", ")));
        }
        here
    }

    /// Whether it needs a kind of link that some kernels lack, or VLANs of a bridge. `make test-vm` runs these.
    pub fn is_of_a_rare_kind(&self) -> bool {
        const RARE: [Feature; 5] =
            [Feature::Ipvlan, Feature::Vlan, Feature::Dummy, Feature::Vrf, Feature::BridgeVlanFiltering];
        self.needs.iter().any(|feature| RARE.contains(feature))
    }

    fn in_all_layouts(self) -> impl Iterator<Item = Self> {
        let single = Self { single: true, ..self.clone() };
        let both = self.delegates() && self.hit == Hit::Plugin && under_test().dir == together();
        [Some(self), both.then_some(single)].into_iter().flatten()
    }

    /// Targets whose last plugin itself is hit, with an attachment that stays and does not claim its ports.
    pub fn plugins() -> Vec<Self> {
        Self::of(Self::is_of_a_plugin)
    }

    /// The same, with those that cannot run here.
    pub fn all_plugins() -> Vec<Self> {
        crate::targets::all().into_iter().filter(Self::is_of_a_plugin).collect()
    }

    /// Whether it is one of [`Target::all_plugins`].
    pub fn is_of_a_plugin(&self) -> bool {
        self.hit == Hit::Plugin && self.staying_ports == StayingPorts::Others && !self.single && !self.alone
    }

    /// Its name in figures and findings.
    pub fn title(&self) -> String {
        let layout = if self.single { ", IPAM plugin started" } else { "" };
        format!("{}{layout}", self.name)
    }

    /// The directory of its executables.
    pub fn dir(&self) -> PathBuf {
        if self.single { ours() } else { under_test().dir.clone() }
    }

    /// Whether the last plugin calls another one.
    fn delegates(&self) -> bool {
        let delegate = self.network.last().and_then(|plugin| plugin["ipam"]["type"].as_str());
        self.plugin() == "flannel" || delegate.is_some_and(|delegate| delegate != self.plugin())
    }

    /// Whether another plugin starts the one that is hit.
    pub fn is_started_by_a_plugin(&self) -> bool {
        matches!(self.hit, Hit::Delegate(_) | Hit::Tools(_))
    }

    /// Why the target cannot run here.
    pub fn lacks(&self) -> Option<String> {
        self.executables_lack().or_else(|| self.machine_lacks())
    }

    /// What the kernel and the installed programs lack for the target.
    fn machine_lacks(&self) -> Option<String> {
        let feature = self.needs.iter().find(|feature| !feature.is_there());
        let of_kernel = feature.map(|feature| format!("this kernel has no {feature}"));
        of_kernel
            .or_else(|| firewalld::lacks().filter(|_| self.firewalld).map(str::to_owned))
            .or_else(|| (self.runs_dnsmasq() && !has_dnsmasq()).then(|| "dnsmasq is missing".to_owned()))
    }

    fn runs_dnsmasq(&self) -> bool {
        self.dhcp || self.plugin() == "dnsname"
    }

    /// What the executables under test lack for the target.
    fn executables_lack(&self) -> Option<String> {
        let why = match (under_test().reference, self.hit) {
            (true, Hit::Runtime) => "cnitool is always Ferrule's",
            (true, _) if self.backend == Some("nftables") => "of the reference, only iptables is tested",
            (true, _) if self.dhcp => "the reference's daemon cannot list its leases",
            (true, _) if self.needs.contains(&Feature::Macvtap) => "the reference ignores the key tap",
            // No case could be cleaned up.
            (true, _) if self.name == "host-device" => "the reference's DEL fails if there is nothing to do",
            _ if !self.dir().join(self.plugin()).exists() => {
                return Some(format!("{} has no {}", self.dir().display(), self.plugin()));
            }
            _ => return None,
        };
        Some(why.to_owned())
    }

    /// The name of the network's last plugin.
    pub fn plugin(&self) -> &str {
        self.network.last().and_then(|plugin| plugin["type"].as_str()).expect("a network with a plugin")
    }

    /// Whether cnitool is called.
    pub fn is_runtime(&self) -> bool {
        self.hit == Hit::Runtime
    }

    /// The commands to test. For the reference, those that both of its releases have. cnitool's GC
    /// looks for dead containers, and those of the sweeps are alive.
    pub fn commands(&self) -> impl Iterator<Item = &'static str> + use<> {
        let (count, runtime) = (if under_test().reference { 3 } else { COMMANDS.len() }, self.is_runtime());
        COMMANDS.into_iter().take(count).filter(move |command| !runtime || *command != "GC")
    }

    /// Prepares the host for the network. The services end when the result is dropped.
    #[must_use]
    pub fn prepare(&self, lab: &Lab) -> Services {
        if self.legacy {
            lab.host().sh("mount --bind /usr/sbin/xtables-legacy-multi /usr/sbin/xtables-nft-multi");
        }
        lab.host().sh(self.host);
        if self.is_runtime() {
            cnitool::install(lab, &self.network);
        }
        Services::start(self, lab)
    }

    /// The call of the target, after the ADDs of the plugins before it in the chain.
    pub fn call(&self, container: &Container) -> Call {
        let runtime = [json!({"type": cnitool::TOOL})];
        let plugins = if self.is_runtime() { &runtime[..] } else { &self.network };
        let (last, earlier) = plugins.split_last().expect("a network with a plugin");
        let mut prev = Value::Null;
        for plugin in earlier {
            prev = self.call_of(plugin, container).config(json!({"prevResult": prev})).add().ok_result();
        }
        self.call_of(last, container).config(json!({"prevResult": prev}))
    }

    /// The call of a plugin. It finds the lab's own delegates first.
    fn call_of(&self, plugin: &Value, container: &Container) -> Call {
        let name = plugin["type"].as_str().expect("a plugin's type");
        let version = if under_test().reference { "1.0.0" } else { "1.1.0" };
        let dir = self.dir();
        let path = format!("{}:{}", Lab::plugin_dir().display(), dir.display());
        let call = Call::new(name).in_dir(&dir).config(plugin.clone()).version(version);
        let call = call.env("CNI_PATH", &path).on(container).ifname(IFNAME);
        if self.firewalld { call.env("DBUS_SYSTEM_BUS_ADDRESS", firewalld::BUS) } else { call }
    }

    /// The target with changed keys in the configuration of the last plugin. null removes a key.
    pub fn with(&self, keys: &Value) -> Self {
        let mut other = self.clone();
        let plugin =
            other.network.last_mut().and_then(Value::as_object_mut).expect("a network with a plugin");
        for (key, value) in keys.as_object().expect("keys of a configuration") {
            plugin.insert(key.clone(), value.clone());
        }
        plugin.retain(|_, value| !value.is_null());
        other
    }

    /// The target for the attachment that stays. Its host ports are the next ones, unless both claim the same.
    pub fn of_the_staying_attachment(&self) -> Self {
        if !self.staying_network.is_empty() {
            return Self { network: self.staying_network.clone(), ..self.clone() };
        }
        let mut other = self.with(&self.staying_changes);
        if self.staying_ports != StayingPorts::Others {
            return other;
        }
        let mappings = other.network.iter_mut().filter_map(|plugin| {
            plugin.pointer_mut("/runtimeConfig/portMappings").and_then(Value::as_array_mut)
        });
        for mapping in mappings.flatten() {
            mapping["hostPort"] = json!(mapping["hostPort"].as_u64().map(|port| port + 1));
        }
        other
    }
}
