//! Releases leases for DEL, GC and COLLECT ([`cni::collect`]): through the daemon, or in this process if no daemon runs.

use std::path::Path;

use cni::{Attachment, Gc, NetworkName, Resource, Result};
use serde_json::Value;

use crate::ask::{DaemonAnswer, ask};
use crate::offline;
use crate::record::lease;
use crate::wire::{Op, Request};

/// Releases the leases in the scope: through the daemon, or in this process if no daemon runs.
///
/// # Errors
/// The leases that could not be listed or released.
pub fn collect(socket: &Path, call: &Gc) -> Result<()> {
    let listed = match ask(socket, &Request::new(Op::List, &call.net.name), None)? {
        DaemonAnswer::Answered(answer) => answer?,
        DaemonAnswer::NoDaemon(_) => return offline::collect(socket, call),
    };
    // The scope may be older than an ADD that is still running.
    let entries = listed.as_array().into_iter().flatten();
    let entries = entries.filter(|one| one["network"] == *call.net.name && one["adding"] != true);
    let leases: Vec<_> = entries.filter_map(read).filter(|lease| call.scope.is_stale(lease)).collect();
    if !call.scope.is_dry() && !leases.is_empty() {
        let stale = leases.iter().map(|lease| (lease.container.clone(), lease.ifname.clone())).collect();
        match ask(socket, &Request { stale, ..Request::new(Op::Gc, &call.net.name) }, None)? {
            DaemonAnswer::Answered(answer) => drop(answer?),
            DaemonAnswer::NoDaemon(_) => return offline::collect(socket, call),
        }
    }
    // Not before, because the daemon may refuse the whole request.
    call.scope.add(leases);
    Ok(())
}

/// Releases an attachment's leases: through the daemon, or in this process if no daemon runs.
///
/// # Errors
/// The leases that could not be released.
pub fn release(socket: &Path, network: &NetworkName, at: &Attachment) -> Result<()> {
    match ask(socket, &Request::about(Op::Release, network, at), None)? {
        DaemonAnswer::Answered(answer) => answer.map(drop),
        DaemonAnswer::NoDaemon(_) => offline::release(socket, network, at),
    }
}

/// An entry of `dhcp list`.
fn read(entry: &Value) -> Option<Resource> {
    let text = |key: &str| entry[key].as_str();
    let address = text("address").and_then(|address| address.split('/').next()?.parse().ok());
    Some(lease(text("containerId")?, text("ifName")?, Path::new(text("netns")?), address))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use cni::{AsWritten, Attachments, Code, Error, NetConf, Scope, Version};
    use serde_json::json;

    use super::*;
    use crate::wire::reply;

    /// The attachments that GC names to a daemon with this answer, and the containers of the leases that it then lists as deleted.
    fn collected(scope: Scope, answer: Result<Value>) -> (Vec<(String, String)>, Vec<String>, Result<()>) {
        let lease = |network: &str, container: &str, adding: bool| {
            json!({"network": network, "containerId": container, "ifName": "eth0", "netns": "/run/netns/pod",
                "address": "10.9.0.100/24", "adding": adding})
        };
        let listed = [lease("net", "new", true), lease("net", "old", false), lease("other", "old2", false)];
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("dhcp.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let count = if scope.is_dry() { 1 } else { 2 };
        let daemon = thread::spawn(move || {
            let mut stale = Vec::new();
            for answer in [Ok(json!(listed)), answer].iter().take(count) {
                let (mut stream, mut line) = (listener.accept().unwrap().0, String::new());
                BufReader::new(&stream).read_line(&mut line).unwrap();
                stale = Request::read(line.as_bytes()).unwrap().stale;
                stream.write_all(&reply(answer)).unwrap();
            }
            stale
        });
        let name = NetworkName::parse("net").unwrap();
        let net = NetConf { name, version: Version::LATEST, dns: None, ipam: None, path: Vec::new() };
        let call = Gc { scope, net, conf: AsWritten::default() };
        let outcome = collect(&socket, &call);
        let containers = call.scope.taken().into_iter().map(|lease| lease.container).collect();
        (daemon.join().unwrap(), containers, outcome)
    }

    #[test]
    fn gc_names_the_stale_attachments_but_none_whose_add_is_running() {
        let all = || Scope::all_but(Attachments::default());
        let old = vec![("old".to_owned(), "eth0".to_owned())];
        assert_eq!(collected(all(), Ok(Value::Null)), (old, vec!["old".to_owned()], Ok(())));
        assert_eq!(collected(all().dry(), Ok(Value::Null)), (Vec::new(), vec!["old".to_owned()], Ok(())));
    }

    #[test]
    fn leases_that_the_daemon_does_not_release_are_not_listed_as_deleted() {
        let refused = Error::new(Code::TryAgainLater, "restart the daemon");
        let (_, listed, outcome) = collected(Scope::all_but(Attachments::default()), Err(refused.clone()));
        assert_eq!((listed, outcome), (Vec::new(), Err(refused)));
    }
}
