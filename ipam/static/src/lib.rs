//! static: assigns the addresses in the configuration or the call. It has no state, so there is nothing to release.

mod addresses;
mod conf;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keys;

use cni::schema::Key;
use cni::{Add, AddResult, Check, Code, Del, Error, IpConfig, Plugin, Result, Role, Undo};

use conf::Conf;

/// The plugin.
#[derive(Debug)]
pub struct Static;

/// GC has nothing to do, and STATUS checks only the configuration, so the default implementations are enough.
impl Plugin for Static {
    const NAME: &'static str = "static";
    const ABOUT: &'static str = "Assigns the addresses that the configuration or the request contains.";
    const ROLE: Role = Role::Ipam;
    const KEYS: &'static [Key] = keys::KEYS;
    const ARGS: &'static [Key] = keys::ARGS;
    const CAPABILITIES: &'static [&'static str] = &["ips"];
    const READS_ARGS: bool = true;
    type Conf = Conf;

    fn add(call: &Add<Conf>, _: &mut Undo) -> Result<AddResult> {
        let ips = addresses::of_attachment(&call.conf, &call.args)?;
        call.net.version.check_fits(ips.iter().map(|ip| ip.address.is_ipv4()))?;
        let Conf { routes, dns, .. } = &call.conf;
        Ok(AddResult { ips, routes: routes.clone(), dns: dns.clone(), ..AddResult::default() })
    }

    fn del(_: &Del) -> Result<()> {
        Ok(())
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let given = addresses::of_attachment(&call.conf, &call.args)?;
        given.iter().try_for_each(|ip| is_reported(ip, &call.prev_result))
    }
}

/// Checks that an address is in ADD's result, with its gateway. If it has none, another plugin may have added one.
fn is_reported(ip: &IpConfig, prev: &AddResult) -> Result<()> {
    let address = ip.address;
    let Some(reported) = prev.ips.iter().find(|reported| reported.address == address) else {
        return Err(Error::new(Code::Internal, format!("address {address} is missing in prevResult")));
    };
    match ip.gateway {
        Some(expected) if reported.gateway != Some(expected) => {
            let has =
                reported.gateway.map_or("no gateway".to_owned(), |gateway| format!("gateway {gateway}"));
            let what = format!("address {address} has {has} in prevResult, expected {expected}");
            Err(Error::new(Code::Internal, what))
        }
        _ => Ok(()),
    }
}
