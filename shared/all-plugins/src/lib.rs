//! The list of all plugins. It has one line for each plugin, here and in Cargo.toml. From this list come the executable `ferrule`, the
//! schemas and checks of `cnitool validate`, the fuzz targets, and the scenarios that hold for each plugin.

#[doc(hidden)]
pub use {
    bandwidth, bridge, dhcp, dnsname, dummy, firewall, flannel, host_device, host_local, ipvlan, loopback,
    macvlan, portmap, ptp, sbr, static_ipam, tap, tuning, vlan, vrf,
};

/// Calls a macro with all plugins, each as `crate::Type,`. The type is `all_plugins::crate::Type`.
#[macro_export]
macro_rules! for_each_plugin {
    ($callback:ident) => {
        $callback! {
            loopback::Loopback,
            bridge::Bridge,
            ptp::Ptp,
            macvlan::Macvlan,
            ipvlan::Ipvlan,
            vlan::Vlan,
            host_device::HostDevice,
            dummy::Dummy,
            tap::Tap,
            host_local::HostLocal,
            static_ipam::Static,
            dhcp::Dhcp,
            portmap::Portmap,
            tuning::Tuning,
            firewall::Firewall,
            bandwidth::Bandwidth,
            sbr::Sbr,
            vrf::VrfPlugin,
            dnsname::Dnsname,
            flannel::Flannel,
        }
    };
}
