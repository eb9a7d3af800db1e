//! The DNS server of a network: dnsmasq. It is started for the first container, and stopped after the last one.

use std::env;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cni::{Code, Error, NetworkName, Result};
use iface::{Namespace, ownership};
use nix::errno::Errno;
use nix::unistd::{Group, User as Account};
use rustix::thread::{CapabilitySet, capabilities};
use system::child::{self, IoStop, Limits};
use system::lock::Lock;

use crate::hosts::Entry;
use crate::listen;
use crate::masq::{self, Service, User};
use crate::network::{self, CONF, Network, PID};
use crate::probe::{self, Answer};
use crate::process::{PROGRAM, Server};

/// Directories in which dnsmasq is searched in addition to `PATH`: runtimes may have a `PATH` without the
/// administrator's directories.
const SYSTEM_PATH: [&str; 5] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// The users for the server process, by preference: the first one that exists. Packages of dnsmasq create their own
/// user.
const USERS: [&str; 2] = ["dnsmasq", "nobody"];

/// Timeout of the start, and maximum output.
const START: Limits = Limits { bytes: 64 << 10, time: Some(Duration::from_secs(30)), ..Limits::NONE };

/// Timeout for the server to read a new hosts file.
pub const KNOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// Pauses between queries: the first one, which doubles up to the longest one. A server reads a short file within 0.1
/// ms.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// Timeout for any answer of a server, after which it is replaced. A server reads the file of a network of 65 536
/// containers within a second.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a temporary failure of the start may last, and the pause between attempts.
const START_TIMEOUT: Duration = Duration::from_secs(1);
const START_PAUSE: Duration = Duration::from_millis(20);

/// Advice if another program has the port.
const PORT_IN_USE: &str = "another program has port 53: `ss -lnp 'sport = :53'` shows it. A DNS server of the host must listen on the \
    host's own addresses only, and networks with dnsname cannot share a bridge";

/// Timeout for other plugins that make the server read the file.
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

/// The running server of a network. None: it does not run.
///
/// # Errors
/// If processes cannot be examined.
pub fn find(network: &NetworkName) -> Result<Option<Server>> {
    let dir = network::path_of(network);
    Server::find(&dir.join(CONF), &dir.join(PID))
}

/// Starts the server, unless the one that runs has suitable settings. Stops a server with other settings first.
///
/// # Errors
/// Code 50 if dnsmasq is not installed. Code 999 if it does not start. Code 5 if a file operation fails.
pub fn ensure(network: Network, service: &Service, running: Option<Server>) -> Result<Network> {
    let earlier = network.conf()?;
    let in_force = Service::parse(&earlier);
    // The server was started before the directory of the host's resolv.conf existed.
    let has_new_resolvers = || masq::lacks_resolvers(&earlier) && network::resolv_conf_has_directory();
    let serves = in_force.as_ref().is_some_and(|in_force| in_force.serves(service));
    if running.is_some() && serves && !has_new_resolvers() {
        return Ok(network);
    }
    let service = in_force.map_or_else(|| service.clone(), |in_force| in_force.extended(service));
    let has_resolvers = network::resolv_conf_has_directory();
    if service.forwards && !has_resolvers {
        cni::warn(
            "the directory of /etc/resolv.conf does not exist: only the names of containers are resolved",
        );
    }
    // What may fail comes before the stop, as far as possible: other containers need the server.
    program()?;
    let text = service.text(&network.readable_path(), &user()?, has_resolvers);
    let mut network = network;
    let Some(running) = running else { return start_readable(&mut network, &text).map(|()| network) };
    running.stop()?;
    let replaced = stop(&network).and_then(|()| start_readable(&mut network, &text));
    let Err(failed) = replaced else { return Ok(network) };
    // Without a configuration, dnsmasq would serve the whole host.
    if earlier.is_empty() {
        return Err(failed);
    }
    Err(match stop(&network).and_then(|()| start_with(&network, &earlier)) {
        Ok(()) => failed,
        Err(again) => failed.and_rollback(again),
    })
}

/// Starts the server with a configuration, in a directory that it can enter.
fn start_readable(network: &mut Network, conf: &str) -> Result<()> {
    if let Some(moved) = network.make_readable()? {
        *network = moved;
    }
    start_with(network, conf)
}

/// Starts the server with a configuration. If the file contains it already, this needs no space for another file.
fn start_with(network: &Network, conf: &str) -> Result<()> {
    if network.conf()? != conf {
        network.write_conf(conf)?;
    }
    start(network)
}

/// Stops the server, and its child processes that answer over TCP and may outlive it.
///
/// # Errors
/// Code 11 if a process does not exit. Otherwise the kernel's error.
pub fn stop(network: &Network) -> Result<()> {
    while let Some(server) = Server::find_starting(&network::path_of(network.name()).join(CONF))? {
        server.stop()?;
    }
    Ok(())
}

/// Starts dnsmasq. Tries again if its port is in use, because a server that was just killed may not have closed its sockets yet, and if an
/// interface of the host was deleted while dnsmasq listed them.
fn start(network: &Network) -> Result<()> {
    let is_in_use = |e: &Error| e.to_string().contains("Address already in use");
    let lost_interface =
        |e: &Error| e.to_string().contains("failed to find list of interfaces: No such device");
    let mut outcome = start_once(network);
    let end = Instant::now() + START_TIMEOUT;
    while outcome.as_ref().is_err_and(|e| is_in_use(e) || lost_interface(e)) && Instant::now() < end {
        thread::sleep(START_PAUSE);
        outcome = start_once(network);
    }
    outcome.map_err(|e| if is_in_use(&e) { e.detail(PORT_IN_USE) } else { e })
}

/// dnsmasq returns when its background process listens and has dropped its privileges.
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
        Err(stopped) => {
            let failure = failed(match stopped.why {
                IoStop::Late => "it takes too long".to_owned(),
                IoStop::Endless => "it prints without end".to_owned(),
                IoStop::System(what, e) => format!("{what}: {e}"),
            });
            Err(failure.detail(stopped.remains.unwrap_or_default()))
        }
    }
}

/// The capabilities that dnsmasq requires as root, and that this process lacks.
fn missing_capabilities() -> Vec<&'static str> {
    let required = [
        ("CAP_SETGID", CapabilitySet::SETGID),
        ("CAP_SETUID", CapabilitySet::SETUID),
        ("CAP_NET_BIND_SERVICE", CapabilitySet::NET_BIND_SERVICE),
    ];
    let effective = capabilities(None).map_or(CapabilitySet::all(), |sets| sets.effective);
    required.into_iter().filter(|(_, set)| !effective.contains(*set)).map(|(name, _)| name).collect()
}

/// Whether the server does not answer, although the host has its address.
///
/// # Errors
/// If the kernel does not list the addresses.
pub fn is_silent(service: &Service) -> Result<bool> {
    let servers = listen::addresses(&Namespace::host()?, &service.listen)?;
    let Some(server) = servers.first().copied() else { return Ok(false) };
    // No container has this name.
    Ok(probe::ask(server, &in_domain(service, "_"), server)? == Answer::Silence)
}

/// The ids of the users that a server may have. It keeps its user if a package creates a preferred one later.
///
/// # Errors
/// If the host's users cannot be read.
pub fn uids() -> io::Result<Vec<u32>> {
    if network::is_rootless() {
        return Ok(vec![0]);
    }
    Ok(accounts()?.into_iter().map(|account| account.uid.as_raw()).collect())
}

/// The users that exist, by preference. A user that could not be read is not a missing one: another user would get the server.
fn accounts() -> io::Result<Vec<Account>> {
    let mut accounts = Vec::new();
    for name in USERS {
        accounts.extend(Account::from_name(name)?);
    }
    Ok(accounts)
}

/// The user for the server process. A rootless engine has only one user, which is root in its user namespace.
fn user() -> Result<User> {
    if network::is_rootless() {
        return Ok(User { name: "root".to_owned(), group: None });
    }
    let accounts = accounts().map_err(|e| Error::io("look for the user of dnsmasq", &e))?;
    let account = accounts.into_iter().next().ok_or_else(|| {
        Error::new(Code::Internal, format!("this host has none of the users {}", USERS.join(", ")))
            .detail("dnsmasq does not run as root: create the user dnsmasq")
    })?;
    // As for users: a group that could not be read is not a missing one. ENOENT: the host has no file of groups.
    let group = match Group::from_gid(account.gid) {
        Err(Errno::ENOENT) => None,
        found => found.map_err(|e| Error::io("look for the group of dnsmasq", &e.into()))?,
    };
    Ok(User { name: account.name, group: group.map(|group| group.name) })
}

/// Waits until the server resolves the written lines, or no longer resolves the removed ones. Many plugins wait
/// concurrently while the server reads the file once: the next plugin finds that the server has read its lines, too.
/// Fails earlier if the server does not answer at all within `silence`.
///
/// # Errors
/// Code 11 after the timeout.
pub fn settle(
    network: &NetworkName,
    service: &Service,
    entries: &[Entry],
    expected: Answer,
    silence: Duration,
) -> Result<()> {
    let host = Namespace::host()?;
    let servers = listen::addresses(&host, &service.listen)?;
    let names = entries.iter().filter_map(|entry| Some((entry.address, token(service, entry)?)));
    let names: Vec<(IpAddr, String)> = names.collect();
    let (Some(server), Some(_)) = (servers.first().copied(), names.first()) else {
        // Lines of the original plugin have no token to query.
        return find(network)?.map_or(Ok(()), |server| server.reload());
    };
    // The first answer that is not the expected one.
    let unsettled = || -> Result<Option<Answer>> {
        for (address, name) in &names {
            let answer = probe::ask(server, name, *address)?;
            if answer != expected {
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
    let mut running = find(network)?;
    let mut is_reloaded = false;
    let begun = Instant::now();
    let mut heard = begun;
    let mut pause = FIRST_PAUSE;
    while begun.elapsed() < KNOWN_TIMEOUT && heard.elapsed() < silence {
        match unsettled()? {
            None => return Ok(()),
            // A slow server may be reading the file.
            Some(Answer::Silence) => {}
            Some(_) => {
                heard = Instant::now();
                if !is_reloaded {
                    running.as_ref().map_or(Ok(()), Server::reload)?;
                    is_reloaded = true;
                }
            }
        }
        match &running {
            None => break,
            Some(server) if server.exits_within(pause)? => running = find(network)?,
            Some(_) => pause = (2 * pause).min(LONGEST_PAUSE),
        }
    }
    let text =
        format!("dnsmasq at {server} does not answer for network {network} as {} says", hosts_file(network));
    Err(Error::new(Code::TryAgainLater, text).detail(match find(network)? {
        Some(_) => "packets from this host to the address may be dropped: look at INPUT of the firewall",
        None => "dnsmasq is not running: `cnitool repair --all` starts it",
    }))
}

fn hosts_file(network: &NetworkName) -> String {
    network::path_of(network).join(network::HOSTS).display().to_string()
}

/// The full name of a line's token. None: a line of the original plugin.
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
    fn a_token_is_resolved_in_the_networks_domain() {
        let hosts = crate::hosts::Hosts::parse("10.1.2.3 web _1 # ferrule c eth0\n10.1.2.4 db\n");
        let listen = masq::Listen::Addresses(Vec::new());
        let domain = crate::name::HostName::parse("dns.podman").ok();
        let service = Service { domain, listen, forwards: true };
        let tokens: Vec<_> = hosts.entries().map(|entry| token(&service, entry)).collect();
        assert_eq!(tokens, [Some("_1.dns.podman".to_owned()), None]);
        let service = Service { domain: None, ..service };
        assert_eq!(token(&service, hosts.entries().next().unwrap()).as_deref(), Some("_1"));
    }
}
