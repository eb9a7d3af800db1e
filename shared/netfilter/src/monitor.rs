//! Watches the ruleset for changes by other programs that remove attachments' rules.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use cni::Result;
use netlink::wire::{Attributes, read_str};
use netlink::{Family, Protocol, Socket};
use nix::errno::Errno;

use crate::iptables::legacy::has_table;
use crate::iptables::render::MARKER;
use crate::nft::Nft;
use crate::opening::{self, OpenedHook};
use crate::ruleset::INET;
use crate::ruleset::uapi;

/// The name of Ferrule's tables.
const TABLE: &str = INET.name;

/// firewalld's table. A reload creates it again, and its zones have lost the containers' addresses then.
const FIREWALLD: &str = "firewalld";

/// NFNLGRP_NFTABLES of linux/netfilter/nfnetlink.h.
const GROUP: u32 = 7;

/// Process names of the plugins that change rules over netlink. iptables-restore also runs for other programs. If a
/// plugin runs it, the transaction creates and deletes the chain [`MARKER`].
const WRITERS: [&str; 6] = ["bridge", "ptp", "portmap", "firewall", "dnsname", "flannel"];

/// `struct nfgenmsg`.
const HEADER: usize = 4;

/// A subscription to the events of nf_tables, which include changes by iptables-nft.
#[derive(Debug)]
pub struct RulesetMonitor {
    socket: Socket,
    /// The transaction whose last event has not arrived yet.
    transaction: Cell<Transaction>,
}

/// The events of a transaction.
#[derive(Clone, Copy, Debug, Default)]
struct Transaction {
    has_losses: bool,
    is_own: bool,
}

impl RulesetMonitor {
    /// Subscribes. None: the kernel has no nf_tables.
    ///
    /// # Errors
    /// If the process lacks CAP_NET_ADMIN.
    pub fn subscribe() -> Result<Option<Self>> {
        if Nft::open().map_err(|r| r.during("open", "nf_tables")).is_err_and(|e| Nft::is_missing(&e)) {
            return Ok(None);
        }
        let socket = Socket::open(Protocol::Netfilter).and_then(|socket| {
            socket.subscribe(GROUP)?;
            Ok(Self { socket, transaction: Cell::default() })
        });
        Ok(Some(socket.map_err(|r| r.during("subscribe to", "the events of nf_tables"))?))
    }

    /// Reads the pending events without waiting. Returns whether another program's transaction is a loss, or events
    /// were lost.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn read_losses(&self) -> Result<bool> {
        let (mut loss, mut transaction) = (false, self.transaction.get());
        let received = self.socket.next_event(Instant::now(), |kind, payload| {
            loss |= transaction.note(kind, payload);
        });
        self.transaction.set(transaction);
        match received {
            Ok(()) => Ok(loss),
            Err(r) if r.errno() == Some(Errno::ETIMEDOUT) => Ok(loss),
            Err(r) if r.errno() == Some(Errno::ENOBUFS) => Ok(true),
            Err(r) => Err(r.during("receive", "the events of nf_tables").into()),
        }
    }

    /// Whether this namespace may have rules in legacy iptables, which sends no events.
    pub fn may_be_silent() -> bool {
        let may_have = |family, table| has_table(family, table).unwrap_or(true);
        Family::ALL.into_iter().any(|family| may_have(family, "nat") || may_have(family, opening::TABLE))
    }
}

impl AsFd for RulesetMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Transaction {
    /// Records an event. Returns whether it is the last one of a transaction that is a loss. Deletions by Ferrule's
    /// plugins belong to attachments that end, or are replaced in the same transaction.
    fn note(&mut self, kind: u16, payload: &[u8]) -> bool {
        if kind >> 8 != uapi::NFNL_SUBSYS_NFTABLES {
            return false;
        }
        let attributes = Attributes::after(HEADER, payload);
        let name = |number| attributes.get(number).and_then(read_str).unwrap_or_default();
        match kind & 0xff {
            uapi::NFT_MSG_NEWGEN => {
                let is_own = self.is_own || WRITERS.contains(&name(uapi::NFTA_GEN_PROC_NAME));
                return std::mem::take(self).has_losses && !is_own;
            }
            uapi::NFT_MSG_NEWCHAIN => self.is_own |= name(uapi::NFTA_CHAIN_NAME) == MARKER,
            _ => {}
        }
        self.has_losses |= is_loss(kind, payload);
        false
    }
}

/// Whether a table, chain, set or rule is removed that contains Ferrule's rules or jumps to them. Changes of set
/// elements are ignored, because attachments come and go. So is the deletion of the tables with the last attachment.
fn is_loss(kind: u16, payload: &[u8]) -> bool {
    let attributes = Attributes::after(HEADER, payload);
    let name = |number| attributes.get(number).and_then(read_str).unwrap_or_default();
    // All message types have the table's name in the same attribute.
    let table = name(uapi::NFTA_TABLE_NAME);
    let leads_to_ours = |chain: &str| match table {
        "nat" | "raw" => leads_to_ours(chain),
        // The guard of route_localnet, which protects services on 127.0.0.1.
        "mangle" => chain == "PREROUTING",
        // Forwarded packets pass here, or packets from containers to the host.
        opening::TABLE => OpenedHook::ALL.iter().any(|way| [way.hook, way.chain].contains(&chain)),
        _ => false,
    };
    match kind & 0xff {
        uapi::NFT_MSG_DELTABLE => [TABLE, "nat", "raw", "mangle", opening::TABLE, FIREWALLD].contains(&table),
        // A new chain may drop packets that passed before. Starting iptables creates it.
        uapi::NFT_MSG_NEWCHAIN => {
            let chain = name(uapi::NFTA_CHAIN_NAME);
            table == opening::TABLE && OpenedHook::ALL.iter().any(|way| way.hook == chain)
        }
        uapi::NFT_MSG_DELSET => table == TABLE,
        uapi::NFT_MSG_DELCHAIN => table == TABLE || leads_to_ours(name(uapi::NFTA_CHAIN_NAME)),
        uapi::NFT_MSG_DELRULE => table == TABLE || leads_to_ours(name(uapi::NFTA_RULE_CHAIN)),
        _ => false,
    }
}

/// Whether the chain jumps to Ferrule's. kube-proxy and other programs change their own chains all the time.
fn leads_to_ours(chain: &str) -> bool {
    chain.starts_with("FERRULE-") || ["PREROUTING", "POSTROUTING", "OUTPUT"].contains(&chain)
}

#[cfg(test)]
mod tests {
    use netlink::wire::Message;

    use super::*;
    use crate::ruleset::uapi::*;

    fn event(kind: u16, names: &[(u16, &str)]) -> bool {
        let mut message = Message::new(NFNL_SUBSYS_NFTABLES << 8 | kind, 0, &[NFPROTO_IPV4, 0, 0, 0]);
        names.iter().for_each(|(number, name)| message.put_str(*number, name));
        let bytes = message.finish(0).to_vec();
        let frame = netlink::wire::Frames::new(&bytes).next().unwrap();
        is_loss(frame.kind, frame.payload)
    }

    #[test]
    fn every_plugin_that_installs_rules_is_a_writer() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        for kind in ["plugins", "meta", "ipam"] {
            for plugin in std::fs::read_dir(format!("{root}/{kind}")).unwrap() {
                let plugin = plugin.unwrap();
                let manifest = std::fs::read_to_string(plugin.path().join("Cargo.toml")).unwrap();
                let name = plugin.file_name().into_string().unwrap();
                let installs = manifest.lines().any(|line| line.starts_with("netfilter"));
                assert!(!installs || WRITERS.contains(&&*name), "{name} is not in WRITERS");
            }
        }
    }

    #[test]
    fn only_the_removal_of_objects_that_our_rules_need_is_a_loss() {
        for (kind, names, is) in [
            (NFT_MSG_DELTABLE, vec![(1, "ferrule")], true),
            (NFT_MSG_NEWTABLE, vec![(1, "ferrule")], false),
            (NFT_MSG_DELTABLE, vec![(1, "kube-proxy")], false),
            (NFT_MSG_DELTABLE, vec![(1, "firewalld")], true),
            (NFT_MSG_DELSET, vec![(1, "ferrule"), (2, "hostport4")], true),
            (NFT_MSG_DELSETELEM, vec![(1, "ferrule"), (2, "hostport4")], false),
            (NFT_MSG_DELRULE, vec![(1, "ferrule"), (2, "prerouting")], true),
            (NFT_MSG_DELRULE, vec![(1, "nat"), (2, "POSTROUTING")], true),
            (NFT_MSG_DELRULE, vec![(1, "nat"), (2, "FERRULE-HAIRPIN")], true),
            (NFT_MSG_DELRULE, vec![(1, "nat"), (2, "KUBE-SERVICES")], false),
            (NFT_MSG_DELRULE, vec![(1, "mangle"), (2, "PREROUTING")], true),
            (NFT_MSG_DELRULE, vec![(1, "mangle"), (2, "FORWARD")], false),
            (NFT_MSG_DELTABLE, vec![(1, "mangle")], true),
            (NFT_MSG_DELRULE, vec![(1, "filter"), (2, "OUTPUT")], false),
            (NFT_MSG_DELRULE, vec![(1, "filter"), (2, "FORWARD")], true),
            (NFT_MSG_DELRULE, vec![(1, "filter"), (2, "CNI-FORWARD")], true),
            (NFT_MSG_DELRULE, vec![(1, "filter"), (2, "CNI-ADMIN")], false),
            (NFT_MSG_NEWCHAIN, vec![(1, "filter"), (3, "FORWARD")], true),
            (NFT_MSG_NEWCHAIN, vec![(1, "filter"), (3, "DOCKER")], false),
            (NFT_MSG_DELCHAIN, vec![(1, "raw"), (3, "PREROUTING")], true),
            (NFT_MSG_DELCHAIN, vec![(1, "nat"), (3, "KUBE-SEP-1")], false),
        ] {
            assert_eq!(event(kind, &names), is, "{kind} {names:?}");
        }
    }
}
