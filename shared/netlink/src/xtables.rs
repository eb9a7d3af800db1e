//! Names of the chains of legacy iptables, as `iptables-legacy-save` lists them, without that program. Uses getsockopt(2) instead of
//! netlink, with the requests of linux/netfilter_ipv4/ip_tables.h and linux/netfilter_ipv6/ip6_tables.h.

use std::io::ErrorKind;
use std::mem::align_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::error::RequestError;
use crate::family::Family;
use crate::wire::{read_str, read_u16, read_u32};

/// `IPT_SO_GET_INFO` and `IP6T_SO_GET_INFO`, `IPT_SO_GET_ENTRIES` and `IP6T_SO_GET_ENTRIES`.
const GET_INFO: libc::c_int = 64;
const GET_ENTRIES: libc::c_int = 65;

/// `XT_TABLE_MAXNAMELEN`.
const NAME: usize = 32;

/// Offset of the table's size in `struct ipt_getinfo`, and the length of the structure.
const INFO_SIZE: usize = 80;
const INFO: usize = 84;

/// Offset of the entries in `struct ipt_get_entries`: after the name and a number, aligned for the counters.
const ENTRIES: usize = (NAME + 4).next_multiple_of(align_of::<u64>());

/// Offset in `struct ipt_entry` and `struct ip6t_entry` of the target's offset, which is followed by that of the next entry.
const OFFSETS_V4: usize = 88;
const OFFSETS_V6: usize = 140;

/// Position of the name in `struct xt_entry_target`.
const TARGET_NAME: std::ops::Range<usize> = 2..31;
const TARGET: usize = 32;

/// Target at the start of each user chain and at the end of the table (`XT_ERROR_TARGET`).
const ERROR: &str = "ERROR";

/// Attempts while the table changes.
const TRIES: u32 = 16;

/// Lists the user chains in a table of this namespace. The kernel creates a missing table, so call this only if `/proc/net/ip_tables_names`
/// (or `ip6_tables_names`) contains it.
///
/// # Errors
/// If the kernel refuses, for example without CAP_NET_ADMIN.
pub fn user_chains(family: Family, table: &str) -> Result<Vec<String>, RequestError> {
    let malformed = || RequestError::own(ErrorKind::InvalidData, "the kernel's table is malformed");
    chains_in(&entries(family, table)?, family).ok_or_else(malformed)
}

/// Whether a text is in a table of this namespace, for example in a comment. See [`user_chains`].
///
/// # Errors
/// If the kernel refuses, for example without CAP_NET_ADMIN.
pub fn contains(family: Family, table: &str, text: &[u8]) -> Result<bool, RequestError> {
    Ok(entries(family, table)?.windows(text.len().max(1)).any(|bytes| bytes == text))
}

/// The entries of a table.
fn entries(family: Family, table: &str) -> Result<Vec<u8>, RequestError> {
    let (domain, level) =
        family.choose((AddressFamily::Inet, libc::SOL_IP), (AddressFamily::Inet6, libc::SOL_IPV6));
    let socket = socket(domain, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut name = table.as_bytes().to_vec();
    name.resize(NAME, 0);
    for _ in 0..TRIES {
        let mut info = [&name[..], &[0; INFO - NAME]].concat();
        get(socket.as_fd(), level, GET_INFO, &mut info)?;
        let size = info.get(INFO_SIZE..).and_then(read_u32).unwrap_or_default();
        let mut entries = [&name[..], &size.to_ne_bytes()].concat();
        entries.resize(ENTRIES + size as usize, 0);
        match get(socket.as_fd(), level, GET_ENTRIES, &mut entries) {
            // The size has changed.
            Err(Errno::EAGAIN) => {}
            Err(errno) => return Err(errno.into()),
            Ok(()) => return Ok(entries.split_off(ENTRIES)),
        }
    }
    Err(RequestError::own(ErrorKind::WouldBlock, "the table kept changing while it was read"))
}

#[allow(unsafe_code)]
fn get(socket: BorrowedFd<'_>, level: i32, request: i32, buffer: &mut [u8]) -> Result<(), Errno> {
    let mut length = libc::socklen_t::try_from(buffer.len()).map_err(|_| Errno::EMSGSIZE)?;
    // SAFETY: the descriptor is open, and the kernel writes at most `length` bytes, the size of the buffer.
    let outcome = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, request, buffer.as_mut_ptr().cast(), &raw mut length)
    };
    Errno::result(outcome).map(drop)
}

/// Names of the user chains in a table's entries. `None` if the entries are malformed.
pub fn chains_in(mut entries: &[u8], family: Family) -> Option<Vec<String>> {
    let offsets = family.choose(OFFSETS_V4, OFFSETS_V6);
    let mut chains = Vec::new();
    while !entries.is_empty() {
        let target = usize::from(read_u16(entries.get(offsets..)?)?);
        let next = usize::from(read_u16(entries.get(offsets + 2..)?)?);
        if next <= offsets {
            return None;
        }
        let target = entries.get(target..next)?;
        entries = entries.get(next..)?;
        // The last such entry is the end of the table.
        if !entries.is_empty() && read_str(target.get(TARGET_NAME)?) == Some(ERROR) {
            chains.extend(read_str(target.get(TARGET..)?).map(str::to_owned));
        }
    }
    Some(chains)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An entry that matches everything, with a target and its text.
    fn entry(family: Family, target: &str, text: &str) -> Vec<u8> {
        let header = family.choose(112, 168);
        let mut entry = vec![0; header + TARGET + 32];
        let offsets = family.choose(OFFSETS_V4, OFFSETS_V6);
        let length = entry.len() as u16;
        entry[offsets..offsets + 2].copy_from_slice(&(header as u16).to_ne_bytes());
        entry[offsets + 2..offsets + 4].copy_from_slice(&length.to_ne_bytes());
        entry[header + 2..][..target.len()].copy_from_slice(target.as_bytes());
        entry[header + TARGET..][..text.len()].copy_from_slice(text.as_bytes());
        entry
    }

    #[test]
    fn the_chains_of_users_are_found_and_the_end_of_the_table_is_none() {
        for family in Family::ALL {
            let rows =
                [("", ""), (ERROR, "FERRULE-HP-x"), ("MASQUERADE", "no chain"), (ERROR, "Y"), (ERROR, ERROR)];
            let table = rows.map(|(target, text)| entry(family, target, text)).concat();
            assert_eq!(chains_in(&table, family).unwrap(), ["FERRULE-HP-x", "Y"]);
            assert_eq!(chains_in(&table[..table.len() - 1], family), None);
        }
    }

    #[test]
    fn an_entry_with_an_invalid_offset_ends_the_reading() {
        assert_eq!(chains_in(&[0; 4096], Family::V4), None);
        assert_eq!(chains_in(&[0xff; 4096], Family::V6), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_always_end(
            bytes in proptest::collection::vec(any::<u8>(), 0..1024),
            (at, value) in (0..400_usize, any::<u8>()),
        ) {
            for family in Family::ALL {
                let _ = chains_in(&bytes, family);
                let mut table = [entry(family, ERROR, "X"), entry(family, ERROR, ERROR)].concat();
                if let Some(byte) = table.get_mut(at) {
                    *byte = value;
                }
                let _ = chains_in(&table, family);
            }
        }
    }
}
