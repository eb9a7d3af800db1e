//! The scenarios, grouped by the plugin or program that they test.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a missing answer fails the test")]

mod all_plugins;
mod bandwidth;
mod book;
mod bridge;
mod cnitool;
mod common;
mod dhcp;
mod dnsname;
mod dummy;
mod field;
mod firewall;
mod flannel;
mod host_device;
mod host_interface;
mod host_local;
mod hosts;
mod install;
mod ipvlan;
mod loopback;
mod macvlan;
mod on_master;
mod podman_driver;
mod portmap;
mod ptp;
mod reliability;
mod rules;
mod sbr;
mod snapshot;
mod static_ipam;
mod tap;
mod tuning;
mod upgrade;
mod vlan;
mod vrf;
