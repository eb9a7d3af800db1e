//! Conditions in the words of iptables(8).

/// Matches that may be loaded with `-m`.
const MATCHES: &[&str] = &[
    "addrtype",
    "conntrack",
    "cpu",
    "dscp",
    "iprange",
    "length",
    "limit",
    "mac",
    "mark",
    "multiport",
    "owner",
    "physdev",
    "pkttype",
    "sctp",
    "set",
    "socket",
    "state",
    "statistic",
    "tcp",
    "tos",
    "ttl",
    "hl",
    "udp",
];

/// Options that may be given: those that match. None of them names a table, a chain or a target, and none may
/// be shortened, so that `--jum` is not taken for `--jump`.
const OPTIONS: &[&str] = &[
    "-s",
    "--source",
    "--src",
    "-d",
    "--destination",
    "--dst",
    "-i",
    "--in-interface",
    "-o",
    "--out-interface",
    "-m",
    "--match",
    "--sport",
    "--source-port",
    "--dport",
    "--destination-port",
    "--sports",
    "--source-ports",
    "--dports",
    "--destination-ports",
    "--ports",
    "--src-type",
    "--dst-type",
    "--limit-iface-in",
    "--limit-iface-out",
    "--ctstate",
    "--ctproto",
    "--ctorigsrc",
    "--ctorigdst",
    "--ctorigsrcport",
    "--ctorigdstport",
    "--ctreplsrc",
    "--ctrepldst",
    "--ctstatus",
    "--ctdir",
    "--state",
    "--cpu",
    "--dscp",
    "--dscp-class",
    "--src-range",
    "--dst-range",
    "--length",
    "--limit",
    "--limit-burst",
    "--mac-source",
    "--mark",
    "--uid-owner",
    "--gid-owner",
    "--physdev-in",
    "--physdev-is-bridged",
    "--physdev-is-in",
    "--pkt-type",
    "--match-set",
    "--transparent",
    "--mode",
    "--probability",
    "--every",
    "--packet",
    "--tcp-flags",
    "--syn",
    "--tcp-option",
    "--tos",
    "--ttl-eq",
    "--ttl-gt",
    "--ttl-lt",
    "--hl-eq",
    "--hl-gt",
    "--hl-lt",
];

/// Checks that words are nothing but matches.
///
/// # Errors
/// The word that is not.
pub(super) fn check(words: &[String]) -> Result<(), String> {
    let mut after_match = false;
    for word in words {
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\' | '#');
        if word.is_empty() || !word.chars().all(plain) {
            return Err(format!("{word:?} is not one word of an iptables rule"));
        }
        if after_match && !MATCHES.contains(&word.as_str()) {
            return Err(format!("the match {word:?} is not allowed"));
        }
        after_match = matches!(word.as_str(), "-m" | "--match");
        if word.starts_with('-') && !OPTIONS.contains(&word.as_str()) {
            return Err(format!("{word:?} is not an option that matches"));
        }
    }
    match words.last().map(String::as_str) {
        Some("!" | "-m" | "--match") => Err("the last condition is not complete".into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn what_matches_is_allowed() {
        for good in ["-s 192.0.2.0/24", "! -d 192.0.2.1", "-i eth0 -m addrtype ! --src-type LOCAL"] {
            assert_eq!(check(&words(good)), Ok(()), "{good}");
        }
    }

    #[test]
    fn what_does_something_else_is_refused_with_the_word_named() {
        for (bad, culprit) in [
            ("-j ACCEPT", "-j"),
            ("-s 1.2.3.4 --jump DROP", "--jump"),
            ("-s 1.2.3.4 --jum DROP", "--jum"),
            ("--goto X", "--goto"),
            ("-t mangle", "-t"),
            ("-A INPUT", "-A"),
            ("-sfoo", "-sfoo"),
            // The mapping says which protocol.
            ("-p tcp", "-p"),
            ("-m bpf", "bpf"),
            ("-m", "not complete"),
            ("-s 1.2.3.4 !", "not complete"),
        ] {
            let error = check(&words(bad)).unwrap_err();
            assert!(error.contains(culprit), "{bad}: {error}");
        }
        for bad in ["1.2.3.4\n-A INPUT", "a b", "\"", "'", "\\", "", "é", "a\0"] {
            assert!(check(&["-s".into(), bad.into()]).is_err(), "{bad:?}");
        }
    }
}
