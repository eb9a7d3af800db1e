//! tap with host-local: with a program behind it, alone and on a bridge, and cleanup.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;

use lab::{Call, Container, Lab, beyond_1_1_1, beyond_reference, needs, under_test};
use netlink::Tun;
use serde_json::{Value, json};

use crate::common::{
    a_failed_ipam_plugin_leaves_nothing, a_taken_name_is_refused, container_interface, data,
    gc_deletes_an_interface_in_the_hosts_namespace, host_local, ignores_routers_before_it_is_up, ips, leases,
    udev_replaces_no_mac,
};

/// The address of the machine behind the tap.
const MACHINE: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 200);

fn tap(lab: &Lab, pod: &Container) -> Call {
    let ipam = host_local(&[&["10.1.2.0/24"], &["fd00:1:2::/64"]]);
    lab.plugin("tap").version("1.1.0").config(json!({"ipam": ipam})).on(pod)
}

/// A tap on layer 2.
fn bare(lab: &Lab, pod: &Container) -> Call {
    tap(lab, pod).config(json!({"ipam": null}))
}

fn link(pod: &Container) -> Value {
    pod.link("eth0").unwrap()
}

#[test]
fn a_machine_behind_it_answers_and_the_result_is_the_containers_interface() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let result = tap(&lab, &pod).add().ok_result();
    assert_eq!(ips(&result), ["10.1.2.2/24", "fd00:1:2::2/64"]);
    assert_eq!(pod.addresses("eth0"), ["10.1.2.2/24", "fd00:1:2::2/64"]);
    let interface = container_interface(&result);
    assert_eq!((&interface["name"], &interface["sandbox"]), (&json!("eth0"), &json!(pod.path())));
    assert_eq!((&interface["mac"], &interface["mtu"]), (&link(&pod)["address"], &json!(1500)));
    assert_eq!((data(&pod, "eth0", "type"), data(&pod, "eth0", "persist")), (json!("tap"), json!(true)));
    {
        let _machine = pod.machine_behind("eth0", None, MACHINE);
        assert!(pod.reaches("10.1.2.200"));
    }
    let _another_time = pod.machine_behind("eth0", None, MACHINE);
    assert!(pod.reaches("10.1.2.200"));
}

#[test]
fn a_machine_may_have_several_queues_if_configured() {
    beyond_1_1_1!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = tap(&lab, &pod).config(json!({"multiQueue": true}));
    let result = call.add().ok_result();
    assert_eq!(data(&pod, "eth0", "multi_queue"), true);
    let _machine = pod.machine_behind("eth0", Some(3), MACHINE);
    assert_eq!(data(&pod, "eth0", "numqueues"), 3);
    assert!(pod.reaches("10.1.2.200"));
    call.check(&result).ok();
}

#[test]
fn its_ipv6_addresses_can_be_used_before_a_program_opens_it() {
    beyond_reference!("tap");
    needs!(Tap, Ipv6);
    let lab = Lab::new();
    let pod = lab.container("pod");
    pod.sh("ip link set lo up");
    for keys in [json!({}), json!({"enabledad": true})] {
        let call = tap(&lab, &pod).config(keys);
        call.add().ok_result();
        assert!(!pod.sh("ip -6 addr show dev eth0 scope global").contains("tentative"));
        assert!(pod.reaches(pod.addresses("eth0")[1].trim_end_matches("/64")));
        call.del().ok();
    }
}

#[test]
fn on_a_bridge_of_the_container_the_machine_is_one_of_the_hosts_network() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    // The container's default route: through a bridge of the host, and a bridge in the container that contains the tap.
    let way_out = json!({"bridge": "br0", "isGateway": true, "ipam": host_local(&[&["10.1.2.0/24"]])});
    lab.plugin("bridge").on(&pod).ifname("net1").config(way_out).add().ok_result();
    pod.sh("ip link add inner address 02:00:00:00:00:01 type bridge; ip link set inner up
            ip addr flush dev net1; ip link set net1 master inner");
    let before = lab.snapshot();
    let call = bare(&lab, &pod).config(json!({"bridge": "inner"}));
    call.clone().config(json!({"bridge": "net1"})).add().refused(7, "is not a bridge");
    let result = call.add().ok_result();
    assert_eq!(link(&pod)["master"], "inner");
    {
        let _machine = pod.machine_behind("eth0", None, MACHINE);
        assert!(lab.host().reaches("10.1.2.200"));
    }
    call.check(&result).ok();
    pod.sh("ip link set eth0 nomaster");
    call.check(&result).refused(999, "bridge");
    call.del().ok();
    lab.host().sh("ip neigh flush dev br0");
    lab.snapshot().assert_same(&before);
}

#[test]
fn a_later_bridge_in_the_chain_makes_a_port_of_a_tap_in_the_hosts_own_namespace() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    // bridge's ADD sets accept_ra to 0, and DEL keeps it.
    lab.host().sh(
        "ip link add br0 address 02:00:00:00:00:01 type bridge; echo 0 >/proc/sys/net/ipv6/conf/br0/accept_ra
        ip addr add 10.1.2.1/24 dev br0; ip link set br0 up",
    );
    let host = Container { id: "vm".to_owned(), netns: lab.host().clone() };
    let before = lab.snapshot();
    let plugins = json!([{"type": "tap"}, {"type": "bridge", "bridge": "br0"}]);
    let chain = lab.chain(json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins}));
    let chain = chain.each(|call| call.env("CNI_NETNS_OVERRIDE", "1"));
    let result = chain.add(&host, "tap0").ok_result();
    let names: Vec<_> = result["interfaces"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["tap0", "br0"]);
    assert_eq!(host.link("tap0").unwrap()["master"], "br0");
    {
        let _machine = host.machine_behind("tap0", None, MACHINE);
        assert!(host.reaches("10.1.2.200"));
    }
    chain.check(&host, "tap0", &result).iter().for_each(lab::Outcome::ok);
    chain.del(&host, "tap0", &result).iter().for_each(lab::Outcome::ok);
    lab.host().sh("ip neigh flush dev br0");
    lab.snapshot().assert_same(&before);
}

#[test]
fn udev_does_not_replace_its_mac() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    udev_replaces_no_mac(&lab, &tap(&lab, &pod), &pod);
}

#[test]
fn nothing_is_left_after_del_and_a_second_del_succeeds() {
    beyond_1_1_1!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    tap(&lab, &b).add().ok_result();
    let before = lab.snapshot();
    let call = tap(&lab, &a).config(json!({"owner": 1000, "group": 1000, "multiQueue": true}));
    call.add().ok_result();
    // Also while a program has it open.
    let _machine = a.machine_behind("eth0", Some(1), MACHINE);
    for _ in 0..2 {
        call.del().ok();
        lab.snapshot().assert_same(&before);
    }
    tap(&lab, &b).env("CNI_NETNS", "/run/netns/gone").del().ok();
    assert!(leases().is_empty(), "{:?}", leases());
}

#[test]
fn mtu_and_dns_are_as_configured_and_the_most_specific_mac_is_used() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let keys = json!({"mtu": 65521, "mac": "02:00:00:00:00:01", "dns": {"nameservers": ["10.1.0.53"]}});
    let mut call = bare(&lab, &pod).config(keys);
    type Ask = fn(Call) -> Call;
    let ways: [(&str, Ask); 4] = [
        ("02:00:00:00:00:01", |c| c),
        ("02:00:00:00:00:02", |c| c.args("MAC=02:00:00:00:00:02")),
        ("02:00:00:00:00:03", |c| c.config(json!({"args": {"cni": {"mac": "02:00:00:00:00:03"}}}))),
        ("02:00:00:00:00:04", |c| c.config(json!({"runtimeConfig": {"mac": "02:00:00:00:00:04"}}))),
    ];
    for (mac, ask) in ways {
        call = ask(call);
        let result = call.add().ok_result();
        assert_eq!((&link(&pod)["mtu"], &link(&pod)["address"]), (&json!(65521), &json!(mac)));
        assert_eq!(container_interface(&result)["mac"], mac);
        assert_eq!(result["dns"]["nameservers"], json!(["10.1.0.53"]));
        call.check(&result).ok();
        pod.sh("ip link set eth0 mtu 1400");
        call.check(&result).refused(999, "MTU");
        call.del().ok();
    }
}

/// Plugins of other vendors and programs on the node may set it.
#[test]
fn without_a_configured_mtu_check_accepts_another_one_than_the_results() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod);
    let result = call.add().ok_result();
    assert_eq!(container_interface(&result)["mtu"], 1500);
    pod.sh("ip link set eth0 mtu 1400");
    call.check(&result).ok();
}

/// `ip tuntap del` opens the tap, and makes it non-persistent.
fn can_be_opened_by(pod: &Container, user: u32, group: u32) -> bool {
    let line =
        format!("setpriv --reuid {user} --regid {group} --clear-groups ip tuntap del dev eth0 mode tap");
    pod.try_exec(&["sh", "-ec", &line]).status.success()
}

#[test]
fn its_owner_and_its_group_may_open_it_and_everyone_if_none_is_set() {
    beyond_1_1_1!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    // Everyone may open the device, so the tap's owner decides.
    lab.host()
        .sh("mknod /run/lab/tun c 10 200; chmod 666 /run/lab/tun; mount --bind /run/lab/tun /dev/net/tun");
    for (keys, user, group, opens) in [
        (json!({}), 1000, 1000, true),
        (json!({"owner": 1000}), 1000, 7, true),
        (json!({"owner": 1000}), 1001, 1000, false),
        (json!({"owner": 0}), 1000, 1000, false),
        (json!({"group": 1000}), 7, 1000, true),
        (json!({"group": 1000}), 1000, 7, false),
        (json!({"owner": 1000, "group": 1000}), 1000, 1000, true),
        (json!({"owner": 1000, "group": 1000}), 1000, 7, false),
    ] {
        let call = bare(&lab, &pod).config(keys.clone());
        let result = call.add().ok_result();
        call.check(&result).ok();
        assert_eq!(can_be_opened_by(&pod, user, group), opens, "{keys} {user}:{group}");
        call.del().ok();
    }
}

#[test]
fn check_reports_changes() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = tap(&lab, &pod).config(json!({"mac": "02:00:00:00:00:aa", "owner": 1000}));
    let result = call.add().ok_result();
    call.check(&result).ok();
    for (make, property) in [
        ("link add eth0 type veth peer name other", "kind"),
        ("tuntap add dev eth0 mode tap user 1000 multi_queue", "multiQueue"),
        ("tuntap add dev eth0 mode tap user 1001", "owner"),
        ("tuntap add dev eth0 mode tap", "owner"),
        ("tuntap add dev eth0 mode tap user 1000 group 1000", "group"),
    ] {
        pod.sh(&format!(
            "ip link del eth0; ip {make}; ip link set eth0 up address 02:00:00:00:00:aa
             ip addr add 10.1.2.2/24 dev eth0; ip addr add fd00:1:2::2/64 dev eth0 nodad"
        ));
        call.check(&result).refused(999, property);
    }
    call.del().ok();
    let result = call.add().ok_result();
    pod.sh("ip addr flush dev eth0");
    call.check(&result).refused(999, "address");
    pod.sh("ip link set eth0 down");
    call.check(&result).refused(999, "down");
}

#[test]
fn an_existing_name_is_refused_and_del_keeps_its_owner() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod);
    pod.sh("ip link add eth0 type veth peer name other");
    a_taken_name_is_refused(&lab, &call);
    pod.sh("ip link del eth0; ip tuntap add dev eth0 mode tap");
    call.add().refused(4, "CNI_IFNAME eth0");
    call.del().ok();
    // A VPN's interface, without Ethernet frames.
    pod.sh("ip tuntap add dev eth0 mode tun");
    a_taken_name_is_refused(&lab, &call);
    pod.sh("ip link del eth0");
    {
        let program = pod.run(Tun::open).unwrap();
        program.create("eth0", false).unwrap();
        a_taken_name_is_refused(&lab, &call);
    }
    // A child process of another thread also has the tap open until its execve(2).
    pod.wait_until("the program's tap is deleted", |pod| pod.link("eth0").is_none());
    call.add().ok_result();
    a_taken_name_is_refused(&lab, &call.config(json!({"name": "second"})));
}

#[test]
fn check_notices_a_tap_that_disappears_with_its_program() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod).config(json!({"mac": "02:00:00:00:00:aa"}));
    let result = call.add().ok_result();
    pod.sh("ip link del eth0");
    let program = pod.run(Tun::open).unwrap();
    program.create("eth0", false).unwrap();
    pod.sh("ip link set eth0 up address 02:00:00:00:00:aa");
    call.check(&result).refused(999, "persistent");
    program.persist().unwrap();
    call.check(&result).ok();
}

#[test]
fn a_failed_ipam_plugin_or_a_kill_before_the_end_leaves_no_tap() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = tap(&lab, &pod);
    a_failed_ipam_plugin_leaves_nothing(&lab, &call);
    lab.fake_plugin("killer", "[ $CNI_COMMAND != ADD ] || kill -9 $PPID");
    let before = lab.snapshot();
    assert_eq!(call.config(json!({"ipam": {"type": "killer"}})).add().exit, None);
    lab.snapshot().assert_same(&before);
}

#[test]
fn in_a_chain_the_result_so_far_is_passed_on() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let prev = json!({
        "cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": pod.path()}],
        "ips": [{"address": "10.9.0.2/24", "interface": 0}], "dns": {"nameservers": ["10.1.0.53"]},
    });
    let result = tap(&lab, &pod).config(json!({"prevResult": prev})).add().ok_result();
    let names: Vec<_> = result["interfaces"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["net1", "eth0"]);
    assert_eq!(ips(&result), ["10.1.2.2/24", "fd00:1:2::2/64", "10.9.0.2/24"]);
    assert_eq!(result["dns"]["nameservers"], json!(["10.1.0.53"]));
}

#[test]
fn without_the_tun_device_add_and_status_report_it_and_nothing_is_left() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = tap(&lab, &pod);
    call.status().ok();
    lab.host().sh("mount -t tmpfs none /dev/net");
    let before = lab.snapshot();
    call.status().refused(50, "open /dev/net/tun: No such file");
    call.add().refused(5, "modprobe tun");
    call.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn gc_releases_the_leases_of_deleted_containers() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    tap(&lab, &a).add().ok_result();
    tap(&lab, &b).add().ok_result();
    tap(&lab, &b).gc(&[("b", "eth0")]).ok();
    assert_eq!(leases(), ["10.1.2.3", "fd00:1:2::3"]);
}

#[test]
fn gc_deletes_the_tap_of_a_machine_on_the_host_and_no_other_tap() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    lab.host().sh("ip tuntap add dev mine0 mode tap");
    let call = lab.plugin("tap").config(json!({"ipam": host_local(&[&["10.1.2.0/24"]])}));
    gc_deletes_an_interface_in_the_hosts_namespace(&lab, call.clone(), call);
    assert!(lab.host().link("mine0").is_some());
}

/// A machine that runs directly on the host has no namespace, and its runtime may have no cache.
#[test]
fn gc_of_cnitool_keeps_the_tap_of_a_machine_on_the_host() {
    beyond_reference!("gc");
    needs!(Tap);
    let lab = Lab::new();
    lab.configure(
        "10-net.conflist",
        &json!({"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "tap"}]}),
    );
    let vm = Container { id: "vm".to_owned(), netns: lab.host().clone() };
    bare(&lab, &vm).env("CNI_NETNS_OVERRIDE", "1").ifname("vm0").add().ok_result();
    let tool = lab.cnitool();
    let collected = tool.run("gc net");
    assert!(collected.stderr.contains("link vm0 of vm vm0: kept: alive"), "{collected:#?}");
    tool.says("gc net --force vm");
    assert!(lab.host().link("vm0").is_none());
}

/// DEL also follows an ADD that was refused because of this tap.
#[test]
fn del_leaves_the_tap_of_another_program_on_the_host_unless_the_result_lists_it() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let vm = Container { id: "vm".to_owned(), netns: lab.host().clone() };
    lab.host().sh("ip tuntap add vm0 mode tap; ip link set vm0 address 02:00:00:00:00:07");
    let call = bare(&lab, &vm).env("CNI_NETNS_OVERRIDE", "1").ifname("vm0");
    call.add().refused(4, "CNI_IFNAME vm0 is taken");
    let del = |mac: &str| {
        let interface = json!({"name": "vm0", "mac": mac, "sandbox": vm.netns.path()});
        let result = json!({"cniVersion": "1.1.0", "interfaces": [interface]});
        call.clone().config(json!({"prevResult": result})).del().ok();
    };
    call.del().ok();
    del("02:00:00:00:00:08");
    assert!(lab.host().link("vm0").is_some());
    // As the reference's ADD reports it.
    del("02:00:00:00:00:07");
    assert!(lab.host().link("vm0").is_none());
}

#[test]
fn an_selinux_context_is_set_if_the_host_has_selinux_and_ignored_otherwise() {
    beyond_reference!("tap");
    needs!(Tap);
    if std::fs::exists("/sys/fs/selinux/enforce").unwrap() {
        return lab::skip("this host has SELinux");
    }
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = bare(&lab, &pod).config(json!({"selinuxContext": "system_u:system_r:container_t:s0"}));
    let added = call.add();
    assert!(added.stderr.contains("selinuxContext is ignored"), "{added:#?}");
    added.ok_result();
    call.del().ok();
    let before = lab.snapshot();
    lab.host().sh("mount -t tmpfs none /sys/fs; mkdir /sys/fs/selinux; echo 1 >/sys/fs/selinux/enforce");
    // This kernel knows no SELinux context.
    call.add().refused(7, "container_t");
    lab.snapshot().assert_same(&before);
}

/// The process with another SELinux context creates the tap through the inherited descriptor.
#[test]
fn the_tap_of_the_helper_process_exists_while_the_plugin_has_it_open() {
    beyond_reference!("tap");
    needs!(Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    let tun = pod.run(Tun::open).unwrap();
    let start = |name: &str| {
        let device = tun.as_fd().try_clone_to_owned().unwrap();
        let mut process = Command::new(under_test().dir.join("tap"));
        process.args(["create-tap", name, "multi-queue"]).env_clear().stdin(device).status().unwrap().code()
    };
    let busy = 16;
    assert_eq!(start("lo"), Some(busy));
    assert_eq!(start("eth0"), Some(0));
    assert_eq!(
        (data(&pod, "eth0", "multi_queue"), data(&pod, "eth0", "persist")),
        (json!(true), json!(false))
    );
    drop(tun);
    // A child process of another thread also has the tap open until its execve(2).
    pod.wait_until("the tap is deleted when no process has it open", |pod| pod.link("eth0").is_none());
}

#[test]
fn router_advertisements_are_ignored_if_configured() {
    beyond_reference!("accept-ra");
    needs!(Tap, Ipv6);
    let lab = Lab::new();
    let pod = lab.container("pod");
    ignores_routers_before_it_is_up(&pod, &bare(&lab, &pod).config(json!({"acceptRa": false})));
}
