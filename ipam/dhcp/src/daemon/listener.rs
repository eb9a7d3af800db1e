//! The daemon's listening socket: systemd's or its own.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use cni::{Error, Result};
use system::socket;

use crate::log::log_line;

/// A socket that plugins connect to.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    /// Its path, if it is the daemon's own.
    own: Option<PathBuf>,
}

/// The socket that systemd passed to this process, and the path that it is bound to.
pub fn passed() -> Option<(UnixListener, Option<PathBuf>)> {
    let listener = UnixListener::from(socket::passed_on()?);
    let address = listener.local_addr().ok();
    let path = address.and_then(|address| address.as_pathname().map(Path::to_owned));
    Some((listener, path.filter(|path| path.is_absolute())))
}

/// Listens on the passed socket, or creates one at a path. No plugin could connect to a passed socket whose file was deleted,
/// for example by the reference's daemon when it exits.
///
/// # Errors
/// Code 5 if the socket cannot be created, or another process listens there.
pub fn open(passed: Option<UnixListener>, path: &Path) -> Result<Listener> {
    let failed = |e: io::Error| Error::io(format!("listen on {}", path.display()), &e);
    let (socket, own) = match passed {
        Some(passed) if !socket::is_unlinked(&passed) => (passed, None),
        passed => {
            if passed.is_some() {
                log_line(&format!(
                    "dhcp daemon: another process has deleted systemd's socket {}, so the daemon creates it again; \
                     run `systemctl restart cni-dhcp.socket`, so that plugins can wait while the daemon restarts",
                    path.display()
                ));
            }
            (own(path).map_err(failed)?, Some(path.to_owned()))
        }
    };
    socket.set_nonblocking(true).map_err(failed)?;
    Ok(Listener { socket, own })
}

fn own(path: &Path) -> io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let socket = match UnixListener::bind(path) {
        Err(e) if e.kind() == ErrorKind::AddrInUse => {
            remove_stale(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(socket)
}

/// Removes the socket of a daemon that was killed.
fn remove_stale(path: &Path) -> io::Result<()> {
    match UnixStream::connect(path) {
        Ok(_) => {
            Err(io::Error::new(ErrorKind::AddrInUse, "another daemon listens on this socket: stop it first"))
        }
        // connect(2) also refuses other files.
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
            match fs::metadata(path)?.file_type().is_socket() {
                true => fs::remove_file(path),
                false => Err(io::Error::new(
                    ErrorKind::AlreadyExists,
                    "the file is not a socket: choose another -socketpath",
                )),
            }
        }
        // Deleted in the meantime.
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

impl Listener {
    /// The next connection, if there is one.
    pub fn accept(&self) -> io::Result<Option<UnixStream>> {
        match self.socket.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Removes the daemon's own socket, so that no plugin connects any more.
    pub fn remove(&self) {
        self.own.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
