//! Parameters of an attachment (SPEC.md, section 3, "Attachment Parameters").

use std::path::{Path, PathBuf};

use cni::{Attachment, CniArgs, Code, ContainerId, IfName};
use serde_json::{Map, Value};

use crate::{Error, Result};

/// An attachment and its plugins' parameters.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttachmentParameters {
    /// Container and interface.
    pub attachment: Attachment,
    /// Path of the container's network namespace. `None` if it no longer exists: only DEL accepts this.
    pub netns: Option<PathBuf>,
    /// `CNI_ARGS`, for every plugin.
    pub args: CniArgs,
    /// Capability arguments. A plugin receives those that its `capabilities` declare.
    pub capability_args: Map<String, Value>,
}

impl AttachmentParameters {
    /// An attachment of a container and interface.
    ///
    /// # Errors
    /// Code 4 for an invalid name.
    pub fn new(container: &str, ifname: &str) -> Result<Self> {
        let invalid = |what: String| Error::own(Code::InvalidEnvironment, what);
        let container =
            ContainerId::parse(container).map_err(|e| invalid(format!("the container's id {e}")))?;
        let ifname = IfName::parse(ifname).map_err(|e| invalid(format!("the interface's name {e}")))?;
        Ok(Self::from(Attachment { container, ifname }))
    }

    /// Sets the container's namespace.
    #[must_use]
    pub fn netns(mut self, path: impl AsRef<Path>) -> Self {
        self.netns = Some(path.as_ref().to_owned()).filter(|path| !path.as_os_str().is_empty());
        self
    }

    /// Sets all of `CNI_ARGS`.
    #[must_use]
    pub fn args(mut self, args: CniArgs) -> Self {
        self.args = args;
        self
    }

    /// Adds a pair to `CNI_ARGS`.
    #[must_use]
    pub fn arg(mut self, key: &str, value: &str) -> Self {
        let pairs = self.args.iter().chain([(key, value)]).map(|(k, v)| (k.to_owned(), v.to_owned()));
        self.args = pairs.collect();
        self
    }

    /// Adds a capability argument, such as `portMappings`.
    #[must_use]
    pub fn capability(mut self, name: &str, value: Value) -> Self {
        self.capability_args.insert(name.to_owned(), value);
        self
    }

    /// Replaces missing parameters with those of ADD.
    #[must_use]
    pub(crate) fn completed_from(mut self, added: Option<&Self>) -> Self {
        let Some(added) = added else { return self };
        if self.args == CniArgs::default() {
            self.args = added.args.clone();
        }
        if self.capability_args.is_empty() {
            self.capability_args.clone_from(&added.capability_args);
        }
        self
    }
}

impl From<Attachment> for AttachmentParameters {
    fn from(attachment: Attachment) -> Self {
        Self { attachment, netns: None, args: CniArgs::default(), capability_args: Map::new() }
    }
}
