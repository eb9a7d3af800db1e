//! host-local: allocates addresses from ranges in the configuration, with leases on the host's disk.

mod allocator;
mod conf;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keys;
mod range;
mod resolv;
mod reuse;
mod store;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

use cni::schema::Key;
use cni::{
    Add, AddResult, Attachment, Check, Code, Del, Error, Failures, Gc, IpConfig, NetworkName, Plugin,
    Resource, Result, ResultExt, Role, Status, Undo,
};
use ipnetwork::IpNetwork;

pub use conf::{Conf, data_dir};
pub use range::{Range, RangeSet};
pub use store::NEARLY_FULL;
use store::{Lease, Owner, Store};

/// The plugin.
#[derive(Debug)]
pub struct HostLocal;

impl Plugin for HostLocal {
    const NAME: &'static str = "host-local";
    const ABOUT: &'static str = "\
        Allocates addresses from ranges, and stores the leases in files on this host.";
    const ROLE: Role = Role::Ipam;
    const KEYS: &'static [Key] = keys::KEYS;
    const ARGS: &'static [Key] = keys::ARGS;
    const CAPABILITIES: &'static [&'static str] = &["ips", "ipRanges"];
    const READS_ARGS: bool = true;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let conf = &call.conf;
        conf.check_fits(call.net.version)?;
        let dns = conf.resolv_conf.as_deref().map(resolv::read).transpose()?.unwrap_or_default();
        let args_ip = call.args.ip()?;
        for Range { subnet, gateway, .. } in conf.without_gateway() {
            cni::warn(&format!("gateway {gateway} is not in subnet {subnet}, so containers cannot reach it"));
        }
        let requested =
            allocator::requests(&conf.sets, &[args_ip.as_slice(), &conf.args_ips, &conf.runtime_ips])?;

        let mut store = Store::create(&conf.data_dir, &call.net.name)?;
        if conf.reset_on_reboot == Some(true) {
            store.reset_after_reboot()?
        } else {
            store.remove_boot_mark()?
        }
        let mut chosen = choose(&mut store, call, &requested);
        if chosen.is_err() && conf.reuse_stale_leases {
            drop(store);
            reuse(call).run();
            store = Store::create(&conf.data_dir, &call.net.name)?;
            // Also if the search has released nothing: the search of a concurrent ADD may have released the leases.
            chosen = choose(&mut store, call, &requested);
        }
        let ips = chosen?;
        store.reserve(&call.attachment, &ips)?;
        for (network, Lease { ip, owner }) in store::leases_elsewhere(&conf.data_dir, &call.net.name, &ips) {
            cni::warn(&format!(
                "address {ip} is also leased in network {network}, to {owner}: if both networks are on one link, give them different ranges"
            ));
        }
        if conf.reuse_stale_leases && store.is_nearly_full(&conf.sets) && store.claim_background_search() {
            reuse(call).start();
        }

        let (data_dir, network) = (conf.data_dir.clone(), call.net.name.clone());
        let (at, reserved) = (call.attachment.clone(), ips.clone());
        undo.push(move || release(&data_dir, &network, &at, |ip| reserved.contains(&ip)));
        let ips = conf.sets.iter().zip(ips).filter_map(|(set, ip)| report(set, ip)).collect();
        Ok(AddResult { ips, routes: conf.routes.clone(), dns, ..AddResult::default() })
    }

    fn del(call: &Del) -> Result<()> {
        release(&conf::likely_data_dir(&call.conf), &call.net.name, &call.attachment, |_| true)
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let store = Store::open(&call.conf.data_dir, &call.net.name)?;
        let leases = match store {
            Some(mut store) => store.every_lease_of(&call.attachment)?.0,
            None => Vec::new(),
        };
        let leased = |ip| leases.iter().any(|lease| lease.ip == ip);
        let reported = |ip| call.prev_result.addresses().any(|address| address.ip() == ip);
        let ours = |ip| call.conf.sets.iter().any(|set| set.range_of(ip).is_some());
        // Another plugin may have assigned an excluded address, or the gateway's.
        let allocated = |ip| call.conf.sets.iter().any(|set| set.may_lease(ip));
        let Attachment { container, ifname } = &call.attachment;
        let what = if let Some(address) =
            call.prev_result.addresses().find(|a| allocated(a.ip()) && !leased(a.ip()))
        {
            format!(
                "address {address} of prevResult is not leased to container {container}, interface {ifname}"
            )
        } else if leases.is_empty() {
            format!("container {container}, interface {ifname} has no lease")
        } else if let Some(Lease { ip, owner }) = leases.iter().find(|l| ours(l.ip) && !reported(l.ip)) {
            format!("address {ip} is leased to {owner}, but prevResult does not have it")
        } else {
            return Ok(());
        };
        let dir = call.conf.data_dir.join(call.net.name.as_str());
        Err(Error::new(Code::Internal, what).detail(format!("the leases are in {}", dir.display())))
    }

    fn gc(call: &Gc) -> Result<()> {
        let Some(mut store) = Store::open(&conf::likely_data_dir(&call.conf), &call.net.name)? else {
            return Ok(());
        };
        let lease = |ip: IpAddr, owner: &Owner| {
            let ifname = owner.ifname.as_deref().unwrap_or_default();
            Resource::new("lease", ip.to_string()).of(&owner.container, ifname).address(ip)
        };
        if call.scope.is_dry() {
            return store.each(|ip, owner| call.scope.list(lease(ip, owner)));
        }
        // Only very old releases of the reference wrote leases without an interface, so an administrator has reserved the address. `cnitool gc`
        // names the containers that are dead.
        let is_reserved = |owner: &Owner| owner.ifname.is_none() && call.scope.stale().is_none();
        let failures =
            store.retain(|ip, owner| is_reserved(owner) || !call.scope.should_delete(lease(ip, owner)))?;
        failures.into_result()
    }

    fn serve_itself(arguments: &[OsString]) -> Option<ExitCode> {
        reuse::serve(arguments)
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        let Conf { data_dir, sets, status_fails_when_full, resolv_conf, .. } = &call.conf;
        if let Some(path) = resolv_conf {
            resolv::read(path).code(Code::NotAvailable)?;
        }
        for fill in store::status(data_dir, &call.net.name, sets)? {
            if fill.is_full() && *status_fails_when_full {
                return Err(allocator::exhausted(fill.set).with_code(Code::NotAvailable));
            }
            let (leased, of) = (fill.leased, fill.set.capacity());
            cni::warn(&format!("{leased} of the {of} addresses of range set {} are leased", fill.set));
        }
        Ok(())
    }
}

/// A request to release stale leases of the network.
fn reuse(call: &Add<Conf>) -> reuse::Request {
    let conf = &call.conf;
    reuse::Request {
        data_dir: conf.data_dir.clone(),
        network: call.net.name.to_string(),
        age: conf.stale_lease_age,
        reboot: conf.reset_on_reboot != Some(false),
        next: Some((call.attachment.container.to_string(), call.attachment.ifname.to_string())),
    }
}

/// Chooses an address of each range set.
fn choose(store: &mut Store, call: &Add<Conf>, requested: &[Option<IpAddr>]) -> Result<Vec<IpAddr>> {
    refuse_second_lease(store, call)?;
    allocator::choose(&call.conf.sets, requested, store)
}

/// Fails if the attachment already has a lease of a range set: a repeated ADD must not allocate a second address
/// (containernetworking/plugins#328).
fn refuse_second_lease(store: &mut Store, call: &Add<Conf>) -> Result<()> {
    let (leases, _) = store.leases_of(&call.attachment)?;
    let held = leases.iter().find_map(|lease| {
        let set = call.conf.sets.iter().position(|set| set.range_of(lease.ip).is_some())?;
        Some((set, lease))
    });
    let Some((set, Lease { ip, owner })) = held else { return Ok(()) };
    Err(allocator::duplicate(set, *ip, &owner.container).detail(format!(
        "{owner} has leased it in network {}; DEL of the attachment releases it",
        call.net.name
    )))
}

/// The address with prefix length and gateway, for the result.
fn report(set: &RangeSet, ip: IpAddr) -> Option<IpConfig> {
    let range = set.range_of(ip)?;
    let address = IpNetwork::new(ip, range.subnet.prefix()).ok()?;
    Some(IpConfig::new(address, Some(range.gateway)))
}

/// Releases the selected leases of an attachment. Succeeds if there are none.
fn release(
    data_dir: &Path,
    network: &NetworkName,
    at: &Attachment,
    is_selected: impl Fn(IpAddr) -> bool,
) -> Result<()> {
    let Some(mut store) = Store::open(data_dir, network)? else { return Ok(()) };
    let (leases, unread) = store.every_lease_of(at)?;
    let mut failures = Failures::new();
    match unread.into_result() {
        // The leases of the attachment are found. An unreadable file is most likely another attachment's.
        Err(error) if leases.iter().any(|lease| lease.owner.ifname.is_some()) => {
            cni::warn(&error.to_string())
        }
        outcome => drop(failures.note(outcome)),
    }
    for lease in leases.iter().filter(|lease| is_selected(lease.ip)) {
        failures.note(store.release(lease));
    }
    failures.into_result()
}
