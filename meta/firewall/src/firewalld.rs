//! The container's addresses in a zone of firewalld, until firewalld restarts or reloads.
//!
//! firewalld does not record the owner of a zone's source. So a file of the attachment lists its sources, and DEL and
//! GC need neither the configuration nor a previous result. If firewalld has lost the sources meanwhile, only the file
//! is deleted.

mod record;
mod service;

use std::net::IpAddr;
use std::time::Duration;

use cni::{Attachment, Code, Error, Failures, Gc, NetworkName, Result, ResultExt, Undo};
use system::lock::Lock;

use record::Record;
use service::Service;

/// The lock for changes of zones: an address may be allocated to a new container while the old one's DEL runs.
const LOCK: &str = "firewalld";
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether firewalld is on this host's system bus, and this process may use the bus. Does not start firewalld.
///
/// # Errors
/// Code 5 or 11 if the bus does not answer.
pub fn is_on_bus() -> Result<bool> {
    Ok(Service::find_if_permitted()?.is_some())
}

/// STATUS: whether sources could be added.
///
/// # Errors
/// Code 50 if they could not.
pub fn available_on_bus() -> Result<()> {
    running().map(drop).code(Code::NotAvailable)
}

/// A zone, and the addresses to add to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    name: String,
    sources: Vec<String>,
}

impl Zone {
    /// A zone for a container's addresses.
    pub fn new(name: &str, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let sources = addresses.into_iter().map(source).collect();
        Self { name: name.to_owned(), sources }
    }

    /// Adds the sources. Removes other sources of an earlier ADD of the attachment.
    ///
    /// # Errors
    /// Code 7 if the zone is unknown, or an address is in another one. Otherwise firewalld's error.
    pub fn add_over_bus(&self, network: &NetworkName, at: &Attachment, undo: &mut Undo) -> Result<()> {
        let mut service = running()?;
        let _lock = Lock::acquire(LOCK, LOCK_TIMEOUT)?;
        let file = record::file(network, at);
        let earlier = record::load(&file)?.filter(|earlier| *earlier != Record::new(network, self));
        if let Some(earlier) = earlier {
            withdraw(Some(&mut service), &earlier.zone(), &file)?;
        }
        // Before the change, so that a DEL after a kill finds it.
        let (network_, at_) = (network.clone(), at.clone());
        undo.push(move || remove_over_bus(&network_, &at_, None));
        Record::new(network, self).save(&file)?;
        self.sources.iter().try_for_each(|source| service.add(&self.name, source))
    }

    /// Checks that the zone has the sources, even if another program added them.
    ///
    /// # Errors
    /// Code 999, with the missing source.
    pub fn check_over_bus(&self) -> Result<()> {
        let mut service = running()?;
        for source in &self.sources {
            if !service.has(&self.name, source)? {
                let zone = &self.name;
                return Err(Error::new(
                    Code::Internal,
                    format!(
                        "{source} is not in firewalld's zone {zone}: firewalld was reloaded or restarted"
                    ),
                )
                .detail("run `cnitool repair --all` to restore it")
                .detail(format!(
                    "to keep containers connected through a reload, bind their bridge to the zone: \
                     `firewall-cmd --permanent --zone={zone} --add-interface=BRIDGE`"
                )));
            }
        }
        Ok(())
    }
}

/// Removes an attachment's sources, as listed in its file. Without a file, removes those of `reference`, because the
/// reference writes none. Sources of other attachments stay. If firewalld does not answer, this is an error only if
/// there is a file.
///
/// # Errors
/// firewalld's error. Code 5 if a file operation fails.
pub fn remove_over_bus(network: &NetworkName, at: &Attachment, reference: Option<&Zone>) -> Result<()> {
    let file = record::file(network, at);
    // An unreadable file stays, for the next DEL.
    let found = record::load(&file)?;
    if found.as_ref().is_some_and(|record| !record.is_of(network)) {
        return Ok(());
    }
    let reference = reference.filter(|zone| !zone.sources.is_empty());
    // On a host without firewalld, the bus is not used.
    if found.is_none() && reference.is_none() {
        return file.remove();
    }
    // Before the lock, so that a hundred plugins which wait for a dead bus do not wait for each other.
    let mut service = match &found {
        Some(_) => Service::find()?,
        None => match Service::find_if_permitted() {
            // Without an answer, it is unknown whether the reference added sources. DEL succeeds nevertheless.
            Err(e) => {
                cni::warn(&format!(
                    "{e}; if the firewall plugin of containernetworking/plugins has put the container's addresses into a zone, they stay there"
                ));
                None
            }
            Ok(service) => service,
        },
    };
    let _lock = Lock::acquire(LOCK, LOCK_TIMEOUT)?;
    let own = found.as_ref().map(Record::zone);
    own.as_ref().or(reference).map_or(Ok(()), |zone| withdraw(service.as_mut(), zone, &file))
}

/// Removes the sources of the network's attachments that are not valid any more.
///
/// # Errors
/// firewalld's errors, or code 5 if a file operation fails. All other sources are removed.
pub fn collect_over_bus(call: &Gc) -> Result<()> {
    if record::are_none() {
        return Ok(());
    }
    let _lock = Lock::acquire(LOCK, LOCK_TIMEOUT)?;
    let mut service = None;
    record::stale(call, |file, zone| {
        if service.is_none() {
            service = Some(Service::find()?);
        }
        withdraw(service.as_mut().and_then(Option::as_mut), zone, file)
    })
}

/// Removes sources if firewalld runs, and then the file. The caller holds the lock.
fn withdraw(service: Option<&mut Service>, zone: &Zone, file: &cni::backup::Backup) -> Result<()> {
    if let Some(service) = service {
        let taken = record::sources_of_others(file)?;
        let mut failures = Failures::new();
        for source in zone.sources.iter().filter(|source| !taken.contains(*source)) {
            failures.note(service.remove(&zone.name, source));
        }
        // Sources that could not be removed are left for the next DEL or GC.
        failures.into_result()?;
    }
    file.remove()
}

fn running() -> Result<Service> {
    Service::find()?.ok_or_else(|| {
        Error::new(Code::UnsupportedField, "firewalld is not running, and the backend is firewalld")
            .detail("start firewalld, or set the backend to nftables or iptables")
    })
}

/// A container's address in firewalld's format.
fn source(address: IpAddr) -> String {
    let prefix = if address.is_ipv4() { 32 } else { 128 };
    format!("{address}/{prefix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_an_address_with_all_of_its_bits() {
        let zone = Zone::new("trusted", ["10.1.2.2", "fd00::2"].map(|text| text.parse().unwrap()));
        assert_eq!(zone.sources, ["10.1.2.2/32", "fd00::2/128"]);
    }
}
