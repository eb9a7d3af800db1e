//! Taps: links that exchange frames with a program. Requests to `/dev/net/tun` create them (Documentation/networking/tuntap.rst); netlink
//! changes, reads and deletes them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::libc::{self, Ioctl, c_int, c_ulong};

use crate::Result;
use crate::error::RequestError;

/// The device that creates taps.
pub const DEVICE: &str = "/dev/net/tun";

/// `struct ifreq`, up to the fields that the kernel uses here.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: u16,
    rest: [u8; 22],
}

/// An open device. Its tap exists as long as this value, unless it is [persistent](Tun::persist).
#[derive(Debug)]
pub struct Tun {
    device: File,
}

impl Tun {
    /// Opens the device. Its taps are in the calling thread's network namespace.
    ///
    /// # Errors
    /// If the device does not exist or cannot be opened.
    pub fn open() -> io::Result<Self> {
        // Do not block on a FIFO in its place.
        let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)?;
        Ok(Self { device })
    }

    /// Creates a tap, down. It gets the SELinux context of the process.
    ///
    /// # Errors
    /// EBUSY if the name exists; other errors if the kernel refuses.
    pub fn create(&self, name: &str, multi_queue: bool) -> Result<()> {
        self.attach(name, flags(multi_queue) | libc::IFF_TUN_EXCL).map_err(|r| r.during("create tap", name))
    }

    /// Opens a queue of an existing tap, as the program behind it does.
    ///
    /// # Errors
    /// EBUSY if other programs have all queues; other errors if the kernel refuses.
    pub fn open_queue(&self, name: &str, multi_queue: bool) -> Result<()> {
        self.attach(name, flags(multi_queue)).map_err(|r| r.during("open a queue of tap", name))
    }

    /// Allows a user to open the tap without CAP_NET_ADMIN.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_owner(&self, user: u32) -> Result<()> {
        self.set(libc::TUNSETOWNER, user).map_err(|r| r.during("set the tap's owner to user", user))
    }

    /// Allows a group to open the tap without CAP_NET_ADMIN.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_group(&self, group: u32) -> Result<()> {
        self.set(libc::TUNSETGROUP, group).map_err(|r| r.during("set the tap's group to", group))
    }

    /// Keeps the tap when the device is closed.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn persist(&self) -> Result<()> {
        self.set(libc::TUNSETPERSIST, 1).map_err(|r| r.during("make the tap", "persistent"))
    }

    #[allow(unsafe_code)]
    fn attach(&self, name: &str, flags: c_int) -> Result<(), RequestError> {
        let mut request = Request { name: [0; libc::IFNAMSIZ], flags: flags as u16, rest: [0; 22] };
        if name.len() >= request.name.len() {
            return Err(Errno::ENAMETOOLONG.into());
        }
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: the descriptor is open, and the request is at least as large as `struct ifreq`, which the kernel reads and writes.
        let outcome = unsafe { libc::ioctl(self.device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        Ok(Errno::result(outcome).map(drop)?)
    }

    #[allow(unsafe_code)]
    fn set(&self, request: Ioctl, value: u32) -> Result<(), RequestError> {
        // SAFETY: the descriptor is open, and these requests take a number, not a pointer.
        let outcome = unsafe { libc::ioctl(self.device.as_raw_fd(), request, c_ulong::from(value)) };
        Ok(Errno::result(outcome).map(drop)?)
    }
}

/// Frames without a preceding `struct tun_pi`. Other flags are the program's choice.
fn flags(multi_queue: bool) -> c_int {
    libc::IFF_TAP | libc::IFF_NO_PI | if multi_queue { libc::IFF_MULTI_QUEUE } else { 0 }
}

/// A device opened by another process.
impl From<OwnedFd> for Tun {
    fn from(device: OwnedFd) -> Self {
        Self { device: device.into() }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
