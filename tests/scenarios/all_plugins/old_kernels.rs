//! Kernels since Linux 4.18, and seccomp filters that know no newer system calls. Each newer call and socket option is
//! refused in the same way, and every command works nevertheless.

use std::collections::BTreeSet;
use std::fs;

use faults::{Disk, EnvFault, EnvSweep, Services, Target, Trial};
use lab::{Call, Lab, Outcome, Sample, beyond_reference};
use serde_json::Value;

/// The system calls added since Linux 4.18 (`syscall_64.tbl`) that a program may use, and `statx` (4.11), which
/// container engines from before 2018 refuse.
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

/// A newer socket option (4.20). Without it, the kernel does not filter its lists.
const OPTION: &str = "NETLINK_GET_STRICT_CHK";

/// A program that starts another one, for which the kernel never has this option.
const WITHOUT_OPTION: &str = include_str!("without_strict_checks.py");

/// The trace of a run.
const TRACE: &str = "/run/lab/plugins/trace";

const COMMANDS: [&str; 5] = ["ADD", "CHECK", "GC", "STATUS", "DEL"];

/// A plugin's commands in sequence, on a container of a separate machine.
struct Scene {
    services: Services,
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
        Self { services, _lab: lab, call, what: target.title() }
    }

    /// Runs all commands with strace's arguments, and returns the lines of each trace.
    fn run(&self, arguments: &[&str]) -> [Vec<String>; COMMANDS.len()] {
        let mut prev = Value::Null;
        self.services.restore();
        COMMANDS.map(|command| {
            let outcome = run(&traced(&self.call, arguments), command, &prev);
            assert!(outcome.succeeded(), "{}, {command} with {arguments:?}: {outcome:#?}", self.what);
            if command == "ADD" {
                prev = outcome.ok_result();
            }
            fs::read_to_string(TRACE).unwrap().lines().map(str::to_owned).collect()
        })
    }

    /// Runs a command between a normal ADD and DEL. The nth setsockopt(2) is refused.
    fn refuse(&self, command: &str, nth: usize) {
        self.services.restore();
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
    // dnsname starts a server, which stays: strace would wait for it.
    let detach: &[&str] = if call.plugin() == "dnsname" { &["--detach-on=execve"] } else { &[] };
    let argv = ["strace", "-f", "-qq", "-o", TRACE].iter().chain(detach).chain(arguments);
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
fn no_system_call_newer_than_linux_4_18_is_required() {
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

/// In a kernel that never filters its lists, each list contains the objects of other attachments.
#[test]
fn without_strict_checks_every_command_succeeds_and_keeps_the_objects_of_other_attachments() {
    beyond_reference!("nothing-left");
    let starter = ["python3", "-c", WITHOUT_OPTION];
    let lab = Lab::new();
    let pod = lab.container("pod");
    let trace = ["strace", "-qq", "-o", TRACE, "-e", "trace=setsockopt"];
    let words: Vec<_> = trace.iter().chain(&starter).map(ToString::to_string).collect();
    lab.plugin("loopback").on(&pod).under(&words).add().ok_result();
    let trace = fs::read_to_string(TRACE).unwrap();
    let mut requests = trace.lines().filter(|line| line.contains(OPTION)).peekable();
    assert!(requests.peek().is_some() && requests.all(|line| line.contains("ENOPROTOOPT")), "{trace}");
    drop(lab);

    let fault = || EnvFault {
        vary: Box::new(move |call| call.under(&starter.map(str::to_owned))),
        spares: &faults::COMMANDS,
        ..EnvFault::new("old kernel", format!("without {OPTION}"))
    };
    let trial = |target| Trial { target, disk: Disk::Memory, faults: vec![fault()] };
    let trials = Target::plugins().into_iter().map(trial).collect();
    EnvSweep { trials, sample: Sample::WHOLE, workers: 2 }.run(|_| {}).assert_clean(15);
}
