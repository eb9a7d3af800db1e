//! A canonical form of iptables rules, to compare rules of a script with those that iptables-save(8) lists.

use std::borrow::Cow;
use std::net::IpAddr;

use netlink::Family;

use super::saved::first_word;

/// The options that iptables-save lists first, in any order of the original.
const FIRST: [&str; 5] = ["-s", "-d", "-i", "-o", "-p"];

/// The form of a rule without its chain: `words` are the part after `-A CHAIN`. Rules with equal forms are the same.
/// Rules with different forms may be the same too, because iptables lists some options differently.
pub(super) fn form(words: &str) -> Vec<String> {
    let mut words = Words(words).peekable();
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        let is_negated = word == "!";
        let option = if is_negated { words.next().unwrap_or_default() } else { word };
        let sign = if is_negated { "! " } else { "" };
        match FIRST.iter().position(|name| *name == option) {
            Some(place) => {
                let value = with_prefix(words.next().unwrap_or_default());
                first.push((place, format!("{sign}{option} {value}")));
            }
            None => rest.push(format!("{sign}{option}")),
        }
    }
    first.sort();
    first.into_iter().map(|(_, text)| text).chain(rest).collect()
}

/// A single address is a network of one address.
fn with_prefix(value: Cow<'_, str>) -> Cow<'_, str> {
    match value.parse::<IpAddr>() {
        Ok(ip) => format!("{ip}/{}", Family::from(ip).choose("32", "128")).into(),
        Err(_) => value,
    }
}

/// The words of a line.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = Cow<'a, str>;

    fn next(&mut self) -> Option<Cow<'a, str>> {
        let text = self.0.trim_start();
        let (word, rest) = (!text.is_empty()).then(|| first_word(text))?;
        self.0 = rest;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_the_same_form_as_it_is_written_and_as_it_is_listed() {
        for (written, listed) in [
            (
                "-s 10.1.2.2 -d 10.1.2.0/24 -m comment --comment \"10.1.2.2\" -j RETURN",
                "-s 10.1.2.2/32 -d 10.1.2.0/24 -m comment --comment 10.1.2.2 -j RETURN",
            ),
            (
                "! -i lo -d 127.0.0.0/8 -m comment --comment \"a b\" -j DROP",
                "-d 127.0.0.0/8 ! -i lo -m comment --comment \"a b\" -j DROP",
            ),
            (
                "-p tcp -m tcp --dport 80 -d fd00::1 -s fd00::/64 -j MARK --set-xmark 0x2000/0x2000",
                "-s fd00::/64 -d fd00::1/128 -p tcp -m tcp --dport 80 -j MARK --set-xmark 0x2000/0x2000",
            ),
        ] {
            assert_eq!(form(written), form(listed), "{written}");
        }
    }

    #[test]
    fn a_change_of_any_word_is_another_form() {
        let rule = "! -i lo -s 127.0.0.0/8 -m comment --comment \"ferrule: x\" -j DROP";
        for other in [
            "-i lo -s 127.0.0.0/8 -m comment --comment \"ferrule: x\" -j DROP",
            "! -i lo ! -s 127.0.0.0/8 -m comment --comment \"ferrule: x\" -j DROP",
            "! -i lo -s 127.0.0.1 -m comment --comment \"ferrule: x\" -j DROP",
            "! -i lo -s 127.0.0.0/8 -m comment --comment \"ferrule: x\" -j ACCEPT",
            "! -i lo -s 127.0.0.0/8 -m comment --comment \"ferrule: x\"",
            "! -i lo -m comment --comment \"ferrule: x\" -j DROP",
            "",
        ] {
            assert_ne!(form(rule), form(other), "{other}");
        }
    }
}
