//! Firewall rules: masquerade and spoof check.

use cni::{Check, Error, IfName, Result, Status, Undo};
use iface::{attach, verify, veth};
use netfilter::{Backend, Expected, Firewall, Kind, Masquerade, Owner, SpoofCheck};
use netlink::Mac;

use crate::conf::Conf;
use crate::port::Port;

/// Kinds of rules that ADD may install.
pub const KINDS: [Kind; 2] = [Masquerade::KIND, SpoofCheck::KIND];

/// Installs the spoof check, if configured: the container may send only from its own hardware address.
pub fn install_spoof_check(conf: &Conf, owner: &Owner, port: &Port, undo: &mut Undo) -> Result<()> {
    let mac = port.container.as_ref().and_then(|container| container.mac);
    match mac.and_then(|mac| spoof_check(conf, &port.host.name, mac)) {
        // `refuse_spoof_check` has already refused the check for a link of an earlier plugin.
        Some(rules) if !port.adopted => Firewall::open(None)?.install(owner, &rules, undo),
        _ => Ok(()),
    }
}

/// Refuses a spoof check for an interface of an earlier plugin. It may lead to a virtual machine, whose hardware address is unknown.
///
/// # Errors
/// Code 7 if the configuration has the check.
pub fn refuse_spoof_check(conf: &Conf) -> Result<()> {
    if !conf.spoof_check {
        return Ok(());
    }
    let text = "macspoofchk: bridge cannot check the source addresses of an interface that an earlier plugin of the chain created";
    Err(Error::config(text).detail("remove macspoofchk from the bridge of this network"))
}

fn spoof_check(conf: &Conf, port: &str, mac: Mac) -> Option<SpoofCheck> {
    let port = IfName::parse(port).ok()?;
    conf.spoof_check.then_some(SpoofCheck { port, mac })
}

/// Checks that the rules are as ADD installed them.
pub fn verify(call: &Check<Conf>) -> Result<()> {
    let owner = Owner::new(&call.net.name, &call.attachment);
    let addresses = attach::addresses(&call.net, &call.attachment, &call.prev_result);
    call.conf.masquerade.check(&owner, addresses)?;
    match installed_spoof_check(call) {
        Some(rules) => Firewall::open(None)?.check(&owner, &rules),
        None => Ok(()),
    }
}

/// Rules that ADD installed.
pub fn expected(call: &Check<Conf>) -> Vec<Expected> {
    let owner = Owner::new(&call.net.name, &call.attachment);
    let addresses = attach::addresses(&call.net, &call.attachment, &call.prev_result);
    let masquerade = call.conf.masquerade.expected(&owner, addresses);
    let spoof_check =
        installed_spoof_check(call).map(|rules| Expected { owner, rules: Box::new(rules), backend: None });
    masquerade.into_iter().chain(spoof_check).collect()
}

/// Spoof check that ADD installed.
fn installed_spoof_check(call: &Check<Conf>) -> Option<SpoofCheck> {
    let derived = veth::host_name(&call.net.name, &call.attachment);
    let requested = call.conf.host_interface.as_deref();
    // An adopted interface has no spoof check.
    let made =
        |name: &str| name == derived || Some(name) == requested || veth::is_name_of_the_reference(name);
    let host = call.prev_result.host_interfaces().find(|i| made(&i.name))?;
    let container = verify::listed(&call.prev_result, &call.attachment).ok()?;
    spoof_check(&call.conf, &host.name, container.mac.as_deref()?.parse().ok()?)
}

/// Checks that the required firewall backend exists.
pub fn check_available(call: &Status<Conf>) -> Result<()> {
    if call.conf.spoof_check {
        Firewall::check_available(Some(Backend::Nftables), SpoofCheck::KIND)?;
    }
    call.conf.masquerade.check_available()
}
