//! containerd's client ctr, which calls the plugins itself.

use lab::Feature;

use crate::check::Check;
use crate::containerd::Containerd;
use crate::host::{CLIENT, HOST, Host};
use crate::soon::soon;
use crate::soon::tcp_says_soon;

pub fn checks() -> Vec<Check> {
    let check = |name, ask| Check::new("containerd", name, ask).needs(Feature::Ipv6);
    vec![
        check("ctr run --cni: a container reaches other hosts, and is reached by its host", traffic),
        check("ctr run --cni --rm leaves nothing", nothing_left).reference_fails(
            "+ ip saddr 10.90.0.3  counter jump CNI-",
            "ctr calls DEL after the namespace was deleted, and the reference then leaves its masquerade rules (containernetworking/plugins#810)",
        ),
    ]
}

fn traffic(host: &Host) {
    let containerd = Containerd::start(host);
    let _far = host.client.serve_tcp("far", "198.51.100.2:7");
    soon("a container hears", &format!("far {HOST}"), || {
        containerd.prints("ask", &format!("nc -w 60 {CLIENT} 7"))
    });
    containerd.runs("web");
    let inside = host.lab.namespace_of("inside", &containerd.pid("default", "web"));
    let address = inside.addresses("eth0").into_iter().find(|a| a.starts_with("10.90.")).expect("an address");
    let address = address.trim_end_matches("/24");
    let name = inside.exec(&["hostname"]);
    tcp_says_soon(host.lab.host(), &format!("{address}:80"), name.trim());
}

fn nothing_left(host: &Host) {
    let containerd = Containerd::start(host);
    host.leaves_nothing(|| {
        assert!(containerd.prints("short", "ip addr show dev eth0").contains("10.90.0."));
    });
}
