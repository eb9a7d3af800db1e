//! `sysdump`: an archive for a bug report, without secrets.

mod archive;
mod collect;
mod redact;

pub use self::archive::write;

use runtime::Result;

use crate::settings::Settings;

/// A file of the archive.
#[derive(Debug)]
pub struct Item {
    pub name: String,
    pub text: String,
    /// The number of values that were removed.
    pub removed: usize,
}

/// All files of the archive. Secrets are removed here, from all files.
///
/// # Errors
/// If a directory of networks cannot be read.
pub fn contents(settings: &Settings) -> Result<Vec<Item>> {
    let collected = collect::all(settings)?;
    Ok(collected.into_iter().map(|(name, content)| content.redacted(name)).collect())
}

/// The contents of a file before secrets are removed.
#[derive(Debug)]
pub enum Content {
    Json(serde_json::Value),
    Text(String),
}

impl Content {
    fn redacted(self, name: String) -> Item {
        let (text, removed) = match self {
            Self::Text(text) => redact::text(&text),
            Self::Json(json) => {
                let (json, removed) = redact::json(json);
                (serde_json::to_string_pretty(&json).unwrap_or_default() + "\n", removed)
            }
        };
        Item { name, text, removed }
    }
}
