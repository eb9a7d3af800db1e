//! Switching back: what the reference's DEL leaves of a Ferrule attachment, compared with the table of docs/migrate.md, and the commands of
//! that page that remove it.

mod dhcp;

use std::collections::BTreeSet;
use std::fs;

use lab::firewalld::{BUS, Firewalld, is_here};
use lab::{Call, Chain, Container, Lab, Outcome, Release, beyond_reference, needs, plugins, repository};
use serde_json::{Value, json};

use crate::common::{STORE, dual_stack, host_local, leases, ports};

/// A network in a row of the page's table.
#[derive(Debug)]
struct Network {
    /// The first two cells: network and backend.
    row: [&'static str; 2],
    plugins: Vec<Value>,
}

impl Network {
    fn new(network: &'static str, backend: &'static str, plugins: impl Into<Vec<Value>>) -> Self {
        Self { row: [network, backend], plugins: plugins.into() }
    }

    /// A container's id that no other test uses, with the `_` of the row.
    fn container(&self) -> String {
        let letters = self.row.concat().replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "");
        format!("back-{letters}")
    }

    fn interfaces(&self) -> &'static [&'static str] {
        if self.row[0] == TWO_INTERFACES { &["eth0", "eth1"] } else { &["eth0"] }
    }

    /// What CHECK, the first and the second DEL of a release return for a container that Ferrule attached, according to the page. A runtime
    /// repeats only a DEL that failed.
    fn failures(&self, release: Release) -> [Option<String>; 3] {
        let [first, last] = [self.plugins.first(), self.plugins.last()]
            .map(|plugin| plugin.unwrap()["type"].as_str().unwrap());
        let fails = |plugin: &str, command: &str| Some(format!("{plugin} {command} 999"));
        let check = match (last, self.row) {
            (_, [MOVED, _]) => fails(last, "CHECK"),
            // A result of this version does not name the table to which these plugins have moved the routes.
            ("sbr" | "vrf", _) => fails(first, "CHECK"),
            ("firewall", [_, "firewalld"]) => None,
            ("portmap" | "firewall", _) => fails(last, "CHECK"),
            _ => None,
        };
        match self.row[0] {
            "`ipMasq`" => [check, fails(first, "DEL"), None],
            ISOLATED if release == Release::V1_1_1 => [check, fails(last, "DEL"), fails(last, "DEL")],
            _ => [check, None, None],
        }
    }
}

const BACKENDS: [&str; 2] = ["nftables", "iptables"];

fn with(mut plugin: Value, keys: Value) -> Value {
    plugin.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    plugin
}

fn bridge(keys: Value) -> Value {
    with(with(dual_stack(), json!({"type": "bridge"})), keys)
}

fn masquerade() -> Vec<Network> {
    let of = |backend| {
        let keys = json!({"ipMasq": true, "ipMasqBackend": backend});
        let ptp = json!({"type": "ptp", "ipam": dual_stack()["ipam"]});
        [bridge(keys.clone()), with(ptp, keys)].map(|plugin| Network::new("`ipMasq`", backend, [plugin]))
    };
    BACKENDS.into_iter().flat_map(of).collect()
}

fn host_ports() -> Vec<Network> {
    let mappings = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let keys = json!({"runtimeConfig": {"portMappings": mappings}});
    let portmap = |backend| with(with(ports(), json!({"backend": backend})), keys.clone());
    BACKENDS.map(|backend| Network::new("portmap", backend, [bridge(json!({})), portmap(backend)])).into()
}

fn firewall() -> Vec<Network> {
    let of = |row, backend, keys| {
        let plugin = with(json!({"type": "firewall", "backend": backend}), keys);
        Network::new(row, backend, [bridge(json!({})), plugin])
    };
    let each = |backend| {
        [
            of("firewall", backend, json!({})),
            of("`ingressPolicy`: `same-bridge`", backend, json!({"ingressPolicy": "same-bridge"})),
            of(ISOLATED, backend, json!({"ingressPolicy": "isolated"})),
        ]
    };
    let mut all: Vec<_> = BACKENDS.into_iter().flat_map(each).collect();
    all.push(Network::new("`macspoofchk`", "nftables", [bridge(json!({"macspoofchk": true}))]));
    all
}

fn devices_and_settings() -> Vec<Network> {
    let device = json!({"type": "host-device", "device": "dev0", "ipam": host_local(&[&["10.1.2.0/24"]])});
    let limits = json!({
        "type": "bandwidth",
        "ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 4_000_000, "egressBurst": 400_000,
    });
    let tuning = json!({"type": "tuning", "mtu": 1400});
    vec![
        Network::new("host-device", "", [device.clone()]),
        Network::new("bandwidth", "", [bridge(json!({})), limits.clone()]),
        Network::new(TWO_INTERFACES, "", [bridge(json!({"isDefaultGateway": false})), limits.clone()]),
        Network::new(MOVED, "", [device, limits]),
        Network::new("tuning", "", [bridge(json!({})), tuning.clone()]),
        Network::new("tuning, with `_` in the container id", "", [bridge(json!({})), tuning]),
    ]
}

fn source_based_routing() -> Network {
    Network::new("sbr", "", [bridge(json!({})), json!({"type": "sbr"})])
}

fn routing_domain() -> Network {
    Network::new("vrf", "", [bridge(json!({})), json!({"type": "vrf", "vrfname": "blue"})])
}

const ISOLATED: &str = "`ingressPolicy`: `isolated`";
const MOVED: &str = "bandwidth, on a veth that host-device moved";
const TWO_INTERFACES: &str = "bandwidth, on two interfaces of a container";

fn zone() -> Vec<Network> {
    let plugins = [bridge(json!({})), json!({"type": "firewall", "backend": "firewalld"})];
    vec![Network::new("firewall", "firewalld", plugins)]
}

fn page() -> String {
    fs::read_to_string(repository().join("docs/migrate.md")).unwrap()
}

/// The example on the page that contains a text.
fn commands(text: &str) -> String {
    let page = page();
    let mut examples = page.split("```sh example\n").filter_map(|rest| rest.split("```").next());
    examples.find(|example| example.contains(text)).expect("the page has the commands").to_owned()
}

/// The rows of the page's table: network, backend, and what remains.
fn rows() -> Vec<[String; 3]> {
    let page = page();
    let (_, table) = page.split_once("| network with | backend | remains |\n|---|---|---|\n").unwrap();
    let lines = table.lines().take_while(|line| line.starts_with("| "));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    lines.map(|line| Vec::try_into(cells(line)).expect("three cells")).collect()
}

/// The names in a row of the page, which are between backticks. Those after `1.1.1:` remain only with that release.
fn listed(row: [&str; 2], release: Release) -> BTreeSet<String> {
    let rows = rows();
    let row = rows.iter().find(|cells| cells[..2] == row).unwrap_or_else(|| panic!("no row {row:?}"));
    let (always, old) = row[2].split_once("1.1.1:").unwrap_or((&row[2], ""));
    let text = if release == Release::V1_1_1 { format!("{always}{old}") } else { always.to_owned() };
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The names of everything of Ferrule on the host, as the page writes them.
fn remaining(lab: &Lab) -> BTreeSet<String> {
    let host = lab.host();
    let mut names = BTreeSet::new();
    let ruleset: Value = serde_json::from_str(&host.sh("nft -j list ruleset")).unwrap();
    for object in ruleset["nftables"].as_array().unwrap() {
        let text = |kind: &str, key: &str| object[kind][key].as_str().unwrap_or_default().to_owned();
        if text("table", "name") == "ferrule" {
            names.insert(format!("{} ferrule", text("table", "family")));
        }
        for kind in ["set", "map"] {
            if text(kind, "table") == "ferrule" && object[kind]["elem"].is_array() {
                // `forward4/12` is of IPv4, and has a prefix length or a bit of the mark.
                let of_a_family = |c: char| c == '/' || c.is_ascii_digit();
                names.insert(text(kind, "name").trim_end_matches(of_a_family).to_owned());
            }
        }
    }
    let saved = host.sh(
        "for tools in iptables-nft ip6tables-nft iptables-legacy ip6tables-legacy; do $tools-save || :; done",
    );
    for line in saved.lines() {
        if let Some(chain) = line.strip_prefix(':').and_then(|rest| rest.split(' ').next()) {
            // `FERRULE-HP-` and a hash.
            let name = chain.match_indices('-').nth(1).map(|(at, _)| format!("{}-...", &chain[..at]));
            let is_ours = chain.starts_with("FERRULE-") || chain.starts_with("CNI-");
            names.extend(is_ours.then(|| name.unwrap_or_else(|| chain.to_owned())));
        }
        let is_verdict = line.ends_with(" -j ACCEPT") || line.ends_with(" -j DROP");
        let comment = line.split('"').nth(1).filter(|comment| comment.starts_with("ferrule: "));
        names.extend(comment.filter(|_| is_verdict).map(str::to_owned));
    }
    let settings = "[ ! -e /sys/class/net/br0 ] || [ $(cat /proc/sys/net/ipv4/conf/br0/route_localnet) = 0 ] || echo route_localnet
        ip -6 route show table local | grep -q '^local ::1 dev br0 ' && echo ::1 || :
        ip -o link show type ifb | grep -q bwp && echo ifb || :
        [ -z \"$(cat /sys/class/net/dev0/ifalias 2>/dev/null)\" ] || echo ifalias";
    names.extend(host.sh(settings).lines().map(str::to_owned));
    let disciplines = host.sh("tc qdisc show dev far0 2>/dev/null || :");
    let kinds = disciplines.lines().filter_map(|line| line.split(' ').nth(1));
    names.extend(kinds.filter(|kind| *kind != "noqueue").map(str::to_owned));
    let files = host.sh("find /run/ferrule /run/cni -mindepth 2 -type f ! -name lock 2>/dev/null || :");
    names.extend(files.lines().map(|file| file.split('/').take(4).collect::<Vec<_>>().join("/")));
    names
}

/// Rules of an administrator that only resemble Ferrule's.
const OTHERS: [&str; 2] = [
    "FORWARD -i ferrule0 -m comment --comment Ferrule:others -j OTHERS",
    "FORWARD -m comment --comment not-of-ferrule:others -j OTHERS",
];

fn by_ours(call: Call) -> Call {
    call.env("DBUS_SYSTEM_BUS_ADDRESS", BUS)
}

/// The release's plugins in a chain.
fn by(release: Release) -> fn(Call) -> Call {
    match release {
        Release::V1_1_1 => |call| by_ours(call).by_release(Release::V1_1_1),
        Release::V1_9_1 => |call| by_ours(call).by_release(Release::V1_9_1),
    }
}

/// `PLUGIN COMMAND CODE` of the first failure.
fn failure(outcomes: &[Outcome]) -> Option<String> {
    let failed = outcomes.iter().find(|outcome| !outcome.succeeded())?;
    let error: Value = serde_json::from_str(&failed.stdout).unwrap();
    Some(format!("{} {}", failed.what, error["code"]))
}

/// The container's ADD by Ferrule.
fn attach(network: &Network, chain: &Chain, pod: &Container) -> Vec<Value> {
    let ours = chain.clone().each(by_ours);
    network.interfaces().iter().map(|ifname| ours.add(pod, ifname).ok_result()).collect()
}

/// Its DEL by a release of the reference, after a CHECK. Returns what [`Network::failures`] does.
fn detach(network: &Network, theirs: &Chain, pod: &Container, results: &[Value]) -> [Option<String>; 3] {
    let (first, result) = (network.interfaces()[0], &results[0]);
    let checked = theirs.check(pod, first, result);
    let deleted = theirs.del(pod, first, result);
    for (ifname, result) in network.interfaces().iter().zip(results).skip(1) {
        theirs.del(pod, ifname, result).iter().for_each(Outcome::ok);
    }
    let has_failed = deleted.iter().any(|outcome| !outcome.succeeded());
    let again = if has_failed { theirs.del(pod, first, result) } else { Vec::new() };
    [checked, deleted, again].map(|outcomes| failure(&outcomes))
}

/// A host with a device, tables that drop packets, and rules of an administrator in all tables that the plugins or the reference look into.
/// FORWARD exists in both families: without it, Ferrule leaves a family alone, and the reference's CHECK creates an empty CNI-ADMIN in the
/// family that it examines first, which is a random one.
fn prepare(lab: &Lab) {
    lab.host().sh("ip link add dev0 type veth peer name far0; ip link set far0 up; nft add table inet others
         for table in nat filter; do iptables -t $table -N OTHERS; ip6tables -t $table -N OTHERS; done
         iptables-legacy -P FORWARD DROP || :");
    for rule in OTHERS {
        lab.host().sh(&format!("iptables -A {rule}; ip6tables -A {rule}"));
    }
}

/// Removes what Ferrule's DEL leaves, too: the address that host-local has allocated last, and the route to ::1.
fn settle(lab: &Lab) {
    lab.host().sh(&format!("rm -r {STORE}; ip -6 route del local ::1 dev br0 table local || :"));
}

/// Attaches a container by Ferrule and detaches it by each release, which leaves what the page says. The page's commands then restore the
/// host as after Ferrule's own DEL: the block for all containers, and GC for one container.
fn is_cleaned_up(network: &Network) {
    let lab = Lab::new();
    let pod = lab.container(&network.container());
    prepare(&lab);
    let _daemon = (network.row[1] == "firewalld").then(|| Firewalld::start(&lab, "nftables", "public"));
    let conflist = json!({"cniVersion": "1.0.0", "name": "net", "plugins": network.plugins});
    lab.configure("10-net.conflist", &conflist);
    let chain = lab.chain(conflist);

    let results = attach(network, &chain, &pod);
    for (ifname, result) in network.interfaces().iter().zip(&results) {
        chain.clone().each(by_ours).del(&pod, ifname, result).iter().for_each(Outcome::ok);
    }
    settle(&lab);
    assert_eq!(remaining(&lab), BTreeSet::new(), "{network:?}");
    let before = lab.snapshot();
    for release in Release::with("bridge") {
        let results = attach(network, &chain, &pod);
        let failures = detach(network, &chain.clone().each(by(release)), &pod, &results);
        assert_eq!(failures, network.failures(release), "{release}, {network:?}");
        assert_eq!(leases(), [""; 0], "{release}, {network:?}");
        assert_eq!(remaining(&lab), listed(network.row, release), "{release}, {network:?}");
        if network.row[0] == MOVED {
            lab.host().sh(&commands("qdisc del").replace("LINK", "far0"));
        }
        if release == Release::V1_1_1 {
            lab.host().sh(&commands("/run/ferrule/localnet"));
            // The release leaves it on the devices that it has moved itself, too.
            lab.host().sh("ip link set dev0 alias ''");
            assert_eq!(remaining(&lab), BTreeSet::new(), "{network:?}");
        } else {
            let gc = commands("--force").replace("pods", "net").replace("8f3c", &pod.id);
            let (_, gc) = gc.trim().split_once("cnitool ").unwrap();
            lab.cnitool().env("DBUS_SYSTEM_BUS_ADDRESS", BUS).says(gc);
        }
        settle(&lab);
        let changes = lab.snapshot().since(&before);
        assert_eq!(changes, "", "{release}, {network:?}");
    }
}

#[test]
fn masquerade_that_the_references_del_leaves_is_on_the_page_and_its_commands_remove_it() {
    beyond_reference!("rules-by-attachment");
    masquerade().iter().for_each(is_cleaned_up);
}

#[test]
fn host_ports_that_the_references_del_leaves_are_on_the_page_and_its_commands_remove_them() {
    beyond_reference!("rules-by-attachment");
    host_ports().iter().for_each(is_cleaned_up);
}

#[test]
fn rules_of_the_firewall_that_the_references_del_leaves_are_on_the_page_and_its_commands_remove_them() {
    beyond_reference!("rules-by-attachment");
    firewall().iter().for_each(is_cleaned_up);
}

#[test]
fn records_and_limits_that_the_references_del_leaves_are_on_the_page_and_its_commands_remove_them() {
    needs!(TrafficControl);
    beyond_reference!("rules-by-attachment");
    devices_and_settings().iter().for_each(is_cleaned_up);
}

#[test]
fn records_of_firewalld_that_the_references_del_leaves_are_on_the_page_and_its_commands_remove_them() {
    beyond_reference!("rules-by-attachment");
    if is_here() {
        zone().iter().for_each(is_cleaned_up);
    }
}

/// The host and the container are as after Ferrule's own DEL, before any of the page's commands. CHECK returns what it does for a container
/// that the release itself attached. The network has no firewall rules, so the kernel needs no nf_tables.
fn leaves_nothing(network: &Network) {
    for release in Release::with("bridge") {
        let lab = Lab::new();
        let pod = lab.container(&network.container());
        let conflist = json!({"cniVersion": "1.0.0", "name": "net", "plugins": network.plugins});
        let ours = lab.chain(conflist);
        let theirs = ours.clone().by_release(release);
        let of_its_own = [theirs.add(&pod, "eth0").ok_result()];
        let [checked, ..] = detach(network, &theirs, &pod, &of_its_own);
        let results = attach(network, &ours, &pod);
        ours.del(&pod, "eth0", &results[0]).iter().for_each(Outcome::ok);
        let before = lab.snapshot();

        let results = attach(network, &ours, &pod);
        let failures = detach(network, &theirs, &pod, &results);
        assert_eq!(failures, network.failures(release), "{release}, {network:?}");
        assert_eq!(failures[0], checked, "{release}, {network:?}");
        assert_eq!(listed(network.row, release), BTreeSet::new(), "{release}, {network:?}");
        assert_eq!(lab.snapshot().since(&before), "", "{release}, {network:?}");
    }
}

#[test]
fn the_references_del_leaves_nothing_of_source_based_routing() {
    beyond_reference!("rules-by-attachment");
    leaves_nothing(&source_based_routing());
}

#[test]
fn the_references_del_leaves_nothing_of_a_vrf() {
    needs!(Vrf);
    beyond_reference!("rules-by-attachment");
    leaves_nothing(&routing_domain());
}

/// All networks of the page's table.
fn networks() -> Vec<Network> {
    let with_rules = [masquerade(), host_ports(), firewall(), zone()];
    let others = [devices_and_settings(), vec![source_based_routing(), routing_domain(), dhcp::leased()]];
    with_rules.into_iter().chain(others).flatten().collect()
}

#[test]
fn each_row_of_the_page_about_the_way_back_has_a_network() {
    let tried: BTreeSet<_> = networks().iter().map(|network| network.row.map(str::to_owned)).collect();
    let on_the_page = rows().into_iter().map(|[network, backend, _]| [network, backend]);
    assert_eq!(on_the_page.collect::<BTreeSet<_>>(), tried);
}

/// Plugins that need no row, because other tests compare the whole host after the other suite's DEL with the host before ADD: `upgrade.rs`,
/// `flannel/upgrade.rs` and `dnsname/upgrade.rs`.
const WITHOUT_A_ROW: [&str; 9] =
    ["dnsname", "dummy", "flannel", "ipvlan", "loopback", "macvlan", "static", "tap", "vlan"];

#[test]
fn each_plugin_is_in_a_row_of_the_page_about_the_way_back_or_leaves_nothing() {
    beyond_reference!("rules-by-attachment");
    let networks = networks();
    let plugins_of = networks.iter().flat_map(|network| &network.plugins);
    let kinds = plugins_of.flat_map(|plugin| [&plugin["type"], &plugin["ipam"]["type"]]);
    let in_rows: BTreeSet<_> = kinds.filter_map(Value::as_str).collect();
    let all = plugins();
    let lacking = all.iter().filter(|plugin| !in_rows.contains(plugin.as_str()));
    assert_eq!(lacking.map(String::as_str).collect::<BTreeSet<_>>(), WITHOUT_A_ROW.into());
}
