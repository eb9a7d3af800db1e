//! A device's way into the container and home.
//!
//! In the container its alias is its name in the host, exactly as the reference has it: each brings home what the other moved. When
//! the container's namespace dies, the kernel moves a physical device to the host by itself, under the container's name for it, or as
//! `devN` if that is taken; the alias stays.

use std::os::fd::AsFd;
use std::path::PathBuf;

use cni::backup::Backup;
use cni::{Code, Error, IfName, Result, Undo};
use iface::Namespace;
use netlink::{Link, LinkChange};

use crate::conf::Selector;
use crate::record::{self, Record};

/// What is known of a device that an attachment has, or had.
#[derive(Clone, Debug)]
pub struct WayHome {
    /// What ADD kept. None: the reference moved it, or nobody did.
    pub record: Option<Record>,
    /// What the configuration says.
    pub selector: Option<Selector>,
    /// Its name in the container. None: any, for GC.
    pub ifname: Option<IfName>,
}

impl WayHome {
    /// Moves the device into the container, down, in one request: udev in the host does not see it under another name. `kept` is the
    /// record's file, which goes only after the device is home.
    ///
    /// # Errors
    /// What the kernel refuses, explained.
    pub fn move_in(
        self,
        kept: Backup,
        host: &Namespace,
        sandbox: &Namespace,
        device: &Link,
        undo: &mut Undo,
    ) -> Result<Link> {
        let ifname = self.ifname.clone().map(|name| name.to_string()).unwrap_or_default();
        let (home, away, before) = (host.clone(), sandbox.clone(), device.clone());
        undo.push(move || {
            let is_done = self.complete(&home, Some(&away))?;
            if before.master.is_some()
                && let Some(link) = home.nl.link(&before.name)?
            {
                home.nl.change_link(&link, &LinkChange { master: before.master, ..LinkChange::default() })?;
            }
            if is_done { kept.remove() } else { Ok(()) }
        });
        let change = LinkChange {
            netns: Some(sandbox.as_fd()),
            name: Some(&ifname),
            alias: Some(&device.name),
            ..LinkChange::default()
        };
        host.nl.change_link(device, &change).map_err(explained)?;
        sandbox.link(&ifname)
    }

    /// Brings the device home: out of the container, if it is there, and back to its name.
    ///
    /// # Errors
    /// What the kernel refuses. That there is nothing to bring home is fine: none then, else how it is called now.
    pub fn bring(&self, host: &Namespace, sandbox: Option<&Namespace>) -> Result<Option<Link>> {
        self.fetch(host, sandbox)?;
        self.returned(host)?.map(|link| self.settle(host, link)).transpose()
    }

    /// Brings the device home, and tells whether nothing is left to do, so that its record may go.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn complete(&self, host: &Namespace, sandbox: Option<&Namespace>) -> Result<bool> {
        let back = self.bring(host, sandbox)?;
        let Some(record) = &self.record else { return Ok(true) };
        if let Some(link) = back {
            return Ok(link.name == record.device);
        }
        // A physical one may still be on its way from a namespace that has died: GC, or the next ADD, meets it.
        let never_comes = sandbox.is_some() || record.is_virtual();
        Ok(never_comes || host.nl.link(&record.device)?.is_some_and(|link| record.fits(&link)))
    }

    /// Brings the device out of the container, if it is there. Its alias stays: whoever knows what it was like completes it.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn fetch(&self, host: &Namespace, sandbox: Option<&Namespace>) -> Result<()> {
        let Some(sandbox) = sandbox else { return Ok(()) };
        self.find_in(sandbox)?.map_or(Ok(()), |link| self.leave(sandbox, &link, host))
    }

    /// Its name in the host, as far as it is known without a look at it.
    fn name(&self) -> Option<&str> {
        match (&self.record, &self.selector) {
            (Some(record), _) => Some(&record.device),
            (None, Some(Selector::Name(name))) => Some(name),
            _ => None,
        }
    }

    /// The device in the container: there it may have been renamed.
    fn find_in(&self, sandbox: &Namespace) -> Result<Option<Link>> {
        let aliased = |link: &Link| self.name().is_some_and(|name| name == link.alias);
        let recorded = |link: &Link| self.record.as_ref().is_some_and(|record| record.fits(link));
        let selected = |link: &Link| self.selector.as_ref().is_some_and(|selector| selector.fits(link));
        let is_it = |link: &Link| aliased(link) || recorded(link) || selected(link);
        if let Some(ifname) = &self.ifname
            && let Some(link) = sandbox.nl.link(ifname)?.filter(is_it)
        {
            return Ok(Some(link));
        }
        // Under another name it may be another attachment's, if there is no record.
        if self.record.is_none() {
            return Ok(None);
        }
        let links = sandbox.nl.links()?;
        let by = |is_it: &dyn Fn(&Link) -> bool| links.iter().find(|link| is_it(link)).cloned();
        Ok(by(&aliased).or_else(|| by(&recorded)))
    }

    /// Moves it out of the container. There it gets its name back, so that udev in the host sees no other one.
    fn leave(&self, sandbox: &Namespace, link: &Link, host: &Namespace) -> Result<()> {
        let noted = self.record.as_ref().map(|record| record.device.as_str());
        let alias = Some(link.alias.as_str()).filter(|alias| IfName::parse(alias).is_ok());
        let name = noted.or(alias).or(self.name()).unwrap_or(&link.name);
        let change = |change: LinkChange<'_>| sandbox.nl.change_link(link, &change);
        change(LinkChange { up: Some(false), alias: Some(name), ..LinkChange::default() })?;
        let name = match change(LinkChange { name: Some(name), ..LinkChange::default() }) {
            // Something else has it in the container: it is renamed on arrival.
            Err(e) if e.is_exists() => Some(name),
            other => other.map(|()| None)?,
        };
        let leave = |name| change(LinkChange { netns: Some(host.as_fd()), name, ..LinkChange::default() });
        match leave(name) {
            Err(e) if e.is_exists() => match leave(Some(&free_name(host)?)) {
                // It had arrived, and was not renamed.
                Err(e) if e.is_missing() => Ok(()),
                other => Ok(other?),
            },
            other => Ok(other?),
        }
    }

    /// The device in the host, if it is back and something of its way is still to be done.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn returned(&self, host: &Namespace) -> Result<Option<Link>> {
        if let Some(name) = self.name()
            && let Some(link) = host.nl.link(name)?.filter(|link| self.is_back(link))
        {
            return Ok(Some(link));
        }
        Ok(host.nl.links()?.into_iter().find(|link| self.is_back(link)))
    }

    /// Whether an interface of the host is the device, and its alias says that it was away. People's own aliases do not.
    pub fn is_back(&self, link: &Link) -> bool {
        if let Some(record) = self.record.as_ref().filter(|_| link.alias.is_empty()) {
            // While the record could not be read it was brought home without its state.
            return link.name == record.device && record.fits(link);
        }
        if IfName::parse(&link.alias).is_err() {
            return false;
        }
        let has_its_name = link.name == link.alias;
        match (self.name(), &self.record, &self.selector) {
            (Some(name), Some(_), _) => link.alias == name,
            (Some(name), None, _) => {
                // GC does not know CNI_IFNAME.
                let is_any = self.ifname.is_none() && !link.up;
                link.alias == name && (has_its_name || is_any || self.is_makeshift(&link.name))
            }
            (None, _, Some(selector)) => {
                selector.fits(link) && (has_its_name || (!link.up && self.is_makeshift(&link.name)))
            }
            (None, _, None) => false,
        }
    }

    /// Whether a name is one that a device may have after its container's end.
    fn is_makeshift(&self, name: &str) -> bool {
        let number = name.strip_prefix("dev");
        let numbered = number.is_some_and(|n| !n.is_empty() && n.bytes().all(|digit| digit.is_ascii_digit()));
        numbered || self.ifname.as_ref().is_some_and(|ifname| **ifname == *name)
    }

    /// As [`WayHome::settle`], by what an earlier attachment has kept of the device.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn settle_as_kept(&self, host: &Namespace, link: Link) -> Result<Link> {
        match record::of_returned(&link) {
            None if link.name == link.alias => Ok(link),
            record => Self { record, ..self.clone() }.settle(host, link),
        }
    }

    /// Gives a device that is back its name, its state and its alias. A name that is taken by now keeps nobody from going.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn settle(&self, host: &Namespace, link: Link) -> Result<Link> {
        let name = if link.alias.is_empty() { link.name.clone() } else { link.alias.clone() };
        let change = |change: LinkChange<'_>| host.nl.change_link(&link, &change);
        if link.name != name {
            change(LinkChange { up: Some(false), ..LinkChange::default() })?;
            match change(LinkChange { name: Some(&name), ..LinkChange::default() }) {
                Err(e) if e.is_exists() => {
                    cni::warn(&format!(
                        "the name {name} is taken in the host: the device that had it is back as {}, with the alias {name}",
                        link.name
                    ));
                    return Ok(link);
                }
                other => other?,
            }
        }
        let before = self.record.as_ref();
        if before.is_some_and(|record| record.up) {
            match change(LinkChange { up: Some(true), ..LinkChange::default() }) {
                // The kernel would say it to each DEL to come: a VLAN's master is down, or a card has no firmware.
                Err(e) if !e.is_unanswered() => {
                    cni::warn(&format!("{name} is back in the host, but stays down: {e}"));
                }
                other => other?,
            }
        }
        // The last: by its alias another DEL sees what is still to be done.
        let alias = before.map_or("", |record| &record.alias);
        change(LinkChange { alias: Some(alias), ..LinkChange::default() })?;
        // As it is to be: the next attachment's record is made of this.
        let up = link.up || before.is_some_and(|record| record.up);
        Ok(Link { name, alias: alias.to_owned(), up, ..link })
    }
}

/// The container's namespace at a path: none if it is gone, or if it is the host's own, as a process's number may come again.
///
/// # Errors
/// If it is there but cannot be entered.
pub fn open_container(host: &Namespace, netns: Option<&PathBuf>) -> Result<Option<Namespace>> {
    let netns = netns.filter(|path| !host.is_at(path));
    Namespace::open_if_present(netns)
}

/// A name of the host for a device whose own is taken.
fn free_name(host: &Namespace) -> Result<String> {
    let links = host.nl.links()?;
    let names = (0..).map(|number: u32| format!("dev{number}"));
    let mut free = names.filter(|name| links.iter().all(|link| link.name != *name));
    free.next().ok_or_else(|| Error::new(Code::Internal, "the host has no free name devN"))
}

fn explained(cause: netlink::Error) -> Error {
    match cause.is_invalid() {
        true => Error::from(cause).with_code(Code::InvalidConfig).detail(
            "the kernel moves no bridge, bond or loopback to another namespace, and a wireless interface only with its phy",
        ),
        false => cause.into(),
    }
}
