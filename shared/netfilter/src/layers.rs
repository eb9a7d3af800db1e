//! The modules of this crate, from the lowest layer to the highest. A module imports only lower ones.

use std::fs;
use std::path::Path;

const LAYERS: &[&str] = &[
    "networks",
    "backend",
    "chain_name",
    "owner",
    "ruleset",
    "conntrack",
    "listing",
    "reference",
    "selector",
    "opening",
    "script",
    "kind",
    "plan",
    "iptables",
    "nft",
    "monitor",
    "removal",
    "firewall",
    "repair",
    "kinds",
];

/// The modules that a file imports as `crate::MODULE`, without its tests. Items in the crate's root, such as types, are
/// ignored.
fn imports(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: Vec<&str> = product.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let list = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or_default().split(',').collect(),
            None => vec![rest],
        };
        let name = |text: &str| {
            text.trim_start().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
        };
        found.extend(list.into_iter().map(name).filter(|name: &String| LAYERS.contains(&name.as_str())));
    }
    found
}

fn files_of(path: &Path) -> Vec<std::path::PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    entries.flat_map(|entry| files_of(&entry.unwrap().path())).collect()
}

/// Fuzz targets and tests use modules of all layers.
fn is_for_tests(file: &Path) -> bool {
    ["fuzz.rs", "tests.rs"].iter().any(|name| file.ends_with(name))
}

#[test]
fn every_module_imports_only_those_below_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut count = 0;
    for (level, module) in LAYERS.iter().enumerate() {
        let files = [files_of(&source.join(format!("{module}.rs"))), files_of(&source.join(module))].concat();
        for file in files.iter().filter(|file| !is_for_tests(file)) {
            for import in imports(file) {
                let below = LAYERS.iter().position(|layer| *layer == import).unwrap();
                assert!(below <= level, "{} imports {import}, which is above {module}", file.display());
                count += 1;
            }
        }
    }
    assert!(count > LAYERS.len(), "the sources have not been found");
}

#[test]
fn every_module_has_a_layer() {
    let root = include_str!("lib.rs");
    let modules = root.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    for module in modules.filter(|module| *module != "layers") {
        assert!(LAYERS.contains(&module), "{module} is not in LAYERS");
    }
}
