//! The firewall's part: masquerade and spoof check.

use cni::{AddResult, Check, IfName, Result, Status, Undo};
use firewall::{Backend, Firewall, Kind, Owner, Rules, SpoofCheck};
use ipnetwork::IpNetwork;

use crate::conf::Conf;

/// What ADD may have installed.
pub const KINDS: [Kind; 2] = [Kind::Masquerade, Kind::SpoofCheck];

/// Lets the container send only with its own hardware address, if the configuration says so.
pub fn check_sources(conf: &Conf, owner: &Owner, interfaces: Ends<'_>, undo: &mut Undo) -> Result<()> {
    match spoof_check(conf, interfaces) {
        Some(rules) => Firewall::open(None)?.install(owner, &rules, undo),
        None => Ok(()),
    }
}

/// The host's and the container's end of the pair, as the result reports them.
pub type Ends<'a> = (&'a cni::Interface, &'a cni::Interface);

fn spoof_check(conf: &Conf, (host, container): Ends<'_>) -> Option<Rules> {
    let port = IfName::parse(&host.name).ok()?;
    let mac = container.mac.as_deref()?.parse().ok()?;
    conf.spoof_check.then_some(Rules::SpoofCheck(SpoofCheck { port, mac }))
}

/// The addresses of one of the result's interfaces: all if the result does not say whose they are.
pub fn addresses(result: &AddResult, position: usize) -> impl Iterator<Item = IpNetwork> {
    let own = result.ips.iter().filter(move |ip| ip.interface.is_none_or(|i| i == position));
    own.map(|ip| ip.address)
}

/// The rules are as ADD installed them.
pub fn verify(call: &Check<Conf>, position: usize) -> Result<()> {
    let owner = Owner::new(&call.net.name, &call.attachment);
    call.conf.masquerade.check(&owner, addresses(&call.prev_result, position))?;
    match installed_spoof_check(call, position) {
        Some(rules) => Firewall::open(None)?.check(&owner, &rules),
        None => Ok(()),
    }
}

/// Installs what is missing of them. Whether anything was.
pub fn repair(call: &Check<Conf>, undo: &mut Undo) -> Result<bool> {
    let owner = Owner::new(&call.net.name, &call.attachment);
    // A result of before 0.3.0 lists no interfaces: all addresses are the container's.
    let position = call.prev_result.container_interface(&call.attachment.ifname).unwrap_or_default();
    let mut repaired = call.conf.masquerade.repair(&owner, addresses(&call.prev_result, position), undo)?;
    if let Some(rules) = installed_spoof_check(call, position) {
        repaired |= Firewall::open(None)?.repair(&owner, &rules, false, undo)?;
    }
    Ok(repaired)
}

/// The spoof check that ADD has installed.
fn installed_spoof_check(call: &Check<Conf>, position: usize) -> Option<Rules> {
    let host_name = iface::veth::host_name(&call.net.name, &call.attachment);
    let made = |name: &str| name == host_name || is_of_the_reference(name);
    let host = call.prev_result.host_interfaces().find(|i| made(&i.name))?;
    spoof_check(&call.conf, (host, call.prev_result.interfaces.get(position)?))
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
        Firewall::available(Some(Backend::Nftables), Kind::SpoofCheck)?;
    }
    call.conf.masquerade.available()
}
