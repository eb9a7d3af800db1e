//! The schema of configurations: every key of a network, and of every plugin of the suite. It is the only source for
//! `validate`, `explain`, the schemas in docs/schema/ and the tables in docs/.

#[cfg(test)]
mod drift;
pub mod json;
mod nearest;
mod network;
mod plugin;

pub use cni::Role;
pub use cni::schema::{Key, Type};
pub use nearest::{nearest, synonym};
pub use network::{LIST, PLUGIN};
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

    /// All names of keys, including those in inner objects.
    fn names(keys: &'static [Key]) -> Vec<&'static str> {
        keys.iter().flat_map(|key| [vec![key.name], names(key.takes.keys())].concat()).collect()
    }

    /// The keys in the first column of the tables in a page's section "Keys".
    fn described(page: &str) -> Vec<&str> {
        let part = page.split("\n## ").find(|part| part.starts_with("Keys")).unwrap_or_default();
        let cells =
            part.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
        cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
    }

    #[test]
    fn the_pages_in_docs_describe_the_keys_that_are_known_here_and_no_others() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        for plugin in plugins() {
            let page = std::fs::read_to_string(docs.join(format!("{}.md", plugin.name)))
                .unwrap_or_else(|e| panic!("docs/{}.md: {e}", plugin.name));
            let described = described(&page);
            let known = [names(plugin.keys), names(PLUGIN)].concat();
            for key in &described {
                let last = key.rsplit('.').next().unwrap_or_default();
                assert!(known.contains(&last), "docs/{}.md has {key}, which is not known here", plugin.name);
            }
            for key in plugin.keys.iter().filter(|_| !described.is_empty()) {
                assert!(described.contains(&key.name), "docs/{}.md lacks {}", plugin.name, key.name);
            }
        }
    }
}
