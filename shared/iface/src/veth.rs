//! The veth pair between host and container.

use std::os::fd::AsFd;
use std::time::Duration;

use cni::{AddResult, Attachment, Code, Error, IfName, NetworkName, Result, Scope, Undo};
use netlink::{Link, LinkChange, LinkKind, Mac, NewLink, OperState, Peer};

use crate::{Namespace, creation, ownership};

/// Prefix of the name of the host's end.
const LETTERS: &str = "veth";

/// Both ends usually carry packets within milliseconds; later on a busy host.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(10);

/// A plugin's parameters of the pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spec<'a> {
    /// MTU of both ends in bytes. `None`: 1500.
    pub mtu: Option<u32>,
    /// Hardware address of the container's end. `None`: random.
    pub mac: Option<Mac>,
    /// Index of the bridge of the host's end.
    pub master: Option<u32>,
    /// Name of the host's end. `None`: derived from the attachment.
    pub host_interface: Option<&'a IfName>,
}

/// A veth pair.
#[derive(Clone, Debug)]
pub struct Veth {
    /// The end on the host, up.
    pub host: Link,
    /// The end in the container, down.
    pub container: Link,
}

impl Veth {
    /// Waits for the kernel's events that both ends can carry packets. Set the container's end up first.
    ///
    /// # Errors
    /// After ten seconds.
    pub fn wait_until_up(&self, host: &Namespace, sandbox: &Namespace) -> Result<()> {
        wait_until_up((host, &self.host), (sandbox, &self.container))
    }
}

/// Waits until two ends, each in its namespace, can carry packets.
///
/// # Errors
/// After ten seconds.
pub fn wait_until_up(one: (&Namespace, &Link), other: (&Namespace, &Link)) -> Result<()> {
    for (namespace, link) in [one, other] {
        namespace.nl.wait_for_state(link, OperState::Up, CARRIER_TIMEOUT)?;
    }
    Ok(())
}

/// Checks that the requested name of the host's end is free, before the first effect of an ADD.
///
/// # Errors
/// Code 7 if the host has an interface of that name.
pub fn refuse_taken_host_interface(host: &Namespace, name: Option<&IfName>) -> Result<()> {
    let Some(name) = name else { return Ok(()) };
    match host.nl.link(name)? {
        None => Ok(()),
        Some(link) => Err(host_interface_taken(name, &link.alias)),
    }
}

/// `alias` names the container that has the interface, if Ferrule created it.
fn host_interface_taken(name: &IfName, alias: &str) -> Error {
    let alias = if alias.is_empty() { String::new() } else { format!(", with the alias {alias:?}") };
    Error::config(format!("hostInterface {name}: the host already has an interface of this name{alias}")).detail(
        "only one container can have the name: set args.cni.hostInterface to a longer name for each container, or remove hostInterface",
    )
}

/// Creates a pair, each end in its namespace. The host's end has the attachment's name, unless another one is requested, and alias
/// ([`ownership`]).
///
/// # Errors
/// Code 4 if the container has an interface of that name, 7 if the host has one of the requested name.
pub fn create(
    host: &Namespace,
    sandbox: &Namespace,
    network: &NetworkName,
    at: &Attachment,
    spec: Spec<'_>,
    undo: &mut Undo,
) -> Result<Veth> {
    let (name, mac) = (host_name(network, at), Some(spec.mac.unwrap_or_else(Mac::random)));
    let pair = NewLink {
        mac: Some(Mac::random()),
        mtu: spec.mtu,
        master: spec.master,
        group: Some(ownership::group(network)),
        // Before Linux 6.2, the kernel renames only a link that is down.
        up: spec.host_interface.is_none(),
        peer: Some(Peer { name: &at.ifname, mac, netns: Some(sandbox.as_fd()) }),
        ..NewLink::new(&name, LinkKind::Veth)
    };
    let link = host.nl.create_link(&pair).map_err(|e| match e {
        e if e.is_exists() => taken(sandbox, at, &name),
        e if e.is_unanswered() => {
            creation::withdraw(host, std::slice::from_ref(&name), &LinkKind::Veth, e.into())
        }
        e => e.into(),
    })?;
    let (nl, made) = (host.nl.clone(), link.clone());
    undo.push(move || nl.delete_link(&made));
    let alias = ownership::alias(network, at);
    if let Some(alias) = &alias {
        let named = LinkChange { alias: Some(alias), group: Some(0), ..LinkChange::default() };
        host.nl.change_link(&link, &named)?;
    }
    let host_end = match spec.host_interface {
        Some(requested) => rename(host, link, alias, requested)?,
        None => link,
    };
    Ok(Veth { host: host_end, container: sandbox.link(&at.ifname)? })
}

/// Gives the host's end its requested name, and sets it up. The link has the alias already: DEL and GC find it at any time.
fn rename(host: &Namespace, link: Link, alias: Option<String>, name: &IfName) -> Result<Link> {
    let Some(alias) = alias else {
        return Err(Error::config(format!(
            "hostInterface {name}: the alias that identifies the interface would be too long"
        ))
        .detail("shorten the name of the network or the container id, or remove hostInterface"));
    };
    let change = LinkChange { name: Some(name), up: Some(true), ..LinkChange::default() };
    host.nl.change_link(&link, &change).map_err(|e| match e {
        // Another plugin created it since `refuse_taken_host_interface`.
        e if e.is_exists() => host_interface_taken(name, ""),
        e => e.into(),
    })?;
    Ok(Link { name: name.to_string(), alias, group: 0, up: true, ..link })
}

/// Explains which of the two names exists.
fn taken(sandbox: &Namespace, at: &Attachment, host_name: &str) -> Error {
    let left = Error::new(Code::Internal, format!("link {host_name} exists in the host's namespace already"))
        .detail(format!("an earlier ADD of container {} left it behind; its DEL removes it", at.container));
    creation::taken_name(sandbox, at, left)
}

/// Name of an attachment's end on the host, unless `hostInterface` is set.
pub fn host_name(network: &NetworkName, at: &Attachment) -> String {
    ownership::name(LETTERS, network, at)
}

/// Finds the host's end of the pair that Ferrule created for an attachment: by its derived name, else by one of `names`. Another
/// attachment's interface may have such a name.
///
/// # Errors
/// If the kernel refuses.
pub fn find_host_end(
    host: &Namespace,
    network: &NetworkName,
    at: &Attachment,
    names: impl Iterator<Item = String>,
) -> Result<Option<Link>> {
    let is_own = |link: &Link| link.is("veth") && ownership::is_owner(network, at, link);
    let has_no_other_owner = |link: &Link| link.is("veth") && !ownership::is_of_another(network, at, link);
    let derived = host.nl.link(&host_name(network, at))?.filter(has_no_other_owner);
    if derived.is_some() {
        return Ok(derived);
    }
    for name in names {
        if let Some(link) = host.nl.link(&name)?.filter(is_own) {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

/// Whether Ferrule created the attachment's veth pair. The kernel is only asked if the result of ADD does not list the derived name: because
/// the configuration contains another one, or the result is of an older version.
///
/// # Errors
/// If the kernel refuses.
pub fn is_of_ferrule(network: &NetworkName, at: &Attachment, result: &AddResult) -> Result<bool> {
    let (derived, listed) = (host_name(network, at), || result.host_interfaces().map(|one| one.name.clone()));
    Ok(listed().any(|name| name == derived)
        || find_host_end(&Namespace::host()?, network, at, listed())?.is_some())
}

/// Whether a name is of the form that the reference gives to a veth on the host.
pub fn is_name_of_the_reference(name: &str) -> bool {
    let digits = name.strip_prefix(LETTERS).unwrap_or_default();
    digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether GC of a network deletes a pair, judged by its end on the host.
pub fn is_taken(link: &Link, network: &NetworkName, scope: &Scope) -> bool {
    link.is("veth") && ownership::is_taken(link, network, scope, |at| host_name(network, at) == link.name)
}
