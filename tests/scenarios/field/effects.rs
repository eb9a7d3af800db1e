//! The effect of each plugin of a chain in the kernel, independent of CHECK, which is the plugins' own judgement.

use lab::{Container, Netns, tcp_says};
use serde_json::Value;

use super::plugins_of;

/// An attachment with the capabilities of [`super::capabilities`].
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
    let Attached { host, pod, .. } = attached;
    for plugin in plugins_of(network) {
        let kind = kind(plugin);
        let done = match kind {
            "loopback" => pod.exec(&["ip", "link", "show", "lo"]).contains("UP"),
            "portmap" => maps_the_port(attached),
            "bandwidth" => is_limited(host, pod),
            "firewall" => lets_through(host, pod),
            "tuning" => has_sysctls(pod, plugin),
            "sbr" => pod.exec(&["ip", "rule"]).contains("from 10."),
            "vrf" => pod.exec(&["ip", "link", "show", "eth0"]).contains("master blue"),
            _ => pod.link("eth0").is_some(),
        };
        assert!(done, "{who}: {kind} has done nothing");
    }
}

/// A plugin's name, even if BuildKit has renamed it.
pub fn kind(plugin: &Value) -> &str {
    let kind = plugin["type"].as_str().unwrap();
    kind.strip_prefix("buildkit-cni-").unwrap_or(kind)
}

/// An IPv4 address of the interface.
fn address(pod: &Container) -> String {
    let addresses = pod.addresses("eth0");
    let address = addresses.iter().find(|address| !address.contains(':')).expect("an IPv4 address");
    address.split('/').next().unwrap().to_owned()
}

/// Another machine reaches the container by the host port. Scripts in place of other projects' plugins add no routes.
/// With these, the rule is looked for instead.
fn maps_the_port(Attached { host, client, pod, port }: &Attached) -> bool {
    let address = address(pod);
    if pod.exec(&["ip", "route", "show", "default"]).is_empty() {
        let rules = host.ruleset();
        return rules.lines().any(|line| has_word(line, &port.to_string()) && has_word(line, &address));
    }
    let _server = pod.serve_tcp(&pod.id, &format!("{address}:80"));
    tcp_says(client, &format!("198.51.100.1:{port}"))
        .is_some_and(|answer| answer.starts_with(&format!("{} ", pod.id)))
}

/// Traffic to the container: a queueing discipline of its own link on the host.
fn is_limited(host: &Netns, pod: &Container) -> bool {
    let peer = pod.link("eth0").and_then(|link| link["link_index"].as_u64());
    let links = host.ip("link show");
    let name =
        links.iter().find(|link| link["ifindex"].as_u64() == peer).and_then(|link| link["ifname"].as_str());
    name.is_some_and(|name| host.exec(&["tc", "qdisc", "show", "dev", name]).contains("tbf"))
}

/// Whether a text has the word, and not only as a part of a longer one: 10.1.2.2 is in 10.1.2.23.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').any(|one| one == word)
}

/// By an iptables rule, or by an element of the set of forwarded addresses.
fn lets_through(host: &Netns, pod: &Container) -> bool {
    let address = address(pod);
    let iptables = host.sh("iptables-save -t filter");
    let nftables = host.sh("nft list table inet ferrule 2>/dev/null || true");
    let set = nftables.split("set ").find(|set| set.starts_with("forward"));
    iptables.lines().any(|line| line.contains("ACCEPT") && has_word(line, &address))
        || set.is_some_and(|set| has_word(set, &address))
}

fn has_sysctls(pod: &Container, plugin: &Value) -> bool {
    let expected = plugin["sysctl"].as_object().into_iter().flatten();
    let mut answers =
        expected.map(|(key, value)| (pod.exec(&["sysctl", "-n", key]).trim().to_owned(), value));
    answers.all(|(is, value)| value == &is)
}
