//! Client of containerd's CRI service, with the requests of a kubelet. It sends gRPC through curl, and encodes the few messages itself.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use lab::Netns;

use crate::containerd::SOCKET;
use crate::host::Host;

const REQUEST: &str = "/run/lab/request";
const ANSWER: &str = "/run/lab/answer";
const HEADERS: &str = "/run/lab/headers";

/// The number of requests that this process has sent.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// A pod's sandbox: a network namespace, and a process in it. In these checks, this process serves the image's port.
#[derive(Clone, Debug, PartialEq)]
pub struct Sandbox(String);

impl Sandbox {
    pub fn id(&self) -> &str {
        &self.0
    }
}

/// A message of protocol buffers (<https://protobuf.dev/programming-guides/encoding/>).
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(u32::try_from(value.len()).expect("a short message"));
        self.0.extend(value);
        self
    }

    fn text(self, field: u32, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    fn message(self, field: u32, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }

    fn number(mut self, field: u32, value: u32) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn varint(&mut self, mut value: u32) {
        while value > 0x7f {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

const TCP: u32 = 0;
const UDP: u32 = 1;

/// The service. Several threads can use it.
pub struct Cri(Netns);

impl Cri {
    pub fn of(host: &Host) -> Self {
        Self(host.lab.host().clone())
    }

    /// RunPodSandbox, with a host port of both protocols.
    pub fn try_run_pod(&self, name: &str, port: u32) -> Result<Sandbox, String> {
        let metadata = Message::default().text(1, name).text(2, name).text(3, "default");
        let mut config = Message::default().message(1, &metadata).text(2, name).text(3, "/run/lab/logs");
        for (protocol, inside) in [(TCP, 80), (UDP, 53)] {
            let mapping = Message::default().number(1, protocol).number(2, inside).number(3, port);
            config = config.message(5, &mapping);
        }
        let config = config.message(8, &Message::default());
        let answer = self.ask("RunPodSandbox", &Message::default().message(1, &config))?;
        Ok(sandboxes(&answer).pop().expect("a sandbox's id"))
    }

    #[track_caller]
    pub fn runs_pod(&self, name: &str, port: u32) -> Sandbox {
        self.try_run_pod(name, port).unwrap_or_else(|why| panic!("run pod {name}: {why}"))
    }

    pub fn try_stop_pod(&self, sandbox: &Sandbox) -> Result<(), String> {
        self.ask("StopPodSandbox", &Message::default().text(1, &sandbox.0)).map(drop)
    }

    /// Stops and removes a pod, as a kubelet does.
    #[track_caller]
    pub fn removes_pod(&self, sandbox: &Sandbox) {
        self.try_stop_pod(sandbox).unwrap_or_else(|why| panic!("stop {sandbox:?}: {why}"));
        let request = Message::default().text(1, &sandbox.0);
        self.ask("RemovePodSandbox", &request).unwrap_or_else(|why| panic!("remove {sandbox:?}: {why}"));
    }

    /// All pods that containerd lists.
    #[track_caller]
    pub fn pods(&self) -> Vec<Sandbox> {
        sandboxes(&self.ask("ListPodSandbox", &Message::default()).expect("list the pods"))
    }

    /// Whether containerd has read the configuration of the network.
    pub fn has_a_network(&self) -> bool {
        self.ask("Status", &Message::default())
            .is_ok_and(|answer| !contains(&answer, b"NetworkPluginNotReady"))
    }

    fn ask(&self, method: &str, message: &Message) -> Result<Vec<u8>, String> {
        let length = u32::try_from(message.0.len()).expect("a short message").to_be_bytes();
        let request = [&[0], &length[..], &message.0].concat();
        // Separate files, because several requests may run concurrently.
        let number = REQUESTS.fetch_add(1, Ordering::Relaxed);
        let [request_file, answer, headers] =
            [REQUEST, ANSWER, HEADERS].map(|file| format!("{file}.{number}"));
        fs::write(&request_file, request).expect("write a request");
        fs::write(&answer, "").expect("empty the answer");
        let url = format!("http://localhost/runtime.v1.RuntimeService/{method}");
        let curl = format!(
            "timeout 300 curl --silent --show-error --http2-prior-knowledge --unix-socket {SOCKET} --header content-type:application/grpc \
             --header te:trailers --data-binary @{request_file} --dump-header {headers} --output {answer} {url}"
        );
        let output = self.0.try_exec(&curl.split_whitespace().collect::<Vec<_>>());
        let received = fs::read_to_string(headers).unwrap_or_default();
        if output.status.success() && received.lines().any(|line| line.trim() == "grpc-status: 0") {
            Ok(fs::read(answer).expect("read the answer"))
        } else {
            Err(format!("{received}{}", String::from_utf8_lossy(&output.stderr)))
        }
    }
}

/// The ids in an answer. Only ids have 64 hexadecimal digits.
fn sandboxes(answer: &[u8]) -> Vec<Sandbox> {
    let words = answer.split(|byte| !byte.is_ascii_hexdigit());
    words
        .filter(|word| word.len() >= 64)
        .map(|word| Sandbox(String::from_utf8_lossy(&word[..64]).into()))
        .collect()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
