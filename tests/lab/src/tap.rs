//! A program behind a tap, such as a virtual machine, that answers for one address.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use netlink::Tun;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use crate::Netns;

/// The virtual machine's hardware address.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x77];

/// The length of the header in front of each frame of a macvtap (`struct virtio_net_hdr`, include/uapi/linux/virtio_net.h).
const VNET_HEADER: usize = 10;

/// Polling interval for the end of the machine, in milliseconds.
const TICK: u8 = 100;

/// How long another process may have a copy of a queue's descriptor.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A machine behind a tap, until it is dropped.
#[derive(Debug)]
pub struct Behind {
    stop: Arc<AtomicBool>,
    queues: Vec<JoinHandle<()>>,
}

impl Behind {
    /// A thread for each queue. `header` is the number of bytes before each frame.
    fn start(queues: impl IntoIterator<Item = File>, address: Ipv4Addr, header: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let serve = |device| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || serve(device, address, header, &stop))
        };
        let queues = queues.into_iter().map(serve).collect();
        Self { stop, queues }
    }
}

impl Netns {
    /// Opens an existing tap, and answers ARP and echo requests for this address. `queues`: None for a tap with a
    /// single queue, otherwise the number of threads that read one queue each.
    pub fn machine_behind(&self, tap: &str, queues: Option<usize>, address: Ipv4Addr) -> Behind {
        let open = |_| {
            let tun = self.open_queue(tap, queues.is_some());
            File::from(tun.as_fd().try_clone_to_owned().expect("a second handle"))
        };
        Behind::start((0..queues.unwrap_or(1)).map(open), address, 0)
    }

    /// The same for a macvtap, whose MAC must be 02:00:00:00:00:77.
    pub fn machine_behind_macvtap(&self, link: &str, address: Ipv4Addr) -> Behind {
        let numbers = self.sh(&format!(
            "unshare -m sh -ec 'mount -t sysfs sysfs /sys; cat /sys/class/net/{link}/tap*/dev'"
        ));
        let (major, minor) = numbers.trim().split_once(':').expect("MAJOR:MINOR");
        // Device nodes work on the lab's file system, while /tmp may be mounted with `nodev`.
        let node = format!("/run/lab/macvtap-{minor}");
        self.sh(&format!("mknod {node} c {major} {minor}"));
        let device = File::options().read(true).write(true).open(&node).expect("open the macvtap");
        fs::remove_file(&node).expect("remove the node");
        Behind::start([device], address, VNET_HEADER)
    }

    /// A queue is closed only with the last copy of its descriptor. A process that another test starts has copies of
    /// all descriptors until its execve(2). An earlier machine's queue may therefore be busy for a moment after the
    /// machine stopped.
    fn open_queue(&self, tap: &str, multi_queue: bool) -> Tun {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let tun = self.run(Tun::open).expect("open the device of taps");
            match tun.open_queue(tap, multi_queue) {
                Ok(()) => return tun,
                Err(e) if e.errno() == Some(Errno::EBUSY) && Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(TICK.into()));
                }
                Err(e) => panic!("cannot open a queue of tap {tap}: {e}"),
            }
        }
    }
}

fn serve(mut device: File, address: Ipv4Addr, header: usize, stop: &AtomicBool) {
    let mut frame = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        let waited = poll(&mut [PollFd::new(device.as_fd(), PollFlags::POLLIN)], TICK);
        if waited.is_ok_and(|ready| ready > 0)
            && let Ok(length) = device.read(&mut frame)
            && let Some(reply) = answer(&frame[header..length], address)
        {
            // A tap that was set down meanwhile accepts no frame.
            let _ = device.write(&[vec![0; header], reply].concat());
        }
    }
}

/// The answer to a frame, if it is an ARP request (RFC 826) or an ICMP echo request (RFC 792) for the address.
fn answer(frame: &[u8], address: Ipv4Addr) -> Option<Vec<u8>> {
    let mut reply = frame.to_vec();
    let (arp, echo) = (&[8, 6], &[8, 0]);
    let kind = frame.get(12..14)?;
    if kind == arp && frame.get(20..22)? == [0, 1] && frame.get(38..42)? == address.octets() {
        reply[21] = 2;
        reply.copy_within(22..32, 32);
        reply[22..28].copy_from_slice(&MAC);
        reply[28..32].copy_from_slice(&address.octets());
    } else if kind == echo && frame.get(30..34)? == address.octets() && is_echo_request(frame)? {
        reply.copy_within(26..30, 30);
        reply[26..30].copy_from_slice(&address.octets());
        // The type changes from 8 to 0, and the checksum by the same amount.
        reply[34] = 0;
        let sum = u32::from(u16::from_be_bytes([frame[36], frame[37]])) + 0x0800;
        reply[36..38].copy_from_slice(&((sum + (sum >> 16)) as u16).to_be_bytes());
    } else {
        return None;
    }
    reply.copy_within(6..12, 0);
    reply[6..12].copy_from_slice(&MAC);
    Some(reply)
}

/// An IPv4 header without options, ICMP, and type 8.
fn is_echo_request(frame: &[u8]) -> Option<bool> {
    Some((frame[14], frame[23], *frame.get(34..38)?.first()?) == (0x45, 1, 8))
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for queue in self.queues.drain(..) {
            // A panic in the thread has been printed already.
            let _ = queue.join();
        }
    }
}
