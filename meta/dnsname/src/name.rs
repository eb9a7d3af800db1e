//! Host names in DNS (RFC 1123, section 2.1; RFC 1035, section 2.3.4).

use std::fmt;
use std::net::IpAddr;

/// Maximum length of a name and of a label, in bytes.
const LONGEST: usize = 253;
const LONGEST_LABEL: usize = 63;

/// A validated name: labels of letters, digits and hyphens, separated by dots. Only such names are written to the
/// hosts file and to dnsmasq's configuration. A label may also contain underscores, because container engines create
/// names such as `app_web_1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

impl HostName {
    /// Validates a name.
    ///
    /// # Errors
    /// The problem, as the end of a sentence that begins with the source of the name.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is empty".into());
        }
        if text.len() > LONGEST {
            return Err(format!("is {} bytes long; a name in DNS has at most {LONGEST}", text.len()));
        }
        text.split('.').try_for_each(|label| check_label(text, label))?;
        if text.parse::<IpAddr>().is_ok() {
            return Err(format!("{text:?} is an address; resolvers never look it up as a name"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name in a domain. None: it is already in the domain, or would be too long.
    pub fn within(&self, domain: &Self) -> Option<Self> {
        let is_below = self.0.to_ascii_lowercase().ends_with(&format!(".{}", domain.0.to_ascii_lowercase()));
        if is_below { None } else { Self::parse(&format!("{self}.{domain}")).ok() }
    }

    /// Whether both are the same name in DNS, which ignores case.
    pub fn is(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_label(name: &str, label: &str) -> Result<(), String> {
    if label.is_empty() {
        return Err(format!("{name:?} has an empty label: two dots in a row, or one at an end"));
    }
    if label.len() > LONGEST_LABEL {
        return Err(format!(
            "{name:?} has a label of {} bytes; a label in DNS has at most {LONGEST_LABEL}",
            label.len()
        ));
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if let Some(c) = label.chars().find(|c| !is_allowed(*c)) {
        return Err(format!("{name:?} has {c:?} in it; only letters, digits, '-', '_' and '.' are allowed"));
    }
    let is_border = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if is_border(label.chars().next()) && is_border(label.chars().next_back()) {
        return Ok(());
    }
    Err(format!("{name:?} has the label {label:?}; a label begins and ends with a letter or a digit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_and_of_container_engines_are_accepted() {
        for name in ["a", "web", "Web-1", "1", "0123456789ab", "db.internal", "app_web_1", &"x".repeat(63)] {
            assert_eq!(HostName::parse(name).unwrap().as_str(), name);
        }
        let longest = [&"a".repeat(63)[..], &"b".repeat(63), &"c".repeat(63), &"d".repeat(61)].join(".");
        assert_eq!(longest.len(), 253);
        HostName::parse(&longest).unwrap();
    }

    #[test]
    fn a_name_that_dns_cannot_carry_or_a_hosts_file_would_read_otherwise_is_refused() {
        let long = ["x".repeat(300), "x".repeat(64), vec!["abc"; 64].join(".")];
        let refused = [
            "", ".", "..", "a..b", ".a", "a.", "a b", "a\tb", "a\nb", "a#b", "#", "*", "*.a", "-a", "a-",
            "_a", "a_", "a/b", "ä", "a\0", "a,b", "a=b", "a\"", "10.0.0.1", "1.2.3.4",
        ];
        for name in refused.into_iter().chain(long.iter().map(String::as_str)) {
            assert!(HostName::parse(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn case_makes_no_other_name() {
        let name = |text| HostName::parse(text).unwrap();
        assert!(name("Web").is(&name("wEB")) && !name("web").is(&name("web1")));
    }
}
