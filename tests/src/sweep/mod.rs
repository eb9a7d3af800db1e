//! Sweeps: a plugin hit at every one of its system calls, by strace, from outside.

mod case;
mod disk;
mod disturber;
mod harm;
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
