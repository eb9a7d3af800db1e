//! Packet sockets (packet(7)): IPv4 packets on a link, below the kernel's IP layer. A link without an address uses them to get its first
//! one.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, socket};

/// Instruction of a classic BPF program (`struct sock_filter` in linux/filter.h; Documentation/networking/filter.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// Operation code.
    pub code: u16,
    /// Instructions to skip if a comparison is true.
    pub if_true: u8,
    /// Instructions to skip if it is false.
    pub if_false: u8,
    /// Operand.
    pub operand: u32,
}

/// A packet socket on one link. Packets begin with the IPv4 header. The socket keeps its namespace alive. Closing it waits for an RCU grace
/// period, some 15 ms.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    index: i32,
}

impl PacketSocket {
    /// Opens a socket in the calling thread's namespace. It receives only packets that the filter program accepts.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW, ENODEV if no link has the index, EINVAL for an invalid program.
    pub fn open(index: u32, program: &[Instruction]) -> io::Result<Self> {
        Self::open_for(index, program, libc::ETH_P_IP)
    }

    /// Like [`PacketSocket::open`], also on a port of a bridge. The bridge takes a packet before sockets of its protocol get it, but after
    /// sockets of all protocols. Such a socket may receive packets that are not IPv4.
    ///
    /// # Errors
    /// As for [`PacketSocket::open`].
    pub fn open_on_port(index: u32, program: &[Instruction]) -> io::Result<Self> {
        Self::open_for(index, program, libc::ETH_P_ALL)
    }

    /// Opens a socket that receives nothing, because it has no protocol. It needs no filter, whose memory a container can limit (`net.core.optmem_max`).
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW.
    pub fn open_to_send(index: u32) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Packet, SockType::Datagram, flags, None)?;
        Ok(Self { fd, index: i32::try_from(index).map_err(|_| Errno::ENODEV)? })
    }

    fn open_for(index: u32, program: &[Instruction], protocol: i32) -> io::Result<Self> {
        let this = Self::open_to_send(index)?;
        this.set_filter(program)?;
        this.bind(protocol)?;
        Ok(this)
    }

    /// Replaces the filter program in one step.
    ///
    /// # Errors
    /// EINVAL for an invalid program.
    #[allow(unsafe_code)]
    pub fn set_filter(&self, program: &[Instruction]) -> io::Result<()> {
        let len = u16::try_from(program.len()).map_err(|_| Errno::EINVAL)?;
        let filter = program.as_ptr().cast::<libc::sock_filter>().cast_mut();
        let program = libc::sock_fprog { len, filter };
        // SAFETY: the descriptor is open; `program` points at `len` instructions with the kernel's layout, which the kernel only reads.
        let outcome = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const program).cast(),
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        };
        Errno::result(outcome)?;
        Ok(())
    }

    #[allow(unsafe_code)]
    fn bind(&self, protocol: i32) -> io::Result<()> {
        let address = libc::sockaddr_ll { sll_protocol: (protocol as u16).to_be(), ..self.address() };
        // SAFETY: the descriptor is open, and the address has the given length.
        let outcome = unsafe {
            libc::bind(
                self.fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        Errno::result(outcome)?;
        Ok(())
    }

    /// Broadcasts an IPv4 packet on the link.
    ///
    /// # Errors
    /// ENETDOWN if the link is down, ENXIO if it no longer exists.
    #[allow(unsafe_code)]
    pub fn broadcast(&self, packet: &[u8]) -> io::Result<()> {
        let address = self.address();
        // SAFETY: the descriptor is open; packet and address have the given lengths.
        let outcome = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                0,
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        Errno::result(outcome)?;
        Ok(())
    }

    /// Receives the next IPv4 packet, truncated to the buffer. `None` if there is none.
    ///
    /// # Errors
    /// ENETDOWN once, if the link went down or was deleted.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match recv(self.fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(length) => Ok(buffer.get(..length)),
            Err(Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The broadcast address of IPv4 on the link.
    #[allow(unsafe_code)]
    fn address(&self) -> libc::sockaddr_ll {
        // SAFETY: all fields are numbers, for which zero is valid.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as libc::sa_family_t;
        address.sll_protocol = (libc::ETH_P_IP as u16).to_be();
        address.sll_ifindex = self.index;
        address.sll_halen = 6;
        address.sll_addr = [0xff; 8];
        address
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
