//! `cnitool metrics`, with the dashboard and the alerts for its metrics.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use lab::{Lab, beyond_reference, quoted, repository, skip, unpacked};
use serde_json::json;

use crate::common::host_local;

#[test]
fn metrics_contain_addresses_attachments_and_stale_resources() {
    beyond_reference!("gc");
    let lab = Lab::new();
    let [_stays, goes] = ["stays", "goes"].map(|id| lab.container(id));
    let bridge = json!({"type": "bridge", "bridge": "br0", "ipam": host_local(&[&["10.212.2.0/29"]])});
    let plugins = json!([bridge, {"type": "tuning"}]);
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins}));
    let tool = lab.cnitool();
    ["stays", "goes"].iter().for_each(|id| drop(tool.says(&format!("add net {id} --container-id {id}"))));
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
    goes.vanish();
    lab.host().wait_until("the pair is deleted", |host| host.ip("link show master br0").len() == 1);
    lab.host().sh("touch -d '2 hours ago' /var/lib/cni/results/net-goes-eth0");
    let text = tool.says("metrics");
    has(&text, r#"cni_stale_things{network="net",kind="attachment"} 1"#);
    has(&text, r#"cni_stale_things{network="net",kind="lease"} 1"#);
    let oldest =
        text.lines().find_map(|line| line.strip_prefix(r#"cni_stale_oldest_age_seconds{network="net"} "#));
    assert!(oldest.unwrap().parse::<u64>().unwrap() >= 7200, "{text}");

    // The file is replaced atomically, and node_exporter, which is not root, can read it.
    let file = lab.dir().join("cni.prom");
    fs::write(&file, "old").unwrap();
    tool.says(&format!("metrics --to {}", file.display()));
    has(&fs::read_to_string(&file).unwrap(), r#"cni_stale_things{network="net",kind="lease"} 1"#);
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
