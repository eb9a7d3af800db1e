//! The schema of configurations: every key of a network, and of every plugin of the suite. It is the only source for
//! `validate`, `explain`, the schemas in docs/schema/ and the tables in docs/.

#[cfg(test)]
mod drift;
pub mod json;
mod nearest;
mod network;
#[cfg(test)]
mod pages;
mod plugin;

pub use cni::Role;
pub use cni::schema::{Key, Type, relative_path};
pub use nearest::{nearest, synonym};
pub use network::{CAPABILITIES, LIST, PLUGIN};
pub use plugin::Plugin;

macro_rules! described {
    ($($plugin:ident::$name:ident,)*) => {
        &[$(Plugin::of::<all_plugins::$plugin::$name>(),)*]
    };
}

const PLUGINS: &[Plugin] = all_plugins::for_each_plugin!(described);

/// All plugins of the suite.
pub fn plugins() -> impl Iterator<Item = &'static Plugin> {
    PLUGINS.iter()
}

/// A plugin by its name.
pub fn plugin(name: &str) -> Option<&'static Plugin> {
    plugins().find(|plugin| plugin.name == name)
}

/// Finds a key in a list. Upper and lower case are equal, as for plugins.
pub fn find<'a>(keys: impl IntoIterator<Item = &'a Key>, name: &str) -> Option<&'a Key> {
    keys.into_iter().find(|key| key.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_description_and_a_unique_name() {
        fn walk(keys: &[Key], of: &str) {
            for (i, key) in keys.iter().enumerate() {
                assert!(!key.about.is_empty(), "{of}.{}", key.name);
                assert!(find(&keys[..i], key.name).is_none(), "{of}.{} is there twice", key.name);
                walk(key.takes.keys(), &format!("{of}.{}", key.name));
            }
        }
        walk(LIST, "list");
        walk(PLUGIN, "plugin");
        plugins().for_each(|plugin| walk(plugin.keys, plugin.name));
    }
}
