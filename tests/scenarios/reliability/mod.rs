//! The promises of docs/reliability.md. Short versions of its sweeps: `make sweep` tries every case.

mod closer;
mod disk;
mod faults;
mod hostile;
mod leases;
mod privileges;
mod races;
mod resources;
mod storm;
