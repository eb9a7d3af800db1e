//! Plugins in a user namespace, as Podman and RootlessKit run them for unprivileged users.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use lab::{Call, Lab, Outcome, beyond_reference, until};
use serde_json::{Value, json};

use crate::common::dual_stack;

/// A user namespace with a mapped root, which owns a network namespace for the host and one for the container `pod`.
pub struct Rootless(Child);

impl Rootless {
    /// With 65 536 users and groups, as rootless engines have them of /etc/subuid: a server may change its user and its group.
    pub fn with_users() -> Self {
        let mut command = Command::new("unshare");
        let holder = Self(command.args(["--user", "--net", "--mount", "sleep", "infinity"]).spawn().unwrap());
        let process = format!("/proc/{}", holder.0.id());
        let name = || fs::read_to_string(format!("{process}/comm")).unwrap_or_default();
        until("the namespaces exist", || name() == "sleep\n");
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("{process}/{map}"), "0 0 65536").unwrap();
        }
        holder.sh("ip link set lo up; ip netns add pod");
        holder
    }

    fn new() -> Self {
        let script = "ip link set lo up; ip netns add pod; echo ready; exec sleep infinity";
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "--mount", "sh", "-ec", script]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "this kernel lets root make user namespaces");
        Self(child)
    }

    /// The names of its links, and its rules and chains, without the iptables tools' own empty chains, which stay.
    fn state(&self) -> String {
        self.sh(
            "ip -brief link | cut -d ' ' -f 1
             nft list ruleset | grep -vE '^(table .*|\\s*chain (PRE|POST)ROUTING .*|\\s*chain (IN|OUT)PUT .*|\\s*chain FORWARD .*|\\s*type .*|\\s*\\}?)$' || true",
        )
    }

    fn sh(&self, script: &str) -> String {
        let mut enter = Command::new("nsenter");
        enter.args(["--target", &self.0.id().to_string(), "--user", "--net", "--mount", "sh", "-ec", script]);
        let output = enter.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn run(&self, call: &Call, namespaces: &[&str]) -> Call {
        let pid = self.0.id().to_string();
        let argv = ["nsenter", "--target", &pid, "--user", "--preserve-credentials"].map(str::to_owned);
        call.clone()
            .under(&[&argv[..], &namespaces.iter().map(ToString::to_string).collect::<Vec<_>>()].concat())
    }

    /// Mounts /proc again, so that it shows no details of processes outside of the user namespace. It shows them to a
    /// group, which by default is root's.
    pub fn hide_processes(&self) {
        let pid = self.0.id().to_string();
        let mount = ["mount", "-t", "proc", "-o", "hidepid=1,gid=4242", "proc", "/proc"];
        let status = Command::new("nsenter").args(["--target", &pid, "--mount"]).args(mount).status();
        assert!(status.unwrap().success());
    }

    /// The call inside the user namespace.
    pub fn inside(&self, call: &Call) -> Call {
        self.run(call, &["--net", "--mount"])
    }
}

impl Drop for Rootless {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// bridge with all its rules, tuning, and portmap.
fn chain(lab: &Lab, backend: &str) -> Vec<Call> {
    let call = |plugin: &str, keys: Value| {
        let call = lab.plugin(plugin).env("CNI_CONTAINERID", "pod").env("CNI_NETNS", "/run/netns/pod");
        call.config(keys)
    };
    let mapping = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"});
    let guarded = json!({"ipMasq": true, "ipMasqBackend": backend, "macspoofchk": true});
    vec![
        call("bridge", dual_stack()).config(guarded),
        call("tuning", json!({"mtu": 1400, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}})),
        call("portmap", json!({"backend": backend, "runtimeConfig": {"portMappings": [mapping]}})),
    ]
}

#[test]
fn a_chain_works_where_a_user_namespace_owns_host_and_container() {
    beyond_reference!("nothing-left");
    for backend in ["nftables", "iptables"] {
        let (lab, rootless) = (Lab::new(), Rootless::new());
        // DEL keeps the bridge.
        rootless.sh("ip link add br0 type bridge");
        let before = rootless.state();
        let calls = chain(&lab, backend).iter().map(|call| rootless.inside(call)).collect::<Vec<_>>();
        let mut prev = Value::Null;
        for call in &calls {
            prev = call.clone().config(json!({"prevResult": prev})).add().ok_result();
        }
        for call in calls.iter().rev() {
            call.check(&prev).ok();
            call.status().ok();
            call.clone().config(json!({"prevResult": prev})).del().ok();
        }
        assert_eq!(rootless.state(), before, "{backend}");
        for call in &calls {
            call.gc(&[]).ok();
        }
        assert_eq!(rootless.state(), before, "{backend}");
    }
}

/// In another user namespace, its root has no privileges, whatever its capabilities are.
#[test]
fn objects_of_another_user_namespace_are_refused_with_the_missing_capability() {
    beyond_reference!("nothing-left");
    let (lab, rootless) = (Lab::new(), Rootless::new());
    let outer = lab.container("outer");
    let before = lab.snapshot();
    let bridge = lab.plugin("bridge").config(dual_stack());
    let refused = |run: Outcome| {
        let error = run.error();
        assert!(error.msg.contains("CAP_SYS_ADMIN, here and in the user namespace"), "{error:?}");
        lab.snapshot().assert_same(&before);
    };
    // First the container's namespace belongs to the outer user namespace, then the host's: the way in, and the way
    // back.
    refused(rootless.run(&bridge.clone().on(&outer), &["--net"]).add());
    let inner = bridge.env("CNI_CONTAINERID", "pod").env("CNI_NETNS", "/run/netns/pod");
    refused(rootless.run(&inner, &["--mount"]).add());
}
