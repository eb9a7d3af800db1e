//! flanneld's settings for this host, usually in /run/flannel/subnet.env.

use std::path::Path;

use cni::addr::parse_cidr;
use cni::{Code, Error, Result, ResultExt};
use ipnetwork::IpNetwork;
use system::file;

/// Maximum size in bytes. flanneld writes about two hundred.
const LARGEST: u64 = 64 << 10;

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// Networks of all hosts, IPv4 first: the lists FLANNEL_NETWORK and FLANNEL_IPV6_NETWORK.
    pub networks: Vec<IpNetwork>,
    /// Subnets of this host, at most one of each family, IPv4 first: FLANNEL_SUBNET and FLANNEL_IPV6_SUBNET.
    pub subnets: Vec<IpNetwork>,
    /// MTU in bytes for packets to other hosts: FLANNEL_MTU.
    pub mtu: u32,
    /// Whether flanneld masquerades containers: FLANNEL_IPMASQ.
    pub ip_masq: bool,
}

impl Subnet {
    /// Reads the file.
    ///
    /// # Errors
    /// Code 11 if it is missing or incomplete, 6 for an invalid value, 5 if it cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let text = file::read(path, LARGEST).map_err(|e| {
            let error = Error::io(format!("open subnetFile {}", path.display()), &e);
            match e.kind() {
                std::io::ErrorKind::NotFound => awaited(error),
                _ => error,
            }
        })?;
        Self::parse(&String::from_utf8_lossy(&text)).context(|| format!("subnetFile {}", path.display()))
    }

    /// Parses one shell assignment per line. Unknown lines are ignored.
    ///
    /// # Errors
    /// Code 11 for missing variables, 6 for an invalid value; the message names the variable.
    pub fn parse(text: &str) -> Result<Self> {
        let value = |name: &str| {
            let mut lines = text.lines().rev().filter_map(|line| line.split_once('='));
            lines.find(|(key, _)| key.trim() == name).map(|(_, v)| v.trim()).filter(|v| !v.is_empty())
        };
        let list = |name: &str, is_v4: bool| {
            let items = value(name).into_iter().flat_map(|list| list.split(',')).map(str::trim);
            items
                .map(|item| network(item, is_v4).map_err(|e| malformed(name, &e)))
                .collect::<Result<Vec<_>>>()
        };
        let one = |name: &str, is_v4: bool| {
            value(name).map(|text| network(text, is_v4).map_err(|e| malformed(name, &e))).transpose()
        };
        let networks = [list("FLANNEL_NETWORK", true)?, list("FLANNEL_IPV6_NETWORK", false)?].concat();
        let subnets = [one("FLANNEL_SUBNET", true)?, one("FLANNEL_IPV6_SUBNET", false)?];
        let subnets: Vec<_> = subnets.into_iter().flatten().collect();
        let mtu = value("FLANNEL_MTU").map(|text| {
            text.parse::<u32>()
                .map_err(|_| malformed("FLANNEL_MTU", &format!("{text:?} is not a number of bytes")))
        });
        match (mtu.transpose()?, value("FLANNEL_IPMASQ")) {
            (Some(mtu), Some(ip_masq)) if !networks.is_empty() && !subnets.is_empty() => {
                Ok(Self { networks, subnets, mtu, ip_masq: ip_masq == "true" })
            }
            (mtu, ip_masq) => Err(missing(&[
                (!networks.is_empty(), "FLANNEL_NETWORK or FLANNEL_IPV6_NETWORK"),
                (!subnets.is_empty(), "FLANNEL_SUBNET or FLANNEL_IPV6_SUBNET"),
                (mtu.is_some(), "FLANNEL_MTU"),
                (ip_masq.is_some(), "FLANNEL_IPMASQ"),
            ])),
        }
    }
}

/// Parses a network without its host bits, which flanneld sets in its subnet.
fn network(text: &str, is_v4: bool) -> Result<IpNetwork, String> {
    let network = parse_cidr(text)?;
    if network.is_ipv4() != is_v4 {
        return Err(format!("{text:?} is not an IPv{} address", if is_v4 { 4 } else { 6 }));
    }
    IpNetwork::new(network.network(), network.prefix()).map_err(|e| e.to_string())
}

fn malformed(name: &str, what: &str) -> Error {
    Error::new(Code::Decoding, format!("{name}: {what}"))
}

fn missing(all: &[(bool, &str)]) -> Error {
    let missing: Vec<&str> = all.iter().filter(|(is_there, _)| !is_there).map(|(_, name)| *name).collect();
    awaited(Error::config(format!("{} is missing", missing.join(", "))))
}

fn awaited(error: Error) -> Error {
    error
        .with_code(Code::TryAgainLater)
        .detail("flanneld writes this file after it has obtained its lease: check that flanneld is running")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str =
        "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";

    #[test]
    fn all_missing_values_are_named_in_one_error() {
        let error = Subnet::parse("FLANNEL_SUBNET=10.42.1.1/24\nFLANNEL_MTU=\n").unwrap_err();
        assert!(error.code() == 11 && error.details().contains("that flanneld is running"), "{error:?}");
        assert_eq!(
            error.msg(),
            "FLANNEL_NETWORK or FLANNEL_IPV6_NETWORK, FLANNEL_MTU, FLANNEL_IPMASQ is missing"
        );
    }

    #[test]
    fn lines_without_a_value_and_unknown_lines_are_ignored() {
        let text = format!("FLANNEL_MTU\n# a comment\n\nFLANNEL_ODD=1=2\r\n{}", WHOLE.replace('\n', " \r\n"));
        assert_eq!(Subnet::parse(&text).unwrap(), Subnet::parse(WHOLE).unwrap());
    }

    #[test]
    fn the_last_of_two_lines_counts_as_in_a_shell() {
        let subnet = Subnet::parse(&format!("{WHOLE}FLANNEL_IPMASQ=false\n")).unwrap();
        assert!(!subnet.ip_masq && subnet.mtu == 1450);
    }

    #[test]
    fn an_invalid_value_is_named() {
        for (line, word) in [
            ("FLANNEL_SUBNET=10.42.1.1", "FLANNEL_SUBNET"),
            ("FLANNEL_SUBNET=fd00::1/64", "IPv4"),
            ("FLANNEL_IPV6_NETWORK=10.0.0.0/8", "IPv6"),
            ("FLANNEL_NETWORK=10.42.0.0/16,,", "FLANNEL_NETWORK"),
            ("FLANNEL_MTU=-1", "FLANNEL_MTU"),
        ] {
            let error = Subnet::parse(&format!("{WHOLE}{line}\n")).unwrap_err();
            assert!(error.code() == 6 && error.msg().contains(word), "{line}: {error:?}");
        }
    }
}
