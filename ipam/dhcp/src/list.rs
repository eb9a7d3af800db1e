//! `dhcp list`: the daemon's leases, as a table or as JSON.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cni::Result;
use serde_json::Value;

use crate::args::SOCKET;
use crate::ask::{DaemonAnswer, ask, no_daemon};
use crate::wire::{Op, Request};

const HELP: &str = "usage: dhcp list [-o json] [-socketpath PATH]

Prints the leases that the daemon has.
";

/// The whole `main` of `dhcp list`.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "someone looks at the terminal")]
pub fn main(arguments: &[OsString]) -> ExitCode {
    let (mut as_json, mut socket, mut rest) = (false, PathBuf::from(SOCKET), arguments.iter());
    while let Some(argument) = rest.next() {
        match (argument.to_str(), rest.len()) {
            (Some("-h" | "-help" | "--help"), _) => {
                print!("{HELP}");
                return ExitCode::SUCCESS;
            }
            (Some("-o" | "--output"), 1..) => match rest.next() {
                Some(form) if form == "json" => as_json = true,
                form => {
                    let form = form.map(OsString::as_os_str).unwrap_or_default();
                    eprint!("dhcp list: {argument:?} accepts only json, not {form:?}\n{HELP}");
                    return ExitCode::from(2);
                }
            },
            (Some("-socketpath" | "--socketpath"), 1..) => {
                socket = rest.next().map(PathBuf::from).unwrap_or_default()
            }
            _ => {
                eprint!("dhcp list: unknown argument {argument:?}\n{HELP}");
                return ExitCode::from(2);
            }
        }
    }
    match leases(&socket) {
        Ok(leases) if as_json => println!("{leases:#}"),
        Ok(leases) => print!("{}", table(&leases)),
        Err(e) => {
            eprintln!("dhcp list: {e}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The daemon's leases.
fn leases(socket: &Path) -> Result<Value> {
    match ask(socket, &Request::new(Op::List, ""), None)? {
        DaemonAnswer::Answered(answer) => answer,
        DaemonAnswer::NoDaemon(e) => Err(no_daemon(socket, &e, "correct -socketpath")),
    }
}

const COLUMNS: [(&str, &str); 8] = [
    ("NETWORK", "network"),
    ("CONTAINER", "containerId"),
    ("INTERFACE", "ifName"),
    ("STATE", "state"),
    ("ADDRESS", "address"),
    ("SERVER", "server"),
    ("RENEWS IN", "renewIn"),
    ("EXPIRES IN", "expiresIn"),
];

fn table(leases: &Value) -> String {
    let cell = |lease: &Value, key| match &lease[key] {
        Value::String(text) => text.clone(),
        Value::Number(seconds) => format!("{seconds} s"),
        _ => "-".to_owned(),
    };
    let mut rows = vec![COLUMNS.map(|(title, _)| title.to_owned())];
    rows.extend(
        leases.as_array().into_iter().flatten().map(|lease| COLUMNS.map(|(_, key)| cell(lease, key))),
    );
    let mut text = String::new();
    for row in &rows {
        let widths = (0..COLUMNS.len()).map(|n| rows.iter().map(|row| row[n].len()).max().unwrap_or(0));
        let line: String = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}  ")).collect();
        // Writing to a String cannot fail.
        writeln!(text, "{}", line.trim_end()).ok();
    }
    text
}
