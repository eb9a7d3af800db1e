//! The configuration after all checks. No I/O.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cni::addr::{self, parse_cidr, parse_ip};
use cni::{AsWritten, Code, Dns, Error, Result, Route};
use ipnetwork::IpNetwork;
use serde::{Deserialize, Deserializer, de::Error as _};

/// The configuration. Without addresses in it, each call must request some.
#[derive(Debug)]
pub struct Conf {
    /// `ipam.addresses`.
    pub entries: Vec<Entry>,
    pub routes: Vec<Route>,
    pub dns: Dns,
    /// `args.cni.ips`.
    pub args_ips: Vec<RequestedIp>,
    /// `runtimeConfig.ips`.
    pub runtime_ips: Vec<RequestedIp>,
}

/// An address with the gateway of its subnet, or only a gateway, for requested addresses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    pub address: Option<IpNetwork>,
    pub gateway: Option<IpAddr>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawEntry {
    address: Option<String>,
    #[serde(with = "addr::optional_ip")]
    gateway: Option<IpAddr>,
}

/// A requested address. Without a prefix length, it gets that of the entry whose subnet contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedIp {
    pub ip: IpAddr,
    pub prefix: Option<u8>,
}

impl RequestedIp {
    /// Parses `10.0.0.5/24` or `10.0.0.5`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.contains('/') {
            true => parse_cidr(text).map(|net| Self { ip: net.ip(), prefix: Some(net.prefix()) }),
            false => parse_ip(text).map(|ip| Self { ip, prefix: None }),
        }
    }
}

impl<'de> Deserialize<'de> for RequestedIp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawConf {
    ipam: RawIpam,
    runtime_config: Ips,
    args: Args,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawIpam {
    addresses: Vec<RawEntry>,
    routes: Vec<Route>,
    dns: Dns,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Args {
    cni: Ips,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ips {
    ips: Vec<RequestedIp>,
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(written: AsWritten) -> Result<Self> {
        let RawConf { ipam, runtime_config, args } = written.decode()?;
        let entries = ipam.addresses.iter().enumerate().map(|(n, raw)| entry(n, raw));
        let entries: Vec<Entry> = entries.collect::<Result<_>>()?;
        // Requested addresses replace those of the entries, which then only have their subnets and gateways.
        if args.cni.ips.is_empty() && runtime_config.ips.is_empty() {
            refuse_unusable(entries.iter().filter_map(|entry| entry.address))?;
        }
        Ok(Self {
            entries,
            routes: ipam.routes,
            dns: ipam.dns,
            args_ips: args.cni.ips,
            runtime_ips: runtime_config.ips,
        })
    }
}

fn entry(n: usize, raw: &RawEntry) -> Result<Entry> {
    let malformed = |text: &String, why| {
        // The reference's words.
        let words = format!("the 'address' field is expected to be in CIDR notation, got: '{text}'");
        Error::new(Code::Decoding, words).detail(format!("ipam.addresses[{n}].address: {why}"))
    };
    let address = raw.address.as_ref().map(|text| parse_cidr(text).map_err(|why| malformed(text, why)));
    let entry = Entry { address: address.transpose()?, gateway: raw.gateway };
    check(entry).map_err(|e| Error::config(format!("ipam.addresses[{n}]: {e}")))?;
    Ok(entry)
}

fn check(entry: Entry) -> Result<(), String> {
    match (entry.address, entry.gateway) {
        (None, None) => Err("it has neither an address nor a gateway".to_owned()),
        (Some(address), Some(gateway)) if address.is_ipv4() != gateway.is_ipv4() => {
            Err(format!("gateway {gateway} is of another family than address {address}"))
        }
        _ => Ok(()),
    }
}

/// Refuses addresses that no interface can have, and an address that is listed twice. An interface can have an IPv4 address with several
/// prefix lengths, but an IPv6 address only once.
///
/// # Errors
/// Code 7, naming the address.
pub fn refuse_unusable(addresses: impl Iterator<Item = IpNetwork>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for address in addresses {
        let ip = address.ip();
        if ip.is_unspecified() || ip.is_multicast() {
            return Err(Error::config(format!("address {address} cannot be assigned to an interface")));
        }
        if !seen.insert((ip, address.is_ipv4().then_some(address.prefix()))) {
            return Err(Error::config(format!("address {ip} is given twice")));
        }
    }
    Ok(())
}
