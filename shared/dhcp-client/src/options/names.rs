//! The option names of dhcp-options(5) in ISC's dhcp, and the types of their values.

use super::Number;

/// The type of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// An address.
    Address,
    /// Addresses.
    Addresses,
    /// Pairs of addresses.
    Pairs,
    /// `true` or `false`.
    Flag,
    /// A number of one byte.
    Number8,
    /// A number of two bytes.
    Number16,
    /// Numbers of two bytes.
    Numbers16,
    /// A number of four bytes.
    Number32,
    /// A number of four bytes that may be negative.
    Signed32,
    /// Text, or bytes.
    Text,
    /// Domains, compressed as in DNS (RFC 3397).
    Domains,
    /// Routes (RFC 3442).
    Routes,
    /// Bytes without a text form.
    Bytes,
}

use Type::{
    Address, Addresses, Bytes, Domains, Flag, Number8, Number16, Number32, Numbers16, Pairs, Routes,
    Signed32, Text,
};

#[rustfmt::skip]
const OPTIONS: &[(Number, &str, Type)] = &[
    (1, "subnet-mask", Address),
    (2, "time-offset", Signed32),
    (3, "routers", Addresses),
    (4, "time-servers", Addresses),
    (5, "ien116-name-servers", Addresses),
    (6, "domain-name-servers", Addresses),
    (7, "log-servers", Addresses),
    (8, "cookie-servers", Addresses),
    (9, "lpr-servers", Addresses),
    (10, "impress-servers", Addresses),
    (11, "resource-location-servers", Addresses),
    (12, "host-name", Text),
    (13, "boot-size", Number16),
    (14, "merit-dump", Text),
    (15, "domain-name", Text),
    (16, "swap-server", Address),
    (17, "root-path", Text),
    (18, "extensions-path", Text),
    (19, "ip-forwarding", Flag),
    (20, "non-local-source-routing", Flag),
    (21, "policy-filter", Pairs),
    (22, "max-dgram-reassembly", Number16),
    (23, "default-ip-ttl", Number8),
    (24, "path-mtu-aging-timeout", Number32),
    (25, "path-mtu-plateau-table", Numbers16),
    (26, "interface-mtu", Number16),
    (27, "all-subnets-local", Flag),
    (28, "broadcast-address", Address),
    (29, "perform-mask-discovery", Flag),
    (30, "mask-supplier", Flag),
    (31, "router-discovery", Flag),
    (32, "router-solicitation-address", Address),
    (33, "static-routes", Pairs),
    (34, "trailer-encapsulation", Flag),
    (35, "arp-cache-timeout", Number32),
    (36, "ieee802-3-encapsulation", Flag),
    (37, "default-tcp-ttl", Number8),
    (38, "tcp-keepalive-interval", Number32),
    (39, "tcp-keepalive-garbage", Flag),
    (40, "nis-domain", Text),
    (41, "nis-servers", Addresses),
    (42, "ntp-servers", Addresses),
    (43, "vendor-encapsulated-options", Text),
    (44, "netbios-name-servers", Addresses),
    (45, "netbios-dd-server", Addresses),
    (46, "netbios-node-type", Number8),
    (47, "netbios-scope", Text),
    (48, "font-servers", Addresses),
    (49, "x-display-manager", Addresses),
    (50, "dhcp-requested-address", Address),
    (51, "dhcp-lease-time", Number32),
    (52, "dhcp-option-overload", Number8),
    (53, "dhcp-message-type", Number8),
    (54, "dhcp-server-identifier", Address),
    (55, "dhcp-parameter-request-list", Bytes),
    (56, "dhcp-message", Text),
    (57, "dhcp-max-message-size", Number16),
    (58, "dhcp-renewal-time", Number32),
    (59, "dhcp-rebinding-time", Number32),
    (60, "vendor-class-identifier", Text),
    (61, "dhcp-client-identifier", Text),
    (62, "nwip-domain", Text),
    (63, "nwip-suboptions", Bytes),
    (64, "nisplus-domain", Text),
    (65, "nisplus-servers", Addresses),
    (66, "tftp-server-name", Text),
    (67, "bootfile-name", Text),
    (68, "mobile-ip-home-agent", Addresses),
    (69, "smtp-server", Addresses),
    (70, "pop-server", Addresses),
    (71, "nntp-server", Addresses),
    (72, "www-server", Addresses),
    (73, "finger-server", Addresses),
    (74, "irc-server", Addresses),
    (75, "streettalk-server", Addresses),
    (76, "streettalk-directory-assistance-server", Addresses),
    (77, "user-class", Text),
    (78, "slp-directory-agent", Bytes),
    (79, "slp-service-scope", Bytes),
    (80, "rapid-commit", Bytes),
    (81, "fqdn", Bytes),
    (82, "relay-agent-information", Bytes),
    (85, "nds-servers", Addresses),
    (86, "nds-tree-name", Text),
    (87, "nds-context", Text),
    (88, "bcms-controller-names", Domains),
    (89, "bcms-controller-address", Addresses),
    (91, "client-last-transaction-time", Number32),
    (92, "associated-ip", Addresses),
    (93, "pxe-system-type", Numbers16),
    (94, "pxe-interface-id", Bytes),
    (97, "pxe-client-id", Bytes),
    (98, "uap-servers", Text),
    (100, "pcode", Text),
    (101, "tcode", Text),
    (108, "v6-only-preferred", Number32),
    (112, "netinfo-server-address", Addresses),
    (113, "netinfo-server-tag", Text),
    (114, "default-url", Text),
    (118, "subnet-selection", Address),
    (119, "domain-search", Domains),
    (121, "rfc3442-classless-static-routes", Routes),
];

/// Other names of options, from the reference or other clients.
const ALIASES: &[(Number, &str)] = &[
    (5, "name-servers"),
    (66, "tftp-server"),
    (121, "classless-static-routes"),
    (55, "parameter-request-list"),
];

/// The number of an option in a configuration: a number from 1 to 254, or a name of dhcp-options(5).
///
/// # Errors
/// The reason, for a message.
pub fn parse(text: &str) -> Result<Number, String> {
    let named = || OPTIONS.iter().find(|(_, name, _)| *name == text).map(|(number, ..)| *number);
    let aliased = || ALIASES.iter().find(|(_, name)| *name == text).map(|(number, _)| *number);
    // Other parsers refuse a sign or a space.
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| is_digits && (1..=254).contains(number));
    number.or_else(named).or_else(aliased).ok_or_else(|| {
        format!("{text:?} is neither an option number from 1 to 254 nor an option name of dhcp-options(5)")
    })
}

/// The name of an option in dhcp-options(5), otherwise its number.
pub fn name(number: Number) -> String {
    let name = OPTIONS.iter().find(|(known, ..)| *known == number).map(|(_, name, _)| *name);
    name.map_or_else(|| number.to_string(), str::to_owned)
}

/// The type of an option's value. An unlisted option may be text.
pub(super) fn kind(number: Number) -> Type {
    OPTIONS.iter().find(|(known, ..)| *known == number).map_or(Text, |(.., kind)| *kind)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_number_and_each_name_is_unique() {
        assert!(OPTIONS.is_sorted_by(|a, b| a.0 < b.0));
        let names = OPTIONS.iter().map(|(_, name, _)| *name).chain(ALIASES.iter().map(|(_, name)| *name));
        assert_eq!(names.collect::<HashSet<_>>().len(), OPTIONS.len() + ALIASES.len());
    }

    #[test]
    fn an_option_is_named_by_its_number_or_as_dhcp_options_names_it() {
        for (text, number) in
            [("3", 3), ("routers", 3), ("host-name", 12), ("dhcp-client-identifier", 61), ("254", 254)]
        {
            assert_eq!(parse(text), Ok(number), "{text}");
        }
        for wrong in ["", "0", "255", "256", "-3", "+3", " 3", "Routers", "option-3"] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
        assert_eq!([name(77), name(224)], ["user-class", "224"]);
    }
}
