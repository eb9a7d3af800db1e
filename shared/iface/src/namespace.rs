//! A network namespace with a netlink socket in it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use cni::{Code, Error, IfName, Result, ResultExt};
use netlink::{Link, Netlink, Target};
use netns::NetNs;
use nix::libc;
use system::lock::Lock;

/// Number of lock files that all namespaces share. Lock files stay until the next boot, so one per namespace would be too many.
const LOCKS: u64 = 32;

/// Timeout for a namespace's lock. Plugins hold it for milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// Size of the buffer for a sysctl's value in bytes. Since Linux 5.8, the kernel allocates as much.
const LONGEST_VALUE: usize = 16 << 10;

/// The host's or a container's namespace. Clones share the descriptors.
#[derive(Clone, Debug)]
pub struct Namespace {
    /// A socket in this namespace.
    pub nl: Netlink,
    ns: Rc<NetNs>,
    sandbox: Option<Sandbox>,
}

/// A container's namespace.
#[derive(Clone, Debug)]
struct Sandbox {
    /// The path that the runtime uses.
    path: String,
    /// The plugin's own namespace, to which [`Namespace::enter`] returns.
    own: Rc<NetNs>,
}

impl Namespace {
    /// Opens the namespace in which the plugin was started.
    ///
    /// # Errors
    /// If no descriptor is free or `/proc` is not mounted.
    pub fn host() -> Result<Self> {
        Ok(Self { nl: Netlink::open()?, ns: Rc::new(NetNs::current()?), sandbox: None })
    }

    /// Opens a container's namespace.
    ///
    /// # Errors
    /// Code 3 if it does not exist; 4 if the path is not a network namespace; other errors if the kernel refuses.
    pub fn open(path: &Path) -> Result<Self> {
        match NetNs::open(path) {
            Ok(ns) => Self::of(ns),
            Err(e) if e.is_not_a_namespace() => Err(Error::from(e).with_code(Code::InvalidEnvironment)),
            Err(e) if e.is_missing() => Err(Error::from(e).with_code(Code::UnknownContainer)),
            Err(e) => Err(e.into()),
        }
    }

    /// Opens a netlink socket in a container's namespace that is already open.
    ///
    /// # Errors
    /// If the namespace cannot be entered, or no netlink socket can be opened in it.
    pub fn of(ns: NetNs) -> Result<Self> {
        let own = Rc::new(NetNs::current()?);
        let nl = ns.enter_from(&own, Netlink::open)??;
        let sandbox = Sandbox { path: ns.path().display().to_string(), own };
        Ok(Self { nl, ns: Rc::new(ns), sandbox: Some(sandbox) })
    }

    /// Opens a container's namespace for DEL. `None` without a path, or if no network namespace is at the path: unmounting leaves an empty file.
    ///
    /// # Errors
    /// If it exists but cannot be opened or entered.
    pub fn open_if_present(path: Option<&PathBuf>) -> Result<Option<Self>> {
        let Some(path) = path else { return Ok(None) };
        NetNs::open_if_present(path)?.map(Self::of).transpose()
    }

    /// The target for a link that is created in this namespace by a socket of another one.
    pub(crate) fn target(&self) -> Target<'_> {
        Target { netns: self.as_fd(), nl: &self.nl }
    }

    /// The open namespace, without the socket.
    pub fn netns(&self) -> &NetNs {
        &self.ns
    }

    /// Takes the namespace's lock. sbr and vrf hold it during ADD and DEL, because they choose a free routing table and fill it. All namespaces
    /// share [`LOCKS`] locks, so hold only one at a time. If `/run/ferrule` cannot be used, the plugin's own network namespace is locked
    /// instead. Every user can lock that, so after 5 seconds this returns `None`: continue without the lock.
    ///
    /// # Errors
    /// Code 11 if another plugin held the lock for 20 seconds.
    pub fn lock(&self) -> Result<Option<Lock>> {
        let slot = self.ns.number()? % LOCKS;
        Ok(Lock::acquire(&format!("netns-{slot}"), LOCK_TIMEOUT)?)
    }

    /// Whether a path leads to this namespace. False if the path cannot be opened.
    pub fn is_at(&self, path: &Path) -> bool {
        NetNs::open(path).and_then(|ns| ns.is_same_as(&self.ns)).unwrap_or_default()
    }

    /// Whether a container's namespace is the plugin's own, which is possible with `CNI_NETNS_OVERRIDE`.
    pub fn is_hosts(&self) -> bool {
        let own = self.sandbox.as_ref().map(|sandbox| &sandbox.own);
        own.is_some_and(|own| own.is_same_as(&self.ns).unwrap_or_default())
    }

    /// Finds a link by its name.
    ///
    /// # Errors
    /// Code 999 if it does not exist.
    pub fn link(&self, name: &str) -> Result<Link> {
        self.nl
            .link(name)?
            .ok_or_else(|| Error::new(Code::Internal, format!("link {name} does not exist in {self}")))
    }

    /// The container's interface, which an earlier plugin of the chain created.
    ///
    /// # Errors
    /// Code 4 if it does not exist.
    pub fn chained_interface(&self, ifname: &IfName) -> Result<Link> {
        let missing = || {
            Error::new(
                Code::InvalidEnvironment,
                format!("CNI_IFNAME {ifname}: this interface does not exist in {self}"),
            )
            .detail("a plugin that creates the interface must come earlier in the network's plugins")
        };
        self.nl.link(ifname)?.ok_or_else(missing)
    }

    /// The link of the default route with the lowest metric, IPv4 before IPv6. `None` without a default route.
    ///
    /// # Errors
    /// If the kernel refuses to list routes or links.
    pub fn default_uplink(&self) -> Result<Option<Link>> {
        let index = self.nl.default_route()?.and_then(|route| route.link);
        Ok(self.nl.link_named_by(index)?)
    }

    /// Describes a link of this namespace for `interfaces` of the result.
    pub fn to_interface(&self, link: &Link) -> cni::Interface {
        cni::Interface {
            name: link.name.clone(),
            mac: link.address().map(|address| address.to_string()),
            mtu: Some(link.mtu),
            sandbox: self.sandbox.as_ref().map(|sandbox| sandbox.path.clone()),
            ..cni::Interface::default()
        }
    }

    /// Checks whether the process may change links and enter other namespaces, as far as this is possible without a container.
    ///
    /// # Errors
    /// Code 50, naming the missing capability.
    pub fn require_privileges(&self) -> Result<()> {
        self.ns.enter(|| ()).code(Code::NotAvailable)?;
        self.nl.may_change_links().code(Code::NotAvailable)
    }

    /// Checks that the kernel has these kinds of links ([`cni::Plugin::LINK_KINDS`]).
    ///
    /// # Errors
    /// Code 50, naming the missing kernel module or capability.
    pub fn require_link_kinds(&self, kinds: &[(&str, &str)]) -> Result<()> {
        for (kind, module) in kinds {
            if !self.nl.has_link_kind(kind).code(Code::NotAvailable)? {
                let text = format!("this kernel has no links of kind {kind}");
                return Err(Error::new(Code::NotAvailable, text)
                    .detail(format!("load its module (modprobe {module})")));
            }
        }
        Ok(())
    }

    /// Runs a closure in this namespace. The closure must not start a program, which would stay in this namespace, nor call `enter`.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn enter<T>(&self, closure: impl FnOnce() -> T) -> Result<T> {
        match &self.sandbox {
            Some(sandbox) => Ok(self.ns.enter_from(&sandbox.own, closure)?),
            None => Ok(closure()),
        }
    }

    /// Reads `/proc/sys/net/KEY`.
    ///
    /// # Errors
    /// Code 2 if it does not exist, 5 if it cannot be read; the message names the key.
    pub fn sysctl(&self, key: &str) -> Result<String> {
        self.read_sysctl(key)?.map_err(|e| not_read(key, &e))
    }

    /// Like [`Namespace::sysctl`]. `None` for a sysctl without a value: one that can only be written (`ipv4/route/flush`), or an unset
    /// `stable_secret`.
    ///
    /// # Errors
    /// Code 2 if it does not exist, 5 if it cannot be read; the message names the key.
    pub fn sysctl_with_value(&self, key: &str) -> Result<Option<String>> {
        match self.read_sysctl(key)? {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => Ok(None),
            // A stable_secret that is not set cannot be read (ip-sysctl.rst).
            Err(e) if e.raw_os_error() == Some(libc::EIO) && key.ends_with("/stable_secret") => Ok(None),
            read => read.map(Some).map_err(|e| not_read(key, &e)),
        }
    }

    fn read_sysctl(&self, key: &str) -> Result<io::Result<String>> {
        self.enter(|| read_value(key))
    }

    /// Writes `/proc/sys/net/KEY`.
    ///
    /// # Errors
    /// Code 2 if it does not exist, 7 if the kernel refuses the value, 5 if it cannot be written; the message names key and value.
    pub fn set_sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.enter(|| write_sysctl(key, value))?.map_err(|e| not_written(key, value, &e))
    }

    /// Tries to write each sysctl. Ignores a failure if the sysctl does not exist (the kernel may have no IPv6) or already has the value. Logs
    /// a refusal of the host, for example because `/proc/sys` is read-only. Consecutive ones with the same cause are in one line.
    ///
    /// # Errors
    /// If the namespace cannot be entered. Code 5 for any other failure, for example without memory: the next call may succeed.
    pub fn try_sysctls(&self, pairs: &[(&str, &str)]) -> Result<()> {
        let refused = |(key, value): &(&str, &str)| match write_sysctl(key, value) {
            Err(e) if e.kind() != io::ErrorKind::NotFound && !has_value(key, value) => {
                Some((format!("{key} = {value}"), e))
            }
            _ => None,
        };
        let refused = self.enter(|| pairs.iter().filter_map(refused).collect::<Vec<_>>())?;
        if let Some((name, cause)) = refused.iter().find(|(_, cause)| !is_refusal(cause)) {
            return Err(Error::io(format!("cannot set {name} in /proc/sys/net of {self}"), cause));
        }
        for same in refused.chunk_by(|(_, one), (_, other)| one.kind() == other.kind()) {
            let names: Vec<&str> = same.iter().map(|(name, _)| name.as_str()).collect();
            let what = format!("cannot set {} in /proc/sys/net of {self}", names.join(", "));
            cni::warn(Error::io(what, &same[0].1).msg());
        }
        Ok(())
    }

    /// Makes the kernel ignore router advertisements on a link. A container could give the host addresses and a default route by them
    /// (CVE-2020-10749). Prints a warning if the host refuses.
    ///
    /// # Errors
    /// The same as of [`Self::try_sysctls`].
    pub fn ignore_router_advertisements(&self, link: &Link) -> Result<()> {
        self.try_sysctls(&[(&format!("ipv6/conf/{}/accept_ra", link.name), "0")])
    }
}

/// Whether this host never allows the change, or the kernel does not have the value.
fn is_refusal(cause: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem};
    matches!(cause.kind(), InvalidInput | PermissionDenied | ReadOnlyFilesystem)
}

fn has_value(key: &str, value: &str) -> bool {
    read_value(key).is_ok_and(|found| found == value)
}

/// Reads a value in one system call. At an offset, the kernel returns nothing of a list such as `ip_local_reserved_ports`, so a second call
/// would not get the rest.
fn read_value(key: &str) -> io::Result<String> {
    let mut value = vec![0; LONGEST_VALUE];
    let length = File::open(sysctl_path(key))?.read(&mut value)?;
    if length == LONGEST_VALUE {
        return Err(io::Error::other(format!("the value is longer than {LONGEST_VALUE} bytes")));
    }
    value.truncate(length);
    let value = String::from_utf8(value).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    Ok(value.trim().to_owned())
}

fn write_sysctl(key: &str, value: &str) -> io::Result<()> {
    // A write of zero bytes changes nothing. With the line end, an empty value is written too.
    OpenOptions::new().write(true).open(sysctl_path(key))?.write_all(format!("{value}\n").as_bytes())
}

fn not_read(key: &str, cause: &io::Error) -> Error {
    sysctl_error(format!("read {}", sysctl_path(key).display()), cause)
}

fn sysctl_error(operation: String, cause: &io::Error) -> Error {
    let error = Error::io(operation, cause);
    match cause.kind() {
        io::ErrorKind::NotFound => error.with_code(Code::UnsupportedField),
        io::ErrorKind::InvalidInput => error.with_code(Code::InvalidConfig),
        _ => error,
    }
}

fn not_written(key: &str, value: &str, cause: &io::Error) -> Error {
    let error = sysctl_error(format!("write {value:?} to {}", sysctl_path(key).display()), cause);
    match cause.kind() {
        io::ErrorKind::PermissionDenied => {
            error.detail("the sysctl is read-only, or the plugin lacks CAP_NET_ADMIN")
        }
        _ => error,
    }
}

/// Callers build `key` from constants and link names, which cannot contain a slash. `tuning` checks the keys of its configuration itself.
fn sysctl_path(key: &str) -> PathBuf {
    Path::new("/proc/sys/net").join(key)
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ns.as_fd()
    }
}

impl std::fmt::Display for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.sandbox {
            Some(sandbox) => write!(f, "namespace {}", sandbox.path),
            None => f.write_str("the host's namespace"),
        }
    }
}
