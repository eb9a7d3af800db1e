//! Directories of plugins, one of which does nothing: tests of the tests use them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::{under_test, write_program};

/// Returns the previous result or an empty one, and does nothing else. If the rest of the chain may be unable to
/// continue with this result, the stub says so.
const STUB: &str = r#"#!/usr/bin/python3
import json, os, sys
conf = json.load(sys.stdin)
version = conf.get("cniVersion", "1.0.0")
if os.environ["CNI_COMMAND"] == "ADD":
    prev = conf.get("prevResult")
    if not prev or "ipam" in conf:
        print("a stub of " + os.path.basename(sys.argv[0]) + " was called", file=sys.stderr)
    print(json.dumps(prev or {"cniVersion": version, "ips": [], "dns": {}}))
if os.environ["CNI_COMMAND"] == "VERSION":
    print(json.dumps({"cniVersion": version, "supportedVersions": ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]}))
"#;

/// A directory with links to the plugins under test, one of which may be replaced by a stub. It exists as long as this.
#[derive(Debug)]
pub struct StubDirectory(PathBuf);

impl StubDirectory {
    /// Creates the directory below another one, which must be outside of /run and /var: labs have private directories
    /// there. An earlier run that was killed may have left it.
    pub fn new(parent: &Path, replaced: Option<&str>) -> Self {
        let directory = parent.join(replaced.unwrap_or("none"));
        fs::remove_dir_all(&directory).ok();
        fs::create_dir_all(&directory).expect("create a directory of plugins");
        for plugin in fs::read_dir(&under_test().dir).expect("list the plugins").flatten() {
            symlink(plugin.path(), directory.join(plugin.file_name())).expect("link to a plugin");
        }
        if let Some(replaced) = replaced {
            let stub = directory.join(replaced);
            fs::remove_file(&stub).ok();
            write_program(&stub, STUB);
        }
        Self(directory)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What the stub of a plugin prints if the rest of the chain may be unable to continue.
    pub fn words_of(plugin: &str) -> String {
        format!("a stub of {plugin} was called")
    }
}

impl Drop for StubDirectory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
        self.0.parent().map(fs::remove_dir);
    }
}
