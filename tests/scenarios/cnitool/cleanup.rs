//! GC by cnitool: it keeps the resources of live containers, and removes exactly what a dry run lists.

pub mod networks;
mod property;
mod race;
mod reboot;
mod requests;
mod restart;
mod waits;

use std::fs;
use std::path::Path;

use lab::dhcp::{DhcpNetwork, RANGE_FOR_A_DAY, in_background, started_by};
use lab::{
    Feature, Lab, Release, Tool, beyond_reference, injecting, needs, ours, quoted, skip_part, under_test,
    write_program,
};
use serde_json::{Value, json};

use crate::cnitool::cleanup::networks::ELSEWHERE;
use crate::common::{
    STORE, cable, configure_containerd, host_local, leases, ports, show_in_control_group, sleeper,
};

fn network(version: &str, plugins: &Value) -> Value {
    json!({"cniVersion": version, "name": "net", "plugins": plugins})
}

fn bridge(subnet: &str) -> Value {
    json!({"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true, "ipam": host_local(&[&[subnet]])})
}

fn rules(lab: &Lab) -> String {
    lab.host().sh("nft list ruleset")
}

/// The resources that a dry run would remove and those that it keeps: kind, name and container, sorted.
fn dry_run(tool: &Tool) -> [Vec<String>; 2] {
    let dry = tool.json("gc net --dry-run");
    ["wouldRemove", "kept"].map(|key| listed(&dry[key]))
}

fn listed(things: &Value) -> Vec<String> {
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    let line = |one: &Value| ["kind", "name", "containerID"].map(|key| text(one, key)).join(" ");
    let mut lines: Vec<String> = things.as_array().unwrap().iter().map(line).collect();
    lines.sort();
    lines
}

/// Only the path of its namespace shows that the container is running.
#[test]
fn a_device_stays_in_a_running_container_that_is_in_no_cache() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("cardholder");
    cable(&lab);
    let device = json!([{"type": "host-device", "device": "cable"}]);
    lab.configure("10-net.conflist", &network("1.1.0", &device));
    let tool = lab.cnitool();
    tool.says(&format!("add net cardholder --container-id x7f6 {ELSEWHERE}"));
    let [removed, kept] = dry_run(&tool);
    assert!(removed.is_empty() && kept.len() == 1 && kept[0].contains("x7f6"), "{removed:?} {kept:?}");
    let collected = tool.run("gc net");
    assert!(pod.link("eth0").is_some(), "the device was pulled out of a running container");
    assert!(collected.stderr.contains("of x7f6 eth0: kept: alive"), "{collected:#?}");
    tool.says("gc net --force x7f6");
    assert!(lab.host().link("cable").is_some(), "--force names the container");
}

#[test]
fn a_dry_run_leaves_the_name_of_a_dead_containers_device_and_the_gateway_of_a_vlan() {
    beyond_reference!("gc");
    let lab = Lab::new();
    cable(&lab);
    let bridge = json!({"type": "bridge", "bridge": "br0", "isGateway": true, "vlan": 10, "ipam": host_local(&[&["10.203.2.0/24"]])});
    let mut kinds = vec![("carded", json!({"type": "host-device", "device": "cable"}), "cable")];
    if !skip_part("the gateway of a VLAN", Feature::BridgeVlanFiltering) {
        kinds.push(("tagged", bridge, "br0.10"));
    }
    let tool = lab.cnitool();
    for (name, plugin, link) in kinds {
        let pod = lab.container(name);
        let plugins = json!([plugin]);
        lab.configure(
            &format!("{name}.conflist"),
            &json!({"cniVersion": "1.1.0", "name": name, "plugins": plugins}),
        );
        tool.says(&format!("add {name} {name} --container-id {name}"));
        match name {
            // As the kernel does with a network card.
            "carded" => drop(pod.sh("ip link set eth0 netns host name eth7")),
            _ => drop(pod.sh("ip link del eth0")),
        }
        pod.vanish();
        let before = lab.snapshot();
        let exists = lab.host().link(link).is_some();
        tool.says("gc --dry-run");
        lab.snapshot().assert_same(&before);
        tool.says("gc --all");
        assert_ne!(lab.host().link(link).is_some(), exists, "{name}: GC has done its work");
    }
}

/// The rules contain no address and no path. Only the namespace's name shows that the container is running.
#[test]
fn host_ports_of_a_running_container_without_veth_and_lease_stay() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pod = lab.container("quiet");
    cable(&lab);
    let ipam = json!({"type": "static", "addresses": [{"address": "10.203.1.9/24"}]});
    let plugins = json!([{"type": "macvlan", "master": "cable", "ipam": ipam}, ports()]);
    lab.configure("10-net.conflist", &network("1.1.0", &plugins));
    let tool = lab.cnitool();
    tool.says(&format!("add net quiet --container-id quiet -p 8089:80 {ELSEWHERE}"));
    let before = rules(&lab);
    assert!(before.contains("8089"), "{before}");
    let collected = tool.run("gc net");
    assert_eq!(rules(&lab), before, "the host port of a running container was deleted");
    assert!(collected.stderr.contains("of quiet eth0: kept: alive"), "{collected:#?}");
    assert!(dry_run(&tool)[0].is_empty());
}

/// Only the name of its namespace shows that the container is running.
#[test]
fn the_lease_of_a_running_container_that_has_lost_its_address_stays() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = macvlan(&lab, "10.204.14.0/24");
    let pod = lab.container("renumbered");
    tool.says(&format!("add net renumbered --container-id renumbered {ELSEWHERE}"));
    pod.sh("ip addr flush dev eth0");
    tool.says("gc net");
    assert_eq!(leases(), ["10.204.14.2"], "the address of a running container was released");
    pod.vanish();
    tool.says("gc net");
    assert!(leases().is_empty());
}

/// With macvlan and dhcp, no link of the host leads to the container, and no lease of host-local contains its address.
/// The namespace does not have the container's name.
#[test]
fn the_dhcp_lease_of_a_running_container_that_is_in_no_cache_stays() {
    beyond_reference!("gc");
    let Some(net) = DhcpNetwork::with(RANGE_FOR_A_DAY) else { return };
    let plugins = json!([{"type": "macvlan", "master": "br0", "ipam": {"type": "dhcp"}}]);
    net.lab.configure("10-net.conflist", &network("1.1.0", &plugins));
    let (tool, pod) = (net.lab.cnitool(), net.pod("leased"));
    tool.says(&format!("add net leased --container-id x7f7 {ELSEWHERE}"));
    let [removed, kept] = dry_run(&tool);
    assert!(removed.is_empty() && kept.iter().any(|one| one.contains("x7f7")), "{removed:?} {kept:?}");
    tool.says("gc net");
    assert!(net.list().len() == 1 && net.released() == 0, "the lease of a running container was released");
    assert!(pod.link("eth0").is_some());
    tool.says("gc net --force x7f7");
    net.until("the release is seen", || net.released() == 1);
    net.until("no lease is left", || net.list().is_empty());
}

/// Podman's network driver `cni` stores the plugins of `podman network create --opt type=` in a separate file.
#[test]
fn gc_removes_stale_resources_of_a_killed_setup_by_podmans_driver() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("torn-setup");
    lab.fake_plugin("killer", r#"cat >/dev/null; [ "$CNI_COMMAND" != ADD ] || kill -9 $PPID"#);
    let plugins = json!([bridge("10.215.1.0/24"), ports(), {"type": "killer"}]);
    let conflist = json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins});
    fs::create_dir_all("/var/lib/cni/netavark").unwrap();
    fs::write("/var/lib/cni/netavark/net.conflist", conflist.to_string()).unwrap();
    let tool = lab.cnitool();
    let killed =
        tool.run("add net torn-setup --container-id torn-setup -p 8098:80 --conf-dir /var/lib/cni/netavark");
    assert!(!killed.succeeded() && leases().len() == 1 && rules(&lab).contains("8098"), "{killed:#?}");
    assert_eq!(lab.host().sh("find /var/lib/cni -path '*/results/*'"), "", "only the file has the network");
    tool.says("gc --all");
    assert!(leases().len() == 1 && pod.link("eth0").is_some(), "its container is alive");
    pod.vanish();
    lab.host().wait_until("the pair is gone", |host| host.ip("link show master br0").is_empty());
    for line in ["gc net --dry-run", "gc --dry-run"] {
        assert!(tool.says(line).contains("lease"), "{line}");
    }
    tool.says("gc --all");
    assert!(leases().is_empty() && !rules(&lab).contains("net/torn-setup/"), "{}", rules(&lab));
}

/// Podman may not have started the container's first process yet.
#[test]
fn a_young_namespace_of_podman_that_no_process_uses_keeps_everything() {
    beyond_reference!("gc");
    const NAME: &str = "netns-55527acc-8557-0ebb-3b81-9a7e8210eda4";
    let lab = Lab::new();
    let pod = lab.container(NAME);
    // No other test has this subnet: GC looks at the addresses of all namespaces of the machine.
    lab.configure("10-net.conflist", &network("1.1.0", &json!([bridge("10.210.3.0/24")])));
    let tool = lab.cnitool();
    tool.says(&format!("add net {NAME} --container-id young {ELSEWHERE}"));
    tool.says("gc net --older-than 0s");
    assert!(leases().len() == 1 && pod.link("eth0").is_some(), "{:?}", leases());
}

/// The modification time of the cache file is the time of the ADD.
#[test]
fn older_than_keeps_resources_of_young_attachments() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pods = ["two-hours-old", "still-young"].map(|id| lab.container(id));
    lab.configure("10-net.conflist", &network("1.1.0", &json!([bridge("10.210.2.0/24"), ports()])));
    let tool = lab.cnitool();
    tool.says("add net two-hours-old --container-id two-hours-old -p 8093:80");
    tool.says("add net still-young --container-id still-young -p 8094:80");
    pods.iter().for_each(|pod| pod.vanish());
    lab.host().wait_until("the pairs are gone", |host| host.ip("link show master br0").is_empty());
    lab.host().sh("touch -d '2 hours ago' /var/lib/cni/results/net-two-hours-old-eth0");
    let listed = listed(&tool.json("gc net --dry-run --older-than 1h")["wouldRemove"]);
    assert!(!listed.is_empty() && listed.iter().all(|one| one.ends_with(" two-hours-old")), "{listed:?}");
    tool.says("gc net --older-than 1h");
    assert!(leases() == ["10.210.2.3"] && rules(&lab).contains("net/still-young/"), "{:?}", leases());
    assert!(!rules(&lab).contains("net/two-hours-old/"));
    tool.says("gc net --older-than 1s");
    tool.says("gc net");
    assert!(leases().is_empty() && !rules(&lab).contains("net/still-young/"));
}

#[test]
fn detach_running_with_older_than_detaches_no_young_container() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [old, young] = ["old-and-running", "young-and-running"].map(|id| lab.container(id));
    lab.configure("10-net.conflist", &network("1.1.0", &json!([bridge("10.210.4.0/24"), ports()])));
    let tool = lab.cnitool();
    tool.says("add net old-and-running --container-id old-and-running -p 8100:80");
    tool.says("add net young-and-running --container-id young-and-running -p 8101:80");
    lab.host().sh("touch -d '2 hours ago' /var/lib/cni/results/net-old-and-running-eth0");
    tool.says("gc net --detach-running --older-than 1h");
    assert!(old.link("eth0").is_none() && young.link("eth0").is_some());
    assert_eq!(leases(), ["10.210.4.3"]);
    let left = rules(&lab);
    assert!(!left.contains("net/old-and-running/") && left.contains("net/young-and-running/"), "{left}");
    tool.says("gc net --detach-running");
    assert!(leases().is_empty() && young.link("eth0").is_none());
}

#[test]
fn gc_keeps_and_lists_resources_of_live_containers_and_removes_stale_ones() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [known, unknown, gone] = ["known", "unknown", "left-before-gc"].map(|id| lab.container(id));
    lab.configure("10-net.conflist", &network("1.1.0", &json!([bridge("10.204.2.0/24")])));
    let tool = lab.cnitool();
    tool.says("add net known --container-id known");
    tool.says(&format!("add net unknown --container-id unknown {ELSEWHERE}"));
    tool.says("add net left-before-gc --container-id left-before-gc");
    gone.vanish();

    let collected = tool.run("gc net");
    assert!(collected.succeeded(), "{collected:#?}");
    for words in ["lease 10.204.2.3 of unknown eth0: kept: alive", "--force"] {
        assert!(collected.stderr.contains(words), "{words}: {collected:#?}");
    }
    assert!(!collected.stderr.contains("of known"), "{collected:#?}");
    assert_eq!(leases(), ["10.204.2.2", "10.204.2.3"]);
    assert!([&known, &unknown].iter().all(|pod| pod.link("eth0").is_some()));
    assert!(rules(&lab).contains("net/unknown/eth0"));

    tool.says("gc net --detach-running");
    assert_eq!(leases(), ["10.204.2.3"], "--detach-running removes what is in cnitool's own cache only");
    tool.says("gc net --force unknown");
    assert!(leases().is_empty() && unknown.link("eth0").is_none());
}

#[test]
fn gc_removes_a_resource_that_force_names_although_its_container_is_alive_and_says_if_nothing_has_the_name() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [cached, unknown] = ["cached", "unknown"].map(|id| lab.container(id));
    lab.configure("10-net.conflist", &network("1.1.0", &json!([bridge("10.219.5.0/24")])));
    let tool = lab.cnitool();
    tool.says("add net cached --container-id cached");
    tool.says(&format!("add net unknown --container-id unknown {ELSEWHERE}"));
    for address in ["10.219.5.2", "10.219.5.3"] {
        let collected = tool.json(&format!("gc net --force {address}"));
        assert_eq!(collected["things"][0]["name"], address, "{collected:#}");
        assert!(!leases().contains(&address.to_owned()), "{address} is still leased");
    }
    assert!(cached.link("eth0").is_some() && unknown.link("eth0").is_some());
    let missing = tool.run("gc net --force nobody");
    assert!(missing.stderr.contains("--force nobody: no container, resource"), "{missing:#?}");
}

/// Plugins with the package skel of CNI 0.7 and earlier answer with code 100.
#[test]
fn a_plugin_of_another_vendor_that_refuses_with_any_code_does_not_fail_a_gc() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let refusal = r#"echo '{"code": 100, "msg": "required env variables missing"}'; exit 1"#;
    lab.fake_plugin(
        "old",
        &format!("[ $CNI_COMMAND = DEL ] || [ $CNI_COMMAND = ADD ] && echo '{{}}' || {{ {refusal}; }}"),
    );
    let pod = lab.container("of-a-refuser");
    lab.configure("10-net.conflist", &network("1.0.0", &json!([bridge("10.204.11.0/24"), {"type": "old"}])));
    let tool = lab.cnitool();
    tool.says("add net of-a-refuser --container-id of-a-refuser");
    pod.vanish();
    lab.host().wait_until("the pair is gone", |host| host.ip("link show master br0").is_empty());
    let collected = tool.run("gc net");
    assert!(
        collected.succeeded() && collected.stderr.contains("cannot list their resources: old"),
        "{collected:#?}"
    );
    assert!(leases().is_empty());
}

/// In the DaemonSet's pod, CNI_PATH may lack the vendor's directory.
#[test]
fn gc_removes_resources_without_a_plugin_of_another_vendor_that_is_not_installed_but_keeps_its_attachment() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.fake_plugin("vendor", "[ $CNI_COMMAND = DEL ] || echo '{\"cniVersion\": \"1.0.0\"}'");
    let pods = ["vendored", "vendored-elsewhere"].map(|id| lab.container(id));
    lab.configure(
        "10-net.conflist",
        &network("1.0.0", &json!([bridge("10.204.13.0/24"), {"type": "vendor"}])),
    );
    let tool = lab.cnitool();
    tool.says("add net vendored --container-id vendored");
    tool.says(&format!("add net vendored-elsewhere --container-id vendored-elsewhere {ELSEWHERE}"));
    pods.iter().for_each(|pod| pod.vanish());
    lab.host().wait_until("the pairs are gone", |host| host.ip("link show master br0").is_empty());

    let without = |dir: &Path| tool.clone().env("CNI_PATH", &dir.display().to_string());
    let only_ours = without(&under_test().dir);
    let listed = only_ours.run("gc net --dry-run");
    assert!(listed.succeeded() && listed.stderr.contains("no directory of CNI_PATH: vendor"), "{listed:#?}");
    let collected = only_ours.run("gc net");
    assert!(
        !collected.succeeded()
            && collected.stderr.contains("vendor DEL: network net: eth0 of container vendored: no"),
        "{collected:#?}"
    );
    assert!(leases().is_empty() && Path::new("/var/lib/cni/results/net-vendored-eth0").exists());
    tool.says("gc net");
    assert!(!Path::new("/var/lib/cni/results/net-vendored-eth0").exists());

    // Without a plugin of Ferrule, GC would miss resources.
    let lacking = without(&Lab::plugin_dir()).run("gc net");
    assert!(!lacking.succeeded() && lacking.stderr.contains("no plugin \"bridge\""), "{lacking:#?}");
}

/// A plugin of another vendor that exits with an error without CNI_COMMAND, and notes each such call.
const STRICT: &str = "cat >/dev/null
    case $CNI_COMMAND in
    ADD) echo '{\"cniVersion\": \"1.1.0\"}' ;;
    DEL) ;;
    *) echo asked >>/run/lab/asked; exit 1 ;;
    esac";

/// The kernel does not remove the links of such a namespace, so there is nothing to wait for.
#[test]
fn gc_lists_resources_once_while_a_process_is_in_a_namespace_whose_path_was_deleted() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.fake_plugin("strict", STRICT);
    let pod = lab.container("listed-once");
    lab.configure(
        "10-net.conflist",
        &network("1.1.0", &json!([{"type": "strict"}, bridge("10.204.10.0/24")])),
    );
    let tool = lab.cnitool();
    tool.says("add net listed-once --container-id listed-once");
    let process = sleeper(&lab, "listed-once");
    pod.vanish();
    let [removed, kept] = dry_run(&tool);
    drop(process);
    assert!(
        removed.is_empty() && kept.contains(&"lease 10.204.10.2 listed-once".to_owned()),
        "{removed:?} {kept:?}"
    );
    assert_eq!(fs::read_to_string("/run/lab/asked").unwrap().lines().count(), 1);
    lab.host().wait_until("the pair is deleted", |host| host.ip("link show master br0").is_empty());
    tool.says("gc net");
    assert!(leases().is_empty() && !rules(&lab).contains("net/listed-once/"));
}

/// Without CAP_NET_ADMIN, the kernel does not tell the addresses beyond a veth, and any container may have the lease's.
#[test]
fn a_container_is_not_called_alive_because_the_addresses_of_a_namespace_cannot_be_read() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    lab.host().sh("ip link add outside type veth peer name inside netns pod");
    let plugin = json!({"type": "macvlan", "ipam": host_local(&[&["10.204.8.0/24"]])});
    lab.configure("10-net.conflist", &network("1.1.0", &json!([plugin])));
    fs::create_dir_all("/var/lib/cni/networks/net").unwrap();
    fs::write("/var/lib/cni/networks/net/10.204.8.9", "leaseholder\r\neth0").unwrap();

    let under = ["setpriv", "--inh-caps=-net_admin", "--bounding-set=-net_admin"];
    let kept = lab.cnitool().under(&under.map(str::to_owned)).json("gc net --dry-run")["kept"].clone();
    let why = kept.as_array().unwrap().iter().map(|one| &one["why"]).collect::<Vec<_>>();
    assert_eq!(why, ["kept: may be alive"], "{kept:#}");
    assert_eq!(dry_run(&lab.cnitool())[0], ["lease 10.204.8.9 leaseholder"]);
}

/// The specification's list of valid attachments would lack this attachment, so GC would remove it. Ferrule sends a list of stale attachments.
#[test]
fn an_attachment_that_is_created_while_gc_runs_keeps_everything() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [late, gone] = ["late", "gone-before-late"].map(|id| lab.container(id));
    let (asked, added) = (lab.dir().join("asked"), lab.dir().join("added"));
    // A plugin that waits in GC, so that the ADD of another runtime runs meanwhile.
    let program = format!(
        "#!/bin/sh\n[ \"$1\" = collect ] || exit 0\ncase $(cat) in *'\"dryRun\":false'*)\n\
         touch {}; while [ ! -e {} ]; do sleep 0.01; done;; esac\n",
        asked.display(),
        added.display()
    );
    write_program(&Lab::plugin_dir().join("between"), &program);
    let tool = lab.cnitool();
    let plain = network("1.1.0", &json!([bridge("10.205.2.0/24"), ports()]));
    lab.configure("10-net.conflist", &plain);
    tool.says("add net gone-before-late --container-id gone-before-late -p 8090:80");
    gone.vanish();
    let slow = json!([{"type": "between"}, bridge("10.205.2.0/24"), ports()]);
    lab.configure("10-net.conflist", &network("1.1.0", &slow));
    let mut running = tool.spawn("gc net");
    lab.host().wait_until("GC is under way", |_| asked.exists());
    lab.configure("10-net.conflist", &plain);
    tool.says(&format!("add net late --container-id late -p 8091:80 {ELSEWHERE}"));
    fs::write(added, "").unwrap();
    running.wait().unwrap();

    assert!(late.link("eth0").is_some(), "the interface was deleted");
    assert!(rules(&lab).contains("8091"), "the host port was deleted");
    assert_eq!(leases().len(), 1);
    assert!(!rules(&lab).contains("net/gone-before-late/"));
}

/// The runtime writes its cache only after all plugins of the network have run.
#[test]
fn gc_says_that_a_container_is_being_started_and_does_not_advise_to_remove_it() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("starting");
    let (running, go_on) = (lab.dir().join("running"), lab.dir().join("go-on"));
    let script = format!(
        "cat >/dev/null; [ \"$CNI_COMMAND\" = ADD ] || exit 0; touch {}; while [ ! -e {} ]; do sleep 0.01; done; exit 1",
        running.display(),
        go_on.display()
    );
    lab.fake_plugin("slow", &script);
    let ours = json!([bridge("10.218.1.0/24"), ports()]);
    let slow = json!([bridge("10.218.1.0/24"), ports(), {"type": "slow"}]);
    lab.configure("10-net.conflist", &network("1.1.0", &slow));
    let tool = lab.cnitool();
    let mut add = tool.spawn(&format!("add net starting --container-id starting -p 8099:80 {ELSEWHERE}"));
    lab.host().wait_until("the last plugin runs", |_| running.exists());
    lab.configure("10-net.conflist", &network("1.1.0", &ours));

    let kept = tool.json("gc net --dry-run")["kept"].clone();
    let kept = kept.as_array().unwrap();
    assert!(!kept.is_empty() && kept.iter().all(|one| one["why"] == "kept: is being started"), "{kept:#?}");
    let collected = tool.run("gc net");
    assert!(collected.succeeded() && collected.stderr.contains("kept: is being started"), "{collected:#?}");
    assert!(!collected.stderr.contains("--force"), "{collected:#?}");
    assert!(pod.link("eth0").is_some() && leases().len() == 1 && rules(&lab).contains("8099"));
    fs::write(go_on, "").unwrap();
    assert!(!add.wait().unwrap().success());
}

/// GC reads the caches, and then asks the plugins. The ADD of another runtime may end in between.
#[test]
fn an_attachment_whose_runtime_writes_its_cache_while_gc_looks_is_not_listed() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("late");
    let tool = lab.cnitool();
    lab.configure("10-net.conflist", &network("1.1.0", &json!([bridge("10.218.2.0/24")])));
    tool.says(&format!("add net late --container-id late {ELSEWHERE}"));
    assert_eq!(dry_run(&tool)[1].len(), 3, "no cache contains it");
    let program = "#!/bin/sh\n[ \"$1\" = collect ] || exit 0\ncat >/dev/null\n\
        mkdir -p /var/lib/cni/results; mv /run/lab/elsewhere/results/net-late-eth0 /var/lib/cni/results/\n";
    write_program(&Lab::plugin_dir().join("runtime"), program);
    let plugins = json!([{"type": "runtime"}, bridge("10.218.2.0/24")]);
    lab.configure("10-net.conflist", &network("1.1.0", &plugins));
    assert_eq!(dry_run(&tool), [[""; 0]; 2]);
    assert!(pod.link("eth0").is_some());
}

/// DEL needs the configuration of the ADD. The second attachment is in the cache of Multus, so cnitool sends no DEL for it.
#[test]
fn rules_of_plugins_that_the_network_no_longer_has_are_listed_and_removed() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [own, other, live] = ["own-cache", "other-cache", "live"].map(|id| lab.container(id));
    let plugins = json!([bridge("10.214.1.0/24"), ports(), {"type": "firewall"}]);
    lab.configure("10-net.conflist", &network("1.1.0", &plugins));
    let tool = lab.cnitool();
    tool.says("add net own-cache --container-id own-cache -p 8095:80");
    tool.says("add net other-cache --container-id other-cache -p 8096:80 --cache-dir /var/lib/cni/multus");
    tool.says("add net live --container-id live -p 8097:80");
    lab.configure("10-net.conflist", &network("1.1.0", &json!([bridge("10.214.1.0/24")])));
    [own, other].iter().for_each(|pod| pod.vanish());
    lab.host().wait_until("the pairs are gone", |host| host.ip("link show master br0").len() == 1);
    let [removed, _] = dry_run(&tool);
    for id in ["own-cache", "other-cache"] {
        for kind in ["hostports rules", "forward rules", "masquerade rules"] {
            assert!(removed.contains(&format!("{kind}  {id}")), "{kind} of {id}: {removed:#?}");
        }
    }
    tool.says("gc net");
    let left = rules(&lab);
    assert!(!left.contains("net/own-cache/") && !left.contains("net/other-cache/"), "{left}");
    assert!(left.contains("8097") && left.contains("net/live/") && live.link("eth0").is_some(), "{left}");
    assert_eq!(leases().len(), 1);
    assert!(dry_run(&tool)[0].is_empty());

    // Another runtime's cache still has a plugin that is no longer installed.
    let last = lab.container("other-cache");
    lab.configure("10-net.conflist", &network("1.1.0", &plugins));
    tool.says("add net other-cache --container-id other-cache --cache-dir /var/lib/cni/multus");
    lab.configure("10-net.conflist", &network("1.1.0", &json!([bridge("10.214.1.0/24")])));
    last.vanish();
    lab.host().wait_until("the pair is gone", |host| host.ip("link show master br0").len() == 1);
    lab.host().sh(&format!(
        "mkdir /run/lab/few; cd {}; cp bridge host-local portmap /run/lab/few",
        quoted(&ours())
    ));
    tool.env("CNI_PATH", "/run/lab/few").says("gc net");
    assert_eq!(leases().len(), 1);
}

#[test]
fn gc_and_doctor_use_the_plugins_of_a_runtime_with_directories_of_its_own() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [live, dead] = ["live", "dead-of-containerd"].map(|id| lab.container(id));
    for dir in ["/etc/containerd", "/usr/lib/cni"] {
        lab.private_dir(dir);
    }
    lab.configure("10-net.conflist", &network("1.1.0", &json!([bridge("10.214.2.0/24")])));
    let tool = lab.cnitool();
    for pod in [&live, &dead] {
        tool.says(&format!("add net {0} --container-id {0}", pod.id));
    }
    dead.vanish();
    lab.host().wait_until("the pair is gone", |host| host.ip("link show master br0").len() == 1);
    lab.host().sh("mkdir /run/lab/networks; mv /etc/cni/net.d/* /run/lab/networks");
    configure_containerd("/run/lab/networks");
    let tool = tool.env("CNI_PATH", "");
    tool.says("gc --all");
    assert_eq!(leases().len(), 1);
    let doctor = tool.run("doctor");
    assert!(!doctor.stdout.contains("CHECK"), "{doctor:#?}");
}

/// A network of Multus is in no file of the configuration directory.
#[test]
fn a_network_that_only_another_runtimes_cache_has_is_collected_by_the_name_that_doctor_prints() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("of-nad");
    let file = lab.dir().join("nad.conflist");
    let plugins = json!([bridge("10.214.3.0/24")]);
    fs::write(&file, json!({"cniVersion": "1.1.0", "name": "nad", "plugins": plugins}).to_string()).unwrap();
    let tool = lab.cnitool();
    tool.says(&format!("add {} of-nad --cache-dir /var/lib/cni/multus", file.display()));
    let lease = "/var/lib/cni/networks/nad/10.214.3.2";
    assert!(Path::new(lease).exists());
    pod.vanish();
    lab.host().wait_until("the pair is gone", |host| host.ip("link show master br0").is_empty());
    let doctor = tool.run("doctor");
    assert!(doctor.stdout.contains("run `cnitool gc nad`"), "{doctor:#?}");
    tool.says("gc nad");
    assert!(!Path::new(lease).exists());
}

/// CRI-O has networks in another directory.
#[test]
fn gc_of_a_name_does_not_use_a_cached_configuration_if_a_runtimes_directory_has_the_network_or_an_invalid_file()
 {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("of-crio");
    for dir in ["/etc/cni/crio", "/etc/crio"] {
        lab.private_dir(dir);
    }
    fs::write("/etc/crio/crio.conf", "[crio.network]\nnetwork_dir = \"/etc/cni/crio\"\n").unwrap();
    let mut network = json!({"cniVersion": "1.1.0", "name": "nad", "plugins": [bridge("10.214.4.0/24")]});
    let file = Path::new("/etc/cni/crio/nad.conflist");
    fs::write(file, network.to_string()).unwrap();
    let tool = lab.cnitool();
    tool.says(&format!("add {} of-crio --cache-dir /var/lib/cni/multus", file.display()));
    pod.vanish();
    lab.host().wait_until("the pair is gone", |host| host.ip("link show master br0").is_empty());
    network["disableGC"] = json!(true);
    for text in [network.to_string(), "{".to_owned()] {
        fs::write(file, text).unwrap();
        let gc = tool.run("gc nad");
        assert!(!gc.succeeded() && gc.stderr.contains("no network \"nad\""), "{gc:#?}");
        assert!(Path::new("/var/lib/cni/networks/nad/10.214.4.2").exists());
    }
}

/// nerdctl's ids are `default-` and 64 digits.
#[test]
fn rules_with_a_shortened_name_are_decided_like_the_other_resources_of_their_attachment() {
    beyond_reference!("gc");
    let [nerdctls, long] = [format!("default-{}", "a".repeat(64)), format!("long-{}", "b".repeat(200))];
    for (container, ifname) in [(&*nerdctls, "eth0"), (&long, "eth0"), ("odd-ifname", "e'0")] {
        let lab = Lab::new();
        let pod = lab.container("shortened");
        lab.configure("10-net.conflist", &network("1.1.0", &json!([bridge("10.217.9.0/24"), ports()])));
        let tool = lab.cnitool();
        let attachment = format!("net shortened --container-id {container} --ifname {ifname}");
        tool.says(&format!("add {attachment} -p 8096:80"));
        let of_cache = format!("/var/lib/cni/results/net-{container}-{ifname}");
        assert_eq!(dry_run(&tool), [[""; 0]; 2], "{container} {ifname}: a cache contains the attachment");
        assert_eq!(tool.run("gc --all").stderr, "", "{container} {ifname}");
        let doctor = tool.run("doctor");
        assert!(!doctor.stdout.contains("cnitool gc"), "{doctor:#?}");
        fs::remove_file(of_cache).unwrap();
        let [removed, kept] = dry_run(&tool);
        let is_owned = |one: &String| one.ends_with(container);
        assert!(removed.is_empty() && kept.iter().all(is_owned), "{removed:#?} {kept:#?}");
        assert!(kept.iter().any(|one| one.starts_with("hostports rules")), "{kept:#?}");
        tool.says("gc net");
        assert!(rules(&lab).contains("8096") && pod.link(ifname).is_some(), "{}", rules(&lab));
        pod.vanish();
        lab.host().wait_until("the pair is gone", |host| host.ip("link show master br0").is_empty());
        let [removed, kept] = dry_run(&tool);
        assert!(removed.iter().any(|one| one.starts_with("hostports rules")), "{removed:#?}");
        assert!(removed.iter().all(is_owned) && kept.is_empty(), "{removed:#?} {kept:#?}");
        assert_eq!(listed(&tool.json("gc net")["things"]), removed);
        assert!(leases().is_empty() && !rules(&lab).contains("8096"), "{}", rules(&lab));
    }
}

/// The reference attaches a container with masquerade rules in nftables, which contain only a hash of their attachment.
fn attached_by_the_reference(lab: &Lab, id: &str, subnet: &str) -> Tool {
    let mut bridge = bridge(subnet);
    bridge["ipMasqBackend"] = "nftables".into();
    lab.configure("10-net.conflist", &network("1.1.0", &json!([bridge])));
    let tool = lab.cnitool();
    tool.clone().by_release(Release::V1_9_1).says(&format!("add net {id} --container-id {id}"));
    tool
}

#[test]
fn rules_of_the_reference_are_decided_like_the_other_resources_of_their_attachment() {
    beyond_reference!("gc");
    if !Release::V1_9_1.is_here() {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("hashed-owner");
    let tool = attached_by_the_reference(&lab, "hashed-owner", "10.217.8.0/24");
    assert_eq!(dry_run(&tool), [[""; 0]; 2], "a cache contains the attachment");
    pod.vanish();
    lab.host().wait_until("the pair is gone", |host| host.ip("link show master br0").is_empty());
    let [removed, kept] = dry_run(&tool);
    assert!(kept.is_empty() && removed.iter().any(|one| one.contains("rules of")), "{removed:#?} {kept:#?}");
    assert_eq!(listed(&tool.json("gc net")["things"]), removed);
    assert!(!rules(&lab).contains("10.217.8."), "{}", rules(&lab));
}

#[test]
fn rules_of_an_unknown_container_are_kept_until_force_names_them() {
    beyond_reference!("gc");
    if !Release::V1_9_1.is_here() {
        return;
    }
    let lab = Lab::new();
    let pod = lab.container("lost-owner");
    let tool = attached_by_the_reference(&lab, "lost-owner", "10.217.1.0/24");
    pod.vanish();
    lab.host().sh("rm /var/lib/cni/results/net-lost-owner-eth0 /var/lib/cni/networks/net/10.217.1.2");
    let kept = tool.json("gc net --dry-run")["kept"].clone();
    assert!(kept[0]["containerID"] == "" && kept[0]["why"] == "kept: owner unknown", "{kept:#}");
    let name = kept[0]["name"].as_str().unwrap().to_owned();
    let doctor = tool.run("doctor");
    assert!(doctor.stdout.contains("`cnitool gc net --force NAME`"), "{doctor:#?}");
    let before = rules(&lab);
    let collected = tool.run("gc net");
    let advice = "to remove resources of unknown containers, pass --force NAME";
    assert!(collected.succeeded() && collected.stderr.contains(advice), "{collected:#?}");
    assert!(!collected.stderr.contains("--force CONTAINER"), "{collected:#?}");
    assert!(rules(&lab) == before && before.contains(&name), "{before}");
    tool.says(&format!("gc net --force {name}"));
    assert!(!rules(&lab).contains(&name), "{}", rules(&lab));
    assert_eq!(dry_run(&tool), [[""; 0]; 2]);
}

#[test]
fn gc_also_works_for_networks_of_old_versions() {
    beyond_reference!("gc");
    for version in ["0.3.1", "0.4.0", "1.0.0"] {
        let lab = Lab::new();
        let gone = lab.container("of-old-version");
        lab.configure("10-net.conflist", &network(version, &json!([bridge("10.219.1.0/24"), ports()])));
        let tool = lab.cnitool();
        tool.says(&format!("add net of-old-version --container-id of-old-version -p 8092:80 {ELSEWHERE}"));
        gone.vanish();
        lab.host().wait_until("the pair is gone", |host| host.ip("link show master br0").is_empty());
        let said = tool.run("gc --all");
        assert!(
            leases().is_empty() && !rules(&lab).contains("net/of-old-version/"),
            "{version}: {said:?} {}",
            rules(&lab)
        );
    }
}

/// A document of a configuration may not have as many values as the list of these leases.
#[test]
fn gc_releases_twelve_thousand_stale_leases() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.configure("10-net.conflist", &network("1.1.0", &json!([bridge("10.217.0.0/16")])));
    fs::create_dir_all("/var/lib/cni/networks/net").unwrap();
    for number in 2..12_002 {
        let (third, last) = (number / 250, number % 250 + 2);
        fs::write(
            format!("/var/lib/cni/networks/net/10.217.{third}.{last}"),
            format!("gone{number}\r\neth0"),
        )
        .unwrap();
    }
    let tool = lab.cnitool();
    let [removed, kept] = dry_run(&tool);
    assert!(removed.len() == 12_000 && kept.is_empty(), "{} {kept:?}", removed.len());
    tool.says("gc net");
    assert_eq!(leases(), [""; 0]);
}

/// Random containers, in a cache or not, alive or not. The message of a failure contains the seed.
#[test]
fn a_gc_removes_exactly_what_the_dry_run_lists_on_random_hosts() {
    beyond_reference!("gc");
    for seed in 1..=6_u64 {
        let lab = Lab::new();
        let plugins = json!([bridge(&format!("10.207.{seed}.0/24")), ports()]);
        lab.configure("10-net.conflist", &network(if seed % 2 == 0 { "1.1.0" } else { "1.0.0" }, &plugins));
        let tool = lab.cnitool();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut pods = Vec::new();
        for i in 0..6 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let id = format!("random{seed}x{i}");
            let (pod, cache) = (lab.container(&id), if random & 1 == 0 { "" } else { ELSEWHERE });
            tool.says(&format!("add net {id} --container-id {id} -p {}:80 {cache}", 9000 + i));
            pods.push((id, pod, random & 2 == 0));
        }
        for (_, pod, is_alive) in &pods {
            if !is_alive {
                pod.vanish();
            }
        }
        let alive = pods.iter().filter(|(_, _, is_alive)| *is_alive).count();
        let ports = |host: &lab::Netns| host.ip("link show master br0").len() == alive;
        lab.host().wait_until("only live containers have a port", ports);

        let [would_remove, kept] = dry_run(&tool);
        let done = tool.json("gc net");
        assert_eq!(listed(&done["things"]), would_remove, "seed {seed}");
        assert_eq!(listed(&done["kept"]), kept, "seed {seed}");
        assert_eq!(dry_run(&tool), [vec![], kept], "seed {seed}: all that was listed is gone");
        let ruleset = rules(&lab);
        for (id, pod, is_alive) in &pods {
            assert_eq!(ruleset.contains(&format!("net/{id}/")), *is_alive, "seed {seed}: rules of {id}");
            assert!(!is_alive || pod.link("eth0").is_some(), "seed {seed}: the interface of {id}");
        }
        assert_eq!(leases().len(), alive, "seed {seed}");
    }
}

/// A loss of power may leave an incomplete file without any other trace of its container.
#[test]
fn gc_deletes_old_incomplete_files_of_the_cache() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.configure("10-net.conflist", &network("1.1.0", &json!([bridge("10.215.2.0/24")])));
    let results = "/var/lib/cni/results";
    lab.host().sh(&format!(
        "mkdir -p {results}; touch -d '1 hour ago' {results}/.new.7.0.net-old-eth0; touch {results}/.new.7.0.net-young-eth0"
    ));
    lab.cnitool().says("gc --all");
    assert_eq!(lab.host().sh(&format!("ls -A {results} | grep new")), ".new.7.0.net-young-eth0\n");
}

/// The command that runs a program in a PID namespace of its own, as its first process.
const IN_A_POD: [&str; 4] = ["unshare", "--pid", "--fork", "--mount-proc"];

/// The same, as a child of the first process, which is a shell with this path.
fn child_of(first: &str) -> Vec<String> {
    let shell = [first, "-c", r#""$@"; exit $?"#, first];
    IN_A_POD.into_iter().chain(shell).map(str::to_owned).collect()
}

/// The path of a namespace leads to a process, as in the caches of nerdctl and `ctr`.
#[test]
fn a_gc_that_does_not_see_all_processes_keeps_attachments_whose_namespace_is_that_of_a_process() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("with-a-process");
    cable(&lab);
    let plugin = json!({"type": "macvlan", "master": "cable", "ipam": host_local(&[&["10.204.9.0/24"]])});
    lab.configure("10-net.conflist", &network("1.1.0", &json!([plugin])));
    let tool = lab.cnitool();
    let process = sleeper(&lab, "with-a-process");
    tool.says(&format!("add net /proc/{}/ns/net --container-id with-a-process", process.id()));
    // GC is the first process of a pod, or a shell or tini is.
    for under in [IN_A_POD.map(str::to_owned).to_vec(), child_of("sh")] {
        tool.clone().under(&under).says("gc net");
        assert_eq!(leases(), ["10.204.9.2"], "the address of a running container was released");
    }
    drop(process);
    pod.vanish();
    tool.clone().under(&child_of("sh")).says("gc net");
    assert_eq!(leases(), ["10.204.9.2"], "it cannot know that the container has exited");
    // A whole machine in a PID namespace has an init: a node of kind, an LXC container.
    lab.host().sh("cp /bin/sh /run/lab/init");
    tool.clone().under(&child_of("/run/lab/init")).says("gc net");
    assert!(leases().is_empty());
}

/// The rules contain no address and no path.
#[test]
fn rules_of_an_unknown_container_are_stale_if_every_namespace_of_the_host_is_that_of_a_live_attachment() {
    beyond_reference!("gc");
    needs!(Macvlan);
    let lab = Lab::new();
    let [dead, other, _live] = ["left-only-rules", "in-no-cache", "live"].map(|id| lab.container(id));
    cable(&lab);
    let tool = lab.cnitool();
    for (address, container, port, cache) in
        [("10.203.3.8/24", "left-only-rules", 8102, ELSEWHERE), ("10.203.3.9/24", "live", 8103, "")]
    {
        let ipam = json!({"type": "static", "addresses": [{"address": address}]});
        let plugins = json!([{"type": "macvlan", "master": "cable", "ipam": ipam}, ports()]);
        lab.configure("10-net.conflist", &network("1.1.0", &plugins));
        tool.says(&format!("add net {container} --container-id {container} -p {port}:80 {cache}"));
    }
    dead.vanish();
    // Only in a PID namespace of its own, GC finds no namespaces of other tests.
    lab.host().sh("cp /bin/sh /run/lab/init");
    let tool = tool.under(&child_of("/run/lab/init"));
    tool.says("gc net");
    assert!(rules(&lab).contains("net/left-only-rules/"), "the container may be in the other namespace");
    other.vanish();
    tool.says("gc net");
    let left = rules(&lab);
    assert!(!left.contains("net/left-only-rules/") && left.contains("net/live/"), "{left}");
}

/// docs/host-local.md: "You may add and delete files".
#[test]
fn gc_keeps_leases_that_an_administrator_has_written_and_addresses_of_the_host() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    lab.configure("10-net.conflist", &network("1.1.0", &json!([bridge("10.219.4.0/24")])));
    let tool = lab.cnitool();
    tool.says("add net pod --container-id pod");
    lab.host().sh("ip address add 10.219.4.60/32 dev br0");
    for (host, content) in [
        (50, "reserved"),
        (51, "used by the printer, do not touch"),
        (60, "vip\r\neth0"),
        (70, "never-existed\r\neth0"),
    ] {
        fs::write(format!("{STORE}/10.219.4.{host}"), content).unwrap();
    }
    let [removed, kept] = dry_run(&tool);
    assert_eq!(removed, ["lease 10.219.4.70 never-existed"]);
    assert_eq!(kept.len(), 3, "{kept:?}");
    tool.says("gc net");
    assert_eq!(leases(), ["10.219.4.2", "10.219.4.50", "10.219.4.51", "10.219.4.60"]);
    // --force names the lease.
    tool.says("gc net --force 10.219.4.50 --force 10.219.4.51");
    assert_eq!(leases(), ["10.219.4.2", "10.219.4.60"]);
}

/// A macvlan network, so no veth leads to the container.
fn macvlan(lab: &Lab, subnet: &str) -> Tool {
    cable(lab);
    let plugin = json!({"type": "macvlan", "master": "cable", "ipam": host_local(&[&[subnet]])});
    lab.configure("10-net.conflist", &network("1.1.0", &json!([plugin])));
    lab.cnitool()
}

/// Old releases of the reference have written such a lease.
#[test]
fn a_lease_without_interface_stays_until_all_attachments_of_its_container_are_stale() {
    beyond_reference!("gc");
    needs!(Macvlan);
    let lab = Lab::new();
    // The interfaces of one container are usually in one namespace. Here, one of them ends before the other.
    let [first, second] = ["two-nics-a", "two-nics-b"].map(|id| lab.container(id));
    lab.claim_name("two-nics");
    let tool = macvlan(&lab, "10.204.16.0/24");
    tool.says("add net two-nics-a --container-id two-nics");
    tool.says("add net two-nics-b --container-id two-nics --ifname net1");
    fs::write(format!("{STORE}/10.204.16.2"), "two-nics").unwrap();
    second.vanish();
    assert_eq!(dry_run(&tool)[0], ["attachment  two-nics", "lease 10.204.16.3 two-nics"]);
    tool.says("gc net");
    assert_eq!(leases(), ["10.204.16.2"]);
    first.vanish();
    tool.says("gc net");
    assert!(leases().is_empty());
}

#[test]
fn a_gc_that_does_not_see_the_path_of_a_namespace_keeps_the_attachment_while_others_of_the_host_see_it() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = macvlan(&lab, "10.204.5.0/24");
    let private = started_by("unshare", "--mount --propagation private sleep 600");
    let process = in_background(lab.host(), private, Path::new("/dev/null"));
    let is_asleep = |_: &_| {
        fs::read_to_string(format!("/proc/{}/comm", process.id())).is_ok_and(|name| name.trim() == "sleep")
    };
    lab.host().wait_until("the process has its own mounts", is_asleep);
    let mounts = format!("--mount=/proc/{}/ns/mnt", process.id());
    // As a GC in a container that was started before this namespace was mounted. containerd and CRI-O use the second path.
    for path in ["/run/netns/unseen-path", "/var/run/netns/unseen-path"] {
        let pod = lab.container("unseen-path");
        tool.says(&format!("add net {path} --container-id of-unseen-path"));
        tool.clone().under(&["nsenter", &mounts].map(str::to_owned)).says("gc net");
        assert_eq!(leases().len(), 1, "the address of the running container at {path} was released");
        pod.vanish();
        tool.says("gc net");
        assert!(leases().is_empty(), "{path}");
    }
    drop(process);
}

#[test]
fn gc_keeps_an_attachment_without_veth_while_a_process_is_in_a_namespace_whose_path_was_deleted() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = macvlan(&lab, "10.204.4.0/24");
    let pod = lab.container("deleted-path");
    tool.says("add net deleted-path --container-id of-deleted-path");
    let process = sleeper(&lab, "deleted-path");
    pod.vanish();
    assert_eq!(dry_run(&tool)[1], ["lease 10.204.4.2 of-deleted-path"]);
    tool.says("gc net");
    assert_eq!(leases(), ["10.204.4.2"], "the address of a running container was released");
    drop(process);
    tool.says("gc net");
    assert!(leases().is_empty());
}

/// The container has changed what its network has given it.
#[test]
fn gc_keeps_an_attachment_while_a_process_is_in_a_control_group_of_its_container() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let tool = macvlan(&lab, "10.204.15.0/24");
    // Any process of the machine with such a word in its control group would be one of the container.
    for (name, id, cache) in
        [("regrouped", "c85a7798f4c3d0e2", ""), ("regrouped-too", "c85a7798f4c3d0e3", ELSEWHERE)]
    {
        let pod = lab.container(name);
        tool.says(&format!("add net {name} --container-id {id} {cache}"));
        let process = sleeper(&lab, name);
        pod.sh("ip address flush dev eth0; ip link set eth0 address 02:00:00:00:00:98");
        show_in_control_group(&lab, &process, id);
        pod.vanish();
        tool.says("gc net");
        assert_eq!(leases().len(), 1, "{name}: the address of a running container was released");
        drop(process);
        tool.says("gc net");
        assert!(leases().is_empty(), "{name}");
    }
}

/// A plugin of another vendor, which receives the specification's GC.
const RECORDER: &str = r#"request=$(cat)
    [ -n "$CNI_COMMAND" ] || exit 1
    [ "$CNI_COMMAND" != GC ] || echo "$request" >/run/lab/asked
    [ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.1.0"}'"#;

#[test]
fn a_plugin_of_another_vendor_learns_that_an_attachment_of_another_cache_is_valid_while_a_process_is_in_its_namespace()
 {
    beyond_reference!("gc");
    let lab = Lab::new();
    cable(&lab);
    lab.fake_plugin("recorder", RECORDER);
    let ipam = json!({"type": "static", "addresses": [{"address": "10.204.3.2/24"}]});
    let plugins = json!([{"type": "recorder"}, {"type": "macvlan", "master": "cable", "ipam": ipam}]);
    lab.configure("10-net.conflist", &network("1.1.0", &plugins));
    let tool = lab.cnitool();
    let pod = lab.container("valid-path");
    tool.says("add net valid-path --container-id of-valid-path --cache-dir /var/lib/cni/other");
    let process = sleeper(&lab, "valid-path");
    pod.vanish();
    let valid = || {
        tool.says("gc net --force recorder");
        let asked: Value = serde_json::from_slice(&fs::read("/run/lab/asked").unwrap()).unwrap();
        asked["cni.dev/valid-attachments"].clone()
    };
    assert_eq!(valid(), json!([{"containerID": "of-valid-path", "ifname": "eth0"}]));
    drop(process);
    assert_eq!(valid(), json!([]));
}

#[test]
fn a_lease_stays_if_the_addresses_of_a_namespace_cannot_be_read() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("pod");
    cable(&lab);
    let plugin = json!({"type": "macvlan", "master": "cable", "ipam": host_local(&[&["10.204.7.0/24"]])});
    lab.configure("10-net.conflist", &network("1.1.0", &json!([plugin])));
    let tool = lab.cnitool();
    // The container's id is nowhere else on the host.
    tool.says(&format!("add net {} --container-id unknown {ELSEWHERE}", pod.id));
    let unread = injecting(&["-f", "-e", "inject=setns:error=ENFILE"]);
    let run = tool.clone().under(&unread).run("gc net");
    assert_eq!(leases(), ["10.204.7.2"], "the address of a running container was released");
    assert!(run.succeeded() && run.stderr.contains("of unknown eth0: kept: may be alive"), "{run:#?}");
}

/// A plugin that lists a toy and cannot remove it.
const STUBBORN: &str = r#"request=$(cat)
    case $1$request in
    collect*'"dryRun":true'*) echo '{"things": [{"kind": "toy", "containerID": "of-a-stubborn-one", "ifname": "eth0", "address": "10.219.2.2"}]}' ;;
    collect*) echo '{"code": 111, "msg": "it is stuck", "ferrule": "0.2.0"}'; exit 1 ;;
    esac
    [ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.1.0"}'"#;

#[test]
fn a_failed_gc_reports_as_removed_only_what_it_has_removed() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.fake_plugin("stubborn", STUBBORN);
    let pod = lab.container("of-a-stubborn-one");
    let plugins = json!([{"type": "stubborn"}, bridge("10.219.2.0/24")]);
    lab.configure("10-net.conflist", &network("1.1.0", &plugins));
    let tool = lab.cnitool();
    tool.says(&format!("add net of-a-stubborn-one --container-id of-a-stubborn-one {ELSEWHERE}"));
    pod.vanish();
    lab.host().wait_until("the pair is gone", |host| host.ip("link show master br0").is_empty());
    assert!(dry_run(&tool)[0].iter().any(|one| one.starts_with("toy")));
    let failed = tool.run("gc net --output json");
    let report: Value = serde_json::from_str(&failed.stdout).unwrap();
    let things = listed(&report["things"]);
    assert!(!failed.succeeded() && failed.stderr.contains("it is stuck"), "{failed:?}");
    assert!(things.iter().any(|one| one.starts_with("lease")), "{things:?}");
    assert!(!things.iter().any(|one| one.starts_with("toy")), "{things:?}");
    assert!(leases().is_empty());
}

/// It may be that of the network, and have `disableGC`.
#[test]
fn a_network_of_a_cache_is_not_collected_while_a_configuration_file_is_invalid() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pod = lab.container("of-invalid-file");
    lab.configure("10-net.conflist", &network("1.1.0", &json!([bridge("10.219.3.0/24")])));
    let tool = lab.cnitool();
    tool.says("add net of-invalid-file --container-id of-invalid-file");
    pod.vanish();
    let file = "/etc/cni/net.d/10-net.conflist";
    fs::write(file, r#"{"cniVersion": "1.1.0", "name": "net", "disableGC": true, "plugins": [}"#).unwrap();
    let all = tool.run("gc --all");
    assert!(
        all.stderr
            .contains(&format!("network net: GC is skipped, because its configuration may be in {file}")),
        "{all:?}"
    );
    let one = tool.run("gc net");
    assert!(!one.succeeded() && one.stderr.contains(file), "{one:?}");
    assert_eq!(leases().len(), 1);
    fs::remove_file(file).unwrap();
    tool.says("gc --all");
    assert!(leases().is_empty());
}
