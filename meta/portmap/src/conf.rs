//! The configuration: as written ([`RawConf`]) and after all checks ([`Conf`]). DEL and GC do not need it. No I/O.

use std::net::IpAddr;
use std::num::NonZeroU16;

use cni::{AddResult, AsWritten, Error, IfName, Result, addr};
use ipnetwork::IpNetwork;
use netfilter::{Backend, ChainName, Conditions, HostPort, HostPorts, Mark, SourceNat};
use serde::Deserialize;

/// The configuration as written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawConf {
    backend: Option<String>,
    snat: bool,
    masq_all: bool,
    conditions_v4: Vec<String>,
    conditions_v6: Vec<String>,
    mark_masq_bit: Option<i64>,
    external_set_mark_chain: Option<String>,
    runtime_config: RawRuntime,
}

impl Default for RawConf {
    fn default() -> Self {
        Self {
            backend: None,
            snat: true,
            masq_all: false,
            conditions_v4: Vec::new(),
            conditions_v6: Vec::new(),
            mark_masq_bit: None,
            external_set_mark_chain: None,
            runtime_config: RawRuntime::default(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawRuntime {
    port_mappings: Vec<RawMapping>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawMapping {
    host_port: i64,
    container_port: i64,
    protocol: String,
    #[serde(rename = "hostIP")]
    host_ip: String,
}

/// The configuration after all checks.
#[derive(Debug)]
pub struct Conf {
    /// The configured backend, or the only one that supports the configuration. None: nftables if the kernel has it,
    /// otherwise iptables.
    pub backend: Option<Backend>,
    mappings: Vec<HostPort>,
    source_nat: SourceNat,
    mark: Mark,
    conditions: Conditions,
}

impl Conf {
    /// Whether ports are mapped.
    pub fn maps_ports(&self) -> bool {
        !self.mappings.is_empty()
    }

    /// The host ports for the container in a result. None if no ports are mapped, or if the container has no suitable
    /// address.
    ///
    /// # Errors
    /// Code 7 if every mapping names a host address of a family that the container lacks.
    pub fn host_ports(&self, result: &AddResult, ifname: &IfName) -> Result<Option<HostPorts>> {
        let addresses = addresses(result, ifname);
        if self.mappings.is_empty() || addresses.is_empty() {
            return Ok(None);
        }
        let unreachable = self.unreachable_mappings(&addresses);
        if unreachable.len() == self.mappings.len() {
            return Err(Error::config(unreachable.join("; ")));
        }
        Ok(Some(HostPorts {
            addresses,
            mappings: self.mappings.clone(),
            source_nat: self.source_nat,
            mark: self.mark.clone(),
            conditions: self.conditions.clone(),
        }))
    }

    /// The keys whose values iptables checks, as a hint for an error of its tools. Empty if no key has such a value.
    pub fn advice(&self) -> String {
        let chain = match &self.mark {
            Mark::Chain(chain) => Some(format!(
                "externalSetMarkChain: if the chain {} does not exist, create it in table nat, or start \
                 kube-proxy, which creates KUBE-MARK-MASQ",
                chain.as_str()
            )),
            Mark::Bit(_) => None,
        };
        let conditions = (self.conditions.backend() == Some(Backend::Iptables))
            .then(|| "if iptables refuses a condition, correct conditionsV4 or conditionsV6".to_owned());
        chain.into_iter().chain(conditions).collect::<Vec<_>>().join("; ")
    }

    /// Describes the mappings of host addresses whose family the container lacks. `0.0.0.0` and `::` are not listed: they
    /// mean all existing addresses.
    pub fn unreachable_mappings(&self, addresses: &[IpNetwork]) -> Vec<String> {
        let has = |ip: IpAddr| addresses.iter().any(|address| address.is_ipv4() == ip.is_ipv4());
        let lost = |mapping: &HostPort| mapping.host_ip.filter(|ip| !ip.is_unspecified() && !has(*ip));
        let lost =
            self.mappings.iter().enumerate().filter_map(|(index, mapping)| Some((index, lost(mapping)?)));
        lost.map(|(index, ip)| {
            format!(
                "{}.hostIP {ip}: the container has no address of that family, so the port is not mapped",
                at(index)
            )
        })
        .collect()
    }
}

/// Describes the mappings that have no effect, because an earlier one maps the same host port to another container port.
pub fn repeated_mappings(ports: &HostPorts) -> impl Iterator<Item = String> {
    ports.repeated().into_iter().map(|(place, first)| {
        let HostPort { protocol, host_port, container_port, .. } = ports.mappings[place];
        format!(
            "{}: {protocol} host port {host_port} is not mapped to container port {container_port}, because {} maps it to {}; \
             remove one of the two mappings",
            at(place),
            at(first),
            ports.mappings[first].container_port
        )
    })
}

/// The addresses of the container's interface. A result may list loopback addresses too.
pub fn addresses(result: &AddResult, ifname: &IfName) -> Vec<IpNetwork> {
    result.ips_of(ifname).map(|ip| ip.address).filter(|a| addr::can_be_reached(a.ip())).collect()
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(raw: AsWritten) -> Result<Self> {
        let raw: RawConf = raw.decode()?;
        let conditions = Conditions::parse(&raw.conditions_v4, &raw.conditions_v6).map_err(Error::config)?;
        let mark = mark(&raw)?;
        Ok(Self {
            backend: backend(&raw, &mark, &conditions)?,
            mappings: mappings(&raw.runtime_config.port_mappings)?,
            source_nat: match (raw.snat, raw.masq_all) {
                (false, _) => SourceNat::None,
                (true, false) => SourceNat::Hairpin,
                (true, true) => SourceNat::All,
            },
            mark,
            conditions,
        })
    }
}

fn mark(raw: &RawConf) -> Result<Mark> {
    match (raw.mark_masq_bit, &raw.external_set_mark_chain) {
        (Some(_), Some(_)) => Err(Error::config("markMasqBit and externalSetMarkChain exclude each other")
            .detail("the chain decides how connections are marked; remove one of the two keys")),
        (Some(bit), None) => Mark::bit(bit).map_err(|e| Error::config(format!("markMasqBit {e}"))),
        (None, Some(chain)) => ChainName::parse(chain)
            .map(Mark::Chain)
            .map_err(|e| Error::config(format!("externalSetMarkChain {e}"))),
        (None, None) => Ok(Mark::default()),
    }
}

/// The backend that all options agree on.
fn backend(raw: &RawConf, mark: &Mark, conditions: &Conditions) -> Result<Option<Backend>> {
    let by_key = raw.backend.as_deref().map(str::parse).transpose().map_err(Error::config)?;
    let by_key = by_key.map(|backend| (backend, format!("\"backend\": \"{backend}\""), String::new()));
    let by_mark = matches!(mark, Mark::Chain(_))
        .then(|| (Backend::Iptables, "externalSetMarkChain".to_owned(), "needs iptables".to_owned()));
    let conditions_key = if raw.conditions_v4.is_empty() { "conditionsV6" } else { "conditionsV4" };
    let by_conditions = conditions
        .backend()
        .map(|backend| (backend, conditions_key.to_owned(), format!("is in {backend}' syntax")));
    let required: Vec<_> = [by_key, by_mark, by_conditions].into_iter().flatten().collect();
    match required.iter().find(|one| one.0 != required[0].0) {
        Some((_, key, why)) => {
            let text = format!("{} contradicts {key}, which {why}", required[0].1);
            Err(Error::config(text).detail("remove one of the two keys"))
        }
        None => Ok(required.first().map(|one| one.0)),
    }
}

fn mappings(raw: &[RawMapping]) -> Result<Vec<HostPort>> {
    raw.iter()
        .enumerate()
        .map(|(index, raw)| mapping(raw).map_err(|e| Error::config(format!("{}.{e}", at(index)))))
        .collect()
}

fn mapping(raw: &RawMapping) -> Result<HostPort, String> {
    Ok(HostPort {
        protocol: raw.protocol.parse()?,
        host_ip: host_ip(&raw.host_ip)?,
        host_port: port("hostPort", raw.host_port)?,
        container_port: port("containerPort", raw.container_port)?,
    })
}

fn host_ip(text: &str) -> Result<Option<IpAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let ip = addr::parse_ip(text).map_err(|e| format!("hostIP {e}"))?;
    if ip.is_multicast() {
        return Err(format!("hostIP {ip} is a multicast address; it must be an address of this host"));
    }
    Ok(Some(ip))
}

fn port(key: &str, number: i64) -> Result<NonZeroU16, String> {
    let port = u16::try_from(number).ok().and_then(NonZeroU16::new);
    port.ok_or_else(|| format!("{key} {number} is out of range, 1 to {}", u16::MAX))
}

/// The location of an entry in the configuration.
fn at(index: usize) -> String {
    format!("runtimeConfig.portMappings[{index}]")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn conf(keys: Value) -> Result<Conf> {
        AsWritten::from(keys).try_into()
    }

    fn mapped(mapping: Value) -> Result<Conf> {
        conf(json!({"runtimeConfig": {"portMappings": [mapping]}}))
    }

    fn result(interfaces: &[(&str, &str)], ips: &[(&str, Option<usize>)]) -> AddResult {
        let interface = |(name, sandbox): &(&str, &str)| json!({"name": name, "sandbox": sandbox});
        let ip = |(address, interface): &(&str, Option<usize>)| json!({"address": address, "interface": interface});
        let (interfaces, ips) = (interfaces.iter().map(interface), ips.iter().map(ip));
        let result = json!({"interfaces": interfaces.collect::<Vec<_>>(), "ips": ips.collect::<Vec<_>>()});
        AddResult::from_json(&result, cni::Version::LATEST).unwrap()
    }

    fn eth0() -> IfName {
        IfName::parse("eth0").unwrap()
    }

    fn addresses_of(result: &AddResult) -> Vec<String> {
        addresses(result, &eth0()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn entries_are_read_as_containerd_writes_them() {
        let read =
            mapped(json!({"HostPort": 8080, "ContainerPort": 80, "Protocol": "TCP", "HostIP": ""})).unwrap();
        let port = |number| NonZeroU16::new(number).unwrap();
        let expected = HostPort {
            protocol: netfilter::Protocol::Tcp,
            host_ip: None,
            host_port: port(8080),
            container_port: port(80),
        };
        assert_eq!(read.mappings, [expected]);
    }

    #[test]
    fn missing_keys_have_the_documented_defaults() {
        let read = conf(json!({})).unwrap();
        assert_eq!((read.source_nat, read.mark, read.backend), (SourceNat::Hairpin, Mark::Bit(13), None));
        assert!(read.mappings.is_empty());
    }

    #[test]
    fn a_wrong_entry_is_named_by_place_key_and_value() {
        let good = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"});
        for (key, value, culprit) in [
            ("hostPort", json!(0), "portMappings[0].hostPort 0"),
            ("hostPort", json!(65536), "portMappings[0].hostPort 65536"),
            ("containerPort", json!(-1), "portMappings[0].containerPort -1"),
            ("protocol", json!("icmp"), "portMappings[0].protocol \"icmp\""),
            ("protocol", json!(""), "portMappings[0].protocol is missing: set it to tcp, udp or sctp"),
            ("hostIP", json!("127.0.0"), "portMappings[0].hostIP \"127.0.0\""),
            ("hostIP", json!("224.0.0.1"), "portMappings[0].hostIP 224.0.0.1"),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            let error = mapped(bad).unwrap_err();
            assert_eq!(error.code(), 7);
            assert!(error.msg().contains(culprit), "{error}");
        }
    }

    #[test]
    fn an_option_that_only_one_backend_has_chooses_it() {
        for (keys, backend) in [
            (json!({"backend": "iptables"}), Backend::Iptables),
            (json!({"externalSetMarkChain": "KUBE-MARK-MASQ"}), Backend::Iptables),
            (json!({"conditionsV4": ["!", "-s", "192.0.2.0/24"]}), Backend::Iptables),
            (json!({"conditionsV6": ["ip6", "saddr", "fd00::/64"]}), Backend::Nftables),
        ] {
            assert_eq!(conf(keys).unwrap().backend, Some(backend));
        }
    }

    #[test]
    fn options_of_different_backends_exclude_each_other() {
        for keys in [
            json!({"backend": "nftables", "externalSetMarkChain": "MARK-MASQ"}),
            json!({"backend": "iptables", "conditionsV4": ["ip saddr 192.0.2.1"]}),
            json!({"externalSetMarkChain": "MARK-MASQ", "conditionsV6": ["ip6 saddr fd00::1"]}),
            json!({"conditionsV4": ["-s", "192.0.2.1"], "conditionsV6": ["ip6 saddr fd00::1"]}),
            json!({"markMasqBit": 13, "externalSetMarkChain": "MARK-MASQ"}),
        ] {
            assert_eq!(conf(keys.clone()).unwrap_err().code(), 7, "{keys}");
        }
        let words = json!(["-s", "192.0.2.1"]);
        for key in ["conditionsV4", "conditionsV6"] {
            let refused = conf(json!({"backend": "nftables", key: words})).unwrap_err();
            let text = format!("\"backend\": \"nftables\" contradicts {key}, which is in iptables' syntax");
            assert_eq!(refused.msg(), text);
        }
    }

    #[test]
    fn the_advice_for_an_error_of_iptables_names_the_keys_with_words_for_iptables() {
        let advice = |keys: Value| conf(keys).unwrap().advice();
        assert!(
            advice(json!({"externalSetMarkChain": "MARK-MASQ"}))
                .contains("if the chain MARK-MASQ does not exist")
        );
        assert!(advice(json!({"conditionsV4": ["-s", "10.0.0.300"]})).contains("correct conditionsV4"));
        for keys in
            [json!({}), json!({"conditionsV4": ["ip saddr 192.0.2.1"]}), json!({"backend": "iptables"})]
        {
            assert_eq!(advice(keys), "");
        }
    }

    #[test]
    fn addresses_of_loopback_and_of_other_interfaces_are_ignored() {
        let interfaces = [("lo", "/netns"), ("br0", ""), ("eth0", "/netns"), ("eth1", "/netns")];
        let all = [
            ("127.0.0.1/8", Some(0)),
            ("10.9.0.1/24", Some(3)),
            ("10.1.0.5/24", Some(2)),
            ("fd00::5/64", Some(2)),
            ("fe80::5/64", Some(2)),
        ];
        assert_eq!(addresses_of(&result(&interfaces, &all)), ["10.1.0.5/24", "fd00::5/64"]);
    }

    #[test]
    fn an_old_result_does_not_say_which_interface_has_an_address() {
        let old = result(&[], &[("127.0.0.1/8", None), ("10.1.0.5/24", None), ("::1/128", None)]);
        assert_eq!(addresses_of(&old), ["10.1.0.5/24"]);
    }

    #[test]
    fn without_a_container_address_no_port_is_mapped() {
        let one = mapped(json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"})).unwrap();
        assert!(one.maps_ports() && !conf(json!({})).unwrap().maps_ports());
        for lacking in [
            AddResult::default(),
            result(&[("eth1", "/netns")], &[("10.1.0.5/24", Some(0))]),
            result(&[("eth0", "")], &[("10.1.0.5/24", Some(0))]),
            result(&[], &[("127.0.0.1/8", None)]),
        ] {
            assert_eq!(one.host_ports(&lacking, &eth0()).unwrap(), None);
        }
    }

    #[test]
    fn a_host_address_of_a_family_that_the_container_lacks_is_refused_unless_it_means_all() {
        let v4_only = result(&[], &[("10.1.0.5/24", None)]);
        let of = |host_ip| {
            let entry = json!({"hostPort": 53, "containerPort": 53, "protocol": "udp", "hostIP": host_ip});
            mapped(entry).unwrap().host_ports(&v4_only, &eth0())
        };
        assert!(of("::1").unwrap_err().msg().contains("hostIP ::1"));
        for fine in ["::", "", "0.0.0.0", "127.0.0.1", "::ffff:192.0.2.1"] {
            assert!(of(fine).is_ok(), "{fine}");
        }
    }
}
