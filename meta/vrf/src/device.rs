//! The VRF: a link of the container, whose ports have their own routing table (Documentation/networking/vrf.rst).

use cni::{Code, Error, IfName, Result, Undo};
use iface::{Namespace, creation, tables};
use netlink::{Link, LinkKind, NewLink};
use nix::errno::Errno;

use crate::conf::Conf;

/// First table to choose, as in the reference.
const FIRST: u32 = 1;

/// Attempts to find or create the VRF.
const TRIES: u32 = 3;

/// A VRF and its table.
#[derive(Clone, Debug)]
pub struct Vrf {
    /// The link.
    pub link: Link,
    /// Its table.
    pub table: u32,
}

impl Vrf {
    /// The VRF of a link.
    ///
    /// # Errors
    /// Code 7 if the link is not a VRF.
    fn of(link: Link) -> Result<Self> {
        match link.kind {
            Some(LinkKind::Vrf { table }) => Ok(Self { link, table }),
            _ => Err(Error::config(format!(
                "vrfname {}: the container has an interface of this name that is not a VRF",
                link.name
            ))),
        }
    }

    /// Deletes the VRF if it has no ports, even if another program created it, as the reference does.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete_if_empty(&self, sandbox: &Namespace) -> Result<()> {
        if sandbox.nl.ports(self.link.index)?.is_empty() {
            sandbox.nl.delete_link(&self.link)?;
        }
        Ok(())
    }
}

/// Finds a VRF by its name.
///
/// # Errors
/// Code 7 if the link is not a VRF; other errors if the kernel refuses.
pub fn find(sandbox: &Namespace, name: &str) -> Result<Option<Vrf>> {
    sandbox.nl.link(name)?.map(Vrf::of).transpose()
}

/// Finds or creates the configured VRF.
///
/// # Errors
/// Code 7 if it has another table; other errors if the kernel refuses.
pub fn provide(sandbox: &Namespace, conf: &Conf, undo: &mut Undo) -> Result<Vrf> {
    for _ in 0..TRIES {
        if let Some(vrf) = find(sandbox, &conf.name)? {
            has_table(&vrf, conf.table)?;
            sandbox.nl.set_up(&vrf.link)?;
            return Ok(vrf);
        }
        let table = conf.table.map_or_else(|| free_table(sandbox), Ok)?;
        match make(sandbox, &conf.name, table, undo) {
            // A program without the lock created it first.
            Err(e) if e.is_exists() => {}
            Err(e) => return Err(explained(e)),
            Ok(vrf) => return Ok(vrf),
        }
    }
    Err(Error::new(
        Code::TryAgainLater,
        format!("vrf {} in {sandbox} is repeatedly deleted by another process", conf.name),
    ))
}

/// Checks the table of a VRF.
///
/// # Errors
/// Code 7 if the configured table is another one.
pub fn has_table(vrf: &Vrf, table: Option<u32>) -> Result<()> {
    match table.filter(|table| *table != vrf.table) {
        None => Ok(()),
        Some(requested) => Err(Error::config(format!(
            "VRF {} already exist with different routing table {}",
            vrf.link.name, vrf.table
        ))
        .detail(format!("the configuration requests table {requested}"))
        .detail("set the same table in all networks that share the VRF, or remove the key in all of them")),
    }
}

fn make(sandbox: &Namespace, name: &IfName, table: u32, undo: &mut Undo) -> netlink::Result<Vrf> {
    let made = sandbox.nl.create_link(&NewLink { up: true, ..NewLink::new(name, LinkKind::Vrf { table }) });
    if made.as_ref().map_or_else(netlink::Error::is_unanswered, |_| true) {
        let (ns, name) = (sandbox.clone(), name.clone());
        undo.push(move || find(&ns, &name)?.map_or(Ok(()), |vrf| vrf.delete_if_empty(&ns)));
    }
    made.map(|link| Vrf { link, table })
}

fn free_table(sandbox: &Namespace) -> Result<u32> {
    tables::first_free(&tables::used(sandbox, &sandbox.nl.rules()?)?, FIRST)
}

fn explained(cause: netlink::Error) -> Error {
    match cause.errno() {
        Some(Errno::EOPNOTSUPP) => Error::from(cause).detail(creation::missing_module("vrf", "vrf")),
        _ => cause.into(),
    }
}
