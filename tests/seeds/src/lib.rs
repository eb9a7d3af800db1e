//! The seeds of the fuzz targets, in fuzz/corpus, for the targets and for the unit tests that replay them. No plugin is
//! linked with this crate.

#![warn(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test and a fuzz target end with a panic")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum number of files from one input.
const MOST: usize = 8;

/// Passes each seed of a target to the target's function, as the fuzzer does.
///
/// # Panics
/// If the target has no seeds.
#[expect(clippy::print_stdout, reason = "the test that fails tells at which seed")]
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

/// Creates the files that an input describes, in an empty directory. A line `== NAME` precedes the content of each.
/// Invalid file names are ignored.
///
/// # Panics
/// If the directory cannot be created.
pub fn unpack(dir: &Path, input: &[u8]) {
    fs::remove_dir_all(dir).ok();
    fs::create_dir_all(dir).unwrap();
    let starts =
        (0..input.len()).filter(|&at| input[at..].starts_with(b"== ") && (at == 0 || input[at - 1] == b'\n'));
    let starts: Vec<usize> = starts.take(MOST).collect();
    for (index, &start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(input.len());
        let mut parts = input[start + 3..end].splitn(2, |byte| *byte == b'\n');
        let (name, content) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if !name.contains(&b'/') {
            fs::write(dir.join(OsStr::from_bytes(name)), content).ok();
        }
    }
}
