//! Counts a process's system calls and started programs, and measures its memory.
//!
//! It uses ptrace(2), because `ru_maxrss` of wait4(2) includes the resident set of the process that forked.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use lab::Call;
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::process::{Cost, Spent};

/// The process waits until it is traced. Then it executes the plugin.
const GATE: &str = "read -r go; exec \"$0\"";

/// Runs a call's process under the tracer. The second value is its stdout.
#[expect(clippy::zombie_processes, reason = "the tracer waits for it")]
pub fn traced(call: &Call) -> (Spent, String) {
    let plugin = call.process();
    let env = plugin.get_envs().filter_map(|(key, value)| Some((key, value?)));
    let mut child = Command::new("/bin/sh")
        .args(["-c", GATE])
        .arg(plugin.get_program())
        .env_clear()
        .envs(env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start a shell");
    let root = Pid::from_raw(child.id().cast_signed());
    ptrace::seize(root, options()).expect("trace a plugin");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(&[b"go\n", call.input().as_slice()].concat()).ok();
    drop(stdin);
    let (cost, exit) = follow(root);
    let mut output = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut output).expect("read a plugin's output");
    let failures = if exit == 0 { vec![] } else { vec![output.clone()] };
    (Spent { cost, failures, ..Spent::default() }, output)
}

fn options() -> Options {
    Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACEEXIT
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
}

/// Traces the process and its descendants, from the plugin's execve(2) to its exit.
fn follow(root: Pid) -> (Cost, i32) {
    let mut cost = Cost::default();
    loop {
        match waitpid(None, Some(WaitPidFlag::__WALL)).expect("wait for a traced process") {
            WaitStatus::Exited(pid, exit) if pid == root => return (cost, exit),
            WaitStatus::Signaled(pid, signal, _) if pid == root => return (cost, 128 + signal as i32),
            WaitStatus::PtraceSyscall(pid) => {
                cost.system_calls += u64::from(is_entry(pid));
                go_on(pid, None);
            }
            WaitStatus::PtraceEvent(pid, _, event) => {
                match event {
                    // Everything before was the shell.
                    libc::PTRACE_EVENT_EXEC if pid == root => cost = Cost { programs: 1, ..Cost::default() },
                    libc::PTRACE_EVENT_EXEC => cost.programs += 1,
                    libc::PTRACE_EVENT_EXIT => cost.peak = cost.peak.max(peak(pid)),
                    _ => {}
                }
                go_on(pid, None);
            }
            WaitStatus::Stopped(pid, signal) => go_on(pid, Some(signal)),
            _ => {}
        }
    }
}

fn is_entry(pid: Pid) -> bool {
    ptrace::syscall_info(pid).is_ok_and(|info| info.op == libc::PTRACE_SYSCALL_INFO_ENTRY)
}

fn go_on(pid: Pid, signal: Option<Signal>) {
    match ptrace::syscall(pid, signal) {
        // The process was killed with its thread group.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(e) => panic!("continue process {pid}: {e}"),
    }
}

/// The peak resident set in KiB, read just before the process exits.
fn peak(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}
