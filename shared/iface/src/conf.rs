//! Configuration keys that interface plugins share. No I/O.
//!
//! A plugin's `Conf` contains an [`InterfaceConf`], read from the same document.

use std::fmt::Display;
use std::ops::RangeInclusive;

use cni::{AsWritten, CniArgs, Error, IfName, Interface, Result};
use netlink::Mac;
use serde::Deserialize;

use crate::Namespace;

/// MTU limits in bytes (`ETH_MIN_MTU`, `ETH_MAX_MTU` of linux/if_ether.h).
pub const MTUS: RangeInclusive<u32> = 68..=65535;

/// The keys as written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawFlags {
    enabledad: bool,
    accept_ra: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawRequest {
    args: RawArgs,
    runtime_config: RawMac,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawArgs {
    cni: RawMac,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawMac {
    mac: String,
}

/// Keys about the container's interface, of any kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceConf {
    /// `enabledad`: whether to wait for duplicate address detection (RFC 4862, section 5.4).
    pub enable_dad: bool,
    /// `acceptRa`: whether router advertisements configure the interface. `None`: the kernel's default.
    pub accept_ra: Option<bool>,
    /// `mac`. A MAC that the runtime requests for one attachment takes precedence.
    file_mac: Option<Mac>,
    /// `runtimeConfig.mac`, or else `args.cni.mac`.
    requested_mac: Option<Mac>,
}

/// The keys from which a plugin reads the interface's hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MacKeys {
    /// `mac`, and the keys of a request for one attachment: `runtimeConfig.mac` and `args.cni.mac`.
    All,
    /// Only the keys of a request for one attachment.
    Requests,
    /// None: the plugin sets no hardware address.
    None,
}

impl InterfaceConf {
    /// Reads the keys from a plugin's configuration.
    ///
    /// # Errors
    /// Code 6 for a key of the wrong type, 7 for an invalid value.
    pub fn read(document: &AsWritten, macs: MacKeys) -> Result<Self> {
        let file_mac = if macs == MacKeys::All { file_mac(document)? } else { None };
        let requested_mac = if macs == MacKeys::None { None } else { requested_mac(document)? };
        let raw: RawFlags = document.decode()?;
        Ok(Self { enable_dad: raw.enabledad, accept_ra: raw.accept_ra, file_mac, requested_mac })
    }

    /// The requested hardware address: `runtimeConfig`, else `args.cni`, else `CNI_ARGS`, else the key `mac`. `None`: any.
    ///
    /// # Errors
    /// Code 7 for an invalid address.
    pub fn mac(&self, args: &CniArgs) -> Result<Option<Mac>> {
        match (self.requested_mac, args.mac()) {
            (Some(mac), _) => Ok(Some(mac)),
            (None, Some(text)) => unicast_mac("CNI_ARGS: MAC", text).map(Some),
            (None, None) => Ok(self.file_mac),
        }
    }
}

fn file_mac(document: &AsWritten) -> Result<Option<Mac>> {
    let raw: RawMac = document.decode()?;
    (!raw.mac.is_empty()).then(|| unicast_mac("mac", &raw.mac)).transpose()
}

fn requested_mac(document: &AsWritten) -> Result<Option<Mac>> {
    let raw: RawRequest = document.decode()?;
    let macs = [("runtimeConfig.mac", &raw.runtime_config.mac), ("args.cni.mac", &raw.args.cni.mac)];
    let requested = macs.into_iter().find(|(_, text)| !text.is_empty());
    requested.map(|(key, text)| unicast_mac(key, text)).transpose()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawHostInterfaces {
    args: RawHostInterfaceArgs,
    #[serde(rename = "hostInterface")]
    network: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawHostInterfaceArgs {
    cni: RawHostInterface,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawHostInterface {
    host_interface: String,
}

/// The requested name of a veth's end on the host: `args.cni.hostInterface`, else `hostInterface`. `None`: a name derived from the
/// attachment.
///
/// The name for one attachment must begin with the network's. Otherwise the author of a pod could choose a name that the host's firewall
/// trusts.
///
/// # Errors
/// Code 6 for a key of the wrong type, 7 for an invalid name.
pub fn host_interface(document: &AsWritten) -> Result<Option<IfName>> {
    const REQUEST: &str = "args.cni.hostInterface";
    let raw: RawHostInterfaces = document.decode()?;
    let network = interface_name("hostInterface", &raw.network)?;
    let Some(requested) = interface_name(REQUEST, &raw.args.cni.host_interface)? else { return Ok(network) };
    if network.is_some_and(|prefix| requested.starts_with(&*prefix)) {
        return Ok(Some(requested));
    }
    Err(Error::config(format!("{REQUEST} {requested} does not begin with the network's hostInterface"))
        .detail(
            "the network's configuration decides which names containers may request: set hostInterface there",
        ))
}

/// Parses an interface's name. An empty one is treated as unset.
fn interface_name(key: &str, name: &str) -> Result<Option<IfName>> {
    let parse = |name| IfName::parse_new(name).map_err(|e| Error::config(format!("{key} {e}")));
    Some(name).filter(|name| !name.is_empty()).map(parse).transpose()
}

/// Like [`host_interface`], for DEL. `None` also for an invalid name.
pub fn host_interface_as_written(document: &AsWritten) -> Option<IfName> {
    let read = |keys: &[&str]| document.key::<&str>(keys).filter(|name| !name.is_empty());
    let name = read(&["args", "cni", "hostInterface"]).or_else(|| read(&["hostInterface"]))?;
    IfName::parse(name).ok()
}

/// MTU of a veth pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VethMtu {
    /// The kernel's default, 1500 bytes.
    Kernel,
    /// `mtu`, in bytes.
    Bytes(u32),
    /// `mtuFromDefaultRoute`: the MTU of the link of the host's default route.
    DefaultRoute,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawVethMtu {
    mtu_from_default_route: bool,
}

impl VethMtu {
    /// Reads the keys from a plugin's configuration.
    ///
    /// # Errors
    /// Code 6 for a key of the wrong type, 7 for a value out of range, or if both keys are set.
    pub fn read(document: &AsWritten) -> Result<Self> {
        let raw: RawVethMtu = document.decode()?;
        match (mtu(document)?, raw.mtu_from_default_route) {
            (None, false) => Ok(Self::Kernel),
            (None, true) => Ok(Self::DefaultRoute),
            (Some(bytes), false) => Ok(Self::Bytes(bytes)),
            (Some(_), true) => {
                Err(Error::config("mtu and mtuFromDefaultRoute exclude each other: remove one of them"))
            }
        }
    }

    /// The MTU in bytes. `None`: the kernel's default.
    ///
    /// # Errors
    /// If the kernel refuses to list routes or links.
    pub fn resolve(self, host: &Namespace) -> Result<Option<u32>> {
        match self {
            Self::Kernel => Ok(None),
            Self::Bytes(bytes) => Ok(Some(bytes)),
            // Without a default route, no larger MTU is needed.
            Self::DefaultRoute => Ok(host.default_uplink()?.map(|link| link.mtu)),
        }
    }

    /// The MTU in bytes that CHECK expects of an interface of the result. `None`: any, because no MTU is configured, or because the result
    /// is older than 1.1.0. A later plugin of the chain may then have set another one.
    pub fn expected(self, listed: &Interface) -> Option<u32> {
        match self {
            Self::Bytes(_) => listed.mtu,
            Self::Kernel | Self::DefaultRoute => None,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawMtu {
    mtu: u32,
}

/// The key `mtu`, in bytes. `None` if it is missing or 0.
///
/// # Errors
/// Code 6 if it has the wrong type, 7 if it is out of range.
pub fn mtu(document: &AsWritten) -> Result<Option<u32>> {
    match document.decode::<RawMtu>()?.mtu {
        0 => Ok(None),
        bytes if MTUS.contains(&bytes) => Ok(Some(bytes)),
        bytes => Err(Error::config(format!(
            "mtu {bytes} is out of range, {} to {} bytes",
            MTUS.start(),
            MTUS.end()
        ))),
    }
}

/// Parses the value of a key with a fixed set of values. An empty string is the first one.
///
/// # Errors
/// Code 7 for another value; the message lists the set.
pub fn one_of<T: Copy + Display>(key: &str, text: &str, settings: &[T]) -> Result<T> {
    let named = |setting: &&T| text.is_empty() || setting.to_string() == text;
    settings.iter().find(named).copied().ok_or_else(|| {
        let names: Vec<String> = settings.iter().map(T::to_string).collect();
        Error::config(format!("{key} {text:?} is none of {}", names.join(", ")))
    })
}

/// Parses a unicast hardware address. `key` is its place in the configuration, for the message.
///
/// # Errors
/// Code 7 if it is malformed, multicast, or all zero.
pub fn unicast_mac(key: &str, text: &str) -> Result<Mac> {
    let mac: Mac = text.parse().map_err(|e| Error::config(format!("{key}: {e}")))?;
    let why = match mac {
        _ if mac.is_multicast() => "this is a multicast address; clear the lowest bit of its first byte",
        _ if mac.is_zero() => "set another address, or remove the key",
        _ => return Ok(mac),
    };
    Err(Error::config(format!("{key}: {mac} cannot be an interface's address")).detail(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNTIME: &str = r#""runtimeConfig": {"mac": "02:00:00:00:00:04"}"#;
    const ARGS_CNI: &str = r#""args": {"cni": {"mac": "02:00:00:00:00:03"}}"#;
    const FILE: &str = r#""mac": "02:00:00:00:00:01""#;

    fn document(members: &[&str]) -> AsWritten {
        let text = format!("{{{}}}", members.join(", "));
        cni::json::parse(text.as_bytes(), "it").unwrap().into()
    }

    #[test]
    fn a_request_for_one_attachment_wins_over_the_configuration() {
        let requested = CniArgs::parse("MAC=02:00:00:00:00:02").unwrap();
        let nothing = CniArgs::default();
        for (members, args, last_byte) in [
            (&[RUNTIME, ARGS_CNI, FILE][..], &requested, Some(4)),
            (&[ARGS_CNI, FILE], &requested, Some(3)),
            (&[FILE], &requested, Some(2)),
            (&[FILE], &nothing, Some(1)),
            (&[r#""mac": """#], &nothing, None),
            (&[], &nothing, None),
        ] {
            let mac = InterfaceConf::read(&document(members), MacKeys::All).unwrap().mac(args).unwrap();
            assert_eq!(mac.map(|mac| mac.bytes()[5]), last_byte, "{members:?} {args}");
        }
        let without = InterfaceConf::read(&document(&[FILE]), MacKeys::Requests).unwrap();
        assert_eq!(without.mac(&nothing).unwrap(), None);
        let without = InterfaceConf::read(&document(&[RUNTIME, ARGS_CNI, FILE]), MacKeys::None).unwrap();
        assert_eq!(without.mac(&nothing).unwrap(), None);
    }

    #[test]
    fn a_value_that_no_interface_can_have_is_refused_with_its_key() {
        for (member, code, culprit) in [
            (r#""mac": "01:00:00:00:00:01""#, 7, "mac"),
            (r#""mac": "00:00:00:00:00:00""#, 7, "mac"),
            (r#""args": {"cni": {"mac": "eth0"}}"#, 7, "args.cni.mac"),
            (r#""runtimeConfig": {"mac": "02:00"}"#, 7, "runtimeConfig.mac"),
            (r#""enabledad": 1"#, 6, "enabledad"),
            (r#""acceptRa": "no""#, 6, "acceptRa"),
        ] {
            let error = InterfaceConf::read(&document(&[member]), MacKeys::All).unwrap_err();
            assert_eq!(error.code(), code, "{member}: {error}");
            assert!(error.msg().contains(culprit), "{member}: {error}");
        }
        let group = CniArgs::parse("MAC=ff:ff:ff:ff:ff:ff").unwrap();
        assert_eq!(InterfaceConf::default().mac(&group).unwrap_err().code(), 7);
    }

    #[test]
    fn the_name_of_the_hosts_end_for_one_attachment_wins_and_begins_with_the_networks() {
        const ONE: &str = r#""args": {"cni": {"hostInterface": "web1"}}"#;
        const ALL: &str = r#""hostInterface": "web""#;
        for (members, expected) in [
            (&[ONE, ALL][..], Some("web1")),
            (&[ALL], Some("web")),
            (&[r#""args": {"cni": {"hostInterface": ""}}"#, ALL], Some("web")),
            (&[r#""hostInterface": """#], None),
            (&[], None),
        ] {
            let document = document(members);
            assert_eq!(host_interface(&document).unwrap().as_deref(), expected, "{members:?}");
            assert_eq!(host_interface_as_written(&document).as_deref(), expected, "{members:?}");
        }
        for (members, code) in [
            (&[ONE][..], 7),
            (&[ONE, r#""hostInterface": "eth""#], 7),
            (&[r#""hostInterface": "a/b""#], 7),
            (&[r#""args": {"cni": {"hostInterface": "."}}"#, ALL], 7),
            (&[r#""hostInterface": 1"#], 6),
        ] {
            let error = host_interface(&document(members)).unwrap_err();
            assert_eq!(error.code(), code, "{members:?}: {error}");
            assert!(error.msg().contains("hostInterface"), "{members:?}: {error}");
        }
        for member in [r#""hostInterface": "a/b""#, r#""hostInterface": 1"#] {
            assert_eq!(host_interface_as_written(&document(&[member])), None, "{member}");
        }
    }

    #[test]
    fn an_mtu_is_configured_or_from_the_default_route() {
        for (members, expected) in [
            (&[][..], VethMtu::Kernel),
            (&[r#""mtu": 0"#], VethMtu::Kernel),
            (&[r#""mtu": 9000"#], VethMtu::Bytes(9000)),
            (&[r#""mtuFromDefaultRoute": true"#], VethMtu::DefaultRoute),
        ] {
            assert_eq!(VethMtu::read(&document(members)).unwrap(), expected, "{members:?}");
        }
        for (members, code) in [
            (&[r#""mtu": 1400"#, r#""mtuFromDefaultRoute": true"#][..], 7),
            (&[r#""mtu": 67"#], 7),
            (&[r#""mtu": 65536"#], 7),
            (&[r#""mtu": "1500""#], 6),
            (&[r#""mtuFromDefaultRoute": 1"#], 6),
        ] {
            let error = VethMtu::read(&document(members)).unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.msg().starts_with("mtu"), "{error}");
        }
    }
}
