//! Finds out which part of nf_tables the kernel lacks for Ferrule's rules. Some parts are separate modules, and NAT in
//! the family inet needs Linux 5.2.

use netlink::{RequestError, Socket};
use nix::errno::Errno;

use super::batch::Batch;
use crate::ruleset::uapi::*;
use crate::ruleset::{Chain, Need, Rule, Table};

/// Never exist: the transaction that creates the first one is always refused.
const PROBE: &str = "ferrule-probe";
const NOWHERE: &str = "ferrule-nowhere";

/// The part that the kernel lacks for tables of a family with rules that need these modules. None: it has all of them.
///
/// Changes nothing: the last step of the transaction fails after all others were checked. Takes a grace period.
pub(super) fn missing_part(
    socket: &Socket,
    family: u8,
    needs: &[Need],
) -> Result<Option<&'static str>, RequestError> {
    let (mut batch, probe) = (Batch::new(None), Table::new(family, PROBE));
    batch.add_table(probe);
    // Each step is identified by its chain.
    let first =
        needs.iter().find(|need| need.chain.is_for_nat()).map(|need| need.chain.named("nft_chain_nat"));
    let of_needs = needs.iter().map(|need| need.chain.named(need.module));
    let chains: Vec<Chain> = first.into_iter().chain(of_needs.clone()).collect();
    chains.iter().for_each(|chain| batch.add_chain(probe, *chain));
    for (need, chain) in needs.iter().zip(of_needs) {
        batch.add_rule(probe, &Rule::new(chain, "", (need.rule)()));
    }
    batch.delete_table(Table::new(family, NOWHERE));
    let Err((step, refusal)) = batch.commit(socket) else { return Ok(None) };
    match chains.iter().find(|chain| step.ends_with(chain.name)) {
        Some(chain) if is_missing_part(&refusal) => Ok(Some(chain.name)),
        Some(_) => Err(refusal),
        None if refusal.errno() == Some(Errno::ENOENT) => Ok(None),
        None if step.ends_with(PROBE) && is_missing_part(&refusal) => Ok(Some(option_of(family))),
        None => Err(refusal),
    }
}

/// The option of the kernel's configuration for tables of a family.
fn option_of(family: u8) -> &'static str {
    if family == NFPROTO_BRIDGE { "CONFIG_NF_TABLES_BRIDGE" } else { "CONFIG_NF_TABLES_INET" }
}

/// Whether an error means that the kernel lacks a part, if all objects in the request exist.
pub(super) fn is_missing_part(refusal: &RequestError) -> bool {
    matches!(
        refusal.errno(),
        Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT | Errno::EPROTONOSUPPORT)
    )
}

#[cfg(test)]
mod tests {
    use netlink::Protocol;
    use nix::sched::{CloneFlags, unshare};

    use super::super::query;
    use super::*;
    use crate::kind::Kind;
    use crate::ruleset::{Expressions, NAT_IN};

    fn in_a_namespace(test: impl FnOnce(&Socket) + Send + 'static) {
        let thread = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("the tests need root");
            test(&Socket::open(Protocol::Netfilter).unwrap());
        });
        thread.join().unwrap();
    }

    #[test]
    fn probing_a_complete_kernel_changes_nothing() {
        in_a_namespace(|socket| {
            let before = query::generation(socket).unwrap();
            for kind in Kind::ALL {
                let nftables = &kind.properties.nftables;
                assert_eq!(missing_part(socket, nftables.table.family, nftables.needs).unwrap(), None);
            }
            assert_eq!(query::generation(socket).unwrap(), before);
        });
    }

    #[test]
    fn the_first_module_that_the_kernel_lacks_is_named() {
        in_a_namespace(|socket| {
            let need = |module, rule| Need { module, chain: Chain::nat("to", NAT_IN), rule };
            let here = need("nft_fib_inet", || Expressions::new().addressed_here());
            let unknown = need("nft_nosuch", || Expressions::new().unknown());
            let needs = [here, unknown, need("nft_masq", || Expressions::new().masquerade())];
            assert_eq!(missing_part(socket, NFPROTO_INET, &needs).unwrap(), Some("nft_nosuch"));
            assert!(!query::has_chain(socket, Table::new(NFPROTO_INET, PROBE), "nft_nosuch").unwrap());
        });
    }

    /// As the family bridge of a kernel without CONFIG_NF_TABLES_BRIDGE.
    #[test]
    fn a_family_that_the_kernel_lacks_is_missing_also_for_rules_that_need_no_module() {
        const NFPROTO_DECNET: u8 = 12;
        in_a_namespace(|socket| assert!(missing_part(socket, NFPROTO_DECNET, &[]).unwrap().is_some()));
    }
}
