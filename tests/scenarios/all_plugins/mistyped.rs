//! A key of the wrong type, for every plugin and key: ADD refuses it by name. DEL and GC work nevertheless. ADD also
//! refuses each value that the reference refuses.

use cni::schema::paths;
use cni::{Plugin, Role};
use faults::{Fixture, Target};
use lab::{Call, Release, beyond_reference, quirk, skip};
use serde_json::{Value, json};

macro_rules! tests {
    ($($plugin:ident::$name:ident,)*) => {
        mod del_and_gc_work_with_a_mistyped_key {
            $(#[test]
            fn $plugin() {
                super::work_with_a_mistyped_key::<all_plugins::$plugin::$name>();
            })*
        }
        mod add_refuses_each_value_that_the_reference_refuses {
            $(#[test]
            fn $plugin() {
                super::refuses_what_the_reference_refuses::<all_plugins::$plugin::$name>();
            })*
        }
    };
}

all_plugins::for_each_plugin!(tests);

/// The first target of a plugin is tested with every key, the others (with another backend) with the plugin's own keys.
fn work_with_a_mistyped_key<P: Plugin>() {
    beyond_reference!("lenient-del");
    let own = own_paths::<P>();
    let targets = Target::all_plugins();
    let targets: Vec<_> = targets.iter().filter(|target| target.plugin() == P::NAME).collect();
    assert!(!targets.is_empty(), "tests/faults/src/targets.rs has no target for {}", P::NAME);
    for (n, target) in targets.into_iter().enumerate() {
        if let Some(why) = target.lacks() {
            skip(&format!("{}: {why}", target.name));
            continue;
        }
        let mut trial = Trial { fixture: Fixture::new(target), target, own: &own };
        let keys = if n == 0 { with_everybodys(own.clone()) } else { own.clone() };
        let faults: String = keys.iter().map(|path| trial.faults(path)).collect();
        assert!(faults.is_empty(), "{}:\n{faults}", target.name);
    }
}

/// The paths of the plugin's own keys. An IPAM plugin's keys are in another plugin's configuration.
fn own_paths<P: Plugin>() -> Vec<String> {
    let place = if P::ROLE == Role::Ipam { "ipam." } else { "" };
    paths(P::KEYS, place).into_iter().map(|(path, _)| path).collect()
}

/// A value of the wrong type for each key is among these.
fn values() -> [Value; 3] {
    [json!(5), json!("word"), json!({"x": 5})]
}

/// Each own key of the plugin, with many values. The container is attached by the first target that the reference can
/// attach.
fn refuses_what_the_reference_refuses<P: Plugin>() {
    beyond_reference!("errors");
    let release = Release::V1_9_1;
    if !release.is_here() || !release.place().join(P::NAME).exists() {
        return;
    }
    let targets = Target::of(|target| target.plugin() == P::NAME);
    let attaches = |fixture: &Fixture| {
        let call = fixture.call("ADD", None).by_release(release);
        let is_attached = call.add().succeeded();
        call.del();
        is_attached
    };
    let Some(target) = targets.iter().find(|target| attaches(&Fixture::new(target))) else {
        skip(&format!("{}: {release} cannot attach a container of tests/faults/src/targets.rs", P::NAME));
        return;
    };
    let mut fixture = Fixture::new(target);
    let mut accepted = String::new();
    for path in own_paths::<P>() {
        for value in many_values() {
            let call = mistyped(&fixture.call("ADD", None), &path, &value);
            if !call.add().succeeded() {
                continue;
            }
            call.del().ok();
            let theirs = call.by_release(release).add();
            // Ferrule raises a burst that is smaller than a packet.
            let is_small_burst = P::NAME == "bandwidth" && path == "ingressBurst" && value == json!(5);
            let is_known = is_small_burst && !quirk("bandwidth-burst");
            if theirs.succeeded() {
                assert!(!is_known, "{release} accepts {path} = {value}");
            } else if !is_known {
                accepted += &format!("{path} = {value}: {}\n", theirs.stdout);
            }
            // An interface that the reference has left would make each later ADD fail.
            fixture = Fixture::new(target);
        }
    }
    assert!(accepted.is_empty(), "{}: ADD accepts what {release} refuses:\n{accepted}", target.name);
}

fn many_values() -> [Value; 10] {
    [
        json!(5),
        json!(-1),
        json!(1.5),
        json!("word"),
        json!(""),
        json!(true),
        json!({}),
        json!({"x": 5}),
        json!([]),
        json!(["word"]),
    ]
}

struct Trial<'a> {
    fixture: Fixture,
    target: &'a Target,
    /// The paths of the plugin's own keys.
    own: &'a [String],
}

impl Trial<'_> {
    /// What ADD, DEL and GC do wrong with a mistyped key.
    fn faults(&mut self, path: &str) -> String {
        let wrong = self.wrong_value(path);
        let mut faults = String::new();
        if wrong.is_none() && self.own.iter().any(|own| own == path) {
            faults += &format!("ADD refuses no wrong value of {path}\n");
        }
        let value = wrong.unwrap_or_else(|| json!({"x": 5}));
        // An ADD that took another value may have left a bridge of another name, for example.
        if self.fixture.is_dirty() {
            self.fixture.rebase();
        }
        let is_found_by_it = self.finds_the_attachment(path);
        for command in ["DEL", "GC"] {
            self.fixture.add().ok_result();
            let run = mistyped(&self.fixture.call(command, None), path, &value).run(command);
            let left = match command {
                "DEL" => self.fixture.changes(),
                _ => self.fixture.changes_of_the_host(),
            };
            self.fixture.del().ok();
            if !run.succeeded() || (!left.is_empty() && !is_found_by_it) {
                faults += &format!("{command} with {path} = {value} has left {left}: {run:#?}\n");
            }
        }
        faults
    }

    /// A value that ADD refuses because of its type, with the key's name. None: ADD refuses none of them like this.
    fn wrong_value(&self, path: &str) -> Option<Value> {
        let call = self.fixture.call("ADD", None);
        values().into_iter().find(|value| {
            let bad = mistyped(&call, path, value);
            let added = bad.add();
            if added.succeeded() {
                bad.del().ok();
                call.del().ok();
                return false;
            }
            let error = added.error();
            let key = path.rsplit('.').next().unwrap();
            let named = error.msg.contains(key);
            // The object in the list has only this key.
            assert!(
                error.code != 6 || named || error.msg.contains("missing field"),
                "{path} = {value}: {error:?}"
            );
            error.code == 6 && named
        })
    }

    /// Whether the plugin finds what it has to remove by this key: the IPAM plugin that leased the address, or the VRF.
    fn finds_the_attachment(&self, path: &str) -> bool {
        let delegates = self.target.network.last().unwrap()["ipam"]["type"] != *self.target.plugin();
        path == "vrfname" || (delegates && ["ipam", "ipam.type"].contains(&path))
    }
}

/// Adds the keys that every plugin has, and those that runtimes pass.
fn with_everybodys(mut keys: Vec<String>) -> Vec<String> {
    let everybodys = ["ipam", "dns", "args", "runtimeConfig", "args.cni", "prevResult", "capabilities"];
    keys.extend(everybodys.map(str::to_owned));
    let tuning = ["sysctl", "mtu", "promisc", "allmulti", "txQLen", "features"];
    for (place, inner) in [
        ("ipam", &["type", "ranges", "routes"][..]),
        ("dns", &["nameservers", "domain", "search", "options"]),
        ("args.cni", &["mac", "ips", "hostInterface"]),
        ("args.cni", &tuning),
        ("runtimeConfig", &["mac", "portMappings", "ips", "ipRanges", "bandwidth"]),
        ("runtimeConfig.bandwidth", &["ingressRate", "ingressBurst", "egressRate", "egressBurst"]),
    ] {
        keys.extend(inner.iter().map(|key| format!("{place}.{key}")));
    }
    keys.sort();
    keys.dedup();
    keys
}

/// The call with a value at a path. `key[]` is a list with one object, `key[][]` a list with such a list.
fn mistyped(call: &Call, path: &str, value: &Value) -> Call {
    fn put(place: &mut Value, path: &str, value: &Value) {
        let (step, below) = path.split_once('.').map_or((path, None), |(step, below)| (step, Some(below)));
        let (key, list) = step.strip_suffix("[]").map_or((step, false), |key| (key, true));
        if let Some(key) = key.strip_suffix("[]") {
            let mut inner = json!({});
            put(&mut inner, &format!("inner[].{}", below.unwrap_or_default()), value);
            place[key] = json!([inner["inner"]]);
            return;
        }
        let member = &mut place[key];
        match below {
            None => *member = value.clone(),
            Some(below) if list => {
                *member = json!([{}]);
                put(&mut member[0], below, value);
            }
            Some(below) => put(member, below, value),
        }
    }
    let mut document: Value = serde_json::from_slice(&call.input()).unwrap();
    put(&mut document, path, value);
    call.clone().config(document)
}
