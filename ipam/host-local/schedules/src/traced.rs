//! A traced process that stops before each step.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::step::Step;

/// State of a process.
#[derive(Clone, Debug)]
pub enum At {
    /// Stopped before a step.
    Step(Step),
    Exited(i32),
    Killed,
}

/// A process traced by the thread that started it. Only this thread may control it.
#[derive(Debug)]
pub struct Traced {
    pid: Pid,
    child: Child,
    root: PathBuf,
    at: At,
}

impl Traced {
    /// Starts a program and runs it to its first step. The program must read all of stdin before it touches `root`.
    pub fn start(mut command: Command, input: &[u8], root: &Path) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("start a process to be traced");
        let pid = Pid::from_raw(child.id().cast_signed());
        // The process blocks in reading stdin until it is traced.
        ptrace::seize(pid, Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL).expect("trace it");
        ptrace::interrupt(pid).expect("stop it");
        wait(pid);
        let mut stdin = child.stdin.take().expect("a piped stdin");
        stdin.write_all(input).expect("write the input into the pipe");
        drop(stdin);
        let mut traced = Self { pid, child, root: root.to_owned(), at: At::Killed };
        traced.step();
        traced
    }

    pub fn at(&self) -> &At {
        &self.at
    }

    /// Performs the step, and runs to the next one.
    pub fn step(&mut self) {
        // Stops come in pairs: at the entry and at the exit of a system call. If the process is at an entry, the exit
        // is next.
        let mut inside = matches!(self.at, At::Step(_));
        let mut signal = None;
        self.at = loop {
            ptrace::syscall(self.pid, signal.take()).expect("let it go on");
            match wait(self.pid) {
                WaitStatus::PtraceSyscall(_) => {
                    inside = !inside;
                    if let Some(step) = inside.then(|| Step::of(self.pid, &self.root)).flatten() {
                        break At::Step(step);
                    }
                }
                WaitStatus::Stopped(_, other) => signal = Some(other),
                WaitStatus::Exited(_, code) => break At::Exited(code),
                WaitStatus::Signaled(..) => break At::Killed,
                _ => {}
            }
        };
    }

    /// Kills the process before its step.
    pub fn kill(&mut self) {
        if matches!(self.at, At::Step(_)) {
            kill(self.pid, Signal::SIGKILL).expect("kill it");
            while !matches!(wait(self.pid), WaitStatus::Signaled(..)) {}
            self.at = At::Killed;
        }
    }

    /// The output on stdout.
    pub fn output(&mut self) -> String {
        let mut text = String::new();
        let stdout = self.child.stdout.as_mut().expect("a piped stdout");
        stdout.read_to_string(&mut text).expect("read what it wrote");
        text
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.kill();
    }
}

fn wait(pid: Pid) -> WaitStatus {
    waitpid(pid, Some(WaitPidFlag::__WALL)).expect("wait for a traced process")
}
