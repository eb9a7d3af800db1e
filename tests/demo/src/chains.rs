//! The demonstration's networks. The test of the demonstration reads this file, too.

use serde_json::{Value, json};

/// The sysctl value that tuning sets.
pub const BACKLOG: &str = "500";

/// The network of the containers on one machine.
pub fn of_the_containers() -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "demo",
        "plugins": [
            {"type": "loopback"},
            {
                "type": "bridge",
                "bridge": "cni0",
                "isDefaultGateway": true,
                "ipMasq": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]],
                },
            },
            {
                "type": "tuning",
                "sysctl": {"net.core.somaxconn": BACKLOG},
                "capabilities": {"mac": true},
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

/// The network of the pods on two machines.
pub fn of_the_machines() -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "cbr0",
        "plugins": [
            {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}
