//! Taps: links whose frames go to a program and come from one. They are made by requests to `/dev/net/tun`
//! (Documentation/networking/tuntap.rst); netlink changes, describes and deletes them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::libc::{self, Ioctl, c_int, c_ulong};

use crate::Result;
use crate::error::RequestError;

/// What taps are made through.
pub const DEVICE: &str = "/dev/net/tun";

/// `struct ifreq`, as far as the kernel looks at it here.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: u16,
    rest: [u8; 22],
}

/// An open device. The tap that is made through it lives as long as this, unless it is made [persistent](Tun::persist).
#[derive(Debug)]
pub struct Tun {
    device: File,
}

impl Tun {
    /// Opens the device. What is made through it is in the network namespace that the calling thread is in now.
    ///
    /// # Errors
    /// What the file system says: there is no such device, or it may not be opened.
    pub fn open() -> io::Result<Self> {
        // Whatever is in the device's place is not waited for.
        let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)?;
        Ok(Self { device })
    }

    /// Makes a tap, down. Its creator's SELinux context is the tap's.
    ///
    /// # Errors
    /// EBUSY if the name is taken; else what the kernel refuses.
    pub fn create(&self, name: &str, multi_queue: bool) -> Result<()> {
        self.attach(name, flags(multi_queue) | libc::IFF_TUN_EXCL).map_err(|r| r.during("create tap", name))
    }

    /// Opens a queue of a tap that is there, as the program behind it does: no plugin is one.
    ///
    /// # Errors
    /// EBUSY if others have all of its queues; else what the kernel refuses.
    pub fn open_queue(&self, name: &str, multi_queue: bool) -> Result<()> {
        self.attach(name, flags(multi_queue)).map_err(|r| r.during("open a queue of tap", name))
    }

    /// Lets a user open the tap without CAP_NET_ADMIN.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn set_owner(&self, user: u32) -> Result<()> {
        self.set(libc::TUNSETOWNER, user).map_err(|r| r.during("set the tap's owner to user", user))
    }

    /// Lets a group's members open the tap without CAP_NET_ADMIN.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn set_group(&self, group: u32) -> Result<()> {
        self.set(libc::TUNSETGROUP, group).map_err(|r| r.during("set the tap's group to", group))
    }

    /// The tap stays when the device is closed.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn persist(&self) -> Result<()> {
        self.set(libc::TUNSETPERSIST, 1).map_err(|r| r.during("make persistent", "the tap"))
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
        // SAFETY: the descriptor is open, and these requests take a number, no pointer.
        let outcome = unsafe { libc::ioctl(self.device.as_raw_fd(), request, c_ulong::from(value)) };
        Ok(Errno::result(outcome).map(drop)?)
    }
}

/// Frames as they are, without `struct tun_pi` before them. All else is up to the program behind the tap.
fn flags(multi_queue: bool) -> c_int {
    libc::IFF_TAP | libc::IFF_NO_PI | if multi_queue { libc::IFF_MULTI_QUEUE } else { 0 }
}

/// A device that somebody else has opened.
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
