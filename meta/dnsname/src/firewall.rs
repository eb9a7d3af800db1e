//! INPUT of the host's firewall, which may drop what containers ask: opened for an attachment, and closed with the last one.

use cni::{Attachment, Code, NetworkName, Result, Scope, Undo};
use netfilter::{DnsServer, Firewall, Kind, Owner, Removal};

const KINDS: [Kind; 1] = [DnsServer::KIND];

/// Lets containers behind an interface of the host ask for names. Where the kernel has no nf_tables, INPUT is left to the administrator.
///
/// # Errors
/// What the kernel refuses, or iptables.
pub fn open(network: &NetworkName, at: &Attachment, rules: &DnsServer, undo: &mut Undo) -> Result<()> {
    let installed =
        Firewall::open(None).and_then(|firewall| firewall.install(&Owner::new(network, at), rules, undo));
    match installed {
        Err(e) if e.code() == Code::UnsupportedField as u32 => {
            cni::warn(&format!("INPUT is not opened for questions over DNS: {e}"));
            Ok(())
        }
        installed => installed,
    }
}

/// Whether they may.
///
/// # Errors
/// Code 999, with what is missing.
pub fn check(network: &NetworkName, at: &Attachment, rules: &DnsServer) -> Result<()> {
    let checked = Firewall::open(None).and_then(|firewall| firewall.check(&Owner::new(network, at), rules));
    match checked {
        Err(e) if e.code() == Code::UnsupportedField as u32 => Ok(()),
        checked => checked,
    }
}

/// Closes INPUT for an attachment.
///
/// # Errors
/// What could not be removed.
pub fn close(network: &NetworkName, at: &Attachment) -> Result<()> {
    let removal = Removal::start();
    let removed = removal.remove(&Owner::new(network, at), &KINDS);
    removal.close_later();
    removed
}

/// The same for attachments that GC removes.
///
/// # Errors
/// What could not be removed.
pub fn collect(network: &NetworkName, scope: &Scope) -> Result<()> {
    let removal = Removal::start();
    let removed = removal.collect(network, &KINDS, scope);
    removal.close_later();
    removed
}
