//! The configuration: unchecked ([`RawConf`]) and validated ([`Conf`]). No I/O.

use std::collections::BTreeMap;

use cni::{AddResult, AsWritten, CniArgs, Error, NetworkName, Result};
use serde::Deserialize;

use crate::name::HostName;

/// The keys of `CNI_ARGS` with the container's name, by precedence. Podman and Kubernetes set the first one.
const NAME_ARGS: [&str; 2] = ["K8S_POD_NAME", "CNI_POD_NAME"];

/// Maximum length of the domain in bytes. A label of maximum length still fits before it.
const LONGEST_DOMAIN: usize = 189;

/// The configuration before validation.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawConf {
    domain_name: String,
    /// Has no effect, because each network has its own server. It is parsed so that a wrong type is reported.
    multi_domain: bool,
    internal: Option<bool>,
    runtime_config: RawRuntime,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawRuntime {
    aliases: Option<RawAliases>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a list of names, or a map from network to list")]
enum RawAliases {
    Plain(Vec<String>),
    ByNetwork(BTreeMap<String, Option<Vec<String>>>),
}

/// The validated configuration.
#[derive(Clone, Debug)]
pub struct Conf {
    /// `domainName`: the domain of all names of the network.
    pub domain: Option<HostName>,
    /// `internal`: whether names outside the network are not resolved. None: it depends on the container's routes.
    pub internal: Option<bool>,
    aliases: Aliases,
}

/// `runtimeConfig.aliases`
#[derive(Clone, Debug)]
enum Aliases {
    /// A list of this network's aliases, as in the CNI conventions.
    Plain(Vec<HostName>),
    /// The aliases by network, as Podman sends them. Aliases of other networks are not validated, because these
    /// networks may have no DNS.
    ByNetwork(BTreeMap<String, Vec<String>>),
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(written: AsWritten) -> Result<Self> {
        let RawConf { domain_name, internal, runtime_config, .. } = written.decode()?;
        let domain = Some(domain_name).filter(|name| !name.is_empty());
        let domain = domain.map(|name| HostName::parse(&name)).transpose();
        let domain = domain.map_err(|why| Error::config(format!("domainName {why}")))?;
        if let Some(long) = domain.as_ref().filter(|domain| domain.as_str().len() > LONGEST_DOMAIN) {
            return Err(Error::config(format!(
                "domainName is {} bytes long; at most {LONGEST_DOMAIN} leave room for names",
                long.as_str().len()
            )));
        }
        let aliases = match runtime_config.aliases {
            None => Aliases::Plain(Vec::new()),
            Some(RawAliases::Plain(names)) => {
                Aliases::Plain(names.iter().map(|name| alias(name)).collect::<Result<_>>()?)
            }
            Some(RawAliases::ByNetwork(networks)) => Aliases::ByNetwork(
                networks.into_iter().map(|(name, list)| (name, list.unwrap_or_default())).collect(),
            ),
        };
        Ok(Self { domain, internal, aliases })
    }
}

impl Conf {
    /// The container's names on a network, without duplicates. The first one is the container's own name.
    ///
    /// # Errors
    /// Code 7 if a name is not valid in DNS.
    pub fn names(&self, network: &NetworkName, args: &CniArgs) -> Result<Vec<HostName>> {
        let own = NAME_ARGS.into_iter().find_map(|key| {
            let name = args.get(key).filter(|name| !name.is_empty())?;
            Some(HostName::parse(name).map_err(|why| refused(&format!("{key} of CNI_ARGS"), &why)))
        });
        let aliases = match &self.aliases {
            Aliases::Plain(names) => names.clone(),
            Aliases::ByNetwork(networks) => {
                let of_network = networks.get(network.as_str()).into_iter().flatten();
                of_network.map(|name| alias(name)).collect::<Result<_>>()?
            }
        };
        let mut names: Vec<HostName> = Vec::new();
        for name in own.transpose()?.into_iter().chain(aliases) {
            self.check_length(&name).map_err(|why| refused("a name with domainName", &why))?;
            if !names.iter().any(|earlier| earlier.is(&name)) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Checks a name before ADD, for a program that has names which are not valid in DNS.
    ///
    /// # Errors
    /// The reason why ADD would refuse the name, as the end of a sentence that begins with the name.
    pub fn check_name(&self, name: &str) -> Result<(), String> {
        self.check_length(&HostName::parse(name)?)
    }

    fn check_length(&self, name: &HostName) -> Result<(), String> {
        let domain = self.domain.as_ref().map(|domain| HostName::parse(&format!("{name}.{domain}")));
        domain.transpose().map(drop)
    }

    /// Whether names outside the network are resolved: according to `internal`, or else if the container has a
    /// default route.
    pub fn forwards(&self, result: &AddResult) -> bool {
        let has_default_route = || result.routes.iter().any(|route| route.dst.prefix() == 0);
        self.internal.map_or_else(has_default_route, |internal| !internal)
    }
}

fn alias(name: &str) -> Result<HostName> {
    HostName::parse(name).map_err(|why| refused("runtimeConfig.aliases: a name", &why))
}

fn refused(what: &str, why: &str) -> Error {
    Error::config(format!("{what} {why}"))
        .detail("the name would be registered in DNS: choose another one for the container or its alias")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn conf(document: Value) -> Result<Conf> {
        Conf::try_from(AsWritten::from(document))
    }

    fn names(aliases: &Value, args: &str) -> Result<Vec<String>> {
        let conf = conf(json!({"runtimeConfig": {"aliases": aliases}}))?;
        let names = conf.names(&NetworkName::parse("net").unwrap(), &CniArgs::parse(args).unwrap())?;
        Ok(names.iter().map(HostName::to_string).collect())
    }

    #[test]
    fn a_list_and_the_networks_part_of_a_map_are_the_aliases() {
        for (aliases, expected) in [
            (json!(["db", "DB", "cache"]), vec!["web", "db", "cache"]),
            (json!({"net": ["db"], "other": ["no name"]}), vec!["web", "db"]),
            (json!({"other": ["db"], "net": null}), vec!["web"]),
            (json!(null), vec!["web"]),
        ] {
            assert_eq!(names(&aliases, "K8S_POD_NAME=web").unwrap(), expected, "{aliases}");
        }
    }

    #[test]
    fn the_container_is_named_by_the_arguments_or_not_at_all() {
        for (args, expected) in [
            ("K8S_POD_NAME=a;CNI_POD_NAME=b", vec!["a", "db"]),
            ("CNI_POD_NAME=b;IP=10.1.2.3", vec!["b", "db"]),
            ("K8S_POD_NAME=;CNI_POD_NAME=b", vec!["b", "db"]),
            ("", vec!["db"]),
        ] {
            assert_eq!(names(&json!(["db"]), args).unwrap(), expected, "{args}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let code = |outcome: Result<Vec<String>>, word: &str| {
            let error = outcome.unwrap_err();
            assert!(error.msg().contains(word), "{error:?}");
            error.code()
        };
        assert_eq!(code(names(&json!(["a b"]), ""), "aliases"), 7);
        assert_eq!(code(names(&json!({"net": ["*"]}), ""), "aliases"), 7);
        assert_eq!(code(names(&json!([]), "K8S_POD_NAME=a..b"), "K8S_POD_NAME"), 7);
        assert_eq!(code(names(&json!("db"), ""), "runtimeConfig.aliases"), 6);
        assert_eq!(code(names(&json!({"net": "db"}), ""), "runtimeConfig.aliases"), 6);
        assert_eq!(conf(json!({"domainName": "a\nb"})).unwrap_err().code(), 7);
        assert_eq!(conf(json!({"multiDomain": "yes"})).unwrap_err().code(), 6);
    }

    #[test]
    fn a_name_can_be_checked_before_an_add() {
        let conf = conf(json!({"domainName": "dns.podman"})).unwrap();
        let longest = [&*"a".repeat(63), &"b".repeat(63), &"c".repeat(63), &"d".repeat(50)].join(".");
        conf.check_name(&longest).unwrap();
        assert!(conf.check_name(&format!("{longest}d")).unwrap_err().contains("254 bytes"));
        assert!(conf.check_name("web_").is_err());
    }

    #[test]
    fn a_network_without_a_default_route_is_internal_unless_the_configuration_says_otherwise() {
        let route = |dst: &str| cni::Route::to(dst.parse().unwrap());
        let with = |routes: &[&str]| AddResult {
            routes: routes.iter().map(|dst| route(dst)).collect(),
            ..AddResult::default()
        };
        let plain = conf(json!({})).unwrap();
        assert!(plain.forwards(&with(&["10.0.0.0/8", "0.0.0.0/0"])) && plain.forwards(&with(&["::/0"])));
        assert!(!plain.forwards(&with(&["10.0.0.0/8"])));
        assert!(!conf(json!({"internal": true})).unwrap().forwards(&with(&["::/0"])));
        assert!(conf(json!({"internal": false})).unwrap().forwards(&with(&[])));
    }
}
