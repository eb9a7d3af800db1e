//! The fuzz target of this plugin, and the conditions that must hold for any input.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use std::path::Path;

use cni::{AsWritten, Attachment, CniArgs, ContainerId, IfName, NetworkName, json};

use crate::conf::Conf;
use crate::hosts::Hosts;
use crate::masq::{Listen, Service, User};

/// The input is a configuration, a hosts file after an empty line, and a configuration of dnsmasq after another empty
/// line. Each accepted name results in a line with its owner. Lines of other programs are kept. A configuration of
/// dnsmasq is parsed as it was written.
pub fn configuration(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut parts = text.splitn(3, "\n\n");
    let (document, file, server) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    let before = Hosts::parse(file.unwrap_or_default());
    assert_eq!(Hosts::parse(&before.text()), before);
    if let Some(found) = server.and_then(Service::parse) {
        rewritten(&found);
    }
    let Ok(document) = json::parse(document.as_bytes(), "it") else { return };
    let args = json::member(&document, "args").and_then(|args| args.as_str()).map(CniArgs::parse);
    let Ok(conf) = Conf::try_from(AsWritten::from(document)) else { return };
    let args = args.and_then(Result::ok).unwrap_or_default();
    let Ok(names) = conf.names(&NetworkName::parse("net").unwrap(), &args) else { return };
    let ip = "10.88.0.5".parse().unwrap();
    let at = Attachment {
        container: ContainerId::parse("fuzzed").unwrap(),
        ifname: IfName::parse("eth0").unwrap(),
    };
    let listen = Listen::Interface(IfName::parse("cni0").unwrap());
    let service = Service { domain: conf.domain, listen, forwards: conf.internal != Some(true) };
    let names = service.in_hosts_file(&names);
    let mut hosts = before.clone();
    let added = hosts.replace(&at, &[ip], &names);
    assert_eq!(Hosts::parse(&hosts.text()).entries_of(&at, &[]).cloned().collect::<Vec<_>>(), added);
    assert_eq!(added[0].names, names.iter().map(ToString::to_string).collect::<Vec<_>>());
    hosts.take(|entry| entry.is_of(&at, &[]));
    assert!(hosts.entries().all(|entry| before.entries().any(|earlier| earlier == entry)));
    rewritten(&service);
}

fn rewritten(service: &Service) {
    let user = User { name: "nobody".to_owned(), group: None };
    for has_resolvers in [true, false] {
        let text = service.text(Path::new("/run/net"), &user, has_resolvers);
        assert_eq!(Service::parse(&text).as_ref(), Some(service));
    }
}

#[test]
fn every_seed_is_borne() {
    seeds::replay("dnsname", configuration);
}
