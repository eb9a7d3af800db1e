//! The host's allowlist of sysctls.

use std::io::{self, ErrorKind};
use std::path::Path;

use cni::{Error, Result};
use regex_lite::Regex;
use system::file;

use crate::sysctl::Sysctl;

/// Path of the list. Without the file, all of net/ is allowed.
const FILE: &str = "/etc/cni/tuning/allowlist.conf";

/// Maximum size in bytes. A pattern takes about a hundred times its length in memory.
const LARGEST: u64 = 64 << 10;

/// Checks that each sysctl, as written in the configuration, matches a pattern of the list.
///
/// # Errors
/// Code 7 for a sysctl that is not allowed, or an invalid pattern; 5 if the file cannot be read.
pub fn permit(sysctls: &[Sysctl]) -> Result<()> {
    if sysctls.is_empty() {
        return Ok(());
    }
    match read(Path::new(FILE)) {
        Ok(Some(text)) => permit_by(&text, sysctls),
        Ok(None) => Ok(()),
        Err(e) => Err(Error::io(format!("read the list of allowed sysctls {FILE}"), &e)),
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match file::read(path, LARGEST) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(io::Error::other),
        // With a dangling link, the administrator wants a list, so this is an error.
        Err(e) if e.kind() == ErrorKind::NotFound && path.is_symlink() => Err(e),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e),
    }
}

pub fn permit_by(text: &str, sysctls: &[Sysctl]) -> Result<()> {
    let patterns: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    for sysctl in sysctls {
        if !matches_any(&patterns, sysctl.key.as_written())? {
            return Err(Error::config(format!("sysctl {sysctl} is not allowed on this host"))
                .detail(format!("add a pattern for it to {FILE} to allow it")));
        }
    }
    Ok(())
}

/// A pattern matches anywhere in the key unless it is anchored.
fn matches_any(patterns: &[&str], key: &str) -> Result<bool> {
    for pattern in patterns {
        let regex = Regex::new(&without_quotes(pattern)).map_err(|e| {
            Error::config(format!("{FILE}: {pattern:?} is not a regular expression")).detail(e.to_string())
        })?;
        if regex.is_match(key) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Escapes the text of each `\Q...\E`. Go's patterns, which the reference uses, have this notation, and those of `regex_lite` do not.
fn without_quotes(pattern: &str) -> String {
    let (mut escaped, mut rest) = (String::new(), pattern);
    while let Some((before, after)) = rest.split_once('\\') {
        escaped.push_str(before);
        if let Some(quoted) = after.strip_prefix('Q') {
            let (literal, remainder) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            escaped.push_str(&regex_lite::escape(literal));
            rest = remainder;
        } else {
            // The next character may be a backslash.
            let (next, remainder) = after.split_at(after.chars().next().map_or(0, char::len_utf8));
            escaped.push('\\');
            escaped.push_str(next);
            rest = remainder;
        }
    }
    escaped + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysctl::Key;

    fn permitted(list: &str, key: &str) -> Result<()> {
        permit_by(list, &[Sysctl { key: Key::parse(key).unwrap(), value: "1".into() }])
    }

    #[test]
    fn a_key_is_allowed_if_a_pattern_matches_its_spelling() {
        let list = "\n  ^net\\.ipv4\\.conf\\.IFNAME\\.[a-z_]*$\t\r\nsomaxconn\n";
        permitted(list, "net.ipv4.conf.IFNAME.arp_filter").unwrap();
        permitted(list, "net/core/somaxconn").unwrap();
        for refused in
            ["net.ipv4.conf.eth0.arp_filter", "net/ipv4/conf/IFNAME/arp_filter", "net.core.rmem_max"]
        {
            let error = permitted(list, refused).unwrap_err();
            assert_eq!(error.code(), 7);
            assert!(error.msg().contains(&format!("{refused} = \"1\"")), "{error}");
        }
    }

    #[test]
    fn quoted_text_is_literal_as_in_gos_patterns() {
        permitted(r"^\Qnet.ipv4.conf.\E[a-z0-9]+\Q.arp_filter\E$", "net.ipv4.conf.eth0.arp_filter").unwrap();
        permitted(r"^net\.\Qipv4.ip_forward", "net.ipv4.ip_forward").unwrap();
        permitted(r"^\Qnet.core.somaxconn\E", "net/core/somaxconn").unwrap_err();
        for (pattern, expected) in [
            (r"a\Q.\E\Q*\E+", r"a\.\*+"),
            (r"\\Q.\\E", r"\\Q.\\E"),
            (r"\Q\E", ""),
            (r"\Q\d", r"\\d"),
            (r"\", r"\"),
            ("é", "é"),
        ] {
            assert_eq!(without_quotes(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn gos_other_notations_are_supported_or_invalid() {
        for pattern in [
            r"^net\.[[:alnum:]]+\.conf$",
            r"\Anet\.\w+\.conf\z",
            r"(?i)^NET\x2eipv4(?P<rest>\x{2E}conf)$",
            r"^net\.ip[^\d]\d\.co(?:nf|ns)??$",
            r"(?s:^net.ipv4.conf$)",
        ] {
            permitted(pattern, "net.ipv4.conf").unwrap_or_else(|e| panic!("{pattern}: {e}"));
        }
        for pattern in [r"\pL", r"\p{Greek}", r"\156et", r"\C"] {
            let error = permitted(pattern, "net.ipv4.conf").unwrap_err();
            assert!(error.msg().contains("is not a regular expression"), "{pattern}: {error}");
        }
    }

    #[test]
    fn an_empty_list_allows_nothing() {
        assert!(permitted("\n \n", "net.core.somaxconn").is_err());
    }

    #[test]
    fn a_list_may_be_missing_or_a_link_but_not_a_dangling_link_or_an_endless_device() {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join("allowlist.conf");
        assert_eq!(read(&list).unwrap(), None);
        std::os::unix::fs::symlink(dir.path().join("of-config-management"), &list).unwrap();
        read(&list).unwrap_err();
        std::fs::write(&list, "somaxconn").unwrap();
        assert_eq!(read(&list).unwrap().as_deref(), Some("somaxconn"));
        std::fs::write(&list, vec![0; 10 << 20]).unwrap();
        read(&list).unwrap_err();
        std::fs::remove_file(&list).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &list).unwrap();
        read(&list).unwrap_err();
    }

    #[test]
    fn an_invalid_pattern_is_named_when_it_is_needed() {
        permitted("somaxconn\n[", "net.core.somaxconn").unwrap();
        let error = permitted("[\nsomaxconn", "net.core.somaxconn").unwrap_err();
        assert!(error.msg().contains("\"[\""), "{error}");
    }
}
