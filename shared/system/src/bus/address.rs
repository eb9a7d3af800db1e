//! Addresses of a D-Bus server.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Default address of the system bus (the specification: "Well-known Message Bus Instances").
const SYSTEM: &str = "/run/dbus/system_bus_socket";

/// Address of a unix socket. Other transports are ignored: no system bus uses TCP.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Address {
    Path(Vec<u8>),
    Abstract(Vec<u8>),
}

impl Address {
    /// Parses a list such as `unix:path=/run/bus;unix:abstract=bus`. An empty string is the system bus's default address.
    pub(super) fn list(text: &str) -> Vec<Self> {
        if text.is_empty() {
            return vec![Self::Path(SYSTEM.into())];
        }
        text.split(';').filter_map(Self::parse).collect()
    }

    fn parse(text: &str) -> Option<Self> {
        text.strip_prefix("unix:")?.split(',').find_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            let value = unescaped(value)?;
            match key {
                "path" if value.first() == Some(&b'/') => Some(Self::Path(value)),
                "abstract" => Some(Self::Abstract(value)),
                _ => None,
            }
        })
    }

    /// Connects. `timeout` also limits the wait for a bus with a full backlog.
    pub(super) fn connect(&self, timeout: Duration) -> io::Result<UnixStream> {
        let address = match self {
            Self::Path(path) => SocketAddrUnix::new(path.as_slice())?,
            Self::Abstract(name) => SocketAddrUnix::new_abstract_name(name)?,
        };
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
        connect(&socket, &address)?;
        Ok(socket.into())
    }
}

/// Decodes escapes such as `%2f`.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first == b'%' {
            let (digits, tail) = tail.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = tail;
        } else {
            bytes.push(first);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_addresses_are_parsed_and_others_ignored() {
        let path = |text: &str| Address::Path(text.into());
        for (text, list) in [
            ("", vec![path(SYSTEM)]),
            ("unix:path=/run/bus", vec![path("/run/bus")]),
            ("unix:guid=12,path=/run/a%20bus", vec![path("/run/a bus")]),
            ("tcp:host=localhost,port=1;unix:path=/run/bus", vec![path("/run/bus")]),
            ("unix:abstract=bus;unix:path=/x", vec![Address::Abstract("bus".into()), path("/x")]),
            ("unix:path=relative", vec![]),
            ("unix:path=/x%2", vec![]),
            ("unix:path=/x%zz", vec![]),
            ("unix:", vec![]),
        ] {
            assert_eq!(Address::list(text), list, "{text}");
        }
    }

    #[test]
    fn an_invalid_socket_path_is_an_error() {
        assert!(Address::Path(vec![b'/'; 4096]).connect(Duration::from_secs(1)).is_err());
        assert!(Address::Path(b"/no/such/bus".into()).connect(Duration::from_secs(1)).is_err());
    }
}
