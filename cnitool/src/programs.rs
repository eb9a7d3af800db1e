//! Programs of the host that print its rules and logs.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use system::child::{self, Limits};

/// Timeout of a program, and its maximum output in bytes.
const TIMEOUT: Duration = Duration::from_secs(20);
const BYTES: u64 = 1 << 24;

/// The programs that print the rules of iptables-legacy, each with the kernel's list of existing tables.
const LEGACY: [(&str, &str); 2] = [
    ("iptables-legacy-save", "/proc/net/ip_tables_names"),
    ("ip6tables-legacy-save", "/proc/net/ip6_tables_names"),
];

/// The output of a program. None: the program is not installed, or fails.
pub fn output(program: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).stderr(Stdio::null());
    let limits = Limits { bytes: BYTES, time: Some(TIMEOUT), group: true, ..Limits::NONE };
    let outcome = child::run(&mut command, b"", limits).ok().filter(|outcome| outcome.status.success())?;
    Some(String::from_utf8_lossy(&outcome.out).into_owned())
}

/// The programs that print the rules of iptables-legacy, if its tables exist in the kernel. Otherwise, the programs would create them.
pub fn legacy_saves() -> impl Iterator<Item = &'static str> {
    let has_tables = |list: &str| fs::read_to_string(list).is_ok_and(|names| !names.is_empty());
    LEGACY.into_iter().filter(move |(_, list)| has_tables(list)).map(|(program, _)| program)
}
