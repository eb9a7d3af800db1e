//! Host ports after a repair: UDP flows, and attachments of several networks.

use std::net::UdpSocket;

use super::*;
use crate::common::{host_local, restricted, show_in_control_group, sleeper};

#[test]
fn repair_flushes_only_udp_flows_that_do_not_reach_the_container() {
    beyond_reference!("repair");
    for (backend, loss) in [
        ("nftables", "nft flush chain inet ferrule hostports"),
        ("iptables", "iptables-nft -t nat -F FERRULE-HOSTPORTS"),
    ] {
        let lab = Lab::new();
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let mappings = json!([{"hostPort": 5353, "containerPort": 53, "protocol": "udp"}]);
        let tool = tool(&lab, backend).env("CAP_ARGS", &json!({"portMappings": mappings}).to_string());
        tool.says("add net pod --container-id pod");
        let server = pod.run(|| UdpSocket::bind("10.1.2.2:53")).unwrap();
        server.set_read_timeout(Some(RESTORED)).unwrap();
        let client = |port: u16| {
            let socket = far.run(|| UdpSocket::bind(("198.51.100.2", port))).unwrap();
            socket.connect("198.51.100.1:5353").unwrap();
            socket.set_read_timeout(Some(RESTORED)).unwrap();
            socket
        };
        let is_heard = || server.recv_from(&mut [0; 8]).unwrap().1.to_string();
        let stream = client(4000);
        stream.send(b"?").unwrap();
        assert_eq!(is_heard(), "198.51.100.2:4000");

        lab.host().sh(loss);
        // The kernel tracks this flow as one to the host itself.
        let late = client(4001);
        late.send(b"?").unwrap();
        until("the flow is tracked", || lab.host().sh("cat /proc/net/nf_conntrack").contains("sport=4001"));
        assert_eq!(tool.json("repair net")["repaired"], json!(["net/pod/eth0"]), "{backend}");

        // Only the kernel's entry of the flow gives the datagram the host's address.
        server.send_to(b"!", "198.51.100.2:4000").unwrap();
        assert_eq!(stream.recv(&mut [0; 8]).unwrap(), 1, "{backend}");
        // The client has received that nothing listens on the host's port.
        until("it is sent", || late.send(b"?").is_ok());
        assert_eq!(is_heard(), "198.51.100.2:4001", "{backend}");
    }
}

#[test]
fn check_reports_a_reset_route_localnet_and_repair_sets_it_again() {
    beyond_reference!("repair");
    for backend in ["nftables", "iptables"] {
        let lab = Lab::new();
        let pod = lab.container("pod");
        let tool = tool(&lab, backend);
        tool.says("add net pod --container-id pod");
        let _server = pod.serve_tcp("pod", "10.1.2.2:80");
        lab.host().sh("echo 0 >/proc/sys/net/ipv4/conf/br0/route_localnet");
        assert!(tcp_is_cut_off(lab.host(), "127.0.0.1:8080"), "{backend}");
        let reset = tool.run("check net --all");
        assert!(
            !reset.succeeded() && reset.stderr.contains("ipv4/conf/br0/route_localnet is 0"),
            "{reset:?}"
        );
        assert_eq!(tool.json("repair --all")["repaired"], json!(["net/pod/eth0"]), "{backend}");
        assert!(tcp_says(lab.host(), "127.0.0.1:8080").is_some(), "{backend}");
        tool.says("check net --all");
        assert_eq!(tool.json("repair --all")["repaired"], json!([]), "{backend}");
        tool.says("del net pod --container-id pod");
        assert_eq!(lab.host().sysctl("ipv4/conf/br0/route_localnet"), "0", "{backend}");
    }
}

#[test]
fn repair_after_the_loss_of_all_records_does_not_double_rules_with_conditions() {
    beyond_reference!("repair");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let mut list = pods("nftables");
    list["plugins"][1]["conditionsV4"] = json!(["ip saddr != 10.99.0.0/16"]);
    let tool = tool(&lab, "nftables");
    for snat in [true, false] {
        list["plugins"][1]["snat"] = json!(snat);
        lab.configure("10-net.conflist", &list);
        tool.says("add net pod --container-id pod");
        let rules = || lab.host().sh("nft list chain inet ferrule hostports").matches("8080").count();
        let before = rules();
        assert!(before > 0);
        lab.host().sh("nft flush set inet ferrule attachments");
        for _ in 0..2 {
            tool.says("repair --all");
            assert_eq!(rules(), before, "{snat}");
        }
        tool.says("check net --all");
        tool.says("del net pod --container-id pod");
    }
}

#[test]
fn repair_of_a_port_of_one_host_address_does_not_touch_that_of_another_address() {
    beyond_reference!("repair");
    for (backend, loss) in [
        ("nftables", "nft delete element inet ferrule hostip4 '{ 192.0.2.1 . tcp . 8080 }'"),
        (
            "iptables",
            "iptables-nft -t nat -F $(iptables-nft-save -t nat | grep -o 'FERRULE-HP-.*10.1.2.2:80' | cut -d' ' -f1)",
        ),
    ] {
        let lab = Lab::new();
        let _pods = ["old", "new"].map(|id| lab.container(id));
        let tool = tool(&lab, backend).env("CAP_ARGS", "");
        for (name, address) in [("old", "192.0.2.1"), ("new", "192.0.2.2")] {
            tool.says(&format!("add net {name} -p {address}:8080:80 --container-id {name}"));
        }
        lab.host().sh(loss);
        assert_eq!(tool.json("repair --all")["repaired"], json!(["net/old/eth0"]), "{backend}");
        tool.says("check net --all");
    }
}

#[test]
fn repair_of_one_network_leaves_a_host_port_to_the_newer_attachment_of_another() {
    beyond_reference!("repair");
    for backend in ["nftables", "iptables"] {
        let lab = Lab::new();
        let ([old, new], far) = (["old", "new"].map(|id| lab.container(id)), lab.machine("far"));
        let tool = tool(&lab, backend);
        for (name, bridge, subnet) in [("old", "br1", "10.1.2.0/24"), ("new", "br2", "10.1.3.0/24")] {
            let mut ipam = host_local(&[&[subnet]]);
            ipam["routes"] = json!([{"dst": "0.0.0.0/0"}]);
            let bridge = json!({"type": "bridge", "bridge": bridge, "isGateway": true, "ipam": ipam});
            let portmap = pods(backend)["plugins"][1].clone();
            let network = json!({"cniVersion": "1.0.0", "name": name, "plugins": [bridge, portmap]});
            lab.configure(&format!("{name}.conflist"), &network);
        }
        tool.says("add old old --container-id old");
        lab.host().sh("nft flush ruleset");
        tool.says("add new new --container-id new");
        let _servers = [old.serve_tcp("old", "10.1.2.2:80"), new.serve_tcp("new", "10.1.3.2:80")];
        let answer = Some("new 198.51.100.2".to_owned());
        assert_eq!(tcp_says(&far, HOST), answer, "{backend}");
        tool.says("repair old");
        assert_eq!(tcp_says(&far, HOST), answer, "{backend}");
        tool.says("check old old --container-id old");
        tool.says("del new new --container-id new");
        assert_eq!(tcp_says(&far, HOST).as_deref(), Some("old 198.51.100.2"), "{backend}");
    }
}

/// Adds an attachment whose namespace the cache does not contain. Calico's result lists no interface of the container,
/// and libcni before 1.2.0 does not write the path of its namespace.
fn add_without_namespace(tool: &Tool, id: &str) {
    tool.says(&format!("add net pod --container-id {id}"));
    let path = format!("/var/lib/cni/results/net-{id}-eth0");
    let mut entry: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    entry.as_object_mut().unwrap().remove("netns");
    entry["result"]["interfaces"] = json!([]);
    for ip in entry["result"]["ips"].as_array_mut().unwrap() {
        ip.as_object_mut().unwrap().remove("interface");
    }
    fs::write(path, entry.to_string()).unwrap();
}

#[test]
fn an_attachment_whose_namespace_is_in_no_cache_is_found_by_its_processes_in_the_container_of_the_daemonset()
{
    beyond_reference!("repair");
    let lab = Lab::new();
    let pod = lab.container("pod");
    // Any process of the machine with this word in its control group would be one of the container.
    let id = "c85a7798f4c3d0e1";
    let tool = tool(&lab, "nftables");
    add_without_namespace(&tool, id);
    let process = sleeper(&lab, "pod");
    show_in_control_group(&lab, &process, id);
    lab.host().sh("nft flush ruleset");
    let repaired = tool.under(&restricted("ferrule-repair.yaml")).run("repair --all");
    let _server = pod.serve_tcp("pod", "10.1.2.2:80");
    assert!(tcp_says(lab.host(), "10.1.2.1:8080").is_some(), "{repaired:#?}");
}

#[test]
fn an_attachment_whose_namespace_the_cache_does_not_contain_is_an_error() {
    beyond_reference!("repair");
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let tool = tool(&lab, "nftables");
    add_without_namespace(&tool, "pod");
    lab.host().sh("nft flush ruleset");
    let repaired = tool.run("repair --all");
    assert_eq!(repaired.exit, Some(1), "{repaired:#?}");
    assert!(repaired.stderr.contains("does not contain the path of its namespace"), "{repaired:#?}");
    assert!(!repaired.stderr.contains("deleted"), "{repaired:#?}");
}

/// libcni and cnitool load these plugins too, but no cache contains them.
#[test]
fn rules_of_a_plugin_in_the_networks_directory_are_missed_by_show_and_doctor_and_restored_by_repair() {
    beyond_reference!("repair");
    let lab = Lab::new();
    let (pod, far) = (lab.container("pod"), lab.machine("far"));
    let tool = tool(&lab, "nftables");
    let mut network = pods("nftables");
    let portmap = network["plugins"].as_array_mut().unwrap().pop().unwrap();
    lab.configure("10-net.conflist", &network);
    fs::create_dir("/etc/cni/net.d/net").unwrap();
    fs::write("/etc/cni/net.d/net/10-portmap.conf", portmap.to_string()).unwrap();
    tool.says("add net pod --container-id pod");
    let _server = pod.serve_tcp("pod", "10.1.2.2:80");
    assert!(answers(&far));
    lab.host().sh("nft flush ruleset");
    // The rules of the plugin in the list exist again, so that only those of the other plugin are missing.
    fs::rename("/etc/cni/net.d/net", "/etc/cni/net.d/other").unwrap();
    tool.says("repair --all");
    fs::rename("/etc/cni/net.d/other", "/etc/cni/net.d/net").unwrap();

    let shown = tool.run("show pod");
    assert!(shown.exit == Some(1) && shown.stdout.contains("missing"), "{shown:#?}");
    let found = tool.run("doctor");
    assert!(found.exit == Some(1) && found.stdout.contains("net/pod/eth0: CHECK failed"), "{found:#?}");
    assert_eq!(tool.json("repair --all")["repaired"], json!(["net/pod/eth0"]));
    assert!(answers(&far));
    let found = tool.run("doctor");
    assert!(!found.stdout.contains("net/pod/eth0"), "{found:#?}");

    fs::write("/etc/cni/net.d/net/10-portmap.conf", "{").unwrap();
    let repaired = tool.run("repair --all");
    assert!(repaired.stderr.contains("10-net.conflist, which is invalid"), "{repaired:#?}");
}
