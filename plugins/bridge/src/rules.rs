//! The firewall's part: masquerade and spoof check.

use cni::{Check, Error, IfName, Result, Status, Undo};
use iface::{attach, verify};
use netfilter::{Backend, Expected, Firewall, Kind, Masquerade, Owner, SpoofCheck};
use netlink::Mac;

use crate::conf::Conf;
use crate::port::Port;

/// What ADD may have installed.
pub const KINDS: [Kind; 2] = [Masquerade::KIND, SpoofCheck::KIND];

/// Lets the container send only with its own hardware address, if the configuration says so.
pub fn check_sources(conf: &Conf, owner: &Owner, port: &Port, undo: &mut Undo) -> Result<()> {
    let mac = port.container.as_ref().and_then(|container| container.mac);
    match mac.and_then(|mac| spoof_check(conf, &port.host.name, mac)) {
        // An earlier plugin's interfaces are taken as they are.
        Some(rules) if !port.adopted => Firewall::open(None)?.install(owner, &rules, undo),
        _ => Ok(()),
    }
}

/// An earlier plugin's interface may lead to a virtual machine, whose hardware address only that plugin knows.
///
/// # Errors
/// Code 7 if the configuration asks for the check.
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

/// The rules are as ADD installed them.
pub fn verify(call: &Check<Conf>) -> Result<()> {
    let owner = Owner::new(&call.net.name, &call.attachment);
    let addresses = attach::addresses(&call.net, &call.attachment, &call.prev_result);
    call.conf.masquerade.check(&owner, addresses)?;
    match installed_spoof_check(call) {
        Some(rules) => Firewall::open(None)?.check(&owner, &rules),
        None => Ok(()),
    }
}

/// The rules that ADD has installed.
pub fn expected(call: &Check<Conf>) -> Vec<Expected> {
    let owner = Owner::new(&call.net.name, &call.attachment);
    let addresses = attach::addresses(&call.net, &call.attachment, &call.prev_result);
    let masquerade = call.conf.masquerade.expected(&owner, addresses);
    let spoof_check =
        installed_spoof_check(call).map(|rules| Expected { owner, rules: Box::new(rules), backend: None });
    masquerade.into_iter().chain(spoof_check).collect()
}

/// The spoof check that ADD has installed.
fn installed_spoof_check(call: &Check<Conf>) -> Option<SpoofCheck> {
    let host_name = iface::veth::host_name(&call.net.name, &call.attachment);
    let made = |name: &str| name == host_name || is_of_the_reference(name);
    let host = call.prev_result.host_interfaces().find(|i| made(&i.name))?;
    let container = verify::listed(&call.prev_result, &call.attachment).ok()?;
    spoof_check(&call.conf, &host.name, container.mac.as_deref()?.parse().ok()?)
}

/// Whether the reference may have made the host's end of a veth: it calls it so. What an earlier plugin made and this one took as
/// it was has no spoof check.
fn is_of_the_reference(name: &str) -> bool {
    let digits = name.strip_prefix("veth").unwrap_or_default();
    digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The firewall that the configuration needs is there.
pub fn available(call: &Status<Conf>) -> Result<()> {
    if call.conf.spoof_check {
        Firewall::available(Some(Backend::Nftables), SpoofCheck::KIND)?;
    }
    call.conf.masquerade.available()
}
