//! dhcp: addresses from DHCP servers. The plugin asks its daemon, which speaks with servers for as long as the container lives.

mod ask;
mod attached;
mod conf;
mod daemon;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod list;
mod offline;
mod place;
mod record;
mod store;
mod wire;

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use cni::addr::parse_cidr;
use cni::{
    Add, AddResult, Check, Code, Del, Error, Gc, Plugin, Result, ResultExt, Role, Status, Undo, Version,
};
use iface::Namespace;
use netns::NetNs;
use serde_json::Value;

use ask::{Asked, ask, no_daemon};
use conf::{Conf, socket_as_written};
use wire::{Op, Request};

/// The plugin.
#[derive(Debug)]
pub struct Dhcp;

impl Plugin for Dhcp {
    const NAME: &'static str = "dhcp";
    const ROLE: Role = Role::Ipam;
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let (conf, at, network) = (&call.conf, &call.attachment, &call.net.name);
        conf.provided(&call.args)?;
        call.net.version.check_fits(std::iter::once(true))?;
        let netns = NetNs::open(&call.netns).code(Code::UnknownContainer)?;
        let request = Request {
            netns: Some(call.netns.clone()),
            args: call.args.to_string(),
            config: conf.written.clone(),
            ..Request::about(Op::Acquire, network, at)
        };
        let (socket, release) = (conf.socket.clone(), Request::about(Op::Release, network, at));
        undo.push(move || answered(&socket, ask(&socket, &release, None)?).map(drop));
        let result = answered(&conf.socket, ask(&conf.socket, &request, Some(netns.as_fd()))?)?;
        AddResult::from_json(&result, Version::LATEST).context(|| "the DHCP daemon's answer")
    }

    fn del(call: &Del) -> Result<()> {
        let socket = socket_as_written(&call.conf);
        let (network, at) = (&call.net.name, &call.attachment);
        match ask(&socket, &Request::about(Op::Release, network, at), None)? {
            Asked::Answered(answer) => answer.map(drop),
            Asked::NoDaemon(_) => offline::release(&socket, network, at),
        }
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let (socket, at) = (&call.conf.socket, &call.attachment);
        let lease = answered(socket, ask(socket, &Request::about(Op::Check, &call.net.name, at), None)?)?;
        let leased = parse_cidr(lease["address"].as_str().unwrap_or_default())
            .map_err(|e| Error::new(Code::Internal, format!("the DHCP daemon's answer: address {e}")))?;
        let sandbox = Namespace::open(&call.netns)?;
        let link = sandbox.link(&at.ifname)?;
        if sandbox.nl.addresses(Some(&link))?.iter().any(|address| address.net == leased) {
            return Ok(());
        }
        let what = format!(
            "address {leased}, which is leased for {}, is missing on {} in {sandbox}",
            at.container, at.ifname
        );
        Err(Error::new(Code::Internal, what))
    }

    fn gc(call: &Gc) -> Result<()> {
        let socket = socket_as_written(&call.conf);
        let valid = call.valid.iter().map(|at| (at.container.to_string(), at.ifname.to_string())).collect();
        match ask(&socket, &Request { valid, ..Request::new(Op::Gc, &call.net.name) }, None)? {
            Asked::Answered(answer) => answer.map(drop),
            Asked::NoDaemon(_) => offline::collect(&socket, call),
        }
    }

    fn status(call: &Status<Conf>) -> Result<()> {
        let socket = &call.conf.socket;
        match ask(socket, &Request::new(Op::Status, &call.net.name), None).code(Code::NotAvailable)? {
            Asked::Answered(Err(e)) if e.code() != Code::LimitedConnectivity as u32 => {
                Err(e.with_code(Code::NotAvailable))
            }
            Asked::Answered(answer) => answer.map(drop),
            Asked::NoDaemon(e) => Err(no_daemon(socket, &e).with_code(Code::NotAvailable)),
        }
    }

    fn serve_itself(arguments: &[OsString]) -> Option<ExitCode> {
        let (command, rest) = arguments.split_first()?;
        match command.to_str()? {
            "daemon" => Some(daemon::main(rest)),
            "list" => Some(list::main(rest)),
            _ => None,
        }
    }
}

fn answered(socket: &Path, asked: Asked) -> Result<Value> {
    match asked {
        Asked::Answered(answer) => answer,
        Asked::NoDaemon(e) => Err(no_daemon(socket, &e)),
    }
}
