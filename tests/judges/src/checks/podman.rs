//! Podman 4 with its CNI backend: networks as its own command line makes them.

use std::thread;

use lab::{Feature, tcp_is_cut_off, udp_says};

use crate::check::Check;
use crate::host::{CLIENT, CLIENT6, HOST, HOST6, Host, IMAGE, PLUGINS};
use crate::podman::Podman;
use crate::process::Daemon;
use crate::soon::soon;

pub fn checks() -> Vec<Check> {
    let check = |name, ask| Check::new("podman", name, ask);
    vec![
        check("a container reaches other hosts, masqueraded, over both families", goes_out)
            .needs(Feature::Ipv6),
        check("published TCP and UDP ports are reached from another host, over both families", ports)
            .needs(Feature::Ipv6),
        check("a container on two networks reaches both", two_networks),
        check("a running container is connected to a network and disconnected", connect),
        check("network reload restores host ports after a flush of all rules", reload),
        check("a container gets the static addresses and the MAC address that were requested", statics)
            .needs(Feature::Ipv6),
        check("play kube: the containers of a pod share its network, and its host port is reached", kube),
        check("a restarted container has its host port again", restart),
        check("stop, rm and network rm leave nothing", nothing_left),
        check("a container that is killed and then removed leaves nothing", killed),
        check("eight concurrent containers have their ports, and leave nothing", crowd),
        check("a container on an internal network cannot reach the outside", internal),
        check("isolated networks do not reach each other", isolated),
        check("containers find each other by name (dnsname, dnsmasq)", names),
        check("names follow network connect --alias, disconnect and restart (dnsname)", names_change),
        check(
            "the names of running containers outlive an exchange of the plugins (dnsname)",
            names_taken_over,
        ),
        check("without DNS on the network, no server runs and containers use the host's", no_names),
        check(
            "containers that the previously installed plugins attached keep running, and are removed completely",
            taken_over,
        )
        .reference_fails(
            r#"+ elements = { 10.89.0.2 comment "net/"#,
            "it does not know Ferrule's nftables rules, which stay; docs/migrate.md shows how to remove them",
        ),
        check("a container on a macvlan network is a host of the parent's network", macvlan)
            .needs(Feature::Macvlan),
        check("a macvlan network gets its addresses from dnsmasq with DHCP", dhcp)
            .needs(Feature::Macvlan)
            .reference_fails(
                r#"the lease is given back: "" is wanted"#,
                "its daemon sends DHCPRELEASE from 0.0.0.0, which the server's kernel drops as a martian",
            ),
    ]
}

const DUAL: &str = "network create --ipv6 --subnet 10.91.0.0/24 --subnet fd00:91::/64 dual";

fn at(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn goes_out(host: &Host) {
    let podman = Podman::new(host);
    podman.does(DUAL);
    podman.starts("web", "--network dual");
    for (server, seen) in [(CLIENT, HOST), (CLIENT6, HOST6)] {
        let _far = host.client.serve_tcp("far", &at(server, 7));
        podman.hears("web", server, 7, &format!("far {seen}"));
    }
}

fn ports(host: &Host) {
    let podman = Podman::new(host);
    podman.does(DUAL);
    podman.starts("web", "--network dual --publish 8080:80 --publish 5353:53/udp");
    let inside = host.lab.namespace_of("inside", &podman.does("inspect --format {{.State.Pid}} web"));
    let _dns = inside.serve_udp("dns", "[::]:53");
    for address in [HOST, HOST6] {
        podman.is_reached(&at(address, 8080), "web");
        let answer = udp_says(&host.client, &at(address, 5353));
        assert!(answer.is_some_and(|said| said.starts_with("dns ")), "UDP to {address}");
    }
}

fn two_networks(host: &Host) {
    let podman = Podman::new(host);
    podman.networks(&["one", "two"]);
    reaches_both_networks(&podman);
}

/// A container on the networks `one` and `two` reaches both.
pub fn reaches_both_networks(podman: &Podman) {
    for (name, networks) in [("a", "one"), ("b", "two"), ("both", "one,two")] {
        podman.starts(name, &format!("--network {networks}"));
    }
    for (name, network) in [("a", "one"), ("b", "two")] {
        podman.hears("both", &podman.address(name, network), 80, name);
        podman.hears(name, &podman.address("both", network), 80, "both");
    }
}

fn connect(host: &Host) {
    let podman = Podman::new(host);
    podman.networks(&["one", "two"]);
    connects_and_disconnects(&podman);
}

/// A running container on the network `one` is connected to `two`, and disconnected.
pub fn connects_and_disconnects(podman: &Podman) {
    podman.starts("web", "--network one --publish 8080:80");
    podman.starts("b", "--network two");
    let server = podman.address("b", "two");
    podman.does("network connect two web");
    podman.hears("web", &server, 80, "b");
    podman.hears("b", &podman.address("web", "two"), 80, "web");
    podman.does("network disconnect two web");
    let links = podman.inside("web", "ip -o link");
    assert!(links.contains("eth0") && !links.contains("eth1"), "{links}");
    podman.is_reached(&at(HOST, 8080), "web");
    podman.does("network connect two web");
    podman.hears("web", &server, 80, "b");
}

fn reload(host: &Host) {
    let podman = Podman::new(host);
    podman.does("network create net");
    podman.starts("web", "--network net --publish 8080:80");
    podman.is_reached(&at(HOST, 8080), "web");
    host.run("nft flush ruleset");
    assert!(podman.is_silent(&at(HOST, 8080)), "without rules");
    podman.does("network reload --all");
    podman.is_reached(&at(HOST, 8080), "web");
    let _far = host.client.serve_tcp("far", &at(CLIENT, 7));
    podman.hears("web", CLIENT, 7, &format!("far {HOST}"));
}

fn statics(host: &Host) {
    let podman = Podman::new(host);
    podman.does(DUAL);
    let (ip, ip6, mac) = ("10.91.0.77", "fd00:91::77", "92:d0:c6:0a:29:33");
    podman.starts("web", &format!("--network dual:ip={ip},ip6={ip6},mac={mac}"));
    let links = podman.inside("web", "ip addr show dev eth0");
    for wanted in [ip, ip6, mac] {
        assert!(links.contains(wanted), "{wanted} in\n{links}");
    }
    soon("neighbours know the container's own MAC", &true, || {
        host.lab.host().reaches(ip) && host.run("ip neigh show 10.91.0.77").contains(mac)
    });
    assert!(
        !host.succeeds(&format!("podman run --rm --network dual:ip={ip} {IMAGE} /bin/busybox true")),
        "{ip} twice"
    );
}

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: shop}
spec:
  containers:
    - {name: web, image: "localhost/busybox:latest", imagePullPolicy: Never, command: [/bin/busybox, nc, -ll, -p, "81", -e, /bin/busybox, echo, web],
       ports: [{containerPort: 81, hostPort: 8081}]}
    - {name: db, image: "localhost/busybox:latest", imagePullPolicy: Never, command: [/bin/busybox, nc, -ll, -p, "82", -e, /bin/busybox, echo, db]}
"#;

fn kube(host: &Host) {
    let podman = Podman::new(host);
    podman.does("network create net");
    std::fs::write("/run/lab/pod.yaml", POD).expect("write a pod");
    podman.does("play kube --start=false --network net /run/lab/pod.yaml");
    // With the cgroups of the file system, this Podman forbids a pod all devices, /dev/null too. runc makes the cgroup again, without that.
    let cgroup = podman.does("pod inspect --format {{.CgroupPath}} shop");
    host.run(&format!("find /sys/fs/cgroup{cgroup} -type d -delete"));
    podman.does("pod start shop");
    podman.is_reached(&at(HOST, 8081), "web");
    podman.hears("shop-web", "127.0.0.1", 82, "db");
    podman.does("play kube --down /run/lab/pod.yaml");
    podman.closes(&at(HOST, 8081), "after play kube --down");
}

fn restart(host: &Host) {
    let podman = Podman::new(host);
    podman.does("network create net");
    restarts(&podman);
}

/// A container on the network `net` has its host port again after a restart.
pub fn restarts(podman: &Podman) {
    podman.starts("web", "--network net --publish 8080:80");
    podman.is_reached(&at(HOST, 8080), "web");
    podman.does("restart --time 0 web");
    podman.is_reached(&at(HOST, 8080), "web");
    podman.does("stop --time 0 web");
    podman.closes(&at(HOST, 8080), "stopped");
    podman.does("start web");
    podman.is_reached(&at(HOST, 8080), "web");
}

fn nothing_left(host: &Host) {
    let podman = Podman::new(host);
    podman.networks(&["one", "two"]);
    host.leaves_nothing(|| {
        podman.starts("web", "--network one,two --publish 8080:80 --publish 5353:53/udp");
        podman.is_reached(&at(HOST, 8080), "web");
        podman.does("stop --time 0 web");
        podman.does("rm web");
    });
    podman.does("network rm one two");
    let links = host.lab.host().link_names();
    assert_eq!(links, ["uplink"], "the bridges go with their networks");
}

fn killed(host: &Host) {
    let podman = Podman::new(host);
    podman.does("network create net");
    host.leaves_nothing(|| {
        podman.starts("web", "--network net --publish 8080:80");
        podman.is_reached(&at(HOST, 8080), "web");
        // With its monitor, so that nobody cleans up.
        let pids = podman.does("inspect --format {{.State.ConmonPid}}/{{.State.Pid}} web");
        let (monitor, container) = pids.split_once('/').expect("two numbers");
        host.run(&format!("kill -9 {monitor} {container}"));
        podman.removes("web");
    });
}

fn crowd(host: &Host) {
    let podman = Podman::new(host);
    podman.does("network create net");
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let each = |job: &(dyn Fn(usize, &str) -> String + Sync)| {
        thread::scope(|scope| {
            let started = names.iter().enumerate().map(|(n, name)| scope.spawn(move || job(n, name)));
            let lines: Vec<_> = started.collect();
            lines.into_iter().for_each(|line| drop(line.join().expect("podman")));
        });
    };
    let machine = host.lab.host();
    let run = |line: String| machine.exec(&line.split(' ').collect::<Vec<_>>());
    host.leaves_nothing(|| {
        each(&|n, name| {
            run(format!(
                "timeout 300 podman run -d --name {name} --hostname {name} --network net -p {}:80 {IMAGE}",
                8000 + n
            ))
        });
        for (port, name) in (8000..).zip(names) {
            podman.is_reached(&at(HOST, port), name);
        }
        each(&|_, name| run(format!("timeout 300 podman rm -f -t 0 {name}")));
        // With --force, Podman says nothing of a container that it has not removed since another one went at that moment.
        names.iter().for_each(|name| podman.removes(name));
    });
}

fn taken_over(host: &Host) {
    let podman = Podman::new(host);
    podman.does("network create net");
    host.leaves_nothing(|| {
        host.installs(host.side.other());
        podman.starts("web", "--network net --publish 8080:80");
        podman.is_reached(&at(HOST, 8080), "web");
        host.installs(host.side);
        podman.is_reached(&at(HOST, 8080), "web");
        podman.starts("new", "--network net --publish 8081:80");
        podman.is_reached(&at(HOST, 8081), "new");
        podman.hears("new", &podman.address("web", "net"), 80, "web");
        podman.removes("web");
        podman.removes("new");
    });
}

fn internal(host: &Host) {
    let podman = Podman::new(host);
    podman.does("network create --internal --subnet 10.92.0.0/24 inner");
    podman.does("network create outer");
    podman.starts("a", "--network inner");
    podman.starts("b", "--network inner");
    podman.starts("c", "--network outer");
    podman.hears("a", &podman.address("b", "inner"), 80, "b");
    let _far = host.client.serve_tcp("far", &at(CLIENT, 7));
    podman.hears("c", CLIENT, 7, &format!("far {HOST}"));
    assert!(podman.is_cut_off("a", CLIENT, 7));
}

fn isolated(host: &Host) {
    let podman = Podman::new(host);
    for network in ["one", "two"] {
        podman.does(&format!("network create --opt isolate=true {network}"));
    }
    podman.does("network create open");
    podman.starts("a", "--network one --publish 8080:80");
    podman.starts("b", "--network two");
    podman.starts("c", "--network one");
    let b = podman.address("b", "two");
    podman.is_reached(&at(HOST, 8080), "a");
    podman.hears("c", &podman.address("a", "one"), 80, "a");
    // The server there runs: its host reaches it.
    crate::soon::tcp_says_soon(host.lab.host(), &at(&b, 80), "b");
    assert!(podman.is_cut_off("a", &b, 80));
}

fn names(host: &Host) {
    let podman = Podman::new(host);
    podman.does("network create net");
    finds_names(&podman);
}

/// Containers on the network `net` find each other by name and by alias.
pub fn finds_names(podman: &Podman) {
    podman.starts("web", "--network net --network-alias shop");
    podman.starts("other", "--network net");
    podman.hears("other", "web", 80, "web");
    podman.hears("other", "shop", 80, "web");
    podman.removes("other");
    podman.starts("third", "--network net");
    podman.hears("web", "third", 80, "third");
}

fn names_change(host: &Host) {
    let podman = Podman::new(host);
    podman.networks(&["one", "two"]);
    follows_names(&podman);
}

/// Names on the networks `one` and `two` follow connect, disconnect and restart.
pub fn follows_names(podman: &Podman) {
    let host = podman.0;
    podman.starts("web", "--network one --network-alias shop");
    podman.starts("b", "--network two");
    podman.does("network connect --alias db two web");
    let address = podman.address("web", "two");
    // The output of nslookup, which fails if one of the families has no address.
    let lookup = |name: &str| {
        let ask = format!("podman exec b /bin/busybox nslookup {name}.dns.podman");
        let output = host.lab.host().try_exec(&ask.split(' ').collect::<Vec<_>>());
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
    };
    for name in ["web", "db"] {
        podman.hears("b", name, 80, "web");
        soon(&format!("{name} is resolved"), &true, || lookup(name).contains(&address));
    }
    podman.hears("web", "b", 80, "b");
    podman.does("network disconnect two web");
    for name in ["web", "db"] {
        soon(&format!("{name} no longer exists"), &(true, false), || {
            let said = lookup(name);
            (said.contains("NXDOMAIN"), said.contains(&address))
        });
    }
    podman.starts("c", "--network one");
    podman.hears("c", "shop", 80, "web");
    podman.does("restart --time 0 web");
    for name in ["web", "shop"] {
        podman.hears("c", name, 80, "web");
    }
    assert!(!servers(host).is_empty(), "no server of names runs");
    ["web", "b", "c"].iter().for_each(|name| podman.removes(name));
    soon("no server runs", &String::new(), || servers(host));
}

/// The files with the process ids of dnsname's servers. Ferrule's directory is a link.
fn servers(host: &Host) -> String {
    host.run("find -L /run/containers/cni/dnsname -name pidfile")
}

fn names_taken_over(host: &Host) {
    let podman = Podman::new(host);
    podman.does("network create net");
    host.installs(host.side.other());
    podman.starts("old", "--network net --network-alias before");
    host.installs(host.side);
    podman.starts("new", "--network net --network-alias after");
    for name in ["old", "before"] {
        podman.hears("new", name, 80, "old");
    }
    for name in ["new", "after"] {
        podman.hears("old", name, 80, "new");
    }
    podman.removes("old");
    podman.starts("third", "--network net");
    podman.hears("third", "after", 80, "new");
    assert!(!servers(host).is_empty(), "no server of names runs");
    podman.removes("new");
    podman.removes("third");
    soon("no server runs", &String::new(), || servers(host));
}

fn no_names(host: &Host) {
    let podman = Podman::new(host);
    podman.does("network create --disable-dns net");
    let _server = Daemon::start(&[
        "dnsmasq",
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--user=root",
        "--pid-file=",
        "--no-hosts",
        "--no-resolv",
        "--address=/far.example/198.51.100.2",
    ]);
    podman.starts("web", "--network net --dns 198.51.100.1");
    assert!(!std::path::Path::new("/run/containers/cni/dnsname").exists(), "dnsname has not been called");
    let _far = host.client.serve_tcp("far", &at(CLIENT, 7));
    podman.hears("web", "far.example", 7, &format!("far {HOST}"));
}

fn macvlan(host: &Host) {
    let podman = Podman::new(host);
    podman.does("network create --driver macvlan --opt parent=uplink --subnet 198.51.100.0/24 --gateway 198.51.100.2 lan");
    host.leaves_nothing(|| {
        podman.starts("web", "--network lan:ip=198.51.100.50,mac=92:d0:c6:0a:29:50");
        podman.is_reached("198.51.100.50:80", "web");
        assert!(host.client.exec(&["ip", "neigh", "show", "198.51.100.50"]).contains("92:d0:c6:0a:29:50"));
        podman.removes("web");
    });
    assert!(tcp_is_cut_off(&host.client, "198.51.100.50:80"));
}

fn dhcp(host: &Host) {
    let podman = Podman::new(host);
    podman.does("network create --driver macvlan --opt parent=uplink lan");
    let _server = host.client.run(|| {
        Daemon::start(&[
            "dnsmasq",
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--user=root",
            "--pid-file=",
            "--port=0",
            "--dhcp-range=198.51.100.100,198.51.100.120,255.255.255.0,3600",
            "--dhcp-leasefile=/run/lab/leases",
        ])
    });
    host.lab.host().sh("mkdir -p /run/cni");
    let _daemon = Daemon::start(&[&format!("{PLUGINS}/dhcp"), "daemon"]);
    soon("the daemon of dhcp listens", &true, || std::path::Path::new("/run/cni/dhcp.sock").exists());
    podman.starts("web", "--network lan");
    let leases = std::fs::read_to_string("/run/lab/leases").expect("dnsmasq's leases");
    let address = leases.split(' ').nth(2).expect("a lease");
    podman.is_reached(&at(address, 80), "web");
    podman.removes("web");
    soon("the lease is given back", &String::new(), || {
        std::fs::read_to_string("/run/lab/leases").expect("dnsmasq's leases")
    });
}
