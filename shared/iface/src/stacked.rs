//! An interface that is stacked on a master: what macvlan, ipvlan and vlan have in common.

use cni::{Add, AsWritten, Check, Code, Result, ResultExt, Undo};
use netlink::{Link, LinkKind, Mac};

use crate::child::{self, Spec};
use crate::parent::{Parent, ParentConf};
use crate::verify::{self, Expected};
use crate::{InterfaceConf, MacKeys, Namespace, conf};

/// Keys about the interface and its master.
#[derive(Clone, Debug)]
pub struct StackedConf {
    /// The master.
    pub parent: ParentConf,
    /// `mtu`, in bytes. `None`: the master's.
    pub mtu: Option<u32>,
    /// Keys of all interfaces.
    pub interface: InterfaceConf,
}

impl StackedConf {
    /// Reads the keys from a plugin's configuration.
    ///
    /// # Errors
    /// Code 6 for a key of the wrong type, 7 for an invalid value.
    pub fn read(document: &AsWritten) -> Result<Self> {
        Ok(Self {
            parent: ParentConf::read(document)?,
            mtu: conf::mtu(document)?,
            interface: InterfaceConf::read(document, MacKeys::All)?,
        })
    }

    /// ADD: opens the namespaces and finds the master.
    ///
    /// # Errors
    /// Code 7 if the master does not exist or is not determined, or if the MTU is more than its.
    pub fn find_parent<C>(&self, call: &Add<C>) -> Result<Stack> {
        let (host, sandbox) = (Namespace::host()?, Namespace::open(&call.netns)?);
        let parent = self.parent.find(&host, &sandbox, &call.prev_result)?;
        Ok(Stack { sandbox, mtu: parent.mtu(self.mtu)?, parent })
    }

    /// CHECK: verifies the interface, of this kind and on its master, and returns it.
    ///
    /// # Errors
    /// If something is missing or differs.
    pub fn verify<C>(&self, call: &Check<C>, kind: &str) -> Result<Link> {
        let (host, sandbox) = (Namespace::host()?, Namespace::open(&call.netns)?);
        let master = self.parent.verify(&host, &sandbox, &call.attachment)?;
        verify::container(&sandbox, call, Expected::kind(kind).mtu(self.mtu).on(&master))
    }

    /// STATUS: checks that containers can be attached with links of these kinds ([`cni::Plugin::LINK_KINDS`]), and returns the
    /// master, if it does not depend on the container.
    ///
    /// # Errors
    /// Code 50 if an ADD would fail.
    pub fn available(&self, kinds: &[(&str, &str)]) -> Result<Option<Parent>> {
        let host = Namespace::host()?;
        host.require_privileges()?;
        let parent = self.parent.find_on_host(&host).code(Code::NotAvailable)?;
        if let Some(parent) = &parent {
            parent.mtu(self.mtu).code(Code::NotAvailable)?;
        }
        host.require_link_kinds(kinds)?;
        Ok(parent)
    }
}

/// The container's namespace, and the master that the interface is stacked on.
#[derive(Clone, Debug)]
pub struct Stack {
    /// The container's namespace.
    pub sandbox: Namespace,
    /// The master.
    pub parent: Parent,
    /// MTU of the interface in bytes. `None`: the master's.
    mtu: Option<u32>,
}

impl Stack {
    /// Creates the interface, down.
    ///
    /// # Errors
    /// Code 4 if the container has an interface of that name; other errors if the kernel refuses.
    pub fn create<C>(
        &self,
        call: &Add<C>,
        kind: LinkKind,
        mac: Option<Mac>,
        undo: &mut Undo,
    ) -> Result<Link> {
        let spec = Spec { kind, parent: Some(&self.parent), mac, mtu: self.mtu };
        child::create(&self.sandbox, call, &spec, undo)
    }
}
