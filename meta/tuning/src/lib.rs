//! tuning: sets sysctls of a container's namespace, and attributes and offload features of an interface of an earlier plugin.

mod allowlist;
mod attribute;
mod backup;
mod conf;
mod feature;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keys;
mod sysctl;

use std::iter;

use cni::schema::Key;
use cni::{
    Add, AddResult, Check, Code, Del, Failures, Gc, IfName, Plugin, Result, ResultExt, Role, Status, Undo,
};
use iface::{Namespace, remove};

use attribute::Attribute;
use backup::Saved;
use conf::{Conf, data_dir_or_default};
use feature::Offload;
use sysctl::{Before, Forms};

/// The plugin.
#[derive(Debug)]
pub struct Tuning;

impl Plugin for Tuning {
    const NAME: &'static str = "tuning";
    const ABOUT: &'static str = "Changes sysctls of the container and settings of its interface.";
    const ROLE: Role = Role::Chained;
    const KEYS: &'static [Key] = keys::KEYS;
    const ARGS: &'static [Key] = keys::ARGS;
    const CAPABILITIES: &'static [&'static str] = &["mac"];
    const READS_ARGS: bool = true;
    const UNCHAINED: &'static str = "Required prevResult missing";
    const UNREPEATED: &'static [&'static [&'static str]] =
        &[&["sysctl"], &["args", "cni", "sysctl"], &["features"], &["args", "cni", "features"]];
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let (conf, sandbox) = (&call.conf, Namespace::open(&call.netns)?);
        allowlist::permit(&conf.sysctls)?;
        sysctl::refuse_same(&conf.sysctls, &call.attachment.ifname)?;
        let requested = conf.attributes(&call.args)?;
        let mut result = call.prev_result.clone();
        report(&requested, &mut result, &call.attachment.ifname);

        let sysctls_before = Before::read(&conf.sysctls, &sandbox, &call.attachment.ifname)?;
        let backup = backup::find_for_add(&conf.data_dir, &call.net.name, &call.attachment, &call.netns)?;
        if !requested.is_empty() || !conf.features.is_empty() {
            let link = sandbox.chained_interface(&call.attachment.ifname)?;
            let prev = &call.prev_result;
            requested.iter().try_for_each(|it| it.refuse_loss_of_ipv6(&sandbox, &link, prev))?;
            let offload = Offload::read(&conf.features, &sandbox, &link)?;
            let before = requested.iter().filter_map(|attribute| attribute.of(&link));
            let saved = Saved::new(before, &call.net.name, &call.netns).with_features(offload.before());
            backup::save(&backup, saved, undo)?;
            for attribute in &requested {
                attribute.set(&sandbox, &link, undo)?;
            }
            offload.set(&sandbox, &link, undo)?;
        }
        // Sysctls are last: no rollback restores the IPv6 addresses that the kernel deletes with `disable_ipv6`.
        sysctls_before.restore_after_failure(&sandbox, undo);
        let mut forms = Forms::new();
        for sysctl in &conf.sysctls {
            forms.extend(sysctl.set(&sandbox, &call.attachment.ifname)?);
        }
        if !forms.is_empty() {
            let saved = Saved::new(iter::empty(), &call.net.name, &call.netns).with_sysctls(forms);
            backup::save(&backup, saved, undo)
                .unwrap_or_else(|e| cni::warn(&format!("CHECK may report sysctls as changed: {e}")));
        }
        Ok(result)
    }

    fn del(call: &Del) -> Result<()> {
        let (dir, netns) = (data_dir_or_default(&call.conf), call.netns.as_deref());
        let backup = backup::find(&dir, &call.net.name, &call.attachment, netns)?;
        let (mut failures, mut again) = (Failures::new(), false);
        let saved = backup::load(&backup)?;
        // The file's name lacks the network. ADD may have failed because another network's interface has the name.
        if saved.as_ref().is_some_and(|saved| saved.is_of_another(&call.net.name)) {
            return Ok(());
        }
        if let Some(saved) = saved
            && let Some(sandbox) = Namespace::open_if_present(call.netns.as_ref())?
            && let Some(link) = remove::chained(call, &sandbox)?
        {
            for attribute in saved.attributes() {
                let restored = attribute.restore(&sandbox, &link);
                again |= restored.as_ref().is_err_and(netlink::Error::is_unanswered);
                failures.note(restored.context(|| format!("restore {attribute}")));
            }
            failures.note(feature::restore(saved.features(), &sandbox, &link).context(|| "restore features"));
        }
        // Also after a refusal of the kernel: a later DEL would get the same refusal, and block the other plugins of the chain.
        if !again {
            failures.note(backup.remove());
        }
        failures.into_result()
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let sandbox = Namespace::open(&call.netns)?;
        let requested = call.conf.attributes(&call.args)?;
        if !requested.is_empty() || !call.conf.features.is_empty() {
            let link = sandbox.link(&call.attachment.ifname)?;
            let prev = &call.prev_result;
            let listed = place_of(&call.attachment.ifname, prev).and_then(|place| prev.interfaces.get(place));
            requested.iter().try_for_each(|attribute| attribute.verify(&link, listed))?;
            feature::verify(&call.conf.features, &sandbox, &link)?;
        }
        let stored = || {
            let (dir, network) = (&call.conf.data_dir, &call.net.name);
            let backup = backup::find(dir, network, &call.attachment, Some(&call.netns)).ok()?;
            backup::load(&backup).ok()?.filter(|saved| !saved.is_of_another(network))
        };
        let forms = || stored().map(Saved::into_sysctls).unwrap_or_default();
        let ifname = &call.attachment.ifname;
        call.conf.sysctls.iter().try_for_each(|sysctl| sysctl.verify(&sandbox, ifname, forms))
    }

    fn gc(call: &Gc) -> Result<()> {
        backup::remove_stale(&data_dir_or_default(&call.conf), call)
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        allowlist::permit(&call.conf.sysctls).code(Code::NotAvailable)
    }
}

/// Writes the new attributes into the result, if it lists the interface.
fn report(requested: &[Attribute], result: &mut AddResult, ifname: &IfName) {
    let Some(place) = place_of(ifname, result) else { return };
    let interface = &mut result.interfaces[place];
    for attribute in requested {
        match attribute {
            Attribute::Mac(mac) => interface.mac = Some(mac.to_string()),
            Attribute::Mtu(mtu) => interface.mtu = Some(*mtu),
            _ => {}
        }
    }
}

/// The place of the interface in a result. Many plugins list only the host's end, and some do not name the container's namespace.
fn place_of(ifname: &IfName, result: &AddResult) -> Option<usize> {
    let in_container = result.container_interface(ifname).is_some();
    result.interfaces.iter().position(|one| one.name == **ifname && (one.sandbox.is_some() || !in_container))
}
