//! Validation of a configuration without a call: would ADD accept it?

use crate::call::Document;
use crate::{Plugin, Result, plugin};

/// Checks the stdin of an ADD, as ADD does before it uses the host.
///
/// # Errors
/// Code 1 for an unknown `cniVersion`. Code 2, 6 or 7 for a key that ADD refuses.
pub fn validate<P: Plugin>(request: &[u8]) -> Result<()> {
    let document = Document::parse(request.to_vec())?;
    document.check_common()?;
    plugin::conf::<P>(&document).map(drop)
}
