//! `interrupted_by_signals` in a process of its own, which runs no plugin.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{env, io, thread};

use runtime::interrupted_by_signals;
use rustix::process::{Pid, Signal, kill_process};

/// This process is the one that gets the signals.
const SUBJECT: &str = "FERRULE_SUBJECT";

/// Only a signal more than a second after the last one counts.
const BETWEEN: Duration = Duration::from_millis(1100);

/// The process may be between the plugin's ADD and its DEL.
#[test]
fn a_second_signal_does_not_end_a_process_that_runs_no_plugin_but_a_later_one_does() {
    if env::var_os(SUBJECT).is_some() {
        return answer().unwrap();
    }
    let name = thread::current().name().unwrap().to_owned();
    let mut subject = Command::new(env::current_exe().unwrap());
    subject.args(["--exact", &name, "--nocapture"]).env(SUBJECT, "");
    let mut subject = subject.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let id = Pid::from_child(&subject);
    let (mut questions, answers) = (subject.stdin.take().unwrap(), subject.stdout.take().unwrap());
    let mut answers = BufReader::new(answers).lines().map(Result::unwrap).filter(|line| line.ends_with('?'));
    let mut is_interrupted = || {
        writeln!(questions).unwrap();
        answers.next().unwrap().ends_with("true?")
    };
    assert!(!is_interrupted());
    for _ in 0..2 {
        kill_process(id, Signal::TERM).unwrap();
        thread::sleep(BETWEEN);
        assert!(is_interrupted());
    }
    while subject.try_wait().unwrap().is_none() {
        kill_process(id, Signal::TERM).ok();
        thread::sleep(BETWEEN);
    }
    assert!(!subject.wait().unwrap().success());
}

/// Answers each line with whether a signal has arrived.
fn answer() -> Result<(), Box<dyn Error>> {
    let flag = interrupted_by_signals()?;
    for _ in io::stdin().lines() {
        let answer = flag.load(Ordering::Relaxed);
        writeln!(io::stdout(), "{answer}?")?;
    }
    Err("the test has ended before the process".into())
}
