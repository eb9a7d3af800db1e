//! The laboratory of all tests of the plugins: scenarios, faults, benchmarks and the demo.
//!
//! A [`Lab`] is a separate machine: a network namespace for the host, a private view of the file system, and container
//! namespaces. Plugins run as a runtime starts them ([`Call`]). The kernel's state is read with other tools than the
//! plugins': `ip`, `bridge`, `nft`, and the rtnetlink crate.
//!
//! ```no_run
//! use serde_json::json;
//! let lab = lab::Lab::new();
//! let pod = lab.container("pod");
//! let call = lab.plugin("bridge").config(json!({"bridge": "br0"})).on(&pod);
//! call.add().ok_result();
//! call.del().ok();
//! ```
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure of the lab is a failure of the test")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output is for the person who runs the suite"
)]

mod call;
mod chain;
pub mod dhcp;
mod feature;
pub mod firewalld;
mod lab;
mod mounts;
mod names;
mod neighbour;
mod netns;
mod observe;
mod outcome;
mod race;
mod raw_state;
mod release;
mod sample;
mod snapshot;
mod strace;
mod stubs;
mod tap;
mod tool;
mod traffic;
mod under_test;
mod watch;

use std::any::Any;

pub use call::{Call, SEPARATE_DELEGATES};
pub use chain::Chain;
pub use feature::Feature;
pub use lab::{Baseline, Container, Lab, Moment, write_program};
pub use neighbour::Neighbour;
pub use netns::{Netns, PATH, output_with, quoted, start_by_path};
pub use outcome::{CniError, Outcome};
pub use race::{Race, meanwhile};
pub use release::{Release, unpacked};
pub use sample::Sample;
pub use snapshot::Snapshot;
pub use strace::{StopPoint, injecting, paused, pauses, stopping};
pub use stubs::StubDirectory;
pub use tap::Behind;
pub use tool::Tool;
pub use traffic::{Echo, tcp_is_cut_off, tcp_is_refused, tcp_says, udp_is_refused, udp_says};
pub use under_test::{
    UnderTest, ours, plugins, quirk, quirk_of_1_1_1, repository, skip, skip_part, skip_with, together,
    under_test,
};
pub use watch::{until, until_within};

/// The message of a panic.
pub fn message_of_panic(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

/// Skips the scenario if the kernel lacks `Feature::$feature`.
#[macro_export]
macro_rules! needs {
    ($($feature:ident),+) => {
        $(if !$crate::Feature::$feature.is_there() {
            $crate::skip(&format!("this kernel has no {}", $crate::Feature::$feature));
            return;
        })+
    };
}

/// Skips the scenario if the reference is under test. The difference must be described in docs/reference-quirks.md
/// under `anchor`.
#[macro_export]
macro_rules! beyond_reference {
    ($anchor:literal) => {
        if $crate::quirk($anchor) {
            return;
        }
    };
}

/// Like [`beyond_reference!`], for a difference of the reference's 1.1.1 only. 1.9.1 passes the scenario.
#[macro_export]
macro_rules! beyond_1_1_1 {
    ($anchor:literal) => {
        if $crate::quirk_of_1_1_1($anchor) {
            return;
        }
    };
}
