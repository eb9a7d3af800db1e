//! loopback: sets up a container's loopback interface, which every namespace has from the start.

use cni::schema::Key;
use cni::{Add, AddResult, AsWritten, Check, Code, Del, Error, IpConfig, Plugin, Result, Role, Status, Undo};
use iface::Namespace;
use netlink::{Link, LinkChange};

/// Its name in every namespace. CNI_IFNAME is ignored: runtimes pass `lo` or `eth0`.
const LOOPBACK: &str = "lo";

fn down() -> LinkChange<'static> {
    LinkChange { up: Some(false), ..LinkChange::default() }
}

/// The plugin.
#[derive(Debug)]
pub struct Loopback;

impl Plugin for Loopback {
    const NAME: &'static str = "loopback";
    const ABOUT: &'static str = "Sets the container's loopback interface up.";
    const ROLE: Role = Role::Interface;
    const KEYS: &'static [Key] = &[];
    const CHECKS_RESULT: bool = false;
    type Conf = AsWritten;

    fn add(call: &Add<AsWritten>, undo: &mut Undo) -> Result<AddResult> {
        let sandbox = Namespace::open(&call.netns)?;
        let lo = sandbox.link(LOOPBACK)?;
        if !lo.up {
            let (nl, link) = (sandbox.nl.clone(), lo.clone());
            // Registered before the change, whose answer may be lost.
            undo.push(move || nl.change_link(&link, &down()));
            sandbox.nl.set_up(&lo)?;
        }
        if call.prev_result == AddResult::default() {
            report(&sandbox, &lo)
        } else {
            Ok(call.prev_result.clone())
        }
    }

    fn del(call: &Del) -> Result<()> {
        let Some(sandbox) = Namespace::open_if_present(call.netns.as_ref())? else { return Ok(()) };
        Ok(sandbox.nl.change_link(&sandbox.link(LOOPBACK)?, &down())?)
    }

    fn check(call: &Check<AsWritten>) -> Result<()> {
        let sandbox = Namespace::open(&call.netns)?;
        let lo = sandbox.link(LOOPBACK)?;
        if !lo.up {
            return Err(Error::new(Code::Internal, format!("link {LOOPBACK} is down in {sandbox}")));
        }
        if report(&sandbox, &lo)?.ips.is_empty() {
            return Err(Error::new(
                Code::Internal,
                format!("link {LOOPBACK} has lost its addresses in {sandbox}"),
            ));
        }
        Ok(())
    }

    fn status(_: &Status<AsWritten>) -> Result<()> {
        Namespace::host()?.require_privileges()
    }
}

/// The interface with the kernel's loopback addresses: without ::1 if IPv6 is disabled.
fn report(sandbox: &Namespace, lo: &Link) -> Result<AddResult> {
    let addresses = sandbox.nl.addresses(Some(lo))?;
    let own = addresses.iter().filter(|address| address.net.ip().is_loopback());
    let ips = own.map(|address| IpConfig::new(address.net, None)).collect();
    let mut result = AddResult::default();
    result.put_first(AddResult { ips, ..AddResult::default() }, &sandbox.to_interface(lo));
    Ok(result)
}
