//! The loopback guard: drops packets from or to 127/8 that arrive on another link than `lo`.

use netlink::Family;

use crate::kind::{Kind, KindProperties, NftablesProperties, NftablesRules, ReferenceProperties, Rules};
use crate::ruleset::uapi::*;
use crate::ruleset::{Chain, Expressions, Field, INET, Layout, R0, Record, Rule};

/// Before conntrack. Drops packets that exploit `route_localnet`.
const GUARD: Chain = Chain::first_filter("guard");

/// An attachment's record. It has no elements: the rules are the same for all attachments.
const RECORD: &str = "guards 127.0.0.0/8";

static PROPERTIES: KindProperties = properties("loopback");
static KEPT_PROPERTIES: KindProperties = properties("keptguard");

const fn properties(name: &'static str) -> KindProperties {
    KindProperties {
        name,
        maps_host_ports: false,
        nftables: NftablesProperties {
            table: INET,
            chain: GUARD.name,
            layout,
            comments: &[],
            parse,
            needs: &[],
            opens: None,
        },
        iptables: None,
        reference: ReferenceProperties::NONE,
    }
}

/// Protects the host's services on 127.0.0.1 while a link has `route_localnet`. With nftables, [`crate::HostPorts`]
/// include these rules. With iptables, the rules are also needed here, because other programs may flush the iptables
/// tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopbackGuard;

impl LoopbackGuard {
    /// The kind of these rules.
    pub const KIND: Kind = Kind::new(&PROPERTIES);
}

impl Rules for LoopbackGuard {
    fn kind(&self) -> Kind {
        Self::KIND
    }

    /// The host ports in iptables have the same rules in the table mangle.
    fn is_optional(&self) -> bool {
        true
    }

    fn nftables(&self) -> NftablesRules {
        NftablesRules::of(vec![Record::of(RECORD.to_owned(), [])])
    }
}

/// The same rules, for an attachment whose DEL could not restore `route_localnet`. Its next DEL removes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptGuard;

impl KeptGuard {
    /// The kind of these rules.
    pub const KIND: Kind = Kind::new(&KEPT_PROPERTIES);
}

impl Rules for KeptGuard {
    fn kind(&self) -> Kind {
        Self::KIND
    }

    fn nftables(&self) -> NftablesRules {
        LoopbackGuard.nftables()
    }
}

/// The chain with its rules.
pub(super) fn layout() -> Layout {
    let mut this = Layout { chains: vec![GUARD], ..Layout::default() };
    for (name, field) in [("from", Field::saddr(Family::V4)), ("to", Field::daddr(Family::V4))] {
        let martian = Expressions::new()
            .family(Family::V4)
            .load(field.first_byte(), R0)
            .compare(R0, NFT_CMP_EQ, &[127])
            .load_meta(NFT_META_IIF, R0)
            .compare(R0, NFT_CMP_NEQ, &LOOPBACK_IFINDEX.to_ne_bytes())
            .verdict(NF_DROP);
        this.rules.push(Rule::new(GUARD, format!("martians {name} loopback"), martian));
    }
    this
}

fn parse(text: &str) -> Option<Record> {
    (text == RECORD).then(|| Record::of(text.to_owned(), []))
}
