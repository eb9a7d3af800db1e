//! JSON decoding with the rules of the reference.
//!
//! The reference's decoder (Go) matches keys case-insensitively, and treats `null` as unset. Files and runtimes rely on both
//! (`"CNIVersion"`, `"hostIp"`, `"HostPort"`). [`decode`] does the same for any `Deserialize` type, and its errors contain the path:
//! `ipam.ranges[0][1].subnet: ...`.
//!
//! Structs must not use `#[serde(flatten)]`, which hides the names of the fields.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, Expected, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

use crate::{Code, Error, Result, warn};

/// Maximum size of a document in bytes. The reference has no limit. A configuration has some kilobytes, and a GC with ten thousand
/// attachments two megabytes. Errors copy quoted parts a few times.
pub const MAX_BYTES: u64 = 4 << 20;

/// Maximum number of values in a document. A value of 3 bytes uses some hundred bytes of memory. GC's list of attachments has six values
/// for each.
pub const MAX_VALUES: usize = 1 << 16;

/// Parses a document.
///
/// # Errors
/// Code 6 with line and column if it is not JSON, or has more than [`MAX_VALUES`].
pub fn parse(bytes: &[u8], what: &str) -> Result<Value> {
    if bytes.trim_ascii().is_empty() {
        return Err(Error::new(Code::Decoding, format!("{what} is empty, expected a JSON object")));
    }
    refuse_many_values(bytes, what)?;
    serde_json::from_slice(bytes)
        .map_err(|e| Error::new(Code::Decoding, format!("{what} is not valid JSON: {e}")))
}

/// Refuses a document with more than [`MAX_VALUES`] before it is parsed.
///
/// # Errors
/// Code 6 if it has more than [`MAX_VALUES`] values.
pub fn refuse_many_values(bytes: &[u8], what: &str) -> Result<()> {
    if have_few_values(&[bytes]) {
        return Ok(());
    }
    Err(Error::new(Code::Decoding, format!("{what} has more than {MAX_VALUES} values")))
}

/// Whether documents together have at most [`MAX_VALUES`]. Each value except the first follows a comma or a bracket; those in strings count
/// too.
pub fn have_few_values(documents: &[&[u8]]) -> bool {
    let all = documents.iter().copied().flatten();
    all.filter(|byte| matches!(byte, b',' | b'[' | b'{')).count() < MAX_VALUES
}

/// A path in a configuration. Without the member, or with an empty one, the default. `key` is for errors. A relative path is returned as it
/// is: the dispatcher has warned of it ([`crate::schema::relative_path`]).
///
/// # Errors
/// Code 6 if it is not a string, 7 if it contains a NUL byte.
pub fn path(member: Option<&Value>, key: &str, default: &str) -> Result<PathBuf> {
    #[cfg(feature = "keys")]
    crate::keys::note("", &[key]);
    match member {
        None => Ok(default.into()),
        Some(Value::String(path)) if path.is_empty() => Ok(default.into()),
        Some(Value::String(path)) if path.contains('\0') => {
            Err(Error::config(format!("{key} {path:?} is not a path")))
        }
        Some(Value::String(path)) => Ok(path.into()),
        Some(_) => Err(Error::new(Code::Decoding, format!("{key}: expected a string"))),
    }
}

/// Decodes a part of a document.
///
/// # Errors
/// Code 6 with the path of a value with the wrong type or form.
pub fn decode<'de, T: de::Deserialize<'de>>(value: &'de Value) -> Result<T> {
    T::deserialize(Node { value, at: &Path::Root }).map_err(|e| Error::new(Code::Decoding, e.to_string()))
}

/// Decodes a part of a document by its keys, from the outermost on. For DEL and GC: a key of the wrong type is logged and ignored.
pub fn lenient<'de, T: de::Deserialize<'de>>(document: &'de Value, keys: &[&str]) -> Option<T> {
    let part = keys.iter().try_fold(document, |object, key| member(object, key))?;
    let wrong =
        |error: Error| warn(&format!("{}: {}; DEL and GC ignore this key", keys.join("."), error.msg()));
    decode(part).map_err(wrong).ok()
}

/// A member that occurs twice, with the same spelling, in the object at a path. [`parse`] uses the last one, like the reference.
pub fn repeated_member(bytes: &[u8], path: &[&str]) -> Option<String> {
    let mut document = serde_json::Deserializer::from_slice(bytes);
    Repeated(path).deserialize(&mut document).ok().flatten()
}

/// Searches for a repeated member in the object at a path.
struct Repeated<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for Repeated<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Repeated<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (mut seen, mut found) = (BTreeSet::new(), None);
        while let Some(key) = members.next_key::<String>()? {
            match self.0.split_first() {
                Some((step, below)) if key.eq_ignore_ascii_case(step) => {
                    found = members.next_value_seed(Repeated(below))?.or(found);
                    continue;
                }
                None if seen.contains(&key) => found = Some(key),
                None => drop(seen.insert(key)),
                Some(_) => {}
            }
            members.next_value::<IgnoredAny>()?;
        }
        Ok(found)
    }
}

/// A member of an object; keys are compared as in [`decode`].
pub fn member<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    let map = object.as_object()?;
    map.get(key)
        .or_else(|| map.iter().find(|(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, v)| v))
        .filter(|v| !v.is_null())
}

/// The members of an object, except for one. Keys are compared as in [`decode`].
pub(crate) fn without(object: &Value, key: &str) -> Map<String, Value> {
    let mut members = object.as_object().cloned().unwrap_or_default();
    members.retain(|other, _| !other.eq_ignore_ascii_case(key));
    members
}

enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, key) => f.write_str(key),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// The problem and its path.
#[derive(Debug)]
struct Mistake {
    at: Option<String>,
    text: String,
}

impl Mistake {
    fn located(mut self, at: &Path<'_>) -> Self {
        self.at.get_or_insert_with(|| at.to_string());
        self
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at.as_deref() {
            None | Some("") => f.write_str(&self.text),
            Some(at) => write!(f, "{at}: {}", self.text),
        }
    }
}

impl std::error::Error for Mistake {}

impl de::Error for Mistake {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self { at: None, text: text.to_string() }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let (expected, found_text) = (expected.to_string(), written(&found));
        Self::custom(format_args!(
            "expected {}, found {found_text}{}",
            kind_in_json(&expected),
            punctuation(&found, &expected)
        ))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!(
            "{} is out of range, expected {}",
            written(&found),
            in_json(&expected.to_string())
        ))
    }
}

/// serde_json's error in the words of [`decode`], without its place.
pub fn in_words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(&*text, |(text, _)| text);
    let types = text.strip_prefix("invalid type: ").and_then(|types| types.rsplit_once(", expected "));
    let Some((found, expected)) = types else { return text.to_owned() };
    let found = match found.split_once(' ') {
        _ if found == "map" => "an object".to_owned(),
        _ if found == "sequence" => "a list".to_owned(),
        Some(("string", _)) => format!("the {found}"),
        // serde_json quotes them: integer `7`.
        Some(_) => found.rsplit(' ').next().unwrap_or_default().trim_matches('`').to_owned(),
        None => found.to_owned(),
    };
    format!("expected {}, found {found}", kind_in_json(expected))
}

/// Like [`in_json`], without the range of a number: the key may accept less than the Rust type.
fn kind_in_json(expected: &str) -> &str {
    match in_json(expected) {
        number if number.starts_with("a whole number") => "a whole number",
        other => other,
    }
}

/// The remedy for a value that is right but for its quotes, brackets or decimal point. Empty for another value.
fn punctuation(found: &Unexpected<'_>, expected: &str) -> &'static str {
    match (found, kind_in_json(expected)) {
        (Unexpected::Str(text), "a whole number") if text.parse::<i64>().is_ok() => ": remove the quotes",
        (Unexpected::Str(text), "true or false") if text.parse::<bool>().is_ok() => ": remove the quotes",
        (Unexpected::Str(_) | Unexpected::Map, "a list") => ": put it into [ ]",
        (Unexpected::Float(number), "a whole number") if number.fract() == 0.0 => ": remove the fraction",
        _ => "",
    }
}

/// The JSON name of serde's name for a Rust type.
fn in_json(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "a boolean" => "true or false",
        "a borrowed string" => "a string",
        "a sequence" => "a list",
        "a map" => "an object",
        name if name.starts_with("struct ") => "an object",
        other => other,
    }
}

fn written(found: &Unexpected<'_>) -> String {
    match found {
        Unexpected::Str(text) => format!("the string {text:?}"),
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(number) => number.to_string(),
        Unexpected::Signed(number) => number.to_string(),
        // With the decimal point also if the fraction is 0.
        Unexpected::Float(number) => format!("{number:?}"),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "an object".to_owned(),
        Unexpected::Unit => "null".to_owned(),
        other => other.to_string(),
    }
}

/// A value and its path in the document.
struct Node<'de, 'p> {
    value: &'de Value,
    at: &'p Path<'p>,
}

impl<'de> Node<'de, '_> {
    fn map<V: Visitor<'de>>(
        self,
        object: &'de Map<String, Value>,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let members = Members { left: object.iter(), object, fields, at: self.at, current: None };
        visitor.visit_map(members)
    }

    fn scalar<V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, Mistake> {
        match self.value {
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::String(s) => visitor.visit_borrowed_str(s),
            Value::Number(n) => match (n.as_u64(), n.as_i64(), n.as_f64()) {
                (Some(n), _, _) => visitor.visit_u64(n),
                (_, Some(n), _) => visitor.visit_i64(n),
                (_, _, n) => visitor.visit_f64(n.unwrap_or(f64::NAN)),
            },
            _ => visitor.visit_unit(),
        }
    }
}

impl<'de> Deserializer<'de> for Node<'de, '_> {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let at = self.at;
        match self.value {
            Value::Array(items) => visitor.visit_seq(Items { left: items.iter().enumerate(), at }),
            Value::Object(object) => self.map(object, &[], visitor),
            _ => self.scalar(visitor),
        }
        .map_err(|e| e.located(at))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let at = self.at;
        #[cfg(feature = "keys")]
        crate::keys::note(&at.to_string(), fields);
        match self.value {
            Value::Object(object) => self.map(object, fields, visitor).map_err(|e| e.located(at)),
            // serde would accept an array for a struct.
            Value::Array(_) => {
                Err(de::Error::invalid_type(Unexpected::Seq, &visitor)).map_err(|e: Mistake| e.located(at))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let at = self.at;
        let Value::String(text) = self.value else { return self.deserialize_any(visitor) };
        let name = variants.iter().find(|v| v.eq_ignore_ascii_case(text)).copied().unwrap_or(text);
        let variant: StrDeserializer<'_, Mistake> = name.into_deserializer();
        visitor.visit_enum(variant).map_err(|e| e.located(at))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string
        bytes byte_buf unit unit_struct seq tuple tuple_struct map identifier
    }
}

struct Items<'de, 'p> {
    left: std::iter::Enumerate<std::slice::Iter<'de, Value>>,
    at: &'p Path<'p>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Mistake;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Mistake> {
        let Some((index, value)) = self.left.next() else { return Ok(None) };
        let at = &Path::Index(self.at, index);
        seed.deserialize(Node { value, at }).map(Some).map_err(|e| e.located(at))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

/// The members of an object. For a struct (`fields` not empty), keys are mapped to the names of its fields.
struct Members<'de, 'p> {
    left: serde_json::map::Iter<'de>,
    object: &'de Map<String, Value>,
    fields: &'static [&'static str],
    at: &'p Path<'p>,
    current: Option<(&'de str, &'de Value)>,
}

impl<'de> Members<'de, '_> {
    /// The field of a key. `None` if another key matches it better.
    fn field(&self, key: &'de str) -> Option<&'de str> {
        if self.fields.is_empty() || self.fields.contains(&key) {
            return Some(key);
        }
        let Some(field) = self.fields.iter().find(|f| f.eq_ignore_ascii_case(key)) else { return Some(key) };
        let same = |k: &&String| k.eq_ignore_ascii_case(field);
        let first = self.object.keys().find(same).is_some_and(|k| k == key);
        (first && !self.object.contains_key(*field)).then_some(*field)
    }
}

impl<'de> MapAccess<'de> for Members<'de, '_> {
    type Error = Mistake;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Mistake> {
        while let Some((key, value)) = self.left.next() {
            if value.is_null() {
                continue;
            }
            if let Some(field) = self.field(key) {
                self.current = Some((field, value));
                let name: StrDeserializer<'_, Mistake> = field.into_deserializer();
                return seed.deserialize(name).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Mistake> {
        let (key, value) =
            self.current.take().ok_or_else(|| <Mistake as de::Error>::custom("value without a key"))?;
        let at = &Path::Key(self.at, key);
        seed.deserialize(Node { value, at }).map_err(|e| e.located(at))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    struct Mapping {
        host_port: u16,
        protocol: Protocol,
        host_ip: Option<String>,
        inner: Vec<Vec<Mapping>>,
        labels: BTreeMap<String, String>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Protocol {
        #[default]
        Tcp,
        Udp,
    }

    #[test]
    fn keys_match_without_regard_to_case_at_every_depth() {
        let value =
            json!({ "HostPort": 80, "HOSTip": "::1", "inner": [[{ "hostport": 81, "Protocol": "UDP" }]] });
        let read: Mapping = decode(&value).unwrap();
        assert_eq!((read.host_port, read.host_ip.as_deref()), (80, Some("::1")));
        assert_eq!(
            read.inner[0][0],
            Mapping { host_port: 81, protocol: Protocol::Udp, ..Mapping::default() }
        );
    }

    #[test]
    fn an_exact_key_takes_precedence_over_one_that_differs_in_case() {
        for value in [json!({ "HOSTPORT": 1, "hostPort": 2, "hostport": 3 }), json!({ "hostPort": 2 })] {
            assert_eq!(decode::<Mapping>(&value).unwrap().host_port, 2);
        }
        assert_eq!(decode::<Mapping>(&json!({ "HOSTPORT": 1, "hostport": 3 })).unwrap().host_port, 1);
    }

    #[test]
    fn the_keys_of_a_map_are_left_as_they_are() {
        let read: Mapping = decode(&json!({ "labels": { "HostPort": "x", "hostport": "y" } })).unwrap();
        assert_eq!(read.labels.len(), 2);
    }

    #[test]
    fn null_is_left_out() {
        let read: Mapping =
            decode(&json!({ "hostPort": null, "hostIP": null, "inner": null, "labels": null })).unwrap();
        assert_eq!(read, Mapping::default());
    }

    #[test]
    fn a_mistake_names_its_place() {
        let value = json!({ "inner": [[], [{ "hostPort": 1 }, { "HostPort": "80" }]] });
        let error = decode::<Mapping>(&value).unwrap_err();
        assert_eq!(error.code(), 6);
        assert!(
            error.msg().starts_with(
                "inner[1][1].hostPort: expected a whole number, found the string \"80\": remove the quotes"
            ),
            "{error}"
        );
    }

    #[test]
    fn a_mistake_in_quotes_or_brackets_is_named_and_no_range_that_the_key_may_not_have() {
        for (value, expected) in [
            (json!({"hostPort": "eighty"}), "hostPort: expected a whole number, found the string \"eighty\""),
            (json!({"hostPort": 1.5}), "hostPort: expected a whole number, found 1.5"),
            (json!({"hostPort": 80.0}), "hostPort: expected a whole number, found 80.0: remove the fraction"),
            (json!({"inner": "x"}), "inner: expected a list, found the string \"x\": put it into [ ]"),
            (json!({"inner": [{}]}), "inner[0]: expected a list, found an object: put it into [ ]"),
            (json!({"inner": 5}), "inner: expected a list, found 5"),
        ] {
            assert_eq!(decode::<Mapping>(&value).unwrap_err().msg(), expected);
        }
        let error = decode::<bool>(&json!("true")).unwrap_err();
        assert_eq!(error.msg(), "expected true or false, found the string \"true\": remove the quotes");
        assert_eq!(decode::<&str>(&json!(5)).unwrap_err().msg(), "expected a string, found 5");
    }

    #[test]
    fn del_and_gc_treat_mistyped_keys_as_missing() {
        let value = json!({ "Inner": { "hostPort": "80", "protocol": "udp" } });
        assert_eq!(lenient::<u16>(&value, &["inner", "hostPort"]), None);
        assert_eq!(lenient::<Protocol>(&value, &["inner", "protocol"]), Some(Protocol::Udp));
        assert_eq!(lenient::<u16>(&value, &["inner", "protocol", "deeper"]), None);
        assert_eq!(lenient::<u16>(&value, &["other"]), None);
    }

    #[test]
    fn a_repeated_member_is_found_only_at_its_path() {
        let text = br#"{ "a": 1, "a": 2, "Labels": { "x": [1, {}], "x": null, "y": { "y": 1, "y": 1 } } }"#;
        for (path, found) in
            [(&["labels"][..], Some("x")), (&[], Some("a")), (&["labels", "y"], Some("y")), (&["a"], None)]
        {
            assert_eq!(repeated_member(text, path).as_deref(), found, "{path:?}");
        }
        assert_eq!(repeated_member(b"{", &[]), None);
    }

    #[test]
    fn an_array_is_no_struct_and_an_unknown_word_no_variant() {
        assert!(decode::<Mapping>(&json!([1, "tcp"])).is_err());
        let error = decode::<Mapping>(&json!({ "protocol": "icmp" })).unwrap_err();
        assert!(error.msg().contains("protocol: unknown variant `icmp`"), "{error}");
    }

    #[test]
    fn invalid_json_is_reported_with_line_and_column() {
        let error = parse(b"{\n \"a\": 1,\n}", "the configuration on stdin").unwrap_err();
        assert_eq!(error.code(), 6);
        assert!(error.msg().contains("line 3 column 1"), "{error}");
        assert!(parse(b"  ", "stdin").unwrap_err().msg().contains("empty"));
        assert!(parse("[".repeat(100_000).as_bytes(), "stdin").is_err());
    }

    #[test]
    fn a_document_whose_values_would_take_much_memory_is_refused() {
        let list = |length: usize| format!("[{}0]", "0,".repeat(length - 1));
        parse(list(MAX_VALUES - 1).as_bytes(), "stdin").unwrap();
        let error = parse(list(MAX_VALUES).as_bytes(), "stdin").unwrap_err();
        assert_eq!((error.code(), error.msg()), (6, "stdin has more than 65536 values"));
    }
}
