//! flannel: calls another plugin with flanneld's settings for this host.

mod conf;
mod document;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keys;
mod saved;
mod subnet;

use std::cell::Cell;
use std::rc::Rc;

use cni::schema::Key;
use cni::{
    Add, AddResult, AsWritten, Check, Code, Command, Del, Delegate, Failures, Gc, NetConf, NetworkName,
    Plugin, Repair, Result, ResultExt, Role, Status, Undo, Version,
};
use serde_json::Value;

use conf::Conf;
use iface::{Namespace, creation};
use saved::Saved;
use subnet::Subnet;

/// The plugin.
#[derive(Debug)]
pub struct Flannel;

impl Plugin for Flannel {
    const NAME: &'static str = "flannel";
    const ABOUT: &'static str = "\
        Calls another plugin to attach the container, with the host's subnet from flanneld.";
    const ROLE: Role = Role::Delegating;
    const KEYS: &'static [Key] = keys::KEYS;
    const REPAIRS: bool = true;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let Add { conf, net, .. } = call;
        refuse_taken_name(call)?;
        let subnet = Subnet::read(&conf.subnet_file)?;
        let document = document::of(conf, net, Some(&subnet))?;
        let delegate = to(net, &document::with_prev(document.clone(), net, conf.prev_result.as_ref()));
        // Save only if a DEL can be served.
        delegate.require()?;

        let saved = Saved::new(&conf.data_dir, &net.name, &call.attachment);
        let earlier = saved.read()?;
        let (begun, begins) = (Rc::new(Cell::new(false)), delegate.clone());
        let (has_begun, kept) = (Rc::clone(&begun), saved.clone());
        undo.push(move || {
            if let Some(earlier) = earlier {
                // A DEL would delete the earlier ADD's attachment. The runtime's DEL deletes both.
                return kept.write(&earlier);
            }
            if has_begun.get() {
                begins.call(Command::Del)?;
            }
            // Kept if this DEL failed, for the next one.
            kept.remove()
        });
        saved.write(&document)?;
        begun.set(true);
        delegate.add_for_caller()
    }

    fn del(call: &Del) -> Result<()> {
        let (conf, net) = (Conf::leniently(&call.conf), &call.net);
        let saved = Saved::new(&conf.data_dir, &net.name, &call.attachment);
        let mut failures = Failures::new();
        let read = failures.note(saved.read());
        let is_read = read.is_some();
        let found = read.flatten();
        let is_lost = found.is_none();
        let document = found.map_or_else(|| document::rebuilt(&conf, net), Ok)?;
        let delegate = to(net, &document::with_prev(document, net, conf.prev_result.as_ref()));
        if is_lost && let Err(missing) = delegate.require() {
            // ADD saves nothing without the plugin, so nothing was attached.
            cni::warn(&format!("nothing is deleted: {missing}"));
            return failures.into_result();
        }
        // A file that could not be read is kept: a later DEL may be able to read it.
        if failures.note(delegate.call(Command::Del)).is_some() && is_read {
            failures.note(saved.remove());
        }
        failures.into_result()
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        attached(call)?.call(Command::Check)
    }

    fn repair(calls: &[Repair<Conf>]) -> Vec<Result<bool>> {
        calls.iter().map(|call| attached(&call.check)?.repair(call)).collect()
    }

    fn gc(call: &Gc) -> Result<()> {
        let (conf, net) = (Conf::leniently(&call.conf), &call.net);
        let now = document::for_gc(document::rebuilt(&conf, net)?, call);
        let collected = to(net, &now).collect(&call.scope);
        let is_collected = collected.is_ok();
        let mut failures = Failures::new();
        failures.note(collected);
        // Attachments with another configuration are collected by that one.
        failures.note(saved::collect(&conf.data_dir, call, |document| {
            let then = document::for_gc(document, call);
            if then == now { Ok(is_collected) } else { to(net, &then).collect(&call.scope).map(|()| true) }
        }));
        failures.into_result()
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        let Status { conf, net } = call;
        let subnet = Subnet::read(&conf.subnet_file).code(Code::NotAvailable)?;
        to(net, &document::of(conf, net, Some(&subnet))?).call(Command::Status)
    }
}

/// Fails if the interface exists, because the DEL after a failed ADD would delete an earlier ADD's interface. An interface of the chain is
/// accepted.
fn refuse_taken_name(call: &Add<Conf>) -> Result<()> {
    let ifname = &call.attachment.ifname;
    if call.prev_result.container_interface(ifname).is_some() {
        return Ok(());
    }
    creation::refuse_taken_name(&Namespace::open(&call.netns)?, &call.attachment)
}

/// The plugin that attached the container, with its saved configuration.
fn attached(call: &Check<Conf>) -> Result<Delegate> {
    let Check { conf, net, .. } = call;
    let document = match Saved::new(&conf.data_dir, &net.name, &call.attachment).read()? {
        Some(document) => document,
        None => document::of(conf, net, Some(&Subnet::read(&conf.subnet_file)?))?,
    };
    Ok(to(net, &document::with_prev(document, net, conf.prev_result.as_ref())))
}

/// The configuration with which ADD calls the other plugin.
///
/// # Errors
/// Code 6 or 7 if the configuration is invalid. Otherwise the error of flanneld's file.
pub fn delegate(written: AsWritten, name: &NetworkName, version: Version) -> Result<Value> {
    let conf = Conf::try_from(written)?;
    let net = NetConf { name: name.clone(), version, dns: None, ipam: None, path: Vec::new() };
    document::of(&conf, &net, Some(&Subnet::read(&conf.subnet_file)?))
}

/// The plugin of a configuration.
fn to(net: &NetConf, document: &Value) -> Delegate {
    net.delegate(document::kind(document).to_owned(), document)
}
