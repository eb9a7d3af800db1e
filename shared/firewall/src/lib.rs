//! Firewall rules of attachments as data, applied in one transaction: masquerade, host ports, spoof check.
//!
//! [`Firewall`] installs and checks [`Rules`], with one of two backends: nftables over netlink, or iptables
//! through its own restore tool. [`Removal`] removes them, whichever backend installed them, by their [`Owner`]
//! alone: (network, container, interface), without addresses or namespaces.

#![warn(missing_docs)]

mod conditions;
mod conntrack;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod iptables;
mod leftovers;
mod losses;
mod masquerade;
mod nft;
mod owner;
mod reference;
mod removal;
mod rules;

use std::fmt;
use std::str::FromStr;

use cni::{Code, Error, Result, ResultExt, Undo};
use netlink::{Protocol as NetlinkProtocol, Socket};

pub use conditions::Conditions;
pub use losses::Losses;
pub use masquerade::MasqueradeConf;
pub use owner::{Owner, network_prefix};
pub use rules::{
    ChainName, HostPort, HostPorts, Kind, Mark, Masquerade, Protocol, Rules, SourceNat, SpoofCheck,
};

pub use removal::Removal;

use iptables::Iptables;
use nft::Nft;

/// What installs rules (the keys `backend` and `ipMasqBackend`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// nf_tables, over netlink.
    Nftables,
    /// iptables and ip6tables, by `iptables-restore`.
    Iptables,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
        })
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "nftables" => Ok(Self::Nftables),
            "iptables" => Ok(Self::Iptables),
            _ => Err(format!("backend {text:?} is neither nftables nor iptables")),
        }
    }
}

/// The firewall of the calling thread's namespace, through one backend.
#[derive(Debug)]
pub struct Firewall {
    through: Through,
    /// Whether the backend was asked for by name.
    asked: bool,
}

#[derive(Debug)]
enum Through {
    Nftables(Nft),
    Iptables(Iptables),
}

impl Firewall {
    /// Opens the firewall through the backend that is asked for; else nftables if the kernel has it, else
    /// iptables.
    ///
    /// # Errors
    /// Code 2 if the backend that is asked for is not there, 999 if there is none at all.
    pub fn open(choice: Option<Backend>) -> Result<Self> {
        let iptables = || Iptables::open().map(Through::Iptables);
        let through = match choice {
            Some(Backend::Nftables) => nftables()?,
            Some(Backend::Iptables) => iptables().code(Code::UnsupportedField)?,
            None => match nftables() {
                // Only then: rules by the other backend would be a surprise where nftables is just not permitted.
                Err(without) if without.code() == Code::UnsupportedField as u32 => {
                    iptables().map_err(|e| without.with_code(Code::Internal).detail(e.msg()))?
                }
                opened => opened?,
            },
        };
        Ok(Self { through, asked: choice.is_some() })
    }

    /// Whether rules of a kind could be installed now (STATUS). It costs some microseconds; a grace period until the first rules
    /// were installed by nftables.
    ///
    /// # Errors
    /// Code 50 if not.
    pub fn available(choice: Option<Backend>, kind: Kind) -> Result<()> {
        let firewall = Self::open(choice).code(Code::NotAvailable)?;
        let Through::Nftables(nft) = &firewall.through else { return Ok(()) };
        let lack = nft.lack(kind).map_err(|r| r.during("ask", "nf_tables"));
        match lack.code(Code::NotAvailable)? {
            Some(lack) if choice.is_some() => Err(Error::new(Code::NotAvailable, lack)),
            Some(lack) => {
                Iptables::open().map(drop).map_err(|e| e.with_code(Code::NotAvailable).detail(lack))
            }
            None => Ok(()),
        }
    }

    /// The backend that was chosen.
    pub fn backend(&self) -> Backend {
        match self.through {
            Through::Nftables(_) => Backend::Nftables,
            Through::Iptables(_) => Backend::Iptables,
        }
    }

    /// Installs an attachment's rules, in place of those of the same kind that it may have. A newer mapping
    /// of a host port replaces an older attachment's, and UDP flows to it are forgotten. The spoof check is
    /// always nftables'.
    ///
    /// # Errors
    /// Code 7 if the backend cannot do what the rules ask for; else what was refused. Nothing is changed
    /// then.
    pub fn install(&self, owner: &Owner, rules: &Rules, undo: &mut Undo) -> Result<()> {
        self.admit(rules)?;
        let (owned, kind) = (owner.clone(), rules.kind());
        // Before the change: iptables makes one for each family, and nftables' may be made though its answer was lost.
        undo.push(move || Removal::start().remove(&owned, &[kind]));
        match &self.through {
            Through::Iptables(iptables) if kind != Kind::SpoofCheck => iptables.install(owner, rules)?,
            through => match through.nft(|nft| nft.install(owner, rules)) {
                Err(e) if self.may_fall_back(kind) && e.code() == Code::UnsupportedField as u32 => {
                    fall_back(owner, rules, &e)?;
                }
                installed => installed?,
            },
        }
        if let Rules::HostPorts(ports) = rules {
            self.forget(ports)?;
        }
        Ok(())
    }

    /// Installs an attachment's rules if they are not as they were installed; with `anew` in any case. Whether it did.
    ///
    /// # Errors
    /// As [`Firewall::install`].
    pub fn repair(&self, owner: &Owner, rules: &Rules, anew: bool, undo: &mut Undo) -> Result<bool> {
        if !anew && self.check(owner, rules).is_ok() {
            return Ok(false);
        }
        self.install(owner, rules, undo).map(|()| true)
    }

    /// Whether an attachment's rules are as they were installed: by us, or by the reference. That a host port leads elsewhere for
    /// now, because a newer attachment asked for it as well, is a line in the log.
    ///
    /// # Errors
    /// Code 999, with what is missing.
    pub fn check(&self, owner: &Owner, rules: &Rules) -> Result<()> {
        let own = match &self.through {
            Through::Iptables(iptables) if rules.kind() != Kind::SpoofCheck => iptables.check(owner, rules),
            through => through.nft(|nft| nft.check(owner, rules)),
        };
        let by_iptables = || Iptables::open().and_then(|iptables| iptables.check(owner, rules)).is_ok();
        let is_elsewhere = own.is_err()
            && (reference::has(owner, rules).unwrap_or(false)
                || self.may_fall_back(rules.kind()) && by_iptables());
        if is_elsewhere {
            return Ok(());
        }
        for port in own? {
            cni::warn(&format!(
                "a newer attachment has taken a host port of {owner}; its DEL gives the port back: {port}"
            ));
        }
        Ok(())
    }

    /// What is installed of an attachment through nf_tables, for people: a line such as `map tcp 8080 to 10.1.0.5:80`
    /// each.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn describe(&self, owner: &Owner) -> Result<Vec<String>> {
        self.through.nft(|nft| nft.describe(owner))
    }

    /// Whether iptables may do what nftables cannot.
    fn may_fall_back(&self, kind: Kind) -> bool {
        !self.asked && kind != Kind::SpoofCheck && self.backend() == Backend::Nftables
    }

    fn admit(&self, rules: &Rules) -> Result<()> {
        let here = self.backend();
        match rules.backend() {
            Some(wanted) if wanted != here => Err(Error::config(format!(
                "the conditions or marks work with {wanted} only, but the backend is {here}"
            ))),
            _ => Ok(()),
        }
    }

    fn forget(&self, ports: &HostPorts) -> Result<()> {
        let forwards: Vec<_> = ports.forwards().collect();
        let forgotten = match &self.through {
            Through::Nftables(nft) => conntrack::forget_mapped(nft.socket(), &forwards),
            Through::Iptables(_) => Socket::open(NetlinkProtocol::Netfilter)
                .and_then(|socket| conntrack::forget_mapped(&socket, &forwards)),
        };
        Ok(forgotten
            .map_err(|r| r.during("delete", "the UDP connection tracking entries of the mapped ports"))?)
    }
}

impl Through {
    /// Does something by nftables, whichever backend was chosen.
    fn nft<T>(&self, task: impl FnOnce(&Nft) -> Result<T>) -> Result<T> {
        match self {
            Self::Nftables(nft) => task(nft),
            Self::Iptables(_) => task(&open_nft()?),
        }
    }
}

/// Installs by iptables what the kernel lacks something for in nf_tables.
fn fall_back(owner: &Owner, rules: &Rules, lack: &Error) -> Result<()> {
    let iptables = Iptables::open().map_err(|e| lack.clone().with_code(Code::Internal).detail(e.msg()))?;
    cni::warn(&format!("nftables cannot install the {}, so iptables does: {lack}", rules.kind()));
    iptables.install(owner, rules)
}

fn nftables() -> Result<Through> {
    open_nft().map(Through::Nftables)
}

fn open_nft() -> Result<Nft> {
    let nft = Nft::open().map_err(|r| r.during("open", "nf_tables"));
    nft.map_err(|e| match e {
        e if Nft::is_missing(&e) => Error::from(e)
            .with_code(Code::UnsupportedField)
            .detail("load the kernel module nf_tables, or set the backend to iptables"),
        e => e.into(),
    })
}
