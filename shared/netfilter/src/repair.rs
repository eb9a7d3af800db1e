//! REPAIR of many attachments: lists the ruleset once, and installs all missing rules together.

use std::collections::BTreeMap;

use cni::repair::Claims;
use cni::{Check, Repair, Result, Undo};

use crate::backend::Backend;
use crate::firewall::Firewall;
use crate::kind::{OwnedRules, Rules};
use crate::owner::Owner;
use crate::removal::Removal;

/// Rules that ADD installed for an attachment.
#[derive(Debug)]
pub struct Expected {
    /// The owner.
    pub owner: Owner,
    /// The rules.
    pub rules: Box<dyn Rules>,
    /// The backend that the configuration names.
    pub backend: Option<Backend>,
}

impl Expected {
    fn pair(&self) -> OwnedRules<'_> {
        (&self.owner, &*self.rules)
    }
}

/// The rules of each attachment, by its index.
type ByPlace<'a> = BTreeMap<usize, Vec<&'a Expected>>;

/// The firewall of each configured backend.
type Firewalls = Vec<(Option<Backend>, Result<Firewall>)>;

/// Installs rules that are not as ADD installed them. Returns a result for each attachment, oldest first: whether
/// anything was missing.
///
/// `is_attached` checks that the container still has the interface. It is called before and after the installation: if
/// the container has exited meanwhile, its rules are removed again.
///
/// # Errors
/// The errors of the two closures and of the installation.
pub fn repair<C>(
    calls: &[Repair<C>],
    expected: impl Fn(&Repair<C>) -> Result<Vec<Expected>>,
    is_attached: impl Fn(&Check<C>) -> Result<()>,
) -> Vec<Result<bool>> {
    let nothing = |repaired: &[&Repair<C>]| repaired.iter().map(|_| (Undo::new(), Ok(()))).collect();
    repair_with(calls, expected, is_attached, nothing)
}

/// Like [`repair`], and then calls `restore` for each attachment whose rules were installed. Returns a result for each
/// of them, with an undo function in case its container has exited meanwhile.
///
/// # Errors
/// The errors of the closures and of the installation.
pub fn repair_with<C>(
    calls: &[Repair<C>],
    expected: impl Fn(&Repair<C>) -> Result<Vec<Expected>>,
    is_attached: impl Fn(&Check<C>) -> Result<()>,
    restore: impl FnOnce(&[&Repair<C>]) -> Vec<(Undo, Result<()>)>,
) -> Vec<Result<bool>> {
    let expected: Vec<Result<Vec<Expected>>> = calls.iter().map(expected).collect();
    let all: ByPlace<'_> = expected
        .iter()
        .enumerate()
        .filter_map(|(of, all)| Some((of, all.as_ref().ok()?.iter().collect())))
        .collect();
    let mut outcomes: Vec<Result<bool>> =
        expected.iter().map(|all| all.as_ref().map(|_| false).map_err(Clone::clone)).collect();
    let firewalls = open(&all);
    let mut missing = missing(&all, calls, &firewalls);
    missing.retain(|of, _| is_attached(&calls[*of].check).map_err(|gone| outcomes[*of] = Err(gone)).is_ok());
    for (backend, firewall) in &firewalls {
        install(*backend, firewall, &missing, &mut outcomes);
    }
    let repaired: Vec<usize> = missing.keys().copied().filter(|of| outcomes[*of] == Ok(true)).collect();
    let restored = restore(&repaired.iter().map(|of| &calls[*of]).collect::<Vec<_>>());
    let mut restored: BTreeMap<usize, _> = repaired.into_iter().zip(restored).collect();
    for (of, rules) in missing {
        let (undo, outcome) = restored.remove(&of).unwrap_or_else(|| (Undo::new(), Ok(())));
        match is_attached(&calls[of].check) {
            Err(gone) => outcomes[of] = Err(remove(&rules).unwind_after(undo.unwind_after(gone))),
            Ok(()) => {
                undo.commit();
                outcomes[of] = outcome.and(outcomes[of].clone());
            }
        }
    }
    outcomes
}

fn open(all: &ByPlace<'_>) -> Firewalls {
    let backends = [None, Some(Backend::Nftables), Some(Backend::Iptables)];
    let open = |backend: Option<Backend>| {
        let kinds = all.values().flatten().filter(|one| one.backend == backend).map(|one| one.rules.kind());
        // Host ports decide, because the other kinds in their attachments have only one backend.
        let kind = kinds.max_by_key(|kind| kind.properties.maps_host_ports)?;
        Some((backend, Firewall::open_for(kind, backend)))
    };
    backends.into_iter().filter_map(open).collect()
}

/// The rules that are not as ADD installed them, and the rules of newer attachments whose claims those exclude.
fn missing<'a, C>(all: &ByPlace<'a>, calls: &[Repair<C>], firewalls: &Firewalls) -> ByPlace<'a> {
    let mut missing = ByPlace::new();
    for (backend, firewall) in firewalls {
        let (places, rules) = of_backend(all, *backend);
        let installed = match firewall {
            Ok(firewall) => firewall.are_installed(&rules.iter().map(|one| one.pair()).collect::<Vec<_>>()),
            Err(_) => vec![false; rules.len()],
        };
        for ((of, one), _) in places.into_iter().zip(rules).zip(installed).filter(|(_, installed)| !installed)
        {
            missing.entry(of).or_default().push(one);
        }
    }
    let mut claimed = Claims::default();
    for ((of, rules), call) in all.iter().map(|(of, rules)| ((*of, rules), &calls[*of])) {
        if call.reinstall || call.claims.iter().any(|claim| claimed.exclude(claim)) {
            missing.insert(of, rules.clone());
        }
        if missing.contains_key(&of) {
            claimed.extend(call.claims.iter().cloned());
        }
    }
    missing.retain(|_, rules| !rules.is_empty());
    missing
}

/// Installs the rules of a backend, oldest attachment first.
fn install(
    backend: Option<Backend>,
    firewall: &Result<Firewall>,
    missing: &ByPlace<'_>,
    outcomes: &mut [Result<bool>],
) {
    let (places, rules) = of_backend(missing, backend);
    let installed = match firewall {
        Ok(firewall) => firewall.install_all(&rules.iter().map(|one| one.pair()).collect::<Vec<_>>()),
        Err(e) => rules.iter().map(|_| Err(e.clone())).collect(),
    };
    for (of, installed) in places.into_iter().zip(installed) {
        match installed {
            Ok(is_installed) => outcomes[of].iter_mut().for_each(|repaired| *repaired |= is_installed),
            Err(e) => outcomes[of] = Err(e),
        }
    }
}

fn of_backend<'a>(all: &ByPlace<'a>, backend: Option<Backend>) -> (Vec<usize>, Vec<&'a Expected>) {
    let each = all.iter().flat_map(|(of, rules)| rules.iter().map(|one| (*of, *one)));
    each.filter(|(_, one)| one.backend == backend).unzip()
}

fn remove(rules: &[&Expected]) -> Undo {
    let mut undo = Undo::new();
    for one in rules {
        let (owner, kind) = (one.owner.clone(), one.rules.kind());
        undo.push(move || Removal::start().remove(&owner, &[kind]));
    }
    undo
}
