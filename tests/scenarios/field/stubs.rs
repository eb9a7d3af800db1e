//! A test of the tests: each fails if one plugin is replaced by a stub.

use std::path::Path;
use std::{env, thread};

use lab::{Call, Lab, StubDirectory, Tool, beyond_reference, message_of_panic, under_test};
use serde_json::Value;

use super::{
    available, engines, executables, is_served, kind, kubenets, kubernetes, plugins_of, second_networks,
    several_networks,
};

/// cnitool with the plugins of a directory. If it is one of [`fails_with_stubs`], each plugin is a process.
pub fn tool(lab: &Lab, plugins: &Path) -> Tool {
    let tool = lab.cnitool();
    if plugins == under_test().dir { tool } else { tool.with_each_in(plugins) }
}

/// Like [`tool`], for a call.
pub fn call(call: Call, plugins: &Path) -> Call {
    if plugins == under_test().dir { call } else { call.with_each_in(plugins) }
}

/// Asserts that a network's test, which receives the directory of the plugins, passes with links to the plugins, and
/// fails with each plugin replaced by a stub, because of this plugin.
pub fn fails_with_stubs(who: &str, network: &Value, test: impl Fn(&Path) + Sync) {
    let failure = |stubbed: Option<&str>| {
        let name = thread::current().name().unwrap_or_default().to_owned();
        // The build's directory is read-only in the VM.
        let parent = env::temp_dir().join(format!("ferrule-stubs-{}", name.replace("::", "-")));
        let plugins = StubDirectory::new(&parent, stubbed);
        // A lab belongs to a thread. Skips are recorded for the test of the thread's name.
        let thread = thread::Builder::new().name(name);
        let run = thread::scope(|scope| thread.spawn_scoped(scope, || test(plugins.path())).unwrap().join());
        run.err().map(|panic| message_of_panic(&*panic).to_owned())
    };
    if let Some(message) = failure(None) {
        panic!("{who}: no plugin is replaced, and the test fails: {message}");
    }
    for plugin in workers(network) {
        let message = failure(Some(plugin)).unwrap_or_default();
        let blames = [format!(" {plugin} has done nothing"), StubDirectory::words_of(plugin)];
        assert!(
            blames.iter().any(|words| message.contains(words)),
            "{who}: {plugin} does nothing, and the test does not notice it: {message:?}"
        );
    }
}

/// Ferrule's executables with an effect in a network: tuning without keys has none.
fn workers(network: &Value) -> Vec<&str> {
    let works = |plugin: &&Value| {
        plugin["type"] != "tuning" || plugin["sysctl"].is_object() || plugin["capabilities"].is_object()
    };
    let mut names: Vec<_> = plugins_of(network).into_iter().filter(works).flat_map(executables).collect();
    names.retain(|name| under_test().dir.join(kind(name)).exists());
    names.sort_unstable();
    names.dedup();
    names
}

fn fail_with_stubs(networks: Vec<(&str, Value)>) {
    for (who, network) in available(networks) {
        fails_with_stubs(who, &network, |plugins| is_served(who, &network, plugins));
    }
}

#[test]
fn tests_of_kubernetes_networks_fail_if_a_plugin_is_replaced_by_a_stub() {
    beyond_reference!("flannel");
    fail_with_stubs(kubernetes());
}

#[test]
fn tests_of_kubenets_networks_fail_if_a_plugin_is_replaced_by_a_stub() {
    beyond_reference!("gc");
    fail_with_stubs(kubenets());
}

#[test]
fn tests_of_engines_networks_fail_if_a_plugin_is_replaced_by_a_stub() {
    beyond_reference!("gc");
    fail_with_stubs(engines());
}

#[test]
fn tests_of_second_networks_fail_if_a_plugin_is_replaced_by_a_stub() {
    beyond_reference!("gc");
    fail_with_stubs(second_networks());
}

#[test]
fn the_test_of_several_networks_fails_if_a_plugin_is_replaced_by_a_stub() {
    beyond_reference!("gc");
    let plugins = several_networks::plugins();
    fails_with_stubs("several networks", &plugins, several_networks::cnitool_joins_all);
}
