//! `cnitool sysdump`: the archive contains what a report needs, and no secret.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use lab::{Lab, Tool, under_test, write_program};
use serde_json::{Value, json};

use crate::common::host_local;

/// Part of every secret.
const SECRET: &str = "hunter2";

/// Names of secrets: one for each part and each end by which cnitool recognises them.
const NAMES: [&str; 17] = [
    "password",
    "passphrase",
    "token",
    "secret",
    "credentials",
    "authorization",
    "kubeconfig",
    "private",
    "wifi-psk",
    "cookie",
    "api-key",
    "ssh-keys",
    "client-key-data",
    "client_key_data",
    "clientKeyData",
    "db-pass",
    "db-pwd",
];

fn network(more: &Value) -> Value {
    let mut bridge = json!({"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true, "ipam": host_local(&[&["10.208.2.0/24"]])});
    bridge.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"cniVersion": "1.1.0", "name": "net", "plugins": [bridge]})
}

/// The unpacked archive: all names with all text.
fn dump(lab: &Lab, tool: &Tool) -> String {
    lab.host().sh("rm -rf /run/lab/out /run/lab/out.tgz; mkdir /run/lab/out");
    tool.says("sysdump --to /run/lab/out.tgz");
    lab.host().sh("tar -xzf /run/lab/out.tgz -C /run/lab/out; cd /run/lab/out; find cnitool-sysdump -type f -printf '%p:\\n'; grep -r '' cnitool-sysdump")
}

/// Asserts that the archive contains no secret.
#[track_caller]
fn has_no_secret(all: &str) {
    let leaks: Vec<&str> = all.lines().filter(|line| line.contains(SECRET)).collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
}

/// This machine's journalctl has no lines of a runtime. A script in its place prints this text by printf(1).
fn with_journal(lab: &Lab, text: &str) -> Tool {
    fs::create_dir_all("/run/lab/programs").unwrap();
    write_program(
        "/run/lab/programs/journalctl".as_ref(),
        &format!("#!/bin/sh\ncase \"$*\" in *--boot*) printf '{text}\\n' ;; esac\n"),
    );
    lab.cnitool().env("PATH", &format!("/run/lab/programs:{}", lab::PATH))
}

#[test]
fn the_archive_contains_everything_for_a_report_and_its_files_are_listed() {
    let lab = Lab::new();
    let _pod = lab.container("pod");
    lab.configure("10-net.conflist", &network(&json!({"zzqq": 1})));
    let tool = lab.cnitool();
    tool.says("add net pod --container-id web");
    let listed = tool.json("sysdump --list");
    assert_eq!(listed["archive"], Value::Null);
    let names: Vec<&str> =
        listed["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
    let all = dump(&lab, &tool);
    for name in &names {
        assert!(all.contains(&format!("cnitool-sysdump/{name}:")), "{name} is listed, but not there");
    }
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = system.lines().find_map(|line| line.strip_prefix("NAME=")).unwrap_or_default();
    for (file, word) in [
        ("versions.json", &*format!("\"NAME\": \"{}\"", name.trim_matches('"'))),
        ("versions.json", if under_test().reference { "CNI bridge plugin v" } else { "+ferrule." }),
        ("configurations/etc/cni/net.d/10-net.conflist", "\"bridge\": \"br0\""),
        ("results/net-web-eth0.json", "10.208.2.2/24"),
        ("containers/net-web-eth0.txt", "name: \"eth0\""),
        ("host/links.txt", "name: \"br0\""),
        ("settings.json", "\"net/ipv4/ip_forward\": \"1\""),
        ("doctor.json", "no key \\\"zzqq\\\""),
    ] {
        let has = |line: &str| line.starts_with(&format!("cnitool-sysdump/{file}:")) && line.contains(word);
        assert!(all.lines().any(has), "{word} in {file}: {all}");
    }
    assert_eq!(fs::metadata("/run/lab/out.tgz").unwrap().permissions().mode() & 0o777, 0o600);
    let again = tool.run("sysdump --to /run/lab/out.tgz");
    assert!(again.exit == Some(1) && again.stderr.contains("/run/lab/out.tgz: File exists"), "{again:#?}");
}

#[test]
fn networks_of_a_relative_directory_have_absolute_names_in_the_archive() {
    let lab = Lab::new();
    fs::create_dir("/run/lab/nets").unwrap();
    fs::write("/run/lab/nets/10-net.conflist", network(&json!({})).to_string()).unwrap();
    for (working_directory, conf_dir) in [("/run/lab", "nets"), ("/etc/cni", "../../run/./lab/nets")] {
        let there = ["env", "-C", working_directory].map(str::to_owned);
        let tool = lab.cnitool().under(&there).env("NETCONFPATH", conf_dir);
        let listed = tool.says("sysdump --list");
        assert!(listed.contains("\nconfigurations/run/lab/nets/10-net.conflist "), "{listed}");
        dump(&lab, &tool);
    }
}

#[test]
fn a_full_disk_leaves_no_part_of_the_archive() {
    let lab = Lab::new();
    let tool = lab.cnitool();
    lab.host().sh(
        "cd /run/lab; mkdir disk; mount -t tmpfs -o size=4k none disk; head -c 4096 /dev/zero >disk/ballast",
    );
    let full = tool.run("sysdump --to /run/lab/disk/r.tgz");
    assert!(full.exit == Some(1) && full.stderr.contains("/run/lab/disk/r.tgz: No space left"), "{full:#?}");
    assert!(!fs::exists("/run/lab/disk/r.tgz").unwrap());
    lab.host().sh("mount -o remount,size=9m /run/lab/disk");
    tool.says("sysdump --to /run/lab/disk/r.tgz");
}

#[test]
fn no_secret_is_in_the_archive_wherever_it_is_planted() {
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let plugin = json!({
        "kubernetes": {"kubeconfig": format!("{SECRET}-1"), "k8s_auth_token": format!("{SECRET}-2")},
        "env": {"DB": format!("{SECRET}-3")}, "apiKey": format!("{SECRET}-4"),
        "etcd_endpoints": format!("https://user:{SECRET}-5@etcd.example"),
        "args": {"cni": {"password": format!("{SECRET}-6"), "list": [{"client-secret": [format!("{SECRET}-7")]}]}},
        "note": format!("-----BEGIN PRIVATE KEY-----\n{SECRET}-8\n-----END PRIVATE KEY-----"),
        "envs": [{"name": "X_TOKEN", "value": format!("{SECRET}-19")}],
        "command": ["run", "--token", format!("{SECRET}-20")],
    });
    lab.configure("10-net.conflist", &network(&plugin));
    // Files that are not networks: kubeconfigs in YAML and JSON, and a broken configuration.
    let dir = "/etc/cni/net.d";
    fs::write(format!("{dir}/kubeconfig"), format!("users:\n- user: {{token: {SECRET}-9}}\n")).unwrap();
    let kubeconfig = json!({"clusters": [], "users": [{"user": {"x": format!("{SECRET}-10")}}]});
    fs::write(format!("{dir}/20-kube.json"), kubeconfig.to_string()).unwrap();
    fs::write(format!("{dir}/30-broken.conflist"), format!("{{\"token\": \"{SECRET}-11\"")).unwrap();
    lab.host().sh(&format!("nft 'table inet x {{ comment \"token={SECRET}-12\"; }}'"));
    let log = format!(
        "cni: ADD env DB_URL={SECRET}-13 {{\\\\\"token\\\\\":\\\\\"{SECRET}-14\\\\\"}} Authorization: Bearer {SECRET}-15\\n\
         cni: exec --password {SECRET}-21 --api-token {SECRET}-22 [\"DB_PASSWORD\",\"{SECRET}-23\"]\\n\
         cnitool --args IgnoreUnknown=1;api_pin={SECRET}-24 add net\n\
         sshd: {SECRET}-26 of another program\n\
         FERRULE is named"
    );
    let tool = with_journal(&lab, &log).env("MY_TOKEN", &format!("{SECRET}-16"));
    let added =
        tool.clone().env("CNI_ARGS", &format!("IgnoreUnknown=1;K8S_POD_NAME=web;SERVICE={SECRET}-17"));
    // containerd passes the annotations of the pod. kubectl writes the whole specification into one of them.
    let spec = json!({"containers": [{"env": [{"name": "DB", "value": format!("{SECRET}-25")}]}]});
    let annotations = json!({
        "example.com/note": format!("{SECRET}-18"),
        "kubectl.kubernetes.io/last-applied-configuration": json!({ "spec": spec }).to_string(),
    });
    let capabilities = json!({"io.kubernetes.cri.pod-annotations": annotations, "ips": ["10.208.2.7/24"]});
    let added = added.env("CAP_ARGS", &capabilities.to_string());
    added.says("add net pod --container-id web");

    let all = dump(&lab, &tool);
    has_no_secret(&all);
    // The archive contains the text around the secrets, so their absence is not an accident.
    for kept in [
        "K8S_POD_NAME=web",
        "SERVICE=[removed]",
        "cni: ADD env DB_URL=[removed]",
        "cni: exec --password [removed]",
        "FERRULE is named",
        "--args IgnoreUnknown=1;api_pin=[removed] add net",
        "\"io.kubernetes.cri.pod-annotations\": \"[removed]\"",
        "10.208.2.7/24",
        "etcd.example",
        "20-kube.json",
        "30-broken.conflist.error",
        "rules/nft.txt",
        "\"k8s_auth_token\": \"[removed]\"",
    ] {
        assert!(all.contains(kept), "{kept}: {all}");
    }
    assert!(!all.contains("net.d/kubeconfig"), "{all}");
}

#[test]
fn values_with_the_name_of_a_secret_are_removed_from_configurations_results_and_logs() {
    let lab = Lab::new();
    let _pod = lab.container("pod");
    let secrets: BTreeMap<_, _> = NAMES.map(|name| (name, SECRET)).into();
    lab.configure("10-net.conflist", &network(&json!({"custom": secrets})));
    let log = NAMES.map(|name| format!("cni: {name}: {SECRET}")).join("\n");
    let tool = with_journal(&lab, &log);
    tool.says("add net pod --container-id web");

    let all = dump(&lab, &tool);
    has_no_secret(&all);
    let parsed = |file: &str| -> Value {
        serde_json::from_slice(&fs::read(format!("/run/lab/out/cnitool-sysdump/{file}")).unwrap()).unwrap()
    };
    let configuration = parsed("configurations/etc/cni/net.d/10-net.conflist");
    for network in [&configuration, &parsed("results/net-web-eth0.json")["configuration"]] {
        let plugin = &network["plugins"][0];
        assert_eq!(plugin["bridge"], "br0", "{network:#}");
        NAMES.iter().for_each(|name| assert_eq!(plugin["custom"][name], "[removed]", "{name}: {network:#}"));
    }
    for name in NAMES {
        assert!(all.contains(&format!("cni: {name}: [removed]")), "{name}: {all}");
    }
}
