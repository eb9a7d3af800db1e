//! The plugin flannel: its calls of bridge and host-local, and the files that it keeps until DEL.

mod two_machines;
mod upgrade;

use std::fs;

use lab::{Call, Container, Lab, SEPARATE_DELEGATES, beyond_reference, injecting};
use serde_json::{Value, json};

use crate::common::{a_taken_name_is_refused, ips, is_up, with_full_stdout};

const STATE: &str = "/var/lib/cni/flannel";
const SUBNET_FILE: &str = "/run/flannel/subnet.env";

/// The file that flanneld writes on the host with these subnets.
pub fn subnet_env(ip_masq: bool) -> String {
    subnet_env_in(42, ip_masq)
}

/// The same with subnets of 10.SECOND.0.0/16 and fd00:SECOND::/56.
pub fn subnet_env_in(second: u8, ip_masq: bool) -> String {
    format!(
        "FLANNEL_NETWORK=10.{second}.0.0/16\nFLANNEL_SUBNET=10.{second}.1.1/24\nFLANNEL_IPV6_NETWORK=fd00:{second}::/56\n\
         FLANNEL_IPV6_SUBNET=fd00:{second}:0:1::1/64\nFLANNEL_MTU=1400\nFLANNEL_IPMASQ={ip_masq}\n"
    )
}

pub fn flanneld_says(text: &str) {
    fs::create_dir_all("/run/flannel").unwrap();
    fs::write(SUBNET_FILE, text).unwrap();
}

/// The configuration in flannel's own manifest.
fn flannel(lab: &Lab) -> Call {
    flanneld_says(&subnet_env(true));
    lab.plugin("flannel")
        .config(json!({"name": "cbr0", "delegate": {"hairpinMode": true, "isDefaultGateway": true}}))
}

fn kept() -> Vec<String> {
    let Ok(entries) = fs::read_dir(STATE) else { return Vec::new() };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn document(name: &str) -> Value {
    serde_json::from_slice(&fs::read(format!("{STATE}/{name}")).unwrap()).unwrap()
}

/// Shared objects stay after the first container, so they exist from here on.
fn settled(lab: &Lab, call: &Call) {
    let first = call.clone().on(&lab.container("first"));
    first.add().ok_result();
    first.del().ok();
}

/// A delegate that records its input, and fails if /run/lab/fail contains the command.
const SPY: &str = r#"
cat >/run/lab/stdin.$CNI_COMMAND
echo $CNI_COMMAND >>/run/lab/commands
if grep -qsx $CNI_COMMAND /run/lab/fail; then echo '{"code": 111, "msg": "not today"}'; exit 1; fi
[ $CNI_COMMAND != ADD ] || echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.1.2.9/24"}]}'"#;

fn spied(lab: &Lab) -> (Call, Container) {
    lab.fake_plugin("spy", SPY);
    let pod = lab.container("pod");
    (flannel(lab).config(json!({"delegate": {"type": "spy"}})).on(&pod), pod)
}

fn commands() -> Vec<String> {
    fs::read_to_string("/run/lab/commands").unwrap_or_default().lines().map(str::to_owned).collect()
}

fn given(command: &str) -> Value {
    serde_json::from_slice(&fs::read(format!("/run/lab/stdin.{command}")).unwrap()).unwrap()
}

#[test]
fn containers_get_addresses_of_the_hosts_subnets_and_reach_each_other() {
    beyond_reference!("flannel");
    for separately in ["", "1"] {
        let lab = Lab::new();
        let call = flannel(&lab).env(SEPARATE_DELEGATES, separately);
        settled(&lab, &call);
        let before = lab.snapshot();
        let [a, b] = ["a", "b"].map(|id| lab.container(id));
        let [first, second] = [&a, &b].map(|pod| call.clone().on(pod).add().ok_result());
        assert_eq!(ips(&first), ["10.42.1.3/24", "fd00:42:0:1::3/64"]);
        for other in ips(&second) {
            assert!(a.reaches(other.split_once('/').unwrap().0), "{other}");
        }
        assert!(is_up(lab.host(), "cni0"));
        assert_eq!(a.link("eth0").unwrap()["mtu"], 1400);
        assert!(lab.host().addresses("cni0").contains(&"10.42.1.1/24".to_owned()));
        assert!(a.sh("ip route").contains("10.42.0.0/16 via 10.42.1.1"), "{}", a.sh("ip route"));
        for (pod, result) in [(&a, &first), (&b, &second)] {
            let call = call.clone().on(pod);
            call.check(result).ok();
            assert!(call.run("DEL").stderr.is_empty(), "nothing is written to the log");
            call.del().ok();
        }
        lab.snapshot().without("a").without("b").assert_same(&before);
    }
}

#[test]
fn either_flanneld_or_the_bridge_masquerades_containers() {
    beyond_reference!("flannel");
    for flanneld_does in [true, false] {
        let lab = Lab::new();
        let call = flannel(&lab).on(&lab.container("pod"));
        flanneld_says(&subnet_env(flanneld_does));
        call.add().ok_result();
        assert_eq!(document("pod")["ipMasq"], !flanneld_does);
        assert_eq!(lab.host().ruleset().contains("masquerade"), !flanneld_does);
        call.del().ok();
    }
}

#[test]
fn every_command_reaches_the_delegate_with_the_configuration_of_its_add() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let (call, _pod) = spied(&lab);
    let call = call.version("1.1.0").config(json!({"runtimeConfig": {"mac": "02:00:00:00:00:01", "odd": 1}}));
    let result = call.add().ok_result();
    let mut saved = document("pod");
    // Not for the delegate.
    saved.as_object_mut().unwrap().remove("ferrule.ifname");
    assert_eq!(
        (&saved["name"], &saved["type"], &saved["ipMasq"]),
        (&json!("cbr0"), &json!("spy"), &json!(false))
    );
    assert_eq!(saved["runtimeConfig"], json!({"mac": "02:00:00:00:00:01", "odd": 1}));
    assert_eq!(given("ADD"), saved);
    // flanneld has another subnet now. The container is unchanged.
    flanneld_says(&subnet_env(true).replace("10.42.1.", "10.42.7."));
    call.check(&result).ok();
    assert_eq!((&given("CHECK")["ipam"], &given("CHECK")["prevResult"]), (&saved["ipam"], &result));
    call.status().ok();
    call.clone().config(json!({"prevResult": result})).del().ok();
    assert_eq!(given("DEL")["ipam"], saved["ipam"]);
    assert_eq!(commands(), ["ADD", "CHECK", "STATUS", "DEL"]);
    assert!(kept().is_empty());
}

#[test]
fn the_state_that_del_needs_is_deleted_only_after_the_delegates_del_succeeds() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let (call, _pod) = spied(&lab);
    call.add().ok_result();
    fs::write("/run/lab/fail", "DEL").unwrap();
    assert_eq!(call.del().error().code, 111);
    assert_eq!(kept(), ["pod"]);
    fs::remove_file("/run/lab/fail").unwrap();
    call.del().ok();
    assert_eq!((kept().len(), commands().len()), (0, 3));
}

#[test]
fn another_directory_may_have_the_state_that_check_and_del_and_gc_need() {
    beyond_reference!("flannel");
    for command in ["DEL", "GC"] {
        let lab = Lab::new();
        let call = flannel(&lab).config(json!({"dataDir": "/run/lab/flannel"}));
        settled(&lab, &call);
        let pod = lab.container("of-data-dir");
        let (before, links) = (lab.snapshot(), lab.host().link_names());
        let call = call.on(&pod);
        let result = call.add().ok_result();
        assert!(kept().is_empty(), "{:?}", kept());
        // flanneld has other settings now. The container is unchanged.
        flanneld_says(&subnet_env(true).replace("10.42.1.", "10.42.7.").replace("1400", "1300"));
        call.check(&result).ok();
        if command == "DEL" {
            call.del().ok();
        } else {
            pod.vanish();
            call.gc(&[]).ok();
        }
        assert_eq!(fs::read_dir("/run/lab/flannel").unwrap().count(), 0, "{command}");
        flanneld_says(&subnet_env(true));
        lab.host().wait_until("the veth is deleted", |host| host.link_names() == links);
        lab.snapshot().without("of-data-dir").assert_same(&before);
    }
}

#[test]
fn the_state_that_del_needs_is_kept_if_it_cannot_be_read() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let (call, _pod) = spied(&lab);
    call.add().ok_result();
    let path = format!("{STATE}/pod");
    let unread = injecting(&["-P", &path, "-e", "inject=?open,openat:error=EMFILE:when=1"]);
    call.clone().under(&unread).del().refused(5, &path);
    assert_eq!(kept(), ["pod"]);
    call.del().ok();
    assert!(kept().is_empty());
}

#[test]
fn a_delegate_that_fails_to_repair_or_to_list_is_reported() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let failing = r#"case $1 in repair | collect) echo '{"code": 111, "msg": "no memory", "ferrule": "0.2.0"}'; exit 1 ;; esac"#;
    lab.fake_plugin("spy", &format!("{failing}\n{SPY}"));
    flanneld_says(&subnet_env(true));
    let plugins = json!([{"type": "flannel", "delegate": {"type": "spy"}}]);
    lab.configure("10-cbr0.conflist", &json!({"cniVersion": "1.0.0", "name": "cbr0", "plugins": plugins}));
    let tool = lab.cnitool();
    tool.says(&format!("add cbr0 pod --container-id {}", pod.id));
    for command in ["repair cbr0", "gc cbr0 --dry-run"] {
        let outcome = tool.run(command);
        assert!(!outcome.succeeded() && outcome.stderr.contains("no memory"), "{command}: {outcome:?}");
    }
}

#[test]
fn a_failed_add_is_rolled_back_and_keeps_the_state_for_del_only_if_the_rollback_failed() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let (call, _pod) = spied(&lab);
    fs::write("/run/lab/fail", "ADD").unwrap();
    assert_eq!(call.add().error().code, 111);
    assert_eq!((commands(), kept().len()), (vec!["ADD".to_owned(), "DEL".to_owned()], 0));
    fs::write("/run/lab/fail", "ADD\nDEL").unwrap();
    assert_eq!(call.add().error().code, 111);
    assert_eq!(kept(), ["pod"]);
    // Without the plugin, there is nothing to roll back.
    let call = call.config(json!({"delegate": {"type": "nobody"}}));
    call.add().refused(7, "nobody");
}

#[test]
fn a_second_add_is_refused_and_keeps_the_first_attachment() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let call = flannel(&lab);
    settled(&lab, &call);
    let [pod, other] = ["pod", "other"].map(|id| lab.container(id));
    let empty = lab.snapshot();
    let call = call.on(&pod);
    let result = call.add().ok_result();
    let before = lab.snapshot();
    call.add().refused(4, "CNI_IFNAME eth0");
    lab.snapshot().assert_same(&before);
    // flanneld has another subnet now, and the container another namespace. bridge finds the first namespace's veth.
    flanneld_says(&subnet_env(true).replace("10.42.1.", "10.42.7."));
    call.clone().env("CNI_NETNS", other.netns.path().to_str().unwrap()).add().refused(999, "veth");
    flanneld_says(&subnet_env(true));
    lab.snapshot().assert_same(&before);
    call.check(&result).ok();
    call.del().ok();
    lab.snapshot().assert_same(&empty);
}

/// The delegate's DEL, which follows its failed ADD, could delete the interface.
#[test]
fn an_interface_that_exists_is_refused_before_the_delegate_is_called() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let (call, pod) = spied(&lab);
    pod.sh("ip link add eth0 type bridge");
    call.add().refused(4, "CNI_IFNAME eth0");
    assert_eq!((commands(), kept()), (vec![], vec![]));
}

#[test]
fn two_networks_of_a_container_do_not_overwrite_each_others_files() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let one = flannel(&lab).on(&pod);
    fs::write("/run/flannel/other.env", subnet_env(true).replace("42", "43")).unwrap();
    let two = flannel(&lab).on(&pod).ifname("net1").config(json!({
        "name": "other", "subnetFile": "/run/flannel/other.env", "delegate": {"bridge": "cni1"},
    }));
    let results = [&one, &two].map(|call| call.add().ok_result());
    assert_eq!(kept(), ["pod", "pod@other@net1"]);
    assert_eq!(
        (&document("pod")["name"], &document("pod@other@net1")["name"]),
        (&json!("cbr0"), &json!("other"))
    );
    one.check(&results[0]).ok();
    two.check(&results[1]).ok();
    one.del().ok();
    assert_eq!(kept(), ["pod@other@net1"]);
    two.check(&results[1]).ok();
    two.del().ok();
    assert!(kept().is_empty() && lab.host().link_names().iter().all(|name| !name.starts_with("veth")));
}

/// For example by Multus.
#[test]
fn two_interfaces_of_a_container_on_one_network_do_not_overwrite_each_others_files() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let call = flannel(&lab);
    settled(&lab, &call);
    let pod = lab.container("pod");
    let before = lab.snapshot();
    let one = call.on(&pod);
    let two = one.clone().ifname("net1");
    one.add().ok_result();
    let with_one = lab.snapshot();
    // A result that cannot be delivered is rolled back.
    two.clone().under(&with_full_stdout()).add();
    lab.snapshot().assert_same(&with_one);
    two.add().ok_result();
    assert_eq!(kept(), ["pod", "pod@cbr0@net1"]);
    two.del().ok();
    two.del().ok();
    lab.snapshot().assert_same(&with_one);
    two.add().ok_result();
    one.del().ok();
    assert_eq!(kept(), ["pod@cbr0@net1"]);
    two.del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn after_the_network_was_renamed_del_deletes_the_attachment_of_the_old_name() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let call = flannel(&lab);
    settled(&lab, &call);
    let pod = lab.container("pod");
    let before = lab.snapshot();
    let call = call.on(&pod);
    call.add().ok_result();
    call.config(json!({"name": "renamed"})).del().ok();
    lab.snapshot().assert_same(&before);
}

#[test]
fn the_del_after_a_failed_add_of_another_network_keeps_the_attachment_of_the_first_network() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let call = flannel(&lab);
    settled(&lab, &call);
    let list = json!({"cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "flannel"}]});
    lab.configure("10-cbr0.conflist", &list);
    let pod = lab.container("pod");
    let before = lab.snapshot();
    let one = call.on(&pod);
    let two = one.clone().config(json!({"name": "two", "delegate": {"bridge": "cni1"}}));
    let result = one.add().ok_result();
    a_taken_name_is_refused(&lab, &two);
    one.check(&result).ok();
    one.del().ok();
    assert!(kept().is_empty(), "{:?}", kept());
    lab.snapshot().assert_same(&before);
}

#[test]
fn lost_files_are_recreated_from_the_configuration() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let call = flannel(&lab);
    settled(&lab, &call);
    let before = lab.snapshot();
    // The file is lost, or torn by a crash of the machine, and flanneld's own file is deleted as well.
    for spoil in
        ["rm /var/lib/cni/flannel/lost-its-file", "echo -n '{\"ty' >/var/lib/cni/flannel/lost-its-file"]
    {
        let pod = lab.container("lost-its-file");
        let call = call.clone().on(&pod);
        call.add().ok_result();
        lab.host().sh(spoil);
        lab.host().sh("mv /run/flannel /run/gone");
        call.del().ok();
        lab.host().sh("mv /run/gone /run/flannel");
        lab.snapshot().without("lost-its-file").assert_same(&before);
        pod.vanish();
    }
}

#[test]
fn gc_calls_the_delegate_and_deletes_files_of_invalid_attachments() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let call = flannel(&lab).version("1.1.0");
    let [stays, goes] = ["stays", "of-flannel"].map(|id| lab.container(id));
    let of = |pod: &Container| call.clone().on(pod);
    of(&stays).add().ok_result();
    let before = lab.snapshot();
    let other = json!({"ipam": {"dataDir": "/var/lib/cni/elsewhere"}});
    // It was attached with another configuration.
    of(&goes).config(other).add().ok_result();
    fs::write(format!("{STATE}/strangers"), r#"{"name": "another", "type": "bridge"}"#).unwrap();
    fs::write(format!("{STATE}/.new.7.0.cbr0~of-flannel"), "").unwrap();
    goes.vanish();
    call.gc(&[("stays", "eth0")]).ok();
    assert_eq!(kept(), ["stays", "strangers"]);
    fs::remove_file(format!("{STATE}/strangers")).unwrap();
    let leases = lab.host().sh("ls /var/lib/cni/elsewhere/cbr0");
    assert!(!leases.contains("10.42") && !leases.contains("fd00"), "{leases}");
    fs::remove_dir_all("/var/lib/cni/elsewhere").unwrap();
    lab.snapshot().without("of-flannel").assert_same(&before);
}

#[test]
fn without_a_complete_file_of_flanneld_no_container_is_attached_and_status_reports_it() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let call = flannel(&lab).on(&lab.container("pod"));
    call.status().ok();
    let before = lab.snapshot();
    flanneld_says("FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_MTU\n");
    call.status().refused(50, "that flanneld is running");
    let error = call.add().refused(11, "that flanneld is running");
    assert!(error.msg.contains(SUBNET_FILE) && error.msg.contains("FLANNEL_MTU"), "{error:?}");
    fs::remove_file(SUBNET_FILE).unwrap();
    call.status().refused(50, "that flanneld is running");
    call.add().refused(11, SUBNET_FILE);
    call.del().ok();
    flanneld_says(&subnet_env(true));
    lab.snapshot().assert_same(&before);
}

#[test]
fn an_attachment_with_both_families_of_the_original_plugin_is_deleted_and_ours_has_its_format() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let call = flannel(&lab);
    settled(&lab, &call);
    let pod = lab.container("pod");
    let before = lab.snapshot();
    // No package has a release of the original plugin that knows IPv6, so this document was written manually. The original
    // calls the reference's bridge with it, and saves it. `upgrade` runs the original plugin with IPv4.
    let document = json!({
        "cniVersion": "1.0.0", "name": "cbr0", "type": "bridge", "hairpinMode": true, "isDefaultGateway": true,
        "ipMasq": false, "isGateway": true, "mtu": 1400,
        "ipam": {
            "type": "host-local", "ranges": [[{"subnet": "10.42.1.0/24"}], [{"subnet": "fd00:42:0:1::/64"}]],
            "routes": [{"dst": "10.42.0.0/16"}, {"dst": "fd00:42::/56"}],
        },
    });
    let bridge = lab.plugin("bridge").config(document.clone()).on(&pod).by_the_reference();
    let result = bridge.add().ok_result();
    fs::write(format!("{STATE}/pod"), document.to_string()).unwrap();
    let call = call.on(&pod);
    call.check(&result).ok();
    call.del().ok();
    lab.snapshot().assert_same(&before);

    call.add().ok_result();
    let mut ours = self::document("pod");
    assert_eq!(ours.as_object_mut().unwrap().remove("ferrule.ifname"), Some(json!("eth0")));
    assert_eq!(ours, document, "the same keys and values");
    bridge.del().ok();
    fs::remove_file(format!("{STATE}/pod")).unwrap();
    lab.snapshot().assert_same(&before);
}

#[test]
fn another_plugin_attaches_where_the_configuration_says_so() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    lab.host().sh("ip link add cable type veth peer name far; ip link set cable up; ip link set far up");
    let delegate = json!({"type": "macvlan", "master": "cable"});
    let call = flannel(&lab).config(json!({"delegate": delegate})).on(&lab.container("pod"));
    let result = call.add().ok_result();
    assert_eq!(ips(&result).len(), 2);
    assert!(document("pod").get("isGateway").is_none());
    call.check(&result).ok();
    call.del().ok();
}

#[test]
fn an_earlier_plugins_result_is_passed_on() {
    beyond_reference!("flannel");
    let lab = Lab::new();
    let call = flannel(&lab).on(&lab.container("pod"));
    let prev = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "lo", "sandbox": "/run/netns/pod"}]});
    let result = call.clone().config(json!({"prevResult": prev})).add().ok_result();
    assert!(result["interfaces"].as_array().unwrap().iter().any(|one| one["name"] == "lo"), "{result}");
    assert!(document("pod").get("prevResult").is_none());
    call.del().ok();
}

#[test]
fn repair_restores_flushed_rules_of_the_bridge() {
    beyond_reference!("flannel");
    for separately in ["", "1"] {
        let lab = Lab::new();
        flanneld_says(&subnet_env(false));
        lab.container("pod");
        lab.configure("10-flannel.conflist", &json!({
            "cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "flannel", "delegate": {"isDefaultGateway": true}}],
        }));
        let tool = lab.cnitool().env(SEPARATE_DELEGATES, separately);
        tool.says("add cbr0 pod");
        let before = lab.host().ruleset();
        assert!(before.contains("masquerade"), "{before}");
        lab.host().sh("nft flush ruleset");
        tool.says("repair cbr0");
        assert_eq!(lab.host().ruleset(), before);
        tool.says("check cbr0 pod");
        tool.says("del cbr0 pod");
    }
}
