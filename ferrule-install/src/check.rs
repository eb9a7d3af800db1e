//! Checks whether a directory contains the plugins that an installation would place there. Changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cni::{Code, Error, Result};

use crate::source::{self, Sources};
use crate::{files, say};

/// Checks that each plugin answers to VERSION and equals the source's file. With `update` false, any existing file is
/// accepted. Prints the problem of each plugin.
pub fn all(dir: &Path, sources: &Sources, update: bool) -> Result<()> {
    let (mut sums, mut wrong) = (Sums::default(), 0);
    for (name, from) in sources {
        if let Err(error) = one(&dir.join(name), from, update, &mut sums) {
            wrong += 1;
            say(&error.to_string());
        }
    }
    let count = sources.len();
    if wrong > 0 {
        return Err(Error::new(
            Code::Internal,
            format!("{wrong} of {count} plugins in {} are missing, differ from their source, or do not answer VERSION", dir.display()),
        )
        .detail(if update {
            "the same command without --check installs them"
        } else {
            "the same command without --check installs missing plugins; with --update true, it also replaces the others"
        }));
    }
    let checked = if update { "equals its source file" } else { "exists" };
    say(&format!("{count} plugins in {}: each {checked} and answers VERSION", dir.display()));
    Ok(())
}

fn one(at: &Path, from: &Path, update: bool, sums: &mut Sums) -> Result<()> {
    if !files::exists(at)? {
        return Err(Error::new(Code::Internal, format!("{} is missing", at.display())));
    }
    let of_source = sums.get(from)?;
    let found = sums.get(at)?;
    if update && found != of_source {
        return Err(Error::new(Code::Internal, format!("{} differs from {}", at.display(), from.display())));
    }
    source::ask_version(at)
}

/// The SHA-256 sums of files. Files with several names are read once.
#[derive(Default)]
struct Sums(BTreeMap<(u64, u64), Option<String>>);

impl Sums {
    fn get(&mut self, path: &Path) -> Result<Option<String>> {
        let open = |e| Error::io(format!("open {}", path.display()), &e);
        let file = path.canonicalize().map_err(open)?;
        let meta = fs::metadata(&file).map_err(open)?;
        let id = (meta.dev(), meta.ino());
        if let Some(sum) = self.0.get(&id) {
            return Ok(sum.clone());
        }
        let sum = files::sum(&file)?;
        self.0.insert(id, sum.clone());
        Ok(sum)
    }
}
