//! Many plugins in one executable, which is the plugin by whose name it is called.

use std::env;
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use crate::plugin::{self, Plugin};
use crate::{Error, Version};

/// A plugin of an executable that has many.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    name: &'static str,
    main: fn() -> ExitCode,
}

impl Entry {
    /// The entry of a plugin.
    pub const fn of<P: Plugin>() -> Self {
        Self { name: P::NAME, main: plugin::main::<P> }
    }

    /// The plugin's name.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// Serves one call as the plugin by whose name the executable was called: the whole `main` of a plugin. None: the name is no
/// plugin's, and no runtime asks for one.
pub fn main(plugins: &[Entry]) -> Option<ExitCode> {
    let path = env::args_os().next().unwrap_or_default();
    let file = Path::new(&path).file_name().unwrap_or_default();
    match find(plugins, file) {
        Some(plugin) => Some((plugin.main)()),
        None => plugin::is_called()
            .then(|| plugin::failed(&nobody(plugins, file), Version::LATEST, &plugin::print)),
    }
}

/// The plugin that a file of this name is: the plugin's own name, or one that ends in it, such as `buildkit-cni-bridge`.
fn find<'a>(plugins: &'a [Entry], file: &OsStr) -> Option<&'a Entry> {
    let file = file.to_str()?;
    let is_meant =
        |name| file.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('-'));
    plugins.iter().filter(|plugin| is_meant(plugin.name)).max_by_key(|plugin| plugin.name.len())
}

fn nobody(plugins: &[Entry], file: &OsStr) -> Error {
    let names: Vec<&str> = plugins.iter().map(Entry::name).collect();
    Error::config(format!(
        "type: this executable was called as {file:?}, which is the name of none of its plugins"
    ))
    .detail(format!("it is the plugin by whose name it is called; it has {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn entry(name: &'static str) -> Entry {
        Entry { name, main: || ExitCode::SUCCESS }
    }

    const PLUGINS: [Entry; 3] = [entry("vlan"), entry("macvlan"), entry("host-local")];

    fn found(file: &str) -> Option<&'static str> {
        find(&PLUGINS, OsStr::new(file)).map(Entry::name)
    }

    #[test]
    fn a_file_is_the_plugin_whose_name_it_has_or_ends_in() {
        for (file, plugin) in [
            ("vlan", "vlan"),
            ("macvlan", "macvlan"),
            ("buildkit-cni-vlan", "vlan"),
            ("buildkit-cni-host-local", "host-local"),
            ("-vlan", "vlan"),
        ] {
            assert_eq!(found(file), Some(plugin), "{file}");
        }
    }

    #[test]
    fn a_file_of_any_other_name_is_no_plugin() {
        for file in ["", "ferrule", "exe", "ipvlan", "vlan.new", "vlan-", "local", "VLAN"] {
            assert_eq!(found(file), None, "{file}");
        }
    }
}
