//! The graph as a tree for the terminal.

use super::model::{Container, Graph, Interface};
use crate::ui::{Style, Ui};

/// All trunks with their interfaces.
pub fn text(graph: &Graph, ui: &Ui) -> String {
    if graph.trunks.is_empty() {
        return "no attachments\n".to_owned();
    }
    let mut text = String::new();
    for (index, trunk) in graph.trunks.iter().enumerate() {
        let state = ui.styled(style(trunk.state), trunk.state);
        let words =
            [ui.styled(Style::Bold, &trunk.name), state, trunk.kind.clone(), trunk.addresses.join(" ")];
        text += &format!(
            "{}\n",
            words.iter().filter(|word| !word.is_empty()).cloned().collect::<Vec<_>>().join(" ")
        );
        let branches = graph.containers.iter().flat_map(|c| c.interfaces.iter().map(move |i| (c, i)));
        let branches: Vec<_> = branches.filter(|(_, interface)| interface.trunk == index).collect();
        for (i, (container, interface)) in branches.iter().enumerate() {
            text += &branch(container, interface, i + 1 == branches.len(), ui);
        }
    }
    text
}

fn branch(container: &Container, interface: &Interface, last: bool, ui: &Ui) -> String {
    let (knee, stem) = if last { ("└─", "  ") } else { ("├─", "│ ") };
    let host_end = interface.host_end.as_ref().map(|end| format!(" {end} ──")).unwrap_or_default();
    let state = ui.styled(style(interface.state), interface.state);
    let name = ui.styled(Style::Name, &interface.title());
    let addresses: String = interface.addresses.iter().map(|address| format!("{address} ")).collect();
    let gone = if container.alive == Some(false) { ui.styled(Style::Bad, " (gone)") } else { String::new() };
    let place = format!("{}{gone}, network {}", container.title(), interface.network);
    let mut text = format!("{knee}{host_end} {name} {state} {addresses}in {place}\n");
    for port in &interface.ports {
        text += &format!("{stem}   port {}\n", port.text());
    }
    text
}

fn style(state: &str) -> Style {
    match state {
        "up" => Style::Good,
        "gone" => Style::Bad,
        _ => Style::Warning,
    }
}
