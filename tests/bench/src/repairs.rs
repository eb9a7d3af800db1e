//! `cnitool repair` with many running containers.

use std::time::Instant;

use lab::{Lab, Tool};
use serde_json::{Value, json};

use crate::machine::Prepare;
use crate::networks::dual_stack;
use crate::process::Spent;
use crate::side::Side;

/// Restores all rules after a flush. The next repair has nothing to do.
pub fn repairs(containers: u16) -> Box<Prepare> {
    Box::new(move |lab, side| {
        let mut failures = attach(lab, side, containers);
        let (tool, host) = (side.cnitool(lab), lab.host().clone());
        Box::new(move |_| {
            host.sh("nft flush ruleset");
            let mut flushed = repair(&tool, "repaired", containers);
            flushed.failures.append(&mut failures);
            vec![flushed, repair(&tool, "whole", containers)]
        })
    })
}

/// Attaches containers with cnitool, so that libcni's cache contains them. Returns the failures.
fn attach(lab: &Lab, side: Side, containers: u16) -> Vec<String> {
    let mut network = dual_stack(side, 0);
    let plugins = network["plugins"].as_array_mut().expect("a list of plugins");
    plugins.retain(|plugin| plugin["type"] != "tuning");
    for plugin in plugins.iter_mut().filter(|plugin| plugin["type"] == "portmap") {
        plugin.as_object_mut().expect("a plugin").remove("runtimeConfig");
        plugin["capabilities"] = json!({"portMappings": true});
    }
    lab.configure("10-bench.conflist", &network);
    let mut failures = Vec::new();
    for n in 0..containers {
        let name = format!("pod{n}");
        lab.container(&name);
        let port = |host: u16, container: u16| json!({"hostPort": host, "containerPort": container, "protocol": "tcp"});
        let ports = json!({"portMappings": [port(10_000 + 2 * n, 80), port(10_001 + 2 * n, 81)]});
        let added = side.cnitool(lab).env("CAP_ARGS", &ports.to_string()).run(&format!("add bench {name}"));
        failures.extend((!added.succeeded()).then_some(added.stderr));
    }
    failures
}

/// One run. All attachments must have this outcome.
fn repair(tool: &Tool, outcome: &str, containers: u16) -> Spent {
    let start = Instant::now();
    let run = tool.run("repair --all --output json");
    let took = start.elapsed();
    let answer: Value = serde_json::from_str(&run.stdout).unwrap_or_default();
    let count =
        answer[outcome].as_array().map_or_else(|| answer[outcome].as_u64(), |all| Some(all.len() as u64));
    let failed = !run.succeeded() || count != Some(containers.into());
    let failures = failed.then(|| format!("{count:?} of {containers} {outcome}: {}", run.stderr));
    Spent { took, failures: failures.into_iter().collect(), ..Spent::default() }
}
