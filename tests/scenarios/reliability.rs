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

use ::faults::any_seed;
use lab::Sample;

/// The seed of a test's sample: `FERRULE_SEED`, or a random one. The output of a failed test contains it.
#[allow(clippy::print_stdout, reason = "the output of a failed test is for the person who repeats it")]
fn printed_seed() -> u64 {
    let seed = any_seed();
    println!("the seed is {seed} (FERRULE_SEED={seed} selects the same cases again)");
    seed
}

/// One in `every` of the cases.
fn sample(every: usize) -> Sample {
    Sample { every, seed: printed_seed() }
}
