//! Sysctls below net/: the part of /proc/sys that belongs to a network namespace.

use std::collections::BTreeMap;
use std::fmt;

use cni::{Code, Error, IfName, Result, ResultExt, Undo};
use iface::Namespace;

/// Placeholder for the attachment's interface in a key.
const IFNAME: &str = "IFNAME";

/// A sysctl's name: below net/, and nowhere else.
#[derive(Clone, Debug)]
pub struct Key {
    written: String,
    /// Below net/. An interface's name may be several of them.
    segments: Vec<String>,
}

impl Key {
    /// Takes a key apart: `net.ipv4.ip_forward`, or `net/ipv4/ip_forward`, or both separators mixed.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence that begins with the key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut segments = text.split(['.', '/']);
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err("contains white space".into());
        }
        if segments.next() != Some("net") {
            return Err("is not below net/, the only part of /proc/sys that may be set".into());
        }
        let segments: Vec<String> = segments.map(str::to_owned).collect();
        if segments.is_empty() || segments.iter().any(String::is_empty) {
            return Err("is not a path below net/: a part of it is empty".into());
        }
        Ok(Self { written: text.to_owned(), segments })
    }

    /// As the configuration has it.
    pub fn as_written(&self) -> &str {
        &self.written
    }

    /// What sysctl it is, however it is written.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// Its place in the order of setting: what holds for all comes first, for the kernel then changes the single ones.
    pub fn rank(&self) -> (usize, bool) {
        let for_all = matches!(self.interface(), Some([name]) if name == "all");
        (self.segments.len(), !for_all)
    }

    /// Its path below /proc/sys/net.
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

    /// The parts that are an interface's name: all between ipv4/conf (ipv6/neigh, mpls/conf, ...) and the last part.
    /// The kernel has one directory there, so dots and slashes in between are the name's own.
    fn interface(&self) -> Option<&[String]> {
        match self.segments.as_slice() {
            [_, kind, interface @ .., _] if (kind == "conf" || kind == "neigh") && !interface.is_empty() => {
                Some(interface)
            }
            _ => None,
        }
    }
}

/// A sysctl and the value that it is to have.
#[derive(Clone, Debug)]
pub struct Sysctl {
    pub key: Key,
    pub value: String,
}

impl Sysctl {
    /// Writes the value.
    ///
    /// # Errors
    /// Code 2 if the kernel has no such sysctl, 7 if it does not take the value, else 5, naming key and value.
    pub fn set(&self, sandbox: &Namespace, ifname: &IfName, undo: &mut Undo) -> Result<()> {
        let path = self.key.path(ifname);
        // Without a value there is nothing to take back.
        let set = sandbox.sysctl_with_value(&path).and_then(|before| {
            sandbox.set_sysctl(&path, &self.value)?;
            Ok(before)
        });
        let before = set.context(|| format!("sysctl {}", self.key.written)).hint(&format!("in {sandbox}"))?;
        if let Some(before) = before {
            let (sandbox, key) = (sandbox.clone(), self.key.written.clone());
            undo.push(move || sandbox.set_sysctl(&path, &before).context(|| format!("restore sysctl {key}")));
        }
        Ok(())
    }

    /// The sysctl has the value, white space aside.
    ///
    /// # Errors
    /// Code 999, with the value that it has; 2 if there is none.
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

/// Refuses two that are one and the same for an interface: `IFNAME` and its name.
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
    fn ifname_stands_for_the_interface_whatever_that_is_called() {
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
            // As sysctl(8) wants it.
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
    fn what_holds_for_all_ranks_before_what_holds_for_one() {
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
