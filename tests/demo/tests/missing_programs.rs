//! `make demo` and `make test` on a host that cannot run them: the first line says what is missing, and how to get it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;

/// The first line that a script prints as a user without privileges, on a host without Rust.
fn first_line(script: &str) -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    // In a new user namespace, this process has no user of the host. It can still read the repository.
    let mut unshare = Command::new("unshare");
    unshare.arg("--user").arg(repository.join("scripts").join(script));
    let output = unshare.env("PATH", "/usr/bin:/bin").env("HOME", "/nonexistent").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn the_first_line_lists_everything_that_the_host_lacks() {
    for script in ["demo", "test"] {
        let line = first_line(script);
        assert!(line.contains("this host lacks root (") && line.contains("sudo -i"), "{script}: {line}");
        let has_rust = Path::new("/usr/bin/cargo").exists();
        assert_eq!(line.contains("Rust (see https://rustup.rs)"), !has_rust, "{script}: {line}");
    }
}
