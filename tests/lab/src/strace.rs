//! Programs under strace: the pauses that they request, and changes by other programs between two of their requests.

use std::fs;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{Call, Outcome, meanwhile};

/// The output of strace, in the lab's own directory, which snapshots leave out.
const TRACE: &str = "/run/lab/plugins/.trace";

/// The calls at which a program can be stopped.
const CALLS: &str = "sendto,write,flock";

/// strace(1) without output, which injects errors or signals into the system calls of the program that is appended.
pub fn injecting(arguments: &[&str]) -> Vec<String> {
    [&["strace", "-qqo", "/dev/null"], arguments].concat().into_iter().map(str::to_owned).collect()
}

/// Runs a call, and adds up all pauses that the plugin requests.
pub fn paused(call: &Call, run: impl FnOnce(&Call) -> Outcome) -> (Outcome, Duration) {
    pauses(|strace| run(&call.clone().under(strace)))
}

/// Runs a program, and adds up all pauses that it requests. strace lets the kernel skip them, so a minute takes no time,
/// and the sum does not depend on the load of the machine. `run` gets strace's command, to which it appends the program
/// and its arguments.
pub fn pauses<T>(run: impl FnOnce(&[String]) -> T) -> (T, Duration) {
    const PAUSES: &str = "nanosleep,clock_nanosleep";
    let strace =
        format!("strace -qq -o {TRACE} -e signal=none -e trace={PAUSES} -e inject={PAUSES}:retval=0");
    let outcome = run(&words(&strace));
    let number = |line: &str, key: &str| {
        let digits = line.split(key).nth(1).unwrap_or_else(|| panic!("a pause: {line}"));
        digits.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse::<u64>().unwrap()
    };
    let pause =
        |line| Duration::new(number(line, "tv_sec="), 0) + Duration::from_nanos(number(line, "tv_nsec="));
    (outcome, trace().lines().map(pause).sum())
}

/// Runs a program, and stops it after each request over netlink, write to a file, and lock of a file, until `react` has
/// returned. `react` gets the call in strace's words. `run` gets strace's command, as with [`pauses`].
pub fn stopping<T>(run: impl FnOnce(&[String]) -> T, react: impl FnMut(&str) + Send) -> T {
    stopped_by(&format!(" -e inject={CALLS}:signal=SIGSTOP"), run, react)
}

/// A point in a program's run: between a system call and the one before it. The calls are requests over netlink, writes
/// to files, and locks of files.
#[derive(Debug)]
pub struct StopPoint {
    /// Part of the call after this point.
    word: String,
    /// The name of the call before this point, and its number among the process's calls of this name.
    name: String,
    nth: usize,
}

impl StopPoint {
    /// The point before the first call whose line in strace's output contains `word`. `run` gets strace's command, to
    /// which it appends the program and its arguments. In strace's output, the descriptor of a file has the file's path.
    pub fn before(word: &str, run: impl FnOnce(&[String])) -> Self {
        run(&strace(""));
        let trace = trace();
        let calls: Vec<_> = trace.lines().filter_map(parts).collect();
        let at = calls.iter().position(|call| call.rest.contains(word));
        let at = at.unwrap_or_else(|| panic!("no call contains {word}: {trace}"));
        let (earlier, last) = calls[..at].split_at(at - 1);
        let is_alike = |call: &&Line<'_>| (call.process, call.name) == (last[0].process, last[0].name);
        let nth = 1 + earlier.iter().filter(is_alike).count();
        Self { word: word.to_owned(), name: last[0].name.to_owned(), nth }
    }

    /// Runs the program again in the same state, and stops it at this point until `change` has returned.
    ///
    /// # Panics
    /// If the program does not reach this point, because it makes other calls than in the first run, or if `change`
    /// panics.
    pub fn run<T>(&self, run: impl FnOnce(&[String]) -> T, change: impl FnOnce() + Send) -> T {
        let inject = format!(" -e inject={}:signal=SIGSTOP:when={}", self.name, self.nth);
        let mut change = Some(change);
        // A child process may have as many calls as the program, and stop too.
        let outcome = stopped_by(&inject, run, |_| change.take().into_iter().for_each(|change| change()));
        let trace = trace();
        assert!(self.is_reached(&trace), "the program has not reached {self:?}: {trace}");
        outcome
    }

    /// Whether the first process that was stopped has continued with the expected call.
    fn is_reached(&self, trace: &str) -> bool {
        let mut lines = trace.lines().skip_while(|line| !is_stop(line));
        let process = lines.next().and_then(|line| line.split(' ').next());
        let next = lines.filter_map(parts).find(|call| Some(call.process) == process);
        next.is_some_and(|call| call.rest.contains(&self.word))
    }
}

/// Runs a program under strace with an injection of SIGSTOP. Each stop ends when `react` has returned.
fn stopped_by<T>(inject: &str, run: impl FnOnce(&[String]) -> T, react: impl FnMut(&str) + Send) -> T {
    fs::remove_file(TRACE).ok();
    let state = Mutex::new((react, 0));
    let look = || {
        thread::sleep(Duration::from_millis(10));
        let trace = fs::read_to_string(TRACE).unwrap_or_default();
        let lines: Vec<_> = trace.lines().collect();
        let mut state = state.lock().expect("the number of stops");
        let (react, handled) = &mut *state;
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_stop(line)).skip(*handled) {
            let _stopped = Stopped::of(line);
            *handled += 1;
            let is_its_call = |call: &&&str| parts(call).is_some_and(|call| line.starts_with(call.process));
            react(lines[..at].iter().rfind(is_its_call).copied().unwrap_or_default());
        }
    };
    meanwhile(look, || run(&strace(inject)))
}

fn is_stop(line: &&str) -> bool {
    line.ends_with("stopped by SIGSTOP ---")
}

/// A stopped process, which continues when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn of(line: &str) -> Self {
        let process = line.split(' ').next().and_then(|id| id.parse().ok());
        Self(Pid::from_raw(process.expect("a line of strace starts with the process")))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // The process may have been killed meanwhile.
        kill(self.0, Signal::SIGCONT).ok();
    }
}

/// A system call in the output of strace: `12 sendto(3<...>, ...) = 20`.
struct Line<'a> {
    process: &'a str,
    name: &'a str,
    rest: &'a str,
}

fn parts(line: &str) -> Option<Line<'_>> {
    let (process, call) = line.split_once(' ')?;
    let (name, rest) = call.trim_start().split_once('(')?;
    name.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some(Line { process, name, rest })
}

fn strace(inject: &str) -> Vec<String> {
    words(&format!("strace -f -qq -y -o {TRACE} -e trace={CALLS}{inject}"))
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn trace() -> String {
    fs::read_to_string(TRACE).expect("read the output of strace")
}
