//! A process that stops before each step.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::step::Step;

/// Where a process stands.
#[derive(Clone, Debug)]
pub enum At {
    /// Stopped, and about to take it.
    Step(Step),
    Exited(i32),
    Killed,
}

/// A process under the eyes of the thread that started it, which alone may command it.
#[derive(Debug)]
pub struct Traced {
    pid: Pid,
    child: Child,
    root: PathBuf,
    at: At,
}

impl Traced {
    /// Starts a program that reads all of stdin before it touches anything under `root`, and lets it run to its first
    /// step there.
    pub fn start(mut command: Command, input: &[u8], root: &Path) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("start a process to be traced");
        let pid = Pid::from_raw(child.id().cast_signed());
        // It gets no further than to stdin before it is held.
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

    /// Takes the step, and runs on to the next one.
    pub fn step(&mut self) {
        // Stops come in pairs: at the entry of a system call, and at its end, which comes first unless it just begins.
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

    /// Kills it before it takes the step.
    pub fn kill(&mut self) {
        if matches!(self.at, At::Step(_)) {
            kill(self.pid, Signal::SIGKILL).expect("kill it");
            while !matches!(wait(self.pid), WaitStatus::Signaled(..)) {}
            self.at = At::Killed;
        }
    }

    /// What it wrote on stdout until it ended.
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
