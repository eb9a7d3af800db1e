//! Who is measured.

use std::fmt;
use std::fs;
use std::path::Path;

use lab::{Call, Lab, REFERENCE, under_test};
use serde_json::{Value, json};

/// One of the contestants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Ours,
    /// Ours, told to use the iptables backend.
    OursIptables,
    /// Debian's, which has no other backend than iptables.
    Reference,
}

impl Side {
    pub fn is_reference(self) -> bool {
        self == Self::Reference
    }

    /// What a row says of it behind its name.
    pub fn remark(self) -> &'static str {
        if self == Self::OursIptables { ", ours with iptables" } else { "" }
    }

    /// Where its plugins are installed.
    pub fn folder(self) -> &'static Path {
        if self.is_reference() { Path::new(REFERENCE) } else { &under_test().dir }
    }

    /// Of a plugin's executable, in bytes. None: not installed.
    pub fn size(self, plugin: &str) -> Option<u64> {
        fs::metadata(self.folder().join(plugin)).ok().map(|file| file.len())
    }

    /// A call to one of its plugins.
    pub fn plugin(self, lab: &Lab, name: &str) -> Call {
        let call = lab.plugin(name);
        if self.is_reference() { call.by_the_reference() } else { call }
    }

    /// The calls to its plugins for a network, first to last, as far as they are the same for all containers.
    pub fn network(self, lab: &Lab, conflist: &Value) -> Vec<Call> {
        let shared = json!({"cniVersion": conflist["cniVersion"], "name": conflist["name"]});
        let call = |plugin: &Value| {
            let name = plugin["type"].as_str().expect("a plugin has a type");
            self.plugin(lab, name).config(plugin.clone()).config(shared.clone())
        };
        conflist["plugins"].as_array().expect("a list of plugins").iter().map(call).collect()
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "ours",
            Self::OursIptables => "ours with iptables",
            Self::Reference => "reference",
        })
    }
}
