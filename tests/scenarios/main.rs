//! The scenarios, one module a plugin.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a missing answer fails the test")]

mod bad_host_ports;
mod bad_input;
mod bridge;
mod bridge_firewall;
mod cnitool;
mod common;
mod conformance;
mod crowd;
mod delegation;
mod dhcp;
mod dummy;
mod foreign_results;
mod host_device;
mod host_local;
mod host_local_lock;
mod hosts;
mod legacy_iptables;
mod loopback;
mod macvlan;
mod mistyped;
mod multicall;
mod old_kernels;
mod portmap;
mod ptp;
mod reliability;
mod repair;
mod several_networks;
mod snapshot;
mod static_ipam;
mod tap;
mod tuning;
mod upgrade;
mod upgrade_rules;
mod words;
