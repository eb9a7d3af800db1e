//! A configuration as text, not decoded yet.

use std::rc::Rc;

use serde::Deserialize;
use serde_json::Value;

use crate::{Result, json};

/// A plugin's configuration as written. DEL and GC read only the keys that they need from it, so mistakes in other keys
/// do not make them fail. ADD, CHECK and STATUS decode all of it.
#[derive(Clone, Debug, Default)]
pub struct AsWritten(Rc<Value>);

impl AsWritten {
    /// Decodes all of it.
    ///
    /// # Errors
    /// Code 6, naming a key of the wrong type.
    pub fn decode<'de, T: Deserialize<'de>>(&'de self) -> Result<T> {
        json::decode(&self.0)
    }

    /// One value, by its keys from the outermost on. A key of the wrong type is logged and counts as missing.
    pub fn key<'de, T: Deserialize<'de>>(&'de self, keys: &[&str]) -> Option<T> {
        #[cfg(feature = "keys")]
        keys.split_last().inspect(|(key, place)| crate::keys::note(&place.join("."), &[*key]));
        json::lenient(&self.0, keys)
    }

    /// A member of any type.
    pub fn member(&self, key: &str) -> Option<&Value> {
        #[cfg(feature = "keys")]
        crate::keys::note("", &[key]);
        json::member(&self.0, key)
    }
}

impl From<Value> for AsWritten {
    fn from(json: Value) -> Self {
        Self(Rc::new(json))
    }
}

impl From<Rc<Value>> for AsWritten {
    fn from(json: Rc<Value>) -> Self {
        Self(json)
    }
}
