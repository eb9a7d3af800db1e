//! What an ADD without a fault changes. An ADD that succeeds in spite of a fault must change the same, unless it warns.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use lab::Outcome;
use serde_json::Value;

/// How often a state is read: the kernel completes an interface a moment after ADD.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// The changes of several ADDs without a fault.
#[derive(Debug)]
pub struct Usual {
    /// The lines that all of them had.
    always: BTreeSet<String>,
    /// The number of lines of each.
    counts: BTreeSet<usize>,
}

impl Usual {
    pub fn of(adds: &[BTreeSet<String>]) -> Self {
        let always = adds.iter().skip(1).fold(adds[0].clone(), |all, add| &all & add);
        Self { always, counts: adds.iter().map(BTreeSet::len).collect() }
    }

    /// How the changes of a successful ADD differ, if it printed no warning. `read` reads the changes.
    pub fn finding(&self, add: &Outcome, read: impl Fn() -> String) -> Option<String> {
        if warns(add) {
            return None;
        }
        let result = add.ok_result();
        for _ in 1..TRIES {
            self.difference(&lines(&read(), &result))?;
            thread::sleep(PAUSE);
        }
        self.difference(&lines(&read(), &result))
    }

    fn difference(&self, lines: &BTreeSet<String>) -> Option<String> {
        let missing: Vec<_> = self.always.difference(lines).map(String::as_str).collect();
        if missing.is_empty() && self.counts.contains(&lines.len()) {
            return None;
        }
        let others: Vec<_> = lines.difference(&self.always).map(String::as_str).collect();
        Some(format!(
            "without a warning, ADD changed something else than usual. Missing:\n{}\nOther:\n{}",
            missing.join("\n"),
            others.join("\n")
        ))
    }
}

/// Whether a command printed a warning.
pub fn warns(run: &Outcome) -> bool {
    !run.stderr.trim().is_empty()
}

/// The changed lines with their titles, without what differs between two ADDs: the addresses in the result, and the connections of the test's
/// packets.
pub fn lines(changes: &str, result: &Value) -> BTreeSet<String> {
    let mut title = "";
    let mut all = BTreeSet::new();
    let hidden = hidden(result);
    for line in changes.lines() {
        if !line.starts_with(' ') {
            title = line;
        } else if !title.ends_with("connections") {
            let hide = |line: String, word: &String| without(&line, word);
            // The kernel lists the elements of a set in any order.
            let line = line.replace("elements = { ", "");
            let line = line.trim_end_matches(" }").trim_end_matches(',');
            all.insert(hidden.iter().fold(format!("{title}{line}"), hide));
        }
    }
    all
}

/// The line without a word, which may be a part of a longer one: 10.1.2.25 of the broadcast address 10.1.2.255.
fn without(line: &str, word: &str) -> String {
    let is_part = |beside: Option<char>| beside.is_some_and(|beside| beside.is_ascii_hexdigit());
    let (mut kept, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once(word) {
        let is_whole = !is_part(before.chars().next_back()) && !is_part(after.chars().next());
        kept.extend([before, if is_whole { "…" } else { word }]);
        rest = after;
    }
    kept + rest
}

/// Addresses and MAC addresses of a result.
fn hidden(result: &Value) -> Vec<String> {
    let texts = |list: &str, key: &str| -> Vec<String> {
        let list = result[list].as_array().into_iter().flatten();
        list.filter_map(|one| one[key].as_str()).map(str::to_owned).collect()
    };
    let bare = |cidr: String| cidr.split('/').next().unwrap_or_default().to_owned();
    let all = texts("ips", "address").into_iter().map(bare).chain(texts("interfaces", "mac"));
    all.filter(|text| !text.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn added(stderr: &str) -> Outcome {
        let stdout = json!({"ips": [{"address": "10.1.0.9/16"}]}).to_string();
        Outcome { what: "x ADD".into(), exit: Some(0), stdout, stderr: stderr.into() }
    }

    fn usual() -> Usual {
        let add = |ip: &str, number: u32| {
            let changes = format!(
                "disk\n  + /leases/{ip}\npod: sysctls\n  + dad = 0\npod: links\n  + {number}: eth0\n"
            );
            lines(&changes, &json!({"ips": [{"address": format!("{ip}/16")}]}))
        };
        Usual::of(&[add("10.1.0.3", 7), add("10.1.0.4", 9)])
    }

    #[test]
    fn an_add_with_another_address_and_number_is_as_usual() {
        let read =
            || "disk\n  + /leases/10.1.0.9\npod: sysctls\n  + dad = 0\npod: links\n  + 12: eth0\n".to_owned();
        assert_eq!(usual().finding(&added(""), read), None);
    }

    #[test]
    fn a_broadcast_address_that_begins_with_the_containers_is_as_usual() {
        let of = |ip: &str| {
            let changes = format!("pod: links\n  + eth0 {ip}/24 brd 10.1.2.255\n  + broadcast 10.1.2.255\n");
            lines(&changes, &json!({"ips": [{"address": format!("{ip}/24")}]}))
        };
        assert_eq!(of("10.1.2.25"), of("10.1.2.7"));
    }

    #[test]
    fn the_order_of_a_sets_elements_does_not_count() {
        let of = |changes: &str| lines(changes, &json!({}));
        let one = of("host: nftables\n  + elements = { \"a\" comment \"x\",\n  + \"b\" comment \"y\" }\n");
        let other = of("host: nftables\n  + elements = { \"b\" comment \"y\",\n  + \"a\" comment \"x\" }\n");
        assert_eq!(one, other);
    }

    #[test]
    fn an_add_that_leaves_out_a_setting_is_a_finding_unless_it_warns() {
        let read = || "disk\n  + /leases/10.1.0.9\npod: links\n  + 12: eth0\n".to_owned();
        assert!(usual().finding(&added(""), read).is_some_and(|what| what.contains("dad = 0")));
        assert_eq!(usual().finding(&added("warning: dad"), read), None);
    }
}
