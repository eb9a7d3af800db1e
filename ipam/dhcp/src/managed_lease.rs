//! The lifecycle of one lease: from ADD, through renewals, to its release. It is the same for both families.

use std::time::Duration;

use cni::{AddResult, Code, Error, Result};
use dhcp_client::{Random, Time};
use iface::Namespace;
use netlink::{Address, LinkChange, uapi};
use serde_json::{Value, json};

use crate::host::Host;
use crate::key::{Family, Key};
use crate::lease_client::{Action, LeaseClient, Message, PACKETS_PER_TURN, PendingRelease, State};
use crate::location::{self, InterfaceError, OpenInterface, has, is_shortage};
use crate::log::log;
use crate::parameters::LeaseParameters;
use crate::record::{LeasedAttachment, Location, Record};
use crate::{v4, v6};

/// How long after the start of a lease the plugin may take to put the address on the link.
pub const ASSIGNMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval between two looks at the link. Events of the kernel would save these looks, but a socket for events keeps
/// the namespace alive.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// How long the link may take until it can send. Duplicate address detection takes one second by default, after a
/// random delay of up to one second.
const LINK_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between two attempts to release a lease.
const RELEASE_INTERVAL: Duration = Duration::from_secs(10);

/// Reason for the release of a lease: the ADD that requested it failed or was killed.
const UNUSED: &str = "no plugin has assigned the address to the interface";

/// An attachment that has a lease of one family, or requests one.
#[derive(Debug)]
pub struct ManagedLease {
    pub key: Key,
    pub attachment: LeasedAttachment,
    client: Box<dyn LeaseClient>,
    /// The container, until the first lease exists. Later its namespace is opened for each exchange, so that the daemon
    /// does not keep it alive.
    namespace: Option<Namespace>,
    /// The plugin that waits for the first lease.
    pub waiter: Waiter,
    /// The random number of the ADD that requested the lease. None: the lease is from a record, or the plugin sent no
    /// number.
    add_number: Option<u64>,
    /// The lease of an earlier ADD for the same interface. If this ADD gets no lease, `earlier` is restored. It is kept
    /// until the first renewal of the new lease after its address was on the link: if the plugin's ADD fails after the
    /// daemon's answer, `take_back` restores it.
    pub earlier: Option<Box<Self>>,
    /// The ADD also requests a lease of the other family. The plugin puts the addresses on the link after it has both.
    pub needs_other_family: bool,
    /// A message that waits until the link can send it, and since when.
    unsent: Option<(Message, Time)>,
    /// Until when the daemon waits for the address to appear on the link, to set its lifetimes.
    lifetimes_due_until: Option<Time>,
    /// A change of the link that is being made, or has failed and is tried again.
    link_task: Option<LinkTask>,
    /// When the link is looked at next for `unsent`, `link_task` and `lifetimes_due_until`, and the interval.
    next_check: Option<(Time, Duration)>,
    /// The address in the answer to the plugin. With both families, the plugin adds it after it also has the other lease.
    delivered: Option<ipnetwork::IpNetwork>,
    /// The time at which the lease is released if the address has never been on the link: the plugin may have been killed,
    /// or an earlier daemon may have exited before it answered the plugin.
    release_unless_used_by: Option<Time>,
    /// The interface could not be opened at the last attempt, so no message was sent.
    is_unreachable: bool,
}

/// A lease that could not be released, and the reason.
pub type ReleaseError = (Box<ManagedLease>, Error);

/// A change of the link. It can fail for a while, for example without free descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkTask {
    /// Compare an earlier daemon's record with the link.
    Compare,
    /// Apply a renewed lease, if the link differs from it. Otherwise the kernel deletes the address at the end of the old
    /// lease.
    Update,
    /// Put the lease's address and routes on the link.
    Put,
    /// Remove the address of a lost lease. Otherwise it stays until the end of that lease.
    Remove,
}

/// The plugin that waits for the first lease of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiter {
    /// No plugin waits.
    Nobody,
    /// The plugin on this connection.
    Connection(u64),
    /// The plugin has closed its connection. If a server has allocated an address, it must be released.
    Cancelled,
}

/// Result of the client's actions.
#[derive(Debug)]
pub enum Outcome {
    /// The attachment continues; there is nothing to report.
    Unchanged,
    /// The first lease.
    First(AddResult),
    /// There is no lease, or no interface uses it. If a server has allocated an address, it must be released.
    Failed(Error),
    /// The container or its interface has been deleted.
    Deleted(String),
}

impl ManagedLease {
    /// Requests a first lease, in an open container.
    pub fn acquire(
        key: Key,
        attachment: LeasedAttachment,
        parameters: LeaseParameters,
        namespace: Namespace,
        host: &Host,
        (connection, add_number): (u64, Option<u64>),
    ) -> Self {
        let client = acquire(parameters, &attachment, host);
        let waiter = Waiter::Connection(connection);
        Self { namespace: Some(namespace), waiter, add_number, ..Self::new(key, attachment, client) }
    }

    /// Continues with the lease of a record, or requests a new one if it was lost.
    pub fn from_record(key: Key, record: Record, host: &Host) -> Self {
        let Record { attachment, parameters, .. } = record;
        let client = resume(parameters, &attachment, host);
        Self::new(key, attachment, client)
    }

    fn new(key: Key, attachment: LeasedAttachment, client: Box<dyn LeaseClient>) -> Self {
        Self {
            key,
            attachment,
            client,
            waiter: Waiter::Nobody,
            namespace: None,
            add_number: None,
            earlier: None,
            needs_other_family: false,
            unsent: None,
            link_task: None,
            lifetimes_due_until: None,
            next_check: None,
            delivered: None,
            release_unless_used_by: None,
            is_unreachable: false,
        }
    }

    /// Compares an earlier daemon's record with the interface. Puts the address on the link if the daemon has to, and
    /// schedules the check of its lifetimes.
    ///
    /// # Errors
    /// The interface cannot be used, or the lease is not in use. A failure of the kernel is tried again later.
    pub fn compare_with_link(&mut self, host: &Host) -> Result<(), InterfaceError> {
        self.begin(LinkTask::Compare);
        let found = self.open_interface(host);
        let compared = found.and_then(|found| self.compare(host, &found));
        let is_retried = matches!(compared, Err(InterfaceError::Failed(_)));
        self.link_task = self.link_task.filter(|task| *task != LinkTask::Compare || is_retried);
        compared
    }

    fn compare(&mut self, host: &Host, found: &OpenInterface) -> Result<(), InterfaceError> {
        let (Some(address), Some(since)) = (self.client.address(), self.client.since()) else {
            // Without a lease: it was lost, or `-adopt` has made the record, which is not on disk yet.
            return Ok(self.write(host)?);
        };
        if self.is_removed(found)? {
            return self.keep_removed(host, found);
        }
        if self.attachment.on_link != Some(address) {
            // The earlier daemon exited while it put the address on the link.
            return self.put_on_link(host, found);
        }
        let addresses = found.namespace.nl.addresses(Some(&found.link))?;
        let (now, is_there) = (Time::now(), has(&addresses, address.ip()));
        match (is_there, self.attachment.seen) {
            // The kernel deletes IPv6 addresses when the link is set down, so the daemon adds the address again.
            // `put_on_link` does not change an address that exists.
            (_, true) if address.is_ipv6() => return self.put_on_link(host, found),
            // The earlier daemon exited before it had applied a renewal.
            (true, _) if self.client.is_outdated(Some(address)) => return self.put_on_link(host, found),
            (true, _) => {}
            // The kernel has deleted the address. The client requests another one.
            (false, true) if self.client.may_have_ended(now) => {}
            (false, true) => return self.keep_removed(host, found),
            (false, false) if now >= since + ASSIGNMENT_TIMEOUT => {
                return Err(InterfaceError::Unused(UNUSED.to_owned()));
            }
            (false, false) => self.release_unless_used_by = Some(since + ASSIGNMENT_TIMEOUT),
        }
        self.schedule_address_check(now);
        Ok(())
    }

    /// The lease that the container uses: the earlier ADD's lease until this ADD has its own.
    pub fn in_use(&self) -> &Self {
        self.earlier.as_deref().filter(|_| self.waiter != Waiter::Nobody).unwrap_or(self)
    }

    /// Whether the ADD with this number requested the lease. Always false for a lease without a number.
    pub fn is_of(&self, add_number: u64) -> bool {
        self.add_number == Some(add_number)
    }

    /// The address that an ADD has got from this lease and may not use any more, because the lease was lost while the
    /// ADD waited for its other lease.
    pub fn lost_for(&self, other: &Self) -> Option<ipnetwork::IpNetwork> {
        let is_same_add = self.add_number.is_some() && self.add_number == other.add_number;
        self.delivered.filter(|delivered| is_same_add && self.address() != Some(*delivered))
    }

    /// The earlier ADD's lease, if it has another address. If both have the same address, the newer lease stays.
    pub fn take_other_earlier(&mut self) -> Option<Self> {
        self.add_number = None;
        self.earlier.take().filter(|earlier| earlier.address() != self.address()).map(|earlier| *earlier)
    }

    /// Whether an ADD at this location is a second ADD for the interface of this lease.
    pub fn is_live_at(&self, location: &Location) -> bool {
        self.waiter == Waiter::Nobody
            && self.address().is_some()
            && self.attachment.location.is_same_link(location)
    }

    /// Whether no message could be sent, because the interface could not be opened. The state then proves nothing about
    /// servers.
    pub fn is_unreachable(&self) -> bool {
        self.is_unreachable
    }

    /// The lease's address.
    pub fn address(&self) -> Option<ipnetwork::IpNetwork> {
        self.client.address()
    }

    /// The client's state.
    pub fn state(&self) -> State {
        self.client.state()
    }

    /// The client and its socket.
    pub fn client(&self) -> &dyn LeaseClient {
        &*self.client
    }

    /// The entry in `dhcp list`. Times are in seconds from now.
    pub fn describe(&self) -> Value {
        let mut entry = json!({
            "network": self.attachment.network,
            "containerId": self.attachment.container_id,
            "ifName": self.attachment.if_name,
            "netns": self.attachment.location.netns,
            "state": self.state().name,
        });
        if let Some(address) = self.address() {
            entry["address"] = json!(address.to_string());
        }
        self.client.describe(&mut entry);
        entry
    }

    /// The plugin no longer waits. Returns true while a server may still answer: then the address in the answer is released.
    pub fn cancel(&mut self) -> bool {
        (self.waiter, self.unsent) = (Waiter::Cancelled, None);
        self.client.cancel(Time::now());
        self.state().may_be_granted
    }

    /// When [`ManagedLease::tick`] has to be called next.
    pub fn deadline(&self) -> Option<Time> {
        let next_check = self.next_check.map(|(moment, _)| moment);
        if self.attachment.releasing {
            return next_check;
        }
        [self.client.deadline(), next_check, self.release_unless_used_by].into_iter().flatten().min()
    }

    /// Does all that is due.
    pub fn tick(&mut self, host: &Host) -> Outcome {
        let now = Time::now();
        if self.attachment.releasing {
            let text = "its release failed, and is tried again";
            return Outcome::Failed(Error::new(Code::TryAgainLater, text));
        }
        let link_check = match self.next_check {
            Some((moment, _)) if moment <= now => self.check_link(host, now),
            _ => Ok(()),
        };
        let use_check = match self.release_unless_used_by {
            Some(moment) if moment <= now => self.check_use(host),
            _ => Ok(()),
        };
        if let Err(error) = link_check.and(use_check) {
            match self.outcome_of(error) {
                Outcome::Unchanged => {}
                other => return other,
            }
        }
        let actions = self.client.tick(now, self.attachment.seen && !self.attachment.removed);
        self.act(host, actions)
    }

    /// Processes the received packets.
    pub fn receive(&mut self, host: &Host) -> Outcome {
        for _ in 0..PACKETS_PER_TURN {
            match self.client.receive(Time::now()) {
                Ok(Some(actions)) => match self.act(host, actions) {
                    Outcome::Unchanged => {}
                    other => return other,
                },
                Ok(None) => break,
                // The interface is down or has been deleted. The next message finds out which.
                Err(_) => self.client.close(host),
            }
        }
        Outcome::Unchanged
    }

    fn act(&mut self, host: &Host, actions: Vec<Action>) -> Outcome {
        let has_failed = actions.iter().any(|action| matches!(action, Action::Failed(_)));
        // If the plugin has exited and no server can grant an address any more, the request ends.
        let may_get_lease = self.state().may_be_granted || self.address().is_some() || has_failed;
        if self.waiter == Waiter::Cancelled && !may_get_lease {
            return Outcome::Failed(Error::new(Code::TryAgainLater, "the plugin no longer waits for it"));
        }
        let mut outcome = Outcome::Unchanged;
        // If this ADD fails, its client must not release the earlier ADD's address.
        let is_silent = match self.waiter {
            // A cancelled request sends only messages that release an address.
            Waiter::Cancelled => !self.state().is_releasing,
            _ => has_failed && self.earlier.is_some(),
        };
        for action in actions {
            let done = match action {
                Action::Send(_) if is_silent => Ok(Outcome::Unchanged),
                Action::Send(message) => self.send(host, message).map(|()| Outcome::Unchanged),
                Action::Bound(line) => self.bound(host, &line),
                Action::Lost(why) => self.lost(host, &why).map(|()| Outcome::Unchanged),
                Action::Failed(error) => Ok(Outcome::Failed(error)),
            };
            match done.unwrap_or_else(|error| self.outcome_of(error)) {
                Outcome::Unchanged => {}
                other => outcome = other,
            }
            if matches!(outcome, Outcome::Deleted(_)) {
                break;
            }
        }
        self.client.close_idle(host, Time::now());
        outcome
    }

    fn outcome_of(&self, error: InterfaceError) -> Outcome {
        match error {
            InterfaceError::Deleted(what) => Outcome::Deleted(what),
            // The address is missing because the link could not be updated. The container needs the lease.
            InterfaceError::Unused(what) if self.link_task.is_some() => self.log_unchanged(&what),
            InterfaceError::Unused(what) => Outcome::Failed(Error::new(Code::Internal, what)),
            // Treated as a lost message, as long as there is a lease.
            InterfaceError::PathMissing(what) if self.address().is_some() => self.log_unchanged(&what),
            InterfaceError::PathMissing(what) => Outcome::Deleted(what),
            InterfaceError::Failed(e) if self.waiter != Waiter::Nobody => Outcome::Failed(e),
            InterfaceError::Failed(e) => self.log_unchanged(&e.to_string()),
        }
    }

    fn log_unchanged(&self, what: &str) -> Outcome {
        log(&self.key, what);
        Outcome::Unchanged
    }

    fn open_interface(&mut self, host: &Host) -> Result<OpenInterface, InterfaceError> {
        let opened = self.try_open_interface(host);
        self.is_unreachable = opened.is_err();
        opened
    }

    fn try_open_interface(&self, host: &Host) -> Result<OpenInterface, InterfaceError> {
        let LeasedAttachment { location, if_name, .. } = &self.attachment;
        let Some(namespace) = self.namespace.clone() else {
            return location::find(location, if_name, &host.args.host_prefix);
        };
        match namespace.nl.link(if_name)? {
            Some(link) => Ok(OpenInterface { namespace, link }),
            None => Err(InterfaceError::Deleted(format!("link {if_name} in {namespace} has been deleted"))),
        }
    }

    /// Opens the interface, and sets its link up. An address without a lease is removed before: the reference's daemon sets
    /// the link down when a lease ends, and keeps the address, which another host may have since. An address that is being
    /// released is removed too.
    fn open_to_send(&mut self, host: &Host) -> Result<OpenInterface, InterfaceError> {
        let mut found = self.open_interface(host)?;
        if !found.link.up {
            let is_unusable = self.attachment.releasing || self.address().is_none();
            if let Some(address) = self.attachment.on_link.filter(|_| is_unusable) {
                match found.namespace.nl.delete_address(&found.link, address) {
                    Ok(()) => log(
                        &self.key,
                        &format!("removed {address} from {}: the link was down", found.link.name),
                    ),
                    // The container's owner must not be able to prevent a release.
                    Err(e) if self.attachment.releasing => {
                        log(&self.key, &e.to_string());
                        found = self.open_interface(host)?;
                    }
                    Err(e) => return Err(e.into()),
                }
            }
            found.namespace.nl.set_up(&found.link)?;
        }
        Ok(found)
    }

    fn send(&mut self, host: &Host, message: Message) -> Result<(), InterfaceError> {
        // The timeout starts with the first message that the link could not send.
        let since = self.unsent.take().map_or_else(Time::now, |(_, since)| since);
        self.send_since(host, message, since)
    }

    /// Sends a message if the link is ready. Otherwise it is tried again soon.
    fn send_since(&mut self, host: &Host, message: Message, since: Time) -> Result<(), InterfaceError> {
        if self.client.needs_socket(&message) {
            let found = self.open_to_send(host)?;
            match self.client.open(host, &mut self.attachment, &found, &message) {
                Ok(true) => {}
                Ok(false) => return self.wait_for_link(&found, message, since),
                // If the link could not be updated, the kernel may have removed the address.
                Err(InterfaceError::Unused(_)) if self.attachment.seen && self.link_task.is_none() => {
                    return self.keep_removed(host, &found);
                }
                Err(e) => return Err(e),
            }
        }
        if let Err(e) = self.client.send(&self.attachment, message) {
            // Treated as a lost message. The socket is opened again for the next one.
            self.client.close(host);
            log(&self.key, &e.to_string());
        }
        Ok(())
    }

    fn wait_for_link(
        &mut self,
        found: &OpenInterface,
        message: Message,
        since: Time,
    ) -> Result<(), InterfaceError> {
        let now = Time::now();
        if now.since(since) < LINK_TIMEOUT {
            self.unsent = Some((message, since));
            self.next_check = Some((now + CHECK_INTERVAL, CHECK_INTERVAL));
            return Ok(());
        }
        let text = format!(
            "link {} in {} has no usable link-local address (fe80::/10)",
            found.link.name, found.namespace
        );
        Err(Error::new(Code::TryAgainLater, text)
            .detail(
                "DHCPv6 needs it: check that the link is up, that \
         IPv6 is enabled on it, and that no other host has its address",
            )
            .into())
    }

    /// Sends the message that waits for the link, changes the link, and sets pending lifetimes.
    fn check_link(&mut self, host: &Host, now: Time) -> Result<(), InterfaceError> {
        let Some((_, gap)) = self.next_check.take() else { return Ok(()) };
        let send_result = match self.unsent.take() {
            Some((message, since)) => self.send_since(host, message, since),
            None => Ok(()),
        };
        let task_result = self.do_link_task(host);
        let lifetimes_result = match self.link_task {
            Some(_) => Ok(()),
            None => self.set_pending_lifetimes(host, now),
        };
        // A failure is retried too: without lifetimes, the address would stay after the end of the lease.
        let gap = gap * 2;
        let later = Some((now + gap, gap));
        if self.link_task.is_some() && self.unsent.is_none() {
            self.next_check = later;
        } else if self.link_task.is_some() || self.lifetimes_due_until.is_some() {
            self.next_check = self.next_check.or(later);
        }
        send_result.and(task_result).and(lifetimes_result)
    }

    /// Starts a change of the link. If it fails, `check_link` tries again.
    fn begin(&mut self, task: LinkTask) {
        self.link_task = Some(task);
        self.next_check = Some((Time::now() + CHECK_INTERVAL, CHECK_INTERVAL));
    }

    /// Does `link_task`, and clears it if it succeeds.
    fn do_link_task(&mut self, host: &Host) -> Result<(), InterfaceError> {
        match self.link_task {
            None => Ok(()),
            Some(LinkTask::Compare) => self.compare_with_link(host),
            Some(LinkTask::Update) => self.update_link(host),
            Some(LinkTask::Put) => {
                let found = self.open_interface(host)?;
                self.put_on_link(host, &found)
            }
            Some(LinkTask::Remove) => self.remove_from_link(host),
        }
    }

    /// Sets the lifetimes of the address if they are pending and the address is on the link.
    fn set_pending_lifetimes(&mut self, host: &Host, now: Time) -> Result<(), InterfaceError> {
        let Some(until) = self.lifetimes_due_until else { return Ok(()) };
        if now >= until {
            self.lifetimes_due_until = None;
        }
        let found = self.open_interface(host)?;
        if self.settle_address(host, &found)? {
            self.lifetimes_due_until = None;
        }
        Ok(())
    }

    /// Schedules checks of the link until the address is on it, to set its lifetimes.
    fn schedule_address_check(&mut self, now: Time) {
        // With both families, the plugin adds the IPv4 address after it has the IPv6 lease too. At T1, the daemon looks at
        // the link again.
        self.lifetimes_due_until = self.client.deadline().max(Some(now + ASSIGNMENT_TIMEOUT));
        self.next_check = Some((now + CHECK_INTERVAL, CHECK_INTERVAL));
    }

    /// Sets the lifetimes of the address if it is on the link, or declines the lease if the kernel found another host
    /// with the address. Returns whether nothing is left to do.
    fn settle_address(&mut self, host: &Host, found: &OpenInterface) -> Result<bool, InterfaceError> {
        let Some(address) = self.address() else { return Ok(true) };
        let addresses = found.namespace.nl.addresses(Some(&found.link))?;
        let ours = addresses.into_iter().find(|on_link| on_link.net.ip() == address.ip());
        if ours.is_some() {
            self.note_seen(host)?;
        }
        let Some(ours) = ours.filter(|ours| !ours.tentative || ours.duplicate) else { return Ok(false) };
        if ours.duplicate {
            self.client.decline(Time::now());
            self.lost(host, "another host has it")?;
        } else {
            self.set_lifetimes(found, ours)?;
        }
        Ok(true)
    }

    /// Sets the address's lifetimes, so that the kernel deletes it when the lease ends, even if no daemon runs. The
    /// kernel counts whole seconds: it deletes the address within the lease's last second.
    fn set_lifetimes(&self, found: &OpenInterface, mut address: Address) -> Result<()> {
        let now = Time::now();
        let left = |end: Option<Time>| {
            end.map(|end| u32::try_from(end.after(now).as_secs()).unwrap_or(u32::MAX - 1))
        };
        let lifetimes = self.client.ends().map(left);
        // Limited lifetimes count down, so they are always set.
        if lifetimes == [None; 2] && [address.preferred, address.valid] == lifetimes {
            return Ok(());
        }
        [address.preferred, address.valid] = lifetimes;
        if address.net.is_ipv6() {
            // A route to the address itself is useless, and kernels let it expire at the wrong time when lifetimes
            // change.
            address.flags |= uapi::IFA_F_NOPREFIXROUTE;
        }
        Ok(found.namespace.nl.set_lifetimes(&found.link, &address)?)
    }

    /// Records that the address was on the link.
    fn note_seen(&mut self, host: &Host) -> Result<(), InterfaceError> {
        self.release_unless_used_by = None;
        if !std::mem::replace(&mut self.attachment.seen, true) {
            self.write(host)?;
        }
        Ok(())
    }

    /// Checks at `release_unless_used_by` that the address is on the link.
    fn check_use(&mut self, host: &Host) -> Result<(), InterfaceError> {
        // After a failure of the kernel, or while the link is being changed, the check is repeated.
        self.release_unless_used_by = Some(Time::now() + ASSIGNMENT_TIMEOUT);
        let (found, address) = (self.open_interface(host)?, self.address());
        let addresses = found.namespace.nl.addresses(Some(&found.link))?;
        match address.is_none_or(|address| has(&addresses, address.ip())) {
            true => self.note_seen(host),
            false => Err(InterfaceError::Unused(UNUSED.to_owned())),
        }
    }

    /// When to check that the address of a new lease is on the link. With both families, the ADD may wait for the other
    /// lease. With one, an earlier ADD's lease is restored before it ends: it is not renewed meanwhile.
    fn use_check_due(&self, host: &Host, now: Time) -> Time {
        let longest = now + host.timing.resend_timeout + ASSIGNMENT_TIMEOUT;
        let earlier = self.earlier.as_ref().filter(|_| !self.needs_other_family);
        let renewal = earlier.and_then(|earlier| earlier.deadline());
        renewal.map_or(longest, |renewal| renewal.max(now + ASSIGNMENT_TIMEOUT).min(longest))
    }

    /// Writes the record.
    ///
    /// # Errors
    /// Code 5 if the record cannot be written.
    pub fn write(&self, host: &Host) -> Result<()> {
        host.store.write(&self.key, &Record::new(self.attachment.clone(), self.client.parameters()))
    }

    /// Handles a new or renewed lease. The plugin puts the address of the first lease on the link, the daemon that of
    /// later leases.
    fn bound(&mut self, host: &Host, line: &str) -> Result<Outcome, InterfaceError> {
        log(&self.key, line);
        if self.waiter != Waiter::Nobody {
            let found = self.open_interface(host)?;
            self.attachment.on_link = self.address();
            let missing = self.client.take_first(&self.attachment, &found)?;
            missing.iter().for_each(|line| log(&self.key, line));
            self.write(host)?;
            self.namespace = None;
            self.delivered = self.address();
            let now = Time::now();
            self.schedule_address_check(now);
            self.release_unless_used_by = Some(self.use_check_due(host, now));
            return Ok(Outcome::First(self.client.result()));
        }
        self.earlier.take_if(|_| self.attachment.seen);
        // The link is updated even if the record could not be written, for example on a full disk: the kernel deletes
        // an address whose lifetime is not extended.
        let write_result = self.write(host);
        self.begin(self.link_task.filter(|task| *task == LinkTask::Put).unwrap_or(LinkTask::Update));
        self.do_link_task(host)?;
        Ok(write_result.map(|()| Outcome::Unchanged)?)
    }

    /// Whether another program has removed the address from the link, and has not added it again.
    fn is_removed(&mut self, found: &OpenInterface) -> Result<bool, InterfaceError> {
        if self.attachment.removed {
            let addresses = found.namespace.nl.addresses(Some(&found.link))?;
            let is_there = |address: ipnetwork::IpNetwork| has(&addresses, address.ip());
            self.attachment.removed = !self.attachment.on_link.is_some_and(is_there);
        }
        Ok(self.attachment.removed)
    }

    /// Another program has removed the address from the link. A machine behind the link may use it: KubeVirt's bridge
    /// binding moves the address of a pod into its virtual machine. So the lease is renewed, but never put on the link.
    ///
    /// # Errors
    /// The lease has another address, which nothing uses.
    fn keep_removed(&mut self, host: &Host, found: &OpenInterface) -> Result<(), InterfaceError> {
        self.link_task = None;
        let (address, removed, link) = (self.address(), self.attachment.on_link, &found.link.name);
        let text = |net: Option<ipnetwork::IpNetwork>| net.map(|net| net.to_string()).unwrap_or_default();
        if address.map(|net| net.ip()) != removed.map(|net| net.ip()) {
            let (address, removed) = (text(address), text(removed));
            let why = format!("{address} is not used: its predecessor {removed} was removed from {link}");
            return Err(InterfaceError::Unused(why));
        }
        self.client.note_removed();
        if !std::mem::replace(&mut self.attachment.removed, true) {
            let address = text(removed);
            let line = format!(
                "another program removed {address} from {link}: its lease is renewed until a DEL, and the address is not put back"
            );
            log(&self.key, &line);
            self.write(host)?;
        }
        Ok(())
    }

    /// Applies the lease to the link.
    fn update_link(&mut self, host: &Host) -> Result<(), InterfaceError> {
        let found = self.open_interface(host)?;
        if self.is_removed(&found)? {
            return self.keep_removed(host, &found);
        }
        let addresses = found.namespace.nl.addresses(Some(&found.link))?;
        let is_missing = self.address().is_some_and(|address| !has(&addresses, address.ip()));
        // The plugin is about to put it on the link.
        let plugin_adds_it = is_missing && !self.attachment.seen && self.attachment.on_link == self.address();
        if !plugin_adds_it && (is_missing || self.client.is_outdated(self.attachment.on_link)) {
            return self.put_on_link(host, &found);
        }
        if !plugin_adds_it {
            self.client.note_applied();
        }
        self.link_task = None;
        self.schedule_address_check(Time::now());
        Ok(())
    }

    /// Replaces the link's old address by the lease's. After the end of the lease, another host may have its address. The
    /// client is then about to report the loss of the lease.
    fn put_on_link(&mut self, host: &Host, found: &OpenInterface) -> Result<(), InterfaceError> {
        if self.client.may_have_ended(Time::now()) {
            return self.note_address(found);
        }
        self.link_task = Some(LinkTask::Put);
        self.schedule_address_check(Time::now());
        self.release_unless_used_by = None;
        let was_outdated = self.client.is_outdated(self.attachment.on_link);
        let result = self.client.put_on_link(self.attachment.on_link, found);
        let addresses = found.namespace.nl.addresses(Some(&found.link))?;
        // The address is on the link even if a route is refused.
        let address = self.address();
        let is_there = address.is_none_or(|address| has(&addresses, address.ip()));
        let is_applied = is_there && !result.as_ref().is_err_and(is_shortage);
        if is_applied {
            self.link_task = None;
        }
        let is_new = self.attachment.on_link != address || !self.attachment.seen;
        // The record before the change contains that the change is pending.
        if let Some(address) = address.filter(|_| is_there && (is_new || (was_outdated && is_applied))) {
            (self.attachment.on_link, self.attachment.seen) = (Some(address), true);
            self.write(host)?;
            if is_new {
                log(&self.key, &format!("put {address} on {}", found.link.name));
            }
        }
        Ok(result?)
    }

    /// If the lease's address is on the link, notes this, so that the loss of the lease removes the address. An earlier
    /// daemon may have exited after it had replaced another address.
    fn note_address(&mut self, found: &OpenInterface) -> Result<(), InterfaceError> {
        let addresses = found.namespace.nl.addresses(Some(&found.link))?;
        if let Some(address) = self.address().filter(|address| has(&addresses, address.ip())) {
            self.attachment.on_link = Some(address);
        }
        Ok(())
    }

    /// Handles the loss of the lease.
    fn lost(&mut self, host: &Host, why: &str) -> Result<(), InterfaceError> {
        let address = self.attachment.on_link.map(|net| net.to_string()).unwrap_or_default();
        log(&self.key, &format!("lost {address}: {why}"));
        // The record is written before the address is removed, and again afterwards. A daemon that starts after a kill
        // in between finds no lease, but the address that the link may still have: it requests a lease, and puts that
        // lease's address in its place. Without the first record, it would find the lost lease. The address is removed
        // even if nothing can be written, for example on a full disk.
        let write_result = self.write(host);
        (self.lifetimes_due_until, self.release_unless_used_by) = (None, None);
        self.begin(LinkTask::Remove);
        self.do_link_task(host)?;
        Ok(write_result?)
    }

    /// Removes the address from the link. With IPv4, the link is also set down, so that the container sends nothing
    /// more. The next message sets it up again. With an IPv6 lease it stays up, because the kernel deletes addresses
    /// with lifetimes when a link goes down.
    fn remove_from_link(&mut self, host: &Host) -> Result<(), InterfaceError> {
        let found = self.open_interface(host)?;
        self.client.close(host);
        if self.is_removed(&found)? {
            self.link_task = None;
            return Ok(self.write(host)?);
        }
        if let Some(net) = self.attachment.on_link {
            found.namespace.nl.delete_address(&found.link, net)?;
        }
        if self.key.family == Family::V4 && !host.store.has(&self.key.of(Family::V6)) {
            let down = LinkChange { up: Some(false), ..LinkChange::default() };
            found.namespace.nl.change_link(&found.link, &down)?;
        }
        (self.attachment.on_link, self.link_task) = (None, None);
        Ok(self.write(host)?)
    }

    /// Releases the lease, if any. The lease file is marked before the message is sent and deleted afterwards. After a
    /// kill in between, no daemon renews the lease, and the next one sends the release again.
    ///
    /// # Errors
    /// Code 5 if the file cannot be removed. The lease is kept.
    ///
    /// Code 11 if the message could not be sent because descriptors or memory are short. The marked lease is kept, and
    /// its release is due again after [`RELEASE_INTERVAL`].
    pub fn release(mut self, host: &Host) -> Result<Option<Box<dyn PendingRelease>>, ReleaseError> {
        self.attachment.releasing = true;
        // If nothing can be written, for example on a full disk, a file may still be removed.
        let is_marked = self.address().is_some() && self.write(host).is_ok();
        if !is_marked && let Err(e) = host.store.remove(&self.key) {
            self.attachment.releasing = false;
            return Err((Box::new(self), e));
        }
        self.client.close(host);
        let mut pending = None;
        let is_unconfirmed = !self.client.holds() && !self.attachment.removed;
        if self.client.holds() {
            let found = self.open_to_send(host);
            match found.and_then(|found| Ok(self.client.release(&self.attachment, &found)?)) {
                Ok((line, message)) => {
                    log(&self.key, &line);
                    pending = message;
                }
                Err(InterfaceError::Failed(e)) if is_marked && is_shortage(&e) => {
                    log(&self.key, &format!("cannot release it yet: {e}"));
                    (self.namespace, self.earlier) = (None, None);
                    self.next_check = Some((Time::now() + RELEASE_INTERVAL, RELEASE_INTERVAL));
                    let error = e.context("release the lease").with_code(Code::TryAgainLater);
                    return Err((Box::new(self), error));
                }
                Err(e) => log(
                    &self.key,
                    &format!("cannot release it, so its server keeps the address until the lease ends: {e}"),
                ),
            }
        }
        if let Some(address) = self.attachment.on_link.filter(|_| is_unconfirmed) {
            let line = format!(
                "cannot release {address}: no server has confirmed it to this daemon, so its server keeps it until the lease ends"
            );
            log(&self.key, &line);
        }
        // If the removal fails, the next start or a DEL removes the file.
        self.remove(host);
        Ok(pending)
    }

    /// Drops the lease without a message: nothing can use it or release it any more.
    pub fn drop_because(mut self, host: &Host, why: &str) {
        log(&self.key, &format!("dropped: {why}"));
        self.client.close(host);
        self.remove(host);
    }

    fn remove(&self, host: &Host) {
        if let Err(e) = host.store.remove(&self.key) {
            log(&self.key, &e.to_string());
        }
    }
}

/// The client of a new ADD.
fn acquire(parameters: LeaseParameters, attachment: &LeasedAttachment, host: &Host) -> Box<dyn LeaseClient> {
    let (now, random) = (Time::now(), Random::from_kernel());
    match parameters {
        LeaseParameters::V4(parameters) => {
            Box::new(v4::LeaseClient::acquire(parameters, attachment, host.timing, now, random))
        }
        LeaseParameters::V6(parameters) => {
            Box::new(v6::LeaseClient::acquire(parameters, host.timing, now, random))
        }
    }
}

/// The client of a record: with its lease, or without one that was lost.
fn resume(parameters: LeaseParameters, attachment: &LeasedAttachment, host: &Host) -> Box<dyn LeaseClient> {
    let (now, random) = (Time::now(), Random::from_kernel());
    match parameters {
        LeaseParameters::V4(parameters) => {
            Box::new(v4::LeaseClient::resume(parameters, attachment, host.timing, now, random))
        }
        LeaseParameters::V6(parameters) => {
            Box::new(v6::LeaseClient::resume(parameters, attachment, now, random))
        }
    }
}

#[cfg(test)]
pub mod tests;
