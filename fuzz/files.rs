//! An input that stands for the files of a directory: a line `== NAME` before the content of each.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The most files that are made of one input.
const MOST: usize = 8;

/// Makes the files, in an empty directory. What cannot be the name of a file makes none.
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
