//! Pods: a namespace that is attached to several networks, as in the network managers of CRI-O and Podman.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cni::{AddResult, Attachment, CniArgs, Code, ContainerId, IfName, NetworkName};
use serde_json::{Map, Value};

use crate::error::Failures;
use crate::{AttachmentParameters, ConfDir, Error, Network, Result, Runtime, Valid};

/// Request for one network.
#[derive(Clone, Debug)]
pub struct NetworkRequest {
    /// Network.
    pub network: Network,
    /// Name of the interface. `None`: the first unused one of eth0, eth1, ...
    pub ifname: Option<IfName>,
    /// `CNI_ARGS`.
    pub args: CniArgs,
    /// Capability arguments.
    pub capability_args: Map<String, Value>,
}

impl From<Network> for NetworkRequest {
    /// A request without parameters.
    fn from(network: Network) -> Self {
        Self { network, ifname: None, args: CniArgs::default(), capability_args: Map::new() }
    }
}

/// A namespace and its networks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pod {
    /// Id of its (sandbox) container.
    pub id: ContainerId,
    /// Network namespace. `None` if it no longer exists: only [`Pods::tear_down`] accepts this.
    pub netns: Option<PathBuf>,
    /// Networks in the order of set-up.
    pub requests: Vec<NetworkRequest>,
}

impl Pod {
    /// A pod without networks.
    ///
    /// # Errors
    /// Code 4 for an invalid id.
    pub fn new(id: &str, netns: impl AsRef<Path>) -> Result<Self> {
        let id = ContainerId::parse(id)
            .map_err(|e| Error::own(Code::InvalidEnvironment, format!("the container's id {e}")))?;
        let netns = Some(netns.as_ref().to_owned()).filter(|path| !path.as_os_str().is_empty());
        Ok(Self { id, netns, requests: Vec::new() })
    }

    /// Adds a network.
    #[must_use]
    pub fn join(mut self, request: impl Into<NetworkRequest>) -> Self {
        self.requests.push(request.into());
        self
    }

    /// The networks with their attachments. Chooses missing interface names.
    fn attachments(&self) -> Result<Vec<(&Network, AttachmentParameters)>> {
        let mut taken: Vec<IfName> =
            self.requests.iter().filter_map(|request| request.ifname.clone()).collect();
        if let Some(twice) =
            taken.iter().enumerate().find_map(|(i, name)| taken[..i].contains(name).then_some(name))
        {
            let what = format!("pod {}: two networks have the interface name {twice}", self.id);
            return Err(Error::own(Code::InvalidConfig, what));
        }
        self.requests
            .iter()
            .map(|request| Ok((&request.network, self.attach(request, &mut taken)?)))
            .collect()
    }

    fn attach(&self, request: &NetworkRequest, taken: &mut Vec<IfName>) -> Result<AttachmentParameters> {
        let ifname = match &request.ifname {
            Some(name) => name.clone(),
            None => first_free(taken)?,
        };
        let attach = AttachmentParameters::from(Attachment { container: self.id.clone(), ifname })
            .args(request.args.clone());
        Ok(AttachmentParameters {
            netns: self.netns.clone(),
            capability_args: request.capability_args.clone(),
            ..attach
        })
    }
}

fn first_free(taken: &mut Vec<IfName>) -> Result<IfName> {
    let free =
        (0..=taken.len()).find_map(|i| IfName::parse(&format!("eth{i}")).ok().filter(|n| !taken.contains(n)));
    let name = free.ok_or_else(|| Error::own(Code::Internal, "no interface name is free"))?;
    taken.push(name.clone());
    Ok(name)
}

/// An attached interface of a pod.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attached {
    /// Network.
    pub network: NetworkName,
    /// Name of the interface.
    pub ifname: IfName,
    /// Result of ADD.
    pub result: AddResult,
}

/// Sets pods up and tears them down. Operations on the same pod wait for each other.
///
/// ```no_run
/// use runtime::{ConfDir, Pod, Pods, Runtime};
///
/// let networks = ConfDir::new("/etc/cni/net.d");
/// let pods = Pods::new(Runtime::new(["/opt/cni/bin"])).networks(networks.clone());
/// let pod = Pod::new("0a1b2c", "/run/netns/web")?
///     .join(networks.default_network()?)  // eth0
///     .join(networks.find("storage")?);   // eth1
/// for attached in pods.set_up(&pod)? {
///     println!("{} on {}: {:?}", attached.ifname, attached.network, attached.result.ips);
/// }
/// pods.tear_down(&pod)?;
/// # Ok::<(), runtime::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pods {
    runtime: Runtime,
    networks: Option<ConfDir>,
    locks: Arc<Mutex<HashMap<ContainerId, Arc<Mutex<()>>>>>,
}

impl Pods {
    /// Uses this runtime. Clones share their locks; other processes have separate locks.
    pub fn new(runtime: Runtime) -> Self {
        Self { runtime, networks: None, locks: Arc::default() }
    }

    /// Sets the directory of networks. [`Pods::tear_down`] reads the plugins of a network's directory there if the pod no longer lists the
    /// network.
    #[must_use]
    pub fn networks(mut self, dir: ConfDir) -> Self {
        self.networks = Some(dir);
        self
    }

    /// Attaches a pod to all of its networks. If one fails, detaches the pod from all of them, except from those to which it was attached
    /// before.
    ///
    /// # Errors
    /// Like [`Runtime::add_or_roll_back`], followed by failures to detach.
    pub fn set_up(&self, pod: &Pod) -> Result<Vec<Attached>> {
        let attachments = pod.attachments()?;
        self.alone(&pod.id, || {
            let (mut attached, mut new) = (Vec::new(), Vec::new());
            for (network, attach) in &attachments {
                match self.runtime.add_or_roll_back(network, attach) {
                    Ok(added) => {
                        attached.push(Attached {
                            network: network.name.clone(),
                            ifname: attach.attachment.ifname.clone(),
                            result: added.result,
                        });
                        new.extend(added.earlier.is_none().then(|| (*network, attach.clone())));
                    }
                    Err(failed) => {
                        let failed = failed.context(format_args!("network {}", network.name));
                        return Err(match take_down(&self.runtime.clone().uninterrupted(), &new) {
                            Ok(()) => failed,
                            Err(left) => failed.and(left.context("roll back")),
                        });
                    }
                }
            }
            Ok(attached)
        })
    }

    /// Detaches a pod from all of its networks in reverse order, and from networks that are only in the cache. Continues after failures.
    ///
    /// # Errors
    /// All failures.
    pub fn tear_down(&self, pod: &Pod) -> Result<()> {
        let attachments = pod.attachments()?;
        self.alone(&pod.id, || {
            let mut failures = Failures::default();
            failures.note(self.take_down_unlisted(pod, &attachments));
            failures.note(take_down(&self.runtime, &attachments));
            failures.into_result()
        })
    }

    /// CHECK of all attachments of a pod.
    ///
    /// # Errors
    /// All failures.
    pub fn check(&self, pod: &Pod) -> Result<()> {
        let attachments = pod.attachments()?;
        self.alone(&pod.id, || {
            let mut failures = Failures::default();
            for (network, attach) in &attachments {
                let outcome = self.runtime.check(network, attach);
                failures.note(outcome.map_err(|e| e.context(format_args!("network {}", network.name))));
            }
            failures.into_result()
        })
    }

    /// GC of these networks: deletes all resources, except those of the pods in `alive`. The list must also contain the pods that are being
    /// set up: GC waits until they are, and reads their attachments then.
    ///
    /// # Errors
    /// All failures.
    pub fn gc<'a>(
        &self,
        networks: impl IntoIterator<Item = &'a Network>,
        alive: &[ContainerId],
    ) -> Result<()> {
        let mut failures = Failures::default();
        for network in networks {
            failures.note(self.runtime.gc(network, Valid::Containers(alive)));
        }
        failures.into_result()
    }

    /// Detaches from networks with which the pod was set up but that it no longer lists.
    fn take_down_unlisted(&self, pod: &Pod, listed: &[(&Network, AttachmentParameters)]) -> Result<()> {
        let is_listed = |name: &NetworkName, at: &Attachment| {
            listed.iter().any(|(network, attach)| network.name == *name && attach.attachment == *at)
        };
        let mut known = self.runtime.results().list()?;
        known.retain(|entry| {
            entry.attach.attachment.container == pod.id
                && !is_listed(&entry.network, &entry.attach.attachment)
        });
        let mut failures = Failures::default();
        for entry in known {
            let name = entry.network.clone();
            let listed = listed.iter().map(|(network, _)| *network).find(|network| network.name == name);
            let network = match (listed, &self.networks) {
                (Some(today), _) => entry.clone().with_directory_of(today).network(),
                (None, Some(dir)) => entry.network().and_then(|network| dir.complete(network)),
                (None, None) => entry.network(),
            };
            let outcome = network.and_then(|network| self.runtime.del(&network, &entry.attach));
            failures.note(outcome.map_err(|e| e.context(format_args!("network {name}"))));
        }
        failures.into_result()
    }

    /// Excludes other operations on the pod.
    fn alone<T>(&self, id: &ContainerId, operation: impl FnOnce() -> T) -> T {
        let all = || self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = Arc::clone(all().entry(id.clone()).or_default());
        let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = operation();
        drop(held);
        let mut all = all();
        // With two references, the table's and this function's, no other operation waits.
        if Arc::strong_count(&lock) <= 2 {
            all.remove(id);
        }
        outcome
    }
}

fn take_down(runtime: &Runtime, attachments: &[(&Network, AttachmentParameters)]) -> Result<()> {
    let mut failures = Failures::default();
    for (network, attach) in attachments.iter().rev() {
        let outcome = runtime.del(network, attach);
        failures.note(outcome.map_err(|e| e.context(format_args!("network {}", network.name))));
    }
    failures.into_result()
}
