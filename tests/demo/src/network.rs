//! The demonstration's network, and the runtime's part.

use std::path::Path;
use std::time::Instant;

use cni::AddResult;
use lab::{Container, under_test};
use runtime::{AttachmentParameters, Cache, Network, Runtime};
use serde_json::json;

use crate::{chains, show};

pub const IFNAME: &str = "eth0";
/// The MAC that tuning sets for web: a locally administered one.
pub const MAC: &str = "0a:00:00:00:00:42";
/// Host port and container port.
pub const TCP: (u16, u16) = (8080, 80);
pub const UDP: (u16, u16) = (5353, 53);
/// The runtime's cache, in the lab's private /run.
pub const CACHE: &str = "/run/demo";

pub struct Demo {
    network: Network,
    runtime: Runtime,
}

/// An attached container, with its calls and its result.
pub struct Attached {
    pub container: Container,
    pub result: AddResult,
    attach: AttachmentParameters,
}

impl Demo {
    pub fn new() -> Self {
        let network = chains::of_the_containers().to_string();
        let network = Network::from_bytes(network.as_bytes()).expect("a network's configuration");
        let runtime = Runtime::new([under_test().dir.as_path()]).cache(Cache::new(Path::new(CACHE)));
        Self { network, runtime }
    }

    pub fn plugins(&self) -> String {
        let names: Vec<_> = self.network.plugins.iter().map(|plugin| plugin.kind.as_str()).collect();
        names.join(", ")
    }

    pub fn add(&self, container: Container) -> Attached {
        let attach = AttachmentParameters::new(&container.id, IFNAME).expect("names that the protocol takes");
        let mut attach = attach.netns(container.path());
        if container.id == "web" {
            let port = |(host, inside), protocol| json!({"hostPort": host, "containerPort": inside, "protocol": protocol});
            attach = attach.capability("portMappings", json!([port(TCP, "tcp"), port(UDP, "udp")]));
            attach = attach.capability("mac", json!(MAC));
        }
        let start = Instant::now();
        let result = self.runtime.add(&self.network, &attach).expect("ADD");
        println!("  {:4} attached in {:.1} ms", container.id, start.elapsed().as_secs_f64() * 1e3);
        Attached { container, result, attach }
    }

    pub fn check(&self, one: &Attached) {
        self.runtime.check(&self.network, &one.attach).expect("CHECK");
        println!("  {:4} {}", one.container.id, show::good("is as ADD made it"));
    }

    pub fn del(&self, one: &Attached) {
        self.runtime.del(&self.network, &one.attach).expect("DEL");
        println!("  {:4} {}", one.container.id, show::good("detached"));
    }
}

impl Attached {
    /// Its addresses, IPv4 first.
    pub fn addresses(&self) -> Vec<std::net::IpAddr> {
        let own = |ip: &&cni::IpConfig| !ip.address.ip().is_loopback();
        let mut addresses: Vec<_> = self.result.ips.iter().filter(own).map(|ip| ip.address.ip()).collect();
        addresses.sort();
        addresses
    }
}
