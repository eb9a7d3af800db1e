//! dhcp: addresses from DHCP servers. The plugin sends requests to its daemon, which obtains leases and renews them
//! while the container runs.

mod args;
mod ask;
mod closer;
mod collect;
mod conf;
mod daemon;
mod families;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod host;
mod key;
mod keys;
mod lease_client;
mod list;
mod location;
mod log;
mod managed_lease;
mod offline;
mod parameters;
mod record;
mod store;
mod v4;
mod v6;
mod wire;

use std::ffi::OsString;
use std::path;
use std::process::ExitCode;

use cni::schema::Key;
use cni::{Add, AddResult, Check, Code, Del, Error, Gc, Plugin, Result, ResultExt, Role, Status, Undo};
use dhcp_client::Random;
use iface::Namespace;
use netns::NetNs;

use ask::{DaemonAnswer, SET_SOCKET, ask, no_daemon};
use conf::{Conf, socket_as_written};
use wire::{Op, Request};

/// The plugin.
#[derive(Debug)]
pub struct Dhcp;

impl Plugin for Dhcp {
    const NAME: &'static str = "dhcp";
    const ABOUT: &'static str = "Obtains an address from a DHCP server. A daemon renews the lease.";
    const ROLE: Role = Role::Ipam;
    const KEYS: &'static [Key] = keys::KEYS;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let (conf, at, network) = (&call.conf, &call.attachment, &call.net.name);
        // An invalid option in CNI_ARGS is reported before the daemon is called.
        conf.provided(&call.args)?;
        let netns = NetNs::open(&call.netns).code(Code::UnknownContainer)?;
        let add = Some(Random::from_kernel().number());
        let request = Request {
            add,
            // The daemon's working directory differs from the plugin's.
            netns: Some(path::absolute(&call.netns)?),
            args: call.args.to_string(),
            config: conf.written.clone(),
            ..Request::about(Op::Acquire, network, at)
        };
        // Releases only this ADD's lease: a lease of an earlier ADD for the same interface stays.
        let (socket, release) =
            (conf.socket.clone(), Request { add, ..Request::about(Op::Release, network, at) });
        undo.push(move || match ask(&socket, &release, None)? {
            DaemonAnswer::Answered(answer) => answer.map(drop),
            DaemonAnswer::NoDaemon(_) => Ok(()),
        });
        families::acquire(conf, &request, &netns)
    }

    fn del(call: &Del) -> Result<()> {
        collect::release(&socket_as_written(&call.conf), &call.net.name, &call.attachment)
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let at = &call.attachment;
        let leased = families::leased(call)?;
        let sandbox = Namespace::open(&call.netns)?;
        let there = sandbox.nl.addresses(Some(&sandbox.link(&at.ifname)?))?;
        for leased in leased {
            let Some(what) = families::address_problem(leased, &there) else { continue };
            let text = format!(
                "address {leased} on {} in {sandbox}, which is leased for {}, {what}",
                at.ifname, at.container
            );
            return Err(Error::new(Code::Internal, text));
        }
        Ok(())
    }

    fn gc(call: &Gc) -> Result<()> {
        collect::collect(&socket_as_written(&call.conf), call)
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        let socket = &call.conf.socket;
        match ask(socket, &Request::new(Op::Status, &call.net.name), None).code(Code::NotAvailable)? {
            DaemonAnswer::Answered(Err(e)) if e.code() != Code::LimitedConnectivity as u32 => {
                Err(e.with_code(Code::NotAvailable))
            }
            DaemonAnswer::Answered(answer) => answer.map(drop),
            DaemonAnswer::NoDaemon(e) => Err(no_daemon(socket, &e, SET_SOCKET).with_code(Code::NotAvailable)),
        }
    }

    const USAGE: &'static str = "usage: dhcp daemon [FLAGS]
       dhcp list [-o json] [-socketpath PATH]

A runtime calls this plugin with CNI_COMMAND. `dhcp daemon -help` describes the daemon's flags.
";

    fn serve_itself(arguments: &[OsString]) -> Option<ExitCode> {
        let (command, rest) = arguments.split_first()?;
        match command.to_str()? {
            "daemon" => Some(daemon::main(rest)),
            "list" => Some(list::main(rest)),
            _ => None,
        }
    }
}
