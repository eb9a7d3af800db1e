//! Results on their way from plugin to plugin, and into the cache. They stay as they were written, with what only their
//! maker understands: as with libcni, a plugin finds in DEL what it said at ADD. AWS' keeps a VLAN and a table in
//! `pciID` and `socketPath`, also where the network speaks 1.0.0.

use cni::{AddResult, Code, Error, Result, Version, json};
use serde_json::Value;

const VERSION: &str = "cniVersion";

/// Reads a result in the version that it says it has; else in the given one.
pub(crate) fn read(value: &Value, unsaid: Version) -> Result<AddResult> {
    AddResult::from_json(value, version(value, unsaid)?)
}

/// A result in a version. It is unchanged if that version has the same form, and converted otherwise.
pub(crate) fn in_version(value: &Value, unsaid: Version, wanted: Version) -> Result<Value> {
    let said = version(value, unsaid)?;
    let result = AddResult::from_json(value, said)?;
    if !said.same_format(wanted) {
        return json::parse(result.to_json(wanted)?.as_bytes(), "a result");
    }
    let mut kept = value.clone();
    if let Some(members) = kept.as_object_mut() {
        members.retain(|key, _| !key.eq_ignore_ascii_case(VERSION));
        members.insert(VERSION.to_owned(), wanted.as_str().into());
    }
    Ok(kept)
}

fn version(value: &Value, unsaid: Version) -> Result<Version> {
    if !value.is_object() {
        return Err(Error::new(Code::Decoding, "its result is not a JSON object"));
    }
    let said = json::member(value, VERSION).and_then(Value::as_str).filter(|said| !said.is_empty());
    said.map_or(Ok(unsaid), Version::parse)
}
