//! A namespace paired with the netlink socket that works in it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use cni::{Code, Error, IfName, Result, ResultExt};
use netlink::{Link, Netlink, Target};
use netns::NetNs;
use nix::libc;
use system::lock::Lock;

/// How many locks all namespaces share. The file of a lock stays; each namespace of its own would be too many.
const LOCKS: u64 = 32;

/// What is done under a namespace's lock takes milliseconds.
const LOCK_PATIENCE: Duration = Duration::from_secs(20);

/// The host's namespace or a container's. Clones share the descriptors.
#[derive(Clone, Debug)]
pub struct Namespace {
    /// Requests go to this namespace, wherever the plugin is.
    pub nl: Netlink,
    ns: Rc<NetNs>,
    sandbox: Option<Sandbox>,
}

/// What is known of a container's namespace besides.
#[derive(Clone, Debug)]
struct Sandbox {
    /// As the runtime names it.
    path: String,
    /// Where the plugin is, and comes back to.
    home: Rc<NetNs>,
}

impl Namespace {
    /// The namespace that the plugin was started in.
    ///
    /// # Errors
    /// If descriptors run out or `/proc` is not mounted.
    pub fn host() -> Result<Self> {
        Ok(Self { nl: Netlink::open()?, ns: Rc::new(NetNs::current()?), sandbox: None })
    }

    /// A container's namespace.
    ///
    /// # Errors
    /// Code 3 if it is gone; 4 if the path is no network namespace; else what the kernel refuses.
    pub fn open(path: &Path) -> Result<Self> {
        match NetNs::open(path) {
            Ok(ns) => Self::of(ns),
            Err(e) if e.is_something_else() => Err(Error::from(e).with_code(Code::InvalidEnvironment)),
            Err(e) if e.is_missing() => Err(Error::from(e).with_code(Code::UnknownContainer)),
            Err(e) => Err(e.into()),
        }
    }

    /// A container's namespace that is open already.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn of(ns: NetNs) -> Result<Self> {
        let home = Rc::new(NetNs::current()?);
        let nl = ns.enter_from(&home, Netlink::open)??;
        let sandbox = Sandbox { path: ns.path().display().to_string(), home };
        Ok(Self { nl, ns: Rc::new(ns), sandbox: Some(sandbox) })
    }

    /// A container's namespace for DEL: none if it is gone.
    ///
    /// # Errors
    /// If it is there but cannot be entered.
    pub fn open_if_present(path: Option<&PathBuf>) -> Result<Option<Self>> {
        let Some(path) = path else { return Ok(None) };
        NetNs::open_if_present(path)?.map(Self::of).transpose()
    }

    /// Where a link is to be made that a socket elsewhere asks for.
    pub(crate) fn target(&self) -> Target<'_> {
        Target { netns: self.as_fd(), nl: &self.nl }
    }

    /// The namespace itself.
    pub fn netns(&self) -> &NetNs {
        &self.ns
    }

    /// Takes the lock of the namespace, for what must not be done there by two plugins at once, such as choosing a free number.
    /// None: this host has no locks that only root can take, and the other kind was not to be had.
    ///
    /// # Errors
    /// Code 11 if another plugin has held it for all of [`LOCK_PATIENCE`].
    pub fn lock(&self) -> Result<Option<Lock>> {
        let slot = self.ns.number()? % LOCKS;
        Ok(Lock::acquire(&format!("netns-{slot}"), LOCK_PATIENCE)?)
    }

    /// Whether a path leads here, too.
    pub fn is_at(&self, path: &Path) -> bool {
        NetNs::open(path).and_then(|ns| ns.is_same_as(&self.ns)).unwrap_or_default()
    }

    /// The link of a name.
    ///
    /// # Errors
    /// Code 999 if there is none.
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

    /// A link as a result names it.
    pub fn report(&self, link: &Link) -> cni::Interface {
        cni::Interface {
            name: link.name.clone(),
            mac: link.address().map(|address| address.to_string()),
            mtu: Some(link.mtu),
            sandbox: self.sandbox.as_ref().map(|sandbox| sandbox.path.clone()),
            ..cni::Interface::default()
        }
    }

    /// Asks whether links may be changed and containers' namespaces be entered, as far as that can be known without one.
    ///
    /// # Errors
    /// Code 50, naming the capability.
    pub fn permits_attachments(&self) -> Result<()> {
        self.ns.enter(|| ()).code(Code::NotAvailable)?;
        self.nl.may_change_links().code(Code::NotAvailable)
    }

    /// Runs a closure inside. It must start no program.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn enter<T>(&self, closure: impl FnOnce() -> T) -> Result<T> {
        match &self.sandbox {
            Some(sandbox) => Ok(self.ns.enter_from(&sandbox.home, closure)?),
            None => Ok(closure()),
        }
    }

    /// Reads `/proc/sys/net/KEY`.
    ///
    /// # Errors
    /// Code 2 if there is none, else 5, naming the key.
    pub fn sysctl(&self, key: &str) -> Result<String> {
        self.read_sysctl(key)?.map_err(|e| not_read(key, &e))
    }

    /// As [`Namespace::sysctl`], but none for what has no value: one that can only be written, as an order
    /// (`ipv4/route/flush`), and a `stable_secret` that has not been set.
    ///
    /// # Errors
    /// As [`Namespace::sysctl`].
    pub fn sysctl_with_value(&self, key: &str) -> Result<Option<String>> {
        match self.read_sysctl(key)? {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => Ok(None),
            // ip-sysctl.rst
            Err(e) if e.raw_os_error() == Some(libc::EIO) && key.ends_with("/stable_secret") => Ok(None),
            read => read.map(Some).map_err(|e| not_read(key, &e)),
        }
    }

    fn read_sysctl(&self, key: &str) -> Result<io::Result<String>> {
        let read = self.enter(|| fs::read_to_string(sysctl_path(key)))?;
        Ok(read.map(|value| value.trim().to_owned()))
    }

    /// Writes `/proc/sys/net/KEY`.
    ///
    /// # Errors
    /// Code 2 if there is none, 7 if it cannot have the value, else 5, naming key and value.
    pub fn set_sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.enter(|| write_sysctl(key, value))?
            .map_err(|e| sysctl_error(format!("write {value:?} to {}", sysctl_path(key).display()), &e))
    }

    /// Writes what the attachment works without, too: those that are refused, as all are where /proc/sys is read-only, are told
    /// on the log, in one line. Those that do not exist (the kernel may have no IPv6) are ignored.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn try_sysctls(&self, pairs: &[(&str, &str)]) -> Result<()> {
        let refused = |(key, value): &(&str, &str)| match write_sysctl(key, value) {
            Err(e) if e.kind() != io::ErrorKind::NotFound && !has_value(key, value) => {
                Some((format!("{key} = {value}"), e))
            }
            _ => None,
        };
        let (refused, causes): (Vec<_>, Vec<_>) =
            self.enter(|| pairs.iter().filter_map(refused).collect::<Vec<_>>())?.into_iter().unzip();
        if let Some(cause) = causes.first() {
            let what = format!("set, below /proc/sys/net in {self}, {}", refused.join(", "));
            cni::warn(&format!("a setting is left as it is: {}", Error::io(what, cause).msg()));
        }
        Ok(())
    }
}

fn has_value(key: &str, value: &str) -> bool {
    fs::read_to_string(sysctl_path(key)).is_ok_and(|found| found.trim() == value)
}

fn write_sysctl(key: &str, value: &str) -> io::Result<()> {
    // The line end lets an empty value arrive too.
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
        io::ErrorKind::PermissionDenied => error.detail("this requires CAP_NET_ADMIN"),
        _ => error,
    }
}

/// Keys never climb: they are this project's own, with names of links in them that the kernel gave, or were taken
/// apart and checked.
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
