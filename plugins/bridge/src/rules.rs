//! The firewall's part: masquerade and spoof check.

use cni::{AddResult, AsWritten, Check, Failures, Gc, IfName, Result, Status, Undo};
use firewall::{Backend, Firewall, Kind, Masquerade, Owner, Rules, SpoofCheck, Sweep};

use crate::conf::Conf;

/// What ADD may have installed.
const KINDS: [Kind; 2] = [Kind::Masquerade, Kind::SpoofCheck];

/// Lets the container send only with its own hardware address, if the configuration says so.
pub fn check_sources(conf: &Conf, owner: &Owner, interfaces: Ends<'_>, undo: &mut Undo) -> Result<()> {
    match spoof_check(conf, interfaces) {
        Some(rules) => Firewall::open(None)?.install(owner, &rules, undo),
        None => Ok(()),
    }
}

/// Hides the container's addresses behind the host's, if the configuration says so.
pub fn masquerade(
    conf: &Conf,
    owner: &Owner,
    result: &AddResult,
    position: usize,
    undo: &mut Undo,
) -> Result<()> {
    match (&conf.masquerade, masquerading(conf, result, position)) {
        (Some(how), Some(rules)) => Firewall::open(how.backend)?.install(owner, &rules, undo),
        _ => Ok(()),
    }
}

/// The host's and the container's end of the pair, as the result reports them.
pub type Ends<'a> = (&'a cni::Interface, &'a cni::Interface);

fn spoof_check(conf: &Conf, (host, container): Ends<'_>) -> Option<Rules> {
    let port = IfName::parse(&host.name).ok()?;
    let mac = container.mac.as_deref()?.parse().ok()?;
    conf.spoof_check.then_some(Rules::SpoofCheck(SpoofCheck { port, mac }))
}

fn masquerading(conf: &Conf, result: &AddResult, position: usize) -> Option<Rules> {
    let own = result.ips.iter().filter(|ip| ip.interface.is_none_or(|i| i == position)).map(|ip| ip.address);
    let addresses = conf.masquerade?.select(own);
    (!addresses.is_empty()).then_some(Rules::Masquerade(Masquerade { addresses }))
}

/// The rules are as ADD installed them.
pub fn verify(call: &Check<Conf>, position: usize) -> Result<()> {
    let owner = Owner::new(&call.net.name, &call.attachment);
    let check = |(backend, rules)| Firewall::open(backend)?.check(&owner, &rules);
    expected(call, position).into_iter().try_for_each(check)
}

/// Installs what is missing of them. Whether anything was.
pub fn repair(call: &Check<Conf>, undo: &mut Undo) -> Result<bool> {
    let owner = Owner::new(&call.net.name, &call.attachment);
    // A result of before 0.3.0 lists no interfaces: all addresses are the container's.
    let position = call.prev_result.container_interface(&call.attachment.ifname).unwrap_or_default();
    let mut repaired = false;
    for (backend, rules) in expected(call, position) {
        repaired |= Firewall::open(backend)?.repair(&owner, &rules, false, undo)?;
    }
    Ok(repaired)
}

/// What ADD has installed, and by which backend.
fn expected(call: &Check<Conf>, position: usize) -> Vec<(Option<Backend>, Rules)> {
    let conf = &call.conf;
    let masquerade = conf.masquerade.as_ref().map(|how| how.backend);
    let masquerade = masquerade.zip(masquerading(conf, &call.prev_result, position));
    let host_name = iface::veth::host_name(&call.net.name, &call.attachment);
    let made = |name: &str| name == host_name || is_of_the_reference(name);
    let host = call.prev_result.host_interfaces().find(|i| made(&i.name));
    let spoof_check =
        host.zip(call.prev_result.interfaces.get(position)).and_then(|ends| spoof_check(conf, ends));
    masquerade.into_iter().chain(spoof_check.map(|rules| (None, rules))).collect()
}

/// Whether the reference may have made the host's end of a veth: it calls it so. What an earlier plugin made and this one took as
/// it was has no spoof check.
fn is_of_the_reference(name: &str) -> bool {
    let digits = name.strip_prefix("veth").unwrap_or_default();
    digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Removes the attachment's rules, whatever the configuration says by now. They are found by the attachment alone.
pub fn remove(sweep: &Sweep, owner: &Owner) -> Result<()> {
    let mut failures = Failures::new();
    for kind in KINDS {
        failures.note(sweep.remove(owner, kind));
    }
    failures.into_result()
}

/// Removes the rules of all attachments of the network that are not valid any more.
pub fn remove_stale(sweep: &Sweep, call: &Gc<AsWritten>) -> Result<()> {
    let mut failures = Failures::new();
    for kind in KINDS {
        failures.note(sweep.retain(&call.net.name, kind, &call.valid));
    }
    failures.into_result()
}

/// The firewall that the configuration needs is there.
pub fn available(call: &Status<Conf>) -> Result<()> {
    if call.conf.spoof_check {
        Firewall::available(Some(Backend::Nftables), Kind::SpoofCheck)?;
    }
    call.conf.masquerade.map_or(Ok(()), |how| Firewall::available(how.backend, Kind::Masquerade))
}
