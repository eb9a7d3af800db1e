//! A client of D-Bus: it asks a service of this host a question, and waits for the answer.
//!
//! It speaks what three calls of firewalld take, and no more: strings go out; a string, a boolean or nothing comes back.
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

/// How long the bus itself may take for an answer of its own. In a test, a busy machine plays the bus.
const TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 600 } else { 5 });

/// Bytes of a line of the authentication (the reference implementation takes 16 KiB).
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

/// Why there is no answer.
#[derive(Debug)]
pub enum BusError {
    /// The connection failed, or nothing came in time.
    Io(io::Error),
    /// What came is not what the specification says. The connection is of no more use.
    Malformed(&'static str),
    /// The bus does not let this process's user in, such as root of a user namespace, whom it knows by another number.
    Rejected {
        /// Who this process says that it is.
        uid: u32,
    },
    /// The service has answered with an error.
    Refused {
        /// The error's name, such as `org.freedesktop.DBus.Error.AccessDenied`.
        name: String,
        /// What the service says beside it. Empty: nothing.
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
    /// Whether this process may not speak to the bus at all: its user, or a policy of the host, does not permit it.
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
            // What a socket says whose time is up.
            ErrorKind::WouldBlock => Self::Io(ErrorKind::TimedOut.into()),
            _ => Self::Io(error),
        }
    }
}

impl Bus {
    /// Connects to the system bus of this host: the one that `DBUS_SYSTEM_BUS_ADDRESS` tells, else that of
    /// `/run/dbus/system_bus_socket`. None: there is no bus.
    ///
    /// # Errors
    /// What keeps this process from a bus that is there.
    pub fn system() -> Result<Option<Self>, BusError> {
        let told = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").unwrap_or_default();
        for address in Address::list(&told) {
            match address.connect(TIMEOUT) {
                Ok(stream) => return Self::authenticate(stream).map(Some),
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(None)
    }

    /// Says who this process is. The kernel tells the bus whether it is true.
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

    /// Whether somebody owns a name now. Nobody is started for it.
    ///
    /// # Errors
    /// No answer, or an error for one.
    pub fn has_owner(&mut self, name: &str) -> Result<bool, BusError> {
        match self.call(&Call { member: "NameHasOwner", arguments: &[name], ..BUS }, TIMEOUT)? {
            Answer::Bool(has) => Ok(has),
            _ => Err(BusError::Malformed("NameHasOwner answers no boolean")),
        }
    }

    /// Calls a method, and waits for its answer for at most that long. No service is started for it.
    ///
    /// # Errors
    /// No answer, or an error for one.
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
            // Signals, and answers that were too late, are for nobody.
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

    /// Fills all of `bytes`, however slowly they come, as long as they come in time.
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

    /// A line without its end. What comes behind it is left: the bus says nothing that it was not asked for.
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

/// What is left of the time.
fn left(until: Instant) -> Result<Duration, BusError> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(BusError::Io(ErrorKind::TimedOut.into())) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// A bus that says what is in the script, whatever it is asked, and then ends.
    fn bus_that_says(script: Vec<u8>) -> Result<Bus, BusError> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || theirs.write_all(&script).map(|()| theirs.read_to_end(&mut Vec::new())));
        Bus::authenticate(ours)
    }

    fn script(parts: &[&[u8]]) -> Vec<u8> {
        [b"OK 1234\r\n", &parts.concat()[..]].concat()
    }

    #[test]
    fn signals_and_late_answers_are_passed_over() {
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
    fn an_answer_that_does_not_come_is_waited_for_to_the_end_of_the_time() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut bus = Bus { stream: BufReader::new(ours), serial: 0 };
        let error = bus.call(&BUS, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.to_string(), "no answer came in time");
    }
}
