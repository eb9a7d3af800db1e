//! Error codes (SPEC.md, section 5, "Error"), and what to do about each. docs/errors.md has the same table.

use serde_json::{Value, json};

/// A code's meaning.
#[derive(Clone, Copy, Debug)]
pub struct Explained {
    pub code: u32,
    pub meaning: &'static str,
    pub advice: &'static str,
}

impl Explained {
    pub fn json(&self) -> Value {
        json!({"code": self.code, "meaning": self.meaning, "advice": self.advice})
    }
}

/// The codes that have a meaning of their own.
pub const ALL: &[Explained] = &[
    Explained {
        code: 1,
        meaning: "incompatible version",
        advice: "The plugin does not speak the configuration's `cniVersion`, or that version lacks the command. \
                 `cnitool version NETWORK` lists what its plugins speak; `cniVersions` lets the runtime choose.",
    },
    Explained {
        code: 2,
        meaning: "unsupported field",
        advice: "A key of the configuration, or its value, is not supported: by this plugin, or by this kernel. The \
                 message names it; `cnitool validate FILE` looks at all of them.",
    },
    Explained {
        code: 3,
        meaning: "unknown container",
        advice: "There is no such container, or it was not added to the network. Nothing has to be cleaned up.",
    },
    Explained {
        code: 4,
        meaning: "invalid environment",
        advice: "A `CNI_*` variable is missing or malformed, or the container has an interface of that name already. \
                 The message names all that is wrong: it is the runtime's mistake, or a DEL is due first.",
    },
    Explained {
        code: 5,
        meaning: "input or output failed",
        advice: "A file or a socket cannot be read or written. The details have the path and the cause: a full or \
                 read-only disk, permissions, a daemon that does not run.",
    },
    Explained {
        code: 6,
        meaning: "not understood",
        advice: "Something is not the JSON that it should be: a configuration (`cnitool validate FILE` shows the \
                 line), or what a plugin printed.",
    },
    Explained {
        code: 7,
        meaning: "invalid configuration",
        advice: "The configuration is understood but makes no sense, or names a plugin that is not installed. The \
                 message names key and value.",
    },
    Explained {
        code: 8,
        meaning: "invalid namespace",
        advice: "`CNI_NETNS` is the namespace of the plugin itself: it would rebuild the host's network. It is the \
                 runtime's mistake; `CNI_NETNS_OVERRIDE=1` allows it.",
    },
    Explained {
        code: 11,
        meaning: "try again later",
        advice: "A passing condition, such as a lock that another plugin holds. Nothing was left; the runtime tries \
                 again.",
    },
    Explained {
        code: 50,
        meaning: "not available",
        advice: "STATUS: no ADD could succeed now: the firewall's backend, a capability or a module is missing, or \
                 the disk with the leases is full or read-only. The message says which.",
    },
    Explained {
        code: 51,
        meaning: "not available, and containers may suffer",
        advice: "STATUS: an ADD could not be served, and running containers may have lost connectivity. As for 50, \
                 and soon.",
    },
    Explained {
        code: 999,
        meaning: "other",
        advice: "Everything that has no code of its own; mostly a refusal of the kernel, told in the details. A CHECK \
                 that finds something not as ADD left it says what.",
    },
];

/// What a code means. Those from 100 on are a plugin's own.
pub fn explain(code: u32) -> Explained {
    let (meaning, advice) = match code {
        0..=99 => ("reserved", "The specification keeps this code for later."),
        _ => ("a plugin's own", "Codes from 100 on mean what the plugin says they mean: see its message."),
    };
    let known = ALL.iter().find(|known| known.code == code).copied();
    known.unwrap_or(Explained { code, meaning, advice })
}
