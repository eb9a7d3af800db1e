//! dnsname: containers of one network reach each other by name. Each network has a server, dnsmasq, which reads the names from a file.

mod conf;
mod deletions;
mod firewall;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hosts;
pub mod inspect;
mod keys;
mod listen;
mod masq;
mod name;
mod network;
pub mod probe;
mod process;
mod server;

use std::net::IpAddr;
use std::time::Duration;

use cni::schema::Key;
use cni::{
    Add, AddResult, Attachment, Check, CniArgs, Code, Del, Dns, Error, Failures, Gc, NetworkName, Plugin,
    Repair, Resource, Result, Role, Status, Undo,
};
use iface::{Namespace, verify};

pub use conf::Conf;
use hosts::{Entry, Hosts};
use listen::ServerLocation;
use masq::Service;
use name::HostName;
use netfilter::DnsServer;
use network::Network;
use probe::Answer;

/// The plugin.
#[derive(Debug)]
pub struct Dnsname;

impl Plugin for Dnsname {
    const NAME: &'static str = "dnsname";
    const ABOUT: &'static str = "Resolves the names of the network's containers.";
    const ROLE: Role = Role::Chained;
    const KEYS: &'static [Key] = keys::KEYS;
    const CAPABILITIES: &'static [&'static str] = &["aliases"];
    const REPAIRS: bool = true;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let result = call.prev_result.clone();
        let registration =
            Registration::new(&call.conf, &call.net.name, &call.attachment, &call.args, &result)?;
        server::program()?;
        registration.register(undo)?;
        let dns = dns(&call.conf, &registration.location, &result.dns);
        Ok(AddResult { dns, ..result })
    }

    fn del(call: &Del) -> Result<()> {
        let prev = call.prev_result.as_ref();
        let addresses = prev.map(|prev| addresses(prev, &call.attachment)).unwrap_or_default();
        let mut failures = Failures::new();
        failures.note(unregister(&call.net.name, &call.attachment, &addresses));
        failures.note(firewall::close(&call.net.name, &call.attachment));
        failures.into_result()
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let registration = Registration::of(call)?;
        // Not in `Registration::check`, because repair sets no interface up.
        verify::up(&Namespace::host()?.link(&registration.location.interface)?)?;
        registration.check(server::KNOWN_TIMEOUT)
    }

    fn repair(calls: &[Repair<Conf>]) -> Vec<Result<bool>> {
        calls.iter().map(|call| repair(&call.check)).collect()
    }

    fn gc(call: &Gc) -> Result<()> {
        let mut failures = Failures::new();
        failures.note(collect(call));
        failures.note(firewall::collect(&call.net.name, &call.scope));
        failures.into_result()
    }

    fn status(_: &Status<Conf>) -> Result<()> {
        server::program().map(drop)
    }
}

/// The registration of an attachment: its names at its addresses, and the server that resolves them.
#[derive(Debug)]
struct Registration<'a> {
    network: &'a NetworkName,
    at: &'a Attachment,
    names: Vec<HostName>,
    addresses: Vec<IpAddr>,
    location: ServerLocation,
    service: Service,
}

impl<'a> Registration<'a> {
    fn new(
        conf: &Conf,
        network: &'a NetworkName,
        at: &'a Attachment,
        args: &CniArgs,
        result: &AddResult,
    ) -> Result<Self> {
        let names = conf.names(network, args)?;
        let addresses = addresses(result, at);
        if addresses.is_empty() {
            return Err(Error::config(format!("prevResult has no address of interface {}", at.ifname))
                .detail("dnsname needs the addresses that an earlier plugin of the chain assigned to the interface"));
        }
        let location = ServerLocation::find(&Namespace::host()?, result, &at.ifname)?;
        let (domain, listen) = (conf.domain.clone(), location.listen.clone());
        let service = Service { domain, listen, forwards: conf.forwards(result) };
        Ok(Self { network, at, names, addresses, location, service })
    }

    fn of(call: &'a Check<Conf>) -> Result<Self> {
        Self::new(&call.conf, &call.net.name, &call.attachment, &call.args, &call.prev_result)
    }

    /// Writes the names, starts the server, and waits until the server resolves the names.
    fn register(&self, undo: &mut Undo) -> Result<()> {
        self.push_undo(undo);
        firewall::open(self.network, self.at, &self.rules(), undo)?;
        self.write(Network::create(self.network)?, &self.service)
    }

    /// Registers an attachment again, unless a DEL has removed it. A later DEL removes everything that is restored.
    /// The server keeps its settings: repairs of attachments from before and after a change of the configuration must
    /// not start it again in turns.
    fn restore(&self, undo: &mut Undo) -> Result<()> {
        let network = self.reopen()?;
        let service = self.service_from(network.service()?)?;
        self.push_undo(undo);
        firewall::open(self.network, self.at, &self.rules(), undo)?;
        self.write(network, &service)
    }

    /// The settings of the network's server, for this attachment, too. If the server has another domain, a later ADD
    /// has changed it. Then the names of earlier containers are in the new domain, too.
    fn service_from(&self, in_force: Option<Service>) -> Result<Service> {
        let Some(in_force) = in_force else { return Ok(self.service.clone()) };
        if let Some(service) = in_force.with_listen_of(&self.service) {
            return Ok(service);
        }
        if listen::addresses(&Namespace::host()?, &in_force.listen)?.is_empty() {
            return Ok(self.service.clone());
        }
        let (network, listen, own) = (self.network, &in_force.listen, &self.location.interface);
        let text =
            format!("dnsmasq of network {network} listens on {listen}, and the container is behind {own}");
        Err(Error::new(Code::Internal, text).detail(
            "a later ADD with another configuration has changed where dnsmasq listens: delete the pod, or restart the container",
        ))
    }

    fn push_undo(&self, undo: &mut Undo) {
        let (network, at) = (self.network.clone(), self.at.clone());
        undo.push(move || unregister(&network, &at, &[]));
    }

    /// The network's directory, unless this attachment's DEL has run. The DEL of the last attachment removes the directory and the server.
    fn reopen(&self) -> Result<Network> {
        let network = match Network::open(self.network)? {
            Some(network) if network.deletions()?.has(self.at) => None,
            None if server::find(self.network)?.is_some() => Some(Network::create(self.network)?),
            network => network,
        };
        network.ok_or_else(|| {
            let text =
                format!("a DEL has removed the names of {} in network {}", self.at.ifname, self.network);
            Error::new(Code::UnknownContainer, text)
        })
    }

    /// Writes the names into the network's files, for a server with these settings.
    fn write(&self, network: Network, service: &Service) -> Result<()> {
        // Look for the server before a file is changed: if processes cannot be examined now, a rollback cannot do so
        // either.
        let running = server::find(self.network)?;
        let mut deletions = network.deletions()?;
        if deletions.has(self.at) {
            deletions.remove(self.at);
            network.write_deletions(&deletions)?;
        }
        let mut hosts = network.hosts()?;
        let added = hosts.replace(self.at, &self.addresses, &service.in_hosts_file(&self.names));
        network.write_hosts(&hosts)?;
        // The lock is released here, so that other plugins can write their names while this plugin waits.
        drop(server::ensure(network, service, running)?);
        let own = self.as_reached(service);
        let settle = |silence| server::settle(self.network, &own, &added, Answer::Known, silence);
        let settled = settle(server::SILENCE_TIMEOUT);
        if settled.is_ok() || (server::find(self.network)?.is_some() && !server::is_silent(&own)?) {
            return settled;
        }
        // The server has exited since, or hangs. Another plugin may have started it again meanwhile.
        let network = Network::create(self.network)?;
        if server::is_silent(&own)? {
            server::stop(&network)?;
        }
        let running = server::find(self.network)?;
        drop(server::ensure(network, service, running)?);
        settle(server::KNOWN_TIMEOUT)
    }

    /// Settings of the server, with only those addresses that this container reaches.
    fn as_reached(&self, service: &Service) -> Service {
        Service { listen: self.service.listen.clone(), ..service.clone() }
    }

    fn rules(&self) -> DnsServer {
        DnsServer { interface: self.location.interface.clone() }
    }

    /// Checks that the names, the server and the rules in INPUT are as after ADD. `silence` is the timeout for
    /// any answer of the server.
    fn check(&self, silence: Duration) -> Result<()> {
        let missing =
            |what: String| Error::new(Code::Internal, what).detail("`cnitool repair --all` restores it");
        let hosts = Network::peek(self.network)?;
        let entries: Vec<&Entry> = hosts.entries_of(self.at, &self.addresses).collect();
        for address in &self.addresses {
            let entry = entries.iter().find(|entry| entry.address == *address);
            let entry =
                entry.ok_or_else(|| missing(format!("no names are registered for address {address}")))?;
            let has =
                |name: &&HostName| entry.names.iter().any(|has| has.eq_ignore_ascii_case(name.as_str()));
            if let Some(lost) = self.names.iter().find(|name| !has(name)) {
                return Err(missing(format!("name {lost} is not registered for address {address}")));
            }
        }
        if server::find(self.network)?.is_none() {
            return Err(missing(format!("dnsmasq of network {} does not run", self.network)));
        }
        // The original plugin opens INPUT in its own way.
        if entries.iter().any(|entry| entry.owner.is_some()) {
            firewall::check(self.network, self.at, &self.rules())?;
        }
        let service = self.as_reached(&self.service_from(Network::peek_service(self.network)?)?);
        let entries: Vec<Entry> = entries.into_iter().cloned().collect();
        server::settle(self.network, &service, &entries, Answer::Known, silence)
    }
}

/// Registers an attachment again if a part is missing. Returns whether a part was missing.
fn repair(call: &Check<Conf>) -> Result<bool> {
    let registration = Registration::of(call)?;
    if registration.check(server::SILENCE_TIMEOUT).is_ok() {
        return Ok(false);
    }
    verify::while_attached(call, |undo| registration.restore(undo))?;
    Ok(true)
}

/// Removes the names of an attachment. Stops the server if no names are left.
fn unregister(name: &NetworkName, at: &Attachment, addresses: &[IpAddr]) -> Result<()> {
    let Some(network) = Network::open(name)? else { return Ok(()) };
    let mut hosts = network.hosts()?;
    let removed = hosts.take(|entry| entry.is_of(at, addresses));
    let serves_unknown = serves_unknown_names(&network, &hosts)?;
    if (serves_unknown || hosts.entries().next().is_some())
        && let Err(e) = note_deletion(&network, at)
    {
        cni::warn(&format!("a repair that runs now may register the names again: {e}"));
    }
    if serves_unknown { Ok(()) } else { apply_removal(network, &hosts, &removed) }
}

/// Whether the server runs, but its hosts file was deleted: then the names of other containers, which need the server,
/// are not known.
fn serves_unknown_names(network: &Network, hosts: &Hosts) -> Result<bool> {
    let serves = hosts.entries().next().is_none()
        && network.has_lost_hosts()?
        && server::find(network.name())?.is_some();
    if serves {
        cni::warn(&format!(
            "{} was deleted, so the DNS server of network {name} is not stopped: `cnitool repair {name}` restores the \
             names of running containers",
            network.file(network::HOSTS).display(),
            name = network.name(),
        ));
    }
    Ok(serves)
}

fn note_deletion(network: &Network, at: &Attachment) -> Result<()> {
    let mut deletions = network.deletions()?;
    if deletions.has(at) {
        return Ok(());
    }
    deletions.add(at);
    network.write_deletions(&deletions)
}

/// Writes the files without the removed entries, and makes the server read them. Stops the server if no entry is
/// left.
fn apply_removal(network: Network, hosts: &Hosts, removed: &[Entry]) -> Result<()> {
    network.remove_unfinished()?;
    if hosts.entries().next().is_none() {
        if let Some(server) = server::find(network.name())? {
            server.stop()?;
        }
        // The dnsmasq that a killed ADD has started cannot be found before its execve(2). Afterwards it is found, unless its configuration is
        // gone by then. So the search for all processes of the server comes last.
        network.clear()?;
        server::stop(&network)?;
        return network.remove();
    }
    if removed.is_empty() {
        // A killed DEL may have written the file without making the server read it.
        return server::find(network.name())?.map_or(Ok(()), |server| server.reload());
    }
    network.remove_entries(hosts, removed)?;
    let (name, service) = (network.name().clone(), network.service()?);
    drop(network);
    let Some(server) = server::find(&name)? else { return Ok(()) };
    let Some(service) = service else { return server.reload() };
    // Wait until the server has read the file. Afterwards another container may have the address, and the old name
    // must not lead to it.
    match server::settle(&name, &service, removed, Answer::Unknown, server::SILENCE_TIMEOUT) {
        Err(late) if late.code() == Code::TryAgainLater as u32 => {
            cni::warn(&format!("a name that was removed may still be resolved for a moment: {late}"));
            Ok(())
        }
        settled => settled,
    }
}

/// Removes the names of attachments that GC removes.
fn collect(call: &Gc) -> Result<()> {
    let Some(network) = Network::open(&call.net.name)? else { return Ok(()) };
    let mut hosts = network.hosts()?;
    let removed = hosts.take(|entry| is_collected(call, entry));
    let may_have_others = call.scope.stale().is_some() || call.scope.valid().iter().next().is_some();
    if call.scope.is_dry() || (may_have_others && serves_unknown_names(&network, &hosts)?) {
        return Ok(());
    }
    apply_removal(network, &hosts, &removed)
}

/// Whether GC removes an entry. Entries of the original plugin do not contain the container: a DEL removes them, or
/// the ADD of the next container with the same address.
fn is_collected(call: &Gc, entry: &Entry) -> bool {
    entry.owner.as_ref().is_some_and(|owner| {
        let resource = Resource::new("name", entry.names.join(" ")).address(entry.address);
        call.scope.should_delete(resource.of(&owner.container, &owner.ifname))
    })
}

fn addresses(result: &AddResult, at: &Attachment) -> Vec<IpAddr> {
    result.ips_of(&at.ifname).map(|ip| ip.address.ip()).collect()
}

/// The settings of the container's resolver, with the server in the first position and the domain in the last.
fn dns(conf: &Conf, location: &ServerLocation, prev: &Dns) -> Dns {
    let mut dns = prev.clone();
    let servers: Vec<String> = location.addresses.iter().map(IpAddr::to_string).collect();
    dns.nameservers.retain(|earlier| !servers.contains(earlier));
    dns.nameservers.splice(0..0, servers);
    if let Some(domain) = conf.domain.as_ref().map(HostName::as_str)
        && !dns.search.iter().any(|earlier| earlier == domain)
    {
        dns.search.push(domain.to_owned());
    }
    dns
}
