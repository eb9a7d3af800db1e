//! IP forwarding on the host.

use cni::Result;
use ipnetwork::IpNetwork;
use netlink::{RouteFilter, uapi};

use crate::Namespace;

/// Enables forwarding for the families of these addresses. Does not write a sysctl that is already set: /proc/sys may be read-only.
///
/// # Errors
/// Code 5 if a sysctl cannot be written.
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

/// Warns that a host that forwards ignores router advertisements unless configured otherwise.
fn warn_of_silenced_routers(host: &Namespace) -> Result<()> {
    let main = RouteFilter { table: Some(uapi::RT_TABLE_MAIN), ..RouteFilter::default() };
    let routes = host.nl.routes(main)?;
    let default = routes.iter().find(|route| route.dst.is_ipv6() && route.dst.prefix() == 0);
    let Some(uplink) = host.nl.link_named_by(default.and_then(|route| route.link))? else { return Ok(()) };
    let key = format!("ipv6/conf/{}/accept_ra", uplink.name);
    if host.sysctl(&key).is_ok_and(|value| value == "1") {
        cni::warn(&format!(
            "the host now forwards IPv6, and therefore ignores router advertisements on {0}. If the host's default route \
             comes from them, run `sysctl -w net/ipv6/conf/{0}/accept_ra=2`",
            uplink.name
        ));
    }
    Ok(())
}
