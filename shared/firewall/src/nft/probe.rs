//! What of nf_tables the kernel lacks for rules of ours: parts of it are modules of their own, and NAT in the family inet
//! came with Linux 5.2.

use netlink::{RequestError, Socket};
use nix::errno::Errno;

use super::batch::Batch;
use super::expr::{Expressions, R0};
use super::layout::{Chain, NAT_IN, NAT_OUT, Rule, Table, base_nat};
use super::uapi::*;
use crate::rules::Kind;

/// Never there: the transaction that makes it is always refused.
const PROBE: Table = Table { family: NFPROTO_INET, name: "ferrule-probe" };
const NOWHERE: Table = Table { family: NFPROTO_INET, name: "ferrule-nowhere" };

/// A kernel module, and a rule that needs it.
struct Need {
    module: &'static str,
    hook: u32,
    rule: Expressions,
}

/// The module that the kernel lacks for rules of a kind. None: it has all.
///
/// Nothing is changed: the last step of the transaction fails, after all others were judged. It costs a grace
/// period.
pub(super) fn lacking(socket: &Socket, kind: Kind) -> Result<Option<&'static str>, RequestError> {
    let needs = match kind {
        Kind::Masquerade => vec![masquerade()],
        Kind::HostPorts => vec![masquerade(), address_type(), redirection()],
        Kind::SpoofCheck => return Ok(None),
    };
    first_refused(socket, &needs)
}

fn masquerade() -> Need {
    Need { module: "nft_masq", hook: NAT_OUT, rule: Expressions::new().masquerade() }
}

fn address_type() -> Need {
    Need { module: "nft_fib_inet", hook: NAT_IN, rule: Expressions::new().addressed_here() }
}

fn redirection() -> Need {
    let rule = Expressions::new().family(true).immediate(R0, &[127, 0, 0, 1]).immediate(R0 + 1, &[0, 1]);
    Need { module: "nft_nat", hook: NAT_IN, rule: rule.dnat(true, R0, R0 + 1) }
}

fn first_refused(socket: &Socket, needs: &[Need]) -> Result<Option<&'static str>, RequestError> {
    let mut batch = Batch::new(None);
    batch.add_table(PROBE);
    // Steps are known by the chain that they are about.
    let chains =
        [("nft_chain_nat", NAT_OUT)].into_iter().chain(needs.iter().map(|need| (need.module, need.hook)));
    let chains: Vec<Chain> = chains.map(|(name, hook)| base_nat(name, hook)).collect();
    chains.iter().for_each(|chain| batch.add_chain(PROBE, *chain));
    for (need, chain) in needs.iter().zip(&chains[1..]) {
        batch.add_rule(PROBE, &Rule::new(*chain, "", need.rule.clone()));
    }
    batch.delete_table(NOWHERE);
    let Err((step, refusal)) = batch.commit(socket) else { return Ok(None) };
    match chains.iter().find(|chain| step.ends_with(chain.name)) {
        Some(chain) if is_lack(&refusal) => Ok(Some(chain.name)),
        Some(_) => Err(refusal),
        None if refusal.errno() == Some(Errno::ENOENT) => Ok(None),
        None => Err(refusal),
    }
}

/// Whether a refusal says that the kernel lacks something, if what was asked for names nothing that can be missing.
pub(super) fn is_lack(refusal: &RequestError) -> bool {
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

    fn in_a_namespace(test: impl FnOnce(&Socket) + Send + 'static) {
        let thread = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("the tests need root");
            test(&Socket::open(Protocol::Netfilter).unwrap());
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_kernel_that_has_all_is_left_as_it_was() {
        in_a_namespace(|socket| {
            let before = query::generation(socket).unwrap();
            for kind in [Kind::Masquerade, Kind::HostPorts, Kind::SpoofCheck] {
                assert_eq!(lacking(socket, kind).unwrap(), None);
            }
            assert_eq!(query::generation(socket).unwrap(), before);
        });
    }

    #[test]
    fn the_first_module_that_the_kernel_lacks_is_named() {
        in_a_namespace(|socket| {
            let unknown = Need { module: "nft_nosuch", hook: NAT_IN, rule: Expressions::new().unknown() };
            let needs = [address_type(), unknown, redirection()];
            assert_eq!(first_refused(socket, &needs).unwrap(), Some("nft_nosuch"));
            assert!(!query::has_chain(socket, PROBE, "nft_nosuch").unwrap());
        });
    }
}
