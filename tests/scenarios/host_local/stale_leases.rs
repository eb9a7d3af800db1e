//! host-local releases leases of containers that have certainly exited, and no others.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lab::dhcp::{in_background, started_by};
use lab::{Call, Lab, Outcome, Release, beyond_reference, until};
use serde_json::{Value, json};

use crate::common::{self, STORE, leases, sleeper, started_earlier};

/// A network with two addresses. Each test uses different addresses, and different names for its dead containers, because the whole machine is
/// searched for them.
fn ipam(net: u8, keys: &Value) -> Value {
    let range = json!({"subnet": format!("10.211.{net}.0/24"), "rangeStart": format!("10.211.{net}.2"), "rangeEnd": format!("10.211.{net}.3")});
    let mut ipam = json!({"type": "host-local", "ranges": [[range]], "staleLeaseAge": 0});
    ipam.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    ipam
}

fn configure(lab: &Lab, net: u8, keys: &Value) {
    let plugin = json!({"type": "bridge", "bridge": "br0", "ipam": ipam(net, keys)});
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.1.0", "name": "net", "plugins": [plugin]}));
}

fn add(lab: &Lab, id: &str) -> Outcome {
    added(lab, id, id)
}

/// Without the DEL that follows a failed ADD.
fn added(lab: &Lab, netns: &str, id: &str) -> Outcome {
    lab.cnitool().run(&format!("add net {netns} --keep --container-id {id}"))
}

/// While this looks at the machine, other tests may create and delete namespaces. Then no lease counts as stale.
fn retried(add: impl Fn() -> Outcome) -> Outcome {
    (0..30).map(|_| add()).find(|outcome| !is_unsure(outcome)).unwrap_or_else(add)
}

fn is_unsure(outcome: &Outcome) -> bool {
    ["cannot examine all network namespaces", "the search for stale leases"]
        .iter()
        .any(|why| outcome.stderr.contains(why))
}

/// An ADD that releases a stale lease. While other tests create namespaces and call plugins, its container may look alive for a moment. Then the
/// range looks full.
fn finds_stale(add: impl Fn() -> Outcome) -> Outcome {
    (0..30).map(|_| retried(&add)).find(|outcome| !is_full(outcome)).unwrap_or_else(&add)
}

fn adds(lab: &Lab, id: &str) -> Outcome {
    let added = finds_stale(|| add(lab, id));
    assert!(added.succeeded(), "{added:#?}");
    added
}

/// The range is full, and the search for stale leases has found none.
fn refuses_next(lab: &Lab) {
    let outcome = retried(|| add(lab, "next"));
    assert!(is_full(&outcome), "{outcome:#?}");
}

fn is_full(outcome: &Outcome) -> bool {
    let says_so = |text: &str| text.contains("no IP addresses available");
    !outcome.succeeded() && (says_so(&outcome.stderr) || says_so(&outcome.stdout))
}

/// The same for host-local alone.
fn refused(add: impl Fn() -> Outcome) {
    retried(add).refused(999, "no IP addresses available");
}

#[test]
fn a_full_range_allocates_the_address_of_a_container_that_has_exited() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    let [_stays, gone, _next] = ["stays", "left-its-lease", "next"].map(|id| lab.container(id));
    // Otherwise the second ADD starts a search in the background, which may release the lease later.
    configure(&lab, 1, &json!({"reuseStaleLeases": false}));
    ["stays", "left-its-lease"].iter().for_each(|id| assert!(add(&lab, id).succeeded()));
    gone.vanish();
    lab.host().wait_until("the pair is deleted", |host| host.ip("link show master br0").len() == 1);
    for keys in [json!({"reuseStaleLeases": false}), json!({"staleLeaseAge": 86400})] {
        configure(&lab, 1, &keys);
        refuses_next(&lab);
    }
    configure(&lab, 1, &json!({}));
    let added = adds(&lab, "next");
    let words = "stale lease 10.211.1.3 of container left-its-lease, interface eth0 is released: its network namespace /run/netns/left-its-lease is deleted";
    assert!(added.stderr.contains(words), "{added:#?}");
    assert_eq!(fs::read_to_string(format!("{STORE}/10.211.1.2")).unwrap(), "stays\r\neth0");
    assert_eq!(fs::read_to_string(format!("{STORE}/10.211.1.3")).unwrap(), "next\r\neth0");
}

/// The runtime has deleted the namespace's file, and a process is still in the namespace.
#[test]
fn a_container_whose_process_lives_on_keeps_its_address() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    let [_stays, hidden, _next] = ["stays", "lives-on", "next"].map(|id| lab.container(id));
    configure(&lab, 2, &json!({}));
    ["stays", "lives-on"].iter().for_each(|id| assert!(add(&lab, id).succeeded()));
    let process = sleeper(&lab, "lives-on");
    hidden.vanish();
    refuses_next(&lab);
    // The address is enough, and so is the container's id: runtimes use it in the names of cgroups and mounts.
    lab.host().sh(&format!("nsenter --net=/proc/{}/ns/net ip address flush dev eth0", process.id()));
    lab.host().sh("touch /run/lab/ns; unshare --net=/run/lab/ns true");
    fs::create_dir_all("/run/lab/names").unwrap();
    lab.host().sh("touch /run/lab/names/lives-on; mount --bind /run/lab/ns /run/lab/names/lives-on");
    refuses_next(&lab);
    lab.host().sh("umount /run/lab/names/lives-on");
    drop(process);
    lab.host().wait_until("the pair is deleted", |host| host.ip("link show master br0").len() == 1);
    adds(&lab, "next");
}

/// `ip netns add` and Podman bind /run/netns onto itself, with all namespaces in it. Their first mounts stay below, where no path leads.
#[test]
fn a_hidden_mount_of_a_namespace_does_not_keep_stale_leases_for_ever() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    let [_stays, gone, _next] = ["stays", "below-a-mount", "next"].map(|id| lab.container(id));
    configure(&lab, 7, &json!({}));
    ["stays", "below-a-mount"].iter().for_each(|id| assert!(add(&lab, id).succeeded()));
    lab.host().sh("mkdir /run/lab/below; touch /run/lab/below/ns; unshare --net=/run/lab/below/ns true
         mount -t tmpfs lab /run/lab/below");
    gone.vanish();
    lab.host().wait_until("the pair is gone", |host| host.ip("link show master br0").len() == 1);
    adds(&lab, "next");
    assert_eq!(fs::read_to_string(format!("{STORE}/10.211.7.3")).unwrap(), "next\r\neth0");
}

#[test]
fn a_lease_without_a_runtimes_cache_file_stays() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    let conf = ipam(3, &json!({}));
    let call = |id: &str| {
        let call = lab.plugin("host-local").config(json!({"ipam": conf}));
        call.env("CNI_CONTAINERID", id).env("CNI_NETNS", "/run/netns/of-nobody")
    };
    ["a", "b"].iter().for_each(|id| drop(call(id).add().ok_result()));
    refused(|| call("c").add());
    // Nor if its cache file is damaged, or contains no namespace.
    for note in ["{", r#"{"kind": "cniCacheV1", "containerId": "a", "ifName": "eth0", "networkName": "net"}"#]
    {
        fs::create_dir_all("/var/lib/cni/results").unwrap();
        fs::write("/var/lib/cni/results/net-a-eth0", note).unwrap();
        refused(|| call("c").add());
    }
    assert_eq!(leases(), ["10.211.3.2", "10.211.3.3"]);
}

/// A runtime restarts a container without a DEL.
#[test]
fn a_container_that_is_started_again_gets_an_address() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    let pod = lab.container("starts-again");
    configure(&lab, 4, &json!({}));
    assert!(add(&lab, "starts-again").succeeded());
    let second = retried(|| add(&lab, "starts-again"));
    assert!(!second.succeeded(), "it is alive: {second:#?}");
    pod.vanish();
    lab.host().wait_until("the pair is deleted", |host| host.ip("link show master br0").is_empty());
    // Another namespace with another name: the cache contains the former one.
    let _pod = lab.container("second-start");
    let tries = |keys: &Value| {
        configure(&lab, 4, keys);
        added(&lab, "second-start", "starts-again")
    };
    assert!(!retried(|| tries(&json!({"reuseStaleLeases": false}))).succeeded());
    let last = finds_stale(|| tries(&json!({})));
    assert!(last.succeeded(), "{last:#?}");
    assert_eq!(leases(), ["10.211.4.3"]);
}

/// As in [`Lab::plugin`], without a runtime. Nobody is in the namespace.
fn call(lab: &Lab, net: u8, id: &str) -> Call {
    let call = lab.plugin("host-local").config(json!({"ipam": ipam(net, &json!({}))}));
    call.env("CNI_CONTAINERID", id).env("CNI_NETNS", "/run/netns/of-nobody")
}

/// What a runtime records about an attachment.
fn record(network: &str, id: &str, netns: &str) {
    let entry = json!({"kind": "cniCacheV1", "containerId": id, "ifName": "eth0", "networkName": network, "netns": netns});
    fs::create_dir_all("/var/lib/cni/results").unwrap();
    fs::write(format!("/var/lib/cni/results/{network}-{id}-eth0"), entry.to_string()).unwrap();
}

/// A lease of a container whose namespace is deleted.
fn stale(address: &str, id: &str) {
    fs::create_dir_all(STORE).unwrap();
    fs::write(format!("{STORE}/{address}"), format!("{id}\r\neth0")).unwrap();
    record("net", id, "/run/netns/of-a-dead-one");
}

/// Leases both addresses of a network. Only the lease of the container, 10.211.NET.2, may be stale.
fn lease_all(lab: &Lab, net: u8, id: &str) {
    lab.claim_name(id);
    for id in [id, "other"] {
        call(lab, net, id).add().ok_result();
    }
    record("net", id, &format!("/run/netns/{id}"));
}

fn keeps_all(lab: &Lab, net: u8) {
    refused(|| call(lab, net, "next").add());
}

fn allocates_the_stale_one(lab: &Lab, net: u8) {
    let result = finds_stale(|| call(lab, net, "next").add()).ok_result();
    assert_eq!(result["ips"][0]["address"], format!("10.211.{net}.2/24"));
}

#[test]
fn a_container_whose_namespace_is_only_open_in_a_process_keeps_its_address() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    let pod = lab.container("only-open");
    pod.sh("ip address add 10.211.41.2/24 dev lo");
    lease_all(&lab, 41, "only-open");
    // This process is in another namespace, as a runtime is. The kernel shows the file by the path of the mount, and then as `/`.
    let descriptor = fs::File::open(pod.path()).unwrap();
    pod.vanish();
    keeps_all(&lab, 41);
    drop(descriptor);
    allocates_the_stale_one(&lab, 41);
}

/// The other threads of its process are in another namespace, and the process does not have this one open.
#[test]
fn a_container_with_only_a_thread_in_its_namespace_keeps_its_address() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    let pod = lab.container("only-a-thread");
    pod.sh("ip address add 10.211.44.2/24 dev lo");
    lease_all(&lab, 44, "only-a-thread");
    let ((enters, entered), (go_on, ends)) = (mpsc::channel(), mpsc::channel::<()>());
    thread::scope(|scope| {
        let namespace = pod.netns.clone();
        let wait_inside = move || {
            enters.send(()).unwrap();
            // Until the other end is dropped, also by a failed assertion.
            ends.recv().ok();
        };
        scope.spawn(move || namespace.run(wait_inside));
        entered.recv().unwrap();
        pod.vanish();
        keeps_all(&lab, 44);
        drop(go_on);
    });
    allocates_the_stale_one(&lab, 44);
}

/// For example, a backup has restored the file, or an administrator has touched it. No program can set the time of the last change (ctime).
#[test]
fn a_lease_whose_file_has_an_old_modification_time_is_as_young_as_its_last_change() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    lab.claim_name("touched-lease");
    // No ADD writes them: it would start a search in the background, for leases of any age.
    stale("10.211.45.2", "touched-lease");
    fs::write(format!("{STORE}/10.211.45.3"), "other\r\neth0").unwrap();
    lab.host().sh(&format!("touch -d '1 day ago' {STORE}/10.211.45.2"));
    let hour = json!({"ipam": ipam(45, &json!({"staleLeaseAge": 3600}))});
    refused(|| call(&lab, 45, "next").config(hour.clone()).add());
    allocates_the_stale_one(&lab, 45);
}

/// Some runtimes leave the file on which the namespace was mounted.
#[test]
fn a_container_whose_namespace_has_left_an_empty_file_has_exited() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    lease_all(&lab, 42, "left-a-file");
    fs::create_dir_all("/run/netns").unwrap();
    fs::write("/run/netns/left-a-file", "").unwrap();
    allocates_the_stale_one(&lab, 42);
}

/// For example because an administrator has added the address of a container that had exited.
#[test]
fn an_address_that_the_host_itself_has_is_not_allocated() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    // Before the leases: an ADD that takes the last address searches for stale leases in the background.
    lab.host().sh("ip address add 10.211.42.2/24 dev lo");
    lease_all(&lab, 42, "host-has-it");
    keeps_all(&lab, 42);
    lab.host().sh("ip address del 10.211.42.2/24 dev lo");
    allocates_the_stale_one(&lab, 42);
}

#[test]
fn a_container_keeps_its_address_while_a_plugin_is_running_for_it() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    let mut command = started_by("sleep", "600");
    command.env("CNI_CONTAINERID", "is-called");
    let plugin = in_background(lab.host(), command, Path::new("/dev/null"));
    let environment = format!("/proc/{}/environ", plugin.id());
    until("the program has its environment", || {
        fs::read_to_string(&environment).is_ok_and(|text| text.contains("CNI_CONTAINERID=is-called"))
    });
    lease_all(&lab, 43, "is-called");
    keeps_all(&lab, 43);
    drop(plugin);
    allocates_the_stale_one(&lab, 43);
}

/// Podman with `--userns` starts the container's process before ADD. Nomad names the namespace after the container.
#[test]
fn the_id_of_the_container_that_is_being_attached_does_not_keep_its_own_stale_lease() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    let _new = ["again", "other"].map(|id| lab.container(id));
    stale("10.211.6.2", "again");
    stale("10.211.6.3", "other");
    retried(|| call(&lab, 6, "next").add()).refused(999, "no IP addresses available");
    let result = finds_stale(|| call(&lab, 6, "again").add()).ok_result();
    assert_eq!(result["ips"][0]["address"], "10.211.6.2/24");
    assert_eq!(fs::read_to_string(format!("{STORE}/10.211.6.3")).unwrap(), "other\r\neth0");
}

/// For example Multus in a pod without hostPID.
#[test]
fn a_plugin_that_does_not_see_the_hosts_processes_releases_no_lease() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    let pod = lab.container("runs-unseen");
    let process = sleeper(&lab, "runs-unseen");
    pod.sh("ip address add 10.211.9.2/24 dev lo");
    pod.vanish();
    for id in ["runs-unseen", "other"] {
        call(&lab, 9, id).add().ok_result();
    }
    record("net", "runs-unseen", &format!("/proc/{}/ns/net", process.id()));
    let child_of = |first: &str| {
        let under = ["unshare", "--pid", "--fork", "--mount-proc", first, "-c", r#""$0"; exit $?"#];
        call(&lab, 9, "next").under(&under.map(str::to_owned))
    };
    let added = child_of("sh").add();
    added.refused(999, "no IP addresses available");
    assert!(added.stderr.contains("cannot examine all network namespaces"), "{added:#?}");
    drop(process);
    child_of("sh").add().refused(999, "no IP addresses available");
    // A machine in a PID namespace, such as a node of kind.
    lab.host().sh("cp /bin/sh /run/lab/systemd");
    let result = finds_stale(|| child_of("/run/lab/systemd").add()).ok_result();
    assert_eq!(result["ips"][0]["address"], "10.211.9.2/24");
}

/// One of them releases the leases. The searches of the others then find none.
#[test]
fn concurrent_adds_on_a_range_full_of_stale_leases_all_get_an_address() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.211.30.0/28"}]], "staleLeaseAge": 0});
    (2..15).for_each(|host| lab.claim_name(&format!("expired{host}")));
    let adds = || -> Vec<Outcome> {
        fs::remove_dir_all(STORE).ok();
        (2..15).for_each(|host| stale(&format!("10.211.30.{host}"), &format!("expired{host}")));
        let calls: Vec<_> =
            (0..4).map(|n| call(&lab, 30, &format!("new{n}")).config(json!({"ipam": ipam}))).collect();
        thread::scope(|scope| {
            let running: Vec<_> = calls.iter().map(|call| scope.spawn(|| call.add())).collect();
            running.into_iter().map(|add| add.join().unwrap()).collect()
        })
    };
    let all = (0..30).map(|_| adds()).find(|all| !all.iter().any(is_unsure)).unwrap_or_else(adds);
    for added in all {
        assert!(added.succeeded(), "{added:#?}");
    }
}

/// At 90 %, the ADD starts a process without waiting for it.
#[test]
fn stale_leases_are_released_in_the_background_before_the_range_is_full() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    let log = syslog(&lab);
    let pods: Vec<_> = (0..9).map(|i| lab.container(&format!("early{i}"))).collect();
    let last = json!([[{"subnet": "10.211.5.0/24", "rangeStart": "10.211.5.2", "rangeEnd": "10.211.5.11"}]]);
    configure(&lab, 5, &json!({"ranges": last}));
    (0..8).for_each(|i| assert!(add(&lab, &format!("early{i}")).succeeded()));
    pods[3].vanish();
    lab.host().wait_until("the pair is deleted", |host| host.ip("link show master br0").len() == 7);
    assert_eq!(leases().len(), 8);
    let looked = format!("{STORE}/.looked");
    assert!(!fs::exists(&looked).unwrap(), "80 % are no reason to look");
    assert!(add(&lab, "early8").succeeded());
    assert!(fs::exists(&looked).unwrap());
    let is_released = || !leases().contains(&"10.211.5.5".to_owned());
    // Other tests' namespaces may interfere, and then the next search is ten minutes later.
    for _ in 0..10 {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !is_released() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        if is_released() {
            break;
        }
        fs::remove_file(&looked).ok();
        lab.cnitool().says("del net early0 --container-id early0");
        assert!(add(&lab, "early0").succeeded());
    }
    assert!(is_released(), "{:?}", leases());
    assert_eq!(leases().len(), 8);
    // Nobody reads stderr of a process in the background.
    let mut line = [0; 1024];
    let count = log.recv(&mut line).expect("a line in the host's log");
    let line = String::from_utf8_lossy(&line[..count]);
    let words = "network net: stale lease 10.211.5.5 of container early3, interface eth0 is released: ";
    assert!(line.starts_with("<29>host-local[") && line.contains(words), "{line}");

    let time_of_search = || fs::metadata(&looked).unwrap().modified().unwrap();
    let last = time_of_search();
    let _ninth = lab.container("early9");
    assert!(add(&lab, "early9").succeeded() && leases().len() == 9);
    assert_eq!(time_of_search(), last, "the next search is ten minutes later");
}

/// The host's log, in a private /dev.
fn syslog(lab: &Lab) -> UnixDatagram {
    lab.private_dir("/dev/lab");
    fs::remove_file("/dev/log").ok();
    let log = UnixDatagram::bind("/dev/log").unwrap();
    log.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    log
}

fn after_a_reboot(call: &Call) -> Call {
    call.clone().under(&common::after_a_reboot())
}

/// Leases whose containers' files in the cache a loss of power has truncated.
struct Torn<'a>(&'a Lab);

impl Torn<'_> {
    fn call(&self, id: &str) -> Call {
        call(self.0, 8, id)
    }

    fn add_all(&self) {
        self.0.claim_name("torn-lease");
        fs::create_dir_all("/var/lib/cni/results").unwrap();
        for id in ["torn-lease", "today"] {
            self.call(id).add().ok_result();
            fs::write(format!("/var/lib/cni/results/net-{id}-eth0"), "").unwrap();
        }
        self.0.host().sh("touch -d '10 minutes ago' /var/lib/cni/results/net-torn-lease-eth0");
    }

    /// A file that was written after the reboot may be of a container that is starting. Its time is in the future, so that a slow machine
    /// does not make it old.
    fn keeps_only_the_files_of_today(&self) {
        self.0.host().sh("touch -d '1 hour' /var/lib/cni/results/net-today-eth0");
        // The machine may have started a minute ago.
        refused(|| self.call("next").under(&started_earlier(3600)).add());
        let next = |id: &str| after_a_reboot(&self.call(id));
        let result = finds_stale(|| next("next").add()).ok_result();
        assert_eq!(result["ips"][0]["address"], "10.211.8.2/24");
        refused(|| next("more").add());
        assert_eq!(fs::read_to_string(format!("{STORE}/10.211.8.3")).unwrap(), "today\r\neth0");
    }
}

/// A runtime that creates the namespace of a container at the same path after each boot, such as Nomad.
struct SamePath<'a>(&'a Lab);

impl SamePath<'_> {
    fn call(&self, id: &str) -> Call {
        call(self.0, 40, id).config(json!({"name": "same"}))
    }

    fn add_all(&self) {
        for id in ["same", "running"] {
            self.call(id).add().ok_result();
            record("same", id, &format!("/run/netns/{id}"));
            let namespace = self.0.container(id);
            if id == "running" {
                namespace.sh("ip address add 10.211.40.3/24 dev lo");
            }
        }
    }

    fn gives_the_container_and_no_other_its_address(&self) {
        let next = |id: &str| after_a_reboot(&self.call(id));
        retried(|| next("next").add()).refused(999, "no IP addresses available");
        retried(|| next("running").add()).refused(7, "duplicate allocation is not allowed");
        self.call("same").add().refused(7, "duplicate allocation is not allowed");
        let result = finds_stale(|| next("same").add()).ok_result();
        assert_eq!(result["ips"][0]["address"], "10.211.40.2/24");
    }
}

/// No release of the reference records the boot id or drops leases, so each lease needs its own proof.
#[test]
fn leases_from_before_a_reboot_are_stale_unless_their_containers_are_found() {
    beyond_reference!("stale-leases");
    let lab = Lab::new();
    if !fs::exists("/proc/self/ns/time").unwrap() {
        return lab::skip("the kernel has no time namespaces");
    }
    let releases = Release::with("host-local");
    lab.claim_name("before-boot");
    let conf = |net: u8, keys: &Value| json!({"name": format!("net{net}"), "ipam": ipam(net, keys)});
    let call = |net: u8, id: &str, keys: &Value| {
        let call = lab.plugin("host-local").config(conf(net, keys));
        call.env("CNI_CONTAINERID", id).env("CNI_NETNS", "/run/netns/of-nobody")
    };
    let torn = Torn(&lab);
    let nets: Vec<u8> = (0..releases.len()).map(|i| 10 + u8::try_from(i).unwrap()).collect();
    for (net, release) in nets.iter().zip(&releases) {
        for id in ["alive", "before-boot"] {
            call(*net, id, &json!({})).by_release(*release).add().ok_result();
        }
        let pod = lab.container(&format!("alive{net}"));
        pod.sh(&format!("ip address add 10.211.{net}.2/24 dev lo"));
        // With or without a reboot, the reference keeps all leases.
        let refused = after_a_reboot(&call(*net, "next", &json!({}))).by_release(*release).add();
        assert!(refused.stdout.contains("no IP addresses available"), "{refused:#?}");
    }
    torn.add_all();
    let same_path = SamePath(&lab);
    same_path.add_all();
    // A younger lease may be of a container that is starting.
    thread::sleep(Duration::from_secs(63));
    torn.keeps_only_the_files_of_today();
    same_path.gives_the_container_and_no_other_its_address();
    for net in nets {
        let next = |keys: &Value| after_a_reboot(&call(net, "next", keys));
        refused(|| call(net, "next", &json!({})).add());
        for keys in [json!({"resetOnReboot": false}), json!({"staleLeaseAge": 86400})] {
            refused(|| next(&keys).add());
        }
        let result = finds_stale(|| next(&json!({})).add()).ok_result();
        assert_eq!(result["ips"][0]["address"], format!("10.211.{net}.3/24"));
        let lease =
            |host: u8| fs::read_to_string(format!("/var/lib/cni/networks/net{net}/10.211.{net}.{host}"));
        assert_eq!(lease(2).unwrap(), "alive\r\neth0");
        assert_eq!(lease(3).unwrap(), "next\r\neth0");
        // The reference finds both, and releases them.
        for id in ["alive", "next"] {
            call(net, id, &json!({})).by_release(releases[usize::from(net - 10)]).del().ok();
            assert!(lease(if id == "alive" { 2 } else { 3 }).is_err());
        }
    }
}
