//! Something else where a file should be that a plugin reads or writes.

use std::path::PathBuf;

use lab::Lab;

use crate::content::{CONTENTS, Content, inflict};
use crate::env_fault::EnvFault;

/// A path that is read or written.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    label: &'static str,
    /// As the shell expands it.
    path: &'static str,
    pub(crate) owner: Owner,
    /// What is looked for by listing its directory: where there is none, the error names that.
    listed: bool,
    /// Brings about that it is used, in lines for `sh`.
    prepare: &'static str,
}

/// Who writes it, and so what may be expected of a plugin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Owner {
    Plugin,
    /// The same, and it is a directory: another one in its place is as good.
    PluginDirectory,
    /// Maybe as a link.
    Administrator,
    /// A program that plugins start.
    Tool,
}

pub const fn own(label: &'static str, path: &'static str) -> Place {
    Place { label, path, owner: Owner::Plugin, listed: false, prepare: "" }
}

pub const fn directory(label: &'static str, path: &'static str) -> Place {
    Place { owner: Owner::PluginDirectory, ..own(label, path) }
}

pub const fn administrators(label: &'static str, path: &'static str) -> Place {
    Place { owner: Owner::Administrator, ..own(label, path) }
}

pub const fn of_a_tool(path: &'static str) -> Place {
    Place { owner: Owner::Tool, ..own(path, path) }
}

impl Place {
    pub const fn listed(self) -> Self {
        Self { listed: true, ..self }
    }

    pub const fn prepare(self, prepare: &'static str) -> Self {
        Self { prepare, ..self }
    }

    /// Brings about that it is used, and tells where it is.
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

/// Everything that a place can be instead.
pub(crate) fn hostile(places: &[Place]) -> Vec<EnvFault> {
    let cases = places.iter().flat_map(|place| CONTENTS.map(|content| (*place, content)));
    cases
        .filter(|(place, content)| place.may_be(*content))
        .map(|(place, content)| fault(place, content))
        .collect()
}

fn fault(place: Place, content: Content) -> EnvFault {
    // One that waits for ever, or reads without end, is stopped.
    let guard = ["timeout", "-s", "KILL", "600", "prlimit", "--data=600000000:"].map(str::to_owned);
    EnvFault {
        inflict: Box::new(move |lab| inflict(&place.path(lab), content, place.owner)),
        vary: Box::new(move |call| call.under(&guard)),
        culprit: place.culprit(),
        hides: true,
        ..EnvFault::new("hostile files", format!("{content:?} at {}", place.label))
    }
}
