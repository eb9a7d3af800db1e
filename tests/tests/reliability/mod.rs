//! The promises of docs/reliability.md. Short versions of its sweeps: `make sweep` tries every case.

mod faults;
mod privileges;
mod races;
mod resources;
