//! Rules of all plugins, next to tools and rules of others.

mod legacy_iptables;
mod recorded;
mod saved_rules;
