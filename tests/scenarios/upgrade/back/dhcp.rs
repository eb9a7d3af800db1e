//! The way back with addresses from DHCP, of which the reference's daemon knows nothing.

use lab::dhcp::{DhcpNetwork, RANGE_FOR_A_DAY, STATE, has_dnsmasq};
use lab::{Release, beyond_reference, skip};
use nix::sys::signal::Signal;

use super::*;

pub fn leased() -> Network {
    Network::new("dhcp", "", [json!({"type": "bridge", "bridge": "br0", "ipam": {"type": "dhcp"}})])
}

/// The container exists during the change, although the page says that it should be deleted before.
fn leaves_what_the_page_says(network: &Network, release: Release) {
    let mut net = DhcpNetwork::silent();
    net.serve(RANGE_FOR_A_DAY);
    net.start_daemon("");
    let pod = net.pod(&network.container());
    let conflist = json!({"cniVersion": "1.0.0", "name": "net", "plugins": network.plugins});
    net.lab.configure("10-net.conflist", &conflist);
    let chain = net.lab.chain(conflist);
    let results = attach(network, &chain, &pod);
    net.end_daemon(Signal::SIGTERM);
    net.use_daemon_of(&release.dir().unwrap());
    net.start_daemon("");

    let theirs = chain.by_release(release);
    let deleted = theirs.del(&pod, "eth0", &results[0]);
    assert_eq!(failure(&deleted), None, "{release}");
    assert!(pod.link("eth0").is_none(), "{release}");
    assert_eq!(remaining(&net.lab), listed(network.row, release), "{release}");
    assert_eq!(net.released(), 0, "{release}: the server keeps the address until its lease ends");
    // GC asks the daemon to release the lease.
    let gc = net.lab.cnitool().run(&format!("gc net --force {}", pod.id));
    assert!(
        !gc.succeeded() && gc.stderr.contains("the DHCP daemon on the socket is not Ferrule's"),
        "{gc:#?}"
    );
    assert_eq!(remaining(&net.lab), listed(network.row, release), "{release}");
    net.lab.host().sh(&commands("/run/ferrule/localnet"));
    assert_eq!(remaining(&net.lab), BTreeSet::new(), "{release}");
    assert!(!fs::exists(STATE).unwrap(), "{release}");
}

#[test]
fn leases_that_the_references_dhcp_leaves_are_on_the_page_and_its_commands_remove_them() {
    beyond_reference!("dhcp-restart");
    if !has_dnsmasq() {
        return skip("dnsmasq is missing");
    }
    for release in Release::with("dhcp") {
        leaves_what_the_page_says(&leased(), release);
    }
}
