//! Unusual hosts and damaged files: a narrow umask, servers that hang, links and directories of killed plugins.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{Lab, beyond_reference, injecting, until};
use serde_json::json;

use super::*;

/// The directory that the link of the network leads to.
const TARGET: &str = "/run/ferrule-dnsname/net";

fn is_known(dig: &Dig, from: &Netns, name: &str) -> bool {
    dig.ask(from, SERVERS[0], &format!("{name} A")).len() == 1
}

#[test]
fn the_servers_user_can_read_the_names_whatever_the_umask_is() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = after_bridge(&lab, &pod);
    // An earlier plugin may have created the directory.
    for umask in ["077", "0"] {
        call.clone()
            .under(&["sh".into(), "-c".into(), format!("umask {umask}; exec \"$0\"")])
            .add()
            .ok_result();
        for (dir, mode) in [("/run/ferrule-dnsname", 0o755), (TARGET, 0o711)] {
            assert_eq!(
                fs::metadata(dir).unwrap().permissions().mode() & 0o7777,
                mode,
                "{dir}, umask {umask}"
            );
        }
        call.del().ok();
        fs::set_permissions("/run/ferrule-dnsname", fs::Permissions::from_mode(0o700)).unwrap();
    }
}

/// A rollback looks for the server, too, and needs as many descriptors for it.
#[test]
fn an_add_without_the_descriptors_to_look_for_the_server_writes_no_names() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let [pod, db] = ["pod", "db"].map(|id| lab.container(id));
    // This server has the name of the one that is looked for, so it is examined.
    let other = named("other", "br1", &[&["10.1.9.0/24"]], &json!({}));
    let networks = Networks::new(&lab, &[other]);
    networks.add("other", &db, "db", &[]);
    let call = after_bridge(&lab, &pod);
    let mut examined = 0;
    for limit in 5..12 {
        let limited = call.clone().under(&["prlimit".into(), format!("--nofile={limit}:")]).add();
        if !limited.succeeded() {
            examined += u32::from(limited.error().msg.contains("examine process"));
            assert!(!Path::new(TARGET).join("addnhosts").exists(), "{limit}: {limited:#?}");
        }
        call.del().ok();
    }
    assert!(examined > 0, "no limit ends where the server is looked for");
    networks.del("other", &db);
}

#[test]
fn check_names_a_configuration_of_the_server_that_it_cannot_read() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, _) = networks.attach(&lab, "web", &[]);
    let conf = format!("{TARGET}/dnsmasq.conf");
    lab.host().sh(&format!("mv {conf} /run/lab/conf; mkfifo {conf}"));
    let refused = networks.tool.run("check net web --container-id web");
    assert!(!refused.succeeded() && refused.stderr.contains(&conf), "{refused:#?}");
    lab.host().sh(&format!("mv /run/lab/conf {conf}"));
    networks.del("net", &web);
}

#[test]
fn each_range_of_ptp_keeps_its_server_when_a_container_of_another_range_starts() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let ranges = |subnet: &str| json!({"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": subnet}]]});
    let [one, two] = ["10.1.2.0/24", "10.1.3.0/24"]
        .map(|subnet| chained("net", &json!({"type": "ptp", "ipam": ranges(subnet)}), &json!({})));
    let networks = Networks::new(&lab, &[one]);
    let (web, _) = networks.attach(&lab, "web", &[]);
    let networks = Networks::new(&lab, &[two]);
    let (db, _) = networks.attach(&lab, "db", &[]);
    for (pod, server) in [(&web, "10.1.2.1"), (&db, "10.1.3.1")] {
        for name in ["web", "db"] {
            assert_eq!(dig.ask(pod, server, &format!("{name} A")).len(), 1, "{name} at {server}");
        }
    }
    networks.del_all(&[&web, &db]);
    assert_eq!(server_of("net"), None);
}

#[test]
fn the_next_add_replaces_a_server_that_does_not_answer() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, _) = networks.attach(&lab, "web", &[]);
    let stopped = server_of("net").unwrap();
    lab.host().sh(&format!("kill -STOP {stopped}"));
    let (db, _) = networks.attach(&lab, "db", &[]);
    assert_ne!(server_of("net").unwrap(), stopped);
    assert!(is_known(&dig, &db, "web") && is_known(&dig, &web, "db"));
    networks.del_all(&[&web, &db]);
}

#[test]
fn a_del_waits_five_seconds_for_a_server_that_does_not_answer_and_succeeds_with_a_warning() {
    beyond_reference!("dnsname");
    let Some(_dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let [(web, _), (db, _)] = ["web", "db"].map(|name| networks.attach(&lab, name, &[]));
    lab.host().sh(&format!("kill -STOP {}", server_of("net").unwrap()));
    let start = Instant::now();
    networks.del_all(&[&web]);
    assert!(start.elapsed() >= Duration::from_secs(5), "the old name may still be resolved");
    networks.del_all(&[&db]);
    assert_eq!(server_of("net"), None);
}

#[test]
fn a_process_of_another_user_with_the_servers_arguments_is_not_the_server() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, _) = networks.attach(&lab, "web", &[]);
    lab.host().sh("cp $(readlink -f /bin/sh) /run/lab/dnsmasq; chmod 755 /run/lab /run/lab/dnsmasq");
    let conf = format!("--conf-file={DIRECTORIES}/net/dnsmasq.conf");
    let mut command = Command::new("/run/lab/dnsmasq");
    command.args(["-c", "while :; do sleep 1; done", &conf]).uid(4242).gid(4242);
    let mut fake = in_background(lab.host(), command, Path::new("/dev/null"));
    lab.host().sh(&format!("kill -9 {}", server_of("net").unwrap()));
    let (db, _) = networks.attach(&lab, "db", &[]);
    assert!(is_known(&dig, &db, "web") && is_known(&dig, &db, "db"));
    networks.del_all(&[&web, &db]);
    assert!(!fake.has_ended(), "it gets no signal");
}

#[test]
fn a_server_keeps_its_user_if_a_package_creates_another_and_an_unreadable_user_or_group_is_an_error() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let users = |more: &str| {
        lab.host().sh(&format!(
            "(grep -v ^dnsmasq: /etc/passwd; {more}) >/run/lab/users; cp /run/lab/users /run/lab/passwd
             mountpoint -q /etc/passwd || mount --bind /run/lab/passwd /etc/passwd"
        ));
    };
    let user = || fs::metadata(format!("/proc/{}", server_of("net").unwrap())).unwrap().uid();
    users(":");
    let (pod, _) = networks.attach(&lab, "pod", &[]);
    let nobody = user();
    users("echo dnsmasq:x:4243:65534::/:/bin/false");
    networks.tool.says("check net pod --container-id pod");
    networks.del("net", &pod);
    assert!(!lab.host().sh("ss -Hlun sport = :53").contains(":53"), "the server is stopped");
    let (pod, _) = networks.attach(&lab, "pod2", &[]);
    assert_eq!((user(), nobody == 4243), (4243, false));
    networks.del("net", &pod);

    let list = network(&json!({}));
    let bridge = lab.plugin("bridge").config(list["plugins"][0].clone()).on(&pod);
    let dnsname = lab.plugin("dnsname").config(list["plugins"][1].clone()).on(&pod);
    let call = dnsname.config(json!({"prevResult": bridge.add().ok_result()}));
    // The user of a server in another test's network is looked for, too.
    for file in ["/etc/passwd", "/etc/group"] {
        let unread = injecting(&["-P", file, "-e", "inject=open,openat:error=EMFILE"]);
        call.clone().under(&unread).add().refused(5, "No file descriptors available");
    }
    call.del().ok();
    assert!(is_gone("net"));
}

#[test]
fn a_lost_link_loses_no_names_of_a_running_server() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, _) = networks.attach(&lab, "web", &[]);
    let (db, _) = networks.attach(&lab, "db", &[]);
    let link = Path::new(DIRECTORIES).join("net");
    fs::remove_file(&link).unwrap();
    let (third, _) = networks.attach(&lab, "third", &[]);
    assert!(is_known(&dig, &third, "web") && is_known(&dig, &third, "db"));
    fs::remove_file(&link).unwrap();
    networks.del("net", &third);
    assert!(is_known(&dig, &db, "web") && !is_known(&dig, &db, "third"));
    networks.del_all(&[&web, &db]);
    assert!(server_of("net").is_none() && !Path::new(TARGET).exists());
}

#[test]
fn a_network_of_the_original_is_moved_although_a_killed_move_left_its_directory() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    with_parents();
    lab.host().sh(&format!(
        "mkdir {DIRECTORIES}/net /run/ferrule-dnsname/.original.net; touch /run/ferrule-dnsname/.original.net/lock"
    ));
    let (pod, _) = networks.attach(&lab, "pod", &[]);
    assert!(!Path::new("/run/ferrule-dnsname/.original.net").exists());
    networks.del("net", &pod);
}

/// The state after a DEL that was killed immediately after it had written the file.
#[test]
fn a_repeated_del_makes_the_server_read_the_names_again() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, _) = networks.attach(&lab, "web", &[]);
    let (db, _) = networks.attach(&lab, "db", &[]);
    lab.host().sh(&format!("sed -i /web/d {TARGET}/addnhosts; chmod 644 {TARGET}/addnhosts"));
    assert!(is_known(&dig, &db, "web"));
    networks.del("net", &web);
    until("the name is gone", || !is_known(&dig, &db, "web"));
    networks.del("net", &db);
}

/// The link of a host whose systemd-resolved has not started yet. dnsmasq does not start if the directory is missing.
#[test]
fn a_resolv_conf_that_leads_to_no_directory_is_used_by_the_next_add_after_it_exists() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    lab.host().sh(
        "cp -a /etc /run/lab/etc; ln -sfn ../run/lab/resolved/stub.conf /run/lab/etc/resolv.conf; mount --bind /run/lab/etc /etc",
    );
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, _) = networks.attach(&lab, "web", &[]);
    assert!(is_known(&dig, &web, "web"));
    let outside = || dig.says(&web, SERVERS[0], "www.example.test A");
    assert!(!outside().contains("192.0.2.7"));
    let server = server_of("net").unwrap();
    let (db, _) = networks.attach(&lab, "db", &[]);
    assert_eq!(server_of("net").unwrap(), server, "without a resolver nothing is gained by a restart");

    lab.host().sh(
        "mkdir -m 755 /run/lab/resolved; chmod 755 /run/lab; echo nameserver 127.0.0.53 >/run/lab/resolved/stub.conf",
    );
    let _upstream = upstream(&lab, "127.0.0.53");
    let (third, _) = networks.attach(&lab, "third", &[]);
    assert!(outside().contains("192.0.2.7"), "{}", outside());
    for name in ["web", "db", "third"] {
        assert!(is_known(&dig, &web, name), "{name}");
    }
    let server = server_of("net").unwrap();
    networks.del("net", &third);
    networks.add("net", &third, "third", &[]);
    assert_eq!(server_of("net").unwrap(), server, "it was started again once");
    networks.del_all(&[&web, &db, &third]);
}

#[test]
fn a_server_that_the_next_add_starts_after_a_crash_resolves_outside_names_as_before() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    for internal in [false, true] {
        let lab = Lab::new();
        let networks = Networks::new(&lab, &[network(&json!({"internal": internal}))]);
        let (web, _) = networks.attach(&lab, "web", &[]);
        let conf = || fs::read_to_string(format!("{TARGET}/dnsmasq.conf")).unwrap();
        let before = conf();
        assert_eq!(before.contains("no-resolv"), internal);
        let networks = Networks::new(&lab, &[network(&json!({"internal": !internal}))]);
        let crashed = server_of("net").unwrap();
        lab.host().sh(&format!("kill -9 {crashed}"));
        let (db, _) = networks.attach(&lab, "db", &[]);
        assert_ne!(server_of("net").unwrap(), crashed);
        assert_eq!(conf(), before);
        assert!(is_known(&dig, &db, "web") && is_known(&dig, &web, "db"));
        networks.del_all(&[&web, &db]);
    }
}

/// The attachments from before the change have the earlier domain or bridge in their cached configurations.
#[test]
fn after_a_change_of_domain_or_bridge_repairs_do_not_start_the_server_again_in_turns() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let elsewhere = named("net", "br1", &[&["10.1.3.0/24"]], &json!({}));
    for (changed, server, is_reached) in
        [(network(&json!({"domainName": "new.test"})), SERVERS[0], true), (elsewhere, "10.1.3.1", false)]
    {
        let lab = Lab::new();
        let networks = Networks::new(&lab, &[network(&json!({}))]);
        let (web, _) = networks.attach(&lab, "web", &[]);
        let first = server_of("net").unwrap();
        let networks = Networks::new(&lab, &[changed]);
        let (db, _) = networks.attach(&lab, "db", &[]);
        let pid = server_of("net").unwrap();
        assert_ne!(pid, first);
        for _ in 0..2 {
            let outcome = networks.tool.run("repair net");
            let said = format!("{}{}", outcome.stdout, outcome.stderr);
            assert_eq!(outcome.succeeded(), is_reached, "{said}");
            assert!(is_reached || said.contains("listens on interface br1"), "{said}");
            assert_eq!(server_of("net").unwrap(), pid);
        }
        // A repair after a crash keeps the domain and the bridge.
        lab.host().sh(&format!("kill -9 {pid}"));
        networks.tool.run("repair net");
        for name in ["db", "web"] {
            assert_eq!(dig.ask(&db, server, &format!("{name} A")).len(), 1, "{name}");
        }
        if is_reached {
            assert!(is_known(&dig, &db, "web.new.test") && !is_known(&dig, &db, "web.dns.test"));
        }
        networks.del_all(&[&web, &db]);
        assert_eq!(server_of("net"), None);
    }
}

#[test]
fn a_host_without_resolv_conf_resolves_the_names_of_containers() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    lab.host().sh("cp -a /etc /run/lab/etc; rm /run/lab/etc/resolv.conf; mount --bind /run/lab/etc /etc");
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, _) = networks.attach(&lab, "web", &[]);
    assert!(is_known(&dig, &web, "web"));
    networks.del("net", &web);
    assert_eq!(server_of("net"), None);
}

#[test]
fn add_says_that_another_program_or_another_network_on_the_bridge_has_the_port() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let other = named("other", "br0", &[&["10.1.2.0/24"], &["fd00:1:2::/64"]], &json!({}));
    let networks = Networks::new(&lab, &[network(&json!({})), other]);
    let refuses = |network: &str, pod: &Container| {
        let outcome = networks.try_add(network, pod, &pod.id, &[]);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!outcome.succeeded() && said.contains("sport = :53"), "{said}");
        assert!(is_gone(network));
    };
    lab.host()
        .sh("dnsmasq --user=root --conf-file=/dev/null --pid-file=/run/lab/other.pid --no-resolv --no-hosts");
    let web = lab.container("web");
    refuses("net", &web);
    let pid = fs::read_to_string("/run/lab/other.pid").unwrap();
    lab.host().sh("kill $(cat /run/lab/other.pid)");
    until("the other program has exited", || !Path::new("/proc").join(pid.trim()).join("exe").exists());
    networks.add("net", &web, "web", &[]);
    refuses("other", &lab.container("db"));
    assert!(is_known(&dig, &web, "web"));
    networks.del("net", &web);
    assert_eq!(server_of("net"), None);
}

#[test]
fn a_running_server_keeps_its_files_if_the_link_is_lost_and_processes_cannot_be_examined() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let list = network(&json!({}));
    let networks = Networks::new(&lab, std::slice::from_ref(&list));
    let (web, _) = networks.attach(&lab, "web", &[]);
    let (db, _) = networks.attach(&lab, "db", &[]);
    fs::remove_file(Path::new(DIRECTORIES).join("net")).unwrap();
    let dnsname = lab.plugin("dnsname").config(list["plugins"][1].clone()).on(&db);
    let unread = injecting(&["-P", "/proc", "-e", "inject=?open,openat:error=EMFILE"]);
    let outcome = dnsname.under(&unread).del();
    assert!(!outcome.succeeded() && outcome.stdout.contains("No file descriptors available"), "{outcome:?}");
    assert!(Path::new(TARGET).join("pidfile").exists(), "the server runs");
    networks.del_all(&[&web, &db]);
    assert!(server_of("net").is_none() && !Path::new(TARGET).exists());
}

#[test]
fn an_add_whose_server_does_not_start_leaves_the_earlier_server_running() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, _) = networks.attach(&lab, "web", &[]);
    let db = lab.container("db");
    // The server of another network has the port of the address at which the changed server would listen.
    let (other, elsewhere) = (
        named("other", "br1", &[&["10.1.3.0/24"]], &json!({})),
        named("net", "br1", &[&["10.1.3.0/24"]], &json!({})),
    );
    let networks = Networks::new(&lab, &[other, elsewhere]);
    let first = lab.container("first");
    networks.add("other", &first, "first", &[]);
    let refused = networks.try_add("net", &db, "db", &[]);
    assert!(!refused.succeeded() && refused.stderr.contains("Address already in use"), "{refused:?}");
    assert!(is_known(&dig, &web, "web"));
    networks.del("other", &first);
    networks.del("net", &web);
    assert_eq!(server_of("net"), None);
}

/// A change of the domain replaces the server. After the earlier one has exited, its configuration cannot be written.
#[test]
fn an_add_that_cannot_write_the_servers_configuration_starts_the_earlier_server_again() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let (web, _) = networks.attach(&lab, "web", &[]);
    let stopped = server_of("net").unwrap();
    let call = after_bridge(&lab, &lab.container("pod")).config(json!({"domainName": "other.test"}));
    // The second rename is that of the configuration, after that of the hosts file.
    let full = injecting(&["-e", "inject=?rename,renameat,renameat2:error=ENOSPC:when=2"]);
    call.clone().under(&full).add().refused(5, "dnsmasq.conf");
    assert!(server_of("net").is_some_and(|server| server != stopped));
    assert!(is_known(&dig, &web, "web") && !is_known(&dig, &web, "pod"));
    call.add().ok_result();
    call.del().ok();
    networks.del("net", &web);
    assert_eq!(server_of("net"), None);
}

#[test]
fn a_server_whose_hosts_file_was_deleted_serves_until_a_repair_has_restored_the_names() {
    beyond_reference!("dnsname");
    let Some(dig) = Dig::here() else { return };
    let lab = Lab::new();
    let networks = Networks::new(&lab, &[network(&json!({}))]);
    let [web, db] = ["web", "db"].map(|name| networks.attach(&lab, name, &[]).0);
    let server = server_of("net");
    fs::remove_file(Path::new(TARGET).join("addnhosts")).unwrap();
    let dnsname = lab.plugin("dnsname");
    let deleted = dnsname.clone().on(&db).del();
    assert!(deleted.stderr.contains("cnitool repair net"), "{deleted:?}");
    deleted.ok();
    dnsname.gc(&[("web", "eth0")]).ok();
    assert!(server.is_some() && server_of("net") == server);
    assert!(is_known(&dig, &web, "web"));
    networks.tool.says("repair net");
    assert!(is_known(&dig, &web, "web") && !is_known(&dig, &web, "db"));
    networks.del_all(&[&db, &web]);
    assert!(server_of("net").is_none() && !Path::new(TARGET).exists());

    // GC reports that the network has no container left.
    networks.add("net", &web, "web", &[]);
    fs::remove_file(Path::new(TARGET).join("addnhosts")).unwrap();
    networks.del("net", &web);
    assert!(server_of("net").is_some());
    dnsname.gc(&[]).ok();
    assert!(server_of("net").is_none() && !Path::new(TARGET).exists());
}
