//! Packet sockets (packet(7)): IPv4 packets on one link, before the kernel's own layers see them. A link without an address gets its first one
//! this way.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, socket};

/// An instruction of a classic BPF program (`struct sock_filter` in linux/filter.h; Documentation/networking/filter.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// What to do.
    pub code: u16,
    /// How many instructions to pass over if a comparison holds.
    pub if_true: u8,
    /// How many if it does not.
    pub if_false: u8,
    /// An operand.
    pub operand: u32,
}

/// A packet socket on one link. What it sends and receives begins with the IPv4 header. It works in the namespace that it was opened in, and
/// keeps that alive. Closing it waits for a grace period of the kernel, some 15 ms.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    index: i32,
}

impl PacketSocket {
    /// Opens one in the calling thread's namespace. Nothing arrives but what the program lets through.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW, ENODEV if no link has the index, EINVAL for a program that the kernel does not take.
    pub fn open(index: u32, program: &[Instruction]) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        // Without a protocol nothing arrives before the filter is there.
        let fd = socket(AddressFamily::Packet, SockType::Datagram, flags, None)?;
        let index = i32::try_from(index).map_err(|_| Errno::ENODEV)?;
        let this = Self { fd, index };
        this.set_filter(program)?;
        this.bind()?;
        Ok(this)
    }

    /// Puts a program in the place of the one before, in one step.
    ///
    /// # Errors
    /// EINVAL for a program that the kernel does not take.
    #[allow(unsafe_code)]
    pub fn set_filter(&self, program: &[Instruction]) -> io::Result<()> {
        let len = u16::try_from(program.len()).map_err(|_| Errno::EINVAL)?;
        let filter = program.as_ptr().cast::<libc::sock_filter>().cast_mut();
        let program = libc::sock_fprog { len, filter };
        // SAFETY: the descriptor is open; `program` points at `len` instructions, which the kernel only reads, and which are laid out as its own.
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
    fn bind(&self) -> io::Result<()> {
        let address = self.address();
        // SAFETY: the descriptor is open, and the address is as long as it is said to be.
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

    /// Sends an IPv4 packet to all on the link.
    ///
    /// # Errors
    /// ENETDOWN if the link is down, ENXIO if it has gone.
    #[allow(unsafe_code)]
    pub fn broadcast(&self, packet: &[u8]) -> io::Result<()> {
        let address = self.address();
        // SAFETY: the descriptor is open; packet and address are as long as they are said to be.
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

    /// The next IPv4 packet, cut to the buffer. None: nothing has arrived.
    ///
    /// # Errors
    /// ENETDOWN if the link went down, or has gone. It is said once.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match recv(self.fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(length) => Ok(buffer.get(..length)),
            Err(Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// IPv4 on the link, for everybody.
    #[allow(unsafe_code)]
    fn address(&self) -> libc::sockaddr_ll {
        // SAFETY: all fields are numbers, for which zero is a value.
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
