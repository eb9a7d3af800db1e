//! The effect of each plugin of a chain in the kernel, independent of CHECK, which is the plugins' own judgement.

use std::fs;
use std::path::Path;

use lab::{Container, Netns, tcp_says};
use serde_json::Value;

use super::{EGRESS, GATEWAY, INGRESS, Request, executables, kind, plugins_of};

/// An attachment with a [`Request`].
pub struct Attached<'a> {
    pub host: &'a Netns,
    /// Another machine.
    pub client: &'a Netns,
    pub pod: &'a Container,
    /// Its host port.
    pub port: u16,
}

/// Fails if a plugin of the network had no effect for an attachment.
#[track_caller]
pub fn assert_all(attached: &Attached, who: &str, network: &Value) {
    let Attached { pod, port, .. } = attached;
    let request = Request::of(who, *port);
    for plugin in plugins_of(network) {
        for name in executables(plugin) {
            let done = match kind(name) {
                "loopback" => pod.exec(&["ip", "link", "show", "lo"]).contains("UP"),
                "portmap" => maps_the_port(attached),
                "bandwidth" => is_limited(attached),
                "firewall" => lets_through(attached),
                "tuning" => has_sysctls(pod, plugin) && has_mac(attached, plugin, &request),
                "sbr" => pod.exec(&["ip", "rule"]).contains("from 10."),
                "vrf" => pod.exec(&["ip", "link", "show", "eth0"]).contains("master blue"),
                "host-local" => has_lease(pod, plugin, network["name"].as_str().unwrap()),
                // The interface is its delegate's. It keeps the delegate's configuration until DEL.
                "flannel" => Path::new("/var/lib/cni/flannel").join(&pod.id).exists(),
                "static" | "dhcp" => !pod.addresses("eth0").is_empty(),
                _ => pod.link("eth0").is_some(),
            };
            assert!(done, "{who}: {name} has done nothing");
        }
    }
    let addresses = pod.addresses("eth0");
    let lacks: Vec<_> = request.addresses.iter().filter(|address| !addresses.contains(*address)).collect();
    assert!(lacks.is_empty(), "{who}: {lacks:?} were requested: {addresses:?}");
    let is = &pod.link("eth0").unwrap()["address"];
    assert!(request.mac.iter().all(|mac| is == mac), "{who}: {:?} was requested: {is}", request.mac);
}

/// An IPv4 address of the interface.
fn address(pod: &Container) -> String {
    let addresses = pod.addresses("eth0");
    let address = addresses.iter().find(|address| !address.contains(':')).expect("an IPv4 address");
    address.split('/').next().unwrap().to_owned()
}

/// Scripts in place of other projects' plugins add no routes. The containers have no traffic then.
fn has_routes(pod: &Container) -> bool {
    !pod.exec(&["ip", "route", "show", "default"]).is_empty()
}

/// Another machine reaches the container by the host port. Without traffic, the rule is looked for instead.
fn maps_the_port(Attached { host, client, pod, port }: &Attached) -> bool {
    let address = address(pod);
    if !has_routes(pod) {
        return has_host_port(&host.ruleset(), *port, &address);
    }
    let _server = pod.serve_tcp(&pod.id, &format!("{address}:80"));
    tcp_says(client, &format!("198.51.100.1:{port}"))
        .is_some_and(|answer| answer.starts_with(&format!("{} ", pod.id)))
}

/// Whether a line of a ruleset leads from a host port to an address.
pub fn has_host_port(ruleset: &str, port: u16, address: &str) -> bool {
    ruleset.lines().any(|line| has_word(line, &port.to_string()) && has_word(line, address))
}

/// Traffic to the container is limited on the host's end of its link, traffic from it on an ifb, to which the host's end
/// redirects it.
fn is_limited(Attached { host, pod, .. }: &Attached) -> bool {
    let peer = pod.link("eth0").and_then(|link| link["link_index"].as_u64());
    let links = host.ip("link show");
    let end = links.iter().find(|link| link["ifindex"].as_u64() == peer);
    let Some(end) = end.and_then(|link| link["ifname"].as_str()) else { return false };
    let filters = host.exec(&["tc", "filter", "show", "dev", end, "ingress"]);
    // `action order 1: mirred (Egress Redirect to device bwp6230a40fd8ff) stolen`
    let ifb = filters.split_once("Redirect to device ").and_then(|(_, rest)| rest.split(')').next());
    let is_used = has_routes(pod);
    passes(host, end, INGRESS, is_used) && ifb.is_some_and(|ifb| passes(host, ifb, EGRESS, is_used))
}

/// Whether a link has a token bucket filter of a rate in bits a second, and has sent packets through it.
fn passes(host: &Netns, link: &str, rate: u64, is_used: bool) -> bool {
    let shown = host.exec(&["tc", "-s", "-j", "qdisc", "show", "dev", link]);
    let all: Vec<Value> = serde_json::from_str(&shown).unwrap();
    let is_right = |qdisc: &Value| qdisc["kind"] == "tbf" && qdisc["options"]["rate"] == rate / 8;
    let has_sent = |qdisc: &Value| qdisc["packets"].as_u64().is_some_and(|packets| packets > 0);
    all.iter().any(|qdisc| is_right(qdisc) && (has_sent(qdisc) || !is_used))
}

/// Whether a text has the word, and not only as a part of a longer one: 10.1.2.2 is in 10.1.2.23.
pub fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').any(|one| one == word)
}

/// The container reaches another machine, although the host forwards no other packets.
fn lets_through(Attached { client, pod, port, .. }: &Attached) -> bool {
    let far = format!("198.51.100.2:{port}");
    let _server = client.serve_tcp("client", &far);
    tcp_says(pod, &far).is_some()
}

fn has_sysctls(pod: &Container, plugin: &Value) -> bool {
    let expected = plugin["sysctl"].as_object().into_iter().flatten();
    let mut answers =
        expected.map(|(key, value)| (pod.exec(&["sysctl", "-n", key]).trim().to_owned(), value));
    answers.all(|(is, value)| value == &is)
}

/// The neighbour at the other end of the cable knows the container by the requested MAC, if tuning sets it.
fn has_mac(Attached { host, pod, .. }: &Attached, plugin: &Value, request: &Request) -> bool {
    let sets = plugin["capabilities"]["mac"] == true;
    let is_known = |mac: &String| {
        let is_reached = pod.reaches(GATEWAY);
        is_reached && host.ip(&format!("neigh show {}", address(pod)))[0]["lladdr"] == *mac
    };
    !sets || request.mac.as_ref().is_some_and(is_known)
}

/// A file of a lease contains the container's id.
fn has_lease(pod: &Container, plugin: &Value, network: &str) -> bool {
    let directory = plugin["ipam"]["dataDir"].as_str().unwrap_or("/var/lib/cni/networks");
    let entries = fs::read_dir(Path::new(directory).join(network)).into_iter().flatten().flatten();
    let mut files = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    files.any(|text| text.lines().next() == Some(&pod.id))
}
