//! Faults and the system calls that they hit. The calls are from a traced run without faults.

use std::collections::{HashMap, HashSet};
use std::fmt;

use lab::under_test;

/// A system call of a run: the `nth` of its name, counted from 1 as by strace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Syscall {
    pub name: String,
    pub nth: u32,
}

/// What happens instead of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Error(&'static str),
    Signal(&'static str),
}

/// One run of a sweep: one fault at one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub at: Syscall,
    pub fault: Fault,
}

impl Case {
    /// The value of strace's `-e`.
    pub(crate) fn injection(&self) -> String {
        let Syscall { name, nth } = &self.at;
        match self.fault {
            Fault::Error(errno) => format!("inject={name}:error={errno}:when={nth}"),
            Fault::Signal(signal) => format!("inject={name}:signal={signal}:when={nth}"),
        }
    }

    /// Whether a run's trace shows that the fault happened.
    pub(crate) fn happened_in(&self, trace: &str) -> bool {
        match self.fault {
            Fault::Error(_) => trace.contains("(INJECTED)"),
            Fault::Signal(_) => trace.contains("+++ killed by SIG"),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Fault::Error(what) | Fault::Signal(what)) = self.fault;
        write!(f, "{what} at {} {}", self.at.name, self.at.nth)
    }
}

/// Whether a line of a trace starts the plugin's own work: reading its configuration. cnitool does the same, and dhcp's
/// daemon looks for its directory. Everything before is the start of libc and of the language's runtime: if that fails,
/// there is nothing to roll back.
fn is_beginning(line: &str) -> bool {
    ["read(0,", "\"/etc/cni/net.d\"", "\"/run/cni/dhcp"].iter().any(|mark| line.contains(mark))
}

/// The plugin's own calls, in the order of a trace. Calls with the same name and count in several threads or processes
/// are one: strace counts for each of them, and injects into all. With `fed`, two kinds are left out, because the
/// iptables tools do not check them. Reads of stdin, a pipe, never fail, and the tools treat a failure as its end. If
/// the kernel does not answer which revision of a match or target it has, the tools use an older revision. The rule has
/// the same effect, but a check for the newer one does not find it.
pub fn own_calls(trace: &str, fed: bool) -> Vec<Syscall> {
    let mut counts: HashMap<(&str, &str), u32> = HashMap::new();
    let (mut begun, mut seen, mut calls) = (false, HashSet::new(), Vec::new());
    // For each process: the calls on its newest socket, and whether that asks for a revision.
    let mut sockets: HashMap<&str, (Vec<Syscall>, bool)> = HashMap::new();
    let mut left_out = HashSet::new();
    for line in trace.lines() {
        let (pid, name) = match line.split_once('(').map(|(head, _)| head.trim_end()) {
            Some(head) => head.rsplit_once(' ').unwrap_or(("", head)),
            None => continue,
        };
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            continue;
        }
        let nth = counts.entry((pid, name)).or_default();
        *nth += 1;
        begun |= is_beginning(line);
        let call = Syscall { name: name.to_owned(), nth: *nth };
        if fed {
            let (calls, asks_revision) = sockets.entry(pid).or_default();
            match name {
                "socket" => (*calls, *asks_revision) = (vec![call.clone()], false),
                "close" => (*calls, *asks_revision) = (Vec::new(), false),
                _ => calls.push(call.clone()),
            }
            *asks_revision |= line.contains("COMPAT_GET");
            if *asks_revision {
                left_out.extend(calls.drain(..));
            }
        }
        if fed && line.contains("read(0,") {
            continue;
        }
        // Calls before the start count too: hitting a later thread's call with the same count would hit the start.
        if seen.insert(call.clone()) && begun && !is_of_a_runtime(name) {
            calls.push(call);
        }
    }
    // In any of the processes, because all are hit.
    calls.retain(|call| !left_out.contains(call));
    calls
}

/// The plugin's own calls after the failed one, mostly those of its rollback. Without writes to the
/// descriptor of its answer: it cannot report that they fail.
pub(crate) fn calls_after_fault(trace: &str, answer: u8) -> Vec<Syscall> {
    let Some(fault) = trace.find("(INJECTED)") else { return Vec::new() };
    let (before, answers) = (own_calls(&trace[..fault], false), writes_to(answer, trace));
    let mut calls = own_calls(trace, false);
    calls.retain(|call| !before.contains(call) && !answers.contains(call));
    calls
}

/// The writes to a descriptor in a trace of one process.
fn writes_to(descriptor: u8, trace: &str) -> Vec<Syscall> {
    let start = format!("write({descriptor},");
    let writes = trace.lines().filter(|line| line.starts_with("write("));
    let numbered = (1..).zip(writes).filter(|(_, line)| line.starts_with(&start));
    numbered.map(|(nth, _)| Syscall { name: "write".to_owned(), nth }).collect()
}

/// Calls of Go's scheduler and memory management. If they fail, Go ends the process on purpose, so no case makes them
/// fail.
fn is_of_a_runtime(name: &str) -> bool {
    const GO: &str = "arch_prctl brk clone clone3 epoll_create1 epoll_ctl epoll_pwait futex getpid gettid madvise \
        mmap mprotect munmap nanosleep prctl rseq rt_sigaction rt_sigprocmask rt_sigreturn sched_yield \
        set_robust_list sigaltstack tgkill";
    under_test().reference && GO.split(' ').any(|call| call == name)
}

/// Whether the reference would wait for a minute, or forever: Go reads when epoll(7) reports an edge. A read that then fails
/// with EAGAIN, which Linux does not do, waits for another edge.
fn is_waited_for(case: &Case) -> bool {
    let is_read = ["read", "recvfrom", "recvmsg"].contains(&&*case.at.name);
    under_test().reference && is_read && case.fault == Fault::Error("EAGAIN")
}

/// Every error that a call can return, at every call.
pub fn faults(calls: &[Syscall]) -> Vec<Case> {
    let cases = calls.iter().flat_map(|at| {
        errors(&at.name).iter().map(|errno| Case { at: at.clone(), fault: Fault::Error(errno) })
    });
    cases.filter(|case| !is_waited_for(case)).collect()
}

/// Both signals at every call.
pub fn kills(calls: &[Syscall]) -> Vec<Case> {
    let signals = ["SIGKILL", "SIGTERM"].map(Fault::Signal);
    calls.iter().flat_map(|at| signals.map(|fault| Case { at: at.clone(), fault })).collect()
}

/// The errors that a call can return.
fn errors(name: &str) -> &'static [&'static str] {
    match name {
        // They fail only for invalid arguments (sigprocmask(2), sigaction(2)), and libc does not check them.
        "gettid" | "getpid" | "rt_sigaction" | "rt_sigprocmask" | "rt_sigreturn" | "tkill" | "tgkill" => &[],
        "rt_sigtimedwait" => &["EINTR", "EAGAIN"],
        // A sleep with valid arguments is only interrupted (clock_nanosleep(2)). restart_syscall(2) continues it.
        "clock_nanosleep" | "nanosleep" | "restart_syscall" => &["EINTR"],
        // A descriptor is closed even if close(2) reports a failure. An injected failure would leave it open, which no
        // kernel does. The others do not return.
        "close" | "execve" | "exit" | "exit_group" => &[],
        "open" | "openat" => &["EMFILE", "EPERM", "EIO", "ENOMEM", "EINTR", "ENOSPC"],
        "read" | "pread64" => &["EIO", "EINTR", "EAGAIN", "ENOMEM"],
        "recvmsg" | "recvfrom" => &["ENOBUFS", "EINTR", "EAGAIN", "ENOMEM"],
        "write" | "pwrite64" => &["ENOSPC", "EIO", "EINTR", "EPERM"],
        "sendto" | "sendmsg" => &["ENOBUFS", "ENOMEM", "EPERM", "EINTR", "EAGAIN", "EEXIST"],
        "socket" | "pipe2" | "dup" | "dup2" => &["EMFILE", "ENOMEM", "EPERM"],
        "mkdir" | "mkdirat" | "rename" | "renameat" | "renameat2" | "unlink" | "unlinkat" | "ftruncate"
        | "utimensat" => &["ENOSPC", "EIO", "EPERM", "EEXIST"],
        "getdents64" | "stat" | "lstat" | "fstat" | "newfstatat" | "statx" | "fstatfs" => {
            &["EIO", "ENOMEM", "EPERM"]
        }
        "mmap" | "brk" | "mprotect" | "munmap" | "mremap" => &["ENOMEM"],
        "clone" | "fork" | "vfork" => &["EAGAIN", "ENOMEM", "EPERM"],
        _ => &["ENOMEM", "EPERM", "EINTR", "EAGAIN"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, nth: u32) -> Syscall {
        Syscall { name: name.to_owned(), nth }
    }

    #[test]
    fn calls_are_counted_from_the_start_and_listed_from_where_the_configuration_is_read() {
        let trace = "execve(\"/bin/x\", [\"x\"], 0x7f /* 4 vars */) = 0\nmmap(NULL) = 0x7f\nread(0, \"{}\", 8) = 2\n\
                     --- SIGCHLD {si_signo=SIGCHLD (x)} ---\nmmap(NULL) = 0x7f\nread(3, \"\", 8) = 0\n+++ exited with 0 +++\n";
        assert_eq!(own_calls(trace, false), [call("read", 1), call("mmap", 2), call("read", 2)]);
        assert_eq!(own_calls(trace, true), [call("mmap", 2), call("read", 2)]);
    }

    #[test]
    fn requests_for_a_revision_are_left_out_with_fed_input() {
        let trace = "8 read(0, \"{}\", 8) = 2\n8 socket(AF_NETLINK) = 5\n8 sendto(5, [{NFNL_MSG_COMPAT_GET}], 48) = 48\n\
                     8 recvmsg(5, {}) = 76\n8 close(5) = 0\n8 socket(AF_NETLINK) = 5\n8 sendto(5, [{GETGEN}], 20) = 20\n\
                     8 recvmsg(5, {}) = 20\n9 recvmsg(3, {}) = 20\n";
        let rest = [call("close", 1), call("socket", 2), call("sendto", 2), call("recvmsg", 2)];
        assert_eq!(own_calls(trace, true), rest);
        assert_eq!(own_calls(trace, false)[3], call("recvmsg", 1));
    }

    #[test]
    fn the_rollback_is_everything_after_the_fault() {
        let trace = "read(0, \"{}\", 8) = 2\nsendto(3) = 8\nsendto(3) = -1 EPERM (INJECTED)\nsendto(3) = 8\nunlink(\"a\") = 0\n";
        assert_eq!(calls_after_fault(trace, 1), [call("sendto", 3), call("unlink", 1)]);
    }

    #[test]
    fn the_writes_of_the_answer_are_not_of_the_rollback() {
        let trace = "read(0, \"{}\", 8) = 2\nwrite(3, \"a\", 1) = -1 EIO (INJECTED)\nwrite(4, \"b\", 1) = 1\n\
                     write(1, \"{\\n\", 2) = 2\n";
        assert_eq!(calls_after_fault(trace, 1), [call("write", 2)]);
    }

    #[test]
    fn threads_are_counted_separately_without_calls_that_the_start_has_too() {
        let trace = "12 open(\"a\") = 3\n12 read(0, \"\", 8) = 2\n13 open(\"a\" <unfinished ...>\n12 open(\"b\") = 4\n\
                     13 <... open resumed>) = 5\n";
        assert_eq!(own_calls(trace, false), [call("read", 1), call("open", 2)]);
    }
}
