//! The script for iptables-restore(8) that removes attachments' rules.

use super::plan::Plan;
use super::saved::Saved;

impl Plan<Saved<'_>> {
    pub(super) fn is_empty(&self) -> bool {
        self.jumps.is_empty() && self.chains.is_empty()
    }

    /// The script for iptables-restore after which no packet comes to the chains any more.
    pub(super) fn cut(&self) -> String {
        format!("*{}\n{}COMMIT\n", self.table, self.jumps())
    }

    /// The script for the rest.
    pub(super) fn rest(&self) -> String {
        self.after("")
    }

    /// Both in one.
    pub(super) fn whole(&self) -> String {
        self.after(&self.jumps())
    }

    fn jumps(&self) -> String {
        self.jumps.iter().map(|(_, rule)| format!("{rule}\n")).collect()
    }

    fn after(&self, jumps: &str) -> String {
        let mut text = format!("*{}\n{jumps}", self.table);
        let (here, others): (Vec<_>, Vec<_>) =
            self.shared.iter().partition(|((table, _), _)| *table == self.table);
        here.iter().for_each(|(_, rule)| text.extend([rule, "\n"]));
        for command in ["-F ", "-X "] {
            self.chains.iter().for_each(|chain| text.extend([command, chain, "\n"]));
        }
        let mut table = self.table;
        for ((of, _), rule) in others {
            if *of != table {
                text.extend(["COMMIT\n*", of, "\n"]);
                table = of;
            }
            text.extend([rule, "\n"]);
        }
        text + "COMMIT\n"
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::HostPorts;
    use crate::iptables::chains;
    use crate::selector::Selector;

    #[test]
    fn the_containers_addresses_are_in_the_comments_of_its_own_chains_rules_for_udp() {
        let owner = crate::owner::tests::owner("net", "c", "eth0");
        let chain = chains::chain(&owner, HostPorts::KIND).unwrap();
        let saved = format!(
            "*nat\n:{chain} - [0:0]\n:X - [0:0]\n-A {chain} -p udp -m comment --comment \"fd00::5\" -j DNAT\n\
             -A {chain} -p tcp -m comment --comment fd00::6 -j DNAT\n\
             -A X -p udp -m comment --comment 10.0.0.9 -j RETURN\nCOMMIT\n"
        );
        let kind = (HostPorts::KIND, HostPorts::KIND.iptables().unwrap());
        let Ok(plan) = Plan::of(&Saved::read(&saved), &Selector::Of(&owner), kind, []);
        assert_eq!(&plan.targets.addresses, &BTreeSet::from(["fd00::5".parse().unwrap()]));
    }
}
