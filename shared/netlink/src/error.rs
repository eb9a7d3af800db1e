//! What the kernel refused.

use std::fmt::{self, Display};
use std::io;

use nix::errno::Errno;

/// The kernel's own number for "not supported" (include/linux/errno.h). Programs should never see it, and some drivers return it.
const ENOTSUPP: i32 = 524;

/// Why a request failed, before it is known what it was for.
#[derive(Debug)]
pub struct RequestError {
    cause: io::Error,
    kernel_text: Option<String>,
    answered: bool,
}

impl RequestError {
    /// With the kernel's explanation, if it gave one (the extended ACK's NLMSGERR_ATTR_MSG).
    pub fn new(cause: io::Error, kernel_text: Option<String>) -> Self {
        let is_unnamed = cause.raw_os_error() == Some(ENOTSUPP);
        let cause = if is_unnamed { Errno::EOPNOTSUPP.into() } else { cause };
        Self { cause, kernel_text, answered: true }
    }

    /// What was not the kernel's doing.
    pub(crate) fn own(kind: io::ErrorKind, text: impl Into<String>) -> Self {
        Self::new(io::Error::new(kind, text.into()), None)
    }

    /// Says what the request was for: an operation, and the object it was on.
    pub fn during(self, operation: &'static str, subject: impl Display) -> Error {
        Error { operation, subject: subject.to_string(), request: self }
    }

    /// Says that it is not the kernel's answer to the request: that was not sent, or its answer was lost.
    pub(crate) fn unanswered(self) -> Self {
        Self { answered: false, ..self }
    }

    /// The kernel's error number, if it is one of the kernel.
    pub fn errno(&self) -> Option<Errno> {
        self.cause.raw_os_error().map(Errno::from_raw)
    }

    /// Whether the same request may succeed later: what it reads kept changing, or the kernel said EAGAIN.
    pub fn is_temporary(&self) -> bool {
        self.cause.kind() == io::ErrorKind::WouldBlock
    }
}

impl From<Errno> for RequestError {
    fn from(errno: Errno) -> Self {
        Self::new(errno.into(), None)
    }
}

/// An operation on a kernel object that failed.
#[derive(Debug)]
pub struct Error {
    operation: &'static str,
    subject: String,
    request: RequestError,
}

impl Error {
    /// The kernel's error number, if it is one of the kernel.
    pub fn errno(&self) -> Option<Errno> {
        self.request.errno()
    }

    /// The kernel's explanation, if it gave one.
    pub fn kernel_text(&self) -> Option<&str> {
        self.request.kernel_text.as_deref()
    }

    /// Whether the kernel's answer is not known: the request may have been carried out all the same.
    pub fn is_unanswered(&self) -> bool {
        !self.request.answered
    }

    /// Says that the kernel's answer to an earlier request is what is not known.
    pub(crate) fn unanswered(self) -> Self {
        Self { request: self.request.unanswered(), ..self }
    }

    /// Whether what was to be made is there already.
    pub fn is_exists(&self) -> bool {
        !self.is_unanswered() && self.errno() == Some(Errno::EEXIST)
    }

    /// Whether what was to be changed or removed is not there.
    pub fn is_missing(&self) -> bool {
        !self.is_unanswered()
            && matches!(
                self.errno(),
                Some(Errno::ENOENT | Errno::ENODEV | Errno::ESRCH | Errno::ENXIO | Errno::EADDRNOTAVAIL)
            )
    }

    /// Whether the value asked for is not one that the object can have.
    pub fn is_invalid(&self) -> bool {
        matches!(self.errno(), Some(Errno::EINVAL | Errno::ERANGE))
    }

    /// Whether the kernel was built without what was asked for.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.errno(), Some(Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT | Errno::EPROTONOSUPPORT))
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.operation, self.subject)?;
        match self.errno() {
            Some(errno) => f.write_str(errno.desc())?,
            None => self.request.cause.fmt(f)?,
        }
        match (self.kernel_text(), self.errno()) {
            (Some(text), _) => write!(f, " ({text})"),
            (None, Some(Errno::EPERM)) => f.write_str(
                " (requires CAP_NET_ADMIN in the user namespace that the network namespace belongs to)",
            ),
            (None, _) => Ok(()),
        }
    }
}

/// The cause is part of the message. It is named only if the request may succeed later, for which there is an error code.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.request.is_temporary().then_some(&self.request.cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drivers_call_unsupported_has_a_name() {
        let cause = io::Error::from_raw_os_error(ENOTSUPP);
        let error = RequestError::new(cause, None).during("create", "ipvlan eth0");
        assert!(error.is_unsupported());
        assert_eq!(error.to_string(), "create ipvlan eth0: Operation not supported on transport endpoint");
    }
}
