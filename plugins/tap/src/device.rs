//! The tap itself. It is not persistent until the ADD is done, so that it goes with a plugin that fails or is killed before.

use cni::{Add, Error, Result, Undo};
use iface::{Namespace, ownership, veth};
use netlink::{Link, LinkChange, Mac, TUN_DEVICE, Tun};

use crate::conf::Conf;
use crate::label;

/// A tap that goes when this is dropped, unless it is [kept](Tap::keep).
#[derive(Debug)]
pub struct Tap {
    tun: Tun,
    /// The link.
    pub link: Link,
}

impl Tap {
    /// Lets the tap stay: an ADD's last step.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn keep(&self, sandbox: &Namespace, undo: &mut Undo) -> Result<()> {
        let (nl, link) = (sandbox.nl.clone(), self.link.clone());
        undo.push(move || nl.delete_link(&link));
        Ok(self.tun.persist()?)
    }
}

/// Makes the tap, down, with the attachment's alias ([`ownership`]).
///
/// # Errors
/// Code 4 if the container has an interface of that name; 5 if there is no [`TUN_DEVICE`]; else what the kernel refuses.
pub fn create(sandbox: &Namespace, call: &Add<Conf>, mac: Option<Mac>, bridge: Option<&Link>) -> Result<Tap> {
    let (conf, at) = (&call.conf, &call.attachment);
    veth::refuse_taken_name(sandbox, at)?;
    let tun = sandbox.enter(open)??;
    match &conf.selinux_context {
        Some(context) if label::is_enabled() => {
            label::create(&tun, &at.ifname, conf.multi_queue, context)?;
        }
        asked => {
            if asked.is_some() {
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
    let change = LinkChange { mac, mtu: conf.mtu, alias: alias.as_deref(), master, ..LinkChange::default() };
    sandbox.nl.change_link(&made, &change)?;
    let link = Link { mac: mac.or(made.mac), mtu: conf.mtu.unwrap_or(made.mtu), ..made };
    Ok(Tap { tun, link })
}

/// Opens the device that taps are made through, for the namespace that the calling thread is in.
///
/// # Errors
/// Code 5 if it is missing or may not be opened.
pub fn open() -> Result<Tun> {
    Tun::open().map_err(|e| {
        Error::io(format!("open {TUN_DEVICE}"), &e).detail(
            "taps are made through it: load the kernel's module (modprobe tun), and let the plugin's process have the device",
        )
    })
}
