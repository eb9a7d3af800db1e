//! Exit codes for scripts; `cnitool --help` lists them.

use std::process::ExitCode;

use cni::Code;
use runtime::Error;

/// The exit code of a failure.
pub fn code(error: &Error) -> ExitCode {
    let is = |code: Code| error.code() == code as u32;
    let of_plugin = error.failures().next().is_some_and(|failure| failure.plugin.is_some());
    let mistaken = [Code::IncompatibleVersion, Code::UnknownContainer, Code::Decoding];
    ExitCode::from(match error.code() {
        code @ (11 | 50 | 51) => u8::try_from(code).unwrap_or(1),
        // Options and variables that cnitool refuses itself.
        _ if !of_plugin && is(Code::InvalidEnvironment) => 2,
        _ if !of_plugin && (is(Code::InvalidConfig) || mistaken.into_iter().any(is)) => 3,
        _ => 1,
    })
}
