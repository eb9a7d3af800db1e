//! A namespace's state as the kernel's answers to dumps, which is cheap to compare: a [`Snapshot`](crate::Snapshot)
//! starts eight programs for each namespace. The plugins' own netlink code is not used: its mistakes would be hidden here.

use std::fs;
use std::iter;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::libc::{
    AF_BRIDGE, AF_UNSPEC, RTM_GETADDR, RTM_GETLINK, RTM_GETNEIGH, RTM_GETQDISC, RTM_GETROUTE, RTM_GETRULE,
    RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH, RTM_NEWQDISC, RTM_NEWROUTE,
};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use nix::unistd::close;

use crate::Netns;
use crate::snapshot::{legacy, open_sysctls, traffic_control, translated, value_of};

/// The state of a namespace. Equal states have equal snapshots, unless a kernel module adds sysctls. Unequal states may
/// have equal snapshots, because the kernel counts and numbers objects that come and go.
#[derive(Debug, PartialEq)]
pub(crate) struct RawState {
    answers: Vec<Answer>,
    sysctls: Vec<u8>,
    /// What no dump has, as in a snapshot.
    texts: Vec<String>,
}

impl RawState {
    /// None: the namespace does not exist.
    pub(crate) fn of(netns: &Netns, sysctls: &Sysctls) -> Option<Self> {
        if !netns.path().exists() {
            return None;
        }
        let answers = netns.run(|| {
            [
                Dumps::open(SockProtocol::NetlinkRoute).links_and_routes(),
                Dumps::open(SockProtocol::NetlinkNetFilter).rules(),
            ]
            .concat()
        });
        let mut texts = [legacy(netns), translated(netns)].concat();
        // A filter's actions have times and counters.
        if answers.iter().any(|answer| answer.kind == RTM_NEWQDISC) {
            texts.extend(traffic_control(netns));
        }
        Some(Self { answers, sysctls: sysctls.values(), texts })
    }
}

/// The values of a namespace's sysctls: reading open files again takes a tenth of opening them all. The files are open
/// in a thread with its own descriptors, because each start of a program would copy them.
#[derive(Debug)]
pub(crate) struct Sysctls {
    requests: Sender<()>,
    values: Receiver<Vec<u8>>,
}

impl Sysctls {
    pub(crate) fn open(netns: &Netns) -> Self {
        let (requests, requested) = channel();
        let (answers, values) = channel();
        let netns = netns.clone();
        allow_many_files();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_FILES).expect("stop sharing descriptors");
            close_all();
            // In a thread that ends, because this one must not keep the namespace alive.
            let files = if netns.path().exists() { netns.run(open_sysctls) } else { Vec::new() };
            for () in requested {
                let mut all = Vec::new();
                files.iter().for_each(|file| append_value(file, &mut all));
                if answers.send(all).is_err() {
                    return;
                }
            }
        });
        Self { requests, values }
    }

    fn values(&self) -> Vec<u8> {
        self.requests.send(()).expect("the thread lives as long as this");
        self.values.recv().expect("the thread lives as long as this")
    }
}

/// Closes the calling thread's copies of all descriptors. Among them may be another thread's end of a pipe, whose reader
/// waits until all copies are closed.
fn close_all() {
    let own = fs::read_dir("/proc/thread-self/fd").expect("list descriptors");
    let open: Vec<i32> = own.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // One of them was that of the list itself.
    open.into_iter().filter(|fd| *fd > 2).for_each(|fd| close(fd).unwrap_or_default());
}

/// Appends a value, or the error in place of it.
fn append_value(file: &OwnedFd, all: &mut Vec<u8>) {
    all.extend(value_of(file).unwrap_or_else(|errno| errno.to_string().into_bytes()));
    all.push(0);
}

/// Each namespace has up to 2 000 files, and 1 024 descriptors are a usual limit.
fn allow_many_files() {
    const ENOUGH: u64 = 1 << 16;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("get a limit");
    if soft < ENOUGH {
        setrlimit(Resource::RLIMIT_NOFILE, hard.min(ENOUGH), hard).expect("set a limit");
    }
}

/// One message of a dump, without what changes by itself.
#[derive(Clone, Debug, PartialEq)]
struct Answer {
    kind: u16,
    /// Whether the kernel noticed a change during the dump.
    interrupted: bool,
    payload: Vec<u8>,
}

const NUD_PERMANENT: u8 = 0x80;

/// The subsystem of nf_tables in the type of its messages.
const NFTABLES: u16 = 10 << 8;
const NEWRULE: u16 = NFTABLES | 6;
const NEWCHAIN: u16 = NFTABLES | 3;
const NEWSET: u16 = NFTABLES | 9;
const GETSETELEM: u16 = NFTABLES | 13;
/// Tables, chains, rules, sets, objects and flowtables.
const GET_EACH: [u16; 6] =
    [NFTABLES | 1, NFTABLES | 4, NFTABLES | 7, NFTABLES | 10, NFTABLES | 19, NFTABLES | 23];
/// Attributes of a rule.
const HANDLE: u16 = 3;
const LIST_OF_EXPRESSIONS: u16 = 4;
const POSITION: u16 = 6;

/// IFLA_EXT_MASK with RTEXT_FILTER_BRVLAN and RTEXT_FILTER_SKIP_STATS.
const WITH_VLANS: [u8; 8] = [8, 0, 29, 0, 10, 0, 0, 0];

impl Answer {
    fn new(kind: u16, flags: u16, payload: &[u8]) -> Option<Self> {
        const DUMP_INTERRUPTED: u16 = 0x10;
        // After the header, all attributes except times and counters.
        let payload = match kind {
            RTM_NEWLINK => link(payload)?,
            RTM_NEWADDR => [payload.get(..8)?.to_vec(), without(&payload[8..], &[&[6]])].concat(),
            RTM_NEWROUTE => [payload.get(..12)?.to_vec(), without(&payload[12..], &[&[12]])].concat(),
            RTM_NEWNEIGH if payload.get(8)? & NUD_PERMANENT == 0 => return None,
            RTM_NEWNEIGH => [payload.get(..12)?.to_vec(), without(&payload[12..], &[&[3], &[4]])].concat(),
            // The kernel's own have the handle 0. tcm_info is a number of references.
            RTM_NEWQDISC if payload.get(8..12)? == [0; 4] => return None,
            RTM_NEWQDISC => {
                [payload.get(..16)?.to_vec(), without(&payload[20..], &[&[3], &[4], &[7]])].concat()
            }
            // Handles change if a rule is replaced by the same one.
            NEWCHAIN => [vec![payload[0]], without(payload.get(4..)?, &[&[2], &[8]])].concat(),
            NEWRULE => [vec![payload[0]], rule(payload.get(4..)?)].concat(),
            // Without the generation of the ruleset.
            _ if kind & 0xff00 == NFTABLES => [vec![payload[0]], payload.get(4..)?.to_vec()].concat(),
            _ => payload.to_vec(),
        };
        Some(Self { kind, interrupted: flags & DUMP_INTERRUPTED != 0, payload })
    }
}

/// A link without what follows the carrier (IFF_RUNNING and IFF_LOWER_UP among the flags) or changes by itself.
fn link(payload: &[u8]) -> Option<Vec<u8>> {
    const AF_SPEC: u16 = 26;
    /// The settings of IPv4 and IPv6, which are sysctls, and statistics. IPv6's token and address generation mode are
    /// not among them.
    const OF_FAMILIES: [&[u16]; 8] = [
        &[AF_SPEC, 2],
        &[AF_SPEC, 10, 1],
        &[AF_SPEC, 10, 2],
        &[AF_SPEC, 10, 3],
        &[AF_SPEC, 10, 4],
        &[AF_SPEC, 10, 5],
        &[AF_SPEC, 10, 6],
        &[AF_SPEC, 10, 9],
    ];
    /// The queueing discipline, statistics, the carrier's state and counters, and the port of a bridge, which the other
    /// dump has in `LINKINFO`.
    const IN_FLUX: [&[u16]; 9] = [&[6], &[7], &[12], &[16], &[23], &[33], &[35], &[47], &[48]];
    /// In `LINKINFO`: timers of a bridge, and of a port.
    const TIMERS: [&[u16]; 7] =
        [&[18, 2, 16], &[18, 2, 17], &[18, 2, 18], &[18, 2, 19], &[18, 5, 21], &[18, 5, 22], &[18, 5, 23]];
    let mut head = payload.get(..16)?.to_vec();
    head[8] &= !0x40;
    head[10] &= !0x01;
    let mut paths = [&IN_FLUX[..], &TIMERS].concat();
    // The dump of bridges has the VLANs there.
    if i32::from(head[0]) != AF_BRIDGE {
        paths.extend(OF_FAMILIES);
    }
    Some([head, without(&payload[16..], &paths)].concat())
}

/// Attributes with their types.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & 0x3fff;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The attributes without those at the paths, each of which is types of nested attributes.
fn without(bytes: &[u8], paths: &[&[u16]]) -> Vec<u8> {
    let mut all = Vec::new();
    for (kind, value) in attributes(bytes) {
        let inside: Vec<_> = paths.iter().filter_map(|path| path.strip_prefix(&[kind])).collect();
        if inside.contains(&&[][..]) {
            continue;
        }
        if inside.is_empty() {
            append(kind, value, &mut all)
        } else {
            append(kind, &without(value, &inside), &mut all)
        }
    }
    all
}

fn append(kind: u16, value: &[u8], to: &mut Vec<u8>) {
    to.extend(kind.to_ne_bytes());
    to.extend(value.len().to_ne_bytes());
    to.extend(value);
}

/// A rule's attributes without its handle and position, and without the values of its counters.
fn rule(bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for (kind, value) in attributes(bytes).filter(|(kind, _)| ![HANDLE, POSITION].contains(kind)) {
        if kind != LIST_OF_EXPRESSIONS {
            append(kind, value, &mut all);
        } else {
            for (_, expression) in attributes(value) {
                let counts = attributes(expression).any(|(kind, name)| kind == 1 && name == b"counter\0");
                all.extend(if counts { b"counter" } else { expression });
            }
        }
    }
    all
}

/// A netlink socket in the calling thread's namespace. None: the kernel lacks the protocol, so there is nothing to list.
struct Dumps(Option<OwnedFd>);

impl Dumps {
    fn open(protocol: SockProtocol) -> Self {
        Self(socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).ok())
    }

    /// Links, bridge VLANs, addresses, routes, rules, neighbours and queueing disciplines.
    fn links_and_routes(&self) -> Vec<Answer> {
        let link = |family: i32| {
            let mut body = vec![0; 16];
            body[0] = family.to_ne_bytes()[0];
            body.extend(WITH_VLANS);
            body
        };
        let mut all =
            [self.dump(RTM_GETLINK, &link(AF_UNSPEC)), self.dump(RTM_GETLINK, &link(AF_BRIDGE))].concat();
        for (kind, size) in
            [(RTM_GETADDR, 8), (RTM_GETROUTE, 12), (RTM_GETRULE, 12), (RTM_GETNEIGH, 12), (RTM_GETQDISC, 20)]
        {
            all.extend(self.dump(kind, &vec![0; size]));
        }
        all
    }

    /// nf_tables' objects, also the elements of sets.
    fn rules(&self) -> Vec<Answer> {
        let mut all: Vec<_> = GET_EACH.iter().flat_map(|kind| self.dump(*kind, &[0; 4])).collect();
        let sets: Vec<_> =
            all.iter().filter(|answer| answer.kind == NEWSET).map(|set| set.payload.clone()).collect();
        for set in sets {
            // The family, and NFTA_SET_TABLE and NFTA_SET_NAME, which are NFTA_SET_ELEM_LIST_TABLE and ..._SET.
            let mut body = vec![set[0], 0, 0, 0];
            for (kind, value) in attributes(&set[1..]).filter(|(kind, _)| [1, 2].contains(kind)) {
                let length = u16::try_from(4 + value.len()).expect("a short name");
                body.extend([length.to_ne_bytes(), kind.to_ne_bytes()].concat());
                body.extend(value);
                body.resize(body.len().next_multiple_of(4), 0);
            }
            all.extend(self.dump(GETSETELEM, &body));
        }
        all
    }

    /// The answers to a dump. An error is an answer too: not every kernel has every part.
    fn dump(&self, kind: u16, body: &[u8]) -> Vec<Answer> {
        const DONE: u16 = 3;
        const ERROR: u16 = 2;
        const REQUEST_DUMP: u16 = 0x301;
        let Some(socket) = &self.0 else { return Vec::new() };
        let length = u32::try_from(16 + body.len()).expect("a short request");
        let mut request = length.to_ne_bytes().to_vec();
        request.extend([kind.to_ne_bytes(), REQUEST_DUMP.to_ne_bytes()].concat());
        request.extend([0; 8]);
        request.extend(body);
        sendto(socket.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())
            .expect("send a request");
        let (mut all, mut buffer) = (Vec::new(), vec![0; 1 << 15]);
        loop {
            let length = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()).expect("receive an answer");
            let mut rest = &buffer[..length];
            while rest.len() >= 16 {
                let number = |at: usize| u16::from_ne_bytes([rest[at], rest[at + 1]]);
                let length = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
                let (kind, flags) = (number(4), number(6));
                let payload = &rest[16..length];
                match kind {
                    DONE => return all,
                    ERROR => {
                        all.extend(Answer::new(kind, flags, &payload[..4]));
                        return all;
                    }
                    _ => all.extend(Answer::new(kind, flags, payload)),
                }
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
}
