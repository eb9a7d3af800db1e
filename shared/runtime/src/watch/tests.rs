use std::{fs, hint, thread};

use super::*;

/// The kernel reports a change immediately. The machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(5);

fn conf(name: &str) -> String {
    format!(r#"{{"cniVersion": "1.0.0", "name": "{name}", "plugins": [{{"type": "t"}}]}}"#)
}

fn names(networks: &Networks) -> Vec<&str> {
    networks.networks.iter().map(|network| network.name.as_str()).collect()
}

/// Waits until a condition holds. A change may cause several events.
fn until(watcher: &mut Watcher, so: impl Fn(&Networks) -> bool) {
    let current = watcher.current();
    while !so(&current.get()) {
        watcher.wait(TIMEOUT).unwrap().expect("a change in time");
    }
}

#[test]
fn new_changed_and_deleted_files_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("20-b.conflist"), conf("b")).unwrap();
    let mut watcher = Watcher::new(ConfDir::new(dir.path())).unwrap();
    assert_eq!(names(&watcher.current().get()), ["b"]);
    fs::write(dir.path().join("10-a.conflist"), conf("a")).unwrap();
    until(&mut watcher, |networks| names(networks) == ["a", "b"]);
    assert_eq!(watcher.current().get().default_network().unwrap().name.as_str(), "a");
    fs::write(dir.path().join("new"), conf("c")).unwrap();
    fs::rename(dir.path().join("new"), dir.path().join("20-b.conflist")).unwrap();
    until(&mut watcher, |networks| names(networks) == ["a", "c"]);
    fs::remove_file(dir.path().join("10-a.conflist")).unwrap();
    until(&mut watcher, |networks| names(networks) == ["c"]);
}

#[test]
fn a_list_takes_precedence_over_another_file_of_the_same_name() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("10-a.conf"), r#"{"cniVersion": "1.0.0", "name": "a", "type": "single"}"#)
        .unwrap();
    fs::write(dir.path().join("20-a.conflist"), conf("a")).unwrap();
    let watcher = Watcher::new(ConfDir::new(dir.path())).unwrap();
    assert_eq!(watcher.current().get().find("a").unwrap().plugins[0].kind.as_str(), "t");
}

#[test]
fn a_change_ends_a_wait_without_a_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let mut watcher = Watcher::new(ConfDir::new(dir.path())).unwrap();
    fs::write(dir.path().join("10-a.conflist"), conf("a")).unwrap();
    assert_eq!(names(&watcher.wait(Duration::MAX).unwrap().unwrap()), ["a"]);
}

#[test]
fn a_file_that_becomes_invalid_keeps_its_last_good_state_until_it_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("10-a.conflist");
    fs::write(&file, conf("a")).unwrap();
    let mut watcher = Watcher::new(ConfDir::new(dir.path())).unwrap();
    fs::write(&file, "{ torn").unwrap();
    until(&mut watcher, |networks| networks.problems.len() == 1);
    assert_eq!(names(&watcher.current().get()), ["a"]);
    fs::write(&file, conf("b")).unwrap();
    until(&mut watcher, |networks| networks.problems.is_empty() && names(networks) == ["b"]);
    fs::write(&file, "{ torn").unwrap();
    fs::remove_file(&file).unwrap();
    until(&mut watcher, |networks| names(networks).is_empty() && networks.problems.is_empty());
}

#[test]
fn the_directory_and_a_networks_directory_may_be_created_later() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("cni/net.d");
    let mut watcher = Watcher::new(ConfDir::new(&dir)).unwrap();
    assert!(names(&watcher.current().get()).is_empty());
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("10-a.conflist"), conf("a")).unwrap();
    until(&mut watcher, |networks| names(networks) == ["a"]);
    fs::create_dir(dir.join("a")).unwrap();
    fs::write(dir.join("a/10.conf"), r#"{"type": "u"}"#).unwrap();
    until(&mut watcher, |networks| networks.networks[0].plugins.len() == 2);
}

#[test]
fn the_targets_of_symbolic_links_may_be_created_and_replaced_later() {
    let parent = tempfile::tempdir().unwrap();
    let (link, dir) = (parent.path().join("link"), parent.path().join("a/b/net.d"));
    std::os::unix::fs::symlink("a/b", &link).unwrap();
    let mut watcher = Watcher::new(ConfDir::new(link.join("net.d"))).unwrap();
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("10-a.conflist"), conf("a")).unwrap();
    until(&mut watcher, |networks| names(networks) == ["a"]);
    fs::rename(parent.path().join("a"), parent.path().join("old")).unwrap();
    until(&mut watcher, |networks| names(networks).is_empty());
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("20-b.conflist"), conf("b")).unwrap();
    until(&mut watcher, |networks| names(networks) == ["b"]);
}

#[test]
fn directories_may_be_created_while_watches_are_added() {
    for round in 0..1000_u32 {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("etc/cni/net.d");
        thread::scope(|scope| {
            scope.spawn(|| {
                (0..round % 500 * 4).for_each(|_| hint::spin_loop());
                fs::create_dir_all(&dir).unwrap();
                fs::write(dir.join("10-a.conflist"), conf("a")).unwrap();
            });
            let mut watcher = Watcher::new(ConfDir::new(&dir)).unwrap();
            until(&mut watcher, |networks| names(networks) == ["a"]);
        });
    }
}

#[test]
fn changes_that_affect_no_network_are_not_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut watcher = Watcher::new(ConfDir::new(dir.path())).unwrap();
    fs::write(dir.path().join("notes.txt"), "x").unwrap();
    assert!(watcher.wait(Duration::from_millis(50)).unwrap().is_none());
}
