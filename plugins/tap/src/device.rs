//! The tap. It becomes persistent at the end of ADD, so the kernel deletes it if the plugin fails or is killed before.

use cni::{Add, Error, Result, Undo};
use iface::{Namespace, creation, ownership};
use netlink::{Link, LinkChange, Mac, TUN_DEVICE, Tun};

use crate::conf::Conf;
use crate::label;

/// A tap that is deleted when this is dropped, unless it was made [persistent](Tap::keep).
#[derive(Debug)]
pub struct Tap {
    tun: Tun,
    /// The link.
    pub link: Link,
}

impl Tap {
    /// Makes the tap persistent: an ADD's last step.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn keep(&self, sandbox: &Namespace, undo: &mut Undo) -> Result<()> {
        let (nl, link) = (sandbox.nl.clone(), self.link.clone());
        undo.push(move || nl.delete_link(&link));
        Ok(self.tun.persist()?)
    }
}

/// Creates the tap, down, with the attachment's alias ([`ownership`]).
///
/// # Errors
/// Code 4 if the container has an interface of that name; 5 if [`TUN_DEVICE`] cannot be opened; other errors if the kernel refuses.
pub fn create(sandbox: &Namespace, call: &Add<Conf>, mac: Option<Mac>, bridge: Option<&Link>) -> Result<Tap> {
    let (conf, at) = (&call.conf, &call.attachment);
    creation::refuse_taken_name(sandbox, at)?;
    let tun = sandbox.enter(open)??;
    match &conf.selinux_context {
        Some(context) if label::is_enabled() => {
            label::create(&tun, &at.ifname, conf.multi_queue, context)?;
        }
        context => {
            if context.is_some() {
                cni::warn("selinuxContext is ignored: this host has no SELinux");
            }
            tun.create(&at.ifname, conf.multi_queue)?;
        }
    }
    conf.owner.map_or(Ok(()), |user| tun.set_owner(user))?;
    conf.group.map_or(Ok(()), |group| tun.set_group(group))?;
    let made = sandbox.link(&at.ifname)?;
    let alias = ownership::alias(&call.net.name, at);
    let master = bridge.map(|bridge| bridge.index);
    let mac = Some(mac.unwrap_or_else(Mac::random));
    let change = LinkChange { mac, mtu: conf.mtu, alias: alias.as_deref(), master, ..LinkChange::default() };
    sandbox.nl.change_link(&made, &change)?;
    let link = Link { mac, mtu: conf.mtu.unwrap_or(made.mtu), ..made };
    Ok(Tap { tun, link })
}

/// Opens the device that creates taps, for the calling thread's namespace.
///
/// # Errors
/// Code 5 if it does not exist or cannot be opened.
pub fn open() -> Result<Tun> {
    Tun::open().map_err(|e| {
        Error::io(format!("open {TUN_DEVICE}"), &e).detail(
            "tap devices are created with this device: run `modprobe tun`, and allow the runtime's processes to open it",
        )
    })
}
