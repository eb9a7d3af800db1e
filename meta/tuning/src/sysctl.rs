//! Sysctls below net/, the part of /proc/sys that belongs to a network namespace.

use std::collections::BTreeMap;
use std::fmt;

use cni::{Code, Error, IfName, Result, ResultExt, Undo};
use iface::Namespace;

/// Placeholder for the attachment's interface.
const IFNAME: &str = "IFNAME";

/// A sysctl's name, always below net/.
#[derive(Clone, Debug)]
pub struct Key {
    written: String,
    /// Parts below net/. An interface's name may be several parts.
    segments: Vec<String>,
}

impl Key {
    /// Parses a key: `net.ipv4.ip_forward`, `net/ipv4/ip_forward`, or mixed separators.
    ///
    /// # Errors
    /// The problem, as the end of a sentence that begins with the key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut segments = text.split(['.', '/']);
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err("contains white space".into());
        }
        if segments.next() != Some("net") {
            return Err("is not below net/, the only part of /proc/sys that may be set".into());
        }
        if text.contains("..") {
            return Err("is not a path below net/: \"..\" is not allowed".into());
        }
        let segments: Vec<String> = segments.map(str::to_owned).collect();
        if segments.is_empty() || segments.iter().any(String::is_empty) {
            return Err("is not a path below net/: a part of it is empty".into());
        }
        Ok(Self { written: text.to_owned(), segments })
    }

    /// As in the configuration.
    pub fn as_written(&self) -> &str {
        &self.written
    }

    /// The parts, which identify the sysctl in any spelling.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// Sort key for the order of setting: general sysctls come first, because the kernel changes single interfaces along with them.
    pub fn rank(&self) -> (usize, bool) {
        let for_all = matches!(self.interface(), Some([name]) if name == "all");
        (self.segments.len(), !for_all)
    }

    /// The remedy if the sysctl does not exist.
    fn spelling_advice(&self) -> &'static str {
        match self.interface() {
            Some(_) => "the kernel has no such sysctl: check its spelling, and that the interface exists",
            None => "the kernel has no such sysctl: check its spelling",
        }
    }

    /// Path below /proc/sys/net.
    pub fn path(&self, ifname: &IfName) -> String {
        let resolved = |parts: &[String], separator| {
            let parts = parts.iter().map(|part| if part == IFNAME { ifname.as_str() } else { part });
            parts.collect::<Vec<_>>().join(separator)
        };
        match (self.interface(), self.segments.as_slice()) {
            (Some(interface), [family, kind, .., name]) => {
                format!("{family}/{kind}/{}/{name}", resolved(interface, "."))
            }
            (_, segments) => resolved(segments, "/"),
        }
    }

    /// The parts of an interface's name: all between ipv4/conf (ipv6/neigh, mpls/conf, ...) and the last part. The kernel has one directory
    /// there, so dots and slashes belong to the name.
    fn interface(&self) -> Option<&[String]> {
        match self.segments.as_slice() {
            [_, kind, interface @ .., _] if (kind == "conf" || kind == "neigh") && !interface.is_empty() => {
                Some(interface)
            }
            _ => None,
        }
    }
}

/// A sysctl and its value.
#[derive(Clone, Debug)]
pub struct Sysctl {
    pub key: Key,
    pub value: String,
}

impl Sysctl {
    /// Writes the value.
    ///
    /// # Errors
    /// Code 2 if the sysctl does not exist, 7 if the kernel refuses the value, 5 if it cannot be written; the message names key and value.
    pub fn set(&self, sandbox: &Namespace, ifname: &IfName, undo: &mut Undo) -> Result<()> {
        let path = self.key.path(ifname);
        let advised = |advice: &str, e: Error| match e.code() == Code::UnsupportedField as u32 {
            true => e.detail(advice),
            false => e,
        };
        // A sysctl without a value cannot be restored.
        let read = sandbox.sysctl_with_value(&path).map_err(|e| advised(self.key.spelling_advice(), e));
        let set = read.and_then(|before| {
            // The sysctl exists, so the kernel has no object of the value's name, such as a congestion control.
            let name = format!("the kernel has no {:?}: check the name, or load its module", self.value);
            sandbox.set_sysctl(&path, &self.value).map_err(|e| advised(&name, e))?;
            Ok(before)
        });
        let before = set.context(|| format!("sysctl {}", self.key.written)).hint(&format!("in {sandbox}"))?;
        if let Some(before) = before {
            let (sandbox, key) = (sandbox.clone(), self.key.written.clone());
            undo.push(move || sandbox.set_sysctl(&path, &before).context(|| format!("restore sysctl {key}")));
        }
        Ok(())
    }

    /// Compares the value, ignoring white space.
    ///
    /// # Errors
    /// Code 999, with the current value; 2 if the sysctl does not exist.
    pub fn verify(&self, sandbox: &Namespace, ifname: &IfName) -> Result<()> {
        let found = sandbox.sysctl_with_value(&self.key.path(ifname));
        let Some(found) = found.context(|| format!("sysctl {}", self.key.written))? else { return Ok(()) };
        if found.split_whitespace().eq(self.value.split_whitespace()) {
            return Ok(());
        }
        let text = format!("sysctl {} is {found:?}, but ADD left it {:?}", self.key.written, self.value);
        Err(Error::new(Code::Internal, text).detail(format!("in {sandbox}")))
    }
}

/// Refuses two keys for the same sysctl of an interface: `IFNAME` and its name.
///
/// # Errors
/// Code 7, naming both.
pub fn refuse_same(sysctls: &[Sysctl], ifname: &IfName) -> Result<()> {
    let mut seen: BTreeMap<String, &Sysctl> = BTreeMap::new();
    for sysctl in sysctls {
        if let Some(other) = seen.insert(sysctl.key.path(ifname), sysctl) {
            let text = format!("sysctl: {other} and {sysctl} are the same for interface {ifname}");
            return Err(Error::config(text));
        }
    }
    Ok(())
}

impl fmt::Display for Sysctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {:?}", self.key.written, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(key: &str, ifname: &str) -> String {
        Key::parse(key).unwrap().path(&IfName::parse(ifname).unwrap())
    }

    #[test]
    fn either_separator_leads_to_the_same_sysctl() {
        for key in
            ["net.ipv4.conf.all.forwarding", "net/ipv4/conf/all/forwarding", "net/ipv4.conf/all.forwarding"]
        {
            assert_eq!(path(key, "eth0"), "ipv4/conf/all/forwarding");
        }
        assert_eq!(path("net.core.somaxconn", "eth0"), "core/somaxconn");
        assert_eq!(path("net.netfilter.nf_log.2", "eth0"), "netfilter/nf_log/2");
    }

    #[test]
    fn ifname_is_replaced_by_any_name_of_the_interface() {
        for key in ["net.ipv4.conf.IFNAME.arp_filter", "net/ipv4/conf/IFNAME/arp_filter"] {
            assert_eq!(path(key, "eth0"), "ipv4/conf/eth0/arp_filter");
            assert_eq!(path(key, "eth0.100"), "ipv4/conf/eth0.100/arp_filter");
            assert_eq!(path(key, "..."), "ipv4/conf/.../arp_filter");
        }
        assert_eq!(path("net.ipv6.neigh.IFNAME.ucast_solicit", "a.b.c"), "ipv6/neigh/a.b.c/ucast_solicit");
    }

    #[test]
    fn the_dots_of_an_interface_that_is_named_are_kept() {
        for key in [
            "net/ipv4/conf/eth0.100/arp_filter",
            "net.ipv4.conf.eth0.100.arp_filter",
            // As sysctl(8) writes it.
            "net.ipv4.conf.eth0/100.arp_filter",
        ] {
            assert_eq!(path(key, "eth1"), "ipv4/conf/eth0.100/arp_filter");
        }
        assert_eq!(path("net.ipv4.conf.IFNAME.5.arp_filter", "eth1"), "ipv4/conf/eth1.5/arp_filter");
    }

    #[test]
    fn a_key_cannot_leave_net() {
        for bad in [
            "",
            "net",
            "net.",
            "kernel.hostname",
            "netx.core.somaxconn",
            "/net/core/somaxconn",
            "/proc/sys/net/core/somaxconn",
            "../net/core/somaxconn",
            "net/../kernel/hostname",
            "net..core.somaxconn",
            "net/core/somaxconn/",
            "net/ipv4/conf/../../../kernel/hostname",
            "NET.core.somaxconn",
            "net.core.somaxconn\n",
            "net.core.some conn",
            "net.core.\0",
        ] {
            assert!(Key::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn two_dots_are_refused_by_name() {
        let error = Key::parse("net/../kernel/panic").unwrap_err();
        assert_eq!(error, "is not a path below net/: \"..\" is not allowed");
        let error = Key::parse("net.core.").unwrap_err();
        assert_eq!(error, "is not a path below net/: a part of it is empty");
    }

    #[test]
    fn sysctls_for_all_interfaces_rank_before_those_for_one() {
        let mut keys =
            ["net.ipv4.conf.IFNAME.forwarding", "net.ipv4.conf.all.forwarding", "net.ipv4.ip_forward"]
                .map(|key| Key::parse(key).unwrap());
        keys.sort_by_key(Key::rank);
        assert_eq!(
            keys.each_ref().map(Key::as_written),
            ["net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding", "net.ipv4.conf.IFNAME.forwarding"]
        );
    }
}
