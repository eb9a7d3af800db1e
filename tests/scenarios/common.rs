//! Configurations of several scenarios, and how to read results.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::Path;

use lab::dhcp::{Background, in_background, started_by};
use lab::{Call, Container, Lab, Netns, StopPoint, ours, repository, tcp_says};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// host-local's directory for the network `net`.
pub const STORE: &str = "/var/lib/cni/networks/net";

/// A bridge with host-local, of both families, as the containers' default gateway.
pub fn dual_stack() -> Value {
    json!({
        "bridge": "br0",
        "isDefaultGateway": true,
        "ipam": host_local(&[&["10.1.2.0/24"], &["fd00:1:2::/64"]]),
    })
}

/// Forwards packets, but sets the defaults for new links of the host as some guides to hardening do.
pub fn new_links_neither_forward_nor_have_ipv6(lab: &Lab) {
    lab.host().sh(
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
         sysctl -qw net.ipv4.conf.default.forwarding=0 net.ipv6.conf.default.forwarding=0 net.ipv6.conf.default.disable_ipv6=1",
    );
}

/// Waits until the host has a default route through this link from a router advertisement (RFC 4861, section 4.2) of a machine.
pub fn learn_default_route(lab: &Lab, router: &Netns, link: &str) {
    const ADVERTISE: &str = "
import socket, struct
sender = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
half_an_hour = struct.pack('!BBHBBHII', 134, 0, 0, 64, 0, 1800, 0, 0)
sender.sendto(half_an_hour, ('ff02::1', 0, 0, socket.if_nametoindex('eth0')))
";
    lab.host().wait_until("the default route is learned", |host| {
        // Before its link-local address is tested, the machine sends from another one, and the host ignores the advertisement.
        router.exec(&["python3", "-c", ADVERTISE]);
        has_learned_default_route(host, link)
    });
}

pub fn has_learned_default_route(host: &Netns, link: &str) -> bool {
    host.sh("ip -6 route show default").contains(&format!("dev {link} proto ra"))
}

/// host-local with range sets of whole subnets.
pub fn host_local(sets: &[&[&str]]) -> Value {
    let set = |subnets: &&[&str]| subnets.iter().map(|subnet| json!({"subnet": subnet})).collect::<Vec<_>>();
    json!({"type": "host-local", "ranges": sets.iter().map(set).collect::<Vec<_>>()})
}

/// portmap with the host ports that the runtime requests.
pub fn ports() -> Value {
    json!({"type": "portmap", "capabilities": {"portMappings": true}})
}

/// The addresses of a result, in its order.
pub fn ips(result: &Value) -> Vec<&str> {
    let ips = result["ips"].as_array().map(Vec::as_slice).unwrap_or_default();
    ips.iter().map(|ip| ip["address"].as_str().unwrap()).collect()
}

/// The interface in the container, in a result.
pub fn container_interface(result: &Value) -> &Value {
    let interfaces = result["interfaces"].as_array().unwrap();
    interfaces.iter().find(|one| one["sandbox"].as_str().is_some_and(|path| !path.is_empty())).unwrap()
}

/// The host's end of the container's veth, in a result.
pub fn host_end(result: &Value) -> &str {
    let mut names = result["interfaces"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
    names.rfind(|name| name.starts_with("veth")).unwrap()
}

/// An attachment's MACs stay when udev sees its interfaces a moment later. udev replaces random MACs (`MACAddressPolicy=persistent`,
/// systemd.link(5)), on the host and in a container that runs udev.
pub fn udev_replaces_no_mac(lab: &Lab, call: &Call, pod: &Container) {
    // 1 is NET_ADDR_RANDOM of linux/netdevice.h.
    let udev = "for link in /sys/class/net/*; do
        if [ $(cat $link/addr_assign_type) = 1 ]; then
            ip link set ${link##*/} address 02:00:00:00:00:$(printf %02x $(cat $link/ifindex)); echo ${link##*/}
        fi
    done";
    let inside = format!("ip netns exec {} sh -ec '{udev}'", pod.id);
    let udev = || lab.host().sh(udev) + &lab.host().sh(&inside);
    // The lab's own links.
    udev();
    let call = call.clone().on(pod);
    let result = call.add().ok_result();
    assert_eq!(udev(), "");
    call.check(&result).ok();
}

/// The leased addresses on disk.
pub fn leases() -> Vec<String> {
    let entries =
        fs::read_dir(STORE).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    let mut leases: Vec<_> = entries.filter(|name| name.parse::<IpAddr>().is_ok()).collect();
    leases.sort();
    leases
}

/// A process in a container's namespace, which is killed when this is dropped. Some runtimes name the namespace by such a process.
pub fn sleeper(lab: &Lab, id: &str) -> Background {
    let command = started_by("ip", &format!("netns exec {id} sleep 600"));
    let process = in_background(lab.host(), command, Path::new("/dev/null"));
    lab.host().wait_until("the process is inside", |_| {
        fs::read_to_string(format!("/proc/{}/comm", process.id())).is_ok_and(|name| name.trim() == "sleep")
    });
    process
}

/// Commands of a variant of iptables, for both families.
pub fn both_families(variant: &str, orders: &str) -> String {
    format!("for tool in iptables-{variant} ip6tables-{variant}; do {orders}\ndone")
}

/// A PATH that begins with the tools of [`choose_tools`].
pub const TOOLS: &str = "/run/lab/tools:/usr/sbin:/usr/bin:/sbin:/bin";

/// Makes a variant of iptables the one that plugins with the PATH [`TOOLS`] find.
pub fn choose_tools(variant: &str) {
    fs::create_dir("/run/lab/tools").unwrap();
    for family in ["iptables", "ip6tables"] {
        for verb in ["", "-restore", "-save"] {
            let multi = format!("/usr/sbin/xtables-{variant}-multi");
            symlink(multi, format!("/run/lab/tools/{family}{verb}")).unwrap();
        }
    }
}

pub fn by_those_tools(call: Call) -> Call {
    call.env("PATH", TOOLS)
}

/// A command that starts a program as in the container of a manifest for Kubernetes, which is not privileged: with the
/// manifest's capabilities, and a read-only /proc/sys.
pub fn restricted(manifest: &str) -> Vec<String> {
    let text = fs::read_to_string(repository().join("packaging/kubernetes").join(manifest)).unwrap();
    let names = text.lines().find_map(|line| line.trim().strip_prefix("add: [")?.strip_suffix(']'));
    let names = names.unwrap().replace('"', "").replace(", ", ",+").to_lowercase();
    let script = format!(
        "mount --bind /proc/sys /proc/sys; mount -o remount,ro,bind /proc/sys
         exec setpriv --no-new-privs --bounding-set=-all,+{names} \"$0\" \"$@\""
    );
    ["unshare", "--mount", "sh", "-ec", &script].map(str::to_owned).to_vec()
}

/// A link of the host, to be a master on layer 2.
pub fn cable(lab: &Lab) {
    lab.host().sh("ip link add cable type veth peer name far; ip link set cable up; ip link set far up");
}

/// An attribute of a link's kind, by its name in `ip -d -j`.
pub fn data(netns: &Netns, link: &str, key: &str) -> Value {
    netns.link(link).unwrap()["linkinfo"]["info_data"][key].clone()
}

pub fn is_up(netns: &Netns, link: &str) -> bool {
    netns.link(link).unwrap()["flags"].as_array().unwrap().contains(&json!("UP"))
}

/// Asserts that ADD makes eth0 ignore router advertisements before it sets eth0 up. A router may answer the kernel's
/// first solicitation immediately.
pub fn ignores_routers_before_it_is_up(pod: &Container, call: &Call) {
    let add = |strace: &[String]| call.clone().under(strace).add().ok_result();
    for key in ["accept_ra", "autoconf"] {
        let written = StopPoint::before(&format!("/conf/eth0/{key}>"), |strace| drop(add(strace)));
        call.del().ok();
        written.run(add, || assert!(!is_up(pod, "eth0"), "eth0 is up before {key} is written"));
        assert_eq!(pod.sysctl(&format!("ipv6/conf/eth0/{key}")), "0", "{key}");
        call.del().ok();
    }
}

/// If another plugin or network already has eth0, ADD fails, and the following DEL keeps the interface.
pub fn a_taken_name_is_refused(lab: &Lab, call: &Call) {
    let before = lab.snapshot();
    call.add().refused(4, "CNI_IFNAME eth0");
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

/// The command that runs a program whose output cannot be delivered.
pub fn with_full_stdout() -> [String; 3] {
    ["sh", "-c", r#"exec "$0" "$@" >/dev/full"#].map(str::to_owned)
}

/// Configures containerd with the plugins under test, and with this directory of networks. /etc/containerd must be the lab's own.
pub fn configure_containerd(networks: &str) {
    let config = format!(
        "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"{}\"\nconf_dir = \"{networks}\"\n",
        ours().display()
    );
    fs::write("/etc/containerd/config.toml", config).unwrap();
}

/// Shows a process in a control group of a container, as containerd names it.
pub fn show_in_control_group(lab: &Lab, process: &Background, id: &str) {
    lab.host().sh(&format!(
        "echo 0::/kubepods.slice/cri-containerd-{id}.scope >/run/lab/cgroup; mount --bind /run/lab/cgroup /proc/{}/cgroup",
        process.id()
    ));
}

/// Makes a machine remember another machine with these addresses.
pub fn remember_another_machine(neighbour: &Netns, addresses: &[&str]) {
    for address in addresses {
        neighbour.sh(&format!("ip neigh replace {address} lladdr 02:00:00:00:00:99 dev eth0 nud reachable"));
    }
}

/// Waits until a machine has learned the MAC address of all addresses.
pub fn until_learned(neighbour: &Netns, addresses: &[&str], mac: &Value) {
    for address in addresses {
        neighbour.wait_until("the neighbour has learned it", |neighbour| {
            neighbour.ip(&format!("neigh show {address}")).iter().any(|known| known["lladdr"] == *mac)
        });
    }
}

/// An ADD whose IPAM plugin fails leaves nothing.
pub fn a_failed_ipam_plugin_leaves_nothing(lab: &Lab, call: &Call) {
    lab.fake_plugin("refuser", r#"echo '{"cniVersion": "1.0.0", "code": 11, "msg": "later"}'; exit 1"#);
    let before = lab.snapshot();
    call.clone().config(json!({"ipam": {"type": "refuser"}})).add().refused(11, "later");
    lab.snapshot().assert_same(&before);
}

/// With CNI_NETNS_OVERRIDE, the interface is not in a container's namespace, with which the kernel would delete it. `call` has host-local.
/// `other` can have an interface next to it, in another network.
pub fn gc_deletes_an_interface_in_the_hosts_namespace(lab: &Lab, call: Call, other: Call) {
    let vm = Container { id: "vm".to_owned(), netns: lab.host().clone() };
    let on_host = |call: Call, ifname: &str| call.on(&vm).env("CNI_NETNS_OVERRIDE", "1").ifname(ifname);
    let call = on_host(call, "vm0");
    call.add().ok_result();
    on_host(other, "kept0").config(json!({"name": "other", "ipam": null})).add().ok_result();
    call.gc(&[("vm", "vm0")]).ok();
    assert!(lab.host().link("vm0").is_some() && leases() == ["10.1.2.2"]);
    call.gc(&[("vm", "kept0")]).ok();
    assert!(lab.host().link("vm0").is_none() && leases().is_empty());
    assert!(lab.host().link("kept0").is_some(), "it is of another network");
}

/// The container's address as a server on another machine sees it. The kernel gives up the search for a neighbour after
/// three seconds, in which a busy machine may not have answered: then it is asked again.
pub fn seen_as(pod: &Netns, server: &str) -> String {
    let answer = (0..5).find_map(|_| tcp_says(pod, server)).expect("the way to the other machine is open");
    answer.split_once(' ').unwrap().1.to_owned()
}

/// After a container's namespace was deleted, a DEL without a namespace removes its rules, and keeps another
/// container's. The caller chooses the name of the deleted container.
pub fn del_removes_rules_without_the_namespace(name: &str, plugin: &str, network: Value, rules: Value) {
    let shown = format!("{network} {rules}");
    let lab = Lab::new();
    let [stays, goes] = ["stays", name].map(|id| lab.container(id));
    let call = lab.plugin(plugin).config(network).config(rules);
    call.clone().on(&stays).add().ok_result();
    let before = lab.host().ruleset();
    let call = call.on(&goes);
    call.add().ok_result();
    assert_ne!(lab.host().ruleset(), before, "{shown}");
    goes.vanish();
    call.without("CNI_NETNS").del().ok();
    assert_eq!(lab.host().ruleset(), before, "{shown}");
}

/// Rules, routes and addresses of a container, as text.
pub fn routing_of(pod: &Netns) -> String {
    let all = pod.sh(
        "for family in 4 6; do ip -$family rule; ip -$family -d route show table all; ip -$family -o addr; done",
    );
    // The kernel lists entries of equal rank in the order of their creation.
    let mut lines: Vec<&str> = all.lines().map(str::trim).collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// A separate network behind `cableN`, with the gateways 10.N.0.1 and fd00:N::1. The client behind them has the same
/// addresses in each: 192.0.2.2 and 2001:db8:77::2.
pub fn site(lab: &Lab, n: u8) -> Container {
    site_of(lab, n, n)
}

/// Like [`site`], with the gateways 10.NET.0.1 and fd00:NET::1.
pub fn site_of(lab: &Lab, n: u8, net: u8) -> Container {
    let (router, client) = (lab.container(&format!("router{n}")), lab.container(&format!("client{n}")));
    lab.host().sh(&format!(
        "ip link add cable{n} type veth peer name wan netns router{n}; ip link set cable{n} up"
    ));
    router.sh(&format!(
        "ip link set wan up; ip addr add 10.{net}.0.1/24 dev wan; ip addr add fd00:{net}::1/64 dev wan nodad
         ip link add lan type veth peer name eth0 netns client{n}; ip link set lan up
         ip addr add 192.0.2.1/24 dev lan; ip addr add 2001:db8:77::1/64 dev lan nodad
         echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding"
    ));
    client.sh(
        "ip link set eth0 up; ip addr add 192.0.2.2/24 dev eth0; ip addr add 2001:db8:77::2/64 dev eth0 nodad
         ip route add default via 192.0.2.1",
    );
    client.wait_until("the client's carrier is there", |client| {
        client.link("eth0").is_some_and(|link| link["operstate"] == "UP")
    });
    client.sh("ip -6 route add default via 2001:db8:77::1");
    client
}

/// Whether this process, and therefore its children, ignores a signal: a bit of the mask in proc_pid_status(5). A test with the signal
/// counts as skipped then.
pub fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let is_ignored = u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal as i32 - 1)) != 0;
    if is_ignored {
        lab::skip(&format!("the caller of the tests ignores {signal}"));
    }
    is_ignored
}

/// The command that runs a program in a time namespace, in which the host has started these seconds earlier.
pub fn started_earlier(seconds: i64) -> [String; 4] {
    ["unshare", "--time", "--fork", &format!("--boottime={seconds}")].map(str::to_owned)
}

/// The same, in which the host has started a second ago.
pub fn after_a_reboot() -> [String; 4] {
    let up = fs::read_to_string("/proc/uptime").unwrap();
    let seconds: i64 = up.split('.').next().unwrap().parse().unwrap();
    started_earlier(1 - seconds)
}
