//! dnsname: containers of one network reach each other by name.

mod bad_input;
mod clients;
mod damage;
mod input;
mod lifecycle;
mod names;
mod repairs;
mod rootless;
mod upgrade;

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use lab::dhcp::{Background, in_background, started_by};
use lab::{Call, Container, Lab, Netns, Outcome, Tool, quoted, unpacked};
use serde_json::{Value, json};

use crate::common::host_local;

/// The directory with the names of all networks.
const DIRECTORIES: &str = "/run/containers/cni/dnsname";

/// Whether nothing has the name of a network's directory, not even a link that leads nowhere.
fn is_gone(network: &str) -> bool {
    let error = fs::symlink_metadata(Path::new(DIRECTORIES).join(network)).unwrap_err();
    error.kind() == std::io::ErrorKind::NotFound
}

/// The gateways of the network. Its server listens on these addresses.
const SERVERS: [&str; 2] = ["10.1.2.1", "fd00:1:2::1"];

/// A bridge with both families, and dnsname with these keys.
fn network(keys: &Value) -> Value {
    named("net", "br0", &[&["10.1.2.0/24"], &["fd00:1:2::/64"]], keys)
}

/// A network with a separate bridge.
fn named(name: &str, bridge: &str, sets: &[&[&str]], keys: &Value) -> Value {
    let bridge =
        json!({"type": "bridge", "bridge": bridge, "isDefaultGateway": true, "ipam": host_local(sets)});
    chained(name, &bridge, keys)
}

/// A network with another interface plugin, and dnsname.
fn chained(name: &str, first: &Value, keys: &Value) -> Value {
    let mut dnsname = json!({"type": "dnsname", "domainName": "dns.test", "capabilities": {"aliases": true}});
    for (key, value) in keys.as_object().unwrap() {
        dnsname[key] = value.clone();
    }
    json!({"cniVersion": "1.0.0", "name": name, "plugins": [first, dnsname]})
}

/// A call of dnsname itself for a container that bridge has attached.
fn after_bridge(lab: &Lab, pod: &Container) -> Call {
    let network = network(&json!({}));
    let prev = lab.plugin("bridge").config(network["plugins"][0].clone()).on(pod).add().ok_result();
    let call = lab.plugin("dnsname").config(network["plugins"][1].clone()).on(pod);
    call.args("K8S_POD_NAME=pod").config(json!({"prevResult": prev}))
}

/// Networks of a lab, whose plugins are called as a runtime does.
struct Networks {
    tool: Tool,
}

impl Networks {
    fn new(lab: &Lab, networks: &[Value]) -> Self {
        for network in networks {
            lab.configure(&format!("{}.conflist", network["name"].as_str().unwrap()), network);
        }
        Self { tool: lab.cnitool() }
    }

    /// The tool, with a name and aliases for the container that it attaches.
    fn tool_for(&self, name: &str, aliases: &[&str]) -> Tool {
        let tool = self.tool.clone().env("CAP_ARGS", &json!({"aliases": aliases}).to_string());
        if name.is_empty() {
            tool
        } else {
            tool.env("CNI_ARGS", &format!("IgnoreUnknown=1;K8S_POD_NAME={name}"))
        }
    }

    /// A container on the network `net`.
    fn attach(&self, lab: &Lab, name: &str, aliases: &[&str]) -> (Container, Value) {
        let pod = lab.container(name);
        let result = self.add("net", &pod, name, aliases);
        (pod, result)
    }

    fn add(&self, network: &str, pod: &Container, name: &str, aliases: &[&str]) -> Value {
        let outcome = self.try_add(network, pod, name, aliases);
        outcome.ok_result()
    }

    fn try_add(&self, network: &str, pod: &Container, name: &str, aliases: &[&str]) -> Outcome {
        let line = format!("add {network} {} --container-id {} --output json", pod.id, pod.id);
        self.tool_for(name, aliases).run(&line)
    }

    fn del(&self, network: &str, pod: &Container) {
        self.tool.says(&format!("del {network} {} --container-id {}", pod.id, pod.id));
    }

    fn del_all(&self, pods: &[&Container]) {
        pods.iter().for_each(|pod| self.del("net", pod));
    }
}

/// The addresses of a result, without prefix lengths.
fn bare(result: &Value) -> Vec<String> {
    crate::common::ips(result).iter().map(|ip| ip.split('/').next().unwrap().to_owned()).collect()
}

/// dig of Debian, if it was unpacked.
pub struct Dig(PathBuf);

impl Dig {
    pub fn here() -> Option<Self> {
        unpacked("dns-clients").map(Self)
    }

    /// The answer to a query from a container: a line for each record, sorted.
    pub fn ask(&self, from: &Netns, server: &str, question: &str) -> Vec<String> {
        let mut lines: Vec<_> =
            self.says(from, server, &format!("+short {question}")).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// The output of dig.
    fn says(&self, from: &Netns, server: &str, question: &str) -> String {
        let tree = quoted(&self.0);
        let libraries = format!(
            "{tree}/usr/lib/x86_64-linux-gnu:{tree}/lib/x86_64-linux-gnu:{tree}/usr/lib/aarch64-linux-gnu"
        );
        from.sh(&format!(
            "LD_LIBRARY_PATH={libraries} {tree}/usr/bin/dig +tries=5 +time=10 @{server} {question}"
        ))
    }
}

/// A resolver of the host's, which answers for names below example.test until it is dropped.
fn upstream(lab: &Lab, address: &str) -> Background {
    let arguments = format!(
        "--keep-in-foreground --user=root --conf-file=/dev/null --pid-file= --no-resolv --no-hosts \
         --listen-address={address} --bind-interfaces --address=/example.test/192.0.2.7"
    );
    let command = started_by("/usr/sbin/dnsmasq", &arguments);
    let server = in_background(lab.host(), command, Path::new("/run/lab/upstream.log"));
    lab.host()
        .wait_until("the resolver listens", |host| host.sh("ss -lun").contains(&format!("{address}:53")));
    server
}

/// Runs a command in a container with its own resolv.conf, as a runtime writes it from the result.
fn resolving(pod: &Netns, result: &Value, command: &str) -> String {
    let resolv = format!("/run/lab/resolv.{}", pod.name());
    let list = |key: &str| -> Vec<String> {
        let values = result["dns"][key].as_array().cloned().unwrap_or_default();
        values.iter().map(|value| value.as_str().unwrap().to_owned()).collect()
    };
    let mut text: String =
        list("nameservers").iter().map(|server| format!("nameserver {server}\n")).collect();
    text += &format!("search {}\n", list("search").join(" "));
    fs::write(&resolv, text).unwrap();
    let script = format!("mount --bind {resolv} /etc/resolv.conf; {command}");
    pod.sh(&format!("unshare -m sh -ec {}", quoted(script.as_ref())))
}

/// The process of a network's server.
fn server_of(network: &str) -> Option<String> {
    let pid = fs::read_to_string(Path::new(DIRECTORIES).join(network).join("pidfile")).ok()?;
    let pid = pid.trim().to_owned();
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    // A server that has exited may stay as a zombie, if process 1 does not reap it.
    let runs = fs::read_link(format!("/proc/{pid}/exe")).is_ok();
    (name.trim() == "dnsmasq" && runs).then_some(pid)
}

fn hosts_of(network: &str) -> String {
    fs::read_to_string(Path::new(DIRECTORIES).join(network).join("addnhosts")).unwrap_or_default()
}

/// All networks share the parents of their directories. Podman creates the first parent with access for root only.
fn with_parents() {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(DIRECTORIES).unwrap();
    fs::create_dir_all("/run/ferrule-dnsname").unwrap();
}
