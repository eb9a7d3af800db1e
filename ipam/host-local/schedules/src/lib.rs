//! Every interleaving of host-local's executables on one data directory, up to a bound.
//!
//! Each process runs under ptrace(2) and stops before every system call that touches the directory. A scheduler selects
//! the next process. Most bugs of concurrent programs show with few preemptions (Musuvathi and Qadeer, "Iterative
//! context bounding", PLDI 2007). So all schedules up to a number of preemptions are run. Each of them is
//! also run with one process killed, with a reboot, and with a power loss before each step.
#![allow(clippy::expect_used, reason = "a failure of the lab is a failure of the test")]

mod explore;
mod model;
mod run;
mod scenario;
mod schedule;
mod step;
mod traced;
mod verdict;

pub use explore::{Explored, explore, replay};
pub use scenario::{Scenario, Start};
pub use schedule::Schedule;
