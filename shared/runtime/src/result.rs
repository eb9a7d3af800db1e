//! Results between plugins, and in the cache. They are stored undecoded, with unknown members. As with libcni, DEL of a plugin receives the
//! same result that its ADD returned. AWS's plugin needs this: it stores a VLAN and a table in `pciID` and `socketPath`, even with version 1.0.0.

use cni::{AddResult, Code, Error, Result, Version, json};
use serde_json::Value;

const VERSION: &str = "cniVersion";

/// Parses a result in its own version, or in the given one if it has none.
pub(crate) fn read(value: &Value, when_absent: Version) -> Result<AddResult> {
    AddResult::from_json(value, version(value, when_absent)?)
}

/// Converts a result to a version, unless it already has the format of that version.
pub(crate) fn in_version(value: &Value, when_absent: Version, wanted: Version) -> Result<Value> {
    let version_text = version(value, when_absent)?;
    let result = AddResult::from_json(value, version_text)?;
    if !version_text.same_format(wanted) {
        return json::parse(result.to_json(wanted)?.as_bytes(), "a result");
    }
    let mut kept = value.clone();
    if let Some(members) = kept.as_object_mut() {
        members.retain(|key, _| !key.eq_ignore_ascii_case(VERSION));
        members.insert(VERSION.to_owned(), wanted.as_str().into());
    }
    Ok(kept)
}

/// The version of a result.
pub(crate) fn version(value: &Value, when_absent: Version) -> Result<Version> {
    if !value.is_object() {
        return Err(Error::new(Code::Decoding, "the result is not a JSON object"));
    }
    let version_text =
        json::member(value, VERSION).and_then(Value::as_str).filter(|version_text| !version_text.is_empty());
    version_text.map_or(Ok(when_absent), Version::parse)
}
