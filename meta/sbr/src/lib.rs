//! sbr: source-based routing. Packets from an address of the interface leave through that interface.

mod conf;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keys;
mod moves;
mod rules;
mod source;

use cni::schema::Key;
use cni::{Add, AddResult, Check, Code, Del, Error, Failures, Plugin, Result, ResultExt, Role, Status, Undo};
use iface::{Namespace, remove, tables, verify};
use ipnetwork::IpNetwork;
use netlink::{Link, RouteFilter};

use conf::{Conf, lenient_table};
use rules::Made;
use source::Source;

/// The plugin.
#[derive(Debug)]
pub struct Sbr;

impl Plugin for Sbr {
    const NAME: &'static str = "sbr";
    const ABOUT: &'static str = "\
        Source-based routing: packets with the interface's source address leave through that \
        interface.";
    const ROLE: Role = Role::Chained;
    const KEYS: &'static [Key] = keys::KEYS;
    const UNCHAINED: &'static str = "This plugin must be called as chained plugin";
    type Conf = Conf;

    fn add(call: &Add<Conf>, undo: &mut Undo) -> Result<AddResult> {
        let (conf, ifname) = (&call.conf, &call.attachment.ifname);
        let sandbox = Namespace::open(&call.netns)?;
        undo.hold(sandbox.lock()?);
        let link = sandbox.chained_interface(ifname)?;
        let mut result = call.prev_result.clone();
        let sources = source::choose(&sandbox, &link, &result, conf.table, &conf.gateways)?;
        source::refuse_shared(&sandbox, &link, &sources)?;
        if conf.table.is_some() {
            source::add_rules(&sandbox, &sources, undo)?;
            return Ok(result);
        }
        // The tables come first, so that every address always has a route.
        let filled = moves::fill(&sandbox, &link, &sources, undo)?;
        source::add_rules(&sandbox, &sources, undo)?;
        moves::clear_main(&sandbox, &link, &sources, conf.source_hints, undo)?;
        tables::report(&mut result, &link, &filled);
        Ok(result)
    }

    fn del(call: &Del) -> Result<()> {
        let Some(sandbox) = Namespace::open_if_present(call.netns.as_ref())? else { return Ok(()) };
        let _lock = sandbox.lock()?;
        let link = remove::chained(call, &sandbox)?;
        let table = lenient_table(&call.conf);
        let made = Made::find(&sandbox, link.as_ref(), table)?;
        let mut rules = Vec::new();
        for net in addresses(call, &sandbox, link.as_ref())? {
            rules.extend(made.rules_for(net).filter(|rule| !rules.contains(rule)).collect::<Vec<_>>());
        }
        let mut failures = Failures::new();
        if let (Some(link), None) = (&link, table) {
            moves::restore(&sandbox, link, &made.tables(&sandbox, &rules)?, &mut failures);
        }
        for rule in &rules {
            failures.note(sandbox.nl.delete_rule(rule));
        }
        failures.into_result()
    }

    fn check(call: &Check<Conf>) -> Result<()> {
        let (conf, ifname) = (&call.conf, &call.attachment.ifname);
        let sandbox = Namespace::open(&call.netns)?;
        let link = sandbox.link(ifname)?;
        let sources = source::choose(&sandbox, &link, &call.prev_result, conf.table, &conf.gateways)?;
        if let Some(lost) = sources.iter().find(|source| !source.has_rule) {
            return Err(missing(&format!("the rule for packets from {}", lost.net.ip())));
        }
        if conf.table.is_none() {
            sources.iter().try_for_each(|source| has_default(&sandbox, &link, source))?;
        }
        verify::addresses_and_routes(&sandbox, &link, call)
    }

    fn status(_: &Status<Conf>) -> Result<()> {
        let rules = Namespace::host()?.nl.rules();
        rules.map(drop).code(Code::NotAvailable).hint("sbr needs policy routing (CONFIG_IP_MULTIPLE_TABLES)")
    }
}

/// Addresses of the interface, and its addresses in ADD's result. Without those that another interface has: the interface may be another
/// attachment's, for example of a new container with a namespace at the path of the old one.
fn addresses(call: &Del, sandbox: &Namespace, link: Option<&Link>) -> Result<Vec<IpNetwork>> {
    let in_result = call.prev_result.iter().flat_map(|result| result.ips_of_name(&call.attachment.ifname));
    let (own, others) = source::addresses(sandbox, link)?;
    let is_own = |net: &IpNetwork| !others.iter().any(|other| other.ip() == net.ip());
    Ok(in_result.map(|ip| ip.address).chain(own).filter(is_own).collect())
}

fn has_default(sandbox: &Namespace, link: &Link, source: &Source) -> Result<()> {
    let filter = RouteFilter { link: Some(link.index), table: Some(source.table) };
    let routes = sandbox.nl.routes(filter)?;
    let is_it = |route: &netlink::Route| route.dst.prefix() == 0 && route.gateway == source.gateway;
    if source.gateway.is_none() || routes.iter().any(is_it) {
        return Ok(());
    }
    Err(missing(&format!("the default route of {} in table {}", source.net.ip(), source.table)))
}

fn missing(what: &str) -> Error {
    Error::new(Code::Internal, format!("{what} is missing")).detail(verify::RECREATE)
}
