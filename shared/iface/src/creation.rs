//! Creating a link of any kind: its name must be free, and the kernel's answer may be lost.

use cni::{Attachment, Code, Error, Failures, Result};
use netlink::LinkKind;

use crate::Namespace;

/// Checks that CNI_IFNAME does not exist, before the first effect of an ADD.
///
/// # Errors
/// Code 4 if the container has an interface of that name.
pub fn refuse_taken_name(sandbox: &Namespace, at: &Attachment) -> Result<()> {
    match sandbox.nl.link(&at.ifname)? {
        None => Ok(()),
        Some(_) => Err(Error::new(
            Code::InvalidEnvironment,
            format!("CNI_IFNAME {} is taken in {sandbox}", at.ifname),
        )
        .detail("an earlier ADD was not followed by its DEL, or another plugin created the interface: run DEL, or choose another CNI_IFNAME")),
    }
}

/// Explains EEXIST: CNI_IFNAME may have been created since [`refuse_taken_name`].
pub fn taken_name(sandbox: &Namespace, at: &Attachment, cause: Error) -> Error {
    refuse_taken_name(sandbox, at).err().unwrap_or(cause)
}

/// The detail of EOPNOTSUPP, which the kernel returns without the links' module.
pub fn missing_module(kind: &str, module: &str) -> String {
    format!("this kernel has no links of kind {kind}: load its module (modprobe {module})")
}

/// Deletes links that may have been created although the kernel's answer was lost. A link with an alias belongs to an earlier ADD. Returns
/// `error`, extended by links that could not be deleted.
pub fn withdraw(namespace: &Namespace, names: &[String], kind: &LinkKind, error: Error) -> Error {
    let mut left = Failures::new();
    for name in names {
        let made = left.note(namespace.nl.link(name)).flatten();
        if let Some(made) = made.filter(|link| link.is(kind.name()) && link.alias.is_empty()) {
            left.note(namespace.nl.delete_link(&made));
        }
    }
    match left.into_result() {
        Ok(()) => error,
        Err(left) => error.and_rollback(left),
    }
}
