//! Converts the text of an option to the value of a plugin's key.

use cni::{Error, Result};
use serde_json::{Map, Value};
use validate::schema::{self, Key, Type};

/// Sets the value at a path in an object whose schema is known.
///
/// # Errors
/// Code 7 for a key that the schema does not contain, and if the schema requires an object but the text is not JSON.
pub fn put(object: &mut Map<String, Value>, keys: &[&Key], path: &str, text: &str) -> Result<()> {
    let (name, below) = path.split_once('.').map_or((path, None), |(name, below)| (name, Some(below)));
    let key = schema::find(keys.iter().copied(), name).ok_or_else(|| unknown(keys, name))?;
    let Some(below) = below else {
        object.insert(key.name.to_owned(), read(key.takes, text)?);
        return Ok(());
    };
    let inner = object.entry(key.name).or_insert_with(|| Map::new().into());
    let Value::Object(inner) = inner else { return Err(not_an_object(key.name)) };
    match key.takes {
        Type::Object(keys) => put(inner, &keys.iter().collect::<Vec<_>>(), below, text),
        // The user chooses the names in this object, and they may contain dots: net.core.somaxconn.
        Type::Map(takes) => {
            inner.insert(below.to_owned(), read(*takes, text)?);
            Ok(())
        }
        _ => Err(not_an_object(key.name)),
    }
}

fn not_an_object(key: &str) -> Error {
    Error::config(format!("{key} is not an object")).detail(format!("nothing can follow \"{key}.\""))
}

fn unknown(keys: &[&Key], name: &str) -> Error {
    let names = || keys.iter().map(|key| key.name);
    let near = schema::synonym(name).filter(|same| names().any(|name| name == *same));
    let near = near.or_else(|| schema::nearest(name, names()));
    let known = || format!("the keys are {}", names().collect::<Vec<_>>().join(", "));
    Error::config(format!("there is no key {name:?}"))
        .detail(near.map_or_else(known, |near| format!("did you mean {near:?}?")))
}

/// Text that does not match the type stays text: the check of the whole configuration then reports the mistake.
fn read(takes: Type, text: &str) -> Result<Value> {
    let is_json = text.starts_with(['[', '{']);
    Ok(match takes {
        Type::Bool | Type::BoolOrText => text.parse::<bool>().map_or_else(|_| text.into(), Value::from),
        Type::Number(..) => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
        Type::List(_) | Type::Object(_) | Type::Map(_) | Type::Any if is_json => {
            serde_json::from_str(text).map_err(|e| Error::config(format!("{text:?} is not JSON: {e}")))?
        }
        Type::List(element) => {
            let items = text.split(',').map(|item| read(*element, item.trim()));
            Value::Array(items.collect::<Result<_>>()?)
        }
        _ => text.into(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(plugin: &str, path: &str, text: &str) -> Result<Value> {
        let keys: Vec<&Key> = schema::plugin(plugin).unwrap().keys.iter().collect();
        let mut object = Map::new();
        put(&mut object, &keys, path, text).map(|()| object.into())
    }

    #[test]
    fn an_option_becomes_a_value_of_the_keys_type() {
        for (plugin, path, text, expected) in [
            ("macvlan", "mode", "private", json!({"mode": "private"})),
            ("bridge", "vlan", "100", json!({"vlan": 100})),
            ("bridge", "hairpinmode", "true", json!({"hairpinMode": true})),
            ("bridge", "vlanTrunk", r#"[{"id": 7}]"#, json!({"vlanTrunk": [{"id": 7}]})),
            ("sbr", "gateways", "10.0.0.1, fd00::1", json!({"gateways": ["10.0.0.1", "fd00::1"]})),
            ("tuning", "sysctl.net.core.somaxconn", "500", json!({"sysctl": {"net.core.somaxconn": "500"}})),
        ] {
            assert_eq!(with(plugin, path, text).unwrap(), expected);
        }
    }

    #[test]
    fn invalid_values_are_left_to_the_check_of_the_configuration() {
        assert_eq!(with("bridge", "vlan", "many").unwrap(), json!({"vlan": "many"}));
    }

    #[test]
    fn a_key_that_is_not_described_is_refused_with_the_nearest_one() {
        let error = with("macvlan", "mastr", "eth0").unwrap_err();
        assert_eq!((error.msg(), error.details()), ("there is no key \"mastr\"", "did you mean \"master\"?"));
        assert!(with("macvlan", "mode.x", "y").unwrap_err().msg().contains("mode is not an object"));
        assert!(with("bridge", "vlanTrunk", "[").unwrap_err().msg().contains("not JSON"));
    }
}
