//! Rules of all plugins, next to tools and rules of others.

mod legacy_iptables;
mod saved_rules;
