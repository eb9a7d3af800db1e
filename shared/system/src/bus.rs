//! Minimal D-Bus client: calls a method of a service on this host and waits for the answer.
//!
//! It supports the three firewalld calls that are needed. Arguments are strings; the answer is a string, a boolean or nothing.
//!
//! # References
//! The D-Bus specification: "Authentication Protocol", "Message Protocol", "Server Addresses".

mod address;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod message;

use std::error::Error;
use std::fmt::{self, Display};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use address::Address;
pub use message::{Answer, Call};
use message::{Head, Outcome};

/// Timeout for answers of the bus itself. Longer in tests, because a busy machine delays the fake bus.
const TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 600 } else { 5 });

/// Maximum length of an authentication line in bytes (the reference implementation accepts 16 KiB).
const LINE_MAX: usize = 16 << 10;

/// The bus's own interface.
const BUS: Call<'static> = Call {
    destination: "org.freedesktop.DBus",
    path: "/org/freedesktop/DBus",
    interface: "org.freedesktop.DBus",
    member: "Hello",
    arguments: &[],
};

/// A connection to the system bus.
#[derive(Debug)]
pub struct Bus {
    stream: BufReader<UnixStream>,
    serial: u32,
}

/// A call without an answer.
#[derive(Debug)]
pub enum BusError {
    /// The connection failed, or the timeout passed.
    Io(io::Error),
    /// The bytes do not follow the specification. The connection is unusable.
    Malformed(&'static str),
    /// The bus refuses the user of this process, for example root of a user namespace, who has another uid outside.
    Rejected {
        /// The uid of this process.
        uid: u32,
    },
    /// The service answered with an error.
    Refused {
        /// The error's name, such as `org.freedesktop.DBus.Error.AccessDenied`.
        name: String,
        /// The service's message, may be empty.
        message: String,
    },
}

impl Display for BusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) if e.kind() == ErrorKind::TimedOut => f.write_str("no answer came in time"),
            Self::Io(e) => e.fmt(f),
            Self::Malformed(what) => write!(f, "the answer is not D-Bus: {what}"),
            Self::Rejected { uid } => write!(f, "the bus does not let user {uid} of this user namespace in"),
            Self::Refused { name, message } if message.is_empty() => f.write_str(name),
            Self::Refused { name, message } => write!(f, "{name}: {message}"),
        }
    }
}

impl Error for BusError {}

impl BusError {
    /// Whether this process may not use the bus: its user, or a policy of the host, forbids it.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Rejected { .. } => true,
            Self::Io(e) => e.kind() == ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}

impl From<io::Error> for BusError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // Socket timeouts are reported as `WouldBlock`.
            ErrorKind::WouldBlock => Self::Io(ErrorKind::TimedOut.into()),
            _ => Self::Io(error),
        }
    }
}

impl Bus {
    /// Connects to the system bus: `DBUS_SYSTEM_BUS_ADDRESS`, else `/run/dbus/system_bus_socket`. Returns `None` if there is no bus.
    ///
    /// # Errors
    /// If a bus exists but refuses the connection or does not answer.
    pub fn system() -> Result<Option<Self>, BusError> {
        let configured = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").unwrap_or_default();
        for address in Address::list(&configured) {
            match address.connect(TIMEOUT) {
                Ok(stream) => return Self::authenticate(stream).map(Some),
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(None)
    }

    /// Authenticates with the uid of this process. The kernel confirms it to the bus.
    fn authenticate(stream: UnixStream) -> Result<Self, BusError> {
        let mut this = Self { stream: BufReader::new(stream), serial: 0 };
        let until = Instant::now() + TIMEOUT;
        let uid = geteuid().as_raw();
        let hex: String = uid.to_string().bytes().map(|byte| format!("{byte:02x}")).collect();
        this.send(format!("\0AUTH EXTERNAL {hex}\r\n").as_bytes(), until)?;
        match this.line(until)? {
            line if line.starts_with(b"OK ") => {}
            line if line.starts_with(b"REJECTED") => return Err(BusError::Rejected { uid }),
            _ => return Err(BusError::Malformed("the authentication is neither accepted nor rejected")),
        }
        this.send(b"BEGIN\r\n", until)?;
        this.call(&BUS, TIMEOUT)?;
        Ok(this)
    }

    /// Whether a name has an owner. Does not start the service.
    ///
    /// # Errors
    /// If the bus does not answer, or answers with an error.
    pub fn has_owner(&mut self, name: &str) -> Result<bool, BusError> {
        match self.call(&Call { member: "NameHasOwner", arguments: &[name], ..BUS }, TIMEOUT)? {
            Answer::Bool(has) => Ok(has),
            _ => Err(BusError::Malformed("NameHasOwner answers no boolean")),
        }
    }

    /// Calls a method and waits for its answer, at most `timeout`. Does not start the service.
    ///
    /// # Errors
    /// If there is no answer in time, or the answer is an error.
    pub fn call(&mut self, call: &Call<'_>, timeout: Duration) -> Result<Answer, BusError> {
        let until = Instant::now() + timeout;
        self.serial += 1;
        let bytes = call.encode(self.serial).map_err(BusError::Malformed)?;
        self.send(&bytes, until)?;
        loop {
            let mut start = [0; Head::LENGTH];
            self.receive(&mut start, until)?;
            let head = Head::parse(&start).map_err(BusError::Malformed)?;
            let mut rest = vec![0; head.rest()];
            self.receive(&mut rest, until)?;
            // Ignore signals and late answers to other calls.
            match head.outcome(&rest, self.serial).map_err(BusError::Malformed)? {
                Some(Outcome::Return(answer)) => return Ok(answer),
                Some(Outcome::Error { name, message }) => return Err(BusError::Refused { name, message }),
                None => {}
            }
        }
    }

    fn send(&mut self, bytes: &[u8], until: Instant) -> Result<(), BusError> {
        let mut stream = self.stream.get_ref();
        stream.set_write_timeout(Some(left(until)?))?;
        Ok(stream.write_all(bytes)?)
    }

    /// Fills `bytes` before the deadline.
    fn receive(&mut self, mut bytes: &mut [u8], until: Instant) -> Result<(), BusError> {
        while !bytes.is_empty() {
            if self.stream.buffer().is_empty() {
                self.stream.get_ref().set_read_timeout(Some(left(until)?))?;
            }
            match self.stream.read(bytes) {
                Ok(0) => return Err(BusError::Io(ErrorKind::UnexpectedEof.into())),
                Ok(count) => bytes = &mut bytes[count..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Reads a line without its end. Bytes after it stay: the bus sends nothing unrequested.
    fn line(&mut self, until: Instant) -> Result<Vec<u8>, BusError> {
        let mut line = Vec::new();
        while line.len() < LINE_MAX {
            let mut byte = [0];
            self.receive(&mut byte, until)?;
            line.push(byte[0]);
            if line.ends_with(b"\r\n") {
                line.truncate(line.len() - 2);
                return Ok(line);
            }
        }
        Err(BusError::Malformed("a line of the authentication has no end"))
    }
}

/// Time left until the deadline.
fn left(until: Instant) -> Result<Duration, BusError> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(BusError::Io(ErrorKind::TimedOut.into())) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// A fake bus that sends `script`, whatever it receives, and closes the connection.
    fn bus_that_says(script: Vec<u8>) -> Result<Bus, BusError> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || theirs.write_all(&script).map(|()| theirs.read_to_end(&mut Vec::new())));
        Bus::authenticate(ours)
    }

    fn script(parts: &[&[u8]]) -> Vec<u8> {
        [b"OK 1234\r\n", &parts.concat()[..]].concat()
    }

    #[test]
    fn signals_and_late_answers_are_ignored() {
        let signal = message::tests::message(4, 9, &message::tests::body("s", b"\x01\0\0\0x\0"));
        let late = message::tests::message(2, 77, &message::tests::body("b", &1_u32.to_le_bytes()));
        let hello = message::tests::message(2, 1, &message::tests::body("s", b"\x03\0\0\0:1.\0"));
        let owner = message::tests::message(2, 2, &message::tests::body("b", &1_u32.to_le_bytes()));
        let mut bus = bus_that_says(script(&[&hello, &signal, &late, &owner])).unwrap();
        assert!(bus.has_owner("org.example").unwrap());
    }

    #[test]
    fn a_bus_that_refuses_says_nonsense_or_hangs_up_is_an_error() {
        for (said, word) in [
            (b"REJECTED EXTERNAL\r\n".to_vec(), "does not let"),
            (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), "not D-Bus"),
            (vec![b'x'; LINE_MAX + 1], "has no end"),
            (script(&[b"HTTP/1.1 400 Bad Request\r\n"]), "not D-Bus"),
        ] {
            let error = bus_that_says(said).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
            assert_eq!(error.is_denied(), word == "does not let", "{error}");
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(matches!(Bus::authenticate(ours), Err(BusError::Io(_))));
    }

    #[test]
    fn without_an_answer_the_plugin_waits_until_the_timeout() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut bus = Bus { stream: BufReader::new(ours), serial: 0 };
        let error = bus.call(&BUS, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.to_string(), "no answer came in time");
    }
}
