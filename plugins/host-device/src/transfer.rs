//! Moving a device into the container and back.
//!
//! In the container, the device's alias is its name on the host, as in the reference, so each suite moves back devices of the other. When
//! the container's namespace is destroyed, the kernel moves a physical device to the host, under its name in the container, or as `devN` if
//! that exists. The alias stays.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use cni::backup::Backup;
use cni::{Attachment, Code, Error, Result, Undo};
use iface::{Namespace, creation};
use netlink::{Link, LinkChange};
use system::lock::Lock;

use crate::record::{Record, lower_mac};

/// Timeout for the lock. Work under it takes milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Prevents other calls from finding, moving and restoring devices. `None` if the host has no place for a lock.
///
/// # Errors
/// Code 11 if another call holds the lock until the timeout.
pub fn lock() -> Result<Option<Lock>> {
    Ok(Lock::acquire("host-device", LOCK_TIMEOUT)?)
}

impl Record {
    /// Moves the device into the container, down, in one request, so that udev on the host sees no other name. `kept` is the record's file,
    /// which is deleted only after the device is back.
    ///
    /// # Errors
    /// If the kernel refuses; the message explains why.
    pub fn move_in(
        self,
        kept: Backup,
        host: &Namespace,
        sandbox: &Namespace,
        (device, at): (&Link, &Attachment),
        undo: &mut Undo,
    ) -> Result<Link> {
        let (to, from) = (host.clone(), sandbox.clone());
        undo.push(move || {
            let _lock = lock()?;
            if self.move_back(&to, Some(&from))? { kept.remove() } else { Ok(()) }
        });
        let change = LinkChange {
            netns: Some(sandbox.as_fd()),
            name: Some(&at.ifname),
            alias: Some(&device.name),
            ..LinkChange::default()
        };
        host.nl.change_link(device, &change).map_err(|cause| match cause {
            cause if cause.is_exists() => taken(sandbox, device, at, cause),
            cause => explained(cause),
        })?;
        sandbox.link(&at.ifname)
    }

    /// Moves the device back, from the container if the device is in it. Returns whether the move is complete, so that the record may be deleted.
    /// Succeeds if there is no device.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn move_back(&self, host: &Namespace, sandbox: Option<&Namespace>) -> Result<bool> {
        self.move_from_container(host, sandbox)?;
        if let Some(link) = self.find_on_host(host)? {
            return self.restore(host, &link);
        }
        // The kernel may still be moving a physical device from a destroyed namespace. GC or the next ADD finds it.
        let never_comes = sandbox.is_some() || self.is_virtual();
        Ok(never_comes || self.is_on_host(host)?)
    }

    /// Whether the host has the device under its name.
    fn is_on_host(&self, host: &Namespace) -> Result<bool> {
        Ok(host.nl.link(&self.device)?.is_some_and(|link| self.matches_link(&link)))
    }

    /// Moves the device out of the container, if it is in it. Its alias stays, so that the caller can restore its state.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn move_from_container(&self, host: &Namespace, sandbox: Option<&Namespace>) -> Result<()> {
        let Some(sandbox) = sandbox else { return Ok(()) };
        let Some(link) = self.find_in_container(host, sandbox)? else { return Ok(()) };
        let [_, has_mac, has_alias] = self.marks(&link);
        // If the kernel has refused the move, or ADD was killed before it, a device with one mark is the container's own.
        let is_certain = self.peer.is_some() || has_mac && has_alias;
        if !is_certain && self.is_on_host(host)? {
            return Ok(());
        }
        self.move_out(sandbox, &link, host)
    }

    /// Finds the device in the container, which may have renamed it, and may have given its MAC and alias to an interface of its own.
    fn find_in_container(&self, host: &Namespace, sandbox: &Namespace) -> Result<Option<Link>> {
        // The container may have given the device's alias to its loopback interface, which the kernel does not move.
        let is_alike = |link: &Link| !link.loopback && self.is_alike(link);
        let mut links = sandbox.nl.links()?.into_iter().filter(is_alike);
        if let Some(peer) = self.peer {
            let leads_there = self.veth_to(peer, host, sandbox)?;
            return Ok(links.find(leads_there));
        }
        let marked = links.filter(|link| self.is_marked(link));
        Ok(marked.max_by_key(|link| self.marks(link)))
    }

    /// Which veth of the container is the device. One that the container has created leads to no interface of the host. But the device's
    /// other end may have left the host, for example to a router's namespace: then MAC and alias identify it, and both ends of a veth that
    /// the container has created are usually in the container.
    fn veth_to(&self, peer: u32, host: &Namespace, sandbox: &Namespace) -> Result<impl Fn(&Link) -> bool> {
        let host_id = sandbox.nl.netns_id(host.as_fd())?;
        let is_on_host = host.nl.link_by_index(peer)?.is_some_and(|link| link.is("veth"));
        Ok(move |link: &Link| match is_on_host {
            true => link.peer == Some(peer) && link.peer_netns_id.is_some() && link.peer_netns_id == host_id,
            false => link.peer_netns_id.is_some() && matches!(self.marks(link), [_, true, true]),
        })
    }

    /// Moves the device out of the container. It gets its name back before, so that udev on the host sees no other name.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn move_out(&self, sandbox: &Namespace, link: &Link, host: &Namespace) -> Result<()> {
        let name = Some(self.device.as_str());
        let change = |change: LinkChange<'_>| sandbox.nl.change_link(link, &change);
        change(LinkChange { up: Some(false), alias: name, ..LinkChange::default() })?;
        let name = match change(LinkChange { name, ..LinkChange::default() }) {
            // The container has another interface of that name: rename during the move.
            Err(e) if e.is_exists() => name,
            other => other.map(|()| None)?,
        };
        let leave =
            |name| match change(LinkChange { netns: Some(host.as_fd()), name, ..LinkChange::default() }) {
                // The move succeeded, only the renaming failed.
                Err(e) if e.is_missing() => Ok(true),
                Err(e) if e.is_exists() => Ok(false),
                other => other.map(|()| true),
            };
        if leave(name)? {
            return Ok(());
        }
        remove_taken_names(sandbox, link, host)?;
        if leave(name)? || leave(Some(&free_name(host)?))? {
            return Ok(());
        }
        Err(Error::new(
            Code::TryAgainLater,
            format!(
                "move {} back to the host: an interface of the host already has each of its possible names",
                self.device
            ),
        ))
    }

    /// The device on the host, if it is not fully restored: its alias is still its name, unless the container has changed it.
    fn find_on_host(&self, host: &Namespace) -> Result<Option<Link>> {
        let named = host.nl.link(&self.device)?.filter(|link| link.alias == self.device);
        if named.is_some() {
            return Ok(named);
        }
        let mut links = host.nl.links()?;
        if let Some(at) = links.iter().position(|link| self.has_returned_as(link)) {
            return Ok(Some(links.swap_remove(at)));
        }
        // An administrator may have given the device's name to another interface, as its alias.
        let is_it = |link: &Link| {
            let [_, has_mac, has_alias] = self.marks(link);
            has_alias && !link.up && link.bus_address == self.bus_address && (has_mac || self.is_alike(link))
        };
        Ok(links.into_iter().find(is_it))
    }

    /// Restores MAC, MTU, name, state and alias of a device on the host. Returns false if its name exists.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn restore(&self, host: &Namespace, link: &Link) -> Result<bool> {
        let name = &self.device;
        let change = |change: LinkChange<'_>| host.nl.change_link(link, &change);
        if link.name != *name {
            // The container may have changed the alias.
            change(LinkChange { up: Some(false), alias: Some(name), ..LinkChange::default() })?;
        }
        // The container may have changed them, or tuning, whose DEL came after the namespace was destroyed. Some devices must be down for that.
        let (mac, mtu) = self.hardware(link, lower_mac(host, link)?);
        if mac.is_some() {
            self.warn_if_refused(change(LinkChange { mac, ..LinkChange::default() }), "keeps another MAC")?;
        }
        if mtu.is_some() {
            self.warn_if_refused(change(LinkChange { mtu, ..LinkChange::default() }), "keeps another MTU")?;
        }
        if link.name != *name {
            match change(LinkChange { name: Some(name), ..LinkChange::default() }) {
                Err(e) if e.is_exists() => {
                    cni::warn(&format!(
                        "the host already has an interface {name}: the device that had this name is back on the host as {}, with the alias {name}; a later DEL renames it when the name is free",
                        link.name
                    ));
                    return Ok(false);
                }
                other => other?,
            }
        }
        // A bond accepts only ports that are down.
        if let Some(master) = &self.master {
            let index = host.nl.link(master)?.map(|master| master.index);
            let joined = change(LinkChange { master: index, ..LinkChange::default() });
            self.warn_if_refused(joined, &format!("is no port of {master}"))?;
        }
        if self.up {
            self.warn_if_refused(
                change(LinkChange { up: Some(true), ..LinkChange::default() }),
                "stays down",
            )?;
        }
        // Also for a device that is down.
        self.warn_if_refused(self.had.restore(host, link), "not all of its addresses and routes are")?;
        // Last: until then, a later DEL recognizes the device by its alias.
        change(LinkChange { alias: Some(&self.alias), ..LinkChange::default() })?;
        Ok(true)
    }

    /// Turns a refusal of the kernel into a warning. A later DEL would get the same refusal: a VLAN's master is down, a card has no
    /// firmware.
    fn warn_if_refused(&self, outcome: netlink::Result<()>, but: &str) -> Result<()> {
        match outcome {
            Err(e) if !e.is_unanswered() => {
                cni::warn(&format!("{} is back in the host, but {but}: {e}", self.device));
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Whether the device is in the namespace to which ADD moved it, and not in `sandbox`.
    ///
    /// # Errors
    /// If the namespace cannot be entered, or the kernel refuses to list links.
    pub fn is_elsewhere(&self, host: &Namespace, sandbox: Option<&Namespace>) -> Result<bool> {
        let has_device = |namespace: &Namespace| Ok(self.find_in_container(host, namespace)?.is_some());
        if sandbox.map_or(Ok(false), has_device)? {
            return Ok(false);
        }
        open_container(host, Some(&self.netns))?.as_ref().map_or(Ok(false), has_device)
    }
}

/// Opens the container's namespace. `None` if it does not exist, or if it is the host's own, because a process id was reused.
///
/// # Errors
/// If it exists but cannot be entered.
pub fn open_container(host: &Namespace, netns: Option<&PathBuf>) -> Result<Option<Namespace>> {
    let netns = netns.filter(|path| !host.is_at(path));
    Namespace::open_if_present(netns)
}

/// Removes alternative names that exist on the host: since Linux 6.6 they prevent the move.
fn remove_taken_names(sandbox: &Namespace, link: &Link, host: &Namespace) -> Result<()> {
    for name in &link.alt_names {
        if host.nl.link(name)?.is_some() {
            cni::warn(&format!(
                "the host already has the name {name}: device {} loses this alternative name",
                link.alias
            ));
            sandbox.nl.remove_alt_name(link, name)?;
        }
    }
    Ok(())
}

/// A free name on the host, for a device whose own name exists.
fn free_name(host: &Namespace) -> Result<String> {
    let links = host.nl.links()?;
    let mut names = (0..).map(|number: u32| format!("dev{number}"));
    let free =
        names.find(|name| links.iter().all(|link| link.name != *name && !link.alt_names.contains(name)));
    free.ok_or_else(|| Error::new(Code::Internal, "the host has no free name devN"))
}

/// Explains EEXIST: CNI_IFNAME, or an alternative name of the device, was created since ADD checked.
fn taken(sandbox: &Namespace, device: &Link, at: &Attachment, cause: netlink::Error) -> Error {
    let in_use = |name: &&String| sandbox.nl.link(name).is_ok_and(|link| link.is_some());
    match device.alt_names.iter().find(in_use) {
        Some(name) => Error::from(cause).detail(format!(
            "an interface in {sandbox} is called {name}, which is an alternative name of {0}: ip link property del dev {0} altname {name}",
            device.name
        )),
        None => creation::taken_name(sandbox, at, cause.into()),
    }
}

fn explained(cause: netlink::Error) -> Error {
    match cause.is_invalid() {
        true => Error::from(cause).with_code(Code::InvalidConfig).detail(
            "the kernel cannot move a bridge, bond or loopback to another namespace, and moves a wireless interface only together with its phy",
        ),
        false => cause.into(),
    }
}
