//! `add`, `check` and `del` of attachments that the cache has already, in each of its formats.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use lab::{Lab, Tool, beyond_reference, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::common::{is_ignored, is_up, with_full_stdout};

/// Some plugins accept a second ADD, such as loopback. A DEL would detach a running container, which may be in another runtime's cache.
#[test]
fn a_second_add_whose_result_cannot_be_written_keeps_the_attachment_and_says_so() {
    let lab = Lab::new();
    let pod = lab.container("pod");
    lab.configure(
        "10-lo.conflist",
        &json!({"cniVersion": "1.0.0", "name": "lo", "plugins": [{"type": "loopback"}]}),
    );
    let (tool, full) = (lab.cnitool(), lab.cnitool().under(&with_full_stdout()));
    for cache in ["/var/lib/cni", "/var/lib/cni/multus"] {
        tool.says(&format!("--cache-dir {cache} add lo pod -i lo"));
        let refused = full.run("add lo pod -i lo");
        let file = format!("({cache}/results/lo-");
        let words = ["write to stdout", "this ADD was not rolled back", &file, "run DEL to detach it"];
        assert!(
            refused.exit == Some(1) && words.iter().all(|word| refused.stderr.contains(word)),
            "{refused:#?}"
        );
        assert!(is_up(&pod, "lo"));
        tool.says(&format!("--cache-dir {cache} del lo pod -i lo"));
    }
    tool.says("del lo pod -i lo");
    assert_eq!(full.run("add lo pod -i lo").exit, Some(1));
    assert!(!is_up(&pod, "lo"), "the first ADD is rolled back");
}

/// Without cnitool, the plugin or its IPAM plugin would run on without the lock, and could delete what a later ADD creates.
#[test]
fn a_signal_that_ends_cnitool_ends_the_plugin_that_hangs_and_its_children() {
    if is_ignored(Signal::SIGTERM) {
        return;
    }
    let lab = lab_with_hanging_plugin();
    let terminal = ["sh", "-c", "exec script -qec \"$*\" /dev/null", "sh"].map(str::to_owned);
    let lines = [
        ("add net pod", "ADD"),
        ("add net pod", "DEL"),
        ("add --keep net pod", "ADD"),
        ("del net pod", "DEL"),
        ("status net", "VERSION"),
        ("version hangs", "VERSION"),
        ("doctor", "VERSION"),
    ];
    for (tool, (line, command)) in
        [lab.cnitool(), lab.cnitool().under(&terminal)].iter().flat_map(|tool| lines.map(|line| (tool, line)))
    {
        hang_in(&lab, command);
        let running = RefCell::new(tool.spawn(line));
        until("the plugin hangs", || hanging().is_some());
        let (cnitool, child) = hanging().unwrap();
        until("cnitool ends", || {
            kill(Pid::from_raw(cnitool), Signal::SIGTERM).ok();
            running.borrow_mut().try_wait().unwrap().is_some_and(|status| !status.success())
        });
        until("the plugin's child ends", || has_ended(child));
    }
}

#[test]
fn ctrl_c_on_a_terminal_ends_the_plugin_that_hangs_and_its_children() {
    if is_ignored(Signal::SIGINT) {
        return;
    }
    let lab = lab_with_hanging_plugin();
    let wait = format!("until [ -s {HANGING} ]; do sleep 0.01; done");
    let script =
        format!("{{ {wait}; printf '\\003'; sleep 2; printf '\\003'; }} | script -qec \"$*\" /dev/null");
    let terminal = ["sh", "-c", &script, "sh"].map(str::to_owned);
    for (line, command) in [("add net pod", "ADD"), ("del net pod", "DEL"), ("version hangs", "VERSION")] {
        hang_in(&lab, command);
        let run = lab.cnitool().under(&terminal).run(line);
        assert!(!run.succeeded(), "{run:#?}");
        // The plugin is not to blame for its end.
        let is_said = run.stdout.contains("ADD was interrupted during plugin hangs");
        assert_eq!(is_said, command == "ADD", "{run:#?}");
        until("the plugin's child ends", || has_ended(hanging().unwrap().1));
    }
}

/// The kernel does not end the first process of a container for a signal that the process does not handle. The thread that waits for the plugin
/// has time to see it killed, because the one that kills it is delayed before it exits.
#[test]
fn a_signal_ends_cnitool_in_a_container_with_the_usual_exit_code() {
    if is_ignored(Signal::SIGTERM) {
        return;
    }
    let lab = lab_with_hanging_plugin();
    let delayed =
        "unshare --pid --fork --mount-proc strace -D -f -qqo /dev/null -e inject=getpid:delay_exit=500000";
    let container: Vec<_> = delayed.split(' ').map(str::to_owned).collect();
    for line in ["del net pod", "add net pod"] {
        hang_in(&lab, "DEL");
        let mut running = lab.cnitool().under(&container).spawn(line);
        until("the plugin hangs", || hanging().is_some());
        let id = running.id();
        let child = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let first = Pid::from_raw(child.trim().parse().unwrap());
        let ended = loop {
            kill(first, Signal::SIGTERM).ok();
            if let Some(ended) = running.try_wait().unwrap() {
                break ended;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        assert_eq!(ended.code(), Some(128 + Signal::SIGTERM as i32), "{line}: {ended}");
    }
}

/// The ids of cnitool and of a child of its plugin, which hangs.
const HANGING: &str = "/run/lab/hanging";

/// A lab with a container, and a network of a plugin that waits for a child in one command ([`hang_in`]) and fails in the others.
fn lab_with_hanging_plugin() -> Lab {
    let lab = Lab::new();
    lab.container("pod");
    lab.configure(
        "10-net.conflist",
        &json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "hangs"}]}),
    );
    lab.host().sh("mkfifo /run/lab/never");
    lab
}

fn hang_in(lab: &Lab, command: &str) {
    fs::remove_file(HANGING).ok();
    let hang = format!(
        "tool=$PPID; (read me _ </proc/self/stat; echo $tool $me >{HANGING}; read line </run/lab/never); exit 1"
    );
    let fail = "echo '{\"code\": 100, \"msg\": \"no\"}'; exit 1";
    lab.fake_plugin("hangs", &format!("case $CNI_COMMAND in {command}) {hang} ;; *) {fail} ;; esac"));
}

fn hanging() -> Option<(i32, i32)> {
    let text = fs::read_to_string(HANGING).ok()?;
    let (tool, child) = text.trim().split_once(' ')?;
    Some((tool.parse().ok()?, child.parse().ok()?))
}

/// An orphan that has ended may not be reaped yet.
fn has_ended(process: i32) -> bool {
    let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    state.is_empty() || state.contains(") Z ")
}

/// libcni before 0.8 writes only the result. The name of the file of container c on network net-b is also that of container b-c on network net,
/// and no directory needs to contain a valid file of network net-b.
#[test]
fn all_includes_the_earliest_format_and_fails_for_files_whose_attachment_is_uncertain() {
    beyond_reference!("gc");
    const LOG: &str = "/run/lab/log";
    const RESULTS: &str = "/var/lib/cni/results";
    let lab = Lab::new();
    let _pod = lab.container("pod");
    lab.fake_plugin("logs", &format!("echo $CNI_COMMAND $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME >>{LOG}"));
    let configure = |name: &str| {
        let network = json!({"cniVersion": "0.4.0", "name": name, "plugins": [{"type": "logs"}]});
        lab.configure(&format!("{name}.conflist"), &network);
    };
    configure("net");
    fs::create_dir_all(RESULTS).unwrap();
    let write = |file: &str, text: &str| fs::write(Path::new(RESULTS).join(file), text).unwrap();
    let bare = |netns: &str| {
        json!({"cniVersion": "0.4.0", "interfaces": [{"name": "eth0", "sandbox": netns}], "dns": {}})
            .to_string()
    };
    write("net-old-eth0", &bare("/run/netns/pod"));
    write("net-gone-eth0", &bare("/run/netns/gone"));
    write("net-b-c-eth0", &bare("/run/netns/pod"));
    write("net-torn-eth0", "{\"kind\":\"cniCacheV1\",\"conta");
    let tool = lab.cnitool();

    let listed = tool.run("list attachments");
    let words = "net-old-eth0 is skipped: it has the format of libcni before 0.8";
    assert!(listed.succeeded() && listed.stderr.contains(words), "{listed:#?}");
    assert!(listed.stderr.contains("net-torn-eth0 is skipped: it is damaged"), "{listed:#?}");

    for command in ["CHECK", "DEL"] {
        let run = tool.run(&format!("{} net --all --output json", command.to_lowercase()));
        let words = ["net-torn-eth0 is damaged", "net-b-c-eth0 may be of another network", "--container-id"];
        assert!(run.exit == Some(1) && words.iter().all(|word| run.stderr.contains(word)), "{run:#?}");
        let done: Value = serde_json::from_str(&run.stdout).unwrap();
        let mut ids: Vec<&str> =
            done["done"].as_array().unwrap().iter().map(|one| one["containerID"].as_str().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, ["gone", "old"], "{run:#?}");
        let mut log: Vec<String> = fs::read_to_string(LOG)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .filter(|line| line.starts_with(command))
            .collect();
        log.sort_unstable();
        let expected =
            ["gone /run/netns/gone", "old /run/netns/pod"].map(|of| format!("{command} {of} eth0"));
        assert_eq!(log, expected);
    }
    let mut left: Vec<_> = fs::read_dir(RESULTS).unwrap().map(|file| file.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["net-b-c-eth0", "net-torn-eth0"]);

    configure("net-b");
    fs::remove_file(LOG).unwrap();
    does_not_detach_an_uncertain_attachment(&tool);
    let log = fs::read_to_string(LOG).unwrap();
    assert!(!log.contains("DEL") && !log.contains("CHECK"), "{log}");
    assert!(Path::new(RESULTS).join("net-b-c-eth0").exists());

    // Each can be named.
    tool.says("del net pod --container-id torn");
    tool.says("del net-b pod --container-id c");
    tool.says("del net --all");
    assert_eq!(fs::read_dir(RESULTS).unwrap().count(), 0);
}

/// A DEL with the names of another attachment would delete the file of a running container.
#[test]
fn a_damaged_file_is_to_be_named_only_if_its_attachment_is_certain() {
    const RESULTS: &str = "/var/lib/cni/results";
    let lab = Lab::new();
    lab.configure(
        "net.conflist",
        &json!({"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "loopback"}]}),
    );
    fs::create_dir_all(RESULTS).unwrap();
    let by_name = "name its attachment with NETNS and `--container-id torn -i eth0`";
    let by_hand = "stop its container and delete the file";
    for (file, words) in [
        ("net-torn-eth0", ["net-torn-eth0 is damaged", by_name]),
        ("net-b-torn-eth0", ["net-b-torn-eth0 is damaged, and may be of another network", by_hand]),
        ("net-t:rn-eth0", ["net-t:rn-eth0 is damaged", by_hand]),
    ] {
        let path = Path::new(RESULTS).join(file);
        fs::write(&path, "{\"kind\":\"cniCacheV1\",\"conta").unwrap();
        let run = lab.cnitool().run("del net --all");
        assert!(run.exit == Some(1) && words.iter().all(|word| run.stderr.contains(word)), "{run:#?}");
        fs::remove_file(path).unwrap();
    }
}

/// The network of the file net-b-c-eth0 may be the longer or the shorter one.
fn does_not_detach_an_uncertain_attachment(tool: &Tool) {
    for command in ["check net-b --all", "del net-b --all"] {
        let run = tool.run(command);
        let words = "net-b-c-eth0 may be of another network";
        assert!(run.exit == Some(1) && run.stderr.contains(words), "{run:#?}");
    }
    for network in ["net", "net-b"] {
        tool.says(&format!("gc {network} --detach-running"));
    }
}

/// GC of either network must neither detach the running container, nor release its address.
#[test]
fn gc_keeps_the_attachment_of_a_file_whose_network_is_uncertain_while_its_namespace_exists() {
    beyond_reference!("gc");
    const RESULTS: &str = "/var/lib/cni/results";
    let lab = Lab::new();
    let pod = lab.container("pod");
    for (number, name) in [(1, "net"), (2, "net-b")] {
        let bridge = json!({"type": "bridge", "bridge": format!("br{number}"),
            "ipam": {"type": "host-local", "subnet": format!("10.8.{number}.0/24")}});
        lab.configure(
            &format!("{name}.conflist"),
            &json!({"cniVersion": "1.1.0", "name": name, "plugins": [bridge]}),
        );
    }
    let tool = lab.cnitool();
    let leases = |network: &str| {
        let files = fs::read_dir(format!("/var/lib/cni/networks/{network}")).into_iter().flatten();
        files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("10.")).count()
    };
    let add = |network: &str, id: &str| {
        let result = tool.says(&format!("add {network} pod --container-id {id}"));
        fs::write(format!("{RESULTS}/{network}-{id}-eth0"), result).unwrap();
    };
    for (network, id) in [("net", "b-c"), ("net-b", "c")] {
        add(network, id);
        for gc in ["gc net --detach-running", "gc net-b --detach-running", "gc --all"] {
            tool.says(gc);
            assert!(pod.link("eth0").is_some() && leases(network) == 1, "{gc}");
        }
        tool.says(&format!("del {network} pod --container-id {id}"));
    }
    // This name is certain.
    add("net", "c");
    tool.says("gc net --detach-running");
    assert!(pod.link("eth0").is_none() && leases("net") == 0);
    assert_eq!(fs::read_dir(RESULTS).unwrap().count(), 0);
}

#[test]
fn json_lists_the_attachments_that_are_done_although_another_one_failed() {
    let lab = Lab::new();
    let _pods = ["one", "two"].map(|id| lab.container(id));
    let script = "case $CNI_COMMAND$CNI_CONTAINERID in ADD*) echo '{\"cniVersion\": \"1.0.0\"}' ;; \
        DELone) echo '{\"code\": 100, \"msg\": \"no\"}'; exit 1 ;; esac";
    lab.fake_plugin("fails", script);
    lab.configure(
        "10-net.conflist",
        &json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "fails"}]}),
    );
    let tool = lab.cnitool();
    for name in ["one", "two"] {
        tool.says(&format!("add net {name} --container-id {name}"));
    }
    let failed = tool.run("del net --all --output json");
    let done: Value = serde_json::from_str(&failed.stdout).unwrap();
    assert_eq!(failed.exit, Some(1), "{failed:#?}");
    let two = json!({"network": "net", "containerID": "two", "ifname": "eth0"});
    assert_eq!(done, json!({"command": "DEL", "done": [two]}));
    let failed = tool.run("del net --all --output json");
    assert!(failed.exit == Some(1) && failed.stdout.is_empty(), "{failed:#?}");
}
