//! The kernel's own part of DEL, which no plugin can be faster than.

use std::time::{Duration, Instant};

use lab::Netns;
use rtnetlink::{Handle, new_connection};
use tokio::runtime::Builder;

use crate::machine::Prepare;
use crate::networks::nothing;
use crate::process::{How, Spent};
use crate::rounds::{Conflist, attach, chain, detach};

/// ADD and DEL of a container; then its veth pair again, deleted by one request, its index known and the socket open.
pub fn with_deletion(conflist: Conflist) -> Box<Prepare> {
    let whole = chain(conflist, nothing, None);
    Box::new(move |lab, side| {
        let mut whole = whole(lab, side);
        let container = lab.container("floor");
        let network = side.network(lab, &conflist(side, 1));
        let host = lab.host().clone();
        Box::new(move |how| {
            let mut phases = whole(how);
            let (add, result) = attach(&network, &container, How::Timed, None);
            let host_end = result["interfaces"][1]["name"].as_str().unwrap_or_default();
            let took = time_deletion(&host, host_end);
            detach(&network, &container, &result, How::Timed, None);
            phases.push(Spent { took, failures: add.failures, ..Spent::default() });
            phases
        })
    })
}

fn time_deletion(host: &Netns, link: &str) -> Duration {
    let Some(index) = host.link(link).and_then(|link| link["ifindex"].as_u64()?.try_into().ok()) else {
        return Duration::ZERO;
    };
    host.run(|| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (connection, handle, _) = new_connection().expect("open a netlink socket");
            let connection = tokio::spawn(connection);
            let took = delete(&handle, index).await;
            connection.abort();
            took
        })
    })
}

async fn delete(handle: &Handle, index: u32) -> Duration {
    let start = Instant::now();
    handle.link().del(index).execute().await.expect("delete a veth pair");
    start.elapsed()
}
