//! Sysctls below net/, the part of /proc/sys that belongs to a network namespace.

use std::collections::BTreeMap;
use std::fmt;

use cni::{Code, Error, Failures, IfName, Result, ResultExt, Undo};
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
    /// Reads the current value. None: the sysctl has no value.
    fn read(&self, sandbox: &Namespace, path: &str) -> Result<Option<String>> {
        let read = sandbox.sysctl_with_value(path).map_err(|e| advised(self.key.spelling_advice(), e));
        self.named(read, sandbox)
    }

    /// Writes the value. Returns the value as the kernel stores it, if it differs: `8080-8082` instead of `8080,8081,8082`.
    ///
    /// # Errors
    /// Code 2 if the kernel has no object of the value's name, 7 if the kernel refuses the value, 5 if it cannot be written; the message names
    /// key and value.
    pub fn set(&self, sandbox: &Namespace, ifname: &IfName) -> Result<Option<Form>> {
        let path = self.key.path(ifname);
        // The sysctl exists, so the kernel has no object of the value's name, such as a congestion control.
        let name = format!("the kernel has no {:?}: check the name, or load its module", self.value);
        if let Err(e) = sandbox.set_sysctl(&path, &self.value) {
            // The kernel deletes an interface's IPv6 sysctls if ADD sets an MTU below 1280.
            let is_deleted = sandbox.sysctl_with_value(&path).is_err_and(|e| is_missing(&e));
            return if is_deleted { Ok(None) } else { self.named(Err(advised(&name, e)), sandbox) };
        }
        let stored = self.read(sandbox, &path)?.filter(|stored| !are_same(stored, &self.value));
        Ok(stored.map(|stored| (path, (self.value.clone(), stored))))
    }

    /// Adds the sysctl's name and the namespace to an error.
    fn named<T>(&self, result: Result<T>, sandbox: &Namespace) -> Result<T> {
        result.context(|| format!("sysctl {}", self.key.written)).hint(&format!("in {sandbox}"))
    }

    /// Compares the value, ignoring white space. The value may also be as the kernel stored it after ADD had written it.
    ///
    /// # Errors
    /// Code 999, with the current value; 2 if the sysctl does not exist.
    pub fn verify(&self, sandbox: &Namespace, ifname: &IfName, forms: impl Fn() -> Forms) -> Result<()> {
        let path = self.key.path(ifname);
        let found = sandbox.sysctl_with_value(&path);
        let Some(found) = found.context(|| format!("sysctl {}", self.key.written))? else { return Ok(()) };
        let stored =
            |(written, stored): &(String, String)| *written == self.value && are_same(stored, &found);
        if are_same(&found, &self.value) || forms().get(&path).is_some_and(stored) {
            return Ok(());
        }
        let text = format!("sysctl {} is {found:?}, but was {:?} after ADD", self.key.written, self.value);
        Err(Error::new(Code::Internal, text).detail(format!("in {sandbox}")))
    }
}

/// Values that the kernel stored in another form: the path below net/, the value that ADD wrote, and the kernel's.
pub type Forms = BTreeMap<String, (String, String)>;
type Form = (String, (String, String));

/// Values before ADD, in the order of their restoration.
#[derive(Debug)]
pub struct Before(Vec<(String, String)>);

impl Before {
    /// Reads the values of sysctls, and of those that the kernel changes along with them. No sysctl is written before all were read, so a
    /// sysctl that does not exist changes nothing.
    ///
    /// # Errors
    /// Code 2 if a sysctl does not exist, 5 if it cannot be read; the message names the key.
    pub fn read(sysctls: &[Sysctl], sandbox: &Namespace, ifname: &IfName) -> Result<Self> {
        let (mut values, mut dependents) = (Vec::new(), Vec::new());
        for sysctl in sysctls {
            let path = sysctl.key.path(ifname);
            let value = sysctl.read(sandbox, &path)?;
            dependents.extend(dependents_of(&path));
            // A sysctl without a value cannot be restored.
            values.extend(value.map(|value| (path, value)));
        }
        if dependents.is_empty() {
            return Ok(Self(values));
        }
        let links = sandbox.nl.links()?;
        let interfaces = || ["all", "default"].into_iter().chain(links.iter().map(|link| link.name.as_str()));
        for (family, name) in dependents {
            for path in interfaces().map(|interface| format!("{family}/conf/{interface}/{name}")) {
                // An interface may lack the family.
                let value = sandbox.sysctl_with_value(&path).ok().flatten();
                values.extend(value.map(|value| (path, value)));
            }
        }
        Ok(Self(values))
    }

    /// Restores the values if ADD fails. The general sysctls are first, because the kernel changes the others along with them.
    pub fn restore_after_failure(self, sandbox: &Namespace, undo: &mut Undo) {
        let sandbox = sandbox.clone();
        undo.push(move || {
            let mut failures = Failures::new();
            for (path, before) in self.0 {
                let is_done = match sandbox.sysctl_with_value(&path) {
                    Ok(now) => now.as_ref() == Some(&before),
                    Err(e) => is_missing(&e),
                };
                if !is_done {
                    let restored = sandbox.set_sysctl(&path, &before);
                    failures.note(restored.context(|| format!("restore sysctl net/{path}")));
                }
            }
            failures.into_result()
        });
    }
}

/// Sysctls of all interfaces that the kernel changes along with one: their family and names (inet_forward_change and addrconf_fixup_forwarding
/// in Linux).
fn dependents_of(path: &str) -> Vec<(&'static str, String)> {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["ipv4", "ip_forward"] | ["ipv4", "conf", "all", "forwarding"] => {
            ["forwarding", "accept_redirects"].map(|name| ("ipv4", name.to_owned())).to_vec()
        }
        ["ipv6", "conf", "all", name] => vec![("ipv6", name.to_owned())],
        _ => Vec::new(),
    }
}

/// Whether two values are the same, ignoring white space.
fn are_same(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

/// Adds a remedy to the error of an object that does not exist.
fn advised(advice: &str, e: Error) -> Error {
    if is_missing(&e) { e.detail(advice) } else { e }
}

fn is_missing(e: &Error) -> bool {
    e.code() == Code::UnsupportedField as u32
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
