//! Firewall rules of attachments as data, applied in one transaction: masquerade, host ports, spoof check.
//!
//! [`Firewall`] installs and checks [`Rules`], with one of two backends: nftables over netlink, or iptables through its own
//! restore tool. [`Sweep`] removes them, whichever backend installed them, by their [`Owner`] alone: (network, container,
//! interface), without addresses or namespaces.

#![warn(missing_docs)]

mod conditions;
mod conntrack;
mod nft;
mod owner;
mod rules;

use std::fmt;
use std::str::FromStr;

use cni::{Attachment, Code, Error, NetworkName, Result, ResultExt, Undo};

pub use conditions::Conditions;
pub use owner::Owner;
pub use rules::{
    ChainName, HostPort, HostPorts, Kind, Mark, Masquerade, Protocol, Rules, SourceNat, SpoofCheck,
};

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
    nft: Nft,
}

impl Firewall {
    /// Opens the firewall through the backend that is asked for; else nftables if the kernel has it, else iptables.
    ///
    /// # Errors
    /// Code 2 if the backend that is asked for is not there, 999 if there is none at all.
    pub fn open(choice: Option<Backend>) -> Result<Self> {
        let nft = Nft::open().map_err(|r| r.during("open", "nf_tables"));
        let hint = "load the module nf_tables, or use the iptables backend";
        let code = if choice.is_some() { Code::UnsupportedField } else { Code::Internal };
        Ok(Self { nft: nft.hint(hint).code(code)? })
    }

    /// Whether rules could be installed now (STATUS). It costs some microseconds.
    ///
    /// # Errors
    /// Code 50 if not.
    pub fn available(choice: Option<Backend>) -> Result<()> {
        Self::open(choice).map(drop).code(Code::NotAvailable)
    }

    /// The backend that was chosen.
    pub fn backend(&self) -> Backend {
        Backend::Nftables
    }

    /// Installs an attachment's rules, in place of those of the same kind that it may have. A newer mapping of a host port
    /// replaces an older attachment's.
    ///
    /// # Errors
    /// Code 7 if the backend cannot do what the rules ask for; else what was refused. Nothing is changed then.
    pub fn install(&self, owner: &Owner, rules: &Rules, undo: &mut Undo) -> Result<()> {
        if let Some(wanted) = rules.backend().filter(|wanted| *wanted != self.backend()) {
            return Err(Error::config(format!(
                "the rules are in the words of {wanted}, the backend is {}",
                self.backend()
            )));
        }
        self.nft.install(owner, rules)?;
        let (owner, kind) = (owner.clone(), rules.kind());
        undo.push(move || Sweep::start().remove(&owner, kind));
        Ok(())
    }

    /// Whether an attachment's rules are as they were installed.
    ///
    /// # Errors
    /// Code 999, with what misses.
    pub fn check(&self, owner: &Owner, rules: &Rules) -> Result<()> {
        self.nft.check(owner, rules)
    }
}

/// The removal of rules, whichever backend installed them.
///
/// Dropping it waits for the kernel's grace period, 12 to 24 ms, as deleting a link does. Keep it until links are
/// deleted as well: then both wait at once.
#[derive(Debug)]
pub struct Sweep {
    nft: Option<Nft>,
}

impl Sweep {
    /// Begins. On a host without any firewall there is nothing to remove.
    pub fn start() -> Self {
        Self { nft: Nft::open().ok() }
    }

    /// Removes an attachment's rules of a kind.
    ///
    /// # Errors
    /// What was refused. That there are none is fine.
    pub fn remove(&self, owner: &Owner, kind: Kind) -> Result<()> {
        if let Some(nft) = &self.nft {
            nft.remove(owner, kind)?;
        }
        Ok(())
    }

    /// Removes the rules of a kind of all attachments of a network but the valid ones (GC).
    ///
    /// # Errors
    /// What was refused.
    pub fn retain(&self, network: &NetworkName, kind: Kind, valid: &[Attachment]) -> Result<()> {
        let valid: Vec<Owner> = valid.iter().map(|at| Owner::new(network, at)).collect();
        if let Some(nft) = &self.nft {
            nft.retain(network, kind, &valid)?;
        }
        Ok(())
    }
}
