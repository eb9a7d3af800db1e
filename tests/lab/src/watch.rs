//! Waiting for the kernel: on rtnetlink's own events.

use std::time::Duration;

use futures_util::StreamExt;
use rtnetlink::{MulticastGroup, new_multicast_connection};
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
