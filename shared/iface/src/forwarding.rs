//! The host as a router for containers.

use cni::Result;
use ipnetwork::IpNetwork;
use netlink::{RouteFilter, uapi};

use crate::Namespace;

/// Lets the host forward packets of the families of these addresses. What is on already is not written: /proc/sys may be read-only.
///
/// # Errors
/// Code 5, naming the setting that cannot be written.
pub fn enable(host: &Namespace, addresses: &[IpNetwork]) -> Result<()> {
    for (v4, key) in [(true, "ipv4/ip_forward"), (false, "ipv6/conf/all/forwarding")] {
        if addresses.iter().any(|net| net.is_ipv4() == v4) && host.sysctl(key)? != "1" {
            if !v4 {
                warn_of_silenced_routers(host)?;
            }
            host.set_sysctl(key, "1")?;
        }
    }
    Ok(())
}

/// A host that forwards takes no routes from router advertisements any more, unless it is told to.
fn warn_of_silenced_routers(host: &Namespace) -> Result<()> {
    let main = RouteFilter { table: Some(uapi::RT_TABLE_MAIN), ..RouteFilter::default() };
    let routes = host.nl.routes(main)?;
    let default = routes.iter().find(|route| route.dst.is_ipv6() && route.dst.prefix() == 0);
    let Some(uplink) = host.nl.link_named_by(default.and_then(|route| route.link))? else { return Ok(()) };
    let key = format!("ipv6/conf/{}/accept_ra", uplink.name);
    if host.sysctl(&key).is_ok_and(|value| value == "1") {
        cni::warn(&format!(
            "the host forwards IPv6 from now on, and no longer takes routes from routers on {0}: if its default route \
             comes from them, sysctl -w net/ipv6/conf/{0}/accept_ra=2",
            uplink.name
        ));
    }
    Ok(())
}
