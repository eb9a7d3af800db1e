//! Fault injection: faults and kills at every system call of a plugin, faulty environments, and a race of a hundred
//! attachments.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure of the lab is a failure of the test")]

mod case;
mod cnitool;
mod compound;
mod content;
mod daemon;
mod dhcp;
mod disk;
mod disturber;
mod env_fault;
mod fixture;
mod hits;
mod limit;
mod plugin_file;
mod pool;
mod race;
mod recreated;
mod services;
mod target;
mod targets;
mod traffic;
mod trial;
mod usual;
mod verify;

pub use case::{Case, Fault, Syscall};
pub use compound::{CompoundSweep, any_seed, given_seed};
pub use daemon::{DaemonSweep, Family, KillOutcomes};
pub use disk::Disk;
pub use disturber::Cause;
pub use env_fault::{EnvFault, Lift};
pub use fixture::Fixture;
pub use hits::{Kind, Plan, Row, Share};
pub use plugin_file::PluginFile;
pub use pool::{Count, Outcomes};
pub use race::{Finish, Length, Race};
pub use services::Services;
pub use target::{COMMANDS, Capabilities, Hit, StateFiles, StayingPorts, Target};
pub use trial::{EnvRow, EnvSweep, Trial, disks, hostile_files, limits};
pub use verify::{Cleanup, ROLLBACK_FAILED, Verdict};
