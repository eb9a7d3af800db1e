//! Tests that the schema of each plugin matches the plugin: the plugin reads all keys of the schema and no others,
//! and accepts and refuses the values of each type.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::{slice, thread};

use cni::schema::paths;
use cni::{
    AsWritten, Attachment, Code, ContainerId, Del, Gc, IfName, NetConf, NetworkName, Plugin, Result, Scope,
    Version, keys,
};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use super::network::CAPABILITIES;
use super::{Key, PLUGIN, Role, Type, find, plugin};

macro_rules! tests {
    ($($plugin:ident::$name:ident,)*) => {
        mod the_keys_that_a_plugin_describes_are_those_that_it_reads {
            $(#[test]
            fn $plugin() {
                super::Case::of::<all_plugins::$plugin::$name>().run();
            })*
        }
    };
}

all_plugins::for_each_plugin!(tests);

/// The argument of a capability with its path, and its inner keys.
pub(super) fn argument_of(capability: &str) -> Vec<(String, &'static Key)> {
    paths(slice::from_ref(find(CAPABILITIES, capability).unwrap()), "runtimeConfig.")
}

/// A configuration that the plugin accepts.
fn base(plugin: &str) -> Value {
    match plugin {
        "host-local" => json!({"ipam": {"subnet": "10.7.0.0/24"}}),
        "vlan" => json!({"vlanId": 100}),
        "vrf" => json!({"vrfname": "blue"}),
        _ => json!({}),
    }
}

/// Suffixes of keys that a plugin accepts only together.
fn in_pairs(plugin: &str) -> &'static [&'static str] {
    match plugin {
        "bandwidth" => &["Rate", "Burst"],
        // The name for one attachment must begin with that of the network.
        "bridge" | "ptp" => &["args.cni.hostInterface"],
        _ => &[],
    }
}

/// A plugin, and a configuration that it accepts.
struct Case {
    plugin: &'static super::Plugin,
    base: Value,
    check: fn(&Value) -> Result<()>,
    /// Runs DEL and GC, which read the document in their own way.
    remove: fn(&Value),
    in_pairs: &'static [&'static str],
}

impl Case {
    fn of<P: Plugin>() -> Self {
        let check = |document: &Value| {
            P::Conf::try_from(AsWritten::from(document.clone())).map(drop).map_err(Into::into)
        };
        Self {
            plugin: plugin(P::NAME).unwrap(),
            base: base(P::NAME),
            check,
            remove: remove::<P>,
            in_pairs: in_pairs(P::NAME),
        }
    }

    fn run(&self) {
        let mut faults = String::new();
        let mut read = keys::looked_for(|| (self.check)(&self.base).unwrap());
        read.extend(self.read_by_removing());
        for (path, takes) in self.known() {
            let document = self.with(&path, &example(takes));
            read.extend(keys::looked_for(|| drop((self.check)(&document))));
            self.refuses(&path, &of_another_type(takes), &[Code::Decoding], &mut faults);
            let outside = [Code::Decoding, Code::InvalidConfig];
            wrong(takes).iter().for_each(|value| self.refuses(&path, value, &outside, &mut faults));
            if !self.in_pairs.iter().any(|end| path.ends_with(end)) {
                right(takes).iter().for_each(|value| self.takes(&path, value, &mut faults));
            }
        }
        let known = self.known().into_iter().map(|(path, _)| path.replace("[]", ""));
        let known: BTreeSet<String> = known.chain(commons()).collect();
        for path in read.difference(&known) {
            writeln!(faults, "{path} is read, and is not described").unwrap();
        }
        assert!(faults.is_empty(), "{}:\n{faults}", self.plugin.name);
    }

    /// The keys that DEL and GC read, with each key set. Runs in a network namespace without anything to remove.
    fn read_by_removing(&self) -> BTreeSet<String> {
        let known = self.known().into_iter().map(|(path, takes)| self.with(&path, &example(takes)));
        let documents: Vec<Value> = known.chain([self.base.clone()]).collect();
        let remove = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("the tests need root");
            keys::looked_for(|| documents.iter().for_each(self.remove))
        };
        thread::scope(|scope| scope.spawn(remove).join().unwrap())
    }

    /// Checks that a value is refused with one of these codes. The error must name the key: otherwise it may be about
    /// another mistake.
    fn refuses(&self, path: &str, value: &Value, codes: &[Code], faults: &mut String) {
        let name = path.rsplit(['.', ']']).next().unwrap();
        match (self.check)(&self.with(path, value)) {
            Ok(()) => writeln!(faults, "{path}: {value} does not fit, and is taken").unwrap(),
            Err(e) if e.to_string().contains(name) && codes.iter().any(|code| *code as u32 == e.code()) => {}
            Err(e) => writeln!(faults, "{path}: {value} does not fit, and the error is: {e}").unwrap(),
        }
    }

    fn takes(&self, path: &str, value: &Value, faults: &mut String) {
        if let Err(e) = (self.check)(&self.with(path, value)) {
            writeln!(faults, "{path}: {value} fits, and is refused: {e}").unwrap();
        }
    }

    /// The paths of the plugin's own keys with their types, including those in inner objects. `[]` is the element of
    /// a list.
    fn known(&self) -> Vec<(String, Type)> {
        let place = if self.plugin.role == Role::Ipam { "ipam." } else { "" };
        let mut known = paths(self.plugin.keys, place);
        known.extend(paths(self.plugin.args, "args.cni."));
        known.extend(self.plugin.capabilities.iter().flat_map(|name| argument_of(name)));
        known.into_iter().map(|(path, key)| (path, key.takes)).collect()
    }

    /// The base document with a value at a path. If the key is in an inner object, the object also has as many of its
    /// other keys as are accepted together.
    fn with(&self, path: &str, value: &Value) -> Value {
        let mut document = self.base.clone();
        let known = self.known();
        let outer = known.iter().find(|(outer, _)| path.starts_with(&format!("{outer}[]")));
        if let Some((outer, takes)) = outer {
            put(&mut document, outer, &example(*takes));
            if (self.check)(&document).is_err() {
                put(&mut document, outer, &required(*takes));
            }
        }
        put(&mut document, path, value);
        document
    }
}

/// Runs DEL and GC. Their results do not matter: the test only records which keys they read.
fn remove<P: Plugin>(document: &Value) {
    let conf = AsWritten::from(document.clone());
    let net = || NetConf {
        name: NetworkName::parse("drift").unwrap(),
        version: Version::LATEST,
        dns: None,
        ipam: None,
        path: Vec::new(),
    };
    let (container, ifname) = (ContainerId::parse("drift").unwrap(), IfName::parse("eth0").unwrap());
    let attachment = Attachment { container, ifname };
    P::del(&Del { attachment, netns: None, prev_result: None, net: net(), conf: conf.clone() }).ok();
    P::gc(&Gc { scope: Scope::default(), net: net(), conf }).ok();
}

/// Keys that all plugins have, and keys that contain the keys of others.
fn commons() -> impl Iterator<Item = String> {
    let objects = ["args.cni", "ipam.type"].map(str::to_owned);
    PLUGIN.iter().map(|key| key.name.to_owned()).chain(objects)
}

/// Sets a value; `[]` is the first element of a list.
fn put(place: &mut Value, path: &str, value: &Value) {
    let (step, below) = path.split_once('.').map_or((path, None), |(step, below)| (step, Some(below)));
    let key = step.trim_end_matches("[]");
    let mut place = &mut place[key];
    for _ in 0..step.matches("[]").count() {
        if place.get(0).is_none() {
            *place = json!([null]);
        }
        place = &mut place[0];
    }
    match below {
        None => *place = value.clone(),
        Some(below) => put(place, below, value),
    }
}

/// A valid value. An object has all keys.
fn example(takes: Type) -> Value {
    match takes {
        Type::Bool | Type::BoolOrText => json!(true),
        Type::Number(low, _) => json!(low),
        Type::OneOf(words) => json!(words[0]),
        Type::Ip | Type::IpOrCidr => json!("10.9.0.1"),
        Type::Cidr => json!("10.9.0.0/24"),
        Type::Mac => json!("02:00:00:00:00:07"),
        Type::IfName | Type::LinkName => json!("eth7"),
        Type::Path => json!("/some/where"),
        Type::Version => json!("1.1.0"),
        Type::List(inner) => json!([example(*inner)]),
        Type::Object(keys) => object(keys.iter()),
        Type::Map(inner) => json!({"name": example(*inner)}),
        Type::IpamPart | Type::Delegate | Type::Plugin => json!({}),
        Type::Text | Type::Ipam | Type::Any => json!("word"),
    }
}

/// A valid value. An object has only the required keys.
fn required(takes: Type) -> Value {
    match takes {
        Type::List(inner) => json!([required(*inner)]),
        Type::Object(keys) => object(keys.iter().filter(|key| key.is_required())),
        other => example(other),
    }
}

fn object<'a>(keys: impl Iterator<Item = &'a Key>) -> Value {
    let value = |key: &Key| match key.takes {
        // The upper end of a range whose lower end may be any value.
        Type::Number(_, high) if key.name.starts_with("max") => json!(high),
        takes => example(takes),
    };
    keys.map(|key| (key.name.to_owned(), value(key))).collect()
}

/// A value of another JSON type.
fn of_another_type(takes: Type) -> Value {
    match takes {
        Type::Text | Type::Version | Type::OneOf(_) | Type::Ip | Type::Cidr => json!(5),
        Type::IpOrCidr | Type::Mac | Type::IfName | Type::LinkName | Type::Path => json!(5),
        _ => json!("word"),
    }
}

/// Values of the JSON type that are just outside the bounds, or not of the required form.
fn wrong(takes: Type) -> Vec<Value> {
    match takes {
        Type::Number(low, high) => vec![json!(low - 1), json!(high.saturating_add(1))],
        Type::OneOf(_) | Type::Ip | Type::Cidr | Type::IpOrCidr | Type::Mac => vec![json!("word")],
        Type::IfName => vec![json!("a/b"), json!("x".repeat(16))],
        Type::LinkName => vec![json!("a/b"), json!("x".repeat(128))],
        _ => vec![],
    }
}

/// Values that are valid whatever the other keys are.
fn right(takes: Type) -> Vec<Value> {
    match takes {
        Type::Bool => vec![json!(true), json!(false)],
        Type::Number(low, high) => vec![json!(low), json!(high)],
        Type::OneOf(words) => words.iter().map(|word| json!(word)).collect(),
        Type::LinkName => vec![example(takes), json!("x".repeat(127))],
        Type::Mac | Type::IfName | Type::Path => vec![example(takes)],
        _ => vec![],
    }
}
