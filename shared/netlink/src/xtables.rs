//! Tables of legacy iptables, without its programs: names of chains, and what a base chain does. Uses getsockopt(2) instead of netlink, with the requests of linux/netfilter_ipv4/ip_tables.h and linux/netfilter_ipv6/ip6_tables.h.

use std::io::ErrorKind;
use std::mem::align_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::thread;
use std::time::Duration;

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

/// Offsets in `struct ipt_getinfo`: each base chain's first entry, each base chain's policy, and the table's size. Length of the structure.
const INFO_FIRST: usize = NAME + 4;
const INFO_POLICY: usize = INFO_FIRST + 4 * HOOKS.len();
const INFO_SIZE: usize = INFO_POLICY + 4 * HOOKS.len() + 4;
const INFO: usize = INFO_SIZE + 4;

/// The base chains, in the order of `enum nf_inet_hooks`.
const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// Offset of the entries in `struct ipt_get_entries`: after the name and a number, aligned for the counters.
const ENTRIES: usize = (NAME + 4).next_multiple_of(align_of::<u64>());

/// Offset in `struct ipt_entry` and `struct ip6t_entry` of the target's offset, which is followed by that of the next entry.
const OFFSETS_V4: usize = 88;
const OFFSETS_V6: usize = 140;

/// Lengths of `struct ipt_ip` and `struct ip6t_ip6`, the conditions at the start of an entry, and of the whole header. Matches follow it.
const CONDITIONS_V4: usize = 84;
const CONDITIONS_V6: usize = 136;
const HEADER_V4: usize = 112;
const HEADER_V6: usize = 168;

/// Position of the name in `struct xt_entry_target`.
const TARGET_NAME: std::ops::Range<usize> = 2..31;
const TARGET: usize = 32;

/// Target at the start of each user chain and at the end of the table (`XT_ERROR_TARGET`).
const ERROR: &str = "ERROR";

/// Target with a verdict: the offset of a chain, or one of the negative numbers (`XT_STANDARD_TARGET`).
const STANDARD: &str = "";
const DROP: i32 = -1;
const ACCEPT: i32 = -2;

/// Attempts while the table changes, and the pause between them.
const TRIES: u32 = 16;
const PAUSE: Duration = Duration::from_millis(1);

/// A table of this namespace, as it was when it was read.
#[derive(Debug)]
pub struct Table {
    family: Family,
    /// For each of [`HOOKS`], the offsets of the first entry and of the policy. They are undefined for hooks that the table does not have.
    chains: [(usize, usize); HOOKS.len()],
    bytes: Vec<u8>,
}

/// A rule, a policy, or the start of a user chain.
struct Entry<'a> {
    offset: usize,
    has_conditions: bool,
    target: &'a [u8],
}

impl Table {
    /// Reads a table. The kernel creates a missing table, so call this only if `/proc/net/ip_tables_names` (or `ip6_tables_names`) contains
    /// it.
    ///
    /// # Errors
    /// If the kernel refuses, for example without CAP_NET_ADMIN.
    pub fn read(family: Family, table: &str) -> Result<Self, RequestError> {
        let (domain, level) =
            family.choose((AddressFamily::Inet, libc::SOL_IP), (AddressFamily::Inet6, libc::SOL_IPV6));
        let socket = socket(domain, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        let mut name = table.as_bytes().to_vec();
        name.resize(NAME, 0);
        for _ in 0..TRIES {
            let mut info = [&name[..], &[0; INFO - NAME]].concat();
            get(socket.as_fd(), level, GET_INFO, &mut info)?;
            let number = |at: usize| info.get(at..).and_then(read_u32).unwrap_or_default();
            let offset = |at: usize, hook: usize| number(at + 4 * hook) as usize;
            let chains = std::array::from_fn(|hook| (offset(INFO_FIRST, hook), offset(INFO_POLICY, hook)));
            let size = number(INFO_SIZE);
            let mut entries = [&name[..], &size.to_ne_bytes()].concat();
            entries.resize(ENTRIES + size as usize, 0);
            match get(socket.as_fd(), level, GET_ENTRIES, &mut entries) {
                // The size has changed.
                Err(Errno::EAGAIN) => thread::sleep(PAUSE),
                Err(errno) => return Err(errno.into()),
                Ok(()) => return Ok(Self { family, chains, bytes: entries.split_off(ENTRIES) }),
            }
        }
        Err(RequestError::own(ErrorKind::WouldBlock, "the table kept changing while it was read"))
    }

    /// Whether the table contains a text, for example in a comment.
    pub fn contains(&self, text: &[u8]) -> bool {
        self.bytes.windows(text.len().max(1)).any(|bytes| bytes == text)
    }

    /// The names of the user chains.
    ///
    /// # Errors
    /// If the kernel's answer is malformed.
    pub fn user_chains(&self) -> Result<Vec<String>, RequestError> {
        Ok(self.starts()?.into_iter().map(|(name, _)| name).collect())
    }

    /// Whether a base chain drops or rejects the packets that none of its conditional rules accepts: by its policy, or by a rule without
    /// conditions.
    ///
    /// # Errors
    /// If the kernel's answer is malformed.
    pub fn drops(&self, hook: &str) -> Result<bool, RequestError> {
        Ok(self.rules_before_verdict(hook)?.1)
    }

    /// Whether other rules of a base chain precede the rule or policy that drops or accepts all packets. They may accept packets.
    ///
    /// # Errors
    /// If the kernel's answer is malformed.
    pub fn has_rules_before_verdict(&self, hook: &str) -> Result<bool, RequestError> {
        Ok(!self.rules_before_verdict(hook)?.0.is_empty())
    }

    /// Whether a rule of a base chain jumps to a user chain, before a rule drops or accepts all packets.
    ///
    /// # Errors
    /// If the kernel's answer is malformed.
    pub fn leads(&self, hook: &str, chain: &str) -> Result<bool, RequestError> {
        let start = self.starts()?.into_iter().find(|(name, _)| name == chain).map(|(_, offset)| offset);
        let is_jump =
            |rule: &Entry<'_>| rule.verdict().is_some_and(|verdict| usize::try_from(verdict).ok() == start);
        Ok(start.is_some() && self.rules_before_verdict(hook)?.0.iter().any(is_jump))
    }

    /// The rules of a base chain before the rule or policy that drops or accepts all packets, and whether that one drops them.
    fn rules_before_verdict(&self, hook: &str) -> Result<(Vec<Entry<'_>>, bool), RequestError> {
        let verdict = |rule: &Entry<'_>| rule.is_drop().filter(|_| !rule.has_conditions);
        let mut rules = self.rules(hook)?;
        let at = rules.iter().position(|rule| verdict(rule).is_some()).unwrap_or(rules.len());
        let drops = rules.get(at).and_then(verdict).unwrap_or_default();
        rules.truncate(at);
        Ok((rules, drops))
    }

    /// The user chains, each with the offset of its first rule.
    fn starts(&self) -> Result<Vec<(String, usize)>, RequestError> {
        let entries = self.entries()?;
        // The last such entry is the end of the table.
        let pairs = entries.iter().zip(entries.iter().skip(1));
        let start = |(entry, next): (&Entry<'_>, &Entry<'_>)| {
            let name = read_str(entry.target.get(TARGET..)?).filter(|_| entry.name() == Some(ERROR))?;
            Some((name.to_owned(), next.offset))
        };
        Ok(pairs.filter_map(start).collect())
    }

    /// The rules of a base chain, and its policy.
    fn rules(&self, hook: &str) -> Result<Vec<Entry<'_>>, RequestError> {
        let chain = HOOKS.iter().zip(self.chains).find(|(name, _)| **name == hook);
        let mut entries = self.entries()?;
        entries.retain(|entry| {
            chain.is_some_and(|(_, (first, policy))| (first..=policy).contains(&entry.offset))
        });
        Ok(entries)
    }

    fn entries(&self) -> Result<Vec<Entry<'_>>, RequestError> {
        let malformed = || RequestError::own(ErrorKind::InvalidData, "the kernel's table is malformed");
        parse(&self.bytes, self.family).ok_or_else(malformed)
    }
}

impl Entry<'_> {
    fn name(&self) -> Option<&str> {
        read_str(self.target.get(TARGET_NAME)?)
    }

    fn verdict(&self) -> Option<i32> {
        let number = read_u32(self.target.get(TARGET..)?)?;
        (self.name() == Some(STANDARD)).then_some(number.cast_signed())
    }

    /// Whether it drops or rejects packets. None: it does not decide, such as a jump.
    fn is_drop(&self) -> Option<bool> {
        match (self.name(), self.verdict()) {
            (Some("REJECT"), _) | (_, Some(DROP)) => Some(true),
            (_, Some(ACCEPT)) => Some(false),
            _ => None,
        }
    }
}

/// The entries of a table. `None` if they are malformed.
fn parse(bytes: &[u8], family: Family) -> Option<Vec<Entry<'_>>> {
    let offsets = family.choose(OFFSETS_V4, OFFSETS_V6);
    let (conditions, header) = family.choose((CONDITIONS_V4, HEADER_V4), (CONDITIONS_V6, HEADER_V6));
    let (mut entries, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let target = usize::from(read_u16(rest.get(offsets..)?)?);
        let next = usize::from(read_u16(rest.get(offsets + 2..)?)?);
        if next <= offsets {
            return None;
        }
        let has_conditions = target != header || rest.get(..conditions)?.iter().any(|byte| *byte != 0);
        entries.push(Entry {
            offset: bytes.len() - rest.len(),
            has_conditions,
            target: rest.get(target..next)?,
        });
        rest = rest.get(next..)?;
    }
    Some(entries)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An entry that matches everything, with a target and its text.
    fn entry(family: Family, target: &str, text: &[u8]) -> Vec<u8> {
        let header = family.choose(HEADER_V4, HEADER_V6);
        let mut entry = vec![0; header + TARGET + 32];
        let offsets = family.choose(OFFSETS_V4, OFFSETS_V6);
        let length = entry.len() as u16;
        entry[offsets..offsets + 2].copy_from_slice(&(header as u16).to_ne_bytes());
        entry[offsets + 2..offsets + 4].copy_from_slice(&length.to_ne_bytes());
        entry[header + 2..][..target.len()].copy_from_slice(target.as_bytes());
        entry[header + TARGET..][..text.len()].copy_from_slice(text);
        entry
    }

    /// A table whose entries have the same length. FORWARD begins with the entry `first`, and `policy` is its policy.
    fn table(family: Family, (first, policy): (usize, usize), entries: &[Vec<u8>]) -> Table {
        let length = entries[0].len();
        let chains = [(0, 0), (0, 0), (first * length, policy * length), (0, 0), (0, 0)];
        Table { family, chains, bytes: entries.concat() }
    }

    #[test]
    fn the_chains_of_users_are_found_and_the_end_of_the_table_is_none() {
        for family in Family::ALL {
            let rows: [(&str, &[u8]); 5] = [
                ("", b""),
                (ERROR, b"FERRULE-HP-x"),
                ("MASQUERADE", b"no chain"),
                (ERROR, b"Y"),
                (ERROR, b"ERROR"),
            ];
            let mut table = table(family, (0, 0), &rows.map(|(target, text)| entry(family, target, text)));
            assert_eq!(table.user_chains().unwrap(), ["FERRULE-HP-x", "Y"]);
            table.bytes.pop();
            assert!(table.user_chains().is_err());
        }
    }

    #[test]
    fn a_chain_drops_by_its_first_rule_without_conditions_or_by_its_policy() {
        for family in Family::ALL {
            let standard = |verdict: i32| entry(family, STANDARD, &verdict.to_ne_bytes());
            let reject = || entry(family, "REJECT", b"");
            let of_one_source = |mut rule: Vec<u8>| {
                rule[0] = 10;
                rule
            };
            let with_match = |mut rule: Vec<u8>| {
                let at = family.choose(OFFSETS_V4, OFFSETS_V6);
                rule.splice(at..at + 2, (family.choose(HEADER_V4, HEADER_V6) as u16 + 8).to_ne_bytes());
                rule
            };
            for (rule, policy, (drops, has_rules_before)) in [
                (standard(0), DROP, (true, true)),
                (standard(0), ACCEPT, (false, true)),
                (standard(DROP), ACCEPT, (true, false)),
                (reject(), ACCEPT, (true, false)),
                (standard(ACCEPT), DROP, (false, false)),
                (of_one_source(standard(ACCEPT)), DROP, (true, true)),
                (of_one_source(standard(DROP)), ACCEPT, (false, true)),
                (with_match(reject()), ACCEPT, (false, true)),
            ] {
                let entries =
                    [standard(DROP), rule, standard(policy), standard(DROP), entry(family, ERROR, b"ERROR")];
                let table = table(family, (1, 2), &entries);
                assert_eq!(table.drops("FORWARD").unwrap(), drops);
                assert_eq!(table.has_rules_before_verdict("FORWARD").unwrap(), has_rules_before);
                assert!(!table.drops("none").unwrap());
            }
        }
    }

    #[test]
    fn a_jump_leads_to_the_chain_whose_first_rule_it_names_unless_all_packets_are_dropped_before() {
        for family in Family::ALL {
            let start = |name: &str| entry(family, ERROR, name.as_bytes());
            let standard = |verdict: i32| entry(family, STANDARD, &verdict.to_ne_bytes());
            let length = start("").len() as i32;
            let entries = [
                standard(3 * length),
                standard(DROP),
                start("X"),
                standard(-5),
                start("Y"),
                standard(-5),
                start(ERROR),
            ];
            let table = table(family, (0, 1), &entries);
            let leads = ["X", "Y", "Z"].map(|chain| table.leads("FORWARD", chain).unwrap());
            assert_eq!(leads, [true, false, false]);
            assert!(table.contains(b"X\0") && !table.contains(b"XY"));
            let mut late = entries;
            late.swap(0, 1);
            assert!(!self::table(family, (0, 1), &late).leads("FORWARD", "X").unwrap());
        }
    }

    #[test]
    fn an_entry_with_an_invalid_offset_ends_the_reading() {
        assert!(parse(&[0; 4096], Family::V4).is_none());
        assert!(parse(&[0xff; 4096], Family::V6).is_none());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_always_end(
            bytes in proptest::collection::vec(any::<u8>(), 0..1024),
            (at, value) in (0..400_usize, any::<u8>()),
        ) {
            for family in Family::ALL {
                let _ = parse(&bytes, family);
                let mut table = table(family, (0, 1), &[entry(family, ERROR, b"X"), entry(family, ERROR, b"ERROR")]);
                if let Some(byte) = table.bytes.get_mut(at) {
                    *byte = value;
                }
                let _ = (table.user_chains(), table.drops("FORWARD"), table.leads("FORWARD", "X"));
                let _ = table.has_rules_before_verdict("FORWARD");
            }
        }
    }
}
