//! A kind of rules that is only in this file. The engines install, check and remove it like any other.

use std::net::IpAddr;

use cni::{NetworkName, Scope, Undo};
use netlink::Family;
use nix::sched::{CloneFlags, unshare};

use crate::kind::{
    IptablesProperties, IptablesRules, Kind, KindProperties, NftablesProperties, NftablesRules,
    ReferenceProperties, Rules,
};
use crate::owner::tests::owner;
use crate::ruleset::uapi::NF_DROP;
use crate::ruleset::{Chain, Element, Expressions, Field, INET, Layout, R0, Record, Rule, Set, Type, octets};
use crate::script::{Script, comment};
use crate::{Backend, Firewall, Owner, Removal};

const CHAIN: Chain = Chain::first_filter("blocked");

static PROPERTIES: KindProperties = KindProperties {
    name: "block",
    maps_host_ports: false,
    nftables: NftablesProperties {
        table: INET,
        chain: CHAIN.name,
        layout,
        comments: &[],
        parse,
        needs: &[],
        opens: None,
    },
    iptables: Some(IptablesProperties {
        table: "filter",
        prefix: "FERRULE-BL-",
        parents: &["FORWARD"],
        shared: None,
        waiting: None,
    }),
    reference: ReferenceProperties::NONE,
};

/// Drops packets from an address.
#[derive(Debug)]
struct Block(IpAddr);

impl Block {
    const KIND: Kind = Kind::new(&PROPERTIES);
}

impl Rules for Block {
    fn kind(&self) -> Kind {
        Self::KIND
    }

    fn nftables(&self) -> NftablesRules {
        NftablesRules::of(vec![record(self.0)])
    }

    fn iptables(&self) -> Option<&dyn IptablesRules> {
        Some(self)
    }
}

impl IptablesRules for Block {
    fn write(&self, script: &mut Script, label: &str, family: Family) {
        if Family::from(self.0) == family {
            script.own("-j DROP".into());
            let entry = format!("-s {} {} -j {}", self.0, comment(label), script.chain);
            script.append("FORWARD", entry);
        }
    }
}

fn blocked() -> Set {
    Set::new("blocked4", &[Type::ip_addr(Family::V4)])
}

fn layout() -> Layout {
    let mut this = Layout { chains: vec![CHAIN], ..Layout::default() };
    let source = Expressions::new().family(Family::V4).load(Field::saddr(Family::V4), R0);
    this.add(blocked(), Rule::new(CHAIN, "blocked", source.in_set(R0, "blocked4").verdict(NF_DROP)));
    this
}

fn record(ip: IpAddr) -> Record {
    Record::of(format!("block {ip}"), [Element::in_set(blocked(), octets(ip))])
}

fn parse(text: &str) -> Option<Record> {
    text.strip_prefix("block ")?.parse().ok().map(record)
}

static UNSUPPORTED_PROPERTIES: KindProperties = KindProperties {
    name: "unsupported",
    nftables: NftablesProperties { layout: unsupported_layout, ..PROPERTIES.nftables },
    maps_host_ports: false,
    iptables: None,
    reference: ReferenceProperties::NONE,
};

fn unsupported_layout() -> Layout {
    let mut this = Layout { chains: vec![CHAIN], ..Layout::default() };
    this.rules.push(Rule::new(CHAIN, "unsupported", Expressions::new().unknown()));
    this
}

/// Rules that no kernel supports.
#[derive(Debug)]
struct Unsupported {
    is_optional: bool,
}

impl Rules for Unsupported {
    fn kind(&self) -> Kind {
        Kind::new(&UNSUPPORTED_PROPERTIES)
    }

    fn is_optional(&self) -> bool {
        self.is_optional
    }

    fn nftables(&self) -> NftablesRules {
        NftablesRules::default()
    }
}

#[test]
fn rules_that_the_kernel_does_not_support_are_an_error_unless_they_are_optional() {
    in_a_namespace(|| {
        let (firewall, owner) = (Firewall::open(None).unwrap(), owner("net", "c1", "eth0"));
        let install = |is_optional| firewall.install(&owner, &Unsupported { is_optional }, &mut Undo::new());
        assert_eq!(install(false).unwrap_err().code(), cni::Code::UnsupportedField as u32);
        install(true).unwrap();
        // Else `repair` would count these rules as repaired each time.
        let optional: &dyn Rules = &Unsupported { is_optional: true };
        assert!(!firewall.install_all(&[(&owner, optional)])[0].as_ref().unwrap());
    });
}

/// Runs a test in a new network namespace.
fn in_a_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("the tests need root");
        test();
    });
    thread.join().unwrap();
}

fn installs_checks_and_removes(backend: Backend) {
    let [one, other] = ["c1", "c2"].map(|id| owner("net", id, "eth0"));
    let [first, second] = ["10.1.0.5", "10.1.0.6"].map(|ip| Block(ip.parse().unwrap()));
    let (firewall, mut undo) = (Firewall::open(Some(backend)).unwrap(), Undo::new());
    firewall.install(&one, &first, &mut undo).unwrap();
    firewall.install(&other, &second, &mut undo).unwrap();
    undo.commit();
    firewall.check(&one, &first).unwrap();
    firewall.check(&one, &second).unwrap_err();

    Removal::start().remove(&one, &[Block::KIND]).unwrap();
    firewall.check(&one, &first).unwrap_err();
    firewall.check(&other, &second).unwrap();
    let all: [(&Owner, &dyn Rules); 2] = [(&one, &first), (&other, &second)];
    assert_eq!(firewall.are_installed(&all), [false, true]);
    assert!(firewall.install_all(&all[..1]).into_iter().all(Result::unwrap));
    assert_eq!(firewall.are_installed(&all), [true, true]);
    firewall.check(&one, &first).unwrap();

    let network = NetworkName::parse("net").unwrap();
    Removal::start().collect(&network, &[Block::KIND], &Scope::default()).unwrap();
    firewall.check(&one, &first).unwrap_err();
    firewall.check(&other, &second).unwrap_err();
}

#[test]
fn a_kind_that_the_engines_do_not_know_works_in_nftables() {
    in_a_namespace(|| installs_checks_and_removes(Backend::Nftables));
}

#[test]
fn a_kind_that_the_engines_do_not_know_works_in_iptables() {
    in_a_namespace(|| installs_checks_and_removes(Backend::Iptables));
}
