//! `CNI_ARGS`: `KEY=VALUE;KEY=VALUE`, free-form arguments of one attachment (SPEC.md, section 2, "Parameters").

use std::fmt;
use std::net::IpAddr;

use crate::addr::{parse_cidr, parse_ip};
use crate::{Code, Error, Result};

/// Keys that the plugins read (CONVENTIONS.md, "CNI_ARGS").
const KNOWN: [&str; 4] = ["IgnoreUnknown", "IP", "MAC", "GATEWAY"];

/// The arguments of one attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CniArgs(Vec<(String, String)>);

impl CniArgs {
    /// Parses the variable.
    ///
    /// # Errors
    /// The problem, as the end of a sentence that begins with `CNI_ARGS`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let pairs = text.split(';').filter(|pair| !pair.is_empty()).map(|pair| match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(format!("has {pair:?}, which is not KEY=VALUE")),
        });
        pairs.collect::<Result<_, _>>().map(Self)
    }

    /// The value of a key. If it is set twice, the last one.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// All pairs, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// `IP`: the requested address, with or without a prefix length. An empty value is treated as unset.
    ///
    /// # Errors
    /// Code 4 if it is not an address.
    pub fn ip(&self) -> Result<Option<IpAddr>> {
        let read =
            |text: &str| parse_ip(text).or_else(|e| parse_cidr(text).map(|net| net.ip()).map_err(|_| e));
        self.get("IP").filter(|text| !text.is_empty()).map(read).transpose().map_err(|e| malformed("IP", e))
    }

    /// `MAC`: the requested hardware address, as text. An empty value is treated as unset.
    pub fn mac(&self) -> Option<&str> {
        self.get("MAC").filter(|text| !text.is_empty())
    }

    /// Refuses unknown keys unless `IgnoreUnknown` is `1` or `true`, because a misspelt request must not be ignored.
    ///
    /// # Errors
    /// Code 4, naming the keys.
    pub fn refuse_unknown(&self) -> Result<()> {
        if self.ignore_unknown()? {
            return Ok(());
        }
        let unknown: Vec<&str> =
            self.0.iter().map(|(k, _)| k.as_str()).filter(|k| !KNOWN.contains(k)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            Code::InvalidEnvironment,
            format!("CNI_ARGS has unknown keys: {}", unknown.join(", ")),
        )
        .detail(format!("known keys: {}; add IgnoreUnknown=1 to ignore the others", KNOWN.join(", "))))
    }

    fn ignore_unknown(&self) -> Result<bool> {
        match self.get("IgnoreUnknown").map(str::to_ascii_lowercase).as_deref() {
            Some("1" | "true") => Ok(true),
            None | Some("0" | "false") => Ok(false),
            Some(other) => Err(malformed("IgnoreUnknown", format!("{other:?} is not a boolean"))),
        }
    }
}

impl FromIterator<(String, String)> for CniArgs {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

/// The variable's value.
impl fmt::Display for CniArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (key, value)) in self.iter().enumerate() {
            write!(f, "{}{key}={value}", if i > 0 { ";" } else { "" })?;
        }
        Ok(())
    }
}

fn malformed(key: &str, what: String) -> Error {
    Error::new(Code::InvalidEnvironment, format!("CNI_ARGS: {key}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn podmans_arguments_are_read() {
        let args =
            CniArgs::parse("IgnoreUnknown=1;K8S_POD_NAME=web;IP=10.88.0.7;MAC=0a:00:00:00:00:07").unwrap();
        args.refuse_unknown().unwrap();
        assert_eq!(args.ip().unwrap(), Some("10.88.0.7".parse().unwrap()));
        assert_eq!(args.mac(), Some("0a:00:00:00:00:07"));
        assert_eq!(CniArgs::parse("IP=fd00::7/64").unwrap().ip().unwrap(), Some("fd00::7".parse().unwrap()));
    }

    #[test]
    fn written_out_they_are_the_variables_value_again() {
        let args = CniArgs::parse("A=1;;B=x=y").unwrap();
        assert_eq!(args.to_string(), "A=1;B=x=y");
        let pairs = [("A", "1"), ("B", "x=y")];
        assert_eq!(args.iter().collect::<Vec<_>>(), pairs);
        // As libcni's cache contains them.
        assert_eq!(
            pairs.map(|(key, value)| (key.into(), value.into())).into_iter().collect::<CniArgs>(),
            args
        );
    }

    #[test]
    fn an_unknown_key_is_refused_by_name_unless_unknown_keys_are_allowed() {
        let error = CniArgs::parse("IPP=10.0.0.1").unwrap().refuse_unknown().unwrap_err();
        assert_eq!(error.code(), 4);
        assert!(error.msg().ends_with("IPP"), "{error}");
        CniArgs::parse("IPP=10.0.0.1;IgnoreUnknown=true").unwrap().refuse_unknown().unwrap();
        assert!(CniArgs::parse("IgnoreUnknown=maybe").unwrap().refuse_unknown().is_err());
    }

    #[test]
    fn a_malformed_pair_or_address_is_refused() {
        assert!(CniArgs::parse("IP").is_err());
        assert!(CniArgs::parse("=x").is_err());
        assert!(CniArgs::parse("IP=ten").unwrap().ip().is_err());
        assert_eq!(CniArgs::parse("IP=").unwrap().ip().unwrap(), None);
        assert_eq!(CniArgs::parse("MAC=").unwrap().mac(), None);
        assert_eq!(CniArgs::parse(";").unwrap(), CniArgs::default());
    }
}
