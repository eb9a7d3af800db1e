//! A test of the test: the demonstration fails if one of its plugins does nothing.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns `prevResult`, and does nothing else.
const STUB: &str = r#"#!/usr/bin/python3
import json, os, sys
conf = json.load(sys.stdin)
if os.environ["CNI_COMMAND"] == "ADD":
    print(json.dumps(conf.get("prevResult") or {"cniVersion": conf["cniVersion"], "ips": [], "dns": {}}))
"#;

/// All plugins in the demonstration's chains.
const PLUGINS: [&str; 6] = ["loopback", "bridge", "host-local", "tuning", "portmap", "flannel"];

/// The executables of bin/, with one plugin replaced by a stub.
fn with_stub(directory: &Path, stubbed: &str) -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let bin = directory.join(stubbed);
    fs::create_dir_all(&bin).unwrap();
    for file in fs::read_dir(repository.join("bin/multi")).unwrap().map(|entry| entry.unwrap().path()) {
        symlink(&file, bin.join(file.file_name().unwrap())).unwrap();
    }
    let stub = bin.join(stubbed);
    fs::remove_file(&stub).unwrap();
    fs::write(&stub, STUB).unwrap();
    fs::set_permissions(&stub, Permissions::from_mode(0o755)).unwrap();
    bin
}

#[test]
fn it_fails_if_a_plugin_is_replaced_by_a_stub() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stubs-of-the-demo");
    for plugin in PLUGINS {
        let mut demo = Command::new(env!("CARGO_BIN_EXE_demo"));
        // Delegates, too, are started from these files.
        let demo =
            demo.env("FERRULE_BIN", with_stub(&directory, plugin)).env("FERRULE_SEPARATE_DELEGATES", "1");
        let output = demo.output().unwrap();
        fs::remove_dir_all(&directory).unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{plugin} does nothing, and the demonstration succeeds: {text}");
    }
}
