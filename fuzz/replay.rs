//! The seeds of a fuzz target, for the ordinary test that replays them.

use std::fs;
use std::path::Path;

/// Hands each seed to the target's function, as the fuzzer would.
pub fn replay(target: &str, function: impl Fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut seeds: Vec<_> = fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    assert!(!seeds.is_empty());
    for seed in seeds {
        println!("{}", seed.display());
        function(&fs::read(seed).unwrap());
    }
}
