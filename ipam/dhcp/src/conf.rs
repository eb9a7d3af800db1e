//! The configuration after all checks. No I/O.

use std::path::PathBuf;

use cni::{AsWritten, CniArgs, Code, Error, Result};
use dhcp_client::options::{self, Number, PARAMETER_REQUEST_LIST};
use rustix::net::SocketAddrUnix;
use serde::Deserialize;
use serde_json::Value;

use crate::args::SOCKET;
use crate::key::Family;

/// The configuration.
#[derive(Clone, Debug)]
pub struct Conf {
    /// `daemonSocketPath`.
    pub socket: PathBuf,
    /// `family`: the requested address families.
    pub family: Families,
    /// `priority`: the metric of all routes. None: the kernel's default.
    pub priority: Option<u32>,
    /// `provide`: options to send to servers.
    pub provide: Vec<Provide>,
    /// `request`: options to request from servers.
    pub request: Vec<Number>,
    /// Those of `request` without which an ADD fails.
    pub required: Vec<Number>,
    /// Of `request`: the default options are not requested.
    pub skip_default: bool,
    /// The whole configuration as written, for the daemon.
    pub written: Value,
}

/// The requested address families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Families {
    /// IPv4, by DHCP.
    #[default]
    V4,
    /// IPv6, by DHCPv6.
    V6,
    /// Both. ADD needs a lease of each.
    Both,
}

impl Families {
    /// As a list.
    pub fn list(self) -> &'static [Family] {
        match self {
            Self::V4 => &[Family::V4],
            Self::V6 => &[Family::V6],
            Self::Both => &Family::ALL,
        }
    }

    fn parse(text: &str) -> Result<Self> {
        match text {
            "" | "ipv4" => Ok(Self::V4),
            "ipv6" => Ok(Self::V6),
            "both" => Ok(Self::Both),
            other => Err(Error::config(format!("ipam.family {other:?} is none of ipv4, ipv6, both"))),
        }
    }
}

/// An option to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provide {
    pub option: Number,
    /// Its value, as bytes.
    pub value: Option<Vec<u8>>,
    /// The key of `CNI_ARGS` whose value is preferred.
    pub from_arg: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawConf {
    ipam: RawIpam,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawIpam {
    daemon_socket_path: PathBuf,
    family: String,
    priority: Option<u32>,
    provide: Vec<RawProvide>,
    request: Vec<RawRequest>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawProvide {
    option: String,
    value: Option<String>,
    from_arg: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawRequest {
    option: String,
    skip_default: bool,
    required: bool,
}

impl TryFrom<AsWritten> for Conf {
    type Error = Error;

    fn try_from(written: AsWritten) -> Result<Self> {
        let RawConf { ipam } = written.decode()?;
        let family = Families::parse(&ipam.family)?;
        if family == Families::V6 {
            ipam.refuse_v4_keys()?;
        }
        let provide = ipam
            .provide
            .into_iter()
            .enumerate()
            .map(|(n, raw)| raw.checked().map_err(|e| Error::config(format!("ipam.provide[{n}].{e}"))));
        let skip_default = ipam.request.iter().any(|raw| raw.skip_default);
        let named = ipam.request.iter().enumerate().filter(|(_, raw)| !raw.option.is_empty());
        let named = named.map(|(n, raw)| match options::parse(&raw.option) {
            Ok(number) => Ok((number, raw.required)),
            Err(e) => Err(Error::config(format!("ipam.request[{n}].option: {e}"))),
        });
        let request = named.collect::<Result<Vec<_>>>()?;
        let required = request.iter().filter(|(_, required)| *required);
        Ok(Self {
            socket: bindable(socket(ipam.daemon_socket_path))?,
            family,
            priority: ipam.priority,
            provide: provide.collect::<Result<_>>()?,
            required: required.map(|(number, _)| *number).collect(),
            request: request.into_iter().map(|(number, _)| number).collect(),
            skip_default,
            written: written.decode()?,
        })
    }
}

impl RawIpam {
    /// DHCPv6 has other option numbers and no routes, so the keys for IPv4 are errors.
    fn refuse_v4_keys(&self) -> Result<()> {
        let there = [
            ("priority", self.priority.is_some()),
            ("provide", !self.provide.is_empty()),
            ("request", !self.request.is_empty()),
        ];
        match there.iter().find(|(_, is_there)| *is_there) {
            Some((key, _)) => {
                Err(Error::config(format!("ipam.{key} is only for IPv4, but ipam.family is \"ipv6\"")))
            }
            None => Ok(()),
        }
    }
}

/// The daemon's socket. Empty: the default path.
fn socket(path: PathBuf) -> PathBuf {
    if path.as_os_str().is_empty() { SOCKET.into() } else { path }
}

/// Refuses a path that no socket can have (unix(7)).
fn bindable(path: PathBuf) -> Result<PathBuf> {
    match SocketAddrUnix::new(&path) {
        Ok(_) => Ok(path),
        Err(_) => Err(Error::config(format!(
            "ipam.daemonSocketPath {path:?} has more than 107 bytes or contains a NUL, so no socket can have it"
        ))),
    }
}

/// The daemon's socket for DEL and GC. A malformed key is ignored.
pub fn socket_as_written(written: &AsWritten) -> PathBuf {
    socket(written.key(&["ipam", "daemonSocketPath"]).unwrap_or_default())
}

/// Maximum length of an option's value, in bytes.
const LONGEST: usize = 255;

impl RawProvide {
    fn checked(self) -> Result<Provide, String> {
        let option = options::parse(&self.option).map_err(|e| format!("option: {e}"))?;
        let value = self.value.filter(|text| !text.is_empty());
        let value = value.map(|text| bytes(option, &text).map_err(|e| format!("value: {e}"))).transpose()?;
        Ok(Provide { option, value, from_arg: self.from_arg.filter(|key| !key.is_empty()) })
    }
}

fn bytes(option: Number, text: &str) -> Result<Vec<u8>, String> {
    let bytes = options::encode(option, text)?;
    if bytes.len() > LONGEST {
        return Err(format!(
            "{} bytes are too long for an option: at most {LONGEST} are allowed",
            bytes.len()
        ));
    }
    Ok(bytes)
}

impl Conf {
    /// The options to send for an attachment. A value in `CNI_ARGS` is preferred to the configuration's. An option
    /// without either is left out. With `skipDefault`, the list of requested options is included.
    ///
    /// # Errors
    /// Code 4 if an argument is not a valid value of its option.
    pub fn provided(&self, args: &CniArgs) -> Result<Vec<(Number, Vec<u8>)>> {
        let mut all = Vec::new();
        for Provide { option, value, from_arg } in &self.provide {
            let arg = from_arg
                .as_deref()
                .and_then(|key| Some((key, args.get(key).filter(|text| !text.is_empty())?)));
            match arg {
                Some((key, text)) => {
                    let bytes = bytes(*option, text)
                        .map_err(|e| Error::new(Code::InvalidEnvironment, format!("CNI_ARGS: {key}: {e}")))?;
                    all.push((*option, bytes));
                }
                None => all.extend(value.clone().map(|value| (*option, value))),
            }
        }
        let has_list = all.iter().any(|(option, _)| *option == PARAMETER_REQUEST_LIST);
        if self.skip_default && !self.request.is_empty() && !has_list {
            all.push((PARAMETER_REQUEST_LIST, self.request.clone()));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn conf(ipam: Value) -> Result<Conf> {
        Conf::try_from(AsWritten::from(json!({"ipam": ipam})))
    }

    #[test]
    fn keys_have_the_references_meaning() {
        let conf = conf(json!({
            "type": "dhcp",
            "daemonSocketPath": "/run/other.sock",
            "priority": 100,
            "provide": [{"option": "12", "value": "a"}, {"option": "60", "fromArg": "CLASS"}, {"option": "77"}],
            "request": [{"skipDefault": true}, {"option": "42"}, {"option": "26", "required": true}],
        }));
        let conf = conf.unwrap();
        assert_eq!(conf.socket, PathBuf::from("/run/other.sock"));
        assert_eq!((conf.priority, conf.skip_default), (Some(100), true));
        assert_eq!((&conf.request[..], &conf.required[..]), (&[42, 26][..], &[26][..]));
        let provided = |args| conf.provided(&CniArgs::parse(args).unwrap()).unwrap();
        let requested = (55, vec![42, 26]);
        assert_eq!(provided(""), [(12, b"a".to_vec()), requested.clone()]);
        assert_eq!(provided("CLASS=b;OTHER=c"), [(12, b"a".to_vec()), (60, b"b".to_vec()), requested]);
    }

    #[test]
    fn an_argument_takes_precedence_over_the_configuration() {
        let conf = conf(json!({"provide": [{"option": "12", "value": "a", "fromArg": "NAME"}]})).unwrap();
        let provided = |args| conf.provided(&CniArgs::parse(args).unwrap()).unwrap();
        assert_eq!(provided("NAME=b"), [(12, b"b".to_vec())]);
        assert_eq!(provided("NAME="), [(12, b"a".to_vec())]);
        let long = format!("NAME={}", "x".repeat(256));
        assert_eq!(conf.provided(&CniArgs::parse(&long).unwrap()).unwrap_err().code(), 4);
    }

    #[test]
    fn invalid_values_are_named() {
        for (ipam, code, culprit) in [
            (json!({"daemonSocketPath": 5}), 6, "daemonSocketPath"),
            (json!({"family": "6"}), 7, "family"),
            (json!({"family": 6}), 6, "family"),
            (json!({"family": "ipv6", "priority": 5}), 7, "priority"),
            (json!({"family": "ipv6", "provide": [{"option": "12", "value": "a"}]}), 7, "provide"),
            (json!({"family": "ipv6", "request": [{"option": "42"}]}), 7, "request"),
            (json!({"priority": -1}), 6, "priority"),
            (json!({"provide": [{"option": "no-such-option"}]}), 7, "provide[0].option"),
            (json!({"provide": [{"value": "a"}]}), 7, "provide[0].option"),
            (json!({"provide": [{"option": []}]}), 6, "provide[0].option"),
            (json!({"provide": [{"option": "12", "value": "x".repeat(256)}]}), 7, "provide[0].value"),
            (json!({"request": [{"option": "255"}]}), 7, "request[0].option"),
            (json!({"request": [{"skipDefault": 1}]}), 6, "request[0].skipDefault"),
        ] {
            let error = conf(ipam.clone()).unwrap_err();
            assert!(error.code() == code && error.msg().contains(culprit), "{ipam}: {error:?}");
        }
    }

    #[test]
    fn a_relative_socket_is_accepted_as_by_the_reference() {
        let written = AsWritten::from(json!({"ipam": {"daemonSocketPath": "dhcp.sock"}}));
        assert_eq!(socket_as_written(&written), PathBuf::from("dhcp.sock"));
        assert_eq!(Conf::try_from(written).unwrap().socket, PathBuf::from("dhcp.sock"));
    }

    #[test]
    fn an_invalid_socket_does_not_keep_del_from_calling_the_daemon() {
        for socket in [json!(5), json!(""), Value::Null] {
            let written = AsWritten::from(json!({"ipam": {"daemonSocketPath": socket}}));
            assert_eq!(socket_as_written(&written), PathBuf::from(SOCKET));
        }
    }
}
