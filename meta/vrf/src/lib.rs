//! vrf: adds the interface to a VRF of the container, with its own routing table, whose subnets may overlap with others.

mod conf;
mod contents;
mod device;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keys;

use cni::schema::Key;
use cni::{Add, AddResult, Check, Code, Del, Error, Failures, Plugin, Result, ResultExt, Role, Status, Undo};
use iface::{Namespace, remove, tables, verify};
use netlink::{Link, uapi::RT_TABLE_MAIN};

use conf::{Conf, lenient_name};
use contents::Contents;
use device::Vrf;

/// The master of a link without one.
const NO_MASTER: u32 = 0;

/// The plugin.
#[derive(Debug)]
pub struct VrfPlugin;

impl Plugin for VrfPlugin {
    const NAME: &'static str = "vrf";
    const ABOUT: &'static str = "Puts the interface into a VRF of the container.";
    const ROLE: Role = Role::Chained;
    const KEYS: &'static [Key] = keys::KEYS;
    const LINK_KINDS: &'static [(&'static str, &'static str)] = &[("vrf", "vrf")];
    const UNCHAINED: &'static str = "missing prevResult from earlier plugin";
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let sandbox = Namespace::open(&call.netns)?;
        undo.hold(sandbox.lock()?);
        let link = sandbox.chained_interface(&call.attachment.ifname)?;
        refuse_other_master(&sandbox, &link, &call.conf)?;
        let vrf = device::provide(&sandbox, &call.conf, undo)?;
        let contents = Contents::of(&sandbox, &link)?;
        let joined = if link.master == Some(vrf.link.index) {
            // An earlier ADD has moved them.
            contents.moved(&link, vrf.table, vrf.table)
        } else {
            join(&sandbox, &link, &vrf, &contents, undo)?;
            contents.moved(&link, RT_TABLE_MAIN, vrf.table)
        };
        let mut result = call.prev_result.clone();
        tables::report(&mut result, &link, &joined);
        Ok(result)
    }

    fn del(call: &Del) -> Result<()> {
        let Some(name) = lenient_name(&call.conf) else { return Ok(()) };
        let Some(sandbox) = Namespace::open_if_present(call.netns.as_ref())? else { return Ok(()) };
        let _lock = sandbox.lock()?;
        // Another kind of link is not the plugin's.
        let vrf = device::find(&sandbox, &name).or_else(not_a_vrf)?;
        let mut failures = Failures::new();
        if let Some(link) = remove::chained(call, &sandbox)? {
            let joined = vrf.as_ref().filter(|vrf| link.master == Some(vrf.link.index));
            if let Some(vrf) = joined {
                // If something cannot be restored, the VRF stays, and the next DEL continues.
                detach(&sandbox, &link, vrf)?;
            }
            let result = call.prev_result.as_ref().filter(|_| joined.is_some() || link.master.is_none());
            let table = vrf.as_ref().map_or(RT_TABLE_MAIN, |vrf| vrf.table);
            let completed =
                result.map_or(Ok(()), |result| contents::complete(&sandbox, &link, table, result));
            match (&vrf, completed) {
                // The rollback of an ADD deletes the VRF even if it has not restored everything. A later DEL could not do more.
                (None, Err(e)) => cni::warn(&format!("not restored: {e}")),
                (_, completed) => drop(failures.note(completed)),
            }
        }
        if let Some(vrf) = vrf {
            failures.note(vrf.delete_if_empty(&sandbox));
        }
        failures.into_result()
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let sandbox = Namespace::open(&call.netns)?;
        let link = sandbox.link(&call.attachment.ifname)?;
        let missing =
            || Error::new(Code::Internal, format!("vrf {} does not exist in {sandbox}", call.conf.name));
        let vrf = device::find(&sandbox, &call.conf.name)?.ok_or_else(missing)?;
        device::has_table(&vrf, call.conf.table).code(Code::Internal)?;
        verify::up(&vrf.link)?;
        if link.master != Some(vrf.link.index) {
            let found = master_of(&sandbox, &link)?.map_or_else(|| "none".to_owned(), |master| master.name);
            return Err(verify::differs(&link, "master", &vrf.link.name, &found));
        }
        verify::addresses_and_routes(&sandbox, &link, call)
    }

    fn status(_: &Status<Conf>) -> Result<()> {
        Namespace::host()?.require_link_kinds(Self::LINK_KINDS)
    }
}

fn join(sandbox: &Namespace, link: &Link, vrf: &Vrf, contents: &Contents, undo: &mut Undo) -> Result<()> {
    let (ns, joined, before, table) = (sandbox.clone(), link.clone(), contents.clone(), vrf.table);
    undo.push(move || undo_join(&ns, &joined, &before, table));
    contents.change_master(sandbox, link, vrf.link.index, (RT_TABLE_MAIN, vrf.table))
}

/// Undoes a [`join`] that stopped at any point.
fn undo_join(sandbox: &Namespace, link: &Link, before: &Contents, table: u32) -> Result<()> {
    // Addresses and routes are where they were before, so none are moved.
    before.change_master(sandbox, link, NO_MASTER, (table, table))
}

fn detach(sandbox: &Namespace, link: &Link, vrf: &Vrf) -> Result<()> {
    let contents = Contents::of(sandbox, link)?;
    contents.change_master(sandbox, link, NO_MASTER, (vrf.table, RT_TABLE_MAIN))
}

fn master_of(sandbox: &Namespace, link: &Link) -> Result<Option<Link>> {
    Ok(sandbox.nl.link_named_by(link.master)?)
}

fn refuse_other_master(sandbox: &Namespace, link: &Link, conf: &Conf) -> Result<()> {
    match master_of(sandbox, link)?.filter(|master| master.name != *conf.name) {
        None => Ok(()),
        Some(master) => {
            Err(Error::config(format!("interface {} has already a master set: {}", link.name, master.name))
                .detail(format!("remove it from its master before it joins vrf {}", conf.name)))
        }
    }
}

fn not_a_vrf(error: Error) -> Result<Option<Vrf>> {
    if error.code() == Code::InvalidConfig as u32 { Ok(None) } else { Err(error) }
}
