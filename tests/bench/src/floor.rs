//! The lower bound for ADD or DEL: the kernel's time for one request, with a known index and an open socket.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use lab::{Container, Netns};
use rtnetlink::packet_route::link::LinkMessage;
use rtnetlink::{Handle, LinkUnspec, new_connection};
use serde_json::Value;
use tokio::runtime::Builder;

use crate::machine::Prepare;
use crate::process::{How, Spent};
use crate::rounds::{Before, Conflist, attach, chain, detach};

/// ADD and DEL of a container, compared with one request that deletes its interface, or the veth pair of the interface.
pub fn with_deletion(conflist: Conflist, before: Before) -> Box<Prepare> {
    let whole = chain(conflist, before, None);
    Box::new(move |lab, side| {
        let mut whole = whole(lab, side);
        let container = lab.container("floor");
        let network = side.network(lab, &conflist(side, 1));
        let host = lab.host().clone();
        Box::new(move |how| {
            let mut phases = whole(how);
            let (add, result) = attach(&network, &container, How::Timed, None);
            let took = time_deletion(&host, &container, &result);
            detach(&network, &container, &result, How::Timed, None);
            phases.push(Spent { took, failures: add.failures, ..Spent::default() });
            phases
        })
    })
}

/// ADD and DEL of a container with the host's device `cable`, compared with one request that moves the device and sets
/// its name and alias.
pub fn with_move(conflist: Conflist, before: Before) -> Box<Prepare> {
    let whole = chain(conflist, before, None);
    Box::new(move |lab, side| {
        let mut whole = whole(lab, side);
        let container = lab.container("floor");
        let host = lab.host().clone();
        Box::new(move |how| {
            let mut phases = whole(how);
            // The reference leaves it down.
            host.sh("ip link set cable up");
            let took = time_move(&host, &container);
            container.sh("ip link set eth0 down; ip link set eth0 name cable alias ''");
            host.sh(&format!("nsenter --net={} ip link set cable netns $$", container.path().display()));
            host.sh("ip link set cable up");
            phases.push(Spent { took, ..Spent::default() });
            phases
        })
    })
}

fn time_deletion(host: &Netns, container: &Container, result: &Value) -> Duration {
    let host_end = result["interfaces"][1]["name"].as_str().and_then(|name| index(host, name));
    match (host_end, index(container, "eth0")) {
        (Some(index), _) => time(host, |handle| async move { handle.link().del(index).execute().await }),
        (_, Some(index)) => time(container, |handle| async move { handle.link().del(index).execute().await }),
        _ => Duration::ZERO,
    }
}

fn time_move(host: &Netns, container: &Container) -> Duration {
    let Some(index) = index(host, "cable") else { return Duration::ZERO };
    let netns = File::open(container.path()).expect("open the container's namespace");
    let moved: LinkMessage =
        LinkUnspec::new_with_index(index).setns_by_fd(netns.as_raw_fd()).name("eth0").alias("cable").build();
    time(host, |handle| async move { handle.link().set(moved).execute().await })
}

fn index(netns: &Netns, link: &str) -> Option<u32> {
    netns.link(link)?["ifindex"].as_u64()?.try_into().ok()
}

fn time<F>(netns: &Netns, request: impl FnOnce(Handle) -> F + Send) -> Duration
where
    F: Future<Output = Result<(), rtnetlink::Error>>,
{
    netns.run(|| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (connection, handle, _) = new_connection().expect("open a netlink socket");
            let connection = tokio::spawn(connection);
            let start = Instant::now();
            request(handle).await.expect("the kernel does as asked");
            let took = start.elapsed();
            connection.abort();
            took
        })
    })
}
