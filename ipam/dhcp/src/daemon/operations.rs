//! The daemon's operations for plugins.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use cni::{AsWritten, CniArgs, Code, Error, Failures, Result};
use iface::enable_ipv6;
use netns::NetNs;
use serde_json::{Value, json};
use system::host_path::below;

use super::serve::Daemon;
use crate::conf::{Conf, Families};
use crate::key::{Family, Key};
use crate::location::{self, OpenInterface};
use crate::managed_lease::{ManagedLease, Waiter};
use crate::parameters::{self, LeaseParameters};
use crate::record::{LeasedAttachment, Location};
use crate::wire::{Op, Request};

impl Daemon {
    /// Serves a request. None: the answer follows later.
    pub(super) fn request(&mut self, number: u64, line: &[u8], netns: Option<File>) -> Option<Result<Value>> {
        let request = match Request::read(line) {
            Ok(request) => request,
            Err(e) => return Some(Err(e)),
        };
        match request.op {
            Op::List => Some(Ok(self.list())),
            Op::Status => Some(self.status(&request.network)),
            Op::Gc => {
                self.gc(number, &request);
                None
            }
            op => {
                let (family, names) = (request.family, &request);
                let key = Key::parse(&names.network, &names.container_id, &names.if_name, family);
                let key = match key {
                    Ok(key) => key,
                    Err(e) => return Some(Err(Error::new(Code::Decoding, format!("the request: {e}")))),
                };
                match op {
                    Op::Acquire => self.acquire(number, key, &request, netns).err().map(Err),
                    Op::Check => Some(self.check(&key)),
                    _ => {
                        self.release_attachment(number, &key, request.add);
                        None
                    }
                }
            }
        }
    }

    fn list(&self) -> Value {
        let describe = |lease: &ManagedLease| {
            let mut entry = lease.describe();
            if self.is_adding(&lease.key) {
                entry["adding"] = json!(true);
            }
            entry
        };
        Value::Array(self.leases.values().map(describe).collect())
    }

    fn check(&self, key: &Key) -> Result<Value> {
        let lease = self.leases.get(key).map(ManagedLease::in_use);
        let address = lease.and_then(|lease| lease.attachment.on_link.filter(|_| lease.address().is_some()));
        address.map(|net| json!({"address": net.to_string()})).ok_or_else(|| no_lease(key))
    }

    /// Code 51 if leases of at least two containers are past T2 or were lost, and no server answers any container of
    /// the network. One container proves nothing about the servers: it may have dropped its own DHCP packets, and must
    /// not be able to take its node out of service. Neither does a container without a namespace, for which no message
    /// is sent.
    fn status(&self, network: &str) -> Result<Value> {
        let all = self
            .leases
            .values()
            .filter(|lease| lease.attachment.network == network && lease.waiter == Waiter::Nobody)
            .filter(|lease| !lease.is_unreachable());
        let (served, unserved): (Vec<_>, Vec<_>) = all.partition(|lease| lease.state().is_served);
        let containers: BTreeSet<&str> =
            unserved.iter().map(|lease| &*lease.attachment.container_id).collect();
        if containers.len() < 2 || !served.is_empty() {
            return Ok(Value::Null);
        }
        let named: Vec<String> = unserved.iter().take(10).map(|lease| lease.key.describe()).collect();
        let (count, shown) = (unserved.len(), named.join(", "));
        Err(Error::new(
            Code::LimitedConnectivity,
            format!("no DHCP server extends the leases of {count} attachments: {shown}"),
        )
        .detail("`dhcp list` shows when their leases expire"))
    }

    fn acquire(&mut self, number: u64, key: Key, request: &Request, netns: Option<File>) -> Result<()> {
        let conf = Conf::try_from(AsWritten::from(request.config.clone()))?;
        let args = CniArgs::parse(&request.args).unwrap_or_default();
        let found = open(request, netns, &self.host.args.host_prefix)?;
        // The path is relative to the host's root directory, so each use prepends the prefix.
        let location = Location { netns: request.netns.clone().unwrap_or_default(), ..found.location()? };
        let parameters = match key.family {
            Family::V4 => {
                let broadcast = self.host.args.broadcast || found.link.is("ipvlan");
                LeaseParameters::V4(parameters::V4::new(&key, &conf, &args, broadcast)?)
            }
            Family::V6 => {
                enable_ipv6(&found.namespace, &found.link)?;
                LeaseParameters::V6(parameters::V6::new(
                    &key,
                    &parameters::host_id(&self.host.args.host_prefix),
                ))
            }
        };
        found.namespace.nl.set_up(&found.link)?;
        // A GC that is still running must not release the new lease.
        self.pending_answers.iter_mut().for_each(|pending| pending.stale.retain(|stale| *stale != key));
        let earlier = self.supersede(&key, &location);
        let attachment =
            LeasedAttachment::new(&request.network, &request.container_id, &request.if_name, location);
        let mut lease = ManagedLease::acquire(
            key.clone(),
            attachment,
            parameters,
            found.namespace,
            &self.host,
            (number, request.add),
        );
        lease.earlier = earlier;
        lease.needs_other_family = conf.family == Families::Both;
        self.leases.insert(key.clone(), lease);
        self.run_action(&key, ManagedLease::tick);
        Ok(())
    }

    /// Releases all leases of an attachment, or only the leases of one ADD.
    fn release_attachment(&mut self, number: u64, key: &Key, add: Option<u64>) {
        let (mut releases, mut failures) = (Vec::new(), Failures::new());
        for family in Family::ALL {
            let key = key.of(family);
            let (more, outcome) = match add {
                Some(add) => self.take_back(&key, add),
                None => self.release_key(&key),
            };
            releases.extend(more);
            failures.note(outcome);
        }
        self.answer_after(Some(number), releases, failures);
    }

    /// Releases the leases of the stale attachments.
    fn gc(&mut self, number: u64, request: &Request) {
        let parse = |(container, ifname): &(String, String), family| {
            Key::parse(&request.network, container, ifname, family).ok()
        };
        let stale = request.stale.iter().flat_map(|names| Family::ALL.map(|family| parse(names, family)));
        self.collect(number, stale.flatten().collect());
    }
}

/// Code 999: the attachment has no lease.
fn no_lease(key: &Key) -> Error {
    Error::new(Code::Internal, format!("the DHCP daemon has no lease for {}", key.describe()))
        .detail("it was released, has expired, or never existed; `dhcp list` lists the leases")
}

/// The container's interface in the namespace that came with a request.
fn open(request: &Request, netns: Option<File>, host_prefix: &Path) -> Result<OpenInterface> {
    let path = request.netns.clone().unwrap_or_default();
    let netns =
        netns.ok_or_else(|| Error::new(Code::Decoding, "the request contains no network namespace"))?;
    let netns = NetNs::of(netns, &path)?;
    let here = below(host_prefix, &path);
    let seen = NetNs::open_if_present(&here)?;
    if !seen.is_some_and(|seen| seen.is_same_as(&netns).unwrap_or_default()) {
        let text =
            format!("the DHCP daemon cannot open the container's network namespace at {}", here.display());
        return Err(Error::new(Code::InvalidEnvironment, text).detail(
            "it needs the path for each renewal: run the daemon in the host's mount namespace, or \
             set -hostprefix to the host's root directory",
        ));
    }
    let namespace = location::open(netns)?;
    let link = namespace.link(&request.if_name)?;
    Ok(OpenInterface { namespace, link })
}
