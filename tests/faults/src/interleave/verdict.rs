//! Is all well after a run?

use super::model;
use super::run::Run;
use super::scenario::{Act, Leases, Scene};

/// Judges what a run left, and goes on from there: a remedy for the one that was killed, an ADD, and a DEL of each
/// attachment that has a lease, which must find it without the help of others.
///
/// # Errors
/// What is wrong.
pub fn judge(scene: &Scene, run: &Run, by_gc: bool) -> Result<(), String> {
    if let Some(fault) = &run.fault {
        return Err(fault.clone());
    }
    let mut leases = scene.leases();
    model::explain(scene.scenario, run, &leases)?;
    let killed = run.endings.iter().zip(&scene.scenario.acts).find(|(ending, _)| ending.is_none());
    if let Some((_, act)) = killed {
        remedy(scene, act, by_gc, &mut leases)?;
    }
    add(scene, &mut leases)?;
    for (ip, content) in leases.clone() {
        succeeds("DEL", &scene.call(owner(&content)).del())?;
        leases.remove(&ip);
        same(scene, &leases, &format!("a DEL of {content:?}"))?;
    }
    let names = scene.names();
    // Who removes leases past the lock may leave more entries in the index than there are leases: it stays then.
    let index = scene.scenario.removes_directory();
    let stays =
        |name: &str| ["lock", ".lock", "last_reserved_ip.0"].contains(&name) || (index && name == ".index");
    let left = names.iter().find(|name| !stays(name));
    left.map_or(Ok(()), |left| Err(format!("{left} is left")))
}

/// What a runtime does after a command was killed.
fn remedy(scene: &Scene, act: &Act, by_gc: bool, leases: &mut Leases) -> Result<(), String> {
    let gone = match *act {
        Act::Add(container) | Act::Del(container) => container,
        Act::Gc(_) => "goes",
        Act::RemoveDirectory | Act::RemoveLocks | Act::Hold(_) => return Ok(()),
    };
    leases.retain(|_, content| owner(content) != gone);
    let run = if by_gc {
        scene.gc(&leases.values().map(|content| owner(content)).collect::<Vec<_>>())
    } else {
        scene.call(gone).del()
    };
    succeeds("the remedy", &run)?;
    same(scene, leases, "the remedy")
}

fn add(scene: &Scene, leases: &mut Leases) -> Result<(), String> {
    let run = scene.call("next").add();
    if leases.len() == scene.scenario.room() {
        return run.verdict(999, "no IP addresses available").map(drop);
    }
    succeeds("the next ADD", &run)?;
    let address = run.ok_result()["ips"][0]["address"].as_str().unwrap_or_default().replace("/24", "");
    let taken = leases.insert(address.clone(), "next\r\neth0".to_owned());
    if let Some(holder) = taken {
        return Err(format!("the next ADD got {address} of {holder:?}"));
    }
    same(scene, leases, "the next ADD")
}

fn succeeds(what: &str, run: &lab::Outcome) -> Result<(), String> {
    if run.succeeded() { Ok(()) } else { Err(format!("{what} failed: {}", run.stdout)) }
}

fn same(scene: &Scene, leases: &Leases, after: &str) -> Result<(), String> {
    let found = scene.leases();
    if found == *leases { Ok(()) } else { Err(format!("after {after}: {found:?} in place of {leases:?}")) }
}

fn owner(content: &str) -> &str {
    content.split("\r\n").next().unwrap_or_default()
}
