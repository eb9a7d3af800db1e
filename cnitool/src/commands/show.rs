//! `show`: the result of ADD, compared with the current state of the kernel.

use std::path::Path;
use std::process::ExitCode;

use cni::{AddResult, Interface, IpConfig};
use netfilter::{Firewall, Owner};
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

/// Shows all attachments that match every word. Fails if rules of host ports are missing.
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
    let is_missing = views.iter().any(|view| view.ports.iter().any(Port::is_missing));
    if is_missing {
        ui.warn("rules of host ports are missing: `cnitool repair --all` installs them again");
    }
    ui.either(
        || views.iter().map(View::json).collect(),
        || views.iter().map(|view| view.text(ui)).collect::<Vec<_>>().join("\n"),
    )?;
    Ok(if is_missing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn fits(entry: &Entry, word: &str) -> bool {
    let at = &entry.attach.attachment;
    let netns = entry.attach.netns.as_deref();
    entry.network.as_str() == word
        || at.ifname.as_str() == word
        || at.container.starts_with(word)
        || netns
            .is_some_and(|path| path == Path::new(word) || path.file_name().is_some_and(|name| name == word))
}

/// An attachment, and which parts of it exist.
struct View<'a> {
    entry: &'a Entry,
    result: AddResult,
    host: Option<&'a Live>,
    container: Option<Live>,
    /// The rules of the firewall that Ferrule's plugins have installed. The reference's rules do not contain their
    /// owner.
    rules: Vec<String>,
    ports: Vec<Port>,
}

/// The state of a link that does not exist, in JSON.
const GONE: &str = "gone";

impl<'a> View<'a> {
    fn of(entry: &'a Entry, host: Option<&'a Live>) -> Self {
        let container = entry.attach.netns.as_deref().and_then(Live::at);
        let owner = Owner::new(&entry.network, &entry.attach.attachment);
        let rules = Firewall::open(None).and_then(|firewall| firewall.describe(&owner)).unwrap_or_default();
        let (result, ports) = (entry.result().unwrap_or_default(), Port::of(entry));
        Self { entry, result, host, container, rules, ports }
    }

    /// The link of an interface of the result, if it still exists.
    fn link(&self, interface: &Interface) -> Option<&Link> {
        self.live(interface)?.link(&interface.name)
    }

    /// The namespace that an interface of the result is in.
    fn live(&self, interface: &Interface) -> Option<&Live> {
        if interface.sandbox.is_some() { self.container.as_ref() } else { self.host }
    }

    /// The master of an interface: its bridge, or the link on which it is stacked.
    fn below(&self, interface: &Interface) -> Option<&Link> {
        let (live, link) = self.live(interface).zip(self.link(interface))?;
        live.master(link).or_else(|| live.parent(link, self.host?))
    }

    fn state(&self, interface: &Interface) -> (&'static str, Style) {
        match self.link(interface).map(state) {
            Some("up") => ("up", Style::Good),
            Some(other) => (other, Style::Warning),
            None => (GONE, Style::Bad),
        }
    }

    /// Whether an address of the result still exists. An address without a listed interface belongs to the container.
    fn has_address(&self, ip: &IpConfig) -> bool {
        let own = self.container.as_ref();
        let found = match self.result.interface_of(ip) {
            Some(interface) => self.live(interface).zip(self.link(interface)),
            None => own.and_then(|live| Some((live, live.link(&self.entry.attach.attachment.ifname)?))),
        };
        found.is_some_and(|(live, link)| live.addresses_of(link).any(|address| address.net == ip.address))
    }

    fn has_route(&self, route: &cni::Route) -> bool {
        let same = |live: &Route| live.dst == route.dst && (route.gw.is_none() || live.gateway == route.gw);
        self.container.as_ref().is_some_and(|live| live.routes.iter().any(same))
    }

    fn limits(&self) -> Vec<Limit> {
        self.host.map(|host| limits::of(&self.result, host)).unwrap_or_default()
    }

    fn text(&self, ui: &Ui) -> String {
        let at = &self.entry.attach.attachment;
        let title = format!("{} of container {} on network {}", at.ifname, at.container, self.entry.network);
        let mut text = format!("{}\n", ui.styled(Style::Bold, &title));
        let netns = self.entry.attach.netns.as_deref();
        let (path, state) = match (netns, &self.container) {
            (None, _) => ("none".to_owned(), ui.styled(Style::Dim, "")),
            (Some(path), Some(_)) => (path.display().to_string(), ui.styled(Style::Good, "exists")),
            (Some(path), None) => (path.display().to_string(), ui.styled(Style::Bad, "missing")),
        };
        text += &format!("  namespace {path} {state}\n");
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
        for limit in self.limits() {
            text += &format!("  limit {}\n", limit.text());
        }
        for rule in &self.rules {
            text += &format!("  rule {rule}\n");
        }
        text
    }

    fn interfaces(&self) -> Table {
        let mut table = Table::new(["INTERFACE", "STATE", "KIND", "MAC", "MTU", "IN", "ON"]);
        for interface in &self.result.interfaces {
            let link = self.link(interface);
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
            json!({
                "name": interface.name,
                "sandbox": interface.sandbox,
                "state": self.state(interface).0,
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
            "alive": self.container.is_some(),
            "runtime": runtimes::of_attachment(self.entry),
            "result": self.entry.result,
            "interfaces": self.result.interfaces.iter().map(interface).collect::<Vec<_>>(),
            "addresses": self.result.ips.iter().map(|ip| json!({
                "address": ip.address.to_string(), "there": self.has_address(ip),
            })).collect::<Vec<_>>(),
            "routes": self.result.routes.iter().map(|route| json!({
                "dst": route.dst.to_string(), "gw": route.gw, "there": self.has_route(route),
            })).collect::<Vec<_>>(),
            "names": dnsname::inspect::names(&self.entry.network, at),
            "ports": self.ports.iter().map(Port::json).collect::<Vec<_>>(),
            "limits": self.limits().iter().map(Limit::json).collect::<Vec<_>>(),
            "rules": self.rules,
            "args": self.entry.attach.args.to_string(),
            "capabilityArgs": self.entry.attach.capability_args,
        })
    }
}

fn existence(exists: bool) -> (String, Style) {
    if exists { ("exists".to_owned(), Style::Good) } else { ("missing".to_owned(), Style::Bad) }
}
