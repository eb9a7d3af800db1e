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
    let list = || ask(socket, &Request::new(Op::List, &call.net.name), None);
    let listed = match list()? {
        DaemonAnswer::Answered(answer) => answer?,
        DaemonAnswer::NoDaemon(_) => return offline::collect(socket, call),
    };
    // The scope may be older than an ADD that is still running.
    let found = entries(&listed, call).filter(|one| one["adding"] != true);
    let mut leases: Vec<_> = found.filter_map(read).filter(|lease| call.scope.is_stale(lease)).collect();
    let mut outcome = Ok(());
    if !call.scope.is_dry() && !leases.is_empty() {
        let stale = leases.iter().map(|lease| (lease.container.clone(), lease.ifname.clone())).collect();
        outcome = match ask(socket, &Request { stale, ..Request::new(Op::Gc, &call.net.name) }, None) {
            Ok(DaemonAnswer::Answered(answer)) => answer.map(drop),
            Ok(DaemonAnswer::NoDaemon(_)) => return offline::collect(socket, call),
            Err(e) => Err(e),
        };
    }
    if outcome.is_err() {
        // The daemon may have released some of them, or refused the whole request.
        match list() {
            Ok(DaemonAnswer::Answered(Ok(left))) => leases.retain(|lease| {
                let is_of =
                    |one: &Value| one["containerId"] == *lease.container && one["ifName"] == *lease.ifname;
                !entries(&left, call).any(is_of)
            }),
            _ => leases.clear(),
        }
    }
    call.scope.add(leases);
    outcome
}

/// The daemon's leases of the network.
fn entries<'a>(listed: &'a Value, call: &'a Gc) -> impl Iterator<Item = &'a Value> {
    listed.as_array().into_iter().flatten().filter(|one| one["network"] == *call.net.name)
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
        let listed = [lease("net", "new", true), lease("net", "old", false), lease("other", "old2", false)];
        let count = if scope.is_dry() { 1 } else { 2 };
        answered(scope, [Ok(json!(listed)), answer].into_iter().take(count).collect())
    }

    fn lease(network: &str, container: &str, adding: bool) -> Value {
        json!({"network": network, "containerId": container, "ifName": "eth0", "netns": "/run/netns/pod",
            "address": "10.9.0.100/24", "adding": adding})
    }

    /// The attachments in the last request of GC, and the containers of the leases that it then lists as deleted.
    fn answered(
        scope: Scope,
        answers: Vec<Result<Value>>,
    ) -> (Vec<(String, String)>, Vec<String>, Result<()>) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("dhcp.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = thread::spawn(move || {
            let mut stale = Vec::new();
            for answer in &answers {
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
    fn only_leases_that_the_daemon_has_released_are_listed_as_deleted() {
        let refused = || Err(Error::new(Code::TryAgainLater, "restart the daemon"));
        let all = || Ok(json!([lease("net", "old", false), lease("net", "older", false)]));
        let one = || Ok(json!([lease("net", "old", false)]));
        for (left, released) in [(all(), vec![]), (one(), vec!["older".to_owned()]), (refused(), vec![])] {
            let answers = vec![all(), refused(), left];
            let (_, listed, outcome) = answered(Scope::all_but(Attachments::default()), answers);
            assert_eq!((listed, outcome), (released, refused().map(drop)));
        }
    }
}
