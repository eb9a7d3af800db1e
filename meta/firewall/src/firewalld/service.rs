//! firewalld's D-Bus interface (firewalld.dbus(5)).

use std::time::Duration;

use cni::{Code, Error, Result};
use system::bus::{Answer, Bus, BusError, Call};

/// Its name on the bus.
const NAME: &str = "org.fedoraproject.FirewallD1";

const PATH: &str = "/org/fedoraproject/FirewallD1";
const ZONE: &str = "org.fedoraproject.FirewallD1.zone";

/// Timeout of one answer. firewalld handles one request after the other, and a reload of a large ruleset takes seconds.
/// This is the usual default of D-Bus clients.
const TIMEOUT: Duration = Duration::from_secs(25);

/// A running firewalld.
#[derive(Debug)]
pub(super) struct Service {
    bus: Bus,
}

impl Service {
    /// Finds firewalld. None: there is no bus, or no firewalld on it.
    pub(super) fn find() -> Result<Option<Self>> {
        Self::connect().map_err(unknown)
    }

    /// Like [`Service::find`], if firewalld was not requested by name. Also None if this process may not use the bus:
    /// an unprivileged process sees the host's bus, and the host's firewalld does not filter a private network
    /// namespace.
    pub(super) fn find_if_permitted() -> Result<Option<Self>> {
        match Self::connect() {
            Err(e) if e.is_denied() => Ok(None),
            other => other.map_err(unknown),
        }
    }

    fn connect() -> Result<Option<Self>, BusError> {
        let Some(mut bus) = Bus::system()? else { return Ok(None) };
        Ok(bus.has_owner(NAME)?.then_some(Self { bus }))
    }

    /// Adds a source to a zone. Succeeds if the zone already has it.
    pub(super) fn add(&mut self, zone: &str, source: &str) -> Result<()> {
        let refused = match self.ask("addSource", &[zone, source]) {
            Err(refused) if word(&refused) != "ZONE_ALREADY_SET" => refused,
            _ => return Ok(()),
        };
        let doing = || format!("add {source} to firewalld's zone {zone}");
        match word(&refused) {
            "ZONE_CONFLICT" => {
                let (place, remedy) = match self.ask("getZoneOfSource", &[source]) {
                    Ok(Answer::Text(other)) => (
                        format!("zone {other}"),
                        format!("run `firewall-cmd --zone={other} --remove-source={source}`"),
                    ),
                    _ => (
                        "another zone".to_owned(),
                        format!(
                            "`firewall-cmd --get-zone-of-source={source}` shows the zone; remove the source there"
                        ),
                    ),
                };
                Err(Error::config(format!("{}: it is already in {place}", doing()))
                    .detail(format!("{remedy}, or set firewalldZone")))
            }
            "INVALID_ZONE" => Err(Error::config(format!("{}: there is no such zone", doing()))
                .detail("set firewalldZone to one of the zones that `firewall-cmd --get-zones` lists")),
            _ => Err(failure(&doing(), refused)),
        }
    }

    /// Removes a source from a zone. Succeeds if the zone does not have it.
    pub(super) fn remove(&mut self, zone: &str, source: &str) -> Result<()> {
        match self.ask("removeSource", &[zone, source]) {
            Err(e) if !matches!(word(&e), "UNKNOWN_SOURCE" | "ZONE_CONFLICT" | "INVALID_ZONE") => {
                Err(failure(&format!("remove {source} from firewalld's zone {zone}"), e))
            }
            _ => Ok(()),
        }
    }

    /// Whether a zone has a source.
    pub(super) fn has(&mut self, zone: &str, source: &str) -> Result<bool> {
        match self.ask("querySource", &[zone, source]) {
            Ok(answer) => Ok(answer == Answer::Bool(true)),
            Err(e) if word(&e) == "INVALID_ZONE" => Ok(false),
            Err(e) => Err(failure(&format!("look for {source} in firewalld's zone {zone}"), e)),
        }
    }

    /// Calls a method of the zone. None of them changes anything permanently.
    fn ask(&mut self, member: &str, arguments: &[&str]) -> Result<Answer, BusError> {
        let call = Call { destination: NAME, path: PATH, interface: ZONE, member, arguments };
        self.bus.call(&call, TIMEOUT)
    }
}

/// The name of a firewalld error, such as `UNKNOWN_SOURCE: '10.1.2.2/32' is not in any zone`.
fn word(error: &BusError) -> &str {
    match error {
        BusError::Refused { message, .. } => message.split(':').next().unwrap_or_default(),
        _ => "",
    }
}

fn unknown(error: BusError) -> Error {
    failure("look for firewalld on the system bus", error)
        .detail("check the bus with `busctl status`, or set backend to nftables or iptables, which do not need firewalld")
}

fn failure(doing: &str, error: BusError) -> Error {
    let code = match &error {
        BusError::Io(e) if e.kind() == std::io::ErrorKind::TimedOut => Code::TryAgainLater,
        BusError::Io(_) | BusError::Rejected { .. } => Code::Io,
        _ => Code::Internal,
    };
    Error::new(code, format!("{doing}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_an_error_of_firewalld_is_before_the_colon() {
        let refused = |message: &str| BusError::Refused {
            name: "org.fedoraproject.FirewallD1.Exception".into(),
            message: message.into(),
        };
        for (message, expected) in [
            ("UNKNOWN_SOURCE: '10.1.2.2/32' is not in any zone", "UNKNOWN_SOURCE"),
            ("ZONE_ALREADY_SET", "ZONE_ALREADY_SET"),
            ("", ""),
        ] {
            assert_eq!(word(&refused(message)), expected);
        }
        assert_eq!(word(&BusError::Malformed("x: y")), "");
    }
}
