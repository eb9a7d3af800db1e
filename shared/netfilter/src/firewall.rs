//! The installation of rules by one of the engines.

use cni::{Code, Error, Result, ResultExt, Undo};
use netlink::{Family, Protocol, Socket};

use crate::backend::Backend;
use crate::iptables::Iptables;
use crate::kind::{IptablesRules, Kind, NftablesRules, Rules};
use crate::nft::{BlockingChain, Nft};
use crate::owner::Owner;
use crate::removal::Removal;
use crate::ruleset::UdpPort;
use crate::{conntrack, iptables, reference};

/// The firewall of the calling thread's namespace, through one backend.
#[derive(Debug)]
pub struct Firewall {
    engine: Engine,
    /// Whether the backend was asked for by name.
    asked: bool,
}

#[derive(Debug)]
enum Engine {
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
        let iptables = || Iptables::open().map(Engine::Iptables);
        let engine = match choice {
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
        Ok(Self { engine, asked: choice.is_some() })
    }

    /// Whether rules of a kind could be installed now (STATUS). It costs some microseconds; a grace period until the first rules
    /// were installed by nftables.
    ///
    /// # Errors
    /// Code 50 if not.
    pub fn available(choice: Option<Backend>, kind: Kind) -> Result<()> {
        let firewall = Self::open(choice).code(Code::NotAvailable)?;
        let Engine::Nftables(nft) = &firewall.engine else { return Ok(()) };
        let lack = nft.lack_since_boot(kind).map_err(|r| r.during("ask", "nf_tables"));
        match lack.code(Code::NotAvailable)? {
            Some(lack) if choice.is_some() => Err(Error::new(Code::NotAvailable, lack)),
            Some(lack) => {
                Iptables::open().map(drop).map_err(|e| e.with_code(Code::NotAvailable).detail(lack))
            }
            None => nft.verify_shared(kind).map_err(|e| e.with_code(Code::NotAvailable)),
        }
    }

    /// The backend that was chosen.
    pub fn backend(&self) -> Backend {
        match self.engine {
            Engine::Nftables(_) => Backend::Nftables,
            Engine::Iptables(_) => Backend::Iptables,
        }
    }

    /// Installs an attachment's rules, in place of those of the same kind that it may have. A newer mapping
    /// of a host port replaces an older attachment's, and UDP flows to it are flushed. The spoof check is
    /// always nftables'.
    ///
    /// # Errors
    /// Code 7 if the backend cannot do what the rules ask for; else what was refused. Nothing is changed
    /// then.
    pub fn install(&self, owner: &Owner, rules: &dyn Rules, undo: &mut Undo) -> Result<()> {
        self.admit(rules)?;
        let (owned, kind) = (owner.clone(), rules.kind());
        // Before the change: iptables makes one for each family, and nftables' may be made though its answer was lost.
        undo.push(move || Removal::start().remove(&owned, &[kind]));
        let in_nftables = rules.nftables();
        match (&self.engine, rules.iptables()) {
            (Engine::Iptables(iptables), Some(rules)) => iptables.install(owner, kind, rules)?,
            (engine, in_iptables) => match engine.nft(|nft| nft.install(owner, kind, &in_nftables)) {
                Err(e) if e.code() == Code::UnsupportedField as u32 => match in_iptables {
                    Some(rules) if !self.asked => fall_back(owner, kind, rules, &e)?,
                    _ => return Err(e),
                },
                installed => installed?,
            },
        }
        if let Engine::Nftables(_) = &self.engine {
            iptables::forward::open(&in_nftables.openings)?;
        }
        self.flush(&in_nftables)
    }

    /// Installs an attachment's rules if they are not as they were installed; with `reinstall` in any case. Whether it did.
    ///
    /// # Errors
    /// As [`Firewall::install`].
    pub fn repair(&self, owner: &Owner, rules: &dyn Rules, reinstall: bool, undo: &mut Undo) -> Result<bool> {
        if !reinstall && self.check(owner, rules).is_ok() {
            return Ok(false);
        }
        self.install(owner, rules, undo).map(|()| true)
    }

    /// Whether an attachment's rules are as they were installed: by us, or by the reference. That a host port leads elsewhere for
    /// now, because a newer attachment asked for it as well, is a line in the log.
    ///
    /// # Errors
    /// Code 999, with what is missing.
    pub fn check(&self, owner: &Owner, rules: &dyn Rules) -> Result<()> {
        for port in self.taken(owner, rules)? {
            cni::warn(&format!(
                "a newer attachment has taken a host port of {owner}; its DEL gives the port back: {port}"
            ));
        }
        Ok(())
    }

    /// The same. The host ports that a newer attachment has taken are returned, as `HOLDER has it now: RULE`.
    ///
    /// # Errors
    /// Code 999, with what is missing.
    pub fn taken(&self, owner: &Owner, rules: &dyn Rules) -> Result<Vec<String>> {
        let (kind, in_iptables) = (rules.kind(), rules.iptables());
        let own = match (&self.engine, in_iptables) {
            (Engine::Iptables(iptables), Some(rules)) => iptables.check(owner, kind, rules),
            (engine, _) => engine.nft(|nft| {
                let rules = rules.nftables();
                iptables::forward::verify(&rules.openings)?;
                nft.check(owner, kind, &rules)
            }),
        };
        let by_iptables =
            |rules| Iptables::open().and_then(|iptables| iptables.check(owner, kind, rules)).is_ok();
        let is_elsewhere = || {
            let may_fall_back = !self.asked && self.backend() == Backend::Nftables;
            reference::has(owner, rules).unwrap_or(false)
                || may_fall_back && in_iptables.is_some_and(by_iptables)
        };
        if own.is_err() && is_elsewhere() {
            return Ok(Vec::new());
        }
        own.map(|waiting| if kind.facts.redirects { waiting } else { Vec::new() })
    }

    /// The chains of others that drop what is forwarded to and from a container all the same: only whoever made them can open
    /// them. None, where the kernel has no nf_tables. iptables marks no packets: no rule by mark opens
    /// a chain for it.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn blocking_chains(&self, bit: u8, families: &[Family]) -> Result<Vec<BlockingChain>> {
        let bit = Some(bit).filter(|_| self.backend() == Backend::Nftables);
        let found = self.engine.nft(|nft| {
            nft.blocking_chains(bit).map_err(|r| r.during("list", "the chains of nf_tables").into())
        });
        let mut blocking = match found {
            Err(without) if without.code() == Code::UnsupportedField as u32 => return Ok(Vec::new()),
            found => found?,
        };
        blocking.retain(|chain| families.iter().any(|family| chain.is_for(*family)));
        Ok(blocking)
    }

    /// The base chains of others in nf_tables that drop every forwarded packet which none of their rules accepts, as `nft list
    /// chain` takes them: `ip filter FORWARD`. Empty where the kernel has no nf_tables.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn dropping_chains(&self) -> Result<Vec<String>> {
        let list =
            |nft: &Nft| nft.dropping_chains().map_err(|r| r.during("list", "the chains of nf_tables").into());
        match self.engine.nft(list) {
            Err(without) if without.code() == Code::UnsupportedField as u32 => Ok(Vec::new()),
            found => found,
        }
    }

    /// What is installed of an attachment through nf_tables, for people: a line such as `map tcp 8080 to 10.1.0.5:80`
    /// each.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn describe(&self, owner: &Owner) -> Result<Vec<String>> {
        let all = self.engine.nft(|nft| Kind::ALL.iter().map(|kind| nft.describe(owner, *kind)).collect());
        all.map(|lines: Vec<Vec<String>>| lines.concat())
    }

    fn admit(&self, rules: &dyn Rules) -> Result<()> {
        let here = self.backend();
        match rules.backend() {
            Some(wanted) if wanted != here => Err(Error::config(format!(
                "the conditions or marks work with {wanted} only, but the backend is {here}"
            ))),
            _ => Ok(()),
        }
    }

    /// Flushes the UDP flows to the ports that are newly mapped.
    fn flush(&self, rules: &NftablesRules) -> Result<()> {
        let ports: Vec<UdpPort> = rules.records.iter().filter_map(|record| record.udp).collect();
        let flushed = match &self.engine {
            _ if ports.is_empty() => Ok(()),
            Engine::Nftables(nft) => conntrack::flush_mapped(nft.socket(), &ports),
            Engine::Iptables(_) => {
                Socket::open(Protocol::Netfilter).and_then(|socket| conntrack::flush_mapped(&socket, &ports))
            }
        };
        Ok(flushed
            .map_err(|r| r.during("delete", "the UDP connection tracking entries of the mapped ports"))?)
    }
}

impl Engine {
    /// Does something by nftables, whichever backend was chosen.
    fn nft<T>(&self, task: impl FnOnce(&Nft) -> Result<T>) -> Result<T> {
        match self {
            Self::Nftables(nft) => task(nft),
            Self::Iptables(_) => {
                task(&open_nft("load the kernel module nf_tables, which has these rules with any backend")?)
            }
        }
    }
}

/// Installs by iptables what the kernel lacks something for in nf_tables.
fn fall_back(owner: &Owner, kind: Kind, rules: &dyn IptablesRules, lack: &Error) -> Result<()> {
    let iptables = Iptables::open().map_err(|e| lack.clone().with_code(Code::Internal).detail(e.msg()))?;
    cni::warn(&format!("nftables cannot install the {kind}, so iptables does: {lack}"));
    iptables.install(owner, kind, rules)
}

fn nftables() -> Result<Engine> {
    open_nft("load the kernel module nf_tables, or set the backend to iptables").map(Engine::Nftables)
}

/// With what is to be done where the kernel has no nf_tables.
fn open_nft(remedy: &str) -> Result<Nft> {
    let nft = Nft::open().map_err(|r| r.during("open", "nf_tables"));
    nft.map_err(|e| match e {
        e if Nft::is_missing(&e) => Error::from(e).with_code(Code::UnsupportedField).detail(remedy),
        e => e.into(),
    })
}
