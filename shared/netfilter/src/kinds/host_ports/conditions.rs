//! Conditions for a packet to be mapped (the keys `conditionsV4` and `conditionsV6`), in the syntax of nft(8) or
//! iptables(8). They are parsed and checked, so that no word can inject another rule.

mod iptables;
mod nftables;
mod values;

use crate::backend::Backend;
use crate::ruleset::Expressions;
use netlink::Family;
use nftables::Match;

/// Conditions, by family.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Conditions {
    v4: Words,
    v6: Words,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
enum Words {
    #[default]
    None,
    Nftables(Vec<Match>),
    Iptables(Vec<String>),
}

impl Conditions {
    /// Parses the conditions of both families. As with the reference, the syntax is iptables' if the first word begins
    /// with `-` or is `!`, otherwise nft's.
    ///
    /// # Errors
    /// The condition that is malformed or not allowed.
    pub fn parse(v4: &[String], v6: &[String]) -> Result<Self, String> {
        let this = Self {
            v4: parse(v4, Family::V4).map_err(|e| format!("conditionsV4: {e}"))?,
            v6: parse(v6, Family::V6).map_err(|e| format!("conditionsV6: {e}"))?,
        };
        match (this.v4.backend(), this.v6.backend()) {
            (Some(a), Some(b)) if a != b => {
                Err(format!("conditionsV4 has the syntax of {a}, conditionsV6 in those of {b}"))
            }
            _ => Ok(this),
        }
    }

    /// The backend of the conditions' syntax. None without conditions.
    pub fn backend(&self) -> Option<Backend> {
        self.v4.backend().or(self.v6.backend())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.backend().is_none()
    }

    /// All alternatives to fulfil a family's conditions in nftables, because a rule has no "or".
    pub(crate) fn nftables(&self, family: Family) -> Vec<Expressions> {
        let matches = if let Words::Nftables(matches) = self.of(family) { &matches[..] } else { &[] };
        matches.iter().fold(vec![Expressions::new()], |ways, choices| {
            let add = |way: &Expressions, choice: &Expressions| way.clone().and(choice.clone());
            ways.iter().flat_map(|way| choices.iter().map(move |choice| add(way, choice))).collect()
        })
    }

    /// The words of a family's conditions for iptables.
    pub(crate) fn iptables(&self, family: Family) -> &[String] {
        match self.of(family) {
            Words::Iptables(words) => words,
            _ => &[],
        }
    }

    fn of(&self, family: Family) -> &Words {
        family.choose(&self.v4, &self.v6)
    }
}

impl Words {
    fn backend(&self) -> Option<Backend> {
        match self {
            Self::None => None,
            Self::Nftables(_) => Some(Backend::Nftables),
            Self::Iptables(_) => Some(Backend::Iptables),
        }
    }
}

fn parse(words: &[String], family: Family) -> Result<Words, String> {
    // A template may leave strings empty.
    match words.iter().map(|word| word.trim()).find(|word| !word.is_empty()) {
        None => Ok(Words::None),
        Some(first) if first.starts_with(['-', '!']) => iptables::read(words).map(Words::Iptables),
        Some(_) => nftables::parse(&words.join(" "), family).map(Words::Nftables),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_string_before_a_condition_does_not_make_it_void() {
        let parse = |words: &[&str]| {
            parse(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>(), Family::V4)
        };
        assert_eq!(parse(&["", " "]), Ok(Words::None));
        assert_eq!(parse(&["", "ip saddr 192.0.2.7"]), parse(&["ip saddr 192.0.2.7"]));
        assert!(parse(&["", "drop"]).unwrap_err().contains("drop"));
        // iptables itself refuses an empty argument.
        assert_ne!(parse(&["", "-s", "192.0.2.7"]), Ok(Words::None));
    }
}
