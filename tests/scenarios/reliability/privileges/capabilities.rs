//! Each plugin with exactly the capabilities listed in docs/privileges.md, and without each of them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use cni::Plugin;
use faults::{COMMANDS, Capabilities, Fixture, Target};
use lab::{Call, Lab, beyond_reference};
use serde_json::json;

macro_rules! tests {
    ($($plugin:ident::$name:ident,)*) => {
        mod needs_no_capability_but_those_of_its_entry_and_says_which_one_is_missing {
            $(#[test]
            fn $plugin() {
                super::needs_only_its_capabilities::<all_plugins::$plugin::$name>();
            })*
        }
    };
}

all_plugins::for_each_plugin!(tests);

fn needs_only_its_capabilities<P: Plugin>() {
    beyond_reference!("nothing-left");
    for target in Target::of(|target| target.is_of_a_plugin() && target.plugin() == P::NAME) {
        assert!(!target.capabilities.is_empty(), "{} has no entry", target.name);
        for (keys, needs) in &target.capabilities {
            hold(&target.with(keys), needs);
        }
    }
}

/// The table of docs/privileges.md has the columns ADD, CHECK, DEL, GC and STATUS.
#[test]
fn the_page_of_privileges_has_a_row_for_each_entry() {
    let page = fs::read_to_string(lab::repository().join("docs/privileges.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let rows: Vec<Vec<&str>> =
        rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect();
    for target in Target::of(|target| !target.capabilities.is_empty()) {
        for (_, [add, del, check, gc, status]) in &target.capabilities {
            let expected = [add, check, del, gc, status].map(|needs| words(needs));
            let is_of = |row: &&Vec<&str>| {
                let plugins = row[0].split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                plugins.clone().any(|word| word == target.plugin()) && row[1..] == expected
            };
            assert!(rows.iter().any(|row| is_of(&row)), "no row says {expected:?} of {}", target.name);
        }
    }
}

/// Capabilities as the page names them.
fn words(needs: Capabilities) -> String {
    let word = |need: &&str| match *need {
        "net_admin" => "NET".to_owned(),
        "sys_admin" => "SYS".to_owned(),
        "sys_ptrace" => "PTRACE".to_owned(),
        "net_bind_service" => "BIND".to_owned(),
        other => other.to_uppercase(),
    };
    match needs {
        [] => "none".to_owned(),
        ["net_admin", "sys_admin"] => "both".to_owned(),
        needs => needs.iter().map(word).collect::<Vec<_>>().join(", "),
    }
}

/// Runs a plugin's commands with what they need, and without each part of it.
fn hold(target: &Target, needs: &[Capabilities; COMMANDS.len()]) {
    let fixture = Fixture::new(target);
    for (command, needs) in COMMANDS.into_iter().zip(*needs) {
        for missing in needs {
            let rest: Vec<_> = needs.iter().copied().filter(|need| need != missing).collect();
            is_refused(&fixture, target.name, command, &rest, &format!("CAP_{}", missing.to_uppercase()));
        }
        let prev = fixture.prepare(command);
        let run = with(&fixture.call(command, prev.as_ref()), needs).run(command);
        assert!(run.succeeded(), "{command} with {needs:?} of {:?}: {run:#?}", target.network);
        fixture.del().ok();
    }
}

/// Asserts that one error names the missing capability, and that an ADD has left nothing.
fn is_refused(fixture: &Fixture, plugin: &str, command: &str, capabilities: &[&str], missing: &str) {
    let prev = fixture.prepare(command);
    let before = fixture.changes();
    let refusal =
        || format!("{:?}", with(&fixture.call(command, prev.as_ref()), capabilities).run(command).error());
    let (mut text, start) = (refusal(), Instant::now());
    // Concurrent tests have servers of dnsname with the same paths. Without all of a server's capabilities, its process cannot be read.
    let is_of_another = |text: &str| missing != "CAP_SYS_PTRACE" && text.contains("examine process");
    while is_of_another(&text) && start.elapsed() < Duration::from_secs(600) {
        thread::sleep(Duration::from_millis(100));
        text = refusal();
    }
    assert!(text.contains(missing) && text.contains("ermi"), "{command} without {missing}: {text}");
    if plugin == "flannel" && command == "ADD" {
        // The delegate could not roll back either. The data for its DEL is kept until that succeeds.
        fixture.del().ok();
    }
    if !["DEL", "GC"].contains(&command) {
        assert_eq!(fixture.changes(), before, "{command} without {missing}");
    }
    fixture.del().ok();
}

/// Root with only these capabilities, and no way to get more.
fn with(call: &Call, capabilities: &[&str]) -> Call {
    let bounding: String = capabilities.iter().map(|name| format!(",+{name}")).collect();
    let argv = ["setpriv", "--inh-caps=-all", &format!("--bounding-set=-all{bounding}")];
    call.clone().under(&argv.map(str::to_owned))
}

#[test]
fn host_local_works_for_any_user_who_owns_its_data_dir() {
    beyond_reference!("nothing-left");
    let lab = Lab::new();
    let dir = "/run/lab/mine";
    lab.host().sh(&format!("install -d -o 1000 {dir}"));
    // The executable may be in a directory that only root can enter. Its name selects the plugin.
    let script =
        format!("cp \"$0\" {dir}/host-local; exec setpriv --reuid=1000 --clear-groups {dir}/host-local");
    let ipam = json!({"type": "host-local", "dataDir": dir, "ranges": [[{"subnet": "10.1.2.0/24"}]]});
    let call = lab.plugin("host-local").config(json!({"ipam": ipam})).on(&lab.container("pod"));
    let call = call.under(&["sh".to_owned(), "-c".to_owned(), script]);
    let prev = call.add().ok_result();
    call.check(&prev).ok();
    call.status().ok();
    call.gc(&[("pod", "eth0")]).ok();
    call.del().ok();
    lab.host().sh("install -d -m 700 /run/lab/closed; touch /run/lab/closed/netns");
    let unseen = call.clone().env("CNI_NETNS", "/run/lab/closed/netns");
    let prev = unseen.add().ok_result();
    unseen.check(&prev).ok();
    unseen.del().ok();
    lab.host().sh(&format!("chown -R 0 {dir}"));
    call.add().refused(5, "Permission denied");
    call.status().refused(50, "Permission denied");
}
