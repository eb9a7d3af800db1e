//! Options on disk: `{"3": "0a000001"}`.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::Number;

/// Bytes as hexadecimal digits.
pub(super) fn write(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn read(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(high)? << 4 | digit(low)?).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

pub(super) fn serialize<S: Serializer>(
    options: &BTreeMap<Number, Vec<u8>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let texts: BTreeMap<Number, String> = options.iter().map(|(n, value)| (*n, write(value))).collect();
    texts.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<Number, Vec<u8>>, D::Error> {
    let texts = BTreeMap::<Number, String>::deserialize(deserializer)?;
    let malformed = |number| {
        D::Error::custom(format!(
            "option {number} contains other characters than \
     hexadecimal digits"
        ))
    };
    texts.into_iter().map(|(n, text)| Ok((n, read(&text).ok_or_else(|| malformed(n))?))).collect()
}
