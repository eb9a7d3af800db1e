//! The promises of docs/reliability.md, by samples of its sweeps. `make sweep` runs all cases.

mod closer;
mod disk;
mod faults;
mod hostile;
mod leases;
pub mod privileges;
mod races;
mod resources;
mod storm;
