//! Waiting: for rtnetlink events of the kernel, or by polling.

use std::thread;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rtnetlink::{MulticastGroup, new_multicast_connection};
use serde_json::Value;
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::Netns;

/// Reached only if the condition never holds.
const DEADLINE: Duration = Duration::from_secs(600);

/// How long to wait for an event before looking again: the kernel drops events if the buffer is full.
const LOST: Duration = Duration::from_secs(1);

const GROUPS: [MulticastGroup; 6] = [
    MulticastGroup::Link,
    MulticastGroup::Neigh,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

/// Polls a condition without an event.
#[track_caller]
pub fn until(what: &str, condition: impl Fn() -> bool) {
    until_within(DEADLINE, what, condition);
}

/// The same for a promise with a time: the limit is several times as long, because the machine may be busy.
#[track_caller]
pub fn until_within(limit: Duration, what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "still not after {limit:?}: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

impl Netns {
    /// Waits for a condition. It is checked now, after each change of a link, an address, a route or a neighbour in
    /// this namespace, and once a second.
    #[track_caller]
    pub fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool + Sync) {
        let came = self.run(|| {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async { timeout(DEADLINE, self.changes_until(&condition)).await.is_ok() })
        });
        assert!(came, "in {}: still not after {DEADLINE:?}: {what}", self.name());
    }

    /// Waits until each bridge with a port that is up is up too. The kernel reports the port first, which is what
    /// plugins wait for.
    #[track_caller]
    pub fn wait_for_bridges(&self) {
        self.wait_until("bridges are up", |netns| {
            let links = netns.ip("link show");
            let is_up = |link: &&Value| link["operstate"] == "UP";
            let masters =
                links.iter().filter(is_up).map(|port| &port["master"]).filter(|name| name.is_string());
            masters.into_iter().all(|name| links.iter().filter(is_up).any(|link| link["ifname"] == *name))
        });
    }

    /// Waits until a link has its link-local IPv6 address, which is added with the carrier, and its routes.
    #[track_caller]
    pub fn wait_for_link_local(&self, link: &str) {
        let address = format!("ip -6 -o addr show dev {link} scope link -tentative");
        self.wait_until("a link has its own address", |netns| !netns.sh(&address).is_empty());
    }

    async fn changes_until(&self, condition: impl Fn(&Self) -> bool) {
        let (connection, _handle, mut events) =
            new_multicast_connection(&GROUPS).expect("listen to the kernel");
        let connection = tokio::spawn(connection);
        while !condition(self) {
            // Without an event in that time, check again.
            if let Ok(event) = timeout(LOST, events.next()).await {
                event.expect("the kernel goes on reporting");
            }
        }
        connection.abort();
    }
}
