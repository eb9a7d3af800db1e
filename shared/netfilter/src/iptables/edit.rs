//! Changes of tables, in the format of iptables-restore(8).

use std::fmt::Write as _;

use super::saved::Saved;
use crate::listing::{Content, Edit, NewRule, RuleLocation};
use crate::ruleset::Table;
use crate::script::comment;

impl Saved<'_> {
    /// The script for changes: a transaction for each table. Tables with chains to delete come first.
    pub(super) fn script(&self, edit: &Edit) -> String {
        let mut tables: Vec<&str> = Vec::new();
        let of_chains = edit.old_chains.iter().chain(&edit.new_chains).map(|(table, _)| table.name);
        let of_rules = edit.deleted.iter().map(|rule| rule.table.name);
        for table in of_chains.chain(of_rules).chain(edit.added.iter().map(|rule| rule.table.name)) {
            if !tables.contains(&table) {
                tables.push(table);
            }
        }
        tables.into_iter().map(|table| self.script_of(table, edit)).collect()
    }

    /// The script for the deletion of rules.
    pub(super) fn deletion(&self, rules: &[RuleLocation]) -> String {
        self.script(&Edit { deleted: rules.to_vec(), ..Edit::default() })
    }

    fn script_of(&self, table: &str, edit: &Edit) -> String {
        let mut lines = Vec::new();
        let chains = |command: &'static str, chains: &[(Table, String)]| -> Vec<String> {
            let here = chains.iter().filter(|(of, _)| of.name == table);
            here.map(|(_, chain)| format!("{command} {chain}")).collect()
        };
        lines.extend(chains("-N", &edit.new_chains));
        let deleted = edit.deleted.iter().filter(|rule| rule.table.name == table);
        lines.extend(deleted.map(|rule| self.deletion_of(rule.handle)));
        lines.extend(edit.added.iter().filter(|rule| rule.table.name == table).map(line));
        lines.extend(chains("-F", &edit.old_chains));
        lines.extend(chains("-X", &edit.old_chains));
        format!("*{table}\n{}\nCOMMIT\n", lines.join("\n"))
    }
}

fn line(rule: &NewRule) -> String {
    let mut text = format!("{} {} ", if rule.first { "-I" } else { "-A" }, rule.chain);
    let _ = match &rule.content {
        Content::Jump(chain) => write!(text, "{} -j {chain}", comment(&rule.comment)),
        Content::Accept(bit) => {
            let bit = 1_u32 << bit;
            write!(text, "-m mark --mark {bit:#x}/{bit:#x} {} -j ACCEPT", comment(&rule.comment))
        }
        _ => write!(text, "{}", comment(&rule.comment)),
    };
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use netlink::Family;

    use super::*;
    use crate::HostPorts;
    use crate::conntrack::FlowTarget;
    use crate::plan::Query;
    use crate::plan::chains;
    use crate::ruleset::uapi::{SCTP, UDP};
    use crate::selector::Selector;

    #[test]
    fn the_udp_and_sctp_rules_in_a_containers_chain_name_its_addresses_and_ports() {
        let owner = crate::owner::tests::owner("net", "c", "eth0");
        let chain = chains::chain(&owner, HostPorts::KIND).unwrap();
        let saved = format!(
            "*nat\n:{chain} - [0:0]\n:X - [0:0]\n-A {chain} -p udp -m udp --dport 53 -m comment --comment \"fd00::5\" -j DNAT\n\
             -A {chain} -p sctp -m sctp --dport 2905 -m comment --comment fd00::5 -j DNAT\n\
             -A {chain} -p tcp -m comment --comment fd00::6 -j DNAT\n\
             -A X -p udp -m comment --comment 10.0.0.9 -j RETURN\nCOMMIT\n"
        );
        let (kind, selector) = (HostPorts::KIND, Selector::Of(&owner));
        let query = Query { selector: &selector, kind, addresses: &[] };
        let plan = query.plan(&Saved::read(&saved), Family::V6, []).unwrap();
        let target = FlowTarget { port: Some((UDP, 53)), to: "fd00::5".parse().unwrap() };
        let peer = FlowTarget { port: Some((SCTP, 2905)), ..target };
        assert_eq!(plan.targets.flows, BTreeSet::from([target, peer]));
    }
}
