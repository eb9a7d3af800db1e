//! The CNI network of a Podman network: a file of the administrator, or a chain that the driver writes from options.

use std::path::PathBuf;

use cni::{Code, Error, Result, ResultExt, json};
use runtime::Network as Chain;

use crate::chain;
use crate::document::Network;
use crate::options::{Kind, Options};

/// A configuration list, as text and as parsed by the runtime library.
#[derive(Debug)]
pub struct Source {
    /// The administrator's file. None: the driver has written the list.
    pub file: Option<PathBuf>,
    pub text: String,
    pub chain: runtime::Result<Chain>,
}

impl Source {
    /// Loads or writes the list.
    ///
    /// # Errors
    /// Code 5 if the file cannot be read. Code 7 if the options are invalid.
    pub fn load(network: &Network, options: &Options<'_>) -> Result<Self> {
        match &options.kind {
            Kind::File(file) => {
                let text = system::file::read(file, json::MAX_BYTES).map_err(|e| {
                    Error::io(format!("option conflist: read {}", file.display()), &e)
                        .detail("name a file that exists, by its absolute path")
                })?;
                let text = String::from_utf8_lossy(&text).into_owned();
                Ok(Self { file: Some(file.clone()), text, chain: Chain::from_file(file) })
            }
            Kind::Type(kind) => {
                let list = chain::write(network, kind, options)?;
                let text = format!("{list:#}");
                let chain = Chain::from_bytes(text.as_bytes());
                Ok(Self { file: None, text, chain })
            }
        }
    }

    /// The chain, as parsed by the runtime library.
    ///
    /// # Errors
    /// The parse error.
    pub fn chain_of(&self, network: &Network) -> Result<Chain> {
        let chain = self.chain.clone().map_err(|e| flat(&e));
        chain.context(|| format!("network {}", network.name))
    }
}

/// The chain of a network.
///
/// # Errors
/// Code 5 if the file cannot be read. Code 7 if the options are invalid. Otherwise the parse error.
pub fn chain(network: &Network, options: &Options<'_>) -> Result<Chain> {
    Source::load(network, options)?.chain_of(network)
}

/// All failures in one error, because netavark passes on only one text.
pub fn flat(error: &runtime::Error) -> Error {
    let mut failures = error.failures();
    let first = failures.next().map_or_else(|| Error::new(Code::Internal, "unknown"), one);
    failures.fold(first, |all, failure| {
        let next = one(failure);
        all.detail(format!("{} {}", next.msg(), next.details()).trim())
    })
}

fn one(failure: &runtime::Failure) -> Error {
    let error = failure.error.clone();
    match &failure.plugin {
        Some((kind, command)) => error.context(format_args!("plugin {kind} ({command})")),
        None => error,
    }
}
