//! Calls the code of Ferrule's plugins to check whether ADD would accept a configuration.

use cni::{Plugin, Result};

/// The check with which each plugin's ADD begins, by the plugin's name.
type Check = fn(&[u8]) -> Result<()>;

const PLUGINS: &[(&str, Check)] = &[
    of::<bandwidth::Bandwidth>(),
    of::<bridge::Bridge>(),
    of::<dhcp::Dhcp>(),
    of::<dnsname::Dnsname>(),
    of::<dummy::Dummy>(),
    of::<firewall::Firewall>(),
    of::<flannel::Flannel>(),
    of::<host_device::HostDevice>(),
    of::<host_local::HostLocal>(),
    of::<ipvlan::Ipvlan>(),
    of::<loopback::Loopback>(),
    of::<macvlan::Macvlan>(),
    of::<portmap::Portmap>(),
    of::<ptp::Ptp>(),
    of::<sbr::Sbr>(),
    of::<static_ipam::Static>(),
    of::<tap::Tap>(),
    of::<tuning::Tuning>(),
    of::<vlan::Vlan>(),
    of::<vrf::VrfPlugin>(),
];

const fn of<P: Plugin>() -> (&'static str, Check) {
    (P::NAME, cni::validate::<P>)
}

/// Whether ADD of a plugin would accept a request. Plugins of other vendors are not checked.
///
/// # Errors
/// The error of its ADD.
pub fn validate(plugin: &str, request: &[u8]) -> Result<()> {
    PLUGINS.iter().find(|(name, _)| *name == plugin).map_or(Ok(()), |(_, check)| check(request))
}
