//! Opens the host's firewall for DNS queries of containers, which the hook INPUT may drop. The DEL of the last
//! attachment closes it.

use cni::{Attachment, Code, NetworkName, Result, Scope, Undo};
use netfilter::{DnsServer, Firewall, Kind, Owner, Removal};

const KINDS: [Kind; 1] = [DnsServer::KIND];

/// Allows containers behind an interface of the host to send DNS queries. If the kernel has no nf_tables, the
/// administrator must open INPUT.
///
/// # Errors
/// If the rules cannot be installed.
pub fn open(network: &NetworkName, at: &Attachment, rules: &DnsServer, undo: &mut Undo) -> Result<()> {
    let installed =
        Firewall::open(None).and_then(|firewall| firewall.install(&Owner::new(network, at), rules, undo));
    match installed {
        Err(e) if e.code() == Code::UnsupportedField as u32 => {
            cni::warn(&format!("the firewall's INPUT is not opened for DNS queries of containers: {e}"));
            Ok(())
        }
        installed => installed,
    }
}

/// Checks that the rules exist.
///
/// # Errors
/// Code 999 with the missing rule.
pub fn check(network: &NetworkName, at: &Attachment, rules: &DnsServer) -> Result<()> {
    let checked = Firewall::open(None).and_then(|firewall| firewall.check(&Owner::new(network, at), rules));
    match checked {
        Err(e) if e.code() == Code::UnsupportedField as u32 => Ok(()),
        checked => checked,
    }
}

/// Removes the rules of an attachment.
///
/// # Errors
/// If a rule cannot be removed.
pub fn close(network: &NetworkName, at: &Attachment) -> Result<()> {
    let removal = Removal::start();
    let removed = removal.remove(&Owner::new(network, at), &KINDS);
    removal.close_later();
    removed
}

/// Removes the rules of attachments that GC removes.
///
/// # Errors
/// If a rule cannot be removed.
pub fn collect(network: &NetworkName, scope: &Scope) -> Result<()> {
    let removal = Removal::start();
    let removed = removal.collect(network, &KINDS, scope);
    removal.close_later();
    removed
}
