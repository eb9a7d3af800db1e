//! The graph in the DOT language of Graphviz.

use super::model::Graph;
use crate::ports::Port;

/// A digraph: the host and each namespace are clusters.
pub fn dot(graph: &Graph) -> String {
    let mut text =
        "digraph cni {\n  rankdir=LR;\n  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n"
            .to_owned();
    text += "  edge [arrowhead=none];\n  subgraph cluster_host {\n    label=\"host\";\n";
    for (i, trunk) in graph.trunks.iter().enumerate() {
        let label =
            [&[trunk.name.clone(), format!("{} {}", trunk.kind, trunk.state)], &trunk.addresses[..]].concat();
        text += &format!("    trunk{i} [label={}];\n", quoted(&label));
    }
    let ends = || {
        graph.containers.iter().enumerate().flat_map(|(c, container)| {
            container.interfaces.iter().enumerate().map(move |(i, interface)| (c, i, interface))
        })
    };
    for (c, i, interface) in ends() {
        if let Some(end) = &interface.host_end {
            text += &format!("    end{c}_{i} [label={}];\n", quoted(std::slice::from_ref(end)));
        }
    }
    text += "  }\n";
    for (c, container) in graph.containers.iter().enumerate() {
        let label = [container.title(), container.netns.clone()];
        text += &format!("  subgraph cluster_{c} {{\n    label={};\n", quoted(&label));
        for (i, interface) in container.interfaces.iter().enumerate() {
            let title = format!("{} {} ({})", interface.title(), interface.state, interface.network);
            let ports: Vec<String> = interface.ports.iter().map(Port::text).collect();
            let label = [&[title], &interface.addresses[..], &ports[..]].concat();
            text += &format!("    if{c}_{i} [label={}];\n", quoted(&label));
        }
        text += "  }\n";
    }
    for (c, i, interface) in ends() {
        text += &match interface.host_end {
            Some(_) => format!("  trunk{} -> end{c}_{i} -> if{c}_{i};\n", interface.trunk),
            None => format!("  trunk{} -> if{c}_{i};\n", interface.trunk),
        };
    }
    text + "}\n"
}

/// Lines of a label.
fn quoted(lines: &[String]) -> String {
    let escaped: Vec<String> =
        lines.iter().map(|line| line.replace('\\', "\\\\").replace('"', "\\\"")).collect();
    format!("\"{}\"", escaped.join("\\n"))
}
