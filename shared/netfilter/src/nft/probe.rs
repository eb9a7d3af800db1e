//! Finds out which part of nf_tables the kernel lacks for Ferrule's rules. Some parts are separate modules, and NAT in
//! the family inet needs Linux 5.2.

use netlink::{RequestError, Socket};
use nix::errno::Errno;

use super::batch::Batch;
use crate::ruleset::uapi::*;
use crate::ruleset::{Chain, Need, Rule, Table};

/// Never exists: the transaction that creates it is always refused.
const PROBE: Table = Table::new(NFPROTO_INET, "ferrule-probe");
const NOWHERE: Table = Table::new(NFPROTO_INET, "ferrule-nowhere");

/// The missing module for rules that need these. None: the kernel has all of them.
///
/// Changes nothing: the last step of the transaction fails after all others were checked. Takes a grace period.
pub(super) fn missing_module(socket: &Socket, needs: &[Need]) -> Result<Option<&'static str>, RequestError> {
    if needs.is_empty() { Ok(None) } else { first_refused(socket, needs) }
}

fn first_refused(socket: &Socket, needs: &[Need]) -> Result<Option<&'static str>, RequestError> {
    let mut batch = Batch::new(None);
    batch.add_table(PROBE);
    // Each step is identified by its chain.
    let first =
        needs.iter().find(|need| need.chain.is_for_nat()).map(|need| need.chain.named("nft_chain_nat"));
    let of_needs = needs.iter().map(|need| need.chain.named(need.module));
    let chains: Vec<Chain> = first.into_iter().chain(of_needs.clone()).collect();
    chains.iter().for_each(|chain| batch.add_chain(PROBE, *chain));
    for (need, chain) in needs.iter().zip(of_needs) {
        batch.add_rule(PROBE, &Rule::new(chain, "", (need.rule)()));
    }
    batch.delete_table(NOWHERE);
    let Err((step, refusal)) = batch.commit(socket) else { return Ok(None) };
    match chains.iter().find(|chain| step.ends_with(chain.name)) {
        Some(chain) if is_missing_part(&refusal) => Ok(Some(chain.name)),
        Some(_) => Err(refusal),
        None if refusal.errno() == Some(Errno::ENOENT) => Ok(None),
        None => Err(refusal),
    }
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
                assert_eq!(missing_module(socket, kind.properties.nftables.needs).unwrap(), None);
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
            assert_eq!(first_refused(socket, &needs).unwrap(), Some("nft_nosuch"));
            assert!(!query::has_chain(socket, PROBE, "nft_nosuch").unwrap());
        });
    }
}
