//! The server of a network: dnsmasq, started when the first container comes, and stopped when the last one goes.

use std::env;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cni::{Code, Error, NetworkName, Result};
use iface::{Namespace, ownership};
use nix::unistd::{Group, User as Account};
use rustix::thread::{CapabilitySet, capabilities};
use system::child::{self, IoStop, Limits};
use system::lock::Lock;

use crate::hosts::Entry;
use crate::listen;
use crate::masq::{Service, User};
use crate::network::{self, CONF, Network, PID};
use crate::probe::{self, Answer};
use crate::process::{PROGRAM, Server};

/// Where the program is looked for besides `PATH`, which runtimes may have without the administrator's directories.
const SYSTEM_PATH: [&str; 5] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// The users that the server runs as: the first one that the host has. Packages of dnsmasq create a user of its own.
const USERS: [&str; 2] = ["dnsmasq", "nobody"];

/// How long it may take to start, and how much it may print.
const START: Limits = Limits { bytes: 64 << 10, time: Some(Duration::from_secs(30)), group: false };

/// How long to wait until the server has read a new hosts file, and how long the next question waits.
pub const KNOWN_TIMEOUT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(2);

/// How long a server that can be replaced may answer nothing at all. It reads the file of a network of 65 536 containers within a second.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a killed server may hold its port, and the pause between attempts to start the next one.
const PORT_TIMEOUT: Duration = Duration::from_secs(1);
const PORT_PAUSE: Duration = Duration::from_millis(20);

/// How long to wait for others that have the server read the file.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The path of dnsmasq.
///
/// # Errors
/// Code 50 if it is not installed.
pub fn program() -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain(SYSTEM_PATH.map(PathBuf::from));
    let mut found = dirs.filter(|dir| dir.is_absolute()).map(|dir| dir.join(PROGRAM));
    found.find(|path| path.is_file()).ok_or_else(|| {
        Error::new(Code::NotAvailable, "dnsmasq is not installed: it resolves the names of containers")
            .detail("install the package dnsmasq-base (Debian, Ubuntu) or dnsmasq")
    })
}

/// The server of a network, if it runs.
///
/// # Errors
/// If processes cannot be looked at.
pub fn find(network: &NetworkName) -> Result<Option<Server>> {
    let dir = network::path_of(network);
    Server::find(&dir.join(CONF), &dir.join(PID))
}

/// Whether a server runs that does what the service says.
///
/// # Errors
/// As [`find`]; code 5 if the configuration cannot be read.
pub fn is_running(network: &Network, service: &Service) -> Result<bool> {
    let serves = network.service()?.is_some_and(|configured| configured.serves(service));
    Ok(serves && find(network.name())?.is_some())
}

/// Starts the server, unless one runs that does what the service says. One that does something else is stopped before.
///
/// # Errors
/// Code 50 if dnsmasq is not installed, 999 if it does not start; 5 for its files.
pub fn ensure(network: Network, service: &Service) -> Result<Network> {
    if is_running(&network, service)? {
        return Ok(network);
    }
    let in_force = network.service()?;
    let service = in_force.map_or_else(|| service.clone(), |in_force| in_force.extended(service));
    stop(&network)?;
    let network = network.make_readable()?;
    network.write_conf(&service.text(&network.readable_path(), &user()?))?;
    start(&network)?;
    Ok(network)
}

/// Stops the server, if it runs, and processes of its own that answer over TCP and have outlived it.
///
/// # Errors
/// As [`Server::stop`].
pub fn stop(network: &Network) -> Result<()> {
    while let Some(server) = find(network.name())? {
        server.stop()?;
    }
    Ok(())
}

/// Starts dnsmasq. A server that was just killed may still hold the port: its process is no server any more, but has not closed its sockets.
fn start(network: &Network) -> Result<()> {
    let is_in_use = |e: &Error| e.to_string().contains("Address already in use");
    let mut outcome = start_once(network);
    let end = Instant::now() + PORT_TIMEOUT;
    while outcome.as_ref().is_err_and(is_in_use) && Instant::now() < end {
        thread::sleep(PORT_PAUSE);
        outcome = start_once(network);
    }
    outcome
}

/// dnsmasq returns when its process in the background listens, and has given up its privileges.
fn start_once(network: &Network) -> Result<()> {
    let mut command = Command::new(program()?);
    command.arg(format!("--conf-file={}", network.file(CONF).display()));
    command.env_clear().current_dir("/").stderr(Stdio::piped());
    let failed = |why: String| {
        let name = network.name();
        Error::new(Code::Internal, format!("start dnsmasq for network {name}: {why}")).detail(format!(
            "its configuration is {}; see `journalctl -t dnsmasq`, too",
            network.file(CONF).display()
        ))
    };
    match child::run(&mut command, b"", START) {
        Ok(outcome) if outcome.status.success() => Ok(()),
        Ok(outcome) => {
            let log = String::from_utf8_lossy(&outcome.log);
            let failure = failed(format!("{} ({})", log.trim(), outcome.status));
            Err(match missing_capabilities() {
                missing if missing.is_empty() => failure,
                missing => failure.detail(format!("not permitted: dnsmasq requires {}", missing.join(", "))),
            })
        }
        Err(stopped) => Err(failed(match stopped.why {
            IoStop::Late => "it takes too long".to_owned(),
            IoStop::Endless => "it prints without end".to_owned(),
            IoStop::System(what, e) => format!("{what}: {e}"),
        })),
    }
}

/// The capabilities that dnsmasq requires as root and that this process does not have.
fn missing_capabilities() -> Vec<&'static str> {
    let required = [
        ("CAP_SETGID", CapabilitySet::SETGID),
        ("CAP_SETUID", CapabilitySet::SETUID),
        ("CAP_NET_BIND_SERVICE", CapabilitySet::NET_BIND_SERVICE),
    ];
    let effective = capabilities(None).map_or(CapabilitySet::all(), |sets| sets.effective);
    required.into_iter().filter(|(_, set)| !effective.contains(*set)).map(|(name, _)| name).collect()
}

/// Whether the server answers nothing at all, though the host has its address.
///
/// # Errors
/// What the kernel refuses.
pub fn is_silent(service: &Service) -> Result<bool> {
    let servers = listen::addresses(&Namespace::host()?, &service.listen)?;
    let Some(server) = servers.first().copied() else { return Ok(false) };
    // No container has this name.
    Ok(probe::ask(server, &in_domain(service, "_"), server)? == Answer::Silence)
}

/// The id of the user that the server runs as. None: there is no such user.
pub fn uid() -> Option<u32> {
    if network::is_rootless() { Some(0) } else { account().map(|account| account.uid.as_raw()) }
}

fn account() -> Option<Account> {
    USERS.iter().find_map(|name| Account::from_name(name).ok().flatten())
}

/// An unprivileged user. An engine without root has one user only, which is root in its user namespace.
fn user() -> Result<User> {
    if network::is_rootless() {
        return Ok(User { name: "root".to_owned(), group: None });
    }
    let account = account().ok_or_else(|| {
        Error::new(Code::Internal, format!("this host has none of the users {}", USERS.join(", ")))
            .detail("dnsmasq does not run as root: create the user dnsmasq")
    })?;
    let group = Group::from_gid(account.gid).ok().flatten().map(|group| group.name);
    Ok(User { name: account.name, group })
}

/// Waits until the server resolves the lines that were written, or no longer those that were removed. Many plugins at once
/// wait for one reading of the file: the next one finds that its own lines have been read as well. The wait ends earlier if the server has not
/// answered at all for the time `silence`.
///
/// # Errors
/// Code 11 if it takes too long.
pub fn settle(
    network: &NetworkName,
    service: &Service,
    entries: &[Entry],
    wanted: Answer,
    silence: Duration,
) -> Result<()> {
    let host = Namespace::host()?;
    let servers = listen::addresses(&host, &service.listen)?;
    let names = entries.iter().filter_map(|entry| Some((entry.address, token(service, entry)?)));
    let names: Vec<(IpAddr, String)> = names.collect();
    let (Some(server), Some(_)) = (servers.first().copied(), names.first()) else {
        // Lines of the original plugin have no token to ask for.
        return find(network)?.map_or(Ok(()), |server| server.reload());
    };
    // The answer to the first question that is not answered as wanted.
    let unsettled = || -> Result<Option<Answer>> {
        for (address, name) in &names {
            let answer = probe::ask(server, name, *address)?;
            if answer != wanted {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    };
    if unsettled()?.is_none() {
        return Ok(());
    }
    let lock = ownership::hashed_name("dnsname-", [network.as_str()]);
    let _reload = Lock::acquire(&lock, RELOAD_TIMEOUT)?;
    if unsettled()?.is_none() {
        return Ok(());
    }
    let mut running = find(network)?;
    running.as_ref().map_or(Ok(()), Server::reload)?;
    let begun = Instant::now();
    let mut heard = begun;
    while begun.elapsed() < KNOWN_TIMEOUT && heard.elapsed() < silence {
        match unsettled()? {
            None => return Ok(()),
            Some(Answer::Silence) => {}
            Some(_) => heard = Instant::now(),
        }
        match &running {
            None => break,
            Some(server) if server.exits_within(PAUSE)? => running = find(network)?,
            Some(_) => {}
        }
    }
    let text =
        format!("dnsmasq at {server} does not answer for network {network} as {} says", hosts_file(network));
    Err(Error::new(Code::TryAgainLater, text).detail(match find(network)? {
        Some(_) => "packets from this host to the address may be dropped: look at INPUT of the firewall",
        None => "it does not run: `cnitool repair` starts it",
    }))
}

fn hosts_file(network: &NetworkName) -> String {
    network::path_of(network).join(network::HOSTS).display().to_string()
}

/// The token of a line, as the server is asked for it. None: a line of the original plugin.
fn token(service: &Service, entry: &Entry) -> Option<String> {
    entry.token.as_ref().map(|token| in_domain(service, token))
}

fn in_domain(service: &Service, name: &str) -> String {
    service.domain.as_ref().map_or_else(|| name.to_owned(), |domain| format!("{name}.{domain}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_asked_for_in_the_networks_domain() {
        let hosts = crate::hosts::Hosts::parse("10.1.2.3 web _1 # ferrule c eth0\n10.1.2.4 db\n");
        let listen = crate::masq::Listen::Addresses(Vec::new());
        let domain = crate::name::HostName::parse("dns.podman").ok();
        let service = Service { domain, listen, forwards: true };
        let tokens: Vec<_> = hosts.entries().map(|entry| token(&service, entry)).collect();
        assert_eq!(tokens, [Some("_1.dns.podman".to_owned()), None]);
        let service = Service { domain: None, ..service };
        assert_eq!(token(&service, hosts.entries().next().unwrap()).as_deref(), Some("_1"));
    }
}
