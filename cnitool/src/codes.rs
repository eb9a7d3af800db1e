//! Error codes of the specification (section 5, "Error"), with advice. docs/errors.md contains the same table.

use runtime::Error;
use serde_json::{Value, json};

/// The meaning of an error code, and advice.
#[derive(Clone, Copy, Debug)]
pub struct Explained {
    pub code: u32,
    pub meaning: &'static str,
    pub advice: &'static str,
}

/// The remedy for a failure: the details of its errors, or else the command that explains its code.
pub fn remedy(error: &Error) -> String {
    let details = error.failures().map(|failure| failure.error.details());
    let details = details.filter(|details| !details.is_empty()).collect::<Vec<_>>().join("; ");
    if details.is_empty() { format!("run `cnitool explain {}` for details", error.code()) } else { details }
}

impl Explained {
    pub fn json(&self) -> Value {
        json!({"code": self.code, "meaning": self.meaning, "advice": self.advice})
    }
}

/// The codes that Ferrule's plugins use.
pub const ALL: &[Explained] = &[
    Explained {
        code: 1,
        meaning: "incompatible version",
        advice: "The plugin does not support the configuration's `cniVersion`, or this version has no such \
                 command. `cnitool version NETWORK` lists the versions of each plugin. Set `cniVersion` to one that all \
                 of them support, and remove newer ones from `cniVersions`: runtimes use the highest version that \
                 they support themselves, without asking the plugins.",
    },
    Explained {
        code: 2,
        meaning: "unsupported field",
        advice: "The plugin or the kernel does not support a key of the configuration, or its value. The message \
                 names it. `cnitool validate FILE` checks all keys.",
    },
    Explained {
        code: 3,
        meaning: "unknown container",
        advice: "The container does not exist, or was never attached to the network. You need not clean up.",
    },
    Explained {
        code: 4,
        meaning: "invalid environment",
        advice: "A `CNI_*` variable is missing or malformed, which is a mistake of the runtime. Or the container \
                 already has an interface of that name: run DEL first. Or a chained plugin works on an interface \
                 that does not exist.",
    },
    Explained {
        code: 5,
        meaning: "input/output failure",
        advice: "A file or a socket cannot be read or written. The details name the path and the cause: a full \
                 or read-only disk, or permissions.",
    },
    Explained {
        code: 6,
        meaning: "cannot decode content",
        advice: "Some JSON is malformed, or a key has a value of the wrong type: in the configuration (`cnitool \
                 validate FILE` shows the line), or in the output of a plugin.",
    },
    Explained {
        code: 7,
        meaning: "invalid configuration",
        advice: "A value of the configuration is invalid or contradicts another one, or a plugin is not \
                 installed. The message names the key and the value.",
    },
    Explained {
        code: 8,
        meaning: "invalid namespace",
        advice: "`CNI_NETNS` is the plugin's own namespace, so the plugin would change the host's network. \
                 Correct `CNI_NETNS`, or set `CNI_NETNS_OVERRIDE=1` to allow it. DEL does not fail: it treats the \
                 container's namespace as deleted.",
    },
    Explained {
        code: 11,
        meaning: "try again later",
        advice: "A temporary condition, such as a lock that another plugin holds, or a daemon that does not run. A failed ADD leaves nothing behind. A failed DEL has removed everything else. The \
                 runtime tries again.",
    },
    Explained {
        code: 50,
        meaning: "not available",
        advice: "STATUS: no ADD can succeed now. The firewall backend, a capability or a kernel module is \
                 missing, or the disk with the leases is full or read-only. The message says which. ADD of dnsname: \
                 dnsmasq is not installed.",
    },
    Explained {
        code: 51,
        meaning: "not available, and containers may be affected",
        advice: "STATUS: no ADD can succeed now, and running containers may have lost their network. Act as for \
                 code 50, soon.",
    },
    Explained {
        code: 999,
        meaning: "other",
        advice: "All other errors. Usually the kernel refused an operation: the details contain its error. If CHECK failed, the message says what has changed since ADD.",
    },
];

/// Explains any code. Each plugin defines its own codes from 100 on.
pub fn explain(code: u32) -> Explained {
    let (meaning, advice) = match code {
        0..=99 => ("reserved", "The specification reserves this code."),
        _ => ("a plugin's own", "Each plugin defines its own codes from 100 on: read its message."),
    };
    let known = ALL.iter().find(|known| known.code == code).copied();
    known.unwrap_or(Explained { code, meaning, advice })
}
