//! Podman's network driver `cni`: a netavark plugin (netavark's plugin-API.md, version 1.0.0) that attaches containers to any CNI network.
//!
//! Podman calls `create` for a new network. netavark calls `setup NETNS` and `teardown NETNS` for each container.
//! Each call reads a document from stdin and prints one on stdout. An error is the object `{"error": "..."}`.

mod address;
mod attach;
mod chain;
mod check;
mod create;
mod document;
mod options;
mod record;
mod reload;
mod rootless;
mod setup;
mod source;
mod status;
mod value;

use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use cni::{Code, Error, Result, json};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// The driver's name, and the name of its executable.
pub const NAME: &str = "cni";

const HELP: &str = "Podman's network driver cni: any CNI network, for Podman with netavark

Link or copy this executable as \"cni\" into a plugin directory of netavark, such as /usr/local/libexec/netavark. Then:

  podman network create --driver cni --opt conflist=/etc/cni/net.d/pods.conflist pods
  podman network create --driver cni --opt type=macvlan --opt master=eth0 --opt ipam=dhcp lan

Podman and netavark call it:
  create           checks a network and completes it (stdin and stdout: the network)
  setup NETNS      attaches a container (stdin: container and network; stdout: its addresses)
  teardown NETNS   detaches a container
  info             prints the driver's version
";

/// Whether an executable was called by the name of the driver.
pub fn is_called(program: &OsStr) -> bool {
    Path::new(program).file_name() == Some(NAME.as_ref())
}

/// Serves one call. This is the `main` function of the driver.
pub fn main() -> ExitCode {
    let words: Vec<String> = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let answered = match words[..] {
        [] | ["--help" | "-h"] => print(HELP),
        ["--version" | "-V"] => print(&format!("cni (ferrule) {}\n", env!("CARGO_PKG_VERSION"))),
        ["info"] => answer(&json!({"version": env!("CARGO_PKG_VERSION"), "api_version": "1.0.0"})),
        ["create"] => request().and_then(create::create).and_then(|network| answer(&network)),
        ["setup", netns] => request().and_then(|call| setup::setup(Path::new(netns), &call, answer)),
        ["teardown", netns] => request().and_then(|call| setup::teardown(Path::new(netns), &call)),
        _ => Err(Error::new(Code::InvalidEnvironment, format!("unknown arguments: {}", words.join(" ")))
            .detail("the subcommands are create, setup NETNS, teardown NETNS and info")),
    };
    answered.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
}

/// Reads a document from stdin.
fn request<T: DeserializeOwned>() -> Result<T> {
    let mut text = Vec::new();
    let limited = io::stdin().lock().take(json::MAX_BYTES).read_to_end(&mut text);
    limited.map_err(|e| Error::io("read stdin", &e))?;
    json::decode(&json::parse(&text, "the document on stdin")?)
}

fn answer(document: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(document).map_err(|e| Error::new(Code::Internal, e.to_string()))?;
    print(&(text + "\n"))
}

fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| Error::io("write to stdout", &e))
}

fn failed(error: &Error) -> ExitCode {
    // If the error cannot be printed either, the exit code reports it.
    print(&format!("{}\n", json!({"error": in_words(error)}))).ok();
    ExitCode::FAILURE
}

/// The message and the remedy of an error.
fn in_words(error: &Error) -> String {
    match error.details() {
        "" => error.msg().to_owned(),
        details => format!("{}: {details}", error.msg()),
    }
}

/// Writes a warning to stderr, which netavark passes through to Podman's terminal. The terminal may be closed.
fn warn(text: impl Display) {
    io::stderr().write_all(format!("cni: warning: {text}\n").as_bytes()).ok();
}
