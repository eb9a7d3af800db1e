//! Podman 5 with our network driver `cni`: what users of Podman 4 had, on Debian 13.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;

use lab::{Feature, PATH, tcp_is_cut_off, udp_says};

use super::podman as podman4;
use crate::check::Check;
use crate::gate::Gate;
use crate::host::{CLIENT, CLIENT6, CNITOOL, HOST, HOST6, Host, IMAGE, PLUGINS};
use crate::podman::Podman;
use crate::podman5::{self, User};
use crate::process::Daemon;
use crate::side;
use crate::soon::soon;

/// A check with Ferrule's plugins.
fn check(name: &'static str, ask: fn(&Host)) -> Check {
    Check::new("podman 5", name, ask).unless(podman5::lacks).ours_alone(
        "the driver is Ferrule's; its checks of bridge, ptp and ports run with the reference's plugins too",
    )
}

/// A check with both. The driver starts the plugins of the plugin directory, so it works with the reference's too. To
/// save time, only few checks do so.
fn with_both(name: &'static str, ask: fn(&Host)) -> Check {
    let check = Check::new("podman 5", name, ask).unless(podman5::lacks);
    match side::fallback() {
        Some(_) => check.ours_alone("release 1.1.1 does not support the CNI version of the driver's chains"),
        None => check,
    }
}

pub fn checks() -> Vec<Check> {
    vec![
        with_both("a container on a bridge reaches other hosts, masqueraded, over both families", goes_out)
            .needs(Feature::Ipv6),
        with_both("a container of ptp reaches other hosts, and its host port is reached", ptp),
        with_both(
            "published ports of TCP and UDP, ranges, and of one host address are reached, over both families",
            ports,
        )
        .needs(Feature::Ipv6),
        check("a container of unstable's Podman reaches other hosts, its host port is reached, and it leaves nothing", unstable)
            .unless(podman5::unstable_lacks),
        check("a container on two networks reaches both", two_networks),
        check("a running container is connected to a network and disconnected", connect),
        check("a network of IPv6 alone publishes ports", ipv6_alone).needs(Feature::Ipv6),
        check("containers find each other by name and by network alias (dnsname)", names),
        check("names follow network connect --alias, disconnect and restart (dnsname)", names_change),
        check("network reload restores host ports after a flush of all rules", reload),
        check(
            "a container gets the static addresses, the MAC address and the interface name that were requested, and inspect shows them",
            statics,
        )
        .needs(Feature::Ipv6),
        check("the containers of a pod share its network, and its host port is reached", pod),
        check("a restarted container has its host port again", restart),
        check(
            "after a reboot, podman-restart.service starts containers with their addresses, host ports and names, and nothing stale stays",
            reboot,
        )
        .needs(Feature::Ipv6),
        check("stop, rm and network rm leave only the bridge", nothing_left),
        check("a container that is killed and then removed leaves nothing", killed),
        check(
            "kill -9 of Podman in the middle of an ADD: gc removes everything, and the next container works",
            torn,
        ),
        check("kill -9 of Podman in the middle of a DEL: the next rm removes everything", torn_del),
        check("twenty concurrent containers have their ports while GC runs in a loop, and leave nothing", crowd),
        check("network rm is refused while a container is on the network", in_use),
        check("cnitool shows the containers, restores their rules, and gc removes no live one", collected),
        check(
            "after an upgrade from Podman 4, two commands bring a network over, with its running and stopped containers",
            brought_over,
        ),
        check("a container on two networks of one conflist has both, each with its own address", same_file),
        check("a broken conflist: cnitool repair works, and network reload works after the file is mended", broken_file),
        check("network create refuses a wrong option by its name", refused),
        check("Podman finds the driver and the plugins where the packages install them", packaged),
        check("Podman without root says that the driver needs root", rootless),
        check("netavark's own bridge and the driver differ as docs/podman.md says", compared),
        check("a container on an internal network cannot reach the outside", internal),
        check("a container and one on netavark's own bridge reach each other", with_a_bridge_of_netavark),
        check("a container on a macvlan network is a host of the parent's network", macvlan)
            .needs(Feature::Macvlan),
        check("a macvlan network gets its addresses from dnsmasq with DHCP", dhcp).needs(Feature::Macvlan),
        check("a container on an ipvlan network is a host of the parent's network", ipvlan)
            .needs(Feature::Ipvlan),
        check("a container on a vlan network is a host of the VLAN", vlan).needs(Feature::Vlan),
    ]
}

const POOL: &str = "--subnet 10.91.0.0/24 --subnet fd00:91::/64";

fn at(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A network of the driver, of a type.
#[track_caller]
fn made(podman: &Podman<'_>, name: &str, kind: &str, options: &str) {
    podman.does(&format!("network create --driver cni --opt type={kind} {options} {name}"));
}

#[track_caller]
fn bridges(podman: &Podman<'_>, names: &[&str]) {
    for (n, name) in names.iter().enumerate() {
        made(podman, name, "bridge", &format!("--subnet 10.{}.0.0/24", 93 + n));
    }
}

fn goes_out(host: &Host) {
    let podman = podman5::new(host);
    made(&podman, "dual", "bridge", POOL);
    podman.starts("web", "--network dual");
    for (server, seen) in [(CLIENT, HOST), (CLIENT6, HOST6)] {
        let _far = host.client.serve_tcp("far", &at(server, 7));
        podman.hears("web", server, 7, &format!("far {seen}"));
    }
}

fn ptp(host: &Host) {
    serves_and_leaves_nothing(host, &podman5::new(host), "ptp");
}

fn unstable(host: &Host) {
    serves_and_leaves_nothing(host, &podman5::of_unstable(host), "bridge");
}

fn serves_and_leaves_nothing(host: &Host, podman: &Podman<'_>, kind: &str) {
    made(podman, "net", kind, "--subnet 10.91.0.0/24");
    host.leaves_nothing(|| {
        podman.starts("web", "--network net --publish 8080:80");
        podman.is_reached(&at(HOST, 8080), "web");
        let _far = host.client.serve_tcp("far", &at(CLIENT, 7));
        podman.hears("web", CLIENT, 7, &format!("far {HOST}"));
        podman.removes("web");
    });
}

fn ports(host: &Host) {
    let podman = podman5::new(host);
    made(&podman, "dual", "bridge", POOL);
    podman.starts(
        "web",
        &format!("--network dual -p 8080:80 -p 5353:53/udp -p 7001-7003:7001-7003 -p {HOST}:9090:80 -p 127.0.0.1:9191:80"),
    );
    let inside = host.lab.namespace_of("inside", &podman.does("inspect --format {{.State.Pid}} web"));
    let _dns = inside.serve_udp("dns", "[::]:53");
    let _last = inside.serve_tcp("last", "[::]:7003");
    for address in [HOST, HOST6] {
        podman.is_reached(&at(address, 8080), "web");
        let answer = udp_says(&host.client, &at(address, 5353));
        assert!(answer.is_some_and(|said| said.starts_with("dns ")), "UDP to {address}");
        let answer = lab::tcp_says(&host.client, &at(address, 7003));
        assert!(answer.is_some_and(|said| said.starts_with("last ")), "the range's last port at {address}");
    }
    podman.is_reached(&at(HOST, 9090), "web");
    podman.closes(&at(HOST6, 9090), "a port of one address is closed at others");
    podman.closes(&at(HOST, 9191), "a port of loopback is closed for others");
    crate::soon::tcp_says_soon(host.lab.host(), &at("127.0.0.1", 9191), "web");
}

fn two_networks(host: &Host) {
    let podman = podman5::new(host);
    bridges(&podman, &["one", "two"]);
    podman4::reaches_both_networks(&podman);
}

fn connect(host: &Host) {
    let podman = podman5::new(host);
    bridges(&podman, &["one", "two"]);
    podman4::connects_and_disconnects(&podman);
}

fn ipv6_alone(host: &Host) {
    let podman = podman5::new(host);
    made(&podman, "six", "bridge", "--subnet fd00:96::/64");
    podman.starts("web", &format!("--network six -p 8080:80 -p [{HOST6}]:7001-7003:7001-7003"));
    let inside = host.lab.namespace_of("inside", &podman.does("inspect --format {{.State.Pid}} web"));
    let _last = inside.serve_tcp("last", "[::]:7003");
    podman.is_reached(&at(HOST6, 8080), "web");
    let answer = lab::tcp_says(&host.client, &at(HOST6, 7003));
    assert!(answer.is_some_and(|said| said.starts_with("last ")), "the range's last port");
    assert!(podman.is_silent(&at(HOST, 8080)), "IPv4");
    let _far = host.client.serve_tcp("far", &at(CLIENT6, 7));
    podman.hears("web", CLIENT6, 7, &format!("far {HOST6}"));
}

/// Bridges with the domain that Podman 4 gives its networks.
#[track_caller]
fn named(podman: &Podman<'_>, names: &[&str]) {
    for (n, name) in names.iter().enumerate() {
        let options = format!("--subnet 10.{}.0.0/24 --opt dnsname.domainName=dns.podman", 93 + n);
        made(podman, name, "bridge", &options);
    }
}

fn names(host: &Host) {
    let podman = podman5::new(host);
    named(&podman, &["net"]);
    podman4::finds_names(&podman);
}

fn names_change(host: &Host) {
    let podman = podman5::new(host);
    named(&podman, &["one", "two"]);
    podman4::follows_names(&podman);
}

fn reload(host: &Host) {
    let podman = podman5::new(host);
    bridges(&podman, &["net"]);
    podman.starts("web", "--network net --publish 8080:80");
    podman.is_reached(&at(HOST, 8080), "web");
    let address = podman.address("web", "net");
    host.run("nft flush ruleset");
    podman.does("network reload --all");
    podman.is_reached(&at(HOST, 8080), "web");
    assert_eq!(podman.address("web", "net"), address);
    let _far = host.client.serve_tcp("far", &at(CLIENT, 7));
    podman.hears("web", CLIENT, 7, &format!("far {HOST}"));
}

fn statics(host: &Host) {
    let podman = podman5::new(host);
    made(&podman, "dual", "bridge", POOL);
    let (ip, ip6, mac) = ("10.91.0.77", "fd00:91::77", "92:d0:c6:0a:29:33");
    podman.starts("web", &format!("--network dual:ip={ip},ip6={ip6},mac={mac},interface_name=net7"));
    let links = podman.inside("web", "ip addr show dev net7");
    let shown =
        host.run_words(&["podman", "inspect", "--format", "{{json .NetworkSettings.Networks}}", "web"]);
    for wanted in [ip, ip6, mac] {
        assert!(links.contains(wanted), "{wanted} in\n{links}");
        assert!(shown.contains(wanted), "{wanted} in\n{shown}");
    }
    assert!(shown.contains("10.91.0.1") && shown.contains("fd00:91::1"), "gateways in\n{shown}");
    assert!(
        !host.succeeds(&format!("podman run --rm --network dual:ip={ip} {IMAGE} /bin/busybox true")),
        "{ip} twice"
    );
}

fn pod(host: &Host) {
    let podman = podman5::new(host);
    bridges(&podman, &["net"]);
    podman.does("pod create --network net --publish 8081:81 --name shop");
    for (name, port) in [("web", 81), ("db", 82)] {
        podman.does(&format!(
            "run --detach --pod shop --name {name} {IMAGE} /bin/busybox nc -ll -p {port} -e /bin/busybox echo {name}"
        ));
    }
    podman.is_reached(&at(HOST, 8081), "web");
    podman.hears("web", "127.0.0.1", 82, "db");
    podman.does("pod rm --force --time 0 shop");
    podman.closes(&at(HOST, 8081), "after pod rm");
}

fn restart(host: &Host) {
    let podman = podman5::new(host);
    bridges(&podman, &["net"]);
    podman4::restarts(&podman);
}

fn reboot(host: &Host) {
    let podman = podman5::new(host);
    made(&podman, "dual", "bridge", &format!("{POOL} --opt dnsname.domainName=dns.podman"));
    // The bridge and the base chains come with the first container.
    podman.starts("first", "--network dual --publish 8080:80");
    podman.removes("first");
    // The bridge of after the reboot has another index and MAC address.
    let state = || {
        let files =
            host.lab.host().sh("find /var/lib/cni -type f ! -name last_reserved_ip.* ! -name *lock | sort");
        let mut links = host.lab.host().link_names();
        links.sort_unstable();
        (host.run("nft --stateless list ruleset"), files, links)
    };
    let before = state();
    // Without a policy, so it does not start again.
    podman.starts("idle", "--network dual --publish 8081:80");
    podman.starts("web", "--restart always --network dual:ip=10.91.0.77,ip6=fd00:91::77 --publish 8080:80");
    podman.starts("other", "--restart always --network dual");
    let address = podman.address("idle", "dual");
    podman5::reboots(host);
    host.run(&podman5::restart_command());
    for host_address in [HOST, HOST6] {
        podman.is_reached(&at(host_address, 8080), "web");
        podman.closes(&at(host_address, 8081), "the port of a container that has ended");
    }
    assert_eq!(podman.address("web", "dual"), "10.91.0.77");
    podman.hears("other", "web", 80, "web");
    // Podman no longer knows that this container was attached.
    podman.does("rm idle");
    let gc = || host.run(&format!("{CNITOOL} --plugin-path {PLUGINS} gc dual"));
    gc();
    assert!(!host.run("find /var/lib/cni -type f").contains(&format!("/{address}\n")), "its lease");
    podman.starts("heir", &format!("--network dual:ip={address} --publish 8081:80"));
    gc();
    podman.is_reached(&at(HOST, 8080), "web");
    podman.is_reached(&at(HOST6, 8081), "heir");
    ["web", "other", "heir"].iter().for_each(|name| podman.removes(name));
    assert_eq!(state(), before);
}

fn nothing_left(host: &Host) {
    let podman = podman5::new(host);
    made(&podman, "one", "bridge", "--subnet 10.93.0.0/24 --opt bridge=br-one");
    made(&podman, "two", "bridge", "--subnet 10.94.0.0/24 --opt bridge=br-two");
    host.leaves_nothing(|| {
        podman.starts("web", "--network one,two --publish 8080:80 --publish 5353:53/udp");
        podman.is_reached(&at(HOST, 8080), "web");
        podman.does("stop --time 0 web");
        podman.does("rm web");
    });
    podman.does("network rm one two");
    let mut links = host.lab.host().link_names();
    links.sort_unstable();
    assert_eq!(links, ["br-one", "br-two", "uplink"]);
}

fn killed(host: &Host) {
    let podman = podman5::new(host);
    bridges(&podman, &["net"]);
    host.leaves_nothing(|| {
        podman.starts("web", "--network net --publish 8080:80");
        podman.is_reached(&at(HOST, 8080), "web");
        // With its monitor, so that nobody cleans up.
        let pids = podman.does("inspect --format {{.State.ConmonPid}}/{{.State.Pid}} web");
        let (monitor, container) = pids.split_once('/').expect("two numbers");
        host.run(&format!("kill -9 {monitor} {container}"));
        // This Podman fails once, since it cannot learn the exit code.
        soon("the container is removed", &true, || host.succeeds("podman rm --force --time 0 web"));
    });
}

fn torn(host: &Host) {
    let podman = podman5::new(host);
    bridges(&podman, &["net"]);
    // The bridge and the base chains come with the first container.
    podman.starts("first", "--network net --publish 8080:80");
    podman.removes("first");
    let before = host.snapshot();
    podman.does(&format!("create --name torn --network net --publish 8080:80 {IMAGE}"));
    let gate = Gate::before(host, "portmap", "ADD");
    let mut start = host.lab.host().run(|| {
        Command::new("podman").args(["start", "torn"]).env("PATH", PATH).stdout(Stdio::null()).spawn()
    });
    let start = start.as_mut().expect("start podman");
    let waiting = gate.reached();
    start.kill().expect("kill podman");
    start.wait().expect("wait for podman");
    gate.open(&waiting);
    podman.removes("torn");
    // Podman forgets a namespace that it was killed over. It holds the attachment's interface.
    host.unmounts_namespaces();
    soon("what the ADD made is collected", &true, || {
        host.succeeds(&format!("{CNITOOL} --plugin-path {PLUGINS} gc net"));
        !host.succeeds(&format!("{CNITOOL} show --all"))
    });
    podman.starts("next", "--network net --publish 8080:80");
    podman.is_reached(&at(HOST, 8080), "next");
    // The network's chain, which gc needed, goes with it.
    podman.removes("next");
    host.snapshot().assert_same(&before);
}

fn torn_del(host: &Host) {
    let podman = podman5::new(host);
    bridges(&podman, &["net"]);
    host.leaves_nothing(|| {
        podman.starts("torn", "--network net --publish 8080:80");
        podman.is_reached(&at(HOST, 8080), "torn");
        let gate = Gate::before(host, "portmap", "DEL");
        let mut removal = host.lab.host().run(|| {
            let mut podman = Command::new("podman");
            podman.args(["rm", "--force", "--time", "0", "torn"]).env("PATH", PATH).stdout(Stdio::null());
            podman.spawn()
        });
        let removal = removal.as_mut().expect("start podman");
        let waiting = gate.reached();
        removal.kill().expect("kill podman");
        removal.wait().expect("wait for podman");
        gate.open(&waiting);
        podman.removes("torn");
        host.unmounts_namespaces();
    });
}

fn crowd(host: &Host) {
    let podman = podman5::new(host);
    bridges(&podman, &["net"]);
    let names: Vec<String> = (0..20).map(|n| format!("c{n}")).collect();
    let machine = host.lab.host();
    let each = |line: &(dyn Fn(usize, &str) -> String + Sync)| {
        thread::scope(|scope| {
            let run = |n: usize, name: &str| {
                let line = line(n, name);
                machine.exec(&line.split(' ').collect::<Vec<_>>());
            };
            let started: Vec<_> =
                names.iter().enumerate().map(|(n, name)| scope.spawn(move || run(n, name))).collect();
            started.into_iter().for_each(|one| one.join().expect("podman"));
        });
    };
    host.leaves_nothing(|| {
        let collector = Collector::start(host);
        each(&|n, name| {
            format!(
                "timeout 300 podman run -d --name {name} --hostname {name} --network net -p {}:80 {IMAGE}",
                8000 + n
            )
        });
        for (port, name) in (8000..).zip(&names) {
            podman.is_reached(&at(HOST, port), name);
        }
        each(&|_, name| format!("timeout 300 podman rm -f -t 0 {name}"));
        names.iter().for_each(|name| podman.removes(name));
        collector.ends();
    });
}

/// `cnitool gc --all` again and again, with pauses, so that the containers get most of the processor.
struct Collector(Child);

impl Collector {
    const END: &str = "/run/lab/end-of-gc";

    fn start(host: &Host) -> Self {
        fs::remove_file(Self::END).ok();
        let script = format!(
            "until [ -e {} ]; do {CNITOOL} --plugin-path {PLUGINS} gc --all || exit; sleep 1; done",
            Self::END
        );
        Self(host.lab.host().run(|| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).env("PATH", PATH).stdout(Stdio::null()).spawn().expect("start sh")
        }))
    }

    /// Returns after the last GC.
    #[track_caller]
    fn ends(mut self) {
        fs::write(Self::END, "").expect("write a file");
        assert!(self.0.wait().expect("wait for sh").success(), "gc fails");
    }
}

/// If a check fails.
impl Drop for Collector {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn in_use(host: &Host) {
    let podman = podman5::new(host);
    bridges(&podman, &["net"]);
    podman.starts("web", "--network net --publish 8080:80");
    assert!(!host.succeeds("podman network rm net"), "it is in use");
    podman.is_reached(&at(HOST, 8080), "web");
    podman.removes("web");
    podman.does("network rm net");
}

fn collected(host: &Host) {
    let podman = podman5::new(host);
    bridges(&podman, &["net"]);
    podman.starts("web", "--network net --publish 8080:80");
    let id = podman.does("inspect --format {{.Id}} web");
    let shown = host.run(&format!("{CNITOOL} show --all --output json"));
    assert!(shown.contains(&id) && shown.contains("Podman") && shown.contains("8080"), "{shown}");
    host.run(&format!("{CNITOOL} --plugin-path {PLUGINS} gc net"));
    podman.is_reached(&at(HOST, 8080), "web");
    host.run("nft flush ruleset");
    host.run(&format!("{CNITOOL} --plugin-path {PLUGINS} repair net"));
    podman.is_reached(&at(HOST, 8080), "web");
}

/// The first block of a kind in the page's section on moving a network.
fn on_the_page(kind: &str) -> String {
    let page = fs::read_to_string(lab::repository().join("docs/podman.md")).expect("read the page");
    let section = page.split("## Move a network of Podman 4 to Podman 5\n").nth(1).expect("the section");
    let block = section.split(&format!("```{kind}\n")).nth(1).expect("a block");
    block.split("```").next().expect("its text").to_owned()
}

/// An upgrade of Podman while a container runs, and the page's commands word for word.
fn brought_over(host: &Host) {
    let old = Podman::new(host);
    old.does("network create --subnet 10.89.0.0/24 old");
    let written = fs::read_to_string("/etc/cni/net.d/old.conflist").expect("read a network of Podman 4");
    let compact = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(compact(&on_the_page("json")), compact(&written), "the page has another network");
    // A container keeps its runtime.
    host.run("cp /usr/sbin/runc /run/lab/runc");
    for (name, options) in [
        ("web", "--network-alias shop --ip 10.89.0.77 --mac-address 92:d0:c6:0a:29:33 --publish 8080:80"),
        ("stopped", "--publish 8081:80"),
        ("gone", "--publish 8082:80"),
    ] {
        old.starts(name, &format!("--network old {options}"));
    }
    old.is_reached(&at(HOST, 8080), "web");
    old.does("stop --time 0 stopped");

    let podman = podman5::new(host);
    host.lab.host().sh(&format!("cp /run/lab/runc /usr/sbin/; cp {CNITOOL} /usr/local/bin/"));
    host.run_words(&["sh", "-ec", &on_the_page("sh example")]);
    let shown = podman.does("network inspect old");
    assert!(shown.contains("10.89.0.0/24") && shown.contains("10.89.0.1"), "{shown}");
    podman.is_reached(&at(HOST, 8080), "web");
    podman.removes("gone");
    podman.closes(&at(HOST, 8082), "the port of a container that Podman 4 attached");
    podman.does("network reload web");
    podman.is_reached(&at(HOST, 8080), "web");
    podman.does("restart --time 0 web");
    podman.is_reached(&at(HOST, 8080), "web");
    assert_eq!(podman.address("web", "old"), "10.89.0.77");
    assert!(podman.inside("web", "ip link show dev eth0").contains("92:d0:c6:0a:29:33"), "its MAC address");
    podman.does("start stopped");
    podman.is_reached(&at(HOST, 8081), "stopped");
    podman.hears("stopped", "shop", 80, "web");
    ["web", "stopped"].iter().for_each(|name| podman.removes(name));
    host.leaves_nothing(|| {
        podman.starts("new", "--network old --publish 8080:80");
        podman.is_reached(&at(HOST, 8080), "new");
        podman.removes("new");
    });
    assert_eq!(
        host.run("find /var/lib/cni/results /var/lib/cni/networks/old -name *89*"),
        "",
        "nothing is left"
    );
}

const OF_A_FILE: &str = r#"{"cniVersion": "1.0.0", "name": "kept", "plugins": [
    {"type": "bridge", "bridge": "kept0", "isDefaultGateway": true, "ipMasq": true,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.93.0.0/24"}]]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;

fn same_file(host: &Host) {
    let podman = podman5::new(host);
    let file = "/run/lab/same.conflist";
    fs::write(file, OF_A_FILE).expect("write a network");
    for name in ["one", "two"] {
        podman.does(&format!("network create --driver cni --opt conflist={file} {name}"));
    }
    host.leaves_nothing(|| {
        podman.starts("both", "--network one,two --publish 8080:80");
        podman.starts("other", "--network two");
        podman.is_reached(&at(HOST, 8080), "both");
        podman.does("network disconnect one both");
        podman.hears("other", &podman.address("both", "two"), 80, "both");
        podman.does("network connect one both");
        podman.hears("other", &podman.address("both", "one"), 80, "both");
        podman.removes("both");
        podman.removes("other");
    });
}

fn broken_file(host: &Host) {
    let podman = podman5::new(host);
    let file = "/run/lab/broken.conflist";
    let list = OF_A_FILE;
    fs::write(file, list).expect("write a network");
    podman.does(&format!("network create --driver cni --opt conflist={file} kept"));
    podman.starts("web", "--network kept --publish 8080:80");
    let address = podman.address("web", "kept");
    fs::write(file, "{").expect("break the network");
    host.run("nft flush ruleset");
    host.run(&format!("{CNITOOL} --plugin-path {PLUGINS} repair kept"));
    podman.is_reached(&at(HOST, 8080), "web");
    let error = host.try_run("podman network reload web").expect_err("the file is broken");
    assert!(error.contains(file), "{error}");
    fs::write(file, list).expect("mend the network");
    podman.does("network reload web");
    podman.is_reached(&at(HOST, 8080), "web");
    assert_eq!(podman.address("web", "kept"), address);
}

fn refused(host: &Host) {
    let podman = podman5::new(host);
    let said = host.lab.host().try_exec(
        &"podman network create --driver cni --opt type=bridge --opt mtuu=1400 --subnet 10.91.0.0/24 bad"
            .split(' ')
            .collect::<Vec<_>>(),
    );
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("option mtuu") && said.contains(r#"did you mean "mtu""#), "{said}");
    assert!(!podman.does("network ls").contains("bad"));
}

fn packaged(host: &Host) {
    let podman = podman5::of_package(host);
    assert!(podman.does("info --format {{.Plugins.Network}}").contains("cni"));
    bridges(&podman, &["net"]);
    host.leaves_nothing(|| {
        podman.starts("web", "--network net --publish 8080:80");
        podman.is_reached(&at(HOST, 8080), "web");
        podman.removes("web");
    });
}

fn rootless(host: &Host) {
    let _as_root = podman5::new(host);
    let user = User::new(host);
    let create = "network create --driver cni --opt type=bridge --subnet 10.93.0.0/24 net";
    let (is_made, said) = user.podman(create);
    assert!(
        !is_made && said.contains("needs Podman to run as root") && said.contains("--driver bridge"),
        "{said}"
    );
    let (is_made, said) = user.podman("network create --driver bridge net");
    assert!(is_made, "the user's Podman works: {said}");
}

/// The rows of "Compared with netavark's own bridge" in docs/podman.md whose two columns differ.
fn compared(host: &Host) {
    let podman = podman5::new(host);
    let creates = |line: &str| host.succeeds(&format!("podman network create {line}"));
    assert!(creates("--interface-name own0 own") && creates("--ipv6 own6"), "Podman chooses a subnet");
    for ours in ["no", "--ipv6 no", "--ipv6 --subnet 10.93.0.0/24 no"] {
        assert!(!creates(&format!("--driver cni --opt type=bridge {ours}")), "{ours}");
    }
    bridges(&podman, &["net"]);
    let bridge = podman.does("network inspect --format {{.NetworkInterface}} net");
    let option = "host_interface_name=veth7";
    for (network, is_own) in [("own", true), ("net", false)] {
        let run = format!("podman run --rm --network {network}:{option} {IMAGE} /bin/busybox true");
        assert_eq!(host.succeeds(&run), is_own, "{option} on {network}");
        podman.starts("web", &format!("--network {network}"));
        podman.starts("other", &format!("--network {network} --dns {HOST}"));
        let ask = "podman exec other /bin/busybox nslookup web.dns.podman";
        assert_eq!(host.succeeds(ask), is_own, "a name on {network}");
        podman.does(&format!("network update --dns-add {CLIENT} {network}"));
        let resolver =
            podman.does(&format!("run --rm --network {network} {IMAGE} /bin/busybox cat /etc/resolv.conf"));
        assert_eq!(resolver.contains(CLIENT), !is_own, "netavark's server asks it: {resolver}");
        podman.removes("web");
        podman.removes("other");
    }
    made(&podman, "asked", "bridge", &format!("--subnet 10.94.0.0/24 --dns {HOST}"));
    for (network, is_heard) in [("asked", false), ("net", true)] {
        let run =
            format!("run --rm --network {network} --dns {CLIENT} {IMAGE} /bin/busybox cat /etc/resolv.conf");
        assert_eq!(podman.does(&run).contains(CLIENT), is_heard, "--dns of a container on {network}");
    }
    let links = host.lab.host().link_names();
    assert!(!links.contains(&"own0".to_owned()) && links.contains(&bridge), "{links:?}");
}

fn internal(host: &Host) {
    let podman = podman5::new(host);
    made(&podman, "inner", "bridge", "--internal --subnet 10.92.0.0/24 --opt dnsname.domainName=dns.podman");
    made(&podman, "outer", "bridge", "--subnet 10.93.0.0/24");
    podman.starts("a", "--network inner");
    podman.starts("b", "--network inner");
    podman.starts("c", "--network outer");
    podman.hears("a", &podman.address("b", "inner"), 80, "b");
    podman.hears("a", "b", 80, "b");
    let _far = host.client.serve_tcp("far", &at(CLIENT, 7));
    podman.hears("c", CLIENT, 7, &format!("far {HOST}"));
    assert!(podman.is_cut_off("a", CLIENT, 7));
}

fn with_a_bridge_of_netavark(host: &Host) {
    let podman = podman5::new(host);
    bridges(&podman, &["net"]);
    podman.does("network create --disable-dns own");
    podman.starts("web", "--network net --publish 8080:80");
    podman.starts("other", "--network own --publish 8081:80");
    podman.is_reached(&at(HOST, 8080), "web");
    podman.is_reached(&at(HOST, 8081), "other");
    podman.hears("web", HOST, 8081, "other");
    podman.hears("other", HOST, 8080, "web");
    podman.does("network connect own web");
    podman.hears("web", &podman.address("other", "own"), 80, "other");
}

fn on_the_parents_network(host: &Host, kind: &str, mac: &str) {
    let podman = podman5::new(host);
    made(
        &podman,
        "lan",
        kind,
        "--opt master=uplink --opt ipam=static --subnet 198.51.100.0/24 --gateway 198.51.100.2",
    );
    host.leaves_nothing(|| {
        podman.starts("web", &format!("--network lan:ip=198.51.100.50{mac}"));
        podman.is_reached("198.51.100.50:80", "web");
        podman.removes("web");
    });
    assert!(tcp_is_cut_off(&host.client, "198.51.100.50:80"));
}

fn macvlan(host: &Host) {
    on_the_parents_network(host, "macvlan", ",mac=92:d0:c6:0a:29:50");
}

fn ipvlan(host: &Host) {
    on_the_parents_network(host, "ipvlan", "");
}

fn vlan(host: &Host) {
    let podman = podman5::new(host);
    let uplink = host.client.link_names().into_iter().find(|name| name != "lo").expect("the client's link");
    host.client.sh(&format!(
        "ip link add link {uplink} name {uplink}.7 type vlan id 7; ip link set {uplink}.7 up; ip addr add 10.97.0.2/24 dev {uplink}.7"
    ));
    made(
        &podman,
        "seven",
        "vlan",
        "--opt master=uplink --opt vlanId=7 --opt ipam=host-local --subnet 10.97.0.0/24 --gateway 10.97.0.2",
    );
    podman.starts("web", "--network seven:ip=10.97.0.50");
    podman.is_reached("10.97.0.50:80", "web");
    podman.removes("web");
}

fn dhcp(host: &Host) {
    let podman = podman5::new(host);
    made(&podman, "lan", "macvlan", "--opt master=uplink --opt ipam=dhcp");
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
    let leases = || fs::read_to_string("/run/lab/leases").expect("dnsmasq's leases");
    let address = leases().split(' ').nth(2).expect("a lease").to_owned();
    assert_eq!(podman.address("web", "lan"), address);
    podman.is_reached(&at(&address, 80), "web");
    podman.removes("web");
    soon("the lease is given back", &String::new(), leases);
}
