//! The kernel's state as tables for people.

use std::io::{IsTerminal, stdout};

use lab::Lab;
use serde_json::Value;

use crate::chains::BACKLOG;
use crate::network::{Attached, IFNAME};

pub fn title(text: &str) {
    println!("\n{}", bold(text));
}

/// The last line: whether everything worked, or which plugins and commands did not.
pub fn verdict(failed: &[&str]) {
    let text = if failed.is_empty() {
        "✓ Everything worked, and nothing was left behind.".to_owned()
    } else {
        format!("✗ These did not work, see above: {}", failed.join(", "))
    };
    println!("\n{}", bold(&text));
}

/// The containers with their interfaces, addresses and bridges.
pub fn attachments(lab: &Lab, attached: &[Attached]) {
    let row = |cells: [&str; 6]| {
        let [container, interface, mac, addresses, peer, bridge] = cells;
        println!("  {container:<10} {interface:<10} {mac:<18} {addresses:<20} {peer:<16} {bridge}");
    };
    println!();
    row(["CONTAINER", "INTERFACE", "MAC", "ADDRESS", "HOST END", "BRIDGE"]);
    for one in attached {
        let link = one.container.link(IFNAME).expect("the interface is there");
        let host_end = host_end(lab, &link).expect("its other end is there");
        let mut identity = [one.container.id.as_str(), IFNAME, text(&link, "address")];
        let mut behind = [text(&host_end, "ifname"), text(&host_end, "master")];
        for address in one.container.addresses(IFNAME) {
            row([identity[0], identity[1], identity[2], &address, behind[0], behind[1]]);
            (identity, behind) = ([""; 3], [""; 2]);
        }
    }
    for address in lab.host().addresses("cni0") {
        row(["(host)", "cni0", "", &address, "", ""]);
    }
}

/// The settings by loopback and tuning, and whether they are in effect.
pub fn settings(attached: &[Attached]) -> [bool; 2] {
    println!();
    let mut fine = [true, true];
    for one in attached {
        let backlog = one.container.sysctl("core/somaxconn");
        let lo = one.container.link("lo").unwrap_or_default();
        let is_up = lo["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "UP"));
        let state = if is_up { "up" } else { "down" };
        println!("  {:<10} net.core.somaxconn = {backlog}, lo is {state}", one.container.id);
        fine[0] &= is_up;
        fine[1] &= backlog == BACKLOG;
    }
    fine
}

fn host_end(lab: &Lab, link: &Value) -> Option<Value> {
    lab.host().ip("link show").into_iter().find(|end| end["ifindex"] == link["link_index"])
}

fn text<'a>(link: &'a Value, key: &str) -> &'a str {
    link[key].as_str().unwrap_or_default()
}

pub fn bold(text: &str) -> String {
    styled("1", text)
}

pub fn good(text: &str) -> String {
    styled("32", text)
}

pub fn bad(text: &str) -> String {
    styled("31", text)
}

/// Colours only on a terminal.
fn styled(code: &str, text: &str) -> String {
    if stdout().is_terminal() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}
