//! IP forwarding on the host.

use cni::Result;
use ipnetwork::IpNetwork;
use netlink::{Link, Route, RouteFilter, uapi};

use crate::Namespace;

/// Enables forwarding for the families of these addresses. Does not write a sysctl that is already set: /proc/sys may be read-only.
///
/// `new` is the link with the gateway addresses, if nobody else has configured it: it may have inherited `net.ipv4.conf.default.forwarding=0`.
/// The kernel ignores the same setting of IPv6 when it forwards.
///
/// # Errors
/// Code 5 if a sysctl cannot be written, 999 if the kernel refuses.
pub fn enable(host: &Namespace, addresses: &[IpNetwork], new: Option<&Link>) -> Result<()> {
    const V4: &str = "ipv4/ip_forward";
    const V6: &str = "ipv6/conf/all/forwarding";
    if addresses.iter().any(IpNetwork::is_ipv4) {
        if host.sysctl(V4)? != "1" {
            host.set_sysctl(V4, "1")?;
        } else if let Some(link) = new.filter(|link| link.forwarding == Some(0)) {
            host.nl.enable_ipv4_forwarding(link)?;
        }
    }
    if addresses.iter().any(IpNetwork::is_ipv6) && host.sysctl(V6)? != "1" {
        let warnings = keep_learned_routes(host)?;
        let enabled = host.set_sysctl(V6, "1");
        // Also after a failure: `accept_ra` may be changed.
        warnings.iter().for_each(|text| cni::warn(text));
        enabled?;
    }
    Ok(())
}

/// Keeps the default routes that the kernel learned from router advertisements. When forwarding is enabled, the kernel deletes them and
/// ignores further advertisements, except on links whose `accept_ra` is 2. Returns warnings for the administrator.
fn keep_learned_routes(host: &Namespace) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    for route in host.nl.routes(RouteFilter::default())?.iter().filter(|route| is_learned_default(route)) {
        let link = host.nl.link_named_by(route.link)?;
        let Some(link) = link.filter(|link| link.accept_ra == Some(1)) else { continue };
        let key = format!("ipv6/conf/{}/accept_ra", link.name);
        warnings.push(match host.set_sysctl(&key, "2") {
            Ok(()) => format!(
                "ADD turns on IPv6 forwarding. It set net/{key} to 2, because the host's default route comes from router advertisements \
                 on {}",
                link.name
            ),
            Err(e) => format!(
                "ADD turns on IPv6 forwarding, and the host loses its default route from router advertisements on {}: cannot {e}. Run \
                 `sysctl -w net/{key}=2` and `{}`",
                link.name,
                restoring_command(route, &link)
            ),
        });
    }
    Ok(warnings)
}

/// Whether the host has a default route that it learned from router advertisements on this link.
///
/// # Errors
/// If the kernel refuses the request.
pub fn has_learned_default(host: &Namespace, link: &Link) -> Result<bool> {
    let routes = host.nl.routes(RouteFilter::default())?;
    Ok(routes.iter().any(|route| is_learned_default(route) && route.uses(link.index)))
}

fn is_learned_default(route: &Route) -> bool {
    route.dst.is_ipv6() && route.is_default() && route.protocol == Some(uapi::RTPROT_RA)
}

/// The command that adds the route again. The kernel adds it only after the router's next advertisement, which may take half an hour.
fn restoring_command(route: &Route, link: &Link) -> String {
    let mut command = "ip -6 route replace default".to_owned();
    let options = [
        ("via", route.gateway.map(|gateway| gateway.to_string())),
        ("dev", Some(link.name.clone())),
        ("table", route.table.filter(|table| *table != uapi::RT_TABLE_MAIN).map(|table| table.to_string())),
        ("metric", route.priority.map(|metric| metric.to_string())),
        ("expires", route.expires.map(|seconds| seconds.to_string())),
    ];
    for (word, value) in options {
        command.extend(value.map(|value| format!(" {word} {value}")));
    }
    command
}
