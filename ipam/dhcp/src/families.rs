//! ADD and CHECK for each family that the configuration names: a request to the daemon for each, at the same time.

use std::os::fd::AsFd;
use std::thread;

use cni::{AddResult, Check, Code, Dns, Error, Result, ResultExt, Version};
use ipnetwork::IpNetwork;
use netns::NetNs;
use serde_json::Value;

use crate::answered;
use crate::ask::ask;
use crate::conf::{Conf, Families};
use crate::wire::{Op, Request};

/// Asks for the addresses, and waits for all of them.
///
/// # Errors
/// The first that comes not. Others are to be given back by the caller.
pub fn acquire(conf: &Conf, request: &Request, netns: &NetNs) -> Result<AddResult> {
    let of = |request: &Request| {
        let result = answered(&conf.socket, ask(&conf.socket, request, Some(netns.as_fd()))?)?;
        AddResult::from_json(&result, Version::LATEST).context(|| "the DHCP daemon's answer")
    };
    let v6 = request.clone().about_v6();
    match conf.family {
        Families::V4 => of(request),
        Families::V6 => of(&v6),
        Families::Both => thread::scope(|scope| {
            let v6 = scope.spawn(|| of(&v6));
            let v4 = of(request);
            let v6 = v6.join().map_err(|_| Error::new(Code::Internal, "the request for IPv6 panicked"))?;
            Ok(joined(v4?, v6?))
        }),
    }
}

/// One result of two: IPv4 first.
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

/// The addresses that the daemon has leased for an attachment.
///
/// # Errors
/// Code 999: one is not leased.
pub fn leased(call: &Check<Conf>) -> Result<Vec<IpNetwork>> {
    let socket = &call.conf.socket;
    let v4 = Request::about(Op::Check, &call.net.name, &call.attachment);
    let v6 = v4.clone().about_v6();
    let family = call.conf.family;
    let requests = [(v4, family.has_v4()), (v6, family.has_v6())];
    let wanted = requests.into_iter().filter(|(_, wanted)| *wanted);
    wanted.map(|(request, _)| address(&answered(socket, ask(socket, &request, None)?)?)).collect()
}

fn address(lease: &Value) -> Result<IpNetwork> {
    cni::addr::parse_cidr(lease["address"].as_str().unwrap_or_default())
        .map_err(|e| Error::new(Code::Internal, format!("the DHCP daemon's answer: address {e}")))
}
