//! The configuration: as written ([`RawConf`]) and after all checks ([`Conf`]). DEL and GC read only
//! [`likely_data_dir`], so that they release leases whatever else is wrong with it. No I/O.

use std::net::IpAddr;
use std::path::PathBuf;

use cni::addr::{self, parse_cidr, parse_ip};
use cni::{AsWritten, Error, Result, ResultExt, Route, Version, json};
use ipnetwork::IpNetwork;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use crate::range::{Range, RangeSet, Spec};

/// The reference's data directory.
const DATA_DIR: &str = "/var/lib/cni/networks";

/// Default minimum age of a stale lease in seconds. No ADD takes longer: a younger lease may belong to an ADD whose
/// interface does not have the address yet.
const STALE_LEASE_AGE: u64 = 600;

/// `ipam.dataDir`: contains a directory of leases for each network.
///
/// # Errors
/// Code 6 if it is not a string, 7 if it contains a NUL byte.
pub fn data_dir(written: &AsWritten) -> Result<PathBuf> {
    let dir = written.member("ipam").and_then(|ipam| json::member(ipam, "dataDir"));
    json::path(dir, "ipam.dataDir", DATA_DIR)
}

/// `dataDir` for DEL and GC. An invalid value is logged, and the default is used.
pub fn likely_data_dir(written: &AsWritten) -> PathBuf {
    data_dir(written).unwrap_or_else(|e| {
        cni::warn(&format!("{}; the default directory {DATA_DIR} is used instead", e.msg()));
        DATA_DIR.into()
    })
}

/// The configuration after all checks.
#[derive(Debug)]
pub struct Conf {
    pub data_dir: PathBuf,
    /// The range sets. Empty only with the capability `ipRanges`. An attachment gets one address of each: first of the runtime's, then of the old form's, then of
    /// `ranges`.
    pub sets: Vec<RangeSet>,
    pub routes: Vec<Route>,
    /// A file in the format of resolv.conf(5), for the result's DNS settings.
    pub resolv_conf: Option<PathBuf>,
    /// `args.cni.ips`.
    pub args_ips: Vec<IpAddr>,
    /// `runtimeConfig.ips`.
    pub runtime_ips: Vec<IpAddr>,
    /// Whether the first ADD after a reboot drops all leases. Unless it is false, leases from before a reboot are
    /// stale.
    pub reset_on_reboot: Option<bool>,
    /// Whether stale leases are released when a range set is full. Default: true.
    pub reuse_stale_leases: bool,
    /// Minimum age of a stale lease in seconds. Default: 600.
    pub stale_lease_age: u64,
    /// Whether STATUS fails with code 50 if a range set is full. Default: false.
    pub status_fails_when_full: bool,
}

impl Conf {
    /// Checks that there are range sets, and that the result's version has room for an address of each.
    ///
    /// # Errors
    /// Code 7 if there are none, or if the version allows only one address of each family, and there are more range sets.
    pub fn check_fits(&self, version: Version) -> Result<()> {
        if self.sets.is_empty() {
            return Err(no_ranges().detail("the runtime has passed no runtimeConfig.ipRanges"));
        }
        version.check_fits(self.sets.iter().map(RangeSet::is_ipv4))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawConf {
    ipam: RawIpam,
    runtime_config: RuntimeConfig,
    args: Args,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawIpam {
    // The old form, with one range.
    subnet: Option<Cidr>,
    #[serde(with = "addr::optional_ip")]
    range_start: Option<IpAddr>,
    #[serde(with = "addr::optional_ip")]
    range_end: Option<IpAddr>,
    #[serde(with = "addr::optional_ip")]
    gateway: Option<IpAddr>,

    ranges: Vec<Vec<RawRange>>,
    exclude: Vec<Block>,
    routes: Vec<Route>,
    resolv_conf: Option<PathBuf>,
    reset_on_reboot: Option<bool>,
    reuse_stale_leases: Option<bool>,
    stale_lease_age: Option<u32>,
    status_fails_when_full: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRange {
    subnet: Cidr,
    #[serde(default, with = "addr::optional_ip")]
    range_start: Option<IpAddr>,
    #[serde(default, with = "addr::optional_ip")]
    range_end: Option<IpAddr>,
    #[serde(default, with = "addr::optional_ip")]
    gateway: Option<IpAddr>,
    #[serde(default)]
    exclude: Vec<Block>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuntimeConfig {
    ip_ranges: Vec<Vec<RawRange>>,
    ips: Vec<Host>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Args {
    cni: CniArgs,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CniArgs {
    ips: Vec<Host>,
}

/// `10.0.0.0/24`.
#[derive(Deserialize)]
struct Cidr(#[serde(with = "addr::cidr")] IpNetwork);

/// `10.0.0.5`, or `10.0.0.5/24`. The prefix length is ignored: the range's is used.
struct Host(IpAddr);

impl<'de> Deserialize<'de> for Host {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let ip = parse_ip(&text).or_else(|e| parse_cidr(&text).map(|net| net.ip()).map_err(|_| e));
        ip.map(Self).map_err(D::Error::custom)
    }
}

/// `10.0.0.5`, or the whole of `10.0.0.0/28`.
struct Block(IpNetwork);

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let block = parse_ip(&text).map(IpNetwork::from).or_else(|e| parse_cidr(&text).map_err(|_| e));
        block.map(Self).map_err(D::Error::custom)
    }
}

impl RawIpam {
    fn old_form(&mut self) -> Option<Vec<RawRange>> {
        let &mut Self { range_start, range_end, gateway, .. } = self;
        let subnet = self.subnet.take()?;
        Some(vec![RawRange { subnet, range_start, range_end, gateway, exclude: Vec::new() }])
    }
}

impl RawRange {
    fn check(self, exclude: &[Block]) -> Result<Range, String> {
        let exclude = self.exclude.iter().chain(exclude).map(|block| block.0).collect();
        let (subnet, gateway) = (self.subnet.0, self.gateway);
        Range::new(&Spec { subnet, first: self.range_start, last: self.range_end, gateway, exclude })
    }
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(written: AsWritten) -> Result<Self> {
        let data_dir = data_dir(&written)?;
        let passes_ranges = passes_ranges(&written);
        let RawConf { mut ipam, runtime_config, args } = written.decode()?;
        let labelled = |key: &'static str| move |(n, set)| (format!("{key}[{n}]"), set);
        let runtime =
            runtime_config.ip_ranges.into_iter().enumerate().map(labelled("runtimeConfig.ipRanges"));
        let old = ipam.old_form().map(|set| ("ipam.subnet".to_owned(), set));
        let ranges = ipam.ranges.into_iter().enumerate().map(labelled("ipam.ranges"));
        let sets = range_sets(runtime.chain(old).chain(ranges).collect(), &ipam.exclude)?;
        if sets.is_empty() && !passes_ranges {
            return Err(no_ranges());
        }
        let ips = |hosts: Vec<Host>| hosts.into_iter().map(|host| host.0).collect();
        let conf = Self {
            data_dir,
            sets,
            routes: ipam.routes,
            resolv_conf: ipam.resolv_conf.filter(|path| !path.as_os_str().is_empty()),
            args_ips: ips(args.cni.ips),
            runtime_ips: ips(runtime_config.ips),
            reset_on_reboot: ipam.reset_on_reboot,
            reuse_stale_leases: ipam.reuse_stale_leases.unwrap_or(true),
            stale_lease_age: ipam.stale_lease_age.map_or(STALE_LEASE_AGE, u64::from),
            status_fails_when_full: ipam.status_fails_when_full,
        };
        conf.check_gateways()?;
        Ok(conf)
    }
}

impl Conf {
    /// Ranges whose gateway is not on the container's link.
    pub fn without_gateway(&self) -> impl Iterator<Item = &Range> {
        self.sets.iter().flat_map(RangeSet::ranges).filter(|range| !self.reaches_gateway(range))
    }

    /// Whether the gateway is in the subnet, in that of any address of a range set, or in the destination of a route to the link.
    fn reaches_gateway(&self, range: &Range) -> bool {
        let gateway = range.gateway;
        let in_set = |set: &RangeSet| set.ranges().iter().all(|range| range.subnet.contains(gateway));
        let to_link =
            |route: &Route| route.gw.is_some_and(|gw| gw.is_unspecified()) && route.dst.contains(gateway);
        let is_of_family = gateway.is_ipv4() == range.subnet.is_ipv4();
        range.reaches_gateway()
            || is_of_family && (self.sets.iter().any(in_set) || self.routes.iter().any(to_link))
    }

    /// A route without `gw` leads to the gateway of the first address of its family.
    fn check_gateways(&self) -> Result<()> {
        for Route { dst, .. } in self.routes.iter().filter(|route| route.gw.is_none()) {
            let is_of_family = |range: &Range| range.subnet.is_ipv4() == dst.is_ipv4();
            let first = self.sets.iter().find(|set| set.ranges().iter().any(is_of_family));
            let mut ranges = first.into_iter().flat_map(RangeSet::ranges);
            if let Some(Range { subnet, gateway, .. }) = ranges.find(|range| !self.reaches_gateway(range)) {
                return Err(Error::config(format!("gateway {gateway} is not in subnet {subnet}")).detail(
                    format!(
                        "the route to {dst} has no gw, so it needs the gateway of the range; set gw of that route"
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// Whether the runtime passes ranges to ADD. It passes none to STATUS.
fn passes_ranges(written: &AsWritten) -> bool {
    let declared = written.member("capabilities").and_then(|all| json::member(all, "ipRanges"));
    declared.and_then(Value::as_bool) == Some(true)
}

fn no_ranges() -> Error {
    Error::config("ipam.ranges is missing or empty")
        .detail("set ipam.ranges to a list of range sets, such as [[{\"subnet\": \"10.1.0.0/16\"}]]")
}

/// Checks range sets, each with the configuration's key.
fn range_sets(written: Vec<(String, Vec<RawRange>)>, exclude: &[Block]) -> Result<Vec<RangeSet>> {
    let mut sets: Vec<(String, RangeSet)> = Vec::new();
    for (label, ranges) in written {
        let ranges: Result<Vec<Range>, String> =
            ranges.into_iter().map(|range| range.check(exclude)).collect();
        let set = ranges.and_then(RangeSet::new).map_err(Error::config).context(|| &label)?;
        let overlap = sets.iter().find_map(|(other, earlier)| Some((other, set.overlap(earlier)?)));
        if let Some((other, (here, there))) = overlap {
            return Err(Error::config(format!("{label}: range {here} overlaps {there} ({other})")));
        }
        sets.push((label, set));
    }
    Ok(sets.into_iter().map(|(_, set)| set).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn conf(document: Value) -> Result<Conf> {
        Conf::try_from(AsWritten::from(document))
    }

    fn shown(conf: &Conf) -> Vec<String> {
        conf.sets.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_runtimes_ranges_precede_those_of_the_old_and_the_new_form() {
        let conf = conf(json!({
            "runtimeConfig": { "ipRanges": [[{ "subnet": "10.1.0.0/24" }], [{ "subnet": "fd01::/64" }]] },
            "ipam": {
                "Subnet": "10.2.0.0/24", "rangestart": "10.2.0.5", "rangeEnd": "10.2.0.9", "gateway": "10.2.0.7",
                "ranges": [[{ "subnet": "10.3.0.0/24" }, { "subnet": "10.4.0.0/24", "gateway": "10.4.0.254" }]],
            },
        }))
        .unwrap();
        assert_eq!(
            shown(&conf),
            [
                "10.1.0.1-10.1.0.254",
                "fd01::1-fd01::ffff:ffff:ffff:ffff",
                "10.2.0.5-10.2.0.9",
                "10.3.0.1-10.3.0.254,10.4.0.1-10.4.0.254",
            ]
        );
        assert_eq!(conf.sets[2].capacity(), 4);
    }

    #[test]
    fn missing_keys_have_defaults() {
        let conf =
            conf(json!({ "ipam": { "subnet": "10.0.0.0/24", "dataDir": "", "resolvConf": "" } })).unwrap();
        assert_eq!(conf.data_dir, PathBuf::from("/var/lib/cni/networks"));
        assert_eq!((conf.resolv_conf, conf.reset_on_reboot), (None, None));
        assert_eq!((conf.reuse_stale_leases, conf.stale_lease_age), (true, 600));
        assert!(conf.routes.is_empty() && conf.args_ips.is_empty() && conf.runtime_ips.is_empty());
    }

    #[test]
    fn requested_addresses_may_have_a_prefix_length() {
        let conf = conf(json!({
            "ipam": { "subnet": "10.0.0.0/24" },
            "args": { "cni": { "ips": ["10.0.0.5", "fd00::5/64"] } },
            "runtimeConfig": { "ips": ["10.0.0.6/24", "::ffff:10.0.0.7"] },
        }))
        .unwrap();
        let shown = |ips: &[IpAddr]| ips.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(&conf.args_ips), ["10.0.0.5", "fd00::5"]);
        assert_eq!(shown(&conf.runtime_ips), ["10.0.0.6", "10.0.0.7"]);
    }

    #[test]
    fn addresses_are_excluded_for_all_ranges_or_for_one() {
        let conf = conf(json!({ "ipam": {
            "exclude": ["10.0.0.2", "fd00::/127"],
            "ranges": [[{ "subnet": "10.0.0.0/29", "exclude": ["10.0.0.4/31"] }], [{ "subnet": "fd00::/126" }]],
        } }))
        .unwrap();
        let all: Vec<_> =
            conf.sets.iter().flat_map(|set| set.candidates(None)).map(|ip| ip.to_string()).collect();
        assert_eq!(all, ["10.0.0.3", "10.0.0.6", "fd00::2", "fd00::3"]);
    }

    #[test]
    fn a_mistake_is_named_with_its_path() {
        let ranges = |ranges: Value| json!({ "ipam": { "ranges": ranges } });
        let cases = [
            (json!({ "ipam": {} }), 7, "ipam.ranges is missing"),
            (ranges(json!([])), 7, "ipam.ranges is missing"),
            (ranges(json!([[]])), 7, "ipam.ranges[0]: the range set is empty"),
            (ranges(json!([[{}]])), 6, "ipam.ranges[0][0]: missing field `subnet`"),
            (ranges(json!([[{ "subnet": "10.0.0.0" }]])), 6, "ipam.ranges[0][0].subnet: \"10.0.0.0\""),
            (ranges(json!([[{ "subnet": 7 }]])), 6, "ipam.ranges[0][0].subnet: expected a string, found 7"),
            (
                ranges(json!([{ "subnet": "10.0.0.0/24" }])),
                6,
                "ipam.ranges[0]: expected a list, found an object",
            ),
            (
                ranges(json!([[{ "subnet": "10.0.0.0/31" }]])),
                7,
                "ipam.ranges[0]: subnet 10.0.0.0/31 is too small",
            ),
            (
                json!({ "ipam": { "subnet": "10.0.0.7/24" } }),
                7,
                "ipam.subnet: subnet 10.0.0.7/24 has host bits",
            ),
            (json!({ "ipam": { "subnet": "10.0.0.0/24", "exclude": ["x"] } }), 6, "ipam.exclude[0]: \"x\""),
            (
                json!({ "ipam": { "subnet": "10.0.0.0/24", "routes": [{}] } }),
                6,
                "ipam.routes[0]: missing field `dst`",
            ),
            (json!({ "ipam": { "dataDir": 1 } }), 6, "ipam.dataDir"),
            (
                json!({ "ipam": { "subnet": "10.0.0.0/24", "ranges": [[{ "subnet": "10.0.0.0/16" }]] } }),
                7,
                "ipam.ranges[0]: range 10.0.0.0/16 overlaps 10.0.0.0/24 (ipam.subnet)",
            ),
        ];
        for (document, code, culprit) in cases {
            let error = conf(document).unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.msg().starts_with(culprit), "{error}");
        }
    }

    #[test]
    fn before_0_3_0_one_address_a_family_is_all() {
        let two =
            conf(json!({ "ipam": { "subnet": "10.0.0.0/24", "ranges": [[{ "subnet": "10.1.0.0/24" }]] } }));
        let two = two.unwrap();
        let error = two.check_fits(Version::V0_2_0).unwrap_err();
        let words = "CNI version 0.2.0 does not support more than 1 address per family";
        assert_eq!((error.code(), error.to_string()), (7, words.to_owned()));
        two.check_fits(Version::V0_3_0).unwrap();
        let dual =
            conf(json!({ "ipam": { "subnet": "10.0.0.0/24", "ranges": [[{ "subnet": "fd00::/64" }]] } }));
        dual.unwrap().check_fits(Version::V0_1_0).unwrap();
    }

    #[test]
    fn a_configuration_that_add_refuses_still_has_a_data_directory_for_del() {
        let dir = |document: Value| data_dir(&AsWritten::from(document)).unwrap();
        let refused = json!({ "ipam": { "DATADIR": "/x", "ranges": "nonsense" } });
        assert_eq!(dir(refused), PathBuf::from("/x"));
        assert_eq!(dir(json!({})), PathBuf::from(DATA_DIR));
    }
}
