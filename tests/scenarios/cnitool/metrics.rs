//! `cnitool metrics`, with the dashboard and the alerts for its metrics.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use lab::{Lab, beyond_reference, quoted, repository, skip, unpacked};
use serde_json::{Value, json};

use crate::cnitool::cleanup::networks::ELSEWHERE;
use crate::common::{cable, host_local, ports};

#[test]
fn metrics_contain_addresses_attachments_and_stale_resources() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [_stays, goes, goes_later] = ["stays", "counted-stale", "stale-later"].map(|id| lab.container(id));
    let bridge = json!({"type": "bridge", "bridge": "br0", "ipam": host_local(&[&["10.212.2.0/29"]])});
    let plugins = json!([bridge, {"type": "tuning"}]);
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins}));
    let tool = lab.cnitool();
    ["stays", "counted-stale"]
        .iter()
        .for_each(|id| drop(tool.says(&format!("add net {id} --container-id {id}"))));
    let has = |text: &str, line: &str| assert!(text.lines().any(|one| one == line), "{line}:\n{text}");
    let range = r#"{network="net",range="10.212.2.1-10.212.2.6"}"#;
    let text = tool.says("metrics");
    for line in [
        format!("cni_addresses_used{range} 2"),
        format!("cni_addresses_free{range} 3"),
        r#"cni_attachments{network="net",plugin="bridge"} 2"#.to_owned(),
        r#"cni_attachments{network="net",plugin="tuning"} 2"#.to_owned(),
        r#"cni_stale_things{network="net",kind="attachment"} 0"#.to_owned(),
        r#"cni_stale_oldest_age_seconds{network="net"} 0"#.to_owned(),
        r#"cni_network_examined{network="net"} 1"#.to_owned(),
    ] {
        has(&text, &line);
    }
    tool.says("add net stale-later --container-id stale-later");
    for pod in [goes, goes_later] {
        pod.vanish();
    }
    lab.host().wait_until("the pairs are deleted", |host| host.ip("link show master br0").len() == 1);
    lab.host().sh("touch -d '2 hours ago' /var/lib/cni/results/net-counted-stale-eth0");
    let text = tool.says("metrics");
    has(&text, r#"cni_stale_things{network="net",kind="attachment"} 2"#);
    has(&text, r#"cni_stale_things{network="net",kind="lease"} 2"#);
    let oldest =
        text.lines().find_map(|line| line.strip_prefix(r#"cni_stale_oldest_age_seconds{network="net"} "#));
    assert!(oldest.unwrap().parse::<u64>().unwrap() >= 7200, "{text}");

    // The file is replaced atomically, and node_exporter, which is not root, can read it.
    let file = lab.dir().join("cni.prom");
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    // Node exporter may be reading it.
    let old = fs::File::open(&file).unwrap();
    tool.says(&format!("metrics --to {}", file.display()));
    assert_eq!(io::read_to_string(old).unwrap(), "old");
    has(&fs::read_to_string(&file).unwrap(), r#"cni_stale_things{network="net",kind="lease"} 2"#);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    tool.says("gc net");
    has(&tool.says("metrics"), r#"cni_stale_things{network="net",kind="attachment"} 0"#);

    let Some(promtool) = unpacked("prometheus").map(|tree| tree.join("usr/bin/promtool")) else { return };
    let rules = repository().join("packaging/prometheus/alerts.yml");
    let checks = format!(
        "{0} check metrics < {1} && {0} check rules {2}",
        quoted(&promtool),
        file.display(),
        quoted(&rules)
    );
    let checked = Command::new("sh").args(["-c", &checks]).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

/// Prometheus refuses a scrape that contains a sample twice.
#[test]
fn a_range_of_two_plugins_of_one_network_is_one_sample() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let bridge =
        |name: &str| json!({"type": "bridge", "bridge": name, "ipam": host_local(&[&["10.212.2.0/29"]])});
    let plugins = json!([bridge("br0"), bridge("br1")]);
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins}));
    let text = lab.cnitool().says("metrics");
    assert_eq!(text.lines().filter(|line| line.starts_with("cni_addresses_used{")).count(), 1, "{text}");
}

/// The value of a sample.
#[track_caller]
fn value(text: &str, series: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{series}:\n{text}")).parse().unwrap()
}

#[test]
fn metrics_contain_the_oldest_attachment_and_resources_of_unknown_containers() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let _pods = ["old", "young", "quiet"].map(|id| lab.container(id));
    cable(&lab);
    let ipam = json!({"type": "static", "addresses": [{"address": "10.212.4.9/24"}]});
    let plugins = json!([{"type": "macvlan", "master": "cable", "ipam": ipam}, ports()]);
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins}));
    let tool = lab.cnitool();
    for id in ["old", "young"] {
        tool.says(&format!("add net {id} --container-id {id}"));
    }
    lab.host().sh("touch -d '3 hours ago' /var/lib/cni/results/net-old-eth0");
    let unknown = r#"cni_unattributed_things{network="net"}"#;
    let text = tool.says("metrics");
    assert_eq!(value(&text, unknown), 0, "{text}");
    assert!(value(&text, r#"cni_attachment_oldest_age_seconds{network="net"}"#) >= 10_800, "{text}");
    // Nothing on the host shows whose the rules of this container are.
    tool.says(&format!("add net quiet --container-id x7f4 -p 8090:80 {ELSEWHERE}"));
    assert!(value(&tool.says("metrics"), unknown) > 0);
    tool.says("gc net --force x7f4");
    assert_eq!(value(&tool.says("metrics"), unknown), 0);
}

#[test]
fn a_network_whose_plugin_lists_no_resources_counts_as_not_examined() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let failed = r#"{"cniVersion": "1.1.0", "things": [], "failed": {"code": 5, "msg": "cannot look"}}"#;
    lab.fake_plugin("blind", &format!("[ \"$1\" != collect ] || echo '{failed}'"));
    let network =
        |name: &str, kind: &str| json!({"cniVersion": "1.1.0", "name": name, "plugins": [{"type": kind}]});
    lab.configure("10-net.conflist", &network("net", "blind"));
    lab.configure("20-other.conflist", &network("other", "loopback"));
    // Another vendor's plugin cannot list resources: an alert for it could never be resolved.
    lab.fake_plugin("foreign", "exit 1");
    lab.configure("30-foreign.conflist", &network("foreign", "foreign"));
    let text = lab.cnitool().says("metrics");
    assert_eq!(value(&text, r#"cni_network_examined{network="foreign"}"#), 1);
    assert_eq!(value(&text, r#"cni_network_examined{network="net"}"#), 0);
    assert_eq!(value(&text, r#"cni_network_examined{network="other"}"#), 1);
    assert!(!text.contains(r#"cni_stale_oldest_age_seconds{network="net"}"#), "{text}");
}

/// A lease without an attachment in a cache has no other age.
#[test]
fn a_stale_resource_ages_from_run_to_run_until_gc_removes_it() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [old, young] = ["ages-first", "ages-later"].map(|id| lab.container(id));
    let bridge = json!({"type": "bridge", "bridge": "br0", "ipam": host_local(&[&["10.212.7.0/29"]])});
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.1.0", "name": "net", "plugins": [bridge]}));
    let tool = lab.cnitool();
    let age = || value(&tool.says("metrics"), r#"cni_stale_known_age_seconds{network="net"}"#);
    let is_deleted = |count: usize| {
        lab.host().wait_until("the pair is deleted", |host| host.ip("link show master br0").len() == count);
    };
    ["ages-first", "ages-later"]
        .iter()
        .for_each(|id| drop(tool.says(&format!("add net {id} --container-id {id} {ELSEWHERE}"))));
    assert_eq!(age(), 0, "nothing is stale");
    old.vanish();
    is_deleted(1);
    age();
    // As if the first run had been earlier: after half of the time since boot.
    let note = "/run/ferrule/stale.boot";
    let text = fs::read_to_string(note).unwrap();
    let seconds: u64 = text.split(['"', ':', '}']).find_map(|word| word.parse().ok()).unwrap();
    let earlier = seconds / 2;
    fs::write(note, text.replace(&seconds.to_string(), &earlier.to_string())).unwrap();
    young.vanish();
    is_deleted(0);
    for _ in 0..2 {
        assert!(age() >= seconds - earlier, "{:?}", fs::read_to_string(note));
    }
    tool.says("gc net");
    assert_eq!(age(), 0);
    assert!(!fs::read_to_string(note).unwrap().contains("lease"));
}

/// A device or FIFO must not be replaced by a file, and a log that is stdout not emptied. A link may be another user's.
#[test]
fn metrics_are_written_in_place_to_a_fifo_or_stdout_and_links_are_refused() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.host()
        .sh("cd /run/lab; mkfifo fifo; echo before >real; cp real log; ln -s real link; ln -s new dangling");
    // A /dev of its own: a mistake would replace the machine's /dev/stdout. In the VM, /dev/shm has the executables.
    lab.host().sh("cd /run/lab; mkdir -p dev/shm; cp -a /dev/null dev; ln -s /proc/self/fd/1 dev/stdout; \
         mount --bind /dev/shm dev/shm; mount --rbind dev /dev");
    let tool = lab.cnitool();
    let is_metrics = |text: &str| assert!(text.starts_with("# HELP"), "{text}");
    let read = |file: &str| fs::read_to_string(lab.dir().join(file)).unwrap();
    for stdout in ["/dev/stdout", "/proc/self/fd/1"] {
        is_metrics(&tool.says(&format!("metrics --to {stdout}")));
    }
    let appended = ["sh", "-c", "\"$0\" \"$@\" >>/run/lab/log"].map(str::to_owned);
    tool.clone().under(&appended).says("metrics --to /dev/stdout");
    is_metrics(read("log").strip_prefix("before\n").unwrap());
    // The journal of a service is a socket, which cannot be opened.
    let relay = "import socket, subprocess, sys; ours, theirs = socket.socketpair(); \
        status = subprocess.run(sys.argv[1:], stdout=theirs).returncode; theirs.close(); \
        sys.stdout.write(ours.makefile().read()); sys.exit(status)";
    let journal = ["python3", "-c", relay].map(str::to_owned);
    is_metrics(&tool.clone().under(&journal).says("metrics --to /dev/stdout"));
    let reader = ["sh", "-c", "timeout 60 cat /run/lab/fifo & \"$0\" \"$@\"; wait"].map(str::to_owned);
    is_metrics(&tool.clone().under(&reader).says("metrics --to /run/lab/fifo"));
    for link in ["link", "dangling"] {
        let refused = tool.run(&format!("metrics --to /dev/../run/lab/{link}"));
        assert!(refused.exit == Some(1) && refused.stderr.contains("is a symbolic link"), "{refused:#?}");
        assert!(lab.dir().join(link).is_symlink(), "{link}");
    }
    assert_eq!(read("real"), "before\n");
    assert!(!lab.dir().join("new").exists());
}

/// In a container, each run has the same PID, and so had a run that was killed before it renamed its file.
#[test]
fn a_killed_run_does_not_prevent_that_the_next_one_with_its_pid_writes_the_metrics() {
    beyond_reference!("gc");
    let lab = Lab::new();
    lab.host().sh("cd /run/lab; touch cni.prom.1 .new.1.0.metrics");
    let in_container = ["unshare", "--pid", "--fork", "--mount-proc"].map(str::to_owned);
    lab.cnitool().under(&in_container).says("metrics --to /run/lab/cni.prom");
    let written = fs::read_to_string(lab.dir().join("cni.prom")).unwrap();
    assert!(written.starts_with("# HELP"), "{written}");
}

/// GC leaves a network with `disableGC` alone, and examines networks that only a cache contains.
#[test]
fn metrics_are_about_the_networks_that_gc_examines() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let pods = ["not-examined", "examined"].map(|id| lab.container(id));
    let bridge = |name: &str, net: u8| {
        let ipam = host_local(&[&[&format!("10.212.{net}.0/29")]]);
        json!({"type": "bridge", "bridge": name, "ipam": ipam})
    };
    let network = |name: &str, disabled: bool, plugin: Value| {
        let plugins = json!([plugin]);
        json!({"cniVersion": "1.1.0", "name": name, "disableGC": disabled, "plugins": plugins})
    };
    lab.configure("10-off.conflist", &network("off", true, bridge("br0", 5)));
    lab.configure("20-cached.conflist", &network("cached", false, bridge("br0", 6)));
    let tool = lab.cnitool();
    for (network, id) in [("off", "not-examined"), ("cached", "examined")] {
        tool.says(&format!("add {network} {id} --container-id {id}"));
    }
    fs::remove_file("/etc/cni/net.d/20-cached.conflist").unwrap();
    pods.iter().for_each(|pod| pod.vanish());
    lab.host().wait_until("the pairs are gone", |host| host.ip("link show master br0").is_empty());
    let found = tool.run("doctor").stdout;
    assert!(found.contains("`cnitool gc cached`") && !found.contains("gc off"), "{found}");
    let text = tool.says("metrics");
    assert_eq!(value(&text, r#"cni_stale_things{network="cached",kind="lease"}"#), 1);
    assert_eq!(value(&text, r#"cni_addresses_used{network="cached",range="10.212.6.1-10.212.6.6"}"#), 1);
    assert_eq!(value(&text, r#"cni_addresses_used{network="off",range="10.212.5.1-10.212.5.6"}"#), 1);
    for series in [
        "cni_stale_things",
        "cni_stale_oldest_age_seconds",
        "cni_stale_known_age_seconds",
        "cni_network_examined",
    ] {
        assert!(!text.contains(&format!(r#"{series}{{network="off""#)), "{series}:\n{text}");
    }
}

/// A lease whose attachment is in no cache has no age.
#[test]
fn the_alert_for_stale_things_fires_with_and_without_an_entry_in_a_cache() {
    let Some(promtool) = unpacked("prometheus").map(|tree| tree.join("usr/bin/promtool")) else { return };
    let lab = Lab::new();
    let series = |network: &str, things: &str, age: &str| {
        json!([
            {"series": format!("cni_stale_things{{instance=\"i\",network=\"{network}\",kind=\"lease\"}}"), "values": things},
            {"series": format!("cni_stale_oldest_age_seconds{{instance=\"i\",network=\"{network}\"}}"), "values": age},
        ])
    };
    let alert = |network: &str| {
        warning(
            network,
            &format!("i: containers that have exited left things in network {network}"),
            &format!("Run `cnitool gc {network}`, and enable cni-gc.timer."),
        )
    };
    let tests = [
        ("cached", "1x200", "9000x200", true),
        ("uncached", "1x200", "0x200", true),
        ("young", "1x200", "60x200", false),
        ("none", "0x200", "0x200", false),
    ];
    let tests: Vec<_> = tests
        .into_iter()
        .map(|(network, things, age, fires)| {
            let alerts = if fires { vec![alert(network)] } else { Vec::new() };
            json!({"interval": "1m", "input_series": series(network, things, age), "alert_rule_test": [
                {"eval_time": "130m", "alertname": "CniStaleThings", "exp_alerts": alerts}]})
        })
        .collect();
    promtool_accepts(&promtool, &lab, &tests);
}

/// A warning about a network, as promtool expects it.
fn warning(network: &str, summary: &str, description: &str) -> Value {
    json!({
        "exp_labels": {"instance": "i", "network": network, "severity": "warning"},
        "exp_annotations": {"summary": summary, "description": description},
    })
}

/// Tests the alert rules with these series and the alerts that must fire.
#[track_caller]
fn promtool_accepts(promtool: &Path, lab: &Lab, tests: &[Value]) {
    let rules = repository().join("packaging/prometheus/alerts.yml");
    let file = lab.dir().join("alerts.json");
    fs::write(&file, json!({"rule_files": [rules], "tests": tests}).to_string()).unwrap();
    let tested = Command::new(promtool).args(["test", "rules"]).arg(file).output().unwrap();
    assert!(tested.status.success(), "{tested:?}");
}

/// With a GC every hour, no stale resource is known for three hours.
#[test]
fn the_alert_for_a_resource_that_no_gc_removes_fires_after_three_hours() {
    let Some(promtool) = unpacked("prometheus").map(|tree| tree.join("usr/bin/promtool")) else { return };
    let lab = Lab::new();
    let alert = |network: &str| {
        warning(
            network,
            &format!("i: no GC removes a stale resource of network {network}"),
            &format!("Run `cnitool gc {network}`, and read its errors. Check that cni-gc.timer is enabled."),
        )
    };
    let tests: Vec<_> = [("old", "10801x60", true), ("young", "10800x60", false), ("none", "0x60", false)]
        .into_iter()
        .map(|(network, age, fires)| {
            let series = format!("cni_stale_known_age_seconds{{instance=\"i\",network=\"{network}\"}}");
            let alerts = if fires { vec![alert(network)] } else { Vec::new() };
            json!({"interval": "1m", "input_series": [{"series": series, "values": age}], "alert_rule_test": [
                {"eval_time": "30m", "alertname": "CniStaleThingsKnownForLong", "exp_alerts": alerts}]})
        })
        .collect();
    promtool_accepts(&promtool, &lab, &tests);
}

#[test]
fn systemd_accepts_the_units_of_gc() {
    if !fs::exists("/usr/bin/systemd-analyze").unwrap() {
        return skip("systemd-analyze is missing");
    }
    let lab = Lab::new();
    let script = r#"mount -t tmpfs none /usr/local/bin; cd "$1"; cp bin/cnitool /usr/local/bin/; cd packaging/systemd
        exec systemd-analyze --man=no verify ./cni-gc.service ./cni-gc.timer 2>&1"#;
    let repository = repository().to_str().unwrap();
    let said = lab.host().exec(&["unshare", "-m", "sh", "-ec", script, "sh", repository]);
    let about_ours: Vec<_> = said.lines().filter(|line| line.contains("cni-gc")).collect();
    assert!(about_ours.is_empty(), "{said}");
}

#[test]
fn attachments_that_repair_has_restored_are_counted() {
    beyond_reference!("repair");
    let lab = Lab::new();
    let _web = lab.container("web");
    let plugins = json!([{"type": "bridge", "bridge": "br0", "ipMasq": true, "ipam": host_local(&[&["10.212.3.0/29"]])}]);
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins}));
    let tool = lab.cnitool();
    tool.says("add net web --container-id web");
    let repairs = || {
        let text = tool.says("metrics");
        let count = text.lines().find_map(|line| line.strip_prefix("cni_repairs_total ")).map(str::to_owned);
        count.unwrap_or_else(|| panic!("no count of repairs:\n{text}"))
    };
    tool.says("repair net");
    assert_eq!(repairs(), "0", "nothing was missing");
    for count in ["1", "2"] {
        lab.host().sh("nft flush ruleset");
        tool.says("repair net");
        assert_eq!(repairs(), count);
    }
}
