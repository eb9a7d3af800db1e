//! Waiting for the kernel: on rtnetlink's own events, never by sleeping.

use std::time::Duration;

use futures_util::StreamExt;
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::Netns;

/// So long only where what is waited for does not come.
const DEADLINE: Duration = Duration::from_secs(60);

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
    /// of a link, an address, a route or a neighbour in this namespace.
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
            events.next().await.expect("the kernel goes on reporting");
        }
        connection.abort();
    }
}
