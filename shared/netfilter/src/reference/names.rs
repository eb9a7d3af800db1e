//! The reference's names (v1.9.1: pkg/utils/utils.go, pkg/ip/ipmasq_*, plugins/meta/portmap).

use sha2::{Digest, Sha512};

use crate::owner::Owner;

/// The iptables chain of a container's rules, with a prefix.
pub(crate) fn chain(owner: &Owner, prefix: &str) -> String {
    format!("{prefix}{}", &sha512(&[owner.network(), owner.container()])[..28 - prefix.len()])
}

/// Whether a chain's name has this form.
pub(crate) fn is_chain(chain: &str, prefix: &str) -> bool {
    chain.strip_prefix(prefix).is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether an iptables chain may be the reference's, by its name.
pub(crate) fn is_any_chain(chain: &str) -> bool {
    chain.starts_with("CNI-")
}

/// The network and container in a comment of its iptables rules: `dnat name: "NET" id: "ID"`.
pub(crate) fn in_comment(comment: &str) -> Option<(&str, &str)> {
    let comment = comment.strip_prefix("dnat ").unwrap_or(comment);
    comment.strip_prefix("name: \"")?.strip_suffix('"')?.split_once("\" id: \"")
}

/// A network in the comments of the reference's nftables rules.
pub(crate) fn network(network: &str) -> String {
    hash(&[network])
}

/// A container's interface in the comments of the reference's nftables rules.
pub(crate) fn instance(owner: &Owner) -> String {
    hash(&[owner.ifname(), ":", owner.container()])
}

fn hash(texts: &[&str]) -> String {
    sha512(texts)[..16].to_owned()
}

/// In hexadecimal, of concatenated texts.
fn sha512(texts: &[&str]) -> String {
    Sha512::digest(texts.concat()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::tests::owner;

    #[test]
    fn the_references_names_are_known() {
        // From its own tests: pkg/utils/utils_test.go, plugins/meta/portmap/portmap_iptables_test.go.
        assert_eq!(chain(&owner("test", "1234", "eth0"), "CNI-"), "CNI-2bbe0c48b91a7d1b8a6753a8");
        assert_eq!(chain(&owner("test", "abc123", "eth0"), "CNI-DN-").len(), 28);
    }
}
