//! Values of the command line that have a syntax of their own.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Map, Value};

/// `1h`, `30m`, `90s`, `2d`, or a number of seconds.
pub fn parse_age(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        _ => return Err(format!("{unit:?} is not a unit of time: use s, m, h or d")),
    };
    let number: u64 = number.parse().map_err(|_| "expected a number and a unit, such as 1h".to_owned())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(|| "it is too long".to_owned())
}

/// A pause between two runs. Runs without a pause would use a whole processor, and block every ADD.
pub fn parse_pause(text: &str) -> Result<Duration, String> {
    match parse_age(text)? {
        Duration::ZERO => Err("the pause must be longer than 0: use at least 1s".to_owned()),
        pause => Ok(pause),
    }
}

/// Parses a port of the command line.
///
/// # Errors
/// If the port is malformed.
pub fn port(text: &str) -> Result<String, String> {
    mapping(text).map(|_| text.to_owned())
}

/// A port in the syntax of `docker run -p`: `[HOSTIP:]HOSTPORT:PORT[/PROTOCOL]`.
pub fn mapping(text: &str) -> Result<Value, String> {
    let wrong = || {
        format!("{text:?} is not [HOSTIP:]HOSTPORT:PORT[/PROTOCOL], such as 8080:80 or 127.0.0.1:53:53/udp")
    };
    let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(wrong);
    let (before, container) = ports.rsplit_once(':').ok_or_else(wrong)?;
    let (address, host) = match before.rsplit_once(':') {
        Some((address, host)) => (Some(address), host),
        None => (None, before),
    };
    if !["tcp", "udp", "sctp"].contains(&protocol) {
        return Err(wrong());
    }
    let mut mapping = Map::new();
    mapping.insert("hostPort".to_owned(), port(host)?.into());
    mapping.insert("containerPort".to_owned(), port(container)?.into());
    mapping.insert("protocol".to_owned(), protocol.into());
    if let Some(address) = address {
        let bare = address.strip_prefix('[').and_then(|address| address.strip_suffix(']')).unwrap_or(address);
        let address: IpAddr = bare.parse().map_err(|_| wrong())?;
        mapping.insert("hostIP".to_owned(), address.to_string().into());
    }
    Ok(mapping.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_are_read_as_people_write_them() {
        let cases = [
            ("8080:80", json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"})),
            ("53:5353/udp", json!({"hostPort": 53, "containerPort": 5353, "protocol": "udp"})),
            (
                "127.0.0.1:8080:80/tcp",
                json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1"}),
            ),
            (
                "[::1]:1:2/sctp",
                json!({"hostPort": 1, "containerPort": 2, "protocol": "sctp", "hostIP": "::1"}),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(mapping(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "80",
            ":80",
            "8080:",
            "0:80",
            "8080:65536",
            "a:80",
            "8080:80/icmp",
            "host:1:2",
            "1:2:3:4/tcp",
        ] {
            assert!(mapping(text).is_err_and(|e| e.contains("HOSTPORT:PORT")), "{text}");
        }
    }

    #[test]
    fn ages_have_a_unit() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("30m", 1800), ("1h", 3600), ("2d", 172_800)] {
            assert_eq!(parse_age(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["", "h", "1w", "-1h", "1h30m", "99999999999999999999d"] {
            assert!(parse_age(wrong).is_err() && parse_pause(wrong).is_err(), "{wrong}");
        }
        assert_eq!((parse_age("0m"), parse_pause("1s")), (Ok(Duration::ZERO), Ok(Duration::from_secs(1))));
        assert!(parse_pause("0m").is_err());
    }
}
