//! Installing and checking rules through one of the engines.

use std::cell::{Cell, LazyCell, RefCell};
use std::net::IpAddr;

use cni::{Code, Error, NetworkName, Result, ResultExt, Scope, Undo};
use netlink::{Family, Netlink, Protocol, RequestError, Socket};

use crate::backend::Backend;
use crate::conntrack::IsPreceded;
use crate::iptables::Iptables;
use crate::kind::{IptablesRules, Kind, NftablesRules, OwnedRules, Rules};
use crate::nft::{BlockingChain, Nft, Prepared};
use crate::opening::Opening;
use crate::owner::Owner;
use crate::removal::Removal;
use crate::ruleset::{Redirected, Table, TrackedPort};
use crate::selector::Stale;
use crate::{conntrack, iptables};

/// The firewall of the calling thread's namespace, through one backend.
#[derive(Debug)]
pub struct Firewall {
    engine: Engine,
    /// Whether the configuration chose the backend.
    is_explicit: bool,
    /// Why host ports are not in iptables, although kube-proxy's rules there should precede them.
    conflict: Option<Error>,
    /// The backend that has the rules of the last installation or check. None: they are the reference's.
    used: Cell<Option<Backend>>,
}

#[derive(Debug)]
enum Engine {
    Nftables(Nft),
    Iptables(Iptables),
}

impl Firewall {
    /// Opens the firewall through the configured backend. Without one: nftables if the kernel has it, else iptables.
    ///
    /// # Errors
    /// Code 2 if the configured backend is not available, 999 if none is.
    pub fn open(choice: Option<Backend>) -> Result<Self> {
        let iptables = || Iptables::open().map(Engine::Iptables);
        let engine = match choice {
            Some(Backend::Nftables) => nftables()?,
            Some(Backend::Iptables) => iptables().code(Code::UnsupportedField)?,
            None => match nftables() {
                // Only in this case. If the process lacks permission for nftables, rules of the other backend would be
                // unexpected.
                Err(without) if without.code() == Code::UnsupportedField as u32 => {
                    iptables().map_err(|e| without.with_code(Code::Internal).detail(e.msg()))?
                }
                opened => opened?,
            },
        };
        Ok(Self { engine, is_explicit: choice.is_some(), conflict: None, used: Cell::new(None) })
    }

    /// Like [`Firewall::open`], for rules of a kind. Without a configured backend, host ports are in iptables on a node with
    /// kube-proxy in IPVS mode. The addresses of services are the node's own there, and rules in iptables' table nat except
    /// them from redirections. Such rules do not apply to nftables.
    ///
    /// # Errors
    /// As [`Firewall::open`]. Also if the kernel does not report whether the node has the link of such a kube-proxy.
    pub fn open_for(kind: Kind, choice: Option<Backend>) -> Result<Self> {
        if choice.is_some() || !kind.properties.maps_host_ports || !has_ipvs_link()? {
            return Self::open(choice);
        }
        match Iptables::open().map(Engine::Iptables) {
            Ok(engine) => Ok(Self { engine, is_explicit: false, conflict: None, used: Cell::new(None) }),
            Err(without) => Ok(Self { conflict: Some(without), ..Self::open(choice)? }),
        }
    }

    /// STATUS: whether rules of a kind could be installed, and shared rules are unchanged. Takes some microseconds.
    /// Before nftables rules are installed for the first time, it takes a grace period.
    ///
    /// # Errors
    /// Code 50 if rules cannot be installed, or a shared rule was changed.
    pub fn check_available(choice: Option<Backend>, kind: Kind) -> Result<()> {
        let firewall = Self::open_for(kind, choice).code(Code::NotAvailable)?;
        let nft = match &firewall.engine {
            Engine::Nftables(nft) => nft,
            Engine::Iptables(iptables) => {
                let nft = Nft::open().ok();
                let has_chain =
                    |table, chain: &str| nft.as_ref().is_some_and(|nft| nft.has_chain(table, chain));
                return iptables.verify_shared(kind, has_chain).code(Code::NotAvailable);
            }
        };
        let lack =
            nft.missing_module_since_boot(kind).map_err(|r| r.during("test", "the kernel's nf_tables"));
        match lack.code(Code::NotAvailable)? {
            Some(lack) if choice.is_some() => Err(Error::new(Code::NotAvailable, lack)),
            Some(lack) => {
                Iptables::open().map(drop).map_err(|e| e.with_code(Code::NotAvailable).detail(lack))
            }
            None => nft.verify_shared(kind).map_err(|e| e.with_code(Code::NotAvailable)),
        }
    }

    /// Whether the kernel has nf_tables, whichever backend was chosen.
    ///
    /// # Errors
    /// If nf_tables cannot be opened for another reason.
    pub fn has_nftables() -> Result<bool> {
        Ok(Nft::open_if_present()?.is_some())
    }

    /// Whether nf_tables has an attachment's rules of a kind, by either backend.
    ///
    /// # Errors
    /// If the kernel does not list the rules.
    pub fn has(&self, owner: &Owner, kind: Kind) -> Result<bool> {
        self.engine.nft(|nft| nft.has(owner, kind))
    }

    /// Whether iptables-legacy has rules of a kind of other attachments, for IPv4. False if the kernel does not report it.
    ///
    /// # Errors
    /// Code 5 if the names of the tables cannot be read.
    pub fn has_others_in_legacy(owner: &Owner, kind: Kind) -> Result<bool> {
        iptables::legacy::has_others(Family::V4, owner, kind)
    }

    /// A stale attachment of a network that has rules of these kinds in nf_tables. None in a dry run.
    ///
    /// # Errors
    /// If the kernel does not list the rules, or the names of all such attachments are shortened in them.
    pub fn stale_owner(&self, network: &NetworkName, scope: &Scope, kinds: &[Kind]) -> Result<Option<Owner>> {
        let mut labels = Vec::new();
        for kind in kinds {
            let stale = Stale::new(network, scope, kind.properties.name);
            labels.extend(self.engine.nft(|nft| nft.stale_labels(*kind, &stale))?);
        }
        match labels.iter().find_map(|label| Owner::on_network(network, label)) {
            None if !labels.is_empty() => Err(Error::new(
                Code::Internal,
                format!(
                    "no stale attachment of {network} has its whole name in the rules: {}",
                    labels.join(", ")
                ),
            )),
            owner => Ok(owner),
        }
    }

    /// The backend that has the rules which were installed or checked last. It is iptables after an installation for which
    /// the kernel lacks a part of nf_tables. None: they are the reference's rules, or there are none.
    pub fn backend_of_rules(&self) -> Option<Backend> {
        self.used.get()
    }

    /// The backend in which an ADD installs rules of a kind on this host if the configuration names none.
    ///
    /// # Errors
    /// Code 999 if no backend is available, or the kernel's error.
    pub fn default_backend(kind: Kind) -> Result<Backend> {
        let Engine::Nftables(nft) = Self::open_for(kind, None)?.engine else { return Ok(Backend::Iptables) };
        let lack = nft.missing_module_since_boot(kind);
        let lack = lack.map_err(|r| r.during("test", "the kernel's nf_tables"))?;
        Ok(if lack.is_some() { Backend::Iptables } else { Backend::Nftables })
    }

    /// The backend through which the firewall was opened.
    pub fn backend(&self) -> Backend {
        match self.engine {
            Engine::Nftables(_) => Backend::Nftables,
            Engine::Iptables(_) => Backend::Iptables,
        }
    }

    /// Installs an attachment's rules, replacing its rules of the same kind. A newer mapping of a host port takes
    /// precedence over another attachment's, and UDP and SCTP flows to the port are flushed, unless the other attachment
    /// keeps it. Kinds without iptables rules, such as the spoof check and isolation, always use nftables.
    ///
    /// # Errors
    /// Code 7 if the backend does not support the rules. Otherwise the tool's or the kernel's error. Nothing is changed
    /// then.
    pub fn install(&self, owner: &Owner, rules: &dyn Rules, undo: &mut Undo) -> Result<()> {
        self.check_backend(rules)?;
        let (owned, kind) = (owner.clone(), rules.kind());
        if let Some(without) = self.conflict.as_ref().filter(|_| kind.properties.maps_host_ports) {
            warn_of_services(owner, &format!("install the iptables tools, or set hostIP: {without}"));
        }
        // Registered before the change. iptables makes one change for each family, and an nftables change may succeed
        // although its answer is lost.
        undo.push(move || Removal::start().remove(&owned, &[kind]));
        let in_nftables = rules.nftables();
        self.used.set(Some(self.backend()));
        match (&self.engine, rules.iptables()) {
            (Engine::Iptables(iptables), Some(in_iptables)) => {
                iptables.install(owner, kind, in_iptables, may_have_sibling(owner, kind))?;
                // An earlier ADD of a container that has exited without a DEL.
                if kind.properties.maps_host_ports && self.has_records(owner, kind) {
                    Removal::start().remove_replaced(Backend::Nftables, (owner, rules))?;
                }
            }
            (engine, _) => {
                let installed = engine.nft(|nft| nft.install(owner, kind, &in_nftables));
                self.finish((owner, rules), &in_nftables, installed, warn)?;
            }
        }
        self.flush(&[(owner, rules)], conntrack::flush_mapped)
    }

    /// Completes an installation by nftables: falls back to iptables if the kernel lacks a part, and opens the legacy
    /// tables. If `installed` is true, removes the attachment's rules from iptables, which would precede the new ones.
    /// `on_closed` handles the error of a legacy table that cannot be opened. Returns false if the rules are optional, and
    /// the kernel does not support them.
    fn finish(
        &self,
        (owner, rules): OwnedRules<'_>,
        in_nftables: &NftablesRules,
        installed: Result<bool>,
        on_closed: fn(Error) -> Result<()>,
    ) -> Result<bool> {
        match installed {
            Err(e) if e.code() == Code::UnsupportedField as u32 => match rules.iptables() {
                Some(in_iptables) if !self.is_explicit => {
                    fall_back(owner, rules.kind(), in_iptables, &e)?;
                    self.used.set(Some(Backend::Iptables));
                }
                _ if rules.is_optional() => {
                    cni::warn(&format!("the {} rules are not in nftables as well: {e}", rules.kind()));
                    return Ok(false);
                }
                _ => return Err(e),
            },
            installed => {
                if installed? {
                    Removal::start().remove_replaced(Backend::Iptables, (owner, rules))?;
                }
            }
        }
        if let Engine::Nftables(_) = &self.engine {
            iptables::forward::open(in_nftables, on_closed)?;
        }
        Ok(true)
    }

    /// For each attachment, whether its rules are as Ferrule or the reference installed them. The ruleset is listed
    /// once.
    pub(crate) fn are_installed(&self, all: &[OwnedRules<'_>]) -> Vec<bool> {
        let mut installed = vec![false; all.len()];
        let (by_iptables, by_nft): (Vec<_>, Vec<_>) =
            (0..all.len()).partition(|of| self.is_by_iptables(all[*of]));
        let nftables_rules =
            |some: &[OwnedRules<'_>]| self.engine.nft(|nft| nft.are_installed(&Prepared::all(some)));
        note(&mut installed, &by_iptables, all, iptables_rules);
        note(&mut installed, &by_nft, all, nftables_rules);
        if !self.is_explicit {
            let missing = |of: &usize| !installed[*of] && all[*of].1.iptables().is_some();
            let missing: Vec<usize> = (0..all.len()).filter(missing).collect();
            match self.backend() {
                Backend::Nftables => note(&mut installed, &missing, all, iptables_rules),
                Backend::Iptables => note(&mut installed, &missing, all, nftables_rules),
            }
        }
        let reference = Reference::default();
        for (installed, pair) in installed.iter_mut().zip(all).filter(|(installed, _)| !**installed) {
            *installed = reference.has_any(pair.1.kind()) && reference.has(*pair).unwrap_or(false);
        }
        installed
    }

    /// Installs the rules of attachments, oldest first, replacing their existing ones. Returns a result for each: false
    /// for optional rules that the kernel does not support.
    pub(crate) fn install_all(&self, all: &[OwnedRules<'_>]) -> Vec<Result<bool>> {
        // In nftables, they would precede kube-proxy's rules. ADD may have installed them with tools that this process
        // lacks, such as one in a container. Those that are in nftables already stay there.
        let refuse = |(owner, rules): &OwnedRules<'_>| match &self.conflict {
            Some(without)
                if rules.kind().properties.maps_host_ports && !self.has_records(owner, rules.kind()) =>
            {
                Err(without.clone())
            }
            _ => Ok(true),
        };
        let checked = |pair: &OwnedRules<'_>| self.check_backend(pair.1).and_then(|()| refuse(pair));
        let mut outcomes: Vec<Result<bool>> = all.iter().map(checked).collect();
        let admitted = (0..all.len()).filter(|of| outcomes[*of].is_ok());
        let (by_iptables, by_nft): (Vec<_>, Vec<_>) = admitted.partition(|of| self.is_by_iptables(all[*of]));
        let pick = |places: &[usize]| places.iter().map(|of| all[*of]).collect::<Vec<_>>();
        let installed = iptables::repair::install(&pick(&by_iptables));
        for (of, outcome) in by_iptables.iter().zip(installed) {
            outcomes[*of] = outcome.map(|()| true);
        }
        if !by_nft.is_empty() {
            let prepared = Prepared::all(&pick(&by_nft));
            let installed = self.engine.nft(|nft| Ok(nft.install_all(&prepared)));
            let installed = installed.unwrap_or_else(|e| prepared.iter().map(|_| Err(e.clone())).collect());
            for ((of, Prepared { rules, .. }), outcome) in by_nft.into_iter().zip(&prepared).zip(installed) {
                outcomes[of] = self.finish(all[of], rules, outcome, Err);
            }
        }
        // The guard of 127.0.0.1 is installed before the host ports' own one is removed.
        remove_from_nftables(all, &by_iptables, &mut outcomes);
        self.flush_all(all, &mut outcomes);
        outcomes
    }

    fn is_by_iptables(&self, (_, rules): OwnedRules<'_>) -> bool {
        self.backend() == Backend::Iptables && rules.iptables().is_some()
    }

    /// Checks that an attachment's rules are as Ferrule or the reference installed them. If another attachment has one
    /// of its host ports, this is a warning.
    ///
    /// # Errors
    /// Code 999, with the missing rule.
    pub fn check(&self, owner: &Owner, rules: &dyn Rules) -> Result<()> {
        for port in self.taken(owner, rules)? {
            cni::warn(&format!(
                "another attachment uses a host port of {owner}, which gets the port when the other one is \
                 deleted: {port}"
            ));
        }
        let maps_host_ports = rules.kind().properties.maps_host_ports;
        if maps_host_ports
            && self.backend() == Backend::Iptables
            && self.used.get() == Some(Backend::Nftables)
        {
            warn_of_services(
                owner,
                "create the container again: its ADD was before kube-proxy created the link",
            );
        }
        if let Engine::Nftables(nft) = &self.engine {
            let (kind, rules) = (rules.kind(), rules.nftables());
            // Those that were found elsewhere are in iptables, where the newer mapping precedes.
            let is_installed = maps_host_ports && nft.has_records(owner, kind).unwrap_or(false);
            if is_installed && nft.warn_of_iptables(owner, kind, &rules) {
                cni::warn(&format!(
                    "iptables also has host ports of {owner}, of an earlier ADD, which precede those in nftables until its DEL"
                ));
            }
        }
        Ok(())
    }

    /// Like [`Firewall::check`]. Returns the host ports that another attachment has, as `HOLDER has it now: RULE`.
    ///
    /// # Errors
    /// Code 999, with the missing rule.
    pub fn taken(&self, owner: &Owner, rules: &dyn Rules) -> Result<Vec<String>> {
        let (pair, here) = ((owner, rules), self.backend());
        self.used.set(Some(here));
        let taken = match self.taken_in(here, pair) {
            Err(_) if Reference::default().has(pair).unwrap_or(false) => {
                self.used.set(None);
                Vec::new()
            }
            Err(_) if rules.is_optional() && self.lacks_part(rules.kind()) => Vec::new(),
            // Without a configured backend, the state of the host at the time of ADD decided.
            Err(e) if !self.is_explicit && rules.iptables().is_some() => {
                let other = here.other();
                let is_busy = |error: &Error| error.code() == Code::TryAgainLater as u32;
                let is_installed = || other == Backend::Nftables && self.has_records(owner, rules.kind());
                let taken = self.taken_in(other, pair);
                let taken =
                    taken.map_err(|error| if is_busy(&error) || is_installed() { error } else { e })?;
                self.used.set(Some(other));
                taken
            }
            taken => taken?,
        };
        Ok(if rules.kind().properties.maps_host_ports { taken } else { Vec::new() })
    }

    /// Whether the kernel cannot install rules of a kind in nf_tables. False if it does not report this.
    fn lacks_part(&self, kind: Kind) -> bool {
        let lack = self.engine.nft(|nft| {
            nft.missing_module(kind).map_err(|r| r.during("test", "the kernel's nf_tables").into())
        });
        lack.is_ok_and(|lack| lack.is_some())
    }

    /// The same for rules in a backend.
    fn taken_in(&self, backend: Backend, (owner, rules): OwnedRules<'_>) -> Result<Vec<String>> {
        let kind = rules.kind();
        match rules.iptables().filter(|_| backend == Backend::Iptables) {
            Some(rules) => Iptables::open()?.check(owner, kind, rules),
            None => self.engine.nft(|nft| {
                let rules = rules.nftables();
                iptables::forward::verify(&rules.openings)?;
                nft.check(owner, kind, &rules)
            }),
        }
    }

    /// Whether nftables has an attachment's records of a kind. False if the kernel does not report it.
    fn has_records(&self, owner: &Owner, kind: Kind) -> bool {
        self.engine.nft(|nft| nft.has_records(owner, kind)).unwrap_or(false)
    }

    /// Other programs' chains that still drop packets forwarded to and from a container. Only their owners can open
    /// them. Empty if the kernel has no nf_tables. With iptables, allowed packets are not marked, so no rule can open such a
    /// chain.
    ///
    /// # Errors
    /// If the kernel does not list the chains.
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

    /// Other programs' base chains in nf_tables that drop all forwarded packets of some families, except those that one of their rules
    /// accepts. As arguments of `nft list chain`: `ip filter FORWARD`. Empty if the kernel has no nf_tables.
    ///
    /// # Errors
    /// If the kernel does not list the chains.
    pub fn dropping_chains(&self) -> Result<Vec<(String, &'static [Family])>> {
        let list =
            |nft: &Nft| nft.dropping_chains().map_err(|r| r.during("list", "the chains of nf_tables").into());
        match self.engine.nft(list) {
            Err(without) if without.code() == Code::UnsupportedField as u32 => Ok(Vec::new()),
            found => found,
        }
    }

    /// Whether a family's table of legacy iptables drops all forwarded packets except those that one of its conditional rules accepts.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub fn legacy_drops(family: Family) -> Result<bool> {
        iptables::forward::drops_forwarded(family)
    }

    /// The errors of legacy tables that drop marked packets in FORWARD, or may drop them, and whose tools are not installed. ADD warns of
    /// them.
    ///
    /// # Errors
    /// If a table cannot be read.
    pub fn closed_legacy(opening: &Opening, families: &[Family]) -> Result<Vec<Error>> {
        let openings: Vec<_> = families.iter().map(|family| (*family, opening.clone())).collect();
        iptables::forward::closed_without_tools(&openings)
    }

    /// An attachment's nf_tables rules for display: lines such as `map tcp 8080 to 10.1.0.5:80`.
    ///
    /// # Errors
    /// If the kernel does not list the rules.
    pub fn describe(&self, owner: &Owner) -> Result<Vec<String>> {
        let all = self.engine.nft(|nft| Kind::ALL.iter().map(|kind| nft.describe(owner, *kind)).collect());
        all.map(|lines: Vec<Vec<String>>| lines.concat())
    }

    fn check_backend(&self, rules: &dyn Rules) -> Result<()> {
        let here = self.backend();
        match rules.backend() {
            Some(expected) if expected != here => Err(Error::config(format!(
                "conditionsV4, conditionsV6 or externalSetMarkChain require the backend {expected}, but the backend is {here}"
            ))
            .detail(format!(
                "set `backend` to `{expected}`, write the conditions in the syntax of {here}, or remove externalSetMarkChain"
            ))),
            _ => Ok(()),
        }
    }

    /// Flushes the UDP and SCTP flows to the ports of installed rules, unless they already lead to the container. Many of them do
    /// while rules are repaired: the kernel translates the packets of a flow by its entry, also without the rules.
    fn flush_all(&self, all: &[OwnedRules<'_>], outcomes: &mut [Result<bool>]) {
        let mut installed: Vec<usize> = (0..all.len()).filter(|of| outcomes[*of] == Ok(true)).collect();
        installed.retain(|of| !all[*of].1.tracked_ports().is_empty());
        let pairs: Vec<_> = installed.iter().map(|of| all[*of]).collect();
        if let Err(e) = self.flush(&pairs, conntrack::flush_misdirected) {
            installed.into_iter().for_each(|of| outcomes[of] = Err(e.clone()));
        }
    }

    /// Flushes UDP and SCTP flows to the mapped ports of attachments. Ports that another attachment keeps are left alone: an SCTP
    /// association would not survive.
    fn flush(&self, all: &[OwnedRules<'_>], flush: Flush) -> Result<()> {
        let mut ports = Vec::new();
        for pair in all {
            ports.extend(self.flushed_ports(*pair)?);
        }
        let is_preceded = |nft: &Nft, port: &TrackedPort, ip: IpAddr| {
            let mut elements =
                all.iter().filter_map(|(_, rules)| Some((rules.kind(), rules.port_of_address(port, ip)?)));
            elements.next().is_some_and(|(kind, element)| nft.has_element(kind, &element))
        };
        let flushed = match &self.engine {
            _ if ports.is_empty() => Ok(()),
            Engine::Nftables(nft) => flush(nft.socket(), &ports, &|port, ip| is_preceded(nft, port, ip)),
            Engine::Iptables(_) => {
                Socket::open(Protocol::Netfilter).and_then(|socket| flush(&socket, &ports, &|_, _| false))
            }
        };
        Ok(flushed.map_err(|r| r.during("delete", "the connection tracking entries of the mapped ports"))?)
    }

    /// The ports of installed rules whose flows must be flushed: those that no other attachment has.
    fn flushed_ports(&self, (owner, rules): OwnedRules<'_>) -> Result<Vec<TrackedPort>> {
        let (kind, mut ports) = (rules.kind(), rules.tracked_ports());
        if ports.is_empty() {
            return Ok(ports);
        }
        match (&self.engine, rules.iptables()) {
            (Engine::Iptables(iptables), Some(rules)) => {
                if may_have_sibling(owner, kind) {
                    let waiting = iptables.waiting(owner, kind, rules)?;
                    ports
                        .retain(|port| !waiting.iter().any(|waiting| waiting.port == Redirected::from(port)));
                }
                Ok(ports)
            }
            (engine, _) => engine.nft(|nft| {
                let ports = nft.tracked_ports(owner, kind, &rules.nftables());
                ports.map_err(|r| r.during("read", "the host ports of other attachments").into())
            }),
        }
    }
}

/// ADD succeeds although a legacy table cannot be opened.
fn warn(closed: Error) -> Result<()> {
    cni::warn(&closed.to_string());
    Ok(())
}

/// Flushes the flows to ports.
type Flush = fn(&Socket, &[TrackedPort], IsPreceded<'_>) -> Result<(), RequestError>;

impl Engine {
    /// Runs a task with nftables, whichever backend is in use.
    fn nft<T>(&self, task: impl FnOnce(&Nft) -> Result<T>) -> Result<T> {
        match self {
            Self::Nftables(nft) => task(nft),
            Self::Iptables(_) => task(&open_nft(
                "load the kernel module nf_tables: these rules are in nftables, whatever `backend` is",
            )?),
        }
    }
}

/// Stores the results of `look` for the attachments at these indexes. After an error, they keep their values.
fn note<'a>(
    installed: &mut [bool],
    places: &[usize],
    all: &[OwnedRules<'a>],
    look: impl FnOnce(&[OwnedRules<'a>]) -> Result<Vec<bool>>,
) {
    if places.is_empty() {
        return;
    }
    let some: Vec<_> = places.iter().map(|of| all[*of]).collect();
    for (of, is_installed) in places.iter().zip(look(&some).unwrap_or_default()) {
        installed[*of] = is_installed;
    }
}

fn iptables_rules(all: &[OwnedRules<'_>]) -> Result<Vec<bool>> {
    iptables::repair::are_installed(all)
}

/// Looks for the reference's rules, of both its backends and of both variants of iptables.
struct Reference {
    /// Opened on first use. `Ok(None)`: the kernel has no nf_tables.
    nft: LazyCell<netlink::Result<Option<Nft>>>,
    /// The kinds that were looked for, and whether the host has any of the reference's rules of that kind.
    kinds: RefCell<Vec<(Kind, bool)>>,
}

impl Default for Reference {
    fn default() -> Self {
        Self { nft: LazyCell::new(Nft::open_if_present), kinds: RefCell::default() }
    }
}

impl Reference {
    /// Whether the host may have any of the reference's rules of a kind. Most hosts have none, so that thousands of
    /// attachments need not be checked.
    fn has_any(&self, kind: Kind) -> bool {
        if let Some((_, has_any)) = self.kinds.borrow().iter().find(|(known, _)| *known == kind) {
            return *has_any;
        }
        let in_nft = match &*self.nft {
            Ok(nft) => nft.as_ref().is_some_and(|nft| nft.has_any_of_reference(kind).unwrap_or(true)),
            Err(_) => true,
        };
        let has_any = in_nft || iptables::legacy::has_any_of_reference(kind).unwrap_or(true);
        self.kinds.borrow_mut().push((kind, has_any));
        has_any
    }

    /// Whether the rules of an attachment exist.
    fn has(&self, (owner, rules): OwnedRules<'_>) -> Result<bool> {
        let nft = self.nft.as_ref().map_err(|e| Error::new(Code::Internal, e.to_string()))?;
        if let (Some(nft), Some(reference)) = (nft, rules.reference()) {
            let found = nft.has_reference(owner, reference);
            if found.map_err(|r| r.during("look for", "rules of containernetworking/plugins"))? {
                return Ok(true);
            }
        }
        iptables::legacy::has_reference(owner, rules)
    }
}

/// Installs rules by iptables, because the kernel lacks a part of nf_tables.
fn fall_back(owner: &Owner, kind: Kind, rules: &dyn IptablesRules, lack: &Error) -> Result<()> {
    let iptables = Iptables::open().map_err(|e| lack.clone().with_code(Code::Internal).detail(e.msg()))?;
    cni::warn(&format!(
        "the kernel cannot install the {kind} rules in nftables, so iptables is used: {lack}"
    ));
    iptables.install(owner, kind, rules, may_have_sibling(owner, kind))
}

/// Removes the host ports of attachments from nftables after they were installed in iptables. Their ADD was before kube-proxy changed to
/// IPVS mode.
fn remove_from_nftables(all: &[OwnedRules<'_>], by_iptables: &[usize], outcomes: &mut [Result<bool>]) {
    let removal = LazyCell::new(Removal::start);
    for of in by_iptables.iter().copied().filter(|of| all[*of].1.kind().properties.maps_host_ports) {
        if outcomes[of].is_ok()
            && let Err(e) = removal.remove_replaced(Backend::Nftables, all[of])
        {
            outcomes[of] = Err(e);
        }
    }
}

/// Whether the container may have host ports of another attachment in iptables.
fn may_have_sibling(owner: &Owner, kind: Kind) -> bool {
    let Some(properties) = kind.iptables().filter(|_| kind.properties.maps_host_ports) else { return false };
    let Some(shared) = &properties.shared else { return false };
    let nft = Nft::open().ok();
    Family::ALL.into_iter().any(|family| {
        let table = Table::of_iptables(family, properties.table);
        nft.as_ref().is_some_and(|nft| nft.may_have_sibling(table, shared.entry, owner))
            || iptables::legacy::may_have_sibling(family, properties.table, owner)
    })
}

/// The link with the addresses of all services on a node with kube-proxy in IPVS mode.
const IPVS_LINK: &str = "kube-ipvs0";

/// Warns that an attachment's host ports are in nftables on a node with kube-proxy in IPVS mode.
fn warn_of_services(owner: &Owner, remedy: &str) {
    cni::warn(&format!(
        "the host ports of {owner} may redirect connections to services of Kubernetes: this node has the link {IPVS_LINK} \
         of kube-proxy's IPVS mode, so their addresses are the node's own, and kube-proxy's rules in iptables do not apply \
         to nftables; {remedy}"
    ));
}

fn has_ipvs_link() -> Result<bool> {
    Ok(Netlink::open()?.link(IPVS_LINK)?.is_some())
}

fn nftables() -> Result<Engine> {
    open_nft("load the kernel module nf_tables, or set the backend to iptables").map(Engine::Nftables)
}

/// Opens nf_tables. If the kernel has none, the error contains the remedy.
fn open_nft(remedy: &str) -> Result<Nft> {
    let nft = Nft::open().map_err(|r| r.during("open", "nf_tables"));
    nft.map_err(|e| match e {
        e if Nft::is_missing(&e) => Error::from(e).with_code(Code::UnsupportedField).detail(remedy),
        e => e.into(),
    })
}
