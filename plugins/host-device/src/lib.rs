//! host-device: moves a device of the host into the container and back, with its name and state.

mod conf;
mod device;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keys;
mod network;
mod record;
mod transfer;

use cni::backup::Backup;
use cni::schema::Key;
use cni::{
    Add, AddResult, Check, Code, Command, Del, Error, Failures, Gc, Interface, Plugin, Result, Role, Status,
    Undo,
};
use conf::{Conf, lenient_selector};
use iface::attach::{self, InterfaceSetup};
use iface::{Namespace, creation, remove, verify};
use netlink::Link;
use network::Network;
use record::Record;
use transfer::{lock, open_container};

/// The plugin.
#[derive(Debug)]
pub struct HostDevice;

impl Plugin for HostDevice {
    const NAME: &'static str = "host-device";
    const ABOUT: &'static str = "\
        Moves a device of the host into the container. The capability deviceID or one of the first \
        four keys selects the device. deviceID has precedence, then the keys in this order.";
    const ROLE: Role = Role::Interface;
    const KEYS: &'static [Key] = keys::KEYS;
    const CAPABILITIES: &'static [&'static str] = &["deviceID"];
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let (host, sandbox) = (Namespace::host()?, Namespace::open(&call.netns)?);
        creation::refuse_taken_name(&sandbox, &call.attachment)?;
        let selector = call.conf.selector()?;
        if let Some(pci) = selector.userspace_device()? {
            call.conf.refuse_network()?;
            return reserve_addresses(call, pci, undo);
        }
        let (link, network) = find_and_take(call, &host, &sandbox, undo)?;

        let setup =
            InterfaceSetup { net: &call.net, conf: &call.conf.interface, sandbox: &sandbox, link: &link };
        let mut leases = setup.lease(undo)?;
        leases.ips.extend(network.ips());
        setup.configure(&leases)?;
        leases.routes.extend(network.add_routes(&sandbox, &link)?);
        let made = attach::interface(&call.net, &sandbox, &link)?;
        Ok(attach::report(call, [Interface { pci_id: selector.pci(), ..made }], leases))
    }

    fn del(call: &Del) -> Result<()> {
        remove::with_leases(&call.net, Command::Del, |failures| return_device(call, failures))
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        if call.conf.selector()?.userspace_device()?.is_none() {
            let sandbox = Namespace::open(&call.netns)?;
            let link = verify::interface(&sandbox, verify::listed(&call.prev_result, &call.attachment)?)?;
            verify::up(&link)?;
            let record = record::load(&record::file(&call.net.name, &call.attachment))?;
            verify::addresses_and_routes_of(&sandbox, &link, call, record.is_some())?;
        }
        call.net.ask_ipam(Command::Check)
    }

    fn gc(call: &Gc) -> Result<()> {
        let host = Namespace::host()?;
        remove::with_leases(&call.net, Command::Gc, |failures| {
            let Some(_lock) = failures.note(lock()) else { return };
            failures.note(record::collect(call, |record| {
                let sandbox = open_container(&host, Some(&record.netns))?;
                record.move_back(&host, sandbox.as_ref())
            }));
            if let Some(selector) = lenient_selector(&call.conf).filter(|_| !call.scope.is_dry()) {
                failures.note(selector.move_back(&host, None, None, None, false));
            }
        })
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        Namespace::host()?.require_privileges()?;
        call.net.ask_ipam(Command::Status)
    }
}

/// ADD for a device with a userspace driver: only addresses are leased.
fn reserve_addresses(call: &Add<Conf>, pci: String, undo: &mut Undo) -> Result<AddResult> {
    let leases = call.net.ipam.as_ref().map_or_else(|| Ok(AddResult::default()), |ipam| ipam.add(undo))?;
    let interface = Interface {
        name: call.attachment.ifname.to_string(),
        sandbox: Some(call.netns.display().to_string()),
        pci_id: Some(pci),
        ..Interface::default()
    };
    Ok(attach::report(call, [interface], leases))
}

/// Finds the device, and moves it into the container. Holds the lock meanwhile: DEL may be restoring its state, which the new record must
/// contain, and another ADD may be moving it.
fn find_and_take(
    call: &Add<Conf>,
    host: &Namespace,
    sandbox: &Namespace,
    undo: &mut Undo,
) -> Result<(Link, Network)> {
    let _lock = lock()?;
    let records = record::all()?;
    let device = call.conf.selector()?.find(host, &call.attachment.ifname, &records)?;
    let network = call.conf.network(host, &device)?;
    let link = take(call, host, sandbox, (&device, &network, &records), undo)?;
    Ok((link, network))
}

/// Moves the device into the container, after writing its record. `records` are those of all attachments.
fn take(
    call: &Add<Conf>,
    host: &Namespace,
    sandbox: &Namespace,
    (device, had, records): (&Link, &Network, &[Record]),
    undo: &mut Undo,
) -> Result<Link> {
    let file = record::file(&call.net.name, &call.attachment);
    refuse_second_device(host, &file, call)?;
    if device.master.is_some() {
        cni::warn(&format!(
            "{} is a port of a bridge or a bond: ADD removes it from there, and DEL restores it",
            device.name
        ));
    }
    let mut record = Record::new(host, device, records, &call.net.name, &call.netns)?;
    record.had = had.clone();
    record.save(&file)?;
    let link = record.move_in(file.clone(), host, sandbox, (device, &call.attachment), undo)?;
    record::remove_stale(device, &file)?;
    Ok(link)
}

/// Refuses an ADD whose attachment has a device in another namespace: the new record would replace the record of that device.
fn refuse_second_device(host: &Namespace, file: &Backup, call: &Add<Conf>) -> Result<()> {
    let Some(earlier) = record::load(file)? else { return Ok(()) };
    if !earlier.is_elsewhere(host, None)? {
        return Ok(());
    }
    let (at, device, netns) = (&call.attachment, &earlier.device, earlier.netns.display());
    Err(Error::new(
        Code::InvalidEnvironment,
        format!(
            "container {} already has device {device} as {}, in namespace {netns}",
            at.container, at.ifname
        ),
    )
    .detail("an earlier ADD was not followed by its DEL: run DEL with this CNI_NETNS, or choose another CNI_IFNAME"))
}

/// Moves the device back to the host from its current namespace.
fn return_device(call: &Del, failures: &mut Failures) {
    let Some(_lock) = failures.note(lock()) else { return };
    let file = record::file(&call.net.name, &call.attachment);
    let loaded = failures.note(record::load(&file));
    let kept = loaded.clone().flatten();
    if kept.as_ref().is_some_and(|record| !record.is_of(&call.net.name)) {
        return;
    }
    let Some(host) = failures.note(Namespace::host()) else { return };
    let netns = call.netns.as_ref().or(kept.as_ref().map(|record| &record.netns));
    let opened = failures.note(open_container(&host, netns));
    let sandbox = opened.as_ref().and_then(Option::as_ref);
    // This DEL follows an ADD for another namespace, which was refused.
    if let Some(record) = &kept
        && opened.is_some()
        && failures.note(record.is_elsewhere(&host, sandbox)) != Some(false)
    {
        return;
    }
    let is_returned = match (kept, lenient_selector(&call.conf)) {
        (Some(record), _) => failures.note(record.move_back(&host, sandbox)) == Some(true),
        (None, Some(selector)) => {
            let ifname = &call.attachment.ifname;
            let prev = call.prev_result.as_ref();
            let listed = prev.and_then(|prev| prev.container_interface(ifname));
            // A later DEL may be able to read the record.
            let may_have_record = loaded.is_none() || file.path().symlink_metadata().is_ok();
            failures.note(selector.move_back(&host, sandbox, Some(ifname), listed, may_have_record)).is_some()
        }
        (None, None) => true,
    };
    // A later DEL may be able to read the record, or to enter the namespace.
    if is_returned && loaded.is_some() && opened.is_some() {
        failures.note(file.remove());
    }
}
