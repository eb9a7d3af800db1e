//! `show`: the result of ADD, compared with the current state of the kernel.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use cni::{AddResult, Code, Interface, IpConfig};
use netfilter::{Backend, Firewall, Owner};
use netlink::{Link, Route};
use runtime::{Entry, Error, Result};
use serde_json::{Value, json};

use crate::known;
use crate::limits::{self, Limit};
use crate::live::{Live, kind, state};
use crate::ports::Port;
use crate::runtimes;
use crate::settings::Settings;
use crate::table::Table;
use crate::ui::{Style, Ui};

/// The exit code if a part of an attachment cannot be read and no rules are missing.
const UNREAD: u8 = 4;

/// Shows all attachments that match every word. Fails if rules of host ports are missing, or if a part of an attachment
/// cannot be read.
pub fn run(words: &[String], all: bool, settings: &Settings, ui: &Ui) -> Result<ExitCode> {
    let mut entries = known::attachments(all, settings, ui)?;
    entries.retain(|entry| words.iter().all(|word| fits(entry, word)));
    if entries.is_empty() {
        let what = if words.is_empty() {
            "no attachment".to_owned()
        } else {
            format!("no attachment matches {}", words.join(" "))
        };
        return Err(Error::from(cni::Error::config(what).detail("`cnitool list attachments` lists them")));
    }
    let host = Live::host();
    let views: Vec<View<'_>> = entries.iter().map(|entry| View::of(entry, host.as_ref())).collect();
    let is_unread = views.iter().any(|view| !view.causes().is_empty());
    let is_missing = views.iter().any(|view| view.ports.iter().any(Port::is_missing));
    if is_missing {
        ui.warn("rules of host ports are missing: `cnitool repair --all` installs them again");
    }
    ui.either(
        || views.iter().map(View::json).collect(),
        || views.iter().map(|view| view.text(ui)).collect::<Vec<_>>().join("\n"),
    )?;
    Ok(match (is_missing, is_unread) {
        (true, _) => ExitCode::FAILURE,
        (false, true) => ExitCode::from(UNREAD),
        (false, false) => ExitCode::SUCCESS,
    })
}

fn fits(entry: &Entry, word: &str) -> bool {
    let at = &entry.attach.attachment;
    let netns = entry.attach.netns.as_deref();
    // The path of a process's namespace ends in `net`.
    let is_name =
        |path: &Path| !path.starts_with("/proc") && path.file_name().is_some_and(|name| name == word);
    entry.network.as_str() == word
        || at.ifname.as_str() == word
        || at.container.starts_with(word)
        || netns.is_some_and(|path| path == Path::new(word) || is_name(path))
}

/// An attachment, and which parts of it exist.
struct View<'a> {
    entry: &'a Entry,
    /// The cached result. Empty if it cannot be read.
    result: AddResult,
    /// Why the cached result cannot be read.
    damage: Option<Error>,
    host: Read<'a, &'a Live>,
    /// None: the attachment has no namespace, or the namespace does not exist.
    container: cni::Result<Option<Live>>,
    /// The rules of the firewall that Ferrule's plugins have installed. The reference's rules do not contain their
    /// owner.
    rules: cni::Result<Vec<String>>,
    ports: Vec<Port>,
}

/// A value, or why it cannot be read.
type Read<'a, T> = Result<T, &'a cni::Error>;

/// The state of a link that does not exist, in JSON.
const GONE: &str = "gone";

/// The state of an object in a namespace that cannot be read, in text. In JSON it is null.
const UNKNOWN: &str = "unknown";

impl<'a> View<'a> {
    fn of(entry: &'a Entry, host: Read<'a, &'a Live>) -> Self {
        let container = entry.attach.netns.as_deref().map_or(Ok(None), Live::at);
        let (result, damage) = match entry.result() {
            Ok(result) => (result, None),
            Err(e) => (AddResult::default(), Some(e)),
        };
        Self { entry, result, damage, host, container, rules: rules(entry), ports: Port::of(entry) }
    }

    /// The parts of the attachment that cannot be read, each with its cause.
    fn causes(&self) -> Vec<String> {
        let unread = |part: &str, cause: &dyn Display| format!("{part} cannot be read: {cause}");
        let container = self.container.as_ref().err().map(|e| unread("the namespace", e));
        let host = self.host.err().map(|e| unread("the host's links", e));
        let result = self.damage.as_ref().map(|e| unread("the cached result", e));
        let rules = self.rules.as_ref().err().map(|e| unread("the rules", e));
        let ports =
            self.ports.iter().find_map(|port| Some(unread("the rules of host ports", &port.cause()?)));
        [container, host, result, rules, ports].into_iter().flatten().collect()
    }

    /// The link of an interface of the result. None if it no longer exists.
    fn link(&self, interface: &Interface) -> Read<'_, Option<&Link>> {
        Ok(self.live(interface)?.and_then(|live| live.link(&interface.name)))
    }

    /// The namespace that an interface of the result is in.
    fn live(&self, interface: &Interface) -> Read<'_, Option<&Live>> {
        if interface.sandbox.is_some() { self.container() } else { self.host.map(Some) }
    }

    fn container(&self) -> Read<'_, Option<&Live>> {
        self.container.as_ref().map(Option::as_ref)
    }

    /// The master of an interface: its bridge, or the link on which it is stacked.
    fn below(&self, interface: &Interface) -> Option<&Link> {
        let (live, link) = self.live(interface).ok()?.zip(self.link(interface).ok()?)?;
        live.master(link).or_else(|| live.parent(link, self.host.ok()?))
    }

    fn state(&self, interface: &Interface) -> (&'static str, Style) {
        match self.link(interface).map(|link| link.map(state)) {
            Ok(Some("up")) => ("up", Style::Good),
            Ok(Some(other)) => (other, Style::Warning),
            Ok(None) => (GONE, Style::Bad),
            Err(_) => (UNKNOWN, Style::Warning),
        }
    }

    /// Whether an address of the result still exists. An address without a listed interface belongs to the container.
    fn has_address(&self, ip: &IpConfig) -> Read<'_, bool> {
        let (live, name) = match self.result.interface_of(ip) {
            Some(interface) => (self.live(interface)?, interface.name.as_str()),
            None => (self.container()?, self.entry.attach.attachment.ifname.as_str()),
        };
        let found = live.and_then(|live| Some((live, live.link(name)?)));
        Ok(found.is_some_and(|(live, link)| live.addresses_of(link).any(|address| address.net == ip.address)))
    }

    fn has_route(&self, route: &cni::Route) -> Read<'_, bool> {
        let same = |live: &Route| live.dst == route.dst && (route.gw.is_none() || live.gateway == route.gw);
        Ok(self.container()?.is_some_and(|live| live.routes.iter().any(same)))
    }

    fn limits(&self) -> Read<'_, Vec<Limit>> {
        self.host.map(|host| limits::of(&self.result, host))
    }

    /// The namespace's path and state.
    fn namespace(&self, ui: &Ui) -> String {
        let Some(path) = self.entry.attach.netns.as_deref() else { return "none".to_owned() };
        let state = match &self.container {
            Ok(Some(_)) => ui.styled(Style::Good, "exists"),
            Ok(None) => ui.styled(Style::Bad, "missing"),
            Err(_) => ui.styled(Style::Warning, UNKNOWN),
        };
        format!("{} {state}", path.display())
    }

    fn text(&self, ui: &Ui) -> String {
        let at = &self.entry.attach.attachment;
        let title = format!("{} of container {} on network {}", at.ifname, at.container, self.entry.network);
        let mut text = format!("{}\n", ui.styled(Style::Bold, &title));
        text += &format!("  namespace {}\n", self.namespace(ui));
        if let Some(runtime) = runtimes::beyond_id(runtimes::of_attachment(self.entry)) {
            text += &format!("  runtime {runtime}\n");
        }
        for table in [self.interfaces(), self.addresses(), self.routes()] {
            if !table.is_empty() {
                text += &table.render(ui, "  ");
            }
        }
        let names = dnsname::inspect::names(&self.entry.network, at);
        if !names.is_empty() {
            text += &format!("  names {}\n", names.join(", "));
        }
        for port in &self.ports {
            text += &format!("  port {}\n", port.text());
        }
        for limit in self.limits().iter().flatten() {
            text += &format!("  limit {}\n", limit.text());
        }
        for rule in self.rules.iter().flatten() {
            text += &format!("  rule {rule}\n");
        }
        for cause in self.causes() {
            text += &format!("  {} {cause}\n", ui.styled(Style::Warning, "warning:"));
        }
        text
    }

    fn interfaces(&self) -> Table {
        let mut table = Table::new(["INTERFACE", "STATE", "KIND", "MAC", "MTU", "IN", "ON"]);
        for interface in &self.result.interfaces {
            let link = self.link(interface).ok().flatten();
            let (state, style) = match self.state(interface) {
                (GONE, style) => ("missing", style),
                other => other,
            };
            let mtu = link.map(|link| link.mtu).or(interface.mtu);
            let mac =
                link.and_then(|link| link.mac).map(|mac| mac.to_string()).or_else(|| interface.mac.clone());
            let below = self.below(interface).map(|link| link.name.clone());
            table.row([
                (interface.name.clone(), Style::Name),
                (state.to_owned(), style),
                (link.and_then(kind).unwrap_or_default(), Style::Plain),
                (mac.unwrap_or_default(), Style::Plain),
                (mtu.map(|mtu| mtu.to_string()).unwrap_or_default(), Style::Plain),
                (if interface.sandbox.is_some() { "container" } else { "host" }.to_owned(), Style::Plain),
                (below.unwrap_or_default(), Style::Plain),
            ]);
        }
        table
    }

    fn addresses(&self) -> Table {
        let mut table = Table::new(["ADDRESS", "STATE", "GATEWAY"]);
        for ip in &self.result.ips {
            let (state, style) = existence(self.has_address(ip));
            let gateway = ip.gateway.map(|gateway| gateway.to_string()).unwrap_or_default();
            table.row([(ip.address.to_string(), Style::Plain), (state, style), (gateway, Style::Plain)]);
        }
        table
    }

    fn routes(&self) -> Table {
        let mut table = Table::new(["ROUTE", "STATE", "VIA"]);
        for route in &self.result.routes {
            let (state, style) = existence(self.has_route(route));
            let via = route.gw.map(|gateway| gateway.to_string()).unwrap_or_default();
            table.row([(route.dst.to_string(), Style::Plain), (state, style), (via, Style::Plain)]);
        }
        table
    }

    fn json(&self) -> Value {
        let at = &self.entry.attach.attachment;
        let interface = |interface: &Interface| {
            let link = self.link(interface);
            let state = link.is_ok().then(|| self.state(interface).0);
            let link = link.ok().flatten();
            json!({
                "name": interface.name,
                "sandbox": interface.sandbox,
                "state": state,
                "kind": link.and_then(Link::kind_name),
                "on": self.below(interface).map(|link| link.name.as_str()),
                "mac": link.and_then(|link| link.mac).map(|mac| mac.to_string()),
                "mtu": link.map(|link| link.mtu),
            })
        };
        json!({
            "network": self.entry.network.as_str(),
            "containerID": at.container.as_str(),
            "ifname": at.ifname.as_str(),
            "netns": self.entry.attach.netns,
            "alive": self.container.as_ref().ok().map(Option::is_some),
            "runtime": runtimes::of_attachment(self.entry),
            "result": self.entry.result,
            "interfaces": self.result.interfaces.iter().map(interface).collect::<Vec<_>>(),
            "addresses": self.result.ips.iter().map(|ip| json!({
                "address": ip.address.to_string(), "there": self.has_address(ip).ok(),
            })).collect::<Vec<_>>(),
            "routes": self.result.routes.iter().map(|route| json!({
                "dst": route.dst.to_string(), "gw": route.gw, "there": self.has_route(route).ok(),
            })).collect::<Vec<_>>(),
            "names": dnsname::inspect::names(&self.entry.network, at),
            "ports": self.ports.iter().map(Port::json).collect::<Vec<_>>(),
            "limits": self.limits().ok().map(|limits| limits.iter().map(Limit::json).collect::<Vec<_>>()),
            "rules": self.rules.as_ref().ok(),
            "unread": self.causes(),
            "args": self.entry.attach.args.to_string(),
            "capabilityArgs": self.entry.attach.capability_args,
        })
    }
}

/// The rules of an attachment in nf_tables.
fn rules(entry: &Entry) -> cni::Result<Vec<String>> {
    let owner = Owner::new(&entry.network, &entry.attach.attachment);
    match Firewall::open(Some(Backend::Nftables)) {
        // The kernel has no nf_tables.
        Err(e) if e.code() == Code::UnsupportedField as u32 => Ok(Vec::new()),
        opened => opened?.describe(&owner),
    }
}

fn existence(exists: Read<'_, bool>) -> (String, Style) {
    let (text, style) = match exists {
        Ok(true) => ("exists", Style::Good),
        Ok(false) => ("missing", Style::Bad),
        Err(_) => (UNKNOWN, Style::Warning),
    };
    (text.to_owned(), style)
}
