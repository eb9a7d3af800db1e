//! The kernel's state, read with iproute2 and nftables, never with the code under test.

use serde_json::Value;

use crate::Netns;

impl Netns {
    /// `ip -json -details ARGS`, an array. Empty if the object does not exist.
    pub fn ip(&self, args: &str) -> Vec<Value> {
        self.json("ip -j -d", args)
    }

    /// `bridge -json -details ARGS`.
    pub fn bridge(&self, args: &str) -> Vec<Value> {
        self.json("bridge -j -d", args)
    }

    fn json(&self, program: &str, args: &str) -> Vec<Value> {
        let argv: Vec<_> = program.split(' ').chain(args.split_whitespace()).collect();
        let output = self.try_exec(&argv);
        let missing = String::from_utf8_lossy(&output.stderr);
        let is_missing = ["does not exist", "Cannot find device"].iter().any(|words| missing.contains(words));
        assert!(output.status.success() || is_missing, "{argv:?}: {missing}");
        let parsed = serde_json::from_slice(&output.stdout).unwrap_or_default();
        // iproute2 prints empty objects for entries that do not match a filter.
        let Value::Array(rows) = parsed else { return Vec::new() };
        rows.into_iter().filter(|row| row.as_object().is_none_or(|row| !row.is_empty())).collect()
    }

    /// All properties of the link NAME, if it exists.
    pub fn link(&self, name: &str) -> Option<Value> {
        self.ip(&format!("link show dev {name}")).into_iter().next()
    }

    /// The names of all links but lo.
    pub fn link_names(&self) -> Vec<String> {
        let links = self.ip("link show");
        let names = links.iter().filter_map(|link| link["ifname"].as_str());
        names.filter(|name| *name != "lo").map(str::to_owned).collect()
    }

    /// The link's addresses in CIDR form, without link-local ones.
    pub fn addresses(&self, ifname: &str) -> Vec<String> {
        let links = self.ip(&format!("addr show dev {ifname}"));
        let all = links.iter().filter_map(|link| link["addr_info"].as_array()).flatten();
        all.filter(|address| address["scope"] != "link")
            .map(|a| format!("{}/{}", a["local"].as_str().unwrap_or_default(), a["prefixlen"]))
            .collect()
    }

    /// The main table of both families as `DESTINATION via GATEWAY dev LINK`, without link-local and multicast routes.
    pub fn routes(&self) -> Vec<String> {
        let all = ["-4 route show", "-6 route show"].map(|family| self.ip(family)).concat();
        let mut lines: Vec<_> = all.iter().map(route_line).filter(|line| !is_noise(line)).collect();
        lines.sort();
        lines
    }

    /// The VLAN ids of a bridge port (or of the bridge itself), as `5`, or `5 pvid untagged`.
    pub fn vlans(&self, port: &str) -> Vec<String> {
        let ports = self.json("bridge -j", &format!("vlan show dev {port}"));
        let all = ports.iter().filter_map(|port| port["vlans"].as_array()).flatten();
        all.map(|vlan| {
            let flags = vlan["flags"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let flags: String = flags
                .map(|flag| format!(" {}", flag.replace("Egress Untagged", "untagged").to_lowercase()))
                .collect();
            let last = vlan["vlanEnd"].as_u64().map(|end| format!("-{end}")).unwrap_or_default();
            format!("{}{last}{flags}", vlan["vlan"])
        })
        .collect()
    }

    /// The output of `nft list ruleset`.
    pub fn ruleset(&self) -> String {
        self.exec(&["nft", "list", "ruleset"])
    }

    /// The ids of the processes in this namespace whose command line contains a text.
    pub fn processes(&self, text: &str) -> Vec<String> {
        let all = self.exec(&["ip", "netns", "pids", self.name()]);
        let line_of = |pid: &str| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let has = |pid: &&str| String::from_utf8_lossy(&line_of(pid)).contains(text);
        all.split_whitespace().filter(has).map(str::to_owned).collect()
    }

    /// A sysctl by its path below /proc/sys/net.
    pub fn sysctl(&self, key: &str) -> String {
        let path = format!("/proc/sys/net/{key}");
        let value = self.run(|| std::fs::read_to_string(&path));
        value.unwrap_or_else(|e| panic!("read {path}: {e}")).trim().to_owned()
    }
}

fn route_line(route: &Value) -> String {
    let word =
        |label: &str, key: &str| route[key].as_str().map(|v| format!(" {label} {v}")).unwrap_or_default();
    let destination = route["dst"].as_str().unwrap_or_default();
    format!("{destination}{}{}", word("via", "gateway"), word("dev", "dev"))
}

fn is_noise(route: &str) -> bool {
    route.starts_with("fe80::") || route.starts_with("ff00::") || route.starts_with("multicast")
}
