//! Checks of a run's result.

use crate::model;
use crate::run::Run;
use crate::scenario::{Act, Fixture, Leases};
use crate::schedule::Turn;

/// Checks the result of a run, and continues: a cleanup for a killed command, an ADD, and a DEL of each attachment that
/// has a lease. Each DEL must find its own lease.
///
/// # Errors
/// What is wrong.
pub fn verify(fixture: &Fixture, run: &Run, by_gc: bool) -> Result<(), String> {
    if let Some(fault) = &run.fault {
        return Err(fault.clone());
    }
    let mut leases = fixture.leases();
    model::explain(fixture.scenario, run, &leases)?;
    if let Some(end) = run.ended_by {
        return after_boot(fixture, leases, end == Turn::PowerLoss, by_gc);
    }
    let killed = run.endings.iter().zip(&fixture.scenario.acts).find(|(ending, _)| ending.is_none());
    if let Some((_, act)) = killed {
        cleanup(fixture, act, by_gc, &mut leases)?;
    }
    add(fixture, &mut leases)?;
    for (ip, content) in leases.clone() {
        succeeds("DEL", &fixture.call(owner(&content)).del())?;
        leases.remove(&ip);
        same(fixture, &leases, &format!("a DEL of {content:?}"))?;
    }
    let names = fixture.names();
    // After leases were removed without the lock, the index may have more entries than there are leases. Then it stays.
    let index = fixture.scenario.removes_directory();
    let stays =
        |name: &str| ["lock", ".lock", "last_reserved_ip.0"].contains(&name) || (index && name == ".index");
    let left = names.iter().find(|name| !stays(name));
    left.map_or(Ok(()), |left| Err(format!("{left} is left")))
}

/// Continues after a reboot: an ADD, and the cleanup of all containers. The ADD treats the addresses of truncated
/// lease files as free. With `resetOnReboot`, it drops all leases if the boot mark is from an earlier boot, and keeps
/// them if the mark is truncated.
fn after_boot(fixture: &Fixture, mut leases: Leases, is_power_loss: bool, by_gc: bool) -> Result<(), String> {
    if is_power_loss {
        fixture.tear();
        leases = fixture.whole_leases();
    }
    if fixture.has_earlier_boot_mark() {
        leases.clear();
    }
    let next = fixture.after_boot("next").add();
    if leases.len() == fixture.scenario.room() {
        next.verdict(999, "no IP addresses available").map(drop)?;
    } else {
        succeeds("the ADD after the boot", &next)?;
        let address = address(&next);
        if let Some(holder) = leases.insert(address.clone(), "next\r\neth0".to_owned()) {
            return Err(format!("the ADD after the boot got {address} of {holder:?}"));
        }
    }
    let is_right = |leases: &Leases, after: &str| {
        let found = fixture.whole_leases();
        if found == *leases {
            Ok(())
        } else {
            Err(format!("after {after}: {found:?} in place of {leases:?}"))
        }
    };
    is_right(&leases, "the ADD after the boot")?;
    if !by_gc {
        while let Some((_, content)) = leases.pop_first() {
            succeeds("DEL", &fixture.call(owner(&content)).del())?;
            is_right(&leases, &format!("a DEL of {content:?}"))?;
        }
    }
    succeeds("GC", &fixture.gc(&[]))?;
    let left =
        fixture.names().into_iter().find(|name| name.starts_with("10.1.0.") || name.starts_with(".new"));
    left.map_or(Ok(()), |left| Err(format!("{left} is left after the boot")))
}

/// What a runtime does after a command was killed: a DEL or a GC.
fn cleanup(fixture: &Fixture, act: &Act, by_gc: bool, leases: &mut Leases) -> Result<(), String> {
    let gone = match *act {
        Act::Add(container) | Act::Del(container) => container,
        Act::Gc(_) => "goes",
        Act::ReleaseStale | Act::RemoveDirectory | Act::RemoveLocks | Act::Hold(_) => return Ok(()),
    };
    leases.retain(|_, content| owner(content) != gone);
    let run = if by_gc {
        fixture.gc(&leases.values().map(|content| owner(content)).collect::<Vec<_>>())
    } else {
        fixture.call(gone).del()
    };
    succeeds("the cleanup", &run)?;
    same(fixture, leases, "the cleanup")
}

fn add(fixture: &Fixture, leases: &mut Leases) -> Result<(), String> {
    let run = fixture.call("next").add();
    if leases.len() == fixture.scenario.room() {
        return run.verdict(999, "no IP addresses available").map(drop);
    }
    succeeds("the next ADD", &run)?;
    let address = address(&run);
    let taken = leases.insert(address.clone(), "next\r\neth0".to_owned());
    if let Some(holder) = taken {
        return Err(format!("the next ADD got {address} of {holder:?}"));
    }
    same(fixture, leases, "the next ADD")
}

/// The address that an ADD has allocated.
fn address(run: &lab::Outcome) -> String {
    run.ok_result()["ips"][0]["address"].as_str().unwrap_or_default().replace("/24", "")
}

fn succeeds(what: &str, run: &lab::Outcome) -> Result<(), String> {
    if run.succeeded() { Ok(()) } else { Err(format!("{what} failed: {}", run.stdout)) }
}

fn same(fixture: &Fixture, leases: &Leases, after: &str) -> Result<(), String> {
    let found = fixture.leases();
    if found == *leases { Ok(()) } else { Err(format!("after {after}: {found:?} in place of {leases:?}")) }
}

fn owner(content: &str) -> &str {
    content.split("\r\n").next().unwrap_or_default()
}
