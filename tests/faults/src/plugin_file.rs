//! Unusual files in place of those that a plugin reads or writes.

use std::path::PathBuf;

use lab::Lab;

use crate::content::{CONTENTS, Content, inflict};
use crate::env_fault::EnvFault;

/// A path that a plugin reads or writes.
#[derive(Clone, Copy, Debug)]
pub struct PluginFile {
    label: &'static str,
    /// Expanded by the shell.
    path: &'static str,
    pub(crate) owner: Owner,
    /// Whether it is found by listing its directory. If that does not exist, the error names the directory.
    listed: bool,
    /// Commands for `sh` that make the plugin use it.
    prepare: &'static str,
}

/// The writer of the file, which determines how a plugin should react.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Owner {
    Plugin,
    /// A directory of the plugin. Another directory in its place is fine.
    PluginDirectory,
    /// May be a link.
    Administrator,
    /// A program that plugins start.
    Tool,
}

pub const fn own(label: &'static str, path: &'static str) -> PluginFile {
    PluginFile { label, path, owner: Owner::Plugin, listed: false, prepare: "" }
}

pub const fn directory(label: &'static str, path: &'static str) -> PluginFile {
    PluginFile { owner: Owner::PluginDirectory, ..own(label, path) }
}

pub const fn administrators(label: &'static str, path: &'static str) -> PluginFile {
    PluginFile { owner: Owner::Administrator, ..own(label, path) }
}

pub const fn of_a_tool(path: &'static str) -> PluginFile {
    PluginFile { owner: Owner::Tool, ..own(path, path) }
}

impl PluginFile {
    pub const fn listed(self) -> Self {
        Self { listed: true, ..self }
    }

    pub const fn prepare(self, prepare: &'static str) -> Self {
        Self { prepare, ..self }
    }

    /// Makes the plugin use it, and returns its path.
    fn path(&self, lab: &Lab) -> PathBuf {
        let path = lab.host().sh(&format!("{}\necho \"{}\"", self.prepare, self.path));
        path.trim_end().into()
    }

    fn culprit(&self) -> Option<String> {
        let known = self.path.split('$').next().unwrap_or_default();
        let directory = known.rsplit_once('/').map(|(directory, _)| directory).filter(|_| self.listed);
        (self.owner != Owner::Tool).then(|| directory.unwrap_or(known).to_owned())
    }

    fn may_be(&self, content: Content) -> bool {
        self.owner != Owner::PluginDirectory
            || !matches!(content, Content::EmptyDirectory | Content::Directory)
    }
}

/// All unusual contents for these files.
pub(crate) fn hostile(files: &[PluginFile]) -> Vec<EnvFault> {
    let cases = files.iter().flat_map(|file| CONTENTS.map(|content| (*file, content)));
    cases
        .filter(|(file, content)| file.may_be(*content))
        .map(|(file, content)| fault(file, content))
        .collect()
}

fn fault(file: PluginFile, content: Content) -> EnvFault {
    // A command that blocks or reads endlessly is killed.
    let guard = ["timeout", "-s", "KILL", "600", "prlimit", "--data=600000000:"].map(str::to_owned);
    EnvFault {
        inflict: Box::new(move |lab| inflict(&file.path(lab), content, file.owner)),
        vary: Box::new(move |call| call.under(&guard)),
        culprit: file.culprit(),
        hides: true,
        ..EnvFault::new("hostile files", format!("{content:?} at {}", file.label))
    }
}
