//! Checks whether a directory contains the plugins that an installation would place there. Changes nothing.

use std::path::Path;

use cni::{Code, Error, Result};

use crate::files::Sums;
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
    // A symbolic link to the plugin is the plugin, too.
    let mut sum = |path: &Path| match path.canonicalize() {
        Ok(file) => sums.get(&file),
        Err(e) => Err(Error::io(format!("open {}", path.display()), &e)),
    };
    if update && sum(at)? != sum(from)? {
        return Err(Error::new(Code::Internal, format!("{} differs from {}", at.display(), from.display())));
    }
    source::ask_version(at)
}
