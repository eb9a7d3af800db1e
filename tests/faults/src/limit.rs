//! Process limits (getrlimit(2)) that are too low.

use std::fs;

use lab::{Call, Lab, PATH, under_test};

use crate::cnitool::TOOL;
use crate::env_fault::EnvFault;
use crate::target::COMMANDS;

/// Wrappers of the iptables tools, which have no limits: only the plugin is tested.
const TOOLS: &str = "/run/lab/plugins/tools";

/// The promised limit that is enough.
const ENOUGH_KB: u64 = 16 << 10;

/// Installs wrappers that remove the limits before the iptables tools run.
pub(crate) fn prepare(lab: &Lab) {
    fs::create_dir_all(TOOLS).expect("create a directory of tools");
    let names = ["iptables", "ip6tables"].iter().flat_map(|family| {
        ["-save", "-restore", "-legacy-save", "-legacy-restore", "-nft-save", "-nft-restore"]
            .map(|kind| format!("{family}{kind}"))
    });
    for name in names.filter(|name| std::path::Path::new("/usr/sbin").join(name).exists()) {
        let unlimited = "prlimit --as=unlimited: --fsize=unlimited: --nofile=1024:";
        lab.fake_plugin(&format!("tools/{name}"), &format!("exec {unlimited} /usr/sbin/{name} \"$@\""));
    }
}

/// Memory, from the promised limit down to where no plugin starts. cnitool is not a plugin: its own minimum, with the
/// plugins that it starts, comes first. Go reserves more address space than any of these limits.
pub(crate) fn memory(plugin: bool) -> Vec<EnvFault> {
    let kilobytes: &[u64] = match (under_test().reference, plugin) {
        (true, _) => &[],
        (false, true) => &[ENOUGH_KB, 8192, 6144, 5120, 4608, 4096, 3584, 3328, 3072, 2816, 2560, 2048, 1024],
        (false, false) => &[ENOUGH_KB, 8192],
    };
    let fault = |kb: &u64| EnvFault {
        spares: if *kb == ENOUGH_KB { &COMMANDS } else { &[] },
        ..limit("memory", "as", kb << 10)
    };
    kilobytes.iter().map(fault).collect()
}

/// Descriptors. 0, 1 and 2 are open.
pub(crate) fn descriptors() -> Vec<EnvFault> {
    (3..=20).map(|count| limit("descriptors", "nofile", count)).collect()
}

/// Maximum file size in bytes. The kernel sends SIGXFSZ if a process writes more.
pub(crate) fn file_size() -> Vec<EnvFault> {
    // Removing and checking only write hints.
    let spares = &["DEL", "CHECK", "GC", "STATUS"];
    [0, 1, 10, 100, 600].map(|bytes| EnvFault { spares, ..limit("file size", "fsize", bytes) }).into()
}

fn limit(label: &str, name: &str, value: u64) -> EnvFault {
    // The soft limit, so that a started program can raise it.
    let argv = ["prlimit".to_owned(), format!("--{name}={value}:")];
    let vary = move |call: Call| {
        let call = call.env("PATH", &format!("{TOOLS}:{PATH}"));
        // The script itself is not tested.
        if call.plugin() == TOOL { call.env("UNDER", &argv.join(" ")) } else { call.under(&argv) }
    };
    EnvFault { vary: Box::new(vary), ..EnvFault::new(label, format!("{name}={value}")) }
}
