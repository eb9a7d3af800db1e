//! `cnitool validate` reports what ADD would refuse. `agrees` tests the other direction.

mod agrees;

use std::fs;

use lab::{Lab, Outcome, beyond_reference};
use serde_json::{Value, json};

use crate::common::{cable, host_local};

const FILE: &str = "/etc/cni/net.d/10-net.conflist";

fn list(plugins: Value) -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins})
}

fn bridge(more: Value) -> Value {
    with(json!({"type": "bridge", "bridge": "br0", "ipam": host_local(&[&["10.1.2.0/24"]])}), more)
}

/// An object with the members of another one, which take precedence.
fn with(mut object: Value, more: Value) -> Value {
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

/// The findings of a network, as `LEVEL: TEXT`.
fn findings(lab: &Lab, network: &Value) -> Vec<String> {
    lab.configure("10-net.conflist", network);
    reported(&lab.cnitool().run(&format!("validate {FILE} --output json")))
}

/// The findings of a file that is not in the directory of the networks.
fn findings_of_draft(lab: &Lab, network: &Value) -> Vec<String> {
    let draft = lab.dir().join("draft.conflist");
    fs::write(&draft, network.to_string()).unwrap();
    reported(&lab.cnitool().run(&format!("validate {} --output json", draft.display())))
}

fn reported(outcome: &Outcome) -> Vec<String> {
    let judged: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{outcome:#?}"));
    let text = |one: &Value| format!("{}: {}", one["level"].as_str().unwrap(), one["msg"].as_str().unwrap());
    judged["findings"].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn a_configuration_that_add_refuses_is_an_error_with_its_location() {
    let lab = Lab::new();
    lab.container("pod");
    let ipam = |ipam: Value| bridge(json!({"ipam": with(json!({"type": "host-local"}), ipam)}));
    let route = json!([{"dst": "0.0.0.0/0"}]);
    for (plugins, words) in [
        (json!([ipam(json!({"ranges": [[{"subnet": "10.1.2.5/24"}]]}))]), "host bits"),
        (json!([ipam(json!({"subnet": "10.1.2.0/24", "gateway": "10.9.9.1", "routes": route}))]), "10.9.9.1"),
        (json!([ipam(json!({}))]), "ipam.ranges is missing"),
        (json!([{"type": "portmap", "capabilities": {"portMappings": true}}]), "first of its list"),
        (json!([bridge(json!({})), {"type": "bandwidth", "ingressRate": 1000}]), "burst must also be set"),
        (json!([bridge(json!({"hairpinMode": true, "promiscMode": true}))]), "exclude each other"),
        (json!([{"type": "vlan", "vlanId": 5}]), "master is missing"),
        (json!([{"type": "host-device"}]), "no device: set one of device, hwaddr"),
    ] {
        let network = list(plugins);
        let found = findings(&lab, &network);
        assert!(
            found.iter().any(|one| one.starts_with("error") && one.contains(words)),
            "{words}: {found:?}"
        );
        assert_eq!(lab.cnitool().run(&format!("validate {FILE}")).exit, Some(3));
        assert!(!lab.cnitool().run("add net pod").succeeded(), "ADD refuses it as well: {network}");
    }
    let host_bits = list(json!([ipam(json!({"subnet": "10.1.2.5/24"}))]));
    lab.configure("10-net.conflist", &host_bits);
    let shown = lab.cnitool().run(&format!("validate {FILE}"));
    let line = shown.stdout.lines().nth(2).unwrap();
    let marked = &shown.stdout.lines().nth(1).unwrap()[line.find('^').unwrap()..];
    assert!(marked.starts_with("\"10.1.2.5/24\""), "{}", shown.stdout);
}

#[test]
fn versions_for_newer_runtimes_are_accepted_as_by_add() {
    let lab = Lab::new();
    lab.container("pod");
    let tool = lab.cnitool();
    for (version, more) in
        [("1.1.0", json!(["0.4.0", "1.0.0", "1.1.0", "1.2.0"])), ("9.1.0", json!(["1.0.0"]))]
    {
        let versions = json!({"cniVersion": version, "cniVersions": more});
        assert_eq!(findings(&lab, &with(list(json!([bridge(json!({}))])), versions)), [""; 0], "{version}");
        let doctor = tool.run("doctor --output json").stdout;
        assert!(!doctor.contains("is not supported"), "{doctor}");
        tool.says("add net pod");
        tool.says("del net pod");
    }
}

/// libcni loads `NAME/*.conf` next to the file too: one wrong file makes every ADD impossible.
#[test]
fn plugins_in_the_networks_directory_are_checked_too() {
    let lab = Lab::new();
    lab.container("pod");
    lab.configure("10-net.conflist", &list(json!([bridge(json!({}))])));
    fs::create_dir("/etc/cni/net.d/net").unwrap();
    let tool = lab.cnitool();
    let validate = |path: &str| tool.run(&format!("validate {path} --output json"));
    for (plugin, words) in [
        (r#"{"type": "bandwidth", "ingressRate": -5}"#, "error: ingressRate: -5"),
        (r#"{"type": "bandwidth", "ingressRate": 1000}"#, "burst must also be set"),
        (r#"{"type": "portmap", "snat": "yes"}"#, "error: snat: "),
        (r#"{"type": "portmap" "#, "error: "),
        (r#"{"snat": true}"#, "error: type is missing"),
        ("[]", "expected an object"),
    ] {
        fs::write("/etc/cni/net.d/net/20.conf", plugin).unwrap();
        for path in [FILE, "", "/etc/cni/net.d"] {
            let judged = validate(path);
            let all: Value = serde_json::from_str(&judged.stdout).unwrap();
            let of_file = |one: &&Value| one["file"] == "/etc/cni/net.d/net/20.conf";
            let found = all.as_array().unwrap().iter().find(of_file).unwrap();
            let found = reported(&Outcome { stdout: found.to_string(), ..judged.clone() });
            assert!(found.iter().any(|one| one.contains(words)), "{plugin}: {found:?}");
            assert_eq!(judged.exit, Some(3), "{plugin}");
        }
        assert!(!tool.run("add net pod").succeeded(), "ADD refuses it as well: {plugin}");
    }
    let portmap = r#"{"type": "portmap", "capabilities": {"portMappings": true}}"#;
    fs::write("/etc/cni/net.d/net/20.conf", portmap).unwrap();
    let judged = tool.run("validate");
    assert!(judged.exit == Some(0) && judged.stdout.contains("net/20.conf is valid\n"), "{judged:#?}");
    let inlined = with(list(json!([bridge(json!({}))])), json!({"loadOnlyInlinedPlugins": true}));
    fs::write("/etc/cni/net.d/net/20.conf", "{").unwrap();
    assert_eq!(findings(&lab, &inlined), [""; 0]);
}

#[test]
fn settings_that_may_not_work_as_intended_are_a_warning() {
    let lab = Lab::new();
    cable(&lab);
    let fixed = |addresses: Value| bridge(json!({"ipam": {"type": "static", "addresses": addresses}}));
    let portmap = json!({"type": "portmap"});
    for (plugins, words) in [
        (json!([bridge(json!({})), portmap]), "does not declare the capability portMappings"),
        (json!([{"type": "macvlan", "master": "eth9"}]), "this interface does not exist"),
        (json!([{"type": "macvlan"}]), "no default route"),
        (json!([bridge(json!({"mtu": 67}))]), "mtu 67: Ethernet interfaces have at least 68"),
        (
            json!([{"type": "macvlan", "master": "cable", "mtu": 1501}]),
            "mtu 1501 is more than 1500, the MTU of master cable",
        ),
        (json!([fixed(json!([]))]), "no address: each request must contain one"),
        (json!([fixed(json!([{"gateway": "10.1.2.1"}]))]), "no address: each request must contain one"),
        (
            json!([bridge(
                json!({"ipam": {"type": "host-local", "subnet": "10.1.2.0/24", "gateway": "10.9.0.1"}})
            )]),
            "gateway 10.9.0.1 is not in subnet 10.1.2.0/24",
        ),
        (json!([{"type": "host-device", "deviceID": "0000:00:1f.6", "device": "lo"}]), "no key \"deviceID\""),
    ] {
        let found = findings(&lab, &list(plugins));
        assert!(
            found.iter().any(|one| one.starts_with("warning") && one.contains(words)),
            "{words}: {found:?}"
        );
    }
    let shown = lab.cnitool().says(&format!("validate {FILE}"));
    assert!(shown.contains("did you mean \"pciBusID\"?"), "{shown}");
}

#[test]
fn keys_for_runtimes_and_keys_that_a_runtime_sets_are_no_findings() {
    let lab = Lab::new();
    for plugin in [
        bridge(json!({"ipam": {"type": "host-local"}, "capabilities": {"ipRanges": true}})),
        bridge(json!({"ipam": {"type": "static"}, "capabilities": {"ips": true}})),
        json!({"type": "host-device", "capabilities": {"deviceID": true}}),
    ] {
        let network = with(list(json!([plugin])), json!({"nerdctlID": "17f29b", "nerdctlLabels": {}}));
        assert_eq!(findings(&lab, &network), [""; 0], "{network}");
    }
}

#[test]
fn repeated_names_overlapping_ranges_and_two_gateways_of_one_bridge_are_found_across_all_networks_of_the_host()
 {
    let lab = Lab::new();
    lab.private_dir("/opt/cni");
    let network = |name: &str, link: &str, subnet: &str| {
        let ipam = host_local(&[&[subnet]]);
        let bridge = json!({"type": "bridge", "bridge": link, "isGateway": true, "ipam": ipam});
        json!({"cniVersion": "1.1.0", "name": name, "plugins": [bridge]})
    };
    lab.configure("10-a.conflist", &network("a", "br0", "10.1.0.0/16"));
    lab.configure("20-b.conflist", &network("b", "br1", "10.2.0.0/16"));
    let tool = lab.cnitool();
    assert_eq!(tool.says("validate").matches("is valid\n").count(), 2);

    let of_draft = |network: &Value| findings_of_draft(&lab, network);
    let overlaps =
        "warning: range 10.1.2.0/24 overlaps 10.1.0.0/16 of network a in /etc/cni/net.d/10-a.conflist";
    assert_eq!(of_draft(&network("c", "br2", "10.1.2.0/24")), [overlaps]);
    assert_eq!(of_draft(&network("a", "br0", "10.1.2.0/24")), [""; 0], "it will replace the other file");
    let contradicts = "warning: bridge br0 gets the gateway address 10.4.0.1, but 10.1.0.1 by network a in \
                       /etc/cni/net.d/10-a.conflist";
    let mut same_bridge = network("c", "br0", "10.4.0.0/16");
    assert_eq!(of_draft(&same_bridge), [contradicts]);
    same_bridge["plugins"][0]["vlan"] = json!(4);
    assert_eq!(of_draft(&same_bridge), [""; 0], "another interface has the gateway's address");
    // Separate segments may have the same addresses.
    let macvlan = json!({"type": "macvlan", "master": "lo", "ipam": host_local(&[&["10.1.2.0/24"]])});
    assert_eq!(of_draft(&with(list(json!([macvlan])), json!({"name": "c"}))), [""; 0]);

    fs::create_dir_all("/opt/cni/config").unwrap();
    fs::write("/opt/cni/config/mesh.conflist", network("mesh", "br3", "10.2.3.0/24").to_string()).unwrap();
    lab.configure("30-a.conflist", &network("a", "br0", "10.3.0.0/16"));
    let all = tool.run("validate");
    for words in ["has the same name, a", "overlaps 10.2.3.0/24 of network mesh"] {
        assert!(all.stdout.contains(words), "{words}: {all:#?}");
    }
    assert_eq!(all.exit, Some(0), "warnings only");
    assert_eq!(tool.json("validate").as_array().unwrap().len(), 3);
}

#[test]
fn equal_ranges_of_two_networks_are_a_warning_if_containers_of_both_are_on_one_link_and_in_one_vlan() {
    let lab = Lab::new();
    lab.private_dir("/opt/cni");
    cable(&lab);
    let macvlan = |master: &str| json!({"type": "macvlan", "master": master});
    let vlan = |id: u16| json!({"type": "vlan", "master": "cable", "vlanId": id});
    let device = |name: &str| json!({"type": "host-device", "device": name});
    let ptp = json!({"type": "ptp"});
    let network = |name: &str, plugin: &Value| {
        let plugin = with(plugin.clone(), json!({"ipam": host_local(&[&["10.1.2.0/24"]])}));
        with(list(json!([plugin])), json!({"name": name}))
    };
    let overlaps =
        "warning: range 10.1.2.0/24 overlaps 10.1.2.0/24 of network a in /etc/cni/net.d/10-a.conflist";
    for (first, second, expected) in [
        (macvlan("cable"), macvlan("cable"), &[overlaps][..]),
        (macvlan("cable"), macvlan("far"), &[]),
        (macvlan("cable"), vlan(5), &[]),
        (vlan(5), vlan(5), &[overlaps]),
        (vlan(5), vlan(6), &[]),
        (device("cable"), device("far"), &[]),
        // The host routes to the range.
        (ptp.clone(), ptp, &[overlaps]),
    ] {
        lab.configure("10-a.conflist", &network("a", &first));
        assert_eq!(findings_of_draft(&lab, &network("b", &second)), expected, "{first} {second}");
    }
}

/// Each range has the same default gateway, the first address of the subnet.
#[test]
fn two_networks_with_different_parts_of_a_subnet_share_one_bridge_but_not_two() {
    let lab = Lab::new();
    lab.private_dir("/opt/cni");
    let network = |name: &str, link: &str, [first, last]: [&str; 2]| {
        let range = json!({"subnet": "10.3.0.0/24", "rangeStart": first, "rangeEnd": last});
        let ipam = json!({"type": "host-local", "ranges": [[range]]});
        let bridge = json!({"type": "bridge", "bridge": link, "isGateway": true, "ipam": ipam});
        with(list(json!([bridge])), json!({"name": name}))
    };
    let (lower, upper) = (["10.3.0.2", "10.3.0.127"], ["10.3.0.128", "10.3.0.254"]);
    lab.configure("10-a.conflist", &network("a", "br0", lower));
    assert_eq!(findings_of_draft(&lab, &network("b", "br0", upper)), [""; 0]);
    let overlaps = "warning: range 10.3.0.128-10.3.0.254 of 10.3.0.0/24 overlaps 10.3.0.2-10.3.0.127 of \
                    10.3.0.0/24 of network a in /etc/cni/net.d/10-a.conflist";
    assert_eq!(findings_of_draft(&lab, &network("b", "br1", upper)), [overlaps]);
}

/// libcni also loads the plugins in the directory NAME/.
#[test]
fn a_list_without_plugins_is_an_error_unless_the_directory_of_the_network_contains_some() {
    let lab = Lab::new();
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.1.0", "name": "net"}));
    let judged = lab.cnitool().run("validate");
    let words = ["plugins is missing: the network has no plugins", "set \"plugins\": [{"];
    assert!(judged.exit == Some(3) && words.iter().all(|word| judged.stdout.contains(word)), "{judged:#?}");
    let status = lab.cnitool().run("status net");
    assert!(status.stderr.contains("set \"plugins\": [{"), "{status:#?}");
    fs::create_dir("/etc/cni/net.d/net").unwrap();
    fs::write("/etc/cni/net.d/net/10.conf", json!({"type": "bridge"}).to_string()).unwrap();
    assert!(lab.cnitool().says("validate").contains("is valid"));
}

#[test]
fn a_file_that_cannot_be_read_is_a_finding_and_hides_no_other_file() {
    let lab = Lab::new();
    lab.configure("10-net.conflist", &list(json!([{"type": "bridge", "mtu": "1500"}])));
    let fifo = "/etc/cni/net.d/05-fifo.conflist";
    lab.host().sh(&format!("mkfifo {fifo}"));
    // Opening the FIFO as a file would wait forever.
    let tool = lab.cnitool().under(&["timeout", "-s", "KILL", "60"].map(str::to_owned));
    let unread = format!("{fifo}:1:1: error: the file cannot be read: it is not a regular file");
    let all = tool.run("validate");
    assert!(all.exit == Some(3) && all.stdout.contains(&unread), "{all:#?}");
    assert!(all.stdout.contains("10-net.conflist:") && all.stdout.contains("expected a number"), "{all:#?}");
    let missing = tool.run("validate /run/lab/none.conflist");
    assert!(
        missing.exit == Some(3) && missing.stdout.contains("cannot be read: No such file"),
        "{missing:#?}"
    );

    let doctor = tool.run("doctor");
    assert!(doctor.exit == Some(1) && doctor.stdout.contains(fifo), "{doctor:#?}");
    assert!(doctor.stdout.contains("move it out of the directory"), "{doctor:#?}");
    assert!(doctor.stdout.contains("expected a number"), "{doctor:#?}");
    tool.says("sysdump --to /run/lab/out.tgz");
    let dumped =
        lab.host().sh(&format!("tar -xOzf /run/lab/out.tgz cnitool-sysdump/configurations{fifo}.error"));
    assert!(dumped.contains("not a regular file"), "{dumped}");
    // A shell's process substitution is a FIFO, too.
    lab.host().sh(&format!("rm {fifo}"));
    let stream = ["sh", "-c", "echo '{' | \"$0\" \"$@\""].map(str::to_owned);
    let judged = lab.cnitool().under(&stream).run("validate /dev/stdin");
    assert!(judged.exit == Some(3) && !judged.stdout.contains("cannot be read"), "{judged:#?}");
}

/// containerd and CRI-O refuse such a file, and report the node as not ready.
#[test]
fn a_list_in_a_conf_or_json_file_is_an_error_and_no_command_uses_it() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.container("pod");
    let tool = lab.cnitool();
    for name in ["05-net.conf", "05-net.json"] {
        lab.configure(name, &list(json!([bridge(json!({}))])));
        let file = format!("/etc/cni/net.d/{name}");
        let validated = tool.run(&format!("validate {file}"));
        assert_eq!(validated.exit, Some(3), "{validated:#?}");
        for words in ["only from *.conflist", "= rename the file to /etc/cni/net.d/05-net.conflist"] {
            assert!(validated.stdout.contains(words), "{validated:#?}");
        }
        let listed = tool.says("list networks");
        assert!(listed.contains("invalid") && !listed.contains("default"), "{listed}");
        let status = tool.run("status");
        assert_eq!(status.exit, Some(3), "{status:#?}");
        assert!(status.stdout.contains("only from *.conflist"), "{status:#?}");
        let doctor = tool.run("doctor");
        assert_eq!(doctor.exit, Some(1), "{doctor:#?}");
        assert!(doctor.stdout.contains("05-net.conflist"), "{doctor:#?}");
        let added = tool.run("add net pod");
        assert!(!added.succeeded() && added.stderr.contains("only from *.conflist"), "{added:#?}");
        fs::remove_file(file).unwrap();
    }
}

/// Runtimes read only `plugins` from a *.conflist, and only a single plugin from the other files.
#[test]
fn a_file_of_which_runtimes_ignore_the_plugin_or_the_list_is_an_error_and_no_command_uses_it() {
    let lab = Lab::new();
    lab.container("pod");
    let tool = lab.cnitool();
    let mut both = list(json!([bridge(json!({}))]));
    both["type"] = json!("ptp");
    let mut single = bridge(json!({}));
    single["name"] = json!("net");
    single["cniVersion"] = json!("1.0.0");
    for (name, document, words) in [
        ("05-net.conf", &both, "ignore `plugins`"),
        ("05-net.json", &both, "ignore `plugins`"),
        ("05-net.conflist", &single, "\"plugins\": [ ]"),
    ] {
        lab.configure(name, document);
        let validated = tool.run("validate --output json");
        assert_eq!(validated.exit, Some(3), "{validated:#?}");
        assert!(validated.stdout.contains(&words.replace('"', "\\\"")), "{validated:#?}");
        assert_eq!(validated.stdout.matches("\"error\"").count(), 1, "{validated:#?}");
        let added = tool.run("add net pod");
        assert!(added.exit == Some(3) && added.stderr.contains(words), "{added:#?}");
        assert_eq!(tool.json("list networks")[0]["default"], false);
        fs::remove_file(format!("/etc/cni/net.d/{name}")).unwrap();
    }
    // Runtimes ignore the `type` of a list.
    lab.configure("05-net.conflist", &both);
    assert_eq!(tool.json("list networks")[0]["plugins"], json!(["bridge"]));
}

/// A file of another program could otherwise clear the terminal, or hide a finding.
#[test]
fn control_characters_of_files_and_names_are_printed_as_escapes() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.container("pod");
    let text = "{\"cniVersion\": \"1.0.0\", \"name\": \"net\", \"plugins\": [{\"type\": \"bridge\", \"\u{1b}[2J\u{202e}\": 1, \"odd\": 1, \
                \"bridge\": \"a\\u001b[2J\", \"ipam\": {\"type\": \"host-local\", \"subnet\": \"\\u009b\\u007f\"}}]}";
    fs::create_dir_all("/etc/cni/net.d").unwrap();
    fs::write("/etc/cni/net.d/10-\u{1b}[31mnet.conflist", text).unwrap();
    let tool = lab.cnitool();
    for command in ["validate", "status", "doctor", "list", "add net pod"] {
        for options in ["", " --color always", " --output json"] {
            let outcome = tool.run(&format!("{command}{options}"));
            let printed = format!("{}{}", outcome.stdout, outcome.stderr);
            let styled = ["[0m", "[1m", "[2m", "[32m", "[1;31m", "[33m", "[36m"];
            let rest = styled.iter().fold(printed, |text, style| text.replace(&format!("\u{1b}{style}"), ""));
            let is_raw = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
            assert!(!rest.contains(is_raw), "{command}{options}: {outcome:#?}");
        }
    }
    let outcome = tool.run("validate");
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let at = lines.iter().position(|line| line.contains("no key \"odd\"")).unwrap();
    assert_eq!(lines[at + 1].find("\"odd\""), lines[at + 2].find('^'), "{outcome:#?}");
    assert!(lines[at + 1].contains(r"\u001b[2J\u202e"), "{outcome:#?}");
}
