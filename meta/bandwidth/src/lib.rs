//! bandwidth: limits the send and receive rates of an interface of an earlier plugin.
//!
//! The host's end of the container's veth sends traffic to the container through a token bucket filter. Traffic from the container arrives
//! at that end, where the kernel has no queue. It is redirected to an ifb, which sends it through another token bucket filter.

mod bucket;
mod conf;
mod ends;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod ifb;
mod kernel;
pub mod keys;
mod limit;
mod redirect;

use bucket::Bucket;
use cni::schema::Key;
use cni::{Add, AddResult, Check, Del, Failures, Gc, Plugin, Repair, Result, Role, Status, Undo};
use conf::Conf;
use ends::Ends;
use iface::{Namespace, ownership, verify};
use ifb::Ifb;
use netlink::Link;

/// The plugin.
#[derive(Debug)]
pub struct Bandwidth;

impl Plugin for Bandwidth {
    const NAME: &'static str = "bandwidth";
    const ABOUT: &'static str = "Limits the container's traffic. A rate needs its burst.";
    const ROLE: Role = Role::Chained;
    const KEYS: &'static [Key] = keys::KEYS;
    const CAPABILITIES: &'static [&'static str] = &["bandwidth"];
    const LINK_KINDS: &'static [(&'static str, &'static str)] = &[("ifb", "ifb")];
    const REPAIRS: bool = true;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let mut result = call.prev_result.clone();
        if call.conf.is_unlimited() {
            return Ok(result);
        }
        let ends = Ends::of_chain(&call.conf, &call.netns, &call.attachment, &result)?;
        let whose = Ifb { network: &call.net.name, at: &call.attachment };
        let ifb = shape(&ends, &call.conf, whose, undo, |bucket, undo| bucket.set(undo))?;
        result.interfaces.extend(ifb.map(|ifb| ends.host.to_interface(&ifb)));
        Ok(result)
    }

    fn del(call: &Del) -> Result<()> {
        let host = Namespace::host()?;
        let whose = Ifb { network: &call.net.name, at: &call.attachment };
        let mut failures = Failures::new();
        let ifbs = failures.note(whose.all(&host)).unwrap_or_default();
        // Otherwise a filter may still lead to an ifb, whose alias tells the next DEL what to delete.
        if failures.note(ends::unshape(&host, call, &ifbs)).is_some() {
            for ifb in &ifbs {
                failures.note(delete_unused(&host, call, ifb));
            }
        }
        failures.into_result()
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        if call.conf.is_unlimited() {
            return Ok(());
        }
        let ends = Ends::find(&call.conf, &call.netns, &call.attachment, &call.prev_result)?;
        ends.host_end.as_ref().map_or(Ok(()), verify::up)?;
        verify_limits(call, &ends)
    }

    fn repair(calls: &[Repair<Conf>]) -> Vec<Result<bool>> {
        calls.iter().map(|call| repair(&call.check)).collect()
    }

    fn gc(call: &Gc) -> Result<()> {
        let host = Namespace::host()?;
        let links = host.nl.links()?;
        let (stale, ends) = (ifb::stale(&links, call), ends::stale(&links, call));
        if stale.is_empty() && ends.is_empty() {
            return Ok(());
        }
        let mut failures = Failures::new();
        let unled = failures.note(redirect::remove_everywhere(&host, &stale));
        let unshaped = failures.note(ends::unshape_stale(&host, call, &ends, &stale));
        // As in DEL: otherwise a filter may still lead to an ifb.
        if unled.and(unshaped).is_some() {
            for ifb in &stale {
                failures.note(host.nl.delete_link(ifb));
            }
        }
        failures.into_result()
    }

    fn status(_: &Status<Conf>) -> Result<()> {
        Namespace::host()?.require_privileges()?;
        kernel::has_all_parts()
    }
}

/// Deletes an ifb, unless it is the reference's and receives the traffic of another interface of the container.
fn delete_unused(host: &Namespace, call: &Del, ifb: &Link) -> Result<()> {
    let is_made_here = ownership::is_of(&call.net.name, ifb);
    if is_made_here || redirect::sources(host, std::slice::from_ref(ifb))?.is_empty() {
        host.nl.delete_link(ifb)?;
    }
    Ok(())
}

/// Checks everything that repair restores.
fn verify_limits(call: &Check<Conf>, ends: &Ends) -> Result<()> {
    ends.buckets(&call.conf).iter().try_for_each(Bucket::verify)?;
    let Some((limit, link)) = ends.through_ifb(&call.conf) else { return Ok(()) };
    let ifb = Ifb { network: &call.net.name, at: &call.attachment }.find(&ends.host)?;
    verify::up(&ifb)?;
    ends.bucket_of(&ifb, link, limit, &call.conf).verify()?;
    redirect::verify(&ends.host, link, &ifb)
}

fn repair(call: &Check<Conf>) -> Result<bool> {
    if call.conf.is_unlimited() {
        return Ok(false);
    }
    verify::while_attached(call, |undo| {
        let ends = Ends::find(&call.conf, &call.netns, &call.attachment, &call.prev_result)?;
        if verify_limits(call, &ends).is_ok() {
            return Ok(false);
        }
        let whose = Ifb { network: &call.net.name, at: &call.attachment };
        shape(&ends, &call.conf, whose, undo, |bucket, undo| bucket.verify().or_else(|_| bucket.set(undo)))?;
        Ok(true)
    })
}

/// Sets the limits on both ends. Returns the ifb, if there is one.
fn shape(
    ends: &Ends,
    conf: &Conf,
    whose: Ifb<'_>,
    undo: &mut Undo,
    set: impl Fn(&Bucket<'_>, &mut Undo) -> Result<()>,
) -> Result<Option<Link>> {
    for bucket in ends.buckets(conf) {
        set(&bucket, undo)?;
    }
    let Some((limit, link)) = ends.through_ifb(conf) else { return Ok(None) };
    let (ifb, in_use) = whose.make(&ends.host, undo)?;
    set(&ends.bucket_of(&ifb, link, limit, conf), undo)?;
    redirect::install(&ends.host, link, whose, (&ifb, &in_use), undo)?;
    Ok(Some(ifb))
}
