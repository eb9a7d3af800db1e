//! What can go wrong, brought about on purpose: a plugin hit at every one of its system calls, run on machines that
//! something is wrong with, in a race with a hundred others, and in every order with others on the same files.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure of the lab is a failure of the test")]

mod case;
mod disk;
mod disturber;
mod harm;
pub mod interleave;
mod judge;
mod limit;
mod manager;
mod place;
mod pool;
mod race;
mod scene;
mod stands;
mod subject;
mod talk;

pub use case::{Case, Fault, Syscall, faults, kills, own_calls};
pub use disturber::Cause;
pub use harm::{Harm, HarmRow, Harms, Stand};
pub use judge::{Remedy, Verdict, fault, kill};
pub use pool::{Count, Kind, Outcomes, Plan, VERBS};
pub use race::{Finish, Length, Race};
pub use scene::Scene;
pub use stands::{disks, limits, places};
pub use subject::{Beside, Subject};
