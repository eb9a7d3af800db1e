//! The veth pair between host and container.

use std::os::fd::AsFd;
use std::time::Duration;

use cni::{Attachment, Code, Error, NetworkName, Result, Scope, Undo};
use netlink::{Link, LinkChange, LinkKind, Mac, NewLink, OperState, Peer};

use crate::{Namespace, creation, ownership};

/// Prefix of the name of the host's end.
const LETTERS: &str = "veth";

/// Both ends usually carry packets within milliseconds; later on a busy host.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(10);

/// A plugin's parameters of the pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spec {
    /// MTU of both ends in bytes. `None`: 1500.
    pub mtu: Option<u32>,
    /// Hardware address of the container's end. `None`: random.
    pub mac: Option<Mac>,
    /// Index of the bridge of the host's end.
    pub master: Option<u32>,
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

/// Creates a pair, each end in its namespace. The host's end has the attachment's name and alias ([`ownership`]).
///
/// # Errors
/// Code 4 if the container has an interface of that name.
pub fn create(
    host: &Namespace,
    sandbox: &Namespace,
    network: &NetworkName,
    at: &Attachment,
    spec: Spec,
    undo: &mut Undo,
) -> Result<Veth> {
    let name = host_name(network, at);
    let pair = NewLink {
        mtu: spec.mtu,
        master: spec.master,
        group: Some(ownership::group(network)),
        up: true,
        peer: Some(Peer { name: &at.ifname, mac: spec.mac, netns: Some(sandbox.as_fd()) }),
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
    if let Some(alias) = ownership::alias(network, at) {
        let named = LinkChange { alias: Some(&alias), group: Some(0), ..LinkChange::default() };
        host.nl.change_link(&link, &named)?;
    }
    Ok(Veth { host: link, container: sandbox.link(&at.ifname)? })
}

/// Explains which of the two names exists.
fn taken(sandbox: &Namespace, at: &Attachment, host_name: &str) -> Error {
    let left = Error::new(Code::Internal, format!("link {host_name} exists in the host's namespace already"))
        .detail(format!("an earlier ADD of container {} left it behind; its DEL removes it", at.container));
    creation::taken_name(sandbox, at, left)
}

/// Name of an attachment's end on the host.
pub fn host_name(network: &NetworkName, at: &Attachment) -> String {
    ownership::name(LETTERS, network, at)
}

/// Whether GC of a network deletes a pair, judged by its end on the host.
pub fn is_taken(link: &Link, network: &NetworkName, scope: &Scope) -> bool {
    link.is("veth") && ownership::is_taken(link, network, scope, |at| host_name(network, at) == link.name)
}
