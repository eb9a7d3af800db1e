//! The two ends of a container's traffic, and which limit applies where.

use std::ops::RangeInclusive;
use std::path::Path;

use cni::{AddResult, Attachment, Del, Error, Failures, Gc, Result};
use iface::conf::MTUS;
use iface::{Namespace, host_end, ownership};
use netlink::Link;

use crate::bucket::{self, Bucket};
use crate::conf::Conf;
use crate::limit::Limit;
use crate::redirect;

/// Both ends.
#[derive(Debug)]
pub struct Ends {
    /// The host's namespace.
    pub host: Namespace,
    sandbox: Namespace,
    container: Link,
    /// The host's end, if the container's interface is a veth.
    pub host_end: Option<Link>,
    /// The MTUs of both ends, now and in the result: a later plugin may have changed one. Without the host's end, a later plugin may have
    /// changed all, so these are all that a link can have.
    mtus: Vec<RangeInclusive<u32>>,
}

impl Ends {
    /// Finds both ends for an ADD.
    ///
    /// # Errors
    /// Code 4 if the container's interface does not exist. Code 7 if a limit applies to no link.
    pub fn of_chain(conf: &Conf, netns: &Path, at: &Attachment, result: &AddResult) -> Result<Self> {
        let sandbox = Namespace::open(netns)?;
        let container = sandbox.chained_interface(&at.ifname)?;
        Self::of(conf, sandbox, container, result)
    }

    /// Finds both ends again.
    ///
    /// # Errors
    /// Code 7 if a limit applies to no link.
    pub fn find(conf: &Conf, netns: &Path, at: &Attachment, result: &AddResult) -> Result<Self> {
        let sandbox = Namespace::open(netns)?;
        let container = sandbox.link(&at.ifname)?;
        Self::of(conf, sandbox, container, result)
    }

    fn of(conf: &Conf, sandbox: Namespace, container: Link, result: &AddResult) -> Result<Self> {
        let host = Namespace::host()?;
        let host_end = host_end::find(&host, &sandbox, &container)?;
        if host_end.is_none() {
            refuse_without_host_end(conf, &container)?;
        }
        let mut mtus = if host_end.is_some() { vec![] } else { vec![MTUS] };
        for end in host_end.iter().chain([&container]) {
            let listed = result.interfaces.iter().filter(|interface| interface.name == end.name);
            let listed = listed.filter_map(|interface| interface.mtu);
            mtus.extend(listed.chain([end.mtu]).map(|mtu| mtu..=mtu));
        }
        Ok(Self { host, sandbox, container, host_end, mtus })
    }

    /// Limits of the links themselves: ingress on the host's end and, if configured, egress in the container.
    pub fn buckets(&self, conf: &Conf) -> Vec<Bucket<'_>> {
        let ingress = self.host_end.as_ref().zip(conf.ingress).map(|end| (&self.host, end));
        let egress = conf.egress.filter(|_| conf.in_container);
        let egress = egress.map(|limit| (&self.sandbox, (&self.container, limit)));
        let all = ingress.into_iter().chain(egress);
        all.map(|(namespace, (link, limit))| self.bucket(namespace, link, link, limit, conf)).collect()
    }

    /// The egress limit on the host, and the link that receives the container's traffic. `None` without an ifb.
    pub fn through_ifb(&self, conf: &Conf) -> Option<(Limit, &Link)> {
        conf.egress.filter(|_| !conf.in_container).zip(self.host_end.as_ref())
    }

    /// The limit of an ifb that sends traffic received by `from`.
    pub fn bucket_of<'a>(&'a self, ifb: &'a Link, from: &Link, limit: Limit, conf: &Conf) -> Bucket<'a> {
        self.bucket(&self.host, ifb, from, limit, conf)
    }

    fn bucket<'a>(
        &'a self,
        namespace: &'a Namespace,
        link: &'a Link,
        from: &Link,
        limit: Limit,
        conf: &Conf,
    ) -> Bucket<'a> {
        let (mtu, latency_ms) = (from.mtu, conf.latency_ms);
        Bucket { namespace, link, mtu, earlier_mtus: &self.mtus, limit, latency_ms }
    }
}

fn refuse_without_host_end(conf: &Conf, container: &Link) -> Result<()> {
    let kind = container.kind_name().unwrap_or("physical");
    let refuse = |what: &str, key: &str, todo: &str| {
        Err(Error::config(format!(
            "{key}: cannot limit {what} {} on the host: interfaces of kind {kind} have no end on the host",
            container.name
        ))
        .detail(todo))
    };
    if conf.ingress.is_some() {
        return refuse("traffic to", "ingressRate", "remove ingressRate and ingressBurst for this network");
    }
    if conf.egress.is_some() && !conf.in_container {
        let todo = "set \"shapeInContainer\": true to set the limit in the container; a container with \
         CAP_NET_ADMIN can remove it";
        return refuse("traffic from", "egressRate", todo);
    }
    Ok(())
}

/// DEL: removes the limits of both ends, and filters that lead to `ifbs`.
pub fn unshape(host: &Namespace, call: &Del, ifbs: &[Link]) -> Result<()> {
    let sandbox = Namespace::open_if_present(call.netns.as_ref())?;
    let container = match &sandbox {
        Some(sandbox) => sandbox.nl.link(&call.attachment.ifname)?,
        None => None,
    };
    let mut failures = Failures::new();
    if let Some((sandbox, container)) = sandbox.as_ref().zip(container.as_ref()) {
        let end = host_end::find(host, sandbox, container)?;
        let is_foreign = |link: &Link| ownership::is_of_another(&call.net.name, &call.attachment, link);
        if is_foreign(container) || end.as_ref().is_some_and(is_foreign) {
            return redirect::remove_everywhere(host, &made_here(call, ifbs));
        }
        failures.note(bucket::remove(&sandbox.nl, container));
        if let Some(end) = end {
            failures.note(redirect::remove(host, &end, ifbs));
            failures.note(bucket::remove(&host.nl, &end));
        }
    } else {
        let own = made_here(call, ifbs);
        failures.note(redirect::remove_everywhere(host, if own.is_empty() { ifbs } else { &own }));
    }
    failures.into_result()
}

/// The ifbs that Ferrule has created. The reference's ifb, which has no alias, may be another interface's of the container.
fn made_here(call: &Del, ifbs: &[Link]) -> Vec<Link> {
    ifbs.iter().filter(|ifb| ownership::is_of(&call.net.name, ifb)).cloned().collect()
}

/// Host ends of the network's veths whose attachments are not valid, according to their aliases.
pub fn stale(links: &[Link], call: &Gc) -> Vec<Link> {
    let loses = |(container, ifname): (&str, &str)| call.scope.loses(container, ifname);
    let owner = |link: &Link| ownership::owner(link, &call.net.name).is_some_and(loses);
    links.iter().filter(|link| link.is("veth") && owner(link)).cloned().collect()
}

/// GC: removes the limits of stale ends. A killed ADD or DEL may have left a filter, or clsact, without an ifb.
pub fn unshape_stale(host: &Namespace, call: &Gc, ends: &[Link], ifbs: &[Link]) -> Result<()> {
    let mut failures = Failures::new();
    for end in ends {
        let owner = |link| ownership::owner(link, &call.net.name);
        let own: Vec<_> = ifbs.iter().filter(|ifb| owner(ifb) == owner(end)).cloned().collect();
        failures.note(redirect::remove(host, end, &own));
        failures.note(bucket::remove(&host.nl, end));
    }
    failures.into_result()
}
