//! Delegation: another plugin does a part of the work (SPEC.md, section 4).

use std::path::PathBuf;
use std::process::Command as Process;
use std::rc::Rc;

use system::child::{self, Limits, Outcome};

use crate::exec::{self, error_object, excerpt, failure};
use crate::{AddResult, Code, Command, Error, PluginType, Result, ResultExt, Undo, Version, json};

/// The runtime's deadline ends whoever waits.
const LIMITS: Limits = Limits { bytes: json::MAX_BYTES, time: None, group: false };

/// The IPAM plugin that the configuration names. It gets this plugin's own environment and stdin, byte for byte.
#[derive(Clone, Debug)]
pub struct Ipam {
    kind: String,
    own_command: Command,
    path: Vec<PathBuf>,
    stdin: Rc<[u8]>,
    version: Version,
}

impl Ipam {
    pub(crate) fn new(
        kind: String,
        own_command: Command,
        path: Vec<PathBuf>,
        stdin: Rc<[u8]>,
        version: Version,
    ) -> Self {
        Self { kind, own_command, path, stdin, version }
    }

    /// Whether the plugin asks a server over the interface itself: that must be up before its ADD, and there until its DEL.
    pub fn needs_link(&self) -> bool {
        self.kind == "dhcp"
    }

    /// Gets addresses. They are given back by `undo`, and at once if the plugin fails half-way.
    ///
    /// # Errors
    /// The plugin's own error, with its code; 7 if there is no such plugin; 6 for what is no result or has no address.
    pub fn add(&self, undo: &mut Undo) -> Result<AddResult> {
        let leases = self.run(Command::Add).and_then(|out| self.parse_leases(&out));
        let this = self.clone();
        match leases {
            Ok(leases) => {
                undo.push(move || this.del());
                Ok(leases)
            }
            Err(error) => Err(match self.find().and_then(|_| this.del()) {
                Err(rollback) if rollback.code() != error.code() => {
                    error.detail(format!("the DEL that should take the ADD back failed too: {rollback}"))
                }
                _ => error,
            }),
        }
    }

    /// Gives addresses back.
    ///
    /// # Errors
    /// As [`Ipam::add`].
    pub fn del(&self) -> Result<()> {
        self.run(Command::Del).map(drop)
    }

    /// Are the addresses still leased?
    ///
    /// # Errors
    /// As [`Ipam::add`].
    pub fn check(&self) -> Result<()> {
        self.run(Command::Check).map(drop)
    }

    /// Forwards a GC.
    ///
    /// # Errors
    /// As [`Ipam::add`].
    pub fn gc(&self) -> Result<()> {
        self.run(Command::Gc).map(drop)
    }

    /// Forwards a STATUS.
    ///
    /// # Errors
    /// As [`Ipam::add`].
    pub fn status(&self) -> Result<()> {
        self.run(Command::Status).map(drop)
    }

    fn parse_leases(&self, out: &[u8]) -> Result<AddResult> {
        let parsed =
            json::parse(out, "its result").and_then(|value| AddResult::from_json(&value, self.version));
        let leases = parsed.map_err(|e| self.named(e).detail(excerpt(out)))?;
        if leases.ips.is_empty() {
            return Err(self.named(Error::new(Code::Decoding, "its result contains no address")));
        }
        Ok(leases)
    }

    fn run(&self, command: Command) -> Result<Vec<u8>> {
        let mut process = Process::new(self.find()?);
        if command != self.own_command {
            process.env("CNI_COMMAND", command.as_str());
        }
        let Outcome { status, out, .. } = child::run(&mut process, &self.stdin, LIMITS)
            .map_err(|stopped| self.named(exec::unfinished(&stopped, command, LIMITS)))?;
        if status.success() {
            return Ok(out);
        }
        // The plugin's own words stay as they are: callers compare some of them.
        Err(error_object(&out).unwrap_or_else(|| self.named(failure(command, status, &out))))
    }

    pub(crate) fn find(&self) -> Result<PathBuf> {
        let name = PluginType::parse(&self.kind).map_err(|e| Error::config(format!("ipam.type {e}")))?;
        exec::find(&name, &self.path).context(|| "ipam.type")
    }

    fn named(&self, error: Error) -> Error {
        error.context(format_args!("IPAM plugin {}", self.kind))
    }
}
