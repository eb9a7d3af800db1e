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
    let limits = Limits { bytes: BYTES, time: Some(TIMEOUT), group: true };
    let outcome = child::run(&mut command, b"", limits).ok().filter(|outcome| outcome.status.success())?;
    Some(String::from_utf8_lossy(&outcome.out).into_owned())
}

/// The programs that print the rules of iptables-legacy, for tables that exist in the kernel. For other tables, the
/// programs would create them.
pub fn legacy_saves(has: impl Fn(&str) -> bool) -> impl Iterator<Item = &'static str> {
    let is_there = move |tables: &str| fs::read_to_string(tables).is_ok_and(|names| names.lines().any(&has));
    LEGACY.into_iter().filter(move |(_, tables)| is_there(tables)).map(|(program, _)| program)
}
