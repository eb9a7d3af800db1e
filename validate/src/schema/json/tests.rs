use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use runtime::text;

use super::*;
use crate::checks::{Finding, Level, Report};

/// A schema, compiled by an independent validator.
struct Compiled {
    schemas: boon::Schemas,
    index: boon::SchemaIndex,
}

impl Compiled {
    fn new(schema: &Value) -> Self {
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        let id = schema["$id"].as_str().unwrap();
        compiler.add_resource(id, schema.clone()).unwrap();
        let index = compiler.compile(id, &mut schemas).unwrap();
        Self { schemas, index }
    }

    fn of(name: &str) -> Self {
        Self::new(&all().find(|(known, _)| *known == name).unwrap().1)
    }

    /// The errors of a document. Empty: the document is valid.
    fn refusal(&self, document: &Value) -> String {
        self.schemas.validate(document, self.index).err().map(|e| e.to_string()).unwrap_or_default()
    }
}

/// A host on which each plugin is installed.
fn host() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for plugin in plugins() {
        let file = dir.path().join(plugin.name);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    dir
}

/// Whether `validate` reports errors in a list.
fn errors(host: &Path, document: &Value) -> Vec<String> {
    let path = [host.to_owned()];
    let (root, problems) = text::parse(&document.to_string());
    assert!(problems.is_empty(), "{document}");
    let mut report = Report::new(&path, true, None);
    report.check(&root.unwrap());
    // A schema cannot express that a plugin must not be the first one.
    let is_of_order = |finding: &Finding| finding.text.ends_with("is the first of its list");
    let errors = report.finish().into_iter().filter(|it| it.level == Level::Error && !is_of_order(it));
    errors.map(|finding| finding.text).collect()
}

/// A valid value of a type.
fn sample(takes: Type) -> Value {
    match takes {
        Type::Bool | Type::BoolOrText => json!(true),
        Type::Text => json!("text"),
        Type::Version => json!("1.0.0"),
        Type::Number(low, _) => json!(low),
        Type::OneOf(words) => json!(words[0]),
        Type::Ip => json!("10.1.0.1"),
        Type::Cidr | Type::IpOrCidr => json!("fd00::1/64"),
        Type::Mac => json!("0a:58:0a:00:00:05"),
        Type::IfName | Type::LinkName => json!("eth1"),
        Type::Path => json!("/run/cni"),
        Type::List(inner) => json!([sample(*inner)]),
        Type::Object(keys) => sample_of(keys.iter()),
        Type::Map(inner) => json!({"some": sample(*inner)}),
        Type::Ipam | Type::Plugin => json!({"type": "static"}),
        Type::IpamPart | Type::Delegate => json!({}),
        Type::Any => json!([7]),
    }
}

fn sample_of<'k>(keys: impl Iterator<Item = &'k Key>) -> Value {
    keys.map(|key| (key.name.to_owned(), sample(key.takes))).collect::<Map<_, _>>().into()
}

/// A plugin's object with all of its keys. An IPAM plugin's object is in the object of another plugin.
fn everything(plugin: &Plugin) -> Value {
    let mut all = sample_of(plugin.keys.iter());
    all["type"] = plugin.name.into();
    all
}

fn in_a_network(plugin: &Plugin, object: &Value) -> Value {
    let item = match plugin.role {
        Role::Ipam => json!({"type": "bridge", "ipam": object}),
        _ => object.clone(),
    };
    json!({"cniVersion": "1.0.0", "name": "net", "plugins": [item]})
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

#[test]
fn the_published_schemas_are_those_of_the_tables() {
    let published = fs::read_dir(docs().join("schema")).unwrap();
    let published: BTreeMap<String, String> = published
        .map(|file| file.unwrap().path())
        .filter(|file| file.extension().is_some_and(|extension| extension == "json"))
        .map(|file| (file.file_stem().unwrap().to_string_lossy().into(), fs::read_to_string(&file).unwrap()))
        .collect();
    let expected: BTreeMap<String, String> =
        all().map(|(name, schema)| (name.to_owned(), as_file(&schema))).collect();
    let names = |of: &BTreeMap<String, String>| of.keys().cloned().collect::<Vec<_>>();
    let help = "write them anew: cargo run -p cnitool -- schema --to docs/schema";
    assert_eq!(names(&published), names(&expected), "{help}");
    for (name, schema) in &expected {
        assert!(published[name] == *schema, "docs/schema/{name}.json is old; {help}");
    }
}

#[test]
fn every_key_with_a_value_of_its_type_is_valid_by_itself_and_in_a_network() {
    let network = Compiled::of(NETWORK);
    for plugin in plugins() {
        let object = everything(plugin);
        assert_eq!(Compiled::of(plugin.name).refusal(&object), "", "{}", plugin.name);
        assert_eq!(network.refusal(&in_a_network(plugin, &object)), "", "{}", plugin.name);
    }
}

#[test]
fn a_key_of_the_wrong_type_is_refused_where_validate_refuses_it_and_nowhere_else() {
    let (host, network) = (host(), Compiled::of(NETWORK));
    let wrong = [json!(null), json!(true), json!(-7), json!(1.5), json!(""), json!([1]), json!({"no": 1})];
    for plugin in plugins() {
        let alone = Compiled::of(plugin.name);
        for key in plugin.keys {
            for value in &wrong {
                let mut object = everything(plugin);
                object[key.name] = value.clone();
                let whole = in_a_network(plugin, &object);
                let (errors, refusal) = (errors(host.path(), &whole), network.refusal(&whole));
                let case = format!(
                    "{}.{} = {value}: validate: {errors:?}; schema: {refusal}",
                    plugin.name, key.name
                );
                assert_eq!(refusal.is_empty(), errors.is_empty(), "{case}");
                assert_eq!(alone.refusal(&object).is_empty(), errors.is_empty(), "{case}");
            }
        }
    }
}

#[test]
fn text_without_the_form_of_its_type_is_refused() {
    let cases = [
        ("host-local", json!({"type": "host-local", "subnet": "10.1.0.0"}), "/subnet"),
        (
            "host-local",
            json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/16", "gateway": "ten"}]]}),
            "gateway",
        ),
        ("bridge", json!({"type": "bridge", "bridge": "a name that is too long"}), "/bridge"),
        ("tuning", json!({"type": "tuning", "mac": "0a:58"}), "/mac"),
        ("bridge", json!({"bridge": "cni0"}), "type"),
        ("bridge", json!({"type": "bridge", "vlan": 5000}), "/vlan"),
        ("bridge", json!({"type": "bridge", "ipam": {"subnet": "10.1.0.0/16"}}), "type"),
        ("portmap", json!({"type": "portmap", "backend": "nftable"}), "/backend"),
        ("tuning", json!({"type": "tuning", "dataDir": 5}), "/dataDir"),
        (NETWORK, json!({"plugins": [{"type": "bridge"}]}), "name"),
        (NETWORK, json!({"name": "net", "plugins": []}), "/plugins"),
        (NETWORK, json!({"name": "net", "plugins": [{"type": "bridge", "mtu": "1500"}]}), "/plugins/0/mtu"),
        (NETWORK, json!({"name": "net", "cniVersion": "one", "plugins": [{"type": "x"}]}), "/cniVersion"),
    ];
    for (schema, document, place) in cases {
        let refusal = Compiled::of(schema).refusal(&document);
        assert!(refusal.contains(place), "{document}: {refusal:?}");
    }
}

#[test]
fn another_vendors_plugin_may_have_other_keys() {
    let network = Compiled::of(NETWORK);
    let document = json!({"name": "net", "plugins": [
        {"type": "calico", "mtu": "auto", "ipam": {"type": "calico-ipam", "subnet": 7}},
        {"type": "portmap", "capabilities": {"portMappings": true}, "theirs": 1},
    ]});
    assert_eq!(network.refusal(&document), "");
}

/// The networks in the pages: JSON blocks with a list of plugins, or with a plugin's type.
#[test]
fn every_example_of_the_pages_is_valid() {
    let network = Compiled::of(NETWORK);
    let pages = fs::read_dir(docs()).unwrap().map(|page| page.unwrap().path());
    let pages =
        pages.chain([docs().join("../README.md")]).filter(|page| page.extension().is_some_and(|x| x == "md"));
    let mut tried = 0;
    for page in pages {
        let source = fs::read_to_string(&page).unwrap();
        let blocks = source.split("```json\n").skip(1).filter_map(|block| block.split("```").next());
        for block in blocks {
            let example: Value =
                serde_json::from_str(block).unwrap_or_else(|e| panic!("{}: {e}: {block}", page.display()));
            let refusal = match (example["plugins"].is_array(), example["type"].as_str()) {
                (true, _) => network.refusal(&example),
                (false, Some(kind)) if plugins().any(|plugin| plugin.name == kind) => {
                    Compiled::of(kind).refusal(&example)
                }
                _ => continue,
            };
            assert_eq!(refusal, "", "{}: {example}", page.display());
            tried += 1;
        }
    }
    assert!(tried > 10, "{tried} examples were found");
}
