//! Waiting: for the kernel on rtnetlink's own events, for all else by looking again.

use std::thread;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rtnetlink::{MulticastGroup, new_multicast_connection};
use serde_json::Value;
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::Netns;

/// So long only where what is waited for does not come.
const DEADLINE: Duration = Duration::from_secs(600);

/// How long an event is waited for: the kernel drops those that there is no room for.
const LOST: Duration = Duration::from_secs(1);

const GROUPS: [MulticastGroup; 6] = [
    MulticastGroup::Link,
    MulticastGroup::Neigh,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

/// Looks again and again, for what no event tells.
#[track_caller]
pub fn until(what: &str, condition: impl Fn() -> bool) {
    until_within(DEADLINE, what, condition);
}

/// The same for a promise that names a time: the limit is several times as long, since the machine may be busy.
#[track_caller]
pub fn until_within(limit: Duration, what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "still not after {limit:?}: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

impl Netns {
    /// Waits until `condition` holds: it is looked at now, and again after each change that the kernel reports
    /// of a link, an address, a route or a neighbour in this namespace, and once a second.
    #[track_caller]
    pub fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool + Sync) {
        let came = self.run(|| {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async { timeout(DEADLINE, self.changes_until(&condition)).await.is_ok() })
        });
        assert!(came, "in {}: still not after {DEADLINE:?}: {what}", self.name());
    }

    /// Waits until each bridge with a port that is up is so itself. The kernel says it of the port first, for which plugins wait.
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

    /// Waits until a link has its own IPv6 address, which comes with the carrier, and routes with it.
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
            // None within that time: it is looked at all the same.
            if let Ok(event) = timeout(LOST, events.next()).await {
                event.expect("the kernel goes on reporting");
            }
        }
        connection.abort();
    }
}
