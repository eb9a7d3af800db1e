//! Temporary containers: namespaces that exist as long as this process keeps them open. If the process is killed, GC
//! removes their resources.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cni::AddResult;
use netlink::{Link, Netlink};
use netns::NetNs;
use runtime::{AttachmentParameters, Network, Result, Runtime};
use serde_json::json;

use super::report::REMOVAL;
use super::{Outcome, Row, Test};
use crate::codes;
use crate::live::Live;

const IFNAME: &str = "eth0";

/// The port in the container that a host port is forwarded to.
pub const SERVER: u16 = 8080;

/// How long a server waits for a connection that a client has made.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(10);

/// Accepts a connection that a client has made. Something else may have answered the client.
///
/// # Errors
/// If no connection arrives in time.
pub fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Ok(stream),
            Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
            Err(_) if start.elapsed() > ACCEPT_TIMEOUT => {
                return Err(io::Error::other("the connection does not reach the container"));
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// A container that is attached to one network.
#[derive(Debug)]
pub struct Pod {
    /// `a`, `b`, or `outside`.
    pub name: &'static str,
    pub netns: NetNs,
    pub result: AddResult,
    /// The host port that is forwarded to [`SERVER`] in the container.
    pub port: Option<u16>,
    network: Network,
    attach: AttachmentParameters,
}

/// The result of an ADD.
pub enum Made {
    Pod(Box<Pod>),
    Failed(Row),
}

impl Pod {
    /// Attaches a container to the tested network.
    ///
    /// # Errors
    /// If no namespace can be created.
    pub fn attach(test: &Test<'_>, name: &'static str, port: Option<u16>) -> Result<Made> {
        Self::attach_to(test.network, test, name, port)
    }

    /// Attaches a container to another network.
    ///
    /// # Errors
    /// If no namespace can be created.
    pub fn attach_to(
        network: &Network,
        test: &Test<'_>,
        name: &'static str,
        port: Option<u16>,
    ) -> Result<Made> {
        let netns = namespace()?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", process::id(), netns.as_fd().as_raw_fd()));
        let id = id(name);
        let mut attach = AttachmentParameters::new(&id, IFNAME)?
            .netns(path)
            .arg("IgnoreUnknown", "1")
            .arg("K8S_POD_NAME", &id);
        if let Some(port) = port {
            let mapping = json!([{"hostPort": port, "containerPort": SERVER, "protocol": "tcp"}]);
            attach = attach.capability("portMappings", mapping);
        }
        let runtime = runtime(test);
        Ok(match runtime.add_or_roll_back(network, &attach) {
            Ok(added) => {
                let (network, result) = (network.clone(), added.result);
                Made::Pod(Box::new(Self { name, netns, result, port, network, attach }))
            }
            Err(e) => Made::Failed(Row::new(
                "attach",
                format!("container {name}"),
                &*network.name,
                Outcome::failed(e.to_string(), codes::remedy(&e)),
            )),
        })
    }

    /// Runs DEL. Returns a row if it fails.
    pub fn remove(self, test: &Test<'_>) -> Option<Row> {
        let error = test.settings.runtime.clone().uninterrupted().del(&self.network, &self.attach).err()?;
        let remedy = format!("run `cnitool gc {}`", self.network.name);
        let outcome = Outcome::failed(format!("DEL failed: {error}"), remedy);
        Some(Row::new(REMOVAL, self.label(), &*self.network.name, outcome))
    }

    /// The container's addresses that other containers can reach.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let is_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        self.result.ips.iter().map(|ip| ip.address.ip()).filter(move |ip| !is_local(ip))
    }

    /// Its address of an address family.
    pub fn address(&self, is_v4: bool) -> Option<IpAddr> {
        self.addresses().find(|ip| ip.is_ipv4() == is_v4)
    }

    pub fn label(&self) -> String {
        format!("container {}", self.name)
    }

    /// The current state of its namespace in the kernel.
    pub fn link(&self) -> Option<Link> {
        Live::at(self.attach.netns.as_deref()?).ok()??.link(IFNAME).cloned()
    }
}

/// A container's id, and the name of its pod.
pub fn id(name: &str) -> String {
    format!("cnitool-test-{}-{name}", process::id())
}

/// A signal stops an ADD between two plugins.
fn runtime(test: &Test<'_>) -> Runtime {
    test.settings.runtime.clone().interrupted_by(Arc::clone(&test.stopped))
}

/// A namespace without a name, whose loopback interface is up.
fn namespace() -> Result<NetNs> {
    let failed =
        |e: netns::Error| cni::Error::new(cni::Code::Internal, format!("create a network namespace: {e}"));
    let netns = NetNs::scratch(NetNs::current).map_err(failed)?.map_err(failed)?;
    let set_up = || {
        let netlink = Netlink::open()?;
        netlink.link("lo")?.map_or(Ok(()), |lo| netlink.set_up(&lo))
    };
    netns.enter(set_up).map_err(failed)?.map_err(cni::Error::from)?;
    Ok(netns)
}
