//! A hardware address that a configuration asks for.

use cni::{Error, Result};
use netlink::Mac;

/// Reads the hardware address that an interface is to have; `key` is where it was written.
///
/// # Errors
/// Code 7, naming the key, for what is no address, a group's, or all zero.
pub fn unicast_mac(key: &str, text: &str) -> Result<Mac> {
    let mac: Mac = text.parse().map_err(|e| Error::config(format!("{key}: {e}")))?;
    if mac.is_multicast() || mac.is_zero() {
        return Err(Error::config(format!("{key}: {mac} cannot be an interface's address"))
            .detail("the lowest bit of the first byte marks a group of receivers; clear it"));
    }
    Ok(mac)
}
