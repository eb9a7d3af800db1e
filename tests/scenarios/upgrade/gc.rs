//! Ferrule's GC on a host with attachments of the reference.

use lab::{Call, Container, Lab, Snapshot, quirk};
use serde_json::Value;

use super::Who;

/// What the titles of a snapshot's sections of interfaces end with: links, addresses, routes, VLANs and sysctls.
const OF_INTERFACES: [&str; 3] = ["rtnetlink", "bridge VLANs", "sysctls"];

/// The titles of the sections that changed: those of interfaces, and the others (leases, rules and other state).
fn changed(now: &Snapshot, before: &Snapshot) -> [Vec<String>; 2] {
    let changes = now.since(before);
    let titles = changes.lines().filter(|line| !line.starts_with(' ')).map(str::to_owned);
    let is_of_interfaces = |title: &String| OF_INTERFACES.iter().any(|end| title.ends_with(end));
    let (interfaces, others) = titles.partition(is_of_interfaces);
    [interfaces, others]
}

/// Ferrule's GC keeps all of an attachment that is in the list of valid ones. Without it in the list, GC removes its leases and rules. Its
/// interfaces stay, because the reference's have no alias that names their attachment, and GC does not look into containers. The attachment
/// belongs to the first of the two containers. `before` is the state without it.
pub fn keeps_valid_and_removes_stale(
    lab: &Lab,
    who: Who,
    call: &Call,
    [stale, valid]: [&Container; 2],
    result: &Value,
    before: &Snapshot,
) {
    if who != Who::Ours || quirk("gc") {
        return;
    }
    let attached = lab.snapshot();
    let [stale_id, valid_id] = [stale, valid].map(|pod| (pod.id.as_str(), "eth0"));
    call.gc(&[stale_id, valid_id]).ok();
    lab.snapshot().assert_same(&attached);
    call.clone().on(stale).check(result).ok();

    call.gc(&[valid_id]).ok();
    let collected = lab.snapshot();
    let [interfaces, others] = changed(&collected, &attached);
    assert_eq!(interfaces, [""; 0], "{}", collected.since(&attached));
    assert!(!others.is_empty(), "{call:?}: GC has removed nothing");
    let [interfaces, others] = changed(&collected, before);
    assert_eq!(others, [""; 0], "{}", collected.since(before));
    assert!(!interfaces.is_empty(), "{call:?}: the interfaces are deleted");
}

/// Ferrule's GC of a plugin that changes only the container's namespace does nothing: the kernel deletes the changes with the namespace.
pub fn keeps_everything(lab: &Lab, who: Who, call: &Call, pod: &Container) {
    if who != Who::Ours || quirk("gc") {
        return;
    }
    let attached = lab.snapshot();
    for valid in [&[(pod.id.as_str(), "eth0")][..], &[]] {
        call.gc(valid).ok();
        lab.snapshot().assert_same(&attached);
    }
}
