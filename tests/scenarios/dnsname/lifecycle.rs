//! The server's process and the network's files, from the first ADD to the last DEL.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use lab::dhcp::start_running;
use lab::{Lab, PATH, beyond_reference, until, write_program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::*;

#[test]
fn del_of_the_last_container_removes_the_server_and_all_files() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    with_parents();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let first = lab.container("first");
    let before = lab.snapshot();
    for _ in 0..2 {
        networks.add("net", &first, "first", &["one", "two"]);
        networks.tool.says("check net first --container-id first");
        networks.del("net", &first);
    }
    let left = lab.snapshot().since(&before);
    assert!(!left.lines().any(|line| line.contains("dnsname")), "{left}");
    assert!(is_gone("net"));
}

#[test]
fn the_server_runs_as_an_unprivileged_user_with_one_capability() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (pod, _) = networks.attach(&lab, "pod", &[]);
    let pid = server_of("net").unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for key in ["Uid:", "Gid:"] {
        assert!(value(key).iter().all(|id| id != "0"), "{status}");
    }
    // CAP_NET_BIND_SERVICE: the server binds addresses that are added later.
    assert_eq!(u64::from_str_radix(&value("CapEff:")[0], 16).unwrap(), 1 << 10, "{status}");
    let dir = fs::canonicalize(Path::new(DIRECTORIES).join("net")).unwrap();
    let uid = fs::metadata(format!("/proc/{pid}")).unwrap().uid();
    for entry in fs::read_dir(&dir).unwrap().flatten() {
        // dnsmasq makes its user the owner of the pid file. The user owns no other file.
        let is_pidfile = entry.file_name() == "pidfile";
        assert!(is_pidfile || entry.metadata().unwrap().uid() != uid, "{:?}", entry.path());
    }
    networks.del("net", &pod);
}

/// dnsmasq lists the host's interfaces when it starts, and fails if one of them is deleted meanwhile.
#[test]
fn a_start_of_the_server_is_repeated_if_an_interface_was_deleted_meanwhile() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let mut networks = Networks::new(&lab, &[network(&json!({}))]);
    let script = "#!/bin/sh
        if [ ! -e /run/lab/failed ]; then
            : >/run/lab/failed
            echo 'dnsmasq: failed to find list of interfaces: No such device' >&2
            exit 5
        fi
        exec /usr/sbin/dnsmasq \"$@\"
";
    write_program(&lab.dir().join("dnsmasq"), script);
    networks.tool = networks.tool.env("PATH", &format!("{}:{PATH}", lab.dir().display()));
    let (pod, _) = networks.attach(&lab, "pod", &[]);
    assert!(fs::exists("/run/lab/failed").unwrap() && server_of("net").is_some());
    networks.del("net", &pod);
}

/// A killed ADD has started a slow dnsmasq, and DEL has not found it yet. strace delays a call of DEL until the server runs. `start` is the end
/// of the slow program.
fn del_stops_a_server_that_starts_before(
    (of, calls, number): (&[&str], &str, usize),
    start: &str,
    is_running: impl Fn(&Lab) -> bool,
) {
    let lab = Lab::new();
    let pod = lab.container("pod");
    let list = network(&json!({}));
    let bridge = lab.plugin("bridge").config(list["plugins"][0].clone()).on(&pod);
    let dnsname = lab.plugin("dnsname").config(list["plugins"][1].clone()).on(&pod);
    let dnsname = dnsname.config(json!({"prevResult": bridge.add().ok_result()}));
    let script =
        format!("#!/bin/sh\n: >/run/lab/started\nuntil [ -e /run/lab/go ]; do sleep 0.02; done\n{start}\n");
    write_program(&lab.dir().join("dnsmasq"), &script);
    let slow = dnsname.clone().env("PATH", &format!("{}:{PATH}", lab.dir().display()));
    let is_running = || is_running(&lab);
    let mut adding = start_running(&slow, "ADD");
    until("ADD has started the program", || fs::exists("/run/lab/started").unwrap());
    adding.kill().unwrap();
    adding.wait().unwrap();

    let [trace, delay] = [format!("trace={calls}"), format!("inject={calls}:delay_enter=600s:when={number}")];
    let strace = [&["strace", "-D", "-qo", "/run/lab/trace", "-e", &trace, "-e", &delay], of].concat();
    let strace: Vec<_> = strace.into_iter().map(str::to_owned).collect();
    let deleting = start_running(&dnsname.under(&strace), "DEL");
    until("DEL has begun the call", || {
        fs::read_to_string("/run/lab/trace").is_ok_and(|text| text.lines().count() == number)
    });
    assert!(!is_running());
    fs::write("/run/lab/go", "").unwrap();
    until("the server runs", is_running);
    // Without its tracer, DEL continues immediately.
    let status = fs::read_to_string(format!("/proc/{}/status", deleting.id())).unwrap();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap();
    kill(Pid::from_raw(tracer.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    let deleted = deleting.wait_with_output().unwrap();
    assert!(deleted.status.success(), "{deleted:?}");
    assert!(!is_running());
}

/// It reads its configuration before DEL removes the file.
#[test]
fn del_stops_a_server_that_a_killed_add_has_started_and_that_reads_its_configuration_meanwhile() {
    beyond_reference!("dnsname");
    let is_running = |lab: &Lab| lab.host().sh("ss -Hlun sport = :53").contains(":53");
    del_stops_a_server_that_starts_before(
        (&[], "unlink,unlinkat", 1),
        "exec /usr/sbin/dnsmasq \"$@\"",
        is_running,
    );
}

/// DEL has listed all processes for its last search, and then the server goes into the background, as a process that is not in the list. Here
/// it is a shell with the server's name and arguments, because dnsmasq itself goes into the background at a time of its own.
#[test]
fn del_stops_a_server_that_goes_into_the_background_while_del_looks_for_it() {
    beyond_reference!("dnsname");
    let start = "mkdir /run/lab/copy; cp $(readlink -f /bin/sh) /run/lab/copy/dnsmasq
        /run/lab/copy/dnsmasq -c 'while :; do sleep 1; done' \"$@\" &
        echo $! >/run/lab/pid";
    let is_running = |_: &Lab| {
        let pid = fs::read_to_string("/run/lab/pid").unwrap_or_default();
        !pid.trim().is_empty() && Path::new("/proc").join(pid.trim()).join("exe").exists()
    };
    let second_look = (&["-P", "/proc/1/exe"][..], "readlink,readlinkat", 2);
    del_stops_a_server_that_starts_before(second_look, start, is_running);
}

/// The original plugin kills any process whose id is in the pid file.
#[test]
fn a_process_that_is_not_the_networks_server_gets_no_signal() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (pod, _) = networks.attach(&lab, "pod", &[]);
    let server = server_of("net").unwrap();
    let mut stranger = in_background(lab.host(), started_by("sleep", "600"), Path::new("/dev/null"));
    for text in
        [stranger.id().to_string(), "1".to_owned(), "-5".to_owned(), "not a number".to_owned(), String::new()]
    {
        fs::write(Path::new(DIRECTORIES).join("net/pidfile"), &text).unwrap();
        let other = lab.container(&format!("other{}", text.len()));
        networks.add("net", &other, "other", &[]);
        networks.del("net", &other);
        assert!(!stranger.has_ended(), "{text:?}");
    }
    assert!(Path::new("/proc").join(&server).exists());
    networks.del("net", &pod);
    until("the server has exited", || !Path::new("/proc").join(&server).join("exe").exists());
    assert!(!stranger.has_ended());
}

#[test]
fn check_reports_a_crashed_server_and_lost_names_and_repair_restores_them() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, own) = networks.attach(&lab, "web", &["www"]);
    let (db, _) = networks.attach(&lab, "db", &[]);
    let hosts = Path::new(DIRECTORIES).join("net/addnhosts");
    let crash = || {
        lab.host().sh(&format!("kill -9 {}", server_of("net").unwrap()));
        until("the server is gone", || server_of("net").is_none());
    };
    let lose = || fs::write(&hosts, "").unwrap();
    let breakages: [(&dyn Fn(), &str); 2] = [(&crash, "does not run"), (&lose, "registered")];
    for (breaks, word) in breakages {
        breaks();
        let outcome = networks.tool_for("web", &["www"]).run("check net web --container-id web");
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!outcome.succeeded() && said.contains(word), "{said}");
        networks.tool.says("repair net");
        networks.tool_for("web", &["www"]).says("check net web --container-id web");
        for name in ["web", "www", "db"] {
            assert_eq!(dig.ask(&db, SERVERS[0], &format!("{name} A")).len(), 1, "{name} after {word}");
        }
        assert_eq!(dig.ask(&db, SERVERS[0], "www A"), [bare(&own)[0].as_str()]);
    }
    assert_eq!(networks.tool.json("repair net")["repaired"], json!([]), "nothing is missing now");
    networks.del_all(&[&web, &db]);
    assert_eq!(server_of("net"), None);
}

#[test]
fn check_reports_that_the_interface_on_which_the_server_listens_is_down() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    with_parents();
    let pod = lab.container("web");
    let ipam = host_local(&[&["10.1.2.0/24"]]);
    let bridge = json!({"bridge": "br0", "isDefaultGateway": true, "ipam": ipam});
    let result = lab.plugin("bridge").on(&pod).config(bridge).add().ok_result();
    let keys = json!({"domainName": "dns.test", "runtimeConfig": {"aliases": ["www"]}, "prevResult": result});
    let call = lab.plugin("dnsname").on(&pod).config(keys);
    let result = call.add().ok_result();
    call.check(&result).ok();
    lab.host().sh("ip link set br0 down");
    call.check(&result).refused(999, "link br0: state is down");
    lab.host().sh("ip link set br0 up");
    call.check(&result).ok();
    call.del().ok();
}

#[test]
fn the_next_add_starts_a_crashed_server() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, _) = networks.attach(&lab, "web", &[]);
    lab.host().sh(&format!("kill -9 {}", server_of("net").unwrap()));
    let (db, _) = networks.attach(&lab, "db", &[]);
    assert_eq!(dig.ask(&db, SERVERS[0], "web A").len(), 1);
    networks.del_all(&[&web, &db]);
}

#[test]
fn del_works_without_dnsmasq_namespace_and_result() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (pod, _) = networks.attach(&lab, "pod", &[]);
    let (other, _) = networks.attach(&lab, "other", &[]);
    lab.host().sh("mkdir /run/lab/empty; mount --bind /run/lab/empty /usr/sbin");
    let call = lab.plugin("dnsname").on(&pod).without("CNI_NETNS");
    for _ in 0..2 {
        call.del().ok();
        assert!(!hosts_of("net").contains("# ferrule pod "));
    }
    lab.plugin("dnsname").on(&other).del().ok();
    assert!(server_of("net").is_none() && is_gone("net"));
}

#[test]
fn gc_removes_the_names_of_dead_containers_and_with_the_last_one_the_server() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (stays, _) = networks.attach(&lab, "stays", &[]);
    networks.attach(&lab, "goes", &["alias"]);
    let call = lab.plugin("dnsname");
    call.gc(&[("stays", "eth0"), ("goes", "eth0")]).ok();
    assert_eq!(dig.ask(&stays, SERVERS[0], "alias A").len(), 1);
    call.gc(&[("stays", "eth0")]).ok();
    assert!(dig.ask(&stays, SERVERS[0], "alias A").is_empty());
    assert_eq!(dig.ask(&stays, SERVERS[0], "stays A").len(), 1);
    call.gc(&[]).ok();
    assert!(server_of("net").is_none() && is_gone("net"));
}

/// A hundred plugins wait for the server, and only some of them make it read the file.
#[test]
fn a_crowd_of_a_hundred_resolves_right_after_each_add_and_leaves_nothing() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let pods: Vec<_> = (0..100).map(|n| lab.container(&format!("pod{n}"))).collect();
    crate::field::crowd::by_workers(&pods, |pod| {
        let ip = bare(&networks.add("net", pod, &pod.id, &[]))[0].clone();
        assert_eq!(dig.ask(pod, SERVERS[0], &format!("{} A", pod.id)), [ip]);
    });
    crate::field::crowd::by_workers(&pods, |pod| {
        networks.tool.says(&format!("check net {} --container-id {}", pod.id, pod.id))
    });
    crate::field::crowd::by_workers(&pods, |pod| networks.del("net", pod));
    assert!(server_of("net").is_none() && is_gone("net"));
}

/// All containers have written their names before the server reads the file.
#[test]
fn changes_of_many_containers_need_one_read_of_the_file() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let network = network(&json!({}));
    let call = |pod: &Container| {
        let prev = lab.plugin("bridge").config(network["plugins"][0].clone()).on(pod).add().ok_result();
        let call = lab.plugin("dnsname").config(network["plugins"][1].clone()).on(pod);
        call.args(&format!("K8S_POD_NAME={}", pod.id)).config(json!({"prevResult": prev}))
    };
    let pods: Vec<_> = (0..10).map(|n| lab.container(&format!("pod{n}"))).collect();
    let calls: Vec<_> = pods.iter().map(call).collect();
    // The second container makes the server read the file, so the lock file exists.
    calls[..2].iter().for_each(|call| drop(call.add().ok_result()));
    let locks: Vec<_> = fs::read_dir("/run/ferrule").unwrap().flatten().map(|entry| entry.path()).collect();
    let is_ours =
        |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("dnsname-"));
    let lock = File::open(locks.iter().find(is_ours).unwrap()).unwrap();
    let server = server_of("net").unwrap();
    let mut tracer = Command::new("strace")
        .args(["-qq", "-o", "/run/lab/signals", "-e", "trace=none", "-e", "signal=HUP", "-p", &server])
        .spawn()
        .unwrap();
    let status = || fs::read_to_string(format!("/proc/{server}/status")).unwrap();
    until("the server is traced", || !status().contains("TracerPid:\t0\n"));
    lock.lock().unwrap();
    std::thread::scope(|scope| {
        for call in &calls[2..] {
            scope.spawn(|| call.add().ok_result());
        }
        until("all names are written", || hosts_of("net").lines().count() == 2 * pods.len());
        lock.unlock().unwrap();
    });
    let signals = || fs::read_to_string("/run/lab/signals").unwrap().matches("--- SIGHUP").count();
    until("a signal was seen", || signals() > 0);
    assert_eq!(signals(), 1);
    calls.iter().for_each(|call| call.del().ok());
    assert!(tracer.wait().unwrap().success());
}

/// The files that a command opens, as strace prints the calls.
fn opened_in(call: &Call, command: &str) -> String {
    let trace = "/run/lab/trace";
    let strace = ["strace", "-qqo", trace, "-e", "trace=?open,openat"].map(str::to_owned);
    assert!(call.clone().under(&strace).run(command).succeeded());
    fs::read_to_string(trace).unwrap()
}

/// A host may have thousands of processes.
#[test]
fn the_first_add_lists_all_processes_once_and_the_last_del_at_most_three_times() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = after_bridge(&lab, &pod);
    for command in ["ADD", "DEL"] {
        let opened = opened_in(&call, command);
        let lists = opened.matches("\"/proc\", ").count();
        // DEL lists them again if one of them has exited meanwhile.
        assert!(lists == 1 || command == "DEL" && lists <= 3, "{command}:\n{opened}");
    }
}

/// A process can delay a reader of its arguments, and the network is locked meanwhile.
#[test]
fn the_arguments_of_programs_of_other_users_and_of_containers_are_not_read() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let (pod, other) = (lab.container("pod"), lab.container("other"));
    lab.host().sh("cp $(readlink -f /bin/sh) /run/lab/dnsmasq; chmod 755 /run/lab /run/lab/dnsmasq");
    let start = |netns: &Netns, user: u32| {
        let mut command = Command::new("/run/lab/dnsmasq");
        command.args(["-c", "while :; do sleep 1; done"]).uid(user).gid(user);
        in_background(netns, command, Path::new("/dev/null"))
    };
    let programs = [start(lab.host(), 4242), start(&other, 0)];
    let call = after_bridge(&lab, &pod);
    for command in ["ADD", "DEL"] {
        let opened = opened_in(&call, command);
        for program in &programs {
            let arguments = format!("\"/proc/{}/cmdline\"", program.id());
            assert!(!opened.contains(&arguments), "{command}: {arguments} in\n{opened}");
        }
    }
}
