//! Refuses rootless Podman: its containers' networks are in a namespace of the user, where CNI plugins cannot store
//! their state.

use std::env;
use std::ffi::OsStr;

use cni::{Code, Error, Result};

/// Podman sets this variable to `done` in the user namespace that it creates for a user other than root.
const SIGN: &str = "_CONTAINERS_USERNS_CONFIGURED";

/// Refuses to serve rootless Podman.
///
/// # Errors
/// Code 50 if a user other than root called Podman.
pub fn refuse() -> Result<()> {
    refuse_if(env::var_os(SIGN).as_deref())
}

fn refuse_if(sign: Option<&OsStr>) -> Result<()> {
    if sign != Some("done".as_ref()) {
        return Ok(());
    }
    let text = "the driver cni needs Podman to run as root: plugins keep their state in /var/lib/cni, where a user cannot write";
    Err(Error::new(Code::NotAvailable, text)
        .detail("run podman with sudo, or use Podman's own driver: --driver bridge"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_root_is_refused_and_root_in_a_user_namespace_is_not() {
        assert!(refuse_if(Some("done".as_ref())).unwrap_err().details().contains("sudo"));
        assert!(refuse_if(None).is_ok() && refuse_if(Some("".as_ref())).is_ok());
    }
}
