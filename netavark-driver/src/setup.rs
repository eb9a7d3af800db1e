//! `setup` and `teardown`: attach and detach a container. Results are stored in libcni's cache, so `cnitool show`,
//! `gc` and `repair` find the container.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cni::{AddResult, Attachment, Code, Error, NetworkName, Result};
use runtime::{
    AttachmentParameters, Cache, ConfDir, Entry, Network as Chain, Runtime, interrupted_by_signals,
};

use crate::document::{Call, ContainerOptions, StatusBlock};
use crate::options::{self, Options};
use crate::record::{self, Record};
use crate::reload::is_reload;
use crate::source::{self, Source, flat};
use crate::{address, attach, rootless, status, warn};

/// Attaches a container, and passes its status block to `answer`. Detaches the container again if any step
/// fails, or if a signal interrupts it.
///
/// # Errors
/// The error of the first plugin that failed. Code 7 if the network ignored an option of the container.
pub fn setup(netns: &Path, call: &Call, answer: impl FnOnce(&StatusBlock) -> Result<()>) -> Result<()> {
    rootless::refuse()?;
    let options = Options::read(&call.network.options)?;
    let source = Source::load(&call.network, &options)?;
    let is_reload = is_reload(netns, &call.network_options);
    let parameters = |call: &Call| parameters(netns, call, &options, &source, is_reload);
    let (chain, request) = parameters(call)?;
    let runtime = Runtime::new(options.plugin_path.clone());
    let signalled = interrupted_by_signals().map_err(|e| flat(&e))?;
    let interruptible = runtime.clone().interrupted_by(Arc::clone(&signalled));
    remove_earlier(&interruptible, call, &chain, &request)?;
    let record = Record::write(runtime.results(), &chain.name, &source)?;
    let added = interruptible.add_or_roll_back(&chain, &request).or_else(|failed| {
        // An address may be leased meanwhile, or outside of the file's new subnet.
        let may_be_address = attach::is_host_local(&chain) && attach::is_of_ipam(&failed, &chain);
        if !is_reload || !may_be_address || signalled.load(Ordering::Relaxed) {
            return Err(failed);
        }
        warn(format_args!(
            "cannot attach the container with its previous or requested addresses: {}",
            flat(&failed)
        ));
        let (chain, request) = parameters(&without_addresses(call))?;
        interruptible.add_or_roll_back(&chain, &request).map_err(|_| failed)
    });
    let added = added.map_err(|e| flat(&e)).and_then(|added| {
        let done = fulfilled(&call.network_options, &added.result, &chain, is_reload).and_then(|()| {
            if signalled.load(Ordering::Relaxed) {
                return Err(Error::new(Code::Internal, "setup was interrupted before its answer"));
            }
            let ifname = &request.attachment.ifname;
            let servers = servers(call, &options);
            answer(&status::block(&added.result, ifname, netns, &servers, attach::has_dnsname(&chain)))
        });
        done.map_err(|failed| match runtime.del(&chain, &request) {
            Ok(()) => failed,
            Err(left) => failed.detail(format!("the rollback failed too: {left}; run `cnitool gc --all`")),
        })
    });
    added.inspect_err(|_| {
        drop(record);
        delete_record(&runtime, &chain);
    })
}

/// The chain, and the parameters of the container for its plugins.
///
/// # Errors
/// Code 5 or 7 for an invalid network. Code 4 or 7 for invalid options of the container.
fn parameters(
    netns: &Path,
    call: &Call,
    options: &Options<'_>,
    source: &Source,
    is_reload: bool,
) -> Result<(Chain, AttachmentParameters)> {
    let chain = match source.file {
        Some(_) => source.chain_of(&call.network)?,
        // Only for this call: the record of the network keeps the range.
        None => source::chain(&address::allowing(&call.network, &call.network_options.static_ips), options)?,
    };
    let chain = attach::declaring_ips(chain, &call.network_options)?;
    let request = attach::with_container_options(netns, call, &chain, is_reload)?;
    Ok((chain, request))
}

fn without_addresses(call: &Call) -> Call {
    let network_options = ContainerOptions { static_ips: Vec::new(), ..call.network_options.clone() };
    Call { network_options, ..call.clone() }
}

/// The network's own name servers, and those of `podman network update --dns-add`.
fn servers(call: &Call, options: &Options<'_>) -> Vec<IpAddr> {
    let added = call.network.network_dns_servers.iter().filter_map(|text| text.parse().ok());
    let mut all = options.dns.clone();
    all.extend(added.filter(|server| !options.dns.contains(server)));
    all
}

/// Removes an earlier attachment. Podman attaches a container only once, so an existing attachment is from before a
/// reboot or a crash. A killed setup leaves no result: then DEL of the chain removes any resources.
///
/// # Errors
/// Code 7 if the interface is attached to another network.
fn remove_earlier(
    runtime: &Runtime,
    call: &Call,
    chain: &Chain,
    request: &AttachmentParameters,
) -> Result<()> {
    let (own, others) = known(runtime.results(), call, Some(chain), request).unwrap_or_default();
    for entry in &others {
        if runtime.is_attached(&entry.network, &entry.attach) {
            return Err(attached(entry, request));
        }
    }
    let outcome = match [own, others].concat().as_slice() {
        [] => runtime.del(chain, request).map_err(|e| flat(&e)),
        known => each(call, known, Some(chain), |chain, entry| del(runtime, chain, &entry.attach)),
    };
    if let Err(e) = outcome {
        warn(format_args!(
            "cannot remove an earlier attachment of container {}: {e}",
            request.attachment.container
        ));
    }
    Ok(())
}

fn attached(entry: &Entry, request: &AttachmentParameters) -> Error {
    let Attachment { container, ifname } = &entry.attach.attachment;
    let network = &entry.network;
    let netns = entry.attach.netns.as_ref().or(request.netns.as_ref());
    let netns = netns.map(|path| path.display().to_string()).unwrap_or_default();
    Error::config(format!("interface {ifname} of container {container} is attached to network {network}")).detail(
        format!(
            "choose another interface_name, or run `cnitool del {network} {netns} --container-id {container} -i {ifname}`"
        ),
    )
}

/// Checks that the container has the requested addresses and MAC address. A plugin that does not know an option
/// ignores it. `is_lenient`: a running container must keep its network, even if a reload changes its address.
fn fulfilled(options: &ContainerOptions, result: &AddResult, chain: &Chain, is_lenient: bool) -> Result<()> {
    let has = |ip| result.addresses().any(|address| address.ip() == ip);
    if let Some(missing) = options.static_ips.iter().find(|ip| !has(**ip)) {
        let text = format!("network {} did not give the container the address {missing}", chain.name);
        if attach::ipam_type(chain).as_deref() == Some("dhcp") {
            warn(format_args!("{text}: the DHCP server chooses addresses"));
        } else if is_lenient {
            warn(text);
        } else {
            let remedy =
                "add \"capabilities\": {\"ips\": true} to the plugin that has the ipam, or leave --ip out";
            return Err(Error::config(text).detail(remedy));
        }
    }
    let mac = &options.static_mac;
    let is_given = |given: &String| given.eq_ignore_ascii_case(mac);
    // Results of versions before 0.3.0 have no interfaces.
    let is_unknown = mac.is_empty() || result.interfaces.is_empty();
    if is_unknown || result.interfaces.iter().filter_map(|one| one.mac.as_ref()).any(is_given) {
        return Ok(());
    }
    let text = format!("network {} did not give the container the MAC address {mac}", chain.name);
    if is_lenient {
        warn(text);
        return Ok(());
    }
    Err(Error::config(text)
        .detail("leave --mac-address out, or add the plugin tuning with the capability mac"))
}

/// Detaches a container. Succeeds if its namespace no longer exists, and if it was detached before. A signal does not interrupt a DEL that is
/// running.
///
/// # Errors
/// The errors of all plugins that failed.
pub fn teardown(netns: &Path, call: &Call) -> Result<()> {
    let mut at = attach::attachment(netns, call)?;
    // Another version of the driver may have accepted other options.
    let options = Options::read(&call.network.options);
    let runtime = Runtime::new(options::plugin_path(&call.network.options));
    let runtime = runtime.interrupted_by(interrupted_by_signals().map_err(|e| flat(&e))?);
    let configured = options.and_then(|options| source::chain(&call.network, &options));
    let (own, others) =
        known(runtime.results(), call, configured.as_ref().ok(), &at).map_err(|e| flat(&e))?;
    if own.is_empty() {
        return match configured {
            // A killed ADD may have left resources. Without the namespace, DEL keeps the interface of another network.
            Ok(chain) => {
                at.netns = at.netns.filter(|_| others.is_empty());
                del(&runtime, &chain, &at).map_err(|e| flat(&e))
            }
            Err(e) => {
                warn(format_args!(
                    "container {}, interface {}: nothing was detached, because the cache has no result, and the network's \
                     configuration cannot be read: {}; `cnitool gc --all` removes stale resources",
                    at.attachment.container,
                    at.attachment.ifname,
                    e.msg()
                ));
                Ok(())
            }
        };
    }
    each(call, &own, configured.as_ref().ok(), |chain, entry| {
        del(&runtime, chain, &entry.attach.clone().netns(netns))
    })
}

/// Runs DEL. After the DEL of the last container, deletes the network's record.
fn del(runtime: &Runtime, chain: &Chain, at: &AttachmentParameters) -> runtime::Result<()> {
    runtime.del(chain, at).inspect(|()| delete_record(runtime, chain))
}

fn delete_record(runtime: &Runtime, chain: &Chain) {
    if let Err(e) = record::delete_unused(runtime, chain) {
        warn(format_args!(
            "cannot delete the stored configuration of network {}, which may be unused: {e}",
            chain.name
        ));
    }
}

/// Detaches all attachments, each from its network. Continues after failures, and returns them all.
fn each(
    call: &Call,
    known: &[Entry],
    configured: Option<&Chain>,
    del: impl Fn(&Chain, &Entry) -> runtime::Result<()>,
) -> Result<()> {
    let outcomes = known.iter().map(|entry| {
        network_of(call, entry, configured).and_then(|chain| del(&chain, entry).map_err(|e| flat(&e)))
    });
    let failures = outcomes.filter_map(Result::err);
    failures.reduce(|all, next| all.detail(format!("{next}"))).map_or(Ok(()), Err)
}

/// The cached attachments of the container's interface: those of the configured network, and those of other networks.
/// If the configuration cannot be read, all are its own. An interface of a container belongs to only one network.
fn known(
    cache: &Cache,
    call: &Call,
    configured: Option<&Chain>,
    at: &AttachmentParameters,
) -> runtime::Result<(Vec<Entry>, Vec<Entry>)> {
    let all = cache.list()?.into_iter().filter(|entry| entry.attach.attachment == at.attachment);
    let Some(chain) = configured else { return Ok((all.collect(), Vec::new())) };
    let (own, others): (Vec<_>, Vec<_>) = all.partition(|entry| entry.network == chain.name);
    let file = call.network.options.get("conflist").filter(|_| own.is_empty());
    let Some(file) = file else { return Ok((own, others)) };
    // The network in the file may have had another name at ADD.
    Ok(others.into_iter().partition(|entry| !is_configured(cache, &entry.network, Path::new(file))))
}

/// Whether another file has a network of this name: next to the network's own file, in the default directory, or
/// written by the driver.
fn is_configured(cache: &Cache, name: &NetworkName, file: &Path) -> bool {
    let dirs = [file.parent().unwrap_or(file), Path::new(ConfDir::DEFAULT)];
    record::exists(cache, name) || dirs.iter().any(|dir| ConfDir::new(*dir).find(name).is_ok())
}

/// The configured network if it has the name of the attachment's network, otherwise the network as it was at ADD. DEL of both uses the
/// configuration of the ADD. The plugins of the directory next to the file are in no cache.
///
/// # Errors
/// If a file of this directory cannot be read: a DEL without its plugin would delete the record of the attachment.
fn network_of(call: &Call, entry: &Entry, configured: Option<&Chain>) -> Result<Chain> {
    if let Some(chain) = configured.filter(|chain| chain.name == entry.network) {
        return Ok(chain.clone());
    }
    let dir = call.network.options.get("conflist").and_then(|file| Path::new(file).parent());
    let network = entry.network().map_err(|e| flat(&e))?;
    let Some(dir) = dir else { return Ok(network) };
    ConfDir::new(dir).complete(network).map_err(|e| {
        flat(&e)
            .context(format_args!("network {}", entry.network))
            .detail(format!("correct or remove the file, and then run `cnitool gc {}`", entry.network))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_that_podman_has_added_later_follow_those_of_the_option() {
        let words = [("type", "bridge"), ("dns", "10.0.0.1")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let words = words.into();
        let call: Call = cni::json::decode(&json!({
            "container_id": "c", "network": {"network_dns_servers": ["10.0.0.2", "10.0.0.1"]},
            "network_options": {"interface_name": "eth0"},
        }))
        .unwrap();
        let texts =
            servers(&call, &Options::read(&words).unwrap()).iter().map(IpAddr::to_string).collect::<Vec<_>>();
        assert_eq!(texts, ["10.0.0.1", "10.0.0.2"]);
    }
}
