//! Delegation (SPEC.md, section 4): the input of an IPAM plugin, and the handling of its failures.

use std::fs;

use lab::{Call, Feature, Lab, Release, beyond_reference, needs, skip_part};
use serde_json::{Value, json};

use crate::common::{STORE, cable, host_local, ips};

/// An IPAM plugin that records its input, and fails if /run/lab/fail contains the command.
const SPY: &str = r#"
cat >/run/lab/stdin.$CNI_COMMAND
env | grep ^CNI_ | grep -v ^CNI_COMMAND | sort >/run/lab/env.$CNI_COMMAND
echo $CNI_COMMAND >>/run/lab/commands
echo "a word on stderr" >&2
if grep -qsx $CNI_COMMAND /run/lab/fail; then cat /run/lab/error.$CNI_COMMAND 2>/dev/null || echo '{"code": 111, "msg": "no address today"}'; exit 1; fi
[ $CNI_COMMAND != ADD ] || echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.1.2.9/24"}]}'"#;

fn spied(lab: &Lab) -> Call {
    lab.fake_plugin("spy", SPY);
    let conf = json!({"bridge": "br0", "ipam": {"type": "spy"}, "odd": {"b": 1, "a": 1.50}});
    lab.plugin("bridge").config(conf).on(&lab.container("pod")).args("IgnoreUnknown=1;K=v")
}

fn commands() -> Vec<String> {
    fs::read_to_string("/run/lab/commands").unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn a_delegate_gets_the_same_variables_and_stdin_and_its_log_is_passed_on() {
    let lab = Lab::new();
    let call = spied(&lab);
    let added = call.add();
    assert_eq!(added.ok_result()["ips"][0]["address"], "10.1.2.9/24");
    assert!(added.stderr.contains("a word on stderr"), "{added:#?}");
    let env = fs::read_to_string("/run/lab/env.ADD").unwrap();
    for variable in
        ["CNI_CONTAINERID=pod", "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/pod", "CNI_ARGS=IgnoreUnknown=1;K=v"]
    {
        assert!(env.lines().any(|line| line == variable), "{variable} in {env}");
    }
    let text = r#"{ "odd":1.50,"cniVersion" : "1.0.0", "name":"net", "type":"bridge", "ipam":{"type":"spy"}, "bridge":"br0" }"#;
    call.clone().stdin(text).del().ok();
    assert_eq!(fs::read_to_string("/run/lab/stdin.DEL").unwrap(), text, "byte for byte");
}

/// libcni reads each result in the version that it names.
#[test]
fn a_delegates_result_may_have_another_version_than_the_configuration() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let lists = r#""ips": [{"version": "4", "address": "10.1.2.9/24"}]"#;
    for (result, configured) in [
        (format!(r#"{{"cniVersion": "0.3.1", {lists}}}"#), "1.0.0"),
        (format!(r#"{{"cniVersion": "1.0.0", {lists}}}"#), "0.4.0"),
        (format!(r#"{{"cniVersion": "", {lists}}}"#), "0.4.0"),
        (r#"{"cniVersion": "0.2.0", "ip4": {"ip": "10.1.2.9/24"}}"#.to_owned(), "1.1.0"),
    ] {
        lab.fake_plugin("old", &format!("[ $CNI_COMMAND != ADD ] || echo '{result}'"));
        let conf = json!({"bridge": "br0", "ipam": {"type": "old"}});
        let call = lab.plugin("bridge").version(configured).config(conf).on(&pod);
        let added = call.add().ok_result();
        assert_eq!(
            (&added["cniVersion"], &added["ips"][0]["address"]),
            (&json!(configured), &json!("10.1.2.9/24"))
        );
        call.del().ok();
    }
}

#[test]
fn every_command_reaches_the_delegate_and_its_failure_is_the_plugins_own() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let call = spied(&lab).version("1.1.0");
    let result: Value = call.add().ok_result();
    for command in ["CHECK", "GC", "STATUS", "DEL"] {
        fs::write("/run/lab/fail", command).unwrap();
        let call = call.clone().config(json!({"prevResult": result, "cni.dev/valid-attachments": []}));
        let error = call.run(command).error();
        assert_eq!((error.code, error.msg.contains("no address today")), (111, true), "{command}: {error:?}");
    }
    assert_eq!(commands(), ["ADD", "CHECK", "GC", "STATUS", "DEL"]);
}

/// The plugins that call an IPAM plugin, with the keys that ADD needs besides. Without those whose links this kernel lacks.
fn plugins_with_ipam() -> impl Iterator<Item = (&'static str, Value)> {
    let usual = [
        ("bridge", json!({"bridge": "br0"})),
        ("host-device", json!({"device": "device"})),
        ("macvlan", json!({"master": "cable"})),
        ("ptp", json!({})),
        ("tap", json!({})),
    ];
    let rare = [
        ("dummy", json!({}), Feature::Dummy),
        ("ipvlan", json!({"master": "cable"}), Feature::Ipvlan),
        ("vlan", json!({"master": "cable", "vlanId": 5}), Feature::Vlan),
    ];
    let rare = rare.into_iter().filter(|(plugin, _, feature)| !skip_part(plugin, *feature));
    usual.into_iter().chain(rare.map(|(plugin, keys, _)| (plugin, keys)))
}

#[test]
fn status_fails_if_the_ipam_plugin_is_not_ready() {
    beyond_reference!("status");
    needs!(Macvlan);
    let lab = Lab::new();
    lab.fake_plugin("busy", r#"echo '{"code": 50, "msg": "no address today"}'; exit 1"#);
    for (plugin, _) in plugins_with_ipam() {
        let call = lab.plugin(plugin).config(json!({"ipam": {"type": "busy"}, "vlanId": 5}));
        call.status().refused(50, "no address today");
    }
}

#[test]
fn check_fails_if_the_ipam_plugin_has_lost_the_lease() {
    needs!(Macvlan, Tap);
    let lab = Lab::new();
    let pod = lab.container("pod");
    cable(&lab);
    lab.host().sh("ip link add device type veth peer name elsewhere");
    let ipam = json!({"ipam": host_local(&[&["10.1.2.0/24"]])});
    for (plugin, keys) in plugins_with_ipam() {
        let call = lab.plugin(plugin).config(keys).config(ipam.clone()).on(&pod);
        let result = call.add().ok_result();
        call.check(&result).ok();
        let address = ips(&result)[0].split('/').next().unwrap();
        let lease = format!("{STORE}/{address}");
        let content = fs::read(&lease).unwrap();
        fs::remove_file(&lease).unwrap();
        call.check(&result).refused(999, address);
        fs::write(&lease, content).unwrap();
        call.del().ok();
    }
}

#[test]
fn a_delegated_add_that_fails_is_followed_by_its_del() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let call = spied(&lab);
    fs::write("/run/lab/fail", "ADD").unwrap();
    assert_eq!(call.add().error().code, 111);
    assert_eq!(commands(), ["ADD", "DEL"]);
}

/// After a refusal of the request, nothing is to be undone: the plugin's DEL would release an earlier ADD's address.
#[test]
fn a_failed_rollback_of_a_delegated_add_is_reported_and_a_refused_request_is_not_rolled_back() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let call = spied(&lab);
    fs::write("/run/lab/fail", "ADD\nDEL\n").unwrap();
    let details = |add: &str, del: &str| {
        fs::write("/run/lab/error.ADD", add).unwrap();
        fs::write("/run/lab/error.DEL", del).unwrap();
        call.add().error().details
    };
    let failure = r#"{"code": 5, "msg": "write the lease: I/O error"}"#;
    let refusals = [
        r#"{"code": 7, "msg": "ipam.pool is missing"}"#,
        r#"{"code": 999, "msg": "failed to allocate for range 0: 10.1.2.9 has been allocated to pod, duplicate allocation is not allowed"}"#,
    ];
    for refusal in refusals {
        let refused = details(refusal, failure);
        assert!(!refused.contains("rollback"), "{refused}");
    }
    assert_eq!(commands(), ["ADD", "ADD"]);
    for del in [failure, r#"{"code": 5, "msg": "the lease stays"}"#] {
        let details = details(failure, del);
        let expected = del.split('"').nth_back(1).unwrap();
        assert!(details.contains(&format!("the rollback failed too: {expected}")), "{details}");
    }
}

/// For example, a runtime that has lost its records starts a running container again.
#[test]
fn a_second_add_in_another_namespace_fails_and_the_running_attachment_keeps_its_lease() {
    beyond_reference!("rollback");
    let lab = Lab::new();
    let [running, again] = ["pod", "again"].map(|name| lab.container(name));
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24"}]]});
    cable(&lab);
    let ours = lab.plugin("macvlan").config(json!({"master": "cable", "ipam": ipam}));
    let reference = Release::latest().place();
    let lease = format!("{STORE}/10.1.2.2");
    for call in [ours.clone(), ours.env("CNI_PATH", reference.to_str().unwrap())] {
        let call = call.env("CNI_CONTAINERID", "pod");
        let [first, second] = [&running, &again]
            .map(|namespace| call.clone().env("CNI_NETNS", namespace.path().to_str().unwrap()));
        fs::remove_dir_all(STORE).ok();
        first.add().ok_result();
        let error = second.add().error();
        assert!(error.msg.contains("duplicate allocation is not allowed"), "{error:?}");
        assert!(fs::exists(&lease).unwrap(), "the lease of the running attachment was released");
        assert!(again.link("eth0").is_none());
        first.del().ok();
        assert!(!fs::exists(&lease).unwrap());
    }
}
