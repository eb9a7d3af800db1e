//! Kernels from Linux 4.18 on, and sandboxes whose filter of system calls knows no newer ones: each call and each socket
//! option that came later is refused, as these do it, and every command works without.

use std::collections::BTreeSet;
use std::fs;

use faults::{Services, Target};
use lab::{Call, Lab, Outcome, beyond_reference};
use serde_json::Value;

/// The system calls that have come since Linux 4.18 (`syscall_64.tbl`), as far as a program of any kind may use them, and `statx`
/// (4.11): container engines from before 2018 refuse it.
const NEWER: [&str; 33] = [
    "statx",
    "cachestat",
    "clone3",
    "close_range",
    "epoll_pwait2",
    "faccessat2",
    "fchmodat2",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "futex_wait",
    "futex_waitv",
    "futex_wake",
    "getxattrat",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "landlock_create_ruleset",
    "listmount",
    "memfd_secret",
    "mount_setattr",
    "move_mount",
    "mseal",
    "open_tree",
    "openat2",
    "pidfd_getfd",
    "pidfd_open",
    "pidfd_send_signal",
    "process_madvise",
    "process_mrelease",
    "quotactl_fd",
    "statmount",
];

/// What a netlink socket is asked for that came later (4.20). Without it the kernel filters nothing of what it lists.
const OPTION: &str = "NETLINK_GET_STRICT_CHK";

/// Where a run is written down.
const TRACE: &str = "/run/lab/plugins/trace";

const COMMANDS: [&str; 5] = ["ADD", "CHECK", "GC", "STATUS", "DEL"];

/// A plugin's commands, one after the other, on the container of a machine of its own.
struct Scene {
    _services: Services,
    _lab: Lab,
    call: Call,
    what: String,
}

impl Scene {
    fn new(target: &Target) -> Self {
        let lab = Lab::new();
        let (services, pod) = (target.prepare(&lab), lab.container("pod"));
        services.plug(&pod);
        let call = target.call(&pod);
        Self { _services: services, _lab: lab, call, what: target.title() }
    }

    /// Runs all commands with strace's arguments, and gives the lines of each one's trace.
    fn run(&self, arguments: &[&str]) -> [Vec<String>; COMMANDS.len()] {
        let mut prev = Value::Null;
        COMMANDS.map(|command| {
            let outcome = run(&traced(&self.call, arguments), command, &prev);
            assert!(outcome.succeeded(), "{}, {command} with {arguments:?}: {outcome:#?}", self.what);
            if command == "ADD" {
                prev = outcome.ok_result();
            }
            fs::read_to_string(TRACE).unwrap().lines().map(str::to_owned).collect()
        })
    }

    /// Runs a command in which the nth option of a socket is unknown, between an ADD and a DEL as usual.
    fn refuse(&self, command: &str, nth: usize) {
        let inject = format!("inject=setsockopt:error=ENOPROTOOPT:when={nth}");
        let refused = traced(&self.call, &["-e", &inject]);
        let prev = if command == "ADD" { Value::Null } else { self.call.add().ok_result() };
        let outcome = run(&refused, command, &prev);
        assert!(outcome.succeeded(), "{}, {command} with {inject}: {outcome:#?}", self.what);
        if command == "ADD" {
            self.call.check(&outcome.ok_result()).ok();
        }
        self.call.del().ok();
    }
}

/// A call under strace.
fn traced(call: &Call, arguments: &[&str]) -> Call {
    let argv = ["strace", "-f", "-qq", "-o", TRACE].iter().chain(arguments);
    call.clone().under(&argv.map(ToString::to_string).collect::<Vec<_>>())
}

fn run(call: &Call, command: &str, prev: &Value) -> Outcome {
    match command {
        "CHECK" => call.check(prev),
        "GC" => call.gc(&[("pod", "eth0")]),
        "STATUS" => call.status(),
        _ => call.run(command),
    }
}

/// `12 openat(AT_FDCWD, ...) = 3`: the process, the call's name, and the rest.
fn parts(line: &str) -> Option<(&str, &str, &str)> {
    let (head, rest) = line.split_once('(')?;
    let (process, name) = head.rsplit_once(' ')?;
    Some((process.trim(), name, rest))
}

#[test]
fn every_system_call_that_came_after_linux_4_18_can_be_done_without() {
    beyond_reference!("nothing-left");
    let mut tried = BTreeSet::new();
    for target in Target::plugins() {
        let scene = Scene::new(&target);
        let traces = scene.run(&[]).concat();
        let calls: BTreeSet<&str> = traces.iter().filter_map(|line| Some(parts(line)?.1)).collect();
        for name in NEWER.iter().filter(|name| calls.contains(**name)) {
            tried.insert(*name);
            for errno in ["ENOSYS", "EPERM"] {
                scene.run(&["-e", &format!("inject={name}:error={errno}")]);
            }
        }
    }
    assert!(tried.contains("pidfd_open"), "who starts others watches over them: {tried:?}");
}

#[test]
fn a_kernel_that_does_not_check_requests_strictly_and_filters_no_lists_is_enough() {
    beyond_reference!("nothing-left");
    let mut tried = 0;
    for target in Target::plugins() {
        let scene = Scene::new(&target);
        for (command, trace) in COMMANDS.iter().zip(scene.run(&[])) {
            let calls: Vec<_> = trace.iter().filter_map(|line| parts(line)).collect();
            let own = calls.iter().filter(|(pid, name, _)| *pid == calls[0].0 && *name == "setsockopt");
            for (nth, _) in own.enumerate().filter(|(_, (.., rest))| rest.contains(OPTION)) {
                scene.refuse(command, nth + 1);
                tried += 1;
            }
        }
    }
    assert!(tried > 0, "the plugins ask for {OPTION}");
}
