//! What plugins ask the daemon for.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use cni::{AsWritten, CniArgs, Code, Error, Failures, Result};
use dhcp_client::State;
use dhcp_client::options::INTERFACE_MTU;
use iface::Namespace;
use netns::NetNs;
use serde_json::{Value, json};

use super::serve::Daemon;
use crate::attached::{Attached, Waits, superseded};
use crate::conf::Conf;
use crate::list;
use crate::log::log;
use crate::place::Found;
use crate::record::{Asks, Key, Place, Record, below};
use crate::wire::{Family, Op, Request};

impl Daemon {
    /// Serves a request. None: it is answered later.
    pub(super) fn request(&mut self, number: u64, line: &[u8], netns: Option<File>) -> Option<Result<Value>> {
        let request = match Request::read(line) {
            Ok(request) => request,
            Err(e) => return Some(Err(e)),
        };
        match request.op {
            Op::List => Some(Ok(self.list())),
            Op::Status => Some(self.status(&request.network)),
            Op::Gc => self.gc(number, &request),
            op => {
                let key = Key::parse(&request.network, &request.container_id, &request.if_name);
                let key = match key {
                    Ok(key) => key,
                    Err(e) => return Some(Err(Error::new(Code::Decoding, format!("the request: {e}")))),
                };
                match op {
                    Op::Check if request.family == Family::V6 => Some(self.check_v6(&key)),
                    Op::Acquire => self.acquire(number, key, &request, netns).err().map(Err),
                    Op::Check => Some(self.check(&key)),
                    _ => {
                        self.release_attachment(number, &key);
                        None
                    }
                }
            }
        }
    }

    fn list(&self) -> Value {
        Value::Array(self.attached.values().map(list::entry).chain(self.list_v6()).collect())
    }

    fn check(&self, key: &Key) -> Result<Value> {
        let one = self.attached.get(key).map(|one| one.earlier.as_deref().unwrap_or(one));
        let lease = one.and_then(|one| one.record.on_link.filter(|_| one.record.lease.is_some()));
        lease.map(|net| json!({"address": net.to_string()})).ok_or_else(|| no_lease(key))
    }

    /// Code 51 if there are containers whose lease runs out, or has, and no server answers any other container of the network: one that drops its own
    /// DHCP messages says nothing about the servers.
    fn status(&self, network: &str) -> Result<Value> {
        let suffers = |one: &&Attached| {
            one.record.network == network
                && one.waits == Waits::Nobody
                && !matches!(one.client().state(), State::Bound | State::Renewing)
        };
        let suffering = self.attached.values().filter(suffers).map(|one| one.key.to_string());
        let suffering: Vec<String> = suffering.chain(self.suffering_v6(network)).collect();
        let is_served = |one: &Attached| {
            one.record.network == network
                && one.waits == Waits::Nobody
                && matches!(one.client().state(), State::Bound | State::Renewing)
        };
        let served = self.attached.values().any(is_served) || self.is_served_v6(network);
        if suffering.is_empty() || served {
            return Ok(Value::Null);
        }
        let (count, shown) =
            (suffering.len(), suffering.iter().take(10).cloned().collect::<Vec<_>>().join(", "));
        Err(Error::new(
            Code::LimitedConnectivity,
            format!("no DHCP server extends the leases of {count} attachments: {shown}"),
        )
        .detail("`dhcp list` shows until when their addresses may be used"))
    }

    fn acquire(&mut self, number: u64, key: Key, request: &Request, netns: Option<File>) -> Result<()> {
        let conf = Conf::try_from(AsWritten::from(request.config.clone()))?;
        let args = CniArgs::parse(&request.args).unwrap_or_default();
        let found = open(request, netns, &self.host.args.host_prefix)?;
        if request.family == Family::V6 {
            return self.acquire_v6(number, key, request, found);
        }
        // Its path is the host's: it is looked for below the prefix each time.
        let place = Place { netns: request.netns.clone().unwrap_or_default(), ..found.place()? };
        let asks = Asks {
            client_id: key.client_id(),
            broadcast: self.host.args.broadcast || found.link.is("ipvlan"),
            provide: conf.provided(&args)?,
            request: conf.request.clone(),
            required: conf.required.clone(),
        };
        let mut record = Record::new(&request.network, &request.container_id, &request.if_name, place, asks);
        record.priority = conf.priority;
        record.sets_mtu = conf.request.contains(&INTERFACE_MTU);
        found.namespace.nl.set_up(&found.link)?;
        let earlier = self.supersede(&key, &record.place);
        let mut one = Attached::acquire(key.clone(), record, found.namespace, self.host.timing, number);
        one.earlier = earlier;
        self.attached.insert(key.clone(), one);
        self.with(&key, Attached::tick);
        Ok(())
    }

    /// A call that comes later ends an ADD of the same attachment that is under way. A lease for the same interface stays until the call succeeds.
    fn supersede(&mut self, key: &Key, place: &Place) -> Option<Box<Attached>> {
        let mut one = self.attached.remove(key)?;
        if let Waits::Connection(waiting) = one.waits {
            self.answer(waiting, &Err(superseded()));
        }
        if one.is_live_at(place) {
            return Some(Box::new(one));
        }
        let earlier = one.earlier.take().filter(|earlier| earlier.is_live_at(place));
        if earlier.is_none() {
            one.forget_quietly(&self.host);
        }
        earlier
    }

    /// Nobody waits for it any more. It stays as long as a server's answer still has to be waited for.
    pub(super) fn abandon(&mut self, mut one: Attached) {
        if one.earlier.is_none() && one.abandon(&self.host) {
            self.attached.insert(one.key.clone(), one);
        } else {
            self.end_acquisition(one);
        }
    }

    fn release_attachment(&mut self, number: u64, key: &Key) {
        let (mut departing, outcome_v6) = self.release_v6(key);
        let outcome = match self.attached.remove(key) {
            // A file that could not be read at the start may be left of it.
            None => self.host.store.remove::<Record>(key).map(|()| Value::Null),
            Some(one) if one.waits == Waits::Nobody => {
                let (more, outcome) = self.release(one);
                departing.extend(more);
                outcome
            }
            Some(one) => {
                if let Waits::Connection(waiting) = one.waits {
                    self.answer(waiting, &Err(superseded()));
                }
                self.abandon(one);
                // The lease of an earlier ADD is what is left.
                match self.attached.remove(key) {
                    Some(one) if one.waits == Waits::Nobody => {
                        let (more, outcome) = self.release(one);
                        departing.extend(more);
                        outcome
                    }
                    other => {
                        other.into_iter().for_each(|one| drop(self.attached.insert(key.clone(), one)));
                        Ok(Value::Null)
                    }
                }
            }
        };
        self.tell_when_left(Some(number), departing, &outcome.and(outcome_v6));
    }

    /// Gives back what of a network belongs to no valid attachment.
    fn gc(&mut self, number: u64, request: &Request) -> Option<Result<Value>> {
        let valid: BTreeSet<Key> = request
            .valid
            .iter()
            .filter_map(|(container, ifname)| Key::parse(&request.network, container, ifname).ok())
            .collect();
        let is_stale = |one: &&Attached| one.record.network == request.network && !valid.contains(&one.key);
        let stale: Vec<Key> = self.attached.values().filter(is_stale).map(|one| one.key.clone()).collect();
        let (mut failures, mut links) = (Failures::new(), Vec::new());
        for key in self.stale_v6(&request.network, &valid) {
            log(&key, "not among the valid attachments");
            let (leaving, outcome) = self.release_v6(&key);
            links.extend(leaving);
            failures.note(outcome);
        }
        for key in stale {
            let Some(one) = self.attached.remove(&key) else { continue };
            if one.waits != Waits::Nobody {
                // An ADD that is under way while the list was made is not in it.
                self.attached.insert(key, one);
                continue;
            }
            log(&key, "not among the valid attachments");
            let (leaving, outcome) = self.release(one);
            links.extend(leaving);
            failures.note(outcome);
        }
        self.tell_when_left(Some(number), links, &failures.into_result().map(|()| Value::Null));
        None
    }
}

/// Code 999: an attachment has no lease.
pub(super) fn no_lease(about: impl std::fmt::Display) -> Error {
    Error::new(Code::Internal, format!("the DHCP daemon has no lease for {about}"))
        .detail("it was released, has expired, or the daemon never had it; `dhcp list` shows what it has")
}

/// The container's interface, by the namespace that came with a request.
fn open(request: &Request, netns: Option<File>, host_prefix: &Path) -> Result<Found> {
    let path = request.netns.clone().unwrap_or_default();
    let netns = netns.ok_or_else(|| Error::new(Code::Decoding, "the request: no namespace came with it"))?;
    let netns = NetNs::of(netns, &path)?;
    let here = below(host_prefix, &path);
    let seen = NetNs::open_if_present(&here)?;
    if !seen.is_some_and(|seen| seen.is_same_as(&netns).unwrap_or_default()) {
        let text = format!("the DHCP daemon does not find the container's namespace at {}", here.display());
        return Err(Error::new(Code::InvalidEnvironment, text)
            .detail("it has to find it there for each renewal: it must run in the host's mount namespace, or see its root directory below -hostprefix"));
    }
    let namespace = Namespace::of(netns)?;
    let link = namespace.link(&request.if_name)?;
    Ok(Found { namespace, link })
}
