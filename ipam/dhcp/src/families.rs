//! ADD and CHECK for each requested address family. The requests to the daemon are concurrent.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use cni::{AddResult, Check, Code, Dns, Error, Result, ResultExt, Version};
use dhcp_client::v6::is_ready;
use ipnetwork::IpNetwork;
use netlink::Address;
use netns::NetNs;
use serde_json::Value;

use crate::ask::answer;
use crate::conf::Conf;
use crate::key::Family;
use crate::wire::{Op, Request};

/// Requests the addresses, and waits for all of them.
///
/// # Errors
/// The first error. The other family is not waited for: the caller, or the daemon after the end of this process,
/// releases its lease.
pub fn acquire(conf: &Conf, request: &Request, netns: &NetNs) -> Result<AddResult> {
    match conf.family.list() {
        [family] => one(&conf.socket, &request.clone().of(*family), netns.as_fd()),
        _ => both(&conf.socket, Family::ALL.map(|family| request.clone().of(family)), netns),
    }
}

fn one(socket: &Path, request: &Request, netns: BorrowedFd<'_>) -> Result<AddResult> {
    let result = answer(socket, request, Some(netns))?;
    AddResult::from_json(&result, Version::LATEST).context(|| "the DHCP daemon's answer")
}

/// Requests both families, each in a thread. If one request fails, the other one's thread may outlive this function.
fn both(socket: &Path, requests: [Request; 2], netns: &NetNs) -> Result<AddResult> {
    let (says, answers) = mpsc::channel();
    for (location, request) in requests.into_iter().enumerate() {
        let (says, socket) = (says.clone(), socket.to_owned());
        let netns = netns.as_fd().try_clone_to_owned().context(|| "keep the container's namespace open")?;
        // If the other request has failed, the channel has no receiver.
        thread::spawn(move || says.send((location, one(&socket, &request, netns.as_fd()))).ok());
    }
    drop(says);
    let mut results = [None, None];
    for (location, result) in answers {
        results[location] = Some(result?);
    }
    match results {
        [Some(v4), Some(v6)] => Ok(joined(v4, v6)),
        _ => Err(Error::new(Code::Internal, "a request to the DHCP daemon panicked")),
    }
}

/// The combined result, IPv4 first.
fn joined(v4: AddResult, v6: AddResult) -> AddResult {
    let mut search = v4.dns.search;
    search.extend(v6.dns.search.into_iter().filter(|domain| !search.contains(domain)).collect::<Vec<_>>());
    let nameservers = [v4.dns.nameservers, v6.dns.nameservers].concat();
    AddResult {
        ips: [v4.ips, v6.ips].concat(),
        routes: [v4.routes, v6.routes].concat(),
        dns: Dns { nameservers, search, ..v4.dns },
        ..AddResult::default()
    }
}

/// An attachment's leased addresses.
///
/// # Errors
/// Code 999 if a family has no lease.
pub fn leased(call: &Check<Conf>) -> Result<Vec<IpNetwork>> {
    let socket = &call.conf.socket;
    let request = Request::about(Op::Check, &call.net.name, &call.attachment);
    let requests = call.conf.family.list().iter().map(|family| request.clone().of(*family));
    requests.map(|request| address(&answer(socket, &request, None)?)).collect()
}

fn address(lease: &Value) -> Result<IpNetwork> {
    cni::addr::parse_cidr(lease["address"].as_str().unwrap_or_default())
        .map_err(|e| Error::new(Code::Internal, format!("the DHCP daemon's answer: address {e}")))
}

/// Why a leased address on the link cannot be used. None: it can.
pub fn address_problem(leased: IpNetwork, there: &[Address]) -> Option<&'static str> {
    match there.iter().find(|address| address.net == leased) {
        None => Some("is missing"),
        Some(address) if address.duplicate => Some("is a duplicate: another host has it"),
        Some(address) if !is_ready(address) => Some("is being tested for duplicates"),
        Some(_) => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    use cni::{AsWritten, Attachment, ContainerId, IfName, NetworkName};
    use serde_json::json;

    use super::*;
    use crate::wire::reply;

    /// A daemon that refuses one family, and does not answer the request for the other.
    fn refuse_one(listener: &UnixListener, refuses_v6: bool) {
        let mut waiting = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            if line.contains("ipv6") == refuses_v6 {
                stream.write_all(&reply(&Err(Error::new(Code::TryAgainLater, "no server")))).unwrap();
            } else {
                waiting.push(stream);
            }
        }
        thread::park();
    }

    #[test]
    fn a_family_that_fails_ends_the_wait_for_the_other() {
        for refuses_v6 in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("dhcp.sock");
            let listener = UnixListener::bind(&socket).unwrap();
            thread::spawn(move || refuse_one(&listener, refuses_v6));
            let written = json!({"ipam": {"type": "dhcp", "family": "both", "daemonSocketPath": socket}});
            let conf = Conf::try_from(AsWritten::from(written)).unwrap();
            let (container, ifname) = (ContainerId::parse("pod").unwrap(), IfName::parse("eth0").unwrap());
            let at = Attachment { container, ifname };
            let request = Request::about(Op::Acquire, &NetworkName::parse("net").unwrap(), &at);
            let netns = NetNs::open(Path::new("/proc/self/ns/net")).unwrap();
            let (says, ended) = mpsc::channel();
            thread::spawn(move || says.send(acquire(&conf, &request, &netns)).ok());
            // The other family is not waited for.
            let result = ended.recv_timeout(Duration::from_secs(600)).unwrap();
            assert_eq!(result.unwrap_err().msg(), "no server");
        }
    }
}
