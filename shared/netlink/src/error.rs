//! Errors of requests to the kernel.

use std::fmt::{self, Display};
use std::io;

use nix::errno::Errno;

/// The kernel's internal number for "not supported" (include/linux/errno.h), which some drivers return to programs.
const ENOTSUPP: i32 = 524;

/// A failed request, without its operation and object.
#[derive(Debug)]
pub struct RequestError {
    cause: io::Error,
    kernel_text: Option<String>,
    answered: bool,
}

impl RequestError {
    /// With the kernel's explanation, if there is one (the extended ACK's NLMSGERR_ATTR_MSG).
    pub fn new(cause: io::Error, kernel_text: Option<String>) -> Self {
        let is_unnamed = cause.raw_os_error() == Some(ENOTSUPP);
        let cause = if is_unnamed { Errno::EOPNOTSUPP.into() } else { cause };
        Self { cause, kernel_text, answered: true }
    }

    /// An error that the kernel did not report.
    pub(crate) fn own(kind: io::ErrorKind, text: impl Into<String>) -> Self {
        Self::new(io::Error::new(kind, text.into()), None)
    }

    /// Adds the operation, and the object that it was for.
    pub fn during(self, operation: &'static str, subject: impl Display) -> Error {
        Error { operation, subject: subject.to_string(), request: self }
    }

    /// Marks the error as not being the kernel's answer: the request was not sent, or its answer was lost.
    pub(crate) fn unanswered(self) -> Self {
        Self { answered: false, ..self }
    }

    /// The kernel's error number.
    pub fn errno(&self) -> Option<Errno> {
        self.cause.raw_os_error().map(Errno::from_raw)
    }

    /// Whether the same request may succeed later: the objects kept changing, or the kernel returned EAGAIN.
    pub fn is_temporary(&self) -> bool {
        self.cause.kind() == io::ErrorKind::WouldBlock
    }
}

impl From<Errno> for RequestError {
    fn from(errno: Errno) -> Self {
        Self::new(errno.into(), None)
    }
}

/// A failed operation on a kernel object.
#[derive(Debug)]
pub struct Error {
    operation: &'static str,
    subject: String,
    request: RequestError,
}

impl Error {
    /// The kernel's error number.
    pub fn errno(&self) -> Option<Errno> {
        self.request.errno()
    }

    /// The kernel's explanation.
    pub fn kernel_text(&self) -> Option<&str> {
        self.request.kernel_text.as_deref()
    }

    /// Whether the kernel's answer is unknown: it may have executed the request.
    pub fn is_unanswered(&self) -> bool {
        !self.request.answered
    }

    /// Marks the kernel's answer to an earlier request as unknown.
    pub(crate) fn unanswered(self) -> Self {
        Self { request: self.request.unanswered(), ..self }
    }

    /// Whether the object already exists.
    pub fn is_exists(&self) -> bool {
        !self.is_unanswered() && self.errno() == Some(Errno::EEXIST)
    }

    /// Whether the object does not exist.
    pub fn is_missing(&self) -> bool {
        !self.is_unanswered()
            && matches!(
                self.errno(),
                Some(Errno::ENOENT | Errno::ENODEV | Errno::ESRCH | Errno::ENXIO | Errno::EADDRNOTAVAIL)
            )
    }

    /// Whether the kernel does not accept the value for this object.
    pub fn is_invalid(&self) -> bool {
        matches!(self.errno(), Some(Errno::EINVAL | Errno::ERANGE))
    }

    /// Whether the kernel was built without the feature.
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

/// The message contains the cause. `source` returns it only if the request may succeed later, for which there is an error code.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.request.is_temporary().then_some(&self.request.cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_number_for_unsupported_has_a_name() {
        let cause = io::Error::from_raw_os_error(ENOTSUPP);
        let error = RequestError::new(cause, None).during("create", "ipvlan eth0");
        assert!(error.is_unsupported());
        assert_eq!(error.to_string(), "create ipvlan eth0: Operation not supported on transport endpoint");
    }
}
