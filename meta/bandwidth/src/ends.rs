//! The two ends of what a container sends and receives, and which of them keeps which limit.

use std::path::Path;

use cni::{Attachment, Del, Error, Failures, Gc, Result};
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
    host_end: Option<Link>,
}

impl Ends {
    /// Finds them.
    ///
    /// # Errors
    /// Code 7 if a limit has no end that could keep it.
    pub fn find(conf: &Conf, netns: &Path, at: &Attachment) -> Result<Self> {
        let (host, sandbox) = (Namespace::host()?, Namespace::open(netns)?);
        let container = sandbox.link(&at.ifname)?;
        let host_end = host_end::find(&host, &sandbox, &container)?;
        if host_end.is_none() {
            refuse_without_host_end(conf, &container)?;
        }
        Ok(Self { host, sandbox, container, host_end })
    }

    /// What a link keeps to by itself: the host's end of what the container gets, and the container's, if so asked, of what it sends.
    pub fn buckets(&self, conf: &Conf) -> Vec<Bucket<'_>> {
        let ingress = self.host_end.as_ref().zip(conf.ingress).map(|end| (&self.host, end));
        let egress = conf.egress.filter(|_| conf.in_container);
        let egress = egress.map(|limit| (&self.sandbox, (&self.container, limit)));
        let all = ingress.into_iter().chain(egress);
        let latency_ms = conf.latency_ms;
        all.map(|(namespace, (link, limit))| Bucket { namespace, link, mtu: link.mtu, limit, latency_ms })
            .collect()
    }

    /// The limit of what the container sends, and the link of the host that it comes in by, if it is to go through an ifb.
    pub fn through_ifb(&self, conf: &Conf) -> Option<(Limit, &Link)> {
        conf.egress.filter(|_| !conf.in_container).zip(self.host_end.as_ref())
    }

    /// The token bucket filter of an ifb, which sends the packets that arrive at a link.
    pub fn bucket_of<'a>(&'a self, ifb: &'a Link, from: &Link, limit: Limit, conf: &Conf) -> Bucket<'a> {
        Bucket { namespace: &self.host, link: ifb, mtu: from.mtu, limit, latency_ms: conf.latency_ms }
    }
}

fn refuse_without_host_end(conf: &Conf, container: &Link) -> Result<()> {
    let kind = container.kind_name().unwrap_or("physical");
    let lost = |what: &str, key: &str, todo: &str| {
        Err(Error::config(format!(
            "{key}: cannot limit on the host what {} {what}: links of kind {kind} have no host end",
            container.name
        ))
        .detail(todo))
    };
    if conf.ingress.is_some() {
        return lost("receives", "ingressRate", "remove ingressRate and ingressBurst for this network");
    }
    if conf.egress.is_some() && !conf.in_container {
        let todo = "set \"shapeInContainer\": true to set the limit in the container; a container with \
         CAP_NET_ADMIN can remove it";
        return lost("sends", "egressRate", todo);
    }
    Ok(())
}

/// DEL: both ends send as before, and nothing leads to ifbs that are about to go.
pub fn unshape(host: &Namespace, call: &Del, ifbs: &[Link]) -> Result<()> {
    let sandbox = Namespace::open_if_present(call.netns.as_ref())?;
    let container = match &sandbox {
        Some(sandbox) => sandbox.nl.link(&call.attachment.ifname)?,
        None => None,
    };
    let mut failures = Failures::new();
    if let Some((sandbox, container)) = sandbox.as_ref().zip(container.as_ref()) {
        failures.note(bucket::remove(&sandbox.nl, container));
        if let Some(Some(end)) = failures.note(host_end::find(host, sandbox, container)) {
            failures.note(redirect::remove(host, &end, ifbs));
            failures.note(bucket::remove(&host.nl, &end));
        }
    } else if !ifbs.is_empty() {
        failures.note(redirect::remove_everywhere(host, ifbs));
    }
    failures.into_result()
}

/// The host's ends of the network's veths whose attachments are not valid any more, as far as their aliases say so.
pub fn stale(links: &[Link], call: &Gc) -> Vec<Link> {
    let loses = |(container, ifname): (&str, &str)| call.scope.loses(container, ifname);
    let owner = |link: &Link| ownership::owner(link, &call.net.name).is_some_and(loses);
    links.iter().filter(|link| link.is("veth") && owner(link)).cloned().collect()
}

/// GC: stale ends send as before. A killed ADD or DEL may have left a filter, or a place of filters, that no ifb is behind.
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
