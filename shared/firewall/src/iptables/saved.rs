//! What iptables-save(8) lists.

use super::script::{HAIRPIN, HOSTPORTS, Line, SHARED, is_own};
use crate::leftovers::{Whose, parents};
use crate::removal::Addresses;
use crate::rules::Kind;

/// Whether a chain is listed.
pub(super) fn has_chain(saved: &str, chain: &str) -> bool {
    chains(saved).any(|listed| listed == chain)
}

/// The chains that are listed.
fn chains(saved: &str) -> impl Iterator<Item = &str> {
    saved.lines().filter_map(|line| line.strip_prefix(':')?.split(' ').next())
}

/// Whether a shared rule is listed: it is known by its chain and its comment, for each version of the tool
/// writes the matches in its own way.
pub(super) fn has_rule(saved: &str, wanted: &Line) -> bool {
    let named = comment(&wanted.words);
    rules(saved, wanted.table).any(|line| chain_of(line) == wanted.chain && comment(line) == named)
}

/// The rules that are listed of a table, as `-A CHAIN ...`.
fn rules<'a>(saved: &'a str, table: &'a str) -> impl Iterator<Item = &'a str> {
    let mut here = "";
    saved.lines().filter(move |line| {
        if let Some(name) = line.strip_prefix('*') {
            here = name;
        }
        here == table && line.starts_with("-A ")
    })
}

fn chain_of(rule: &str) -> &str {
    rule.split(' ').nth(1).unwrap_or_default()
}

/// The chain or target that a rule jumps to.
fn target(rule: &str) -> &str {
    rule.split_once(" -j ").and_then(|(_, rest)| rest.split(' ').next()).unwrap_or_default()
}

/// What the rules of a chain of the table nat jump to.
pub(super) fn targets(saved: &str, chain: &str) -> Vec<String> {
    rules(saved, "nat").filter(|rule| chain_of(rule) == chain).map(|rule| target(rule).to_owned()).collect()
}

/// The comment of a rule, empty if it has none. What is more than a word is in quotes, with quotes in it
/// escaped.
fn comment(rule: &str) -> String {
    let Some((_, rest)) = rule.split_once("--comment ") else { return String::new() };
    let Some(quoted) = rest.strip_prefix('"') else {
        return rest.split(' ').next().unwrap_or_default().to_owned();
    };
    let (mut text, mut escaped) = (String::new(), false);
    for c in quoted.chars() {
        match c {
            '"' if !escaped => break,
            '\\' if !escaped => escaped = true,
            c => {
                text.push(c);
                escaped = false;
            }
        }
    }
    text
}

/// The host ports that an attachment's chain is for, but that packets go elsewhere for before: to a newer chain that takes
/// all packets to the same port, be it of all addresses. What has conditions takes some of them only.
pub(super) fn before(saved: &str, chain: &str) -> Vec<String> {
    let jumps = rules(saved, "nat").filter(|rule| chain_of(rule) == HOSTPORTS);
    let newer: Vec<&str> = jumps.take_while(|rule| target(rule) != chain).filter(|r| is_for_all(r)).collect();
    let takes = |port: &Port<'_>, rule: &&&str| {
        ports_of(saved, target(rule)).any(|other| {
            other.number == port.number && (other.address.is_empty() || other.address == port.address)
        })
    };
    let waiting = ports_of(saved, chain).filter_map(|port| {
        let newer = newer.iter().find(|rule| takes(&port, rule))?;
        Some(format!("{} has it now: {} {}", comment(newer), port.number.0, port.number.1))
    });
    waiting.collect()
}

/// A port that a chain leads elsewhere.
struct Port<'a> {
    /// The protocol and the port.
    number: (&'a str, &'a str),
    /// Empty: all addresses of the host.
    address: &'a str,
}

/// The ports that a chain leads elsewhere.
fn ports_of<'a>(saved: &'a str, chain: &'a str) -> impl Iterator<Item = Port<'a>> {
    let translated =
        rules(saved, "nat").filter(move |rule| chain_of(rule) == chain && target(rule) == "DNAT");
    translated.map(|rule| Port {
        number: (word_after(rule, " -p "), word_after(rule, " --dport ")),
        address: word_after(rule, " -d "),
    })
}

/// Whether a rule that leads to an attachment's chain has no conditions but protocol and ports.
fn is_for_all(rule: &str) -> bool {
    let (protocol, ports) = (word_after(rule, " -p "), word_after(rule, " --dports "));
    let plain = format!("-A {HOSTPORTS} -p {protocol} -m multiport --dports {ports} -m comment --comment ");
    let rest = rule.strip_prefix(&plain).and_then(|rest| rest.split_once(" -j "));
    rest.is_some_and(|(comment, _)| !comment.trim_matches('"').contains(' '))
}

fn word_after<'a>(rule: &'a str, name: &str) -> &'a str {
    rule.split_once(name).and_then(|(_, rest)| rest.split(' ').next()).unwrap_or_default()
}

/// What removes attachments' chains, and the rules that jump there.
#[derive(Debug, Default)]
pub(super) struct Removal {
    /// Rules of the table nat that lead packets to the chains that go.
    jumps: Vec<String>,
    /// Other rules of the table nat that go.
    rules: Vec<String>,
    /// Chains of it that go.
    chains: Vec<String>,
    /// Rules of the table mangle that go.
    mangle: Vec<String>,
    /// The containers' addresses that UDP goes to, as far as our own rules name them.
    addresses: Addresses,
}

impl Removal {
    /// Of a chain, in which something else is to be put.
    pub(super) fn of_jumps(saved: &str, chain: &str) -> Vec<String> {
        rules(saved, "nat").filter(|rule| target(rule) == chain).map(deletion).collect()
    }

    /// Of all that is somebody's in what was listed.
    pub(super) fn of(saved: &str, whose: &Whose<'_>, kind: Kind) -> Self {
        let mut this = Self { chains: whose.chains(kind), ..Self::default() };
        this.chains.retain(|chain| has_chain(saved, chain));
        let in_parents = rules(saved, "nat").filter(|rule| parents(kind).contains(&chain_of(rule)));
        let (gone, left): (Vec<&str>, Vec<&str>) = in_parents.partition(|rule| {
            this.chains.iter().any(|chain| chain == target(rule)) || whose.has_jump(&comment(rule))
        });
        for rule in &gone {
            this.jumps.push(deletion(rule));
            if !this.chains.iter().any(|chain| chain == target(rule)) {
                this.chains.push(target(rule).to_owned());
            }
        }
        if kind == Kind::HostPorts && matches!(whose, Whose::Stale { .. }) {
            // To where nothing leads: whoever was killed before removed the rest.
            let is_left = |chain: &str| left.iter().any(|rule| target(rule) == chain);
            let own = chains(saved).filter(|chain| is_own(kind, chain) && !is_left(chain));
            let own: Vec<String> =
                own.filter(|c| !this.chains.iter().any(|o| o == c)).map(str::to_owned).collect();
            this.chains.extend(own);
        }
        let in_ours = |rules: &[&str]| rules.iter().any(|rule| chain_of(rule) == HOSTPORTS);
        let inside =
            rules(saved, "nat").filter(|rule| this.chains.iter().any(|chain| chain == chain_of(rule)));
        let udp = inside.filter(|rule| rule.contains(" -p udp "));
        this.addresses = udp.filter_map(|rule| comment(rule).parse().ok()).collect();
        let is_own = this.chains.iter().any(|chain| is_own(Kind::HostPorts, chain));
        if is_own && !in_ours(&left) {
            this.add_shared(saved);
        }
        this
    }

    /// The rules that attachments shared, after the last one.
    fn add_shared(&mut self, saved: &str) {
        let shared = |rule: &&str| comment(rule).starts_with(SHARED) && chain_of(rule) != HAIRPIN;
        self.rules.extend(rules(saved, "nat").filter(shared).map(deletion));
        self.mangle.extend(rules(saved, "mangle").filter(shared).map(deletion));
        let chains = [HAIRPIN, HOSTPORTS].into_iter().filter(|chain| has_chain(saved, chain));
        self.chains.extend(chains.map(str::to_owned));
    }

    /// Whether there is nothing to remove.
    pub(super) fn is_empty(&self) -> bool {
        self.jumps.is_empty() && self.chains.is_empty()
    }

    /// Whose UDP flows are to be forgotten.
    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Whether chains are the reference's, which name no addresses.
    pub(super) fn is_unnamed(&self) -> bool {
        self.chains.iter().any(|chain| chain.starts_with("CNI-"))
    }

    /// The script for iptables-restore after which no packet comes to the chains any more.
    pub(super) fn cut(&self) -> String {
        format!("*nat\n{}COMMIT\n", lines(&self.jumps))
    }

    /// The script for the rest.
    pub(super) fn rest(&self) -> String {
        let mut text = format!("*nat\n{}", lines(&self.rules));
        for verb in ["-F ", "-X "] {
            self.chains.iter().for_each(|chain| text.extend([verb, chain, "\n"]));
        }
        text.push_str("COMMIT\n");
        if !self.mangle.is_empty() {
            text.extend(["*mangle\n", &lines(&self.mangle), "COMMIT\n"]);
        }
        text
    }

    /// Both in one.
    pub(super) fn whole(&self) -> String {
        self.rest().replacen("*nat\n", &format!("*nat\n{}", lines(&self.jumps)), 1)
    }
}

fn lines(rules: &[String]) -> String {
    rules.iter().map(|rule| format!("{rule}\n")).collect()
}

fn deletion(rule: &str) -> String {
    rule.replacen("-A ", "-D ", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_read_with_and_without_quotes() {
        assert_eq!(comment("-A X -m comment --comment a/b/c -j Y"), "a/b/c");
        let quoted = r#"-A X -m comment --comment "dnat name: \"net\" id: \"c\"" -j Y"#;
        assert_eq!(comment(quoted), "dnat name: \"net\" id: \"c\"");
        assert_eq!(comment("-A X -j Y"), "");
    }

    #[test]
    fn the_containers_addresses_are_in_the_comments_of_its_own_chains_rules_for_udp() {
        let owner = crate::owner::tests::owner("net", "c", "eth0");
        let chain = crate::iptables::chain(&owner, Kind::HostPorts);
        let saved = format!(
            "*nat\n:{chain} - [0:0]\n:X - [0:0]\n-A {chain} -p udp -m comment --comment \"fd00::5\" -j DNAT\n\
             -A {chain} -p tcp -m comment --comment fd00::6 -j DNAT\n\
             -A X -p udp -m comment --comment 10.0.0.9 -j RETURN\nCOMMIT\n"
        );
        let removal = Removal::of(&saved, &Whose::Of(&owner), Kind::HostPorts);
        assert_eq!(removal.addresses(), &Addresses::from(["fd00::5".parse().unwrap()]));
    }

    /// A host with attachments, the newest first: what leads to each one's chain, and what that has.
    fn host(attachments: &[(&str, &str, &str)]) -> String {
        let jump = |(name, conditions, _): &(&str, &str, &str)| {
            format!(
                "-A {HOSTPORTS}{conditions} -p tcp -m multiport --dports 80 -m comment --comment \"n/{name}/e\" -j {name}\n"
            )
        };
        let own = |(name, _, address): &(&str, &str, &str)| {
            format!("-A {name}{address} -p tcp -m tcp --dport 80 -m comment --comment x -j DNAT --to y\n")
        };
        let jumps: String = attachments.iter().map(jump).collect();
        format!("*nat\n{jumps}{}COMMIT\n", attachments.iter().map(own).collect::<String>())
    }

    #[test]
    fn a_port_waits_for_a_newer_one_that_takes_all_of_its_packets() {
        let (one, other) = (" -d 192.0.2.1/32", " -d 192.0.2.2/32");
        for (newer, older, waits) in
            [("", "", true), ("", one, true), (one, one, true), (one, "", false), (one, other, false)]
        {
            let saved = host(&[("B", "", newer), ("A", "", older)]);
            let wanted: &[&str] = if waits { &["n/B/e has it now: tcp 80"] } else { &[] };
            assert_eq!(before(&saved, "A"), wanted, "{newer}, {older}");
            assert!(before(&saved, "B").is_empty());
        }
        assert!(before(&host(&[("B", " -s 192.0.2.0/24", ""), ("A", "", "")]), "A").is_empty());
    }

    #[test]
    fn rules_are_told_apart_by_table() {
        let saved = "*mangle\n-A PREROUTING -j DROP\nCOMMIT\n*nat\n:X - [0:0]\n-A PREROUTING -j X\nCOMMIT\n";
        assert_eq!(rules(saved, "nat").collect::<Vec<_>>(), ["-A PREROUTING -j X"]);
        assert!(has_chain(saved, "X") && !has_chain(saved, "PREROUTING"));
        assert_eq!(Removal::of_jumps(saved, "X"), ["-D PREROUTING -j X"]);
    }
}
