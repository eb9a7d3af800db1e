//! What a configuration may say: every key of every plugin of the suite, and of a network. The one source for
//! `validate`, `explain` and the pages in docs/.

mod interface;
mod ipam;
mod meta;
mod network;

pub use network::{LIST, PLUGIN};

/// A plugin of the suite.
#[derive(Debug)]
pub struct Plugin {
    /// The name of its executable.
    pub name: &'static str,
    /// What kind of plugin it is.
    pub role: Role,
    /// What it does, in a sentence without its subject.
    pub about: &'static str,
    /// The keys that it reads, but for those that every plugin has ([`PLUGIN`]).
    pub keys: &'static [Key],
    /// The capability arguments that it takes.
    pub capabilities: &'static [&'static str],
}

/// What a plugin is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Makes an interface.
    Interface,
    /// Gives addresses to another plugin.
    Ipam,
    /// Works on what an earlier plugin of the list made.
    Chained,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Interface => "an interface plugin",
            Self::Ipam => "an address plugin, for another plugin's ipam",
            Self::Chained => "a chained plugin, after an interface plugin",
        }
    }
}

/// A key of a configuration.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    pub takes: Type,
    /// What holds if it is left out. Empty: the key is required.
    pub default: &'static str,
    /// What it does, in a sentence without its subject.
    pub about: &'static str,
}

impl Key {
    pub fn is_required(&self) -> bool {
        self.default.is_empty()
    }
}

const fn key(name: &'static str, takes: Type, default: &'static str, about: &'static str) -> Key {
    Key { name, takes, default, about }
}

/// What a key's value must be.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    Bool,
    /// A boolean, or its word as a string.
    BoolOrText,
    Text,
    /// A version of the specification.
    Version,
    /// A whole number in a range.
    Number(i64, i64),
    OneOf(&'static [&'static str]),
    Ip,
    /// An address with a prefix length.
    Cidr,
    /// An address, with or without a prefix length.
    IpOrCidr,
    Mac,
    /// An interface's name.
    IfName,
    /// An absolute path.
    Path,
    List(&'static Type),
    Object(&'static [Key]),
    /// An object whose keys are names of the user's own.
    Map(&'static Type),
    /// The part of another plugin, that `type` in it names.
    Ipam,
    /// Something that is not looked at.
    Any,
}

impl Type {
    /// The keys of the objects that such a value consists of.
    pub fn keys(self) -> &'static [Key] {
        match self {
            Self::Object(keys) => keys,
            Self::List(element) => element.keys(),
            _ => &[],
        }
    }

    /// In words.
    pub fn describe(self) -> String {
        match self {
            Self::Bool | Self::BoolOrText => "true or false".to_owned(),
            Self::Text => "text".to_owned(),
            Self::Version => "a version of the specification".to_owned(),
            Self::Number(low, i64::MAX) => format!("a number from {low}"),
            Self::Number(low, high) => format!("a number from {low} to {high}"),
            Self::OneOf(words) => words.join(" | "),
            Self::Ip => "an IP address".to_owned(),
            Self::Cidr => "an address with a prefix length, such as 10.0.0.0/24".to_owned(),
            Self::IpOrCidr => "an IP address, with or without a prefix length".to_owned(),
            Self::Mac => "a MAC address".to_owned(),
            Self::IfName => "the name of an interface".to_owned(),
            Self::Path => "an absolute path".to_owned(),
            Self::List(inner) => format!("a list of: {}", inner.describe()),
            Self::Object(keys) => {
                format!("an object: {}", keys.iter().map(|key| key.name).collect::<Vec<_>>().join(", "))
            }
            Self::Map(inner) => format!("an object, each value {}", inner.describe()),
            Self::Ipam => "an object with the type of an address plugin, and its keys".to_owned(),
            Self::Any => "anything".to_owned(),
        }
    }
}

/// All plugins of the suite.
pub fn plugins() -> impl Iterator<Item = &'static Plugin> {
    interface::PLUGINS.iter().chain(ipam::PLUGINS).chain(meta::PLUGINS)
}

/// A plugin by its name.
pub fn plugin(name: &str) -> Option<&'static Plugin> {
    plugins().find(|plugin| plugin.name == name)
}

/// A key of a list, compared as plugins do: without regard to case.
pub fn find<'a>(keys: impl IntoIterator<Item = &'a Key>, name: &str) -> Option<&'a Key> {
    keys.into_iter().find(|key| key.name.eq_ignore_ascii_case(name))
}

/// The name that was probably meant: no more than a third of it is different.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_ascii_lowercase();
    let near = known.into_iter().map(|other| (distance(&lower, &other.to_ascii_lowercase()), other));
    near.filter(|(distance, other)| *distance <= 1 + name.len().max(other.len()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, other)| other)
}

/// How many letters must be changed, added, left out, or swapped with the next one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_is_told_the_nearest_one_and_a_strange_one_none() {
        let known = ["isGateway", "isDefaultGateway", "ipMasq", "mtu", "subnet"];
        assert_eq!(nearest("isgatway", known), Some("isGateway"));
        assert_eq!(nearest("ipMsaq", known), Some("ipMasq"));
        assert_eq!(nearest("ipmasquerade", known), None);
        assert_eq!(nearest("subnets", known), Some("subnet"));
        assert_eq!(nearest("colour", known), None);
    }

    #[test]
    fn every_key_says_what_it_does_and_no_name_is_there_twice() {
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

    /// All names of keys, the inner ones too.
    fn names(keys: &'static [Key]) -> Vec<&'static str> {
        keys.iter().flat_map(|key| [vec![key.name], names(key.takes.keys())].concat()).collect()
    }

    /// The keys in the first column of the tables of a page's part "Keys".
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
            let Ok(page) = std::fs::read_to_string(docs.join(format!("{}.md", plugin.name))) else {
                continue;
            };
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
