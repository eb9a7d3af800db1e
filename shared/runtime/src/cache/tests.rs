use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn cache() -> (tempfile::TempDir, Cache) {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path().join("cni"));
    (dir, cache)
}

fn network() -> Network {
    Network::from_bytes(br#"{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "t"}]}"#).unwrap()
}

/// A file written by libcni 1.1.2 (its cnitool, with the reference's loopback plugin).
const OF_LIBCNI: &str = r#"{"kind":"cniCacheV1","containerId":"cnitool-0608cee9f61ac76429f8","config":"eyJjbmlWZXJzaW9uIjoiMS4wLjAiLCJuYW1lIjoibiIsInBsdWdpbnMiOlt7InR5cGUiOiJsb29wYmFjayIsImNhcGFiaWxpdGllcyI6eyJpcHMiOnRydWV9fV19Cg==","ifName":"lo","networkName":"n","cniArgs":[["A","b"]],"capabilityArgs":{"ips":["10.0.0.7"]},"result":{"cniVersion":"1.0.0","dns":{},"interfaces":[{"mac":"00:00:00:00:00:00","name":"lo","sandbox":"/run/netns/c"}],"ips":[{"address":"127.0.0.1/8","interface":0},{"address":"::1/128","interface":0}]}}"#;

/// Its attachment.
fn of_libcni() -> AttachmentParameters {
    let attach = AttachmentParameters::new("cnitool-0608cee9f61ac76429f8", "lo").unwrap().arg("A", "b");
    attach.netns("/run/netns/c").capability("ips", json!(["10.0.0.7"]))
}

/// It does not contain the namespace, but the result does.
#[test]
fn a_file_of_libcni_is_read() {
    let (_guard, cache) = cache();
    fs::create_dir_all(cache.results_dir()).unwrap();
    fs::write(cache.results_dir().join("n-cnitool-0608cee9f61ac76429f8-lo"), OF_LIBCNI).unwrap();
    let entry = cache.load(&network().name, &of_libcni().attachment).unwrap().unwrap();
    assert_eq!(entry.attach, of_libcni());
    assert_eq!(entry.network().unwrap().plugins[0].kind.as_str(), "loopback");
    assert_eq!(entry.result().unwrap().ips[0].address.to_string(), "127.0.0.1/8");
}

#[test]
fn a_written_file_has_the_keys_the_name_and_the_mode_of_libcnis() {
    let (_guard, cache) = cache();
    let result = json!({"ips": [{"address": "10.0.0.7/24"}]});
    cache.write(&network(), &of_libcni(), &result).unwrap();
    let file = cache.dir().join("results/n-cnitool-0608cee9f61ac76429f8-lo");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(cache.results_dir().metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let ours: Map<String, Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let theirs: Map<String, Value> = serde_json::from_str(OF_LIBCNI).unwrap();
    for (key, value) in theirs.iter().filter(|(key, _)| !["config", "result"].contains(&key.as_str())) {
        assert_eq!(ours[key], *value, "{key}");
    }
    assert_eq!(ours["netns"], "/run/netns/c", "libcni has it since 1.2.0");
    assert_eq!(ours["result"]["cniVersion"], "1.0.0");
    assert_eq!(fs::read_dir(cache.results_dir()).unwrap().count(), 1, "nothing temporary is left");
}

#[test]
fn all_attachments_are_listed_except_torn_files_and_deleted_ones() {
    let (_guard, cache) = cache();
    assert!(cache.list().unwrap().is_empty());
    for container in ["b", "a", "gone"] {
        let attach = AttachmentParameters::new(container, "eth0").unwrap();
        cache.write(&network(), &attach, &json!({})).unwrap();
    }
    fs::write(cache.results_dir().join("n-torn-eth0"), "{\"kind\":\"cniCa").unwrap();
    fs::write(cache.results_dir().join("n-empty-eth0"), "").unwrap();
    let gone = AttachmentParameters::new("gone", "eth0").unwrap().attachment;
    cache.remove(&network().name, &gone).unwrap();
    cache.remove(&network().name, &gone).unwrap();
    let names: Vec<_> =
        cache.list().unwrap().iter().map(|e| e.attach.attachment.container.to_string()).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn a_file_in_libcnis_earliest_format_is_read_as_a_result() {
    let (_guard, cache) = cache();
    fs::create_dir_all(cache.results_dir()).unwrap();
    let text = r#"{"cniVersion": "0.4.0", "interfaces": [{"name": "lo", "sandbox": "/run/netns/gone"}],
        "ips": [{"version": "4", "address": "10.0.0.7/24"}], "dns": {}}"#;
    fs::write(cache.path(&network().name, &of_libcni().attachment), text).unwrap();
    let entry = cache.load(&network().name, &of_libcni().attachment).unwrap().unwrap();
    assert_eq!(entry.result().unwrap().ips.len(), 1);
    assert!(!entry.is_alive(), "its namespace no longer exists");
}

/// Neither may GC regard the file's container as stale, nor may `cnitool del --all` succeed.
#[test]
fn a_file_without_names_that_are_valid_today_is_unreadable_unless_no_attachment_of_the_network_has_such_a_name()
 {
    let (_guard, cache) = cache();
    fs::create_dir_all(cache.results_dir()).unwrap();
    let network = NetworkName::parse("a-b").unwrap();
    for (file, is_unreadable) in [("a-b-y:1-eth0", true), ("a-b-c", false), ("a-c-eth0", false)] {
        fs::write(cache.results_dir().join(file), "{}").unwrap();
        let files = cache.of_network(&network).unwrap();
        assert!(files.entries.is_empty() && files.ambiguous.is_empty(), "{file}");
        assert_eq!(files.unreadable.len(), usize::from(is_unreadable), "{file}");
        fs::remove_file(cache.results_dir().join(file)).unwrap();
    }
}

/// host-local's directory of the leases of a network `results`, which looks like the directory of a cache.
#[test]
fn leases_of_a_network_named_results_are_no_attachments() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("networks/results");
    fs::create_dir_all(&store).unwrap();
    for name in ["10.7.0.2", "fd00::2", "lock", "last_reserved_ip.0", ".boot_id"] {
        fs::write(store.join(name), "c\r\neth0").unwrap();
    }
    for cache in Cache::all_in(dir.path()).unwrap() {
        let (entries, unreadable) = cache.survey().unwrap();
        assert!(entries.is_empty() && unreadable.is_empty(), "{unreadable:?}");
    }
}

/// An empty list would mean that no container runs.
#[test]
fn a_directory_that_cannot_be_read_is_an_error() {
    let (guard, cache) = cache();
    let link = |path: &Path| std::os::unix::fs::symlink(path, path).unwrap();
    fs::create_dir_all(cache.dir()).unwrap();
    link(&cache.results_dir());
    assert!(cache.list().is_err());
    assert_eq!(Cache::all_in(guard.path()).unwrap().len(), 2, "its results may exist");
    let dir = guard.path().join("loop");
    link(&dir);
    assert!(Cache::all_in(&dir).is_err());
    assert_eq!(Cache::all_in(guard.path().join("missing")).unwrap().len(), 1);
}

#[test]
fn two_paths_of_a_directory_are_the_same_cache() {
    let (guard, cache) = cache();
    let link = guard.path().join("link");
    std::os::unix::fs::symlink(cache.dir(), &link).unwrap();
    assert!(cache.is_same_as(&Cache::new(cache.dir())), "the first ADD creates the directory");
    assert!(!cache.is_same_as(&Cache::new(&link)));
    fs::create_dir(cache.dir()).unwrap();
    assert!(cache.is_same_as(&Cache::new(&link)));
    assert!(!cache.is_same_as(&Cache::new(guard.path())));
}

/// Names may contain hyphens, so two attachments may have the same file.
#[test]
fn a_file_of_another_attachment_is_neither_read_nor_removed_nor_overwritten_while_that_is_alive() {
    let (guard, cache) = cache();
    let network = |name: &str| NetworkName::parse(name).unwrap();
    let at = |container: &str| AttachmentParameters::new(container, "eth0").unwrap();
    let namespace = guard.path().join("namespace");
    std::os::unix::fs::symlink("/proc/self/ns/net", &namespace).unwrap();
    let list = br#"{"cniVersion": "1.0.0", "name": "a-b", "plugins": [{"type": "t"}]}"#;
    cache.write(&Network::from_bytes(list).unwrap(), &at("c").netns(&namespace), &json!({})).unwrap();
    let (owner, other) = (at("c").attachment, at("b-c").attachment);
    assert_eq!(cache.path(&network("a-b"), &owner), cache.path(&network("a"), &other));

    assert!(cache.load(&network("a"), &other).unwrap().is_none());
    cache.remove(&network("a"), &other).unwrap();
    assert!(cache.load(&network("a-b"), &owner).unwrap().is_some());
    let error = cache.require_writable(&network("a"), &other).unwrap_err();
    assert!(error.to_string().contains("eth0 of container c on network a-b"), "{error}");
    cache.require_writable(&network("a-b"), &owner).unwrap();

    fs::remove_file(&namespace).unwrap();
    cache.require_writable(&network("a"), &other).unwrap();
}

proptest! {
    #[test]
    fn arbitrary_files_cause_no_panic(cut in 0..OF_LIBCNI.len(), byte: u8, text: Vec<u8>) {
        let (_guard, cache) = cache();
        fs::create_dir_all(cache.results_dir()).unwrap();
        let mut torn = OF_LIBCNI.as_bytes().to_vec();
        torn[cut] = byte;
        for text in [&OF_LIBCNI.as_bytes()[..cut], &torn, &text] {
            fs::write(cache.path(&network().name, &of_libcni().attachment), text).unwrap();
            if let Ok(Some(entry)) = cache.load(&network().name, &of_libcni().attachment) {
                entry.result().ok();
                entry.network().ok();
            }
            prop_assert!(cache.list().unwrap().len() <= 1);
        }
    }
}

#[test]
fn a_result_behind_a_link_is_not_read() {
    let (guard, cache) = cache();
    fs::create_dir_all(cache.results_dir()).unwrap();
    let outside = guard.path().join("outside");
    fs::write(&outside, OF_LIBCNI).unwrap();
    let path = cache.path(&network().name, &of_libcni().attachment);
    std::os::unix::fs::symlink(&outside, &path).unwrap();
    let refused = cache.load(&network().name, &of_libcni().attachment).unwrap_err();
    assert!(refused.to_string().contains("it is not a regular file"), "{refused}");
    assert!(cache.list().unwrap().is_empty());
}

/// Names may have the maximum length of the file system.
#[test]
fn temporary_files_of_a_killed_process_are_deleted_with_the_attachment() {
    for length in [1, 190] {
        let (_guard, cache) = cache();
        let at = AttachmentParameters::new(&"c".repeat(length), "eth0").unwrap().attachment;
        let name = format!("n{}", "n".repeat(length / 4));
        let network = Network::from_bytes(
            format!(r#"{{"cniVersion": "1.0.0", "name": "{name}", "plugins": [{{"type": "t"}}]}}"#)
                .as_bytes(),
        );
        let network = network.unwrap();
        cache.write(&network, &at.clone().into(), &json!({})).unwrap();
        let file = cache.path(&network.name, &at);
        let label = file.file_name().unwrap().to_str().unwrap();
        fs::remove_file(&file).unwrap();
        let temporary = format!(".new.7.0.{}", &label[label.len().saturating_sub(230)..]);
        fs::write(cache.results_dir().join(temporary), "half").unwrap();

        assert!(cache.list().unwrap().is_empty());
        cache.remove(&network.name, &at).unwrap();
        assert_eq!(fs::read_dir(cache.results_dir()).unwrap().count(), 0);
    }
}
