//! The graph as SVG, in three columns: bridges of the host, host ends, namespaces. Lengths are in pixels.

use super::model::{Container, Graph, Interface};
use super::trunk::Trunk;

/// Width of a character of the font that the SVG names.
const CHARACTER: usize = 8;
const LINE: usize = 18;
const PAD: usize = 12;
const GAP: usize = 70;
const MARGIN: usize = 20;

const STYLE: &str = "text{font:13px ui-monospace,monospace;fill:#1f2328}.title{font-weight:bold}.dim{fill:#656d76}\
    rect{fill:#fff;stroke:#8c959f;rx:6}.space{fill:#f6f8fa;stroke:#d0d7de;rx:10}.port{fill:#0969da}\
    path{fill:none;stroke:#57606a;stroke-width:1.5}.gone{fill:#cf222e}.up{fill:#1a7f37}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.dim{fill:#8d96a0}rect{fill:#161b22;stroke:#484f58}\
    .space{fill:#0d1117;stroke:#30363d}.port{fill:#58a6ff}path{stroke:#8d96a0}.gone{fill:#ff7b72}.up{fill:#3fb950}}";

/// The graph as a complete SVG document.
pub fn svg(graph: &Graph) -> String {
    let plan = Plan::of(graph);
    let mut body = String::new();
    let host_right = plan.ends_x + plan.ends_width + PAD;
    body += &space(MARGIN, MARGIN, host_right - MARGIN, plan.height - 2 * MARGIN, "host");
    for (trunk, &y) in graph.trunks.iter().zip(&plan.trunks) {
        let lines = trunk_lines(trunk);
        body += &boxed(plan.trunks_x, y, plan.trunks_width, &lines);
    }
    for (container, place) in graph.containers.iter().zip(&plan.containers) {
        let title = container_title(container);
        body += &space(plan.containers_x, place.top, plan.containers_width, place.height, &title);
        for (interface, &y) in container.interfaces.iter().zip(&place.interfaces) {
            body += &plan.attachment(interface, y, graph);
        }
    }
    let width = plan.containers_x + plan.containers_width + MARGIN;
    let height = plan.height;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n<style>{STYLE}</style>\n{body}</svg>\n"
    )
}

/// The coordinates of all objects.
struct Plan {
    trunks_x: usize,
    trunks_width: usize,
    trunks: Vec<usize>,
    ends_x: usize,
    ends_width: usize,
    containers_x: usize,
    containers_width: usize,
    containers: Vec<ContainerBox>,
    height: usize,
}

struct ContainerBox {
    top: usize,
    height: usize,
    interfaces: Vec<usize>,
}

impl Plan {
    fn of(graph: &Graph) -> Self {
        let interfaces = || graph.containers.iter().flat_map(|container| &container.interfaces);
        let trunk_lines: Vec<_> = graph.trunks.iter().flat_map(trunk_lines).collect();
        let ends: Vec<Line> = interfaces().filter_map(|i| i.host_end.clone()).map(|end| (end, "")).collect();
        let inside: Vec<Line> = interfaces().flat_map(interface_lines).collect();
        let titles: Vec<Line> = graph.containers.iter().map(|c| (container_title(c), "")).collect();
        let (trunks_x, trunks_width) = (MARGIN + PAD, width(&trunk_lines));
        let (ends_x, ends_width) = (trunks_x + trunks_width + GAP, width(&ends));
        let containers_x = ends_x + ends_width + PAD + GAP;
        let containers_width = width(&inside).max(width(&titles)) + 2 * PAD;
        let (containers, bottom) = stack(graph);
        let (trunks, trunks_bottom) = stack_trunks(graph, &containers);
        let height = bottom.max(trunks_bottom + PAD) + MARGIN;
        Self {
            trunks_x,
            trunks_width,
            trunks,
            ends_x,
            ends_width,
            containers_x,
            containers_width,
            containers,
            height,
        }
    }

    /// Draws an interface in its namespace, its other end on the host, and the lines between them.
    fn attachment(&self, interface: &Interface, y: usize, graph: &Graph) -> String {
        let lines = interface_lines(interface);
        let mut drawn = boxed(self.containers_x + PAD, y, self.containers_width - 2 * PAD, &lines);
        let middle = y + box_height(1) / 2;
        let trunk = &graph.trunks[interface.trunk];
        let trunk_middle = self.trunks[interface.trunk] + box_height(trunk_lines(trunk).len()) / 2;
        let from = (self.trunks_x + self.trunks_width, trunk_middle);
        let to = (self.containers_x + PAD, middle);
        match &interface.host_end {
            Some(end) => {
                drawn += &curve(from, (self.ends_x, middle));
                drawn += &boxed(self.ends_x, y, self.ends_width, &[(end.clone(), "")]);
                drawn += &curve((self.ends_x + self.ends_width, middle), to);
            }
            None => drawn += &curve(from, to),
        }
        drawn
    }
}

/// The coordinates of the namespaces, one below the other, and of the lower end of the last one.
fn stack(graph: &Graph) -> (Vec<ContainerBox>, usize) {
    let mut top = MARGIN;
    let mut boxes = Vec::new();
    for container in &graph.containers {
        let mut y = top + LINE + PAD;
        let mut interfaces = Vec::new();
        for interface in &container.interfaces {
            interfaces.push(y);
            y += box_height(interface_lines(interface).len()) + PAD;
        }
        boxes.push(ContainerBox { top, height: y - top, interfaces });
        top = y + MARGIN;
    }
    (boxes, top)
}

/// Places each trunk next to the middle of its interfaces, without overlaps. Trunks are sorted by the position of
/// their interfaces, so that few lines cross.
fn stack_trunks(graph: &Graph, containers: &[ContainerBox]) -> (Vec<usize>, usize) {
    let middle = |index: usize| {
        let boxes = graph.containers.iter().zip(containers);
        let hangs = boxes.flat_map(|(container, place)| container.interfaces.iter().zip(&place.interfaces));
        let ys: Vec<usize> = hangs.filter(|(i, _)| i.trunk == index).map(|(_, y)| *y).collect();
        ys.iter().sum::<usize>() / ys.len().max(1) + box_height(1) / 2
    };
    let mut order: Vec<usize> = (0..graph.trunks.len()).collect();
    order.sort_by_key(|&index| middle(index));
    let mut next = MARGIN + LINE + PAD;
    let mut tops = vec![0; order.len()];
    for index in order {
        let height = box_height(trunk_lines(&graph.trunks[index]).len());
        tops[index] = middle(index).saturating_sub(height / 2).max(next);
        next = tops[index] + height + PAD;
    }
    (tops, next)
}

/// A line of text and its class.
type Line = (String, &'static str);

fn trunk_lines(trunk: &Trunk) -> Vec<Line> {
    let mut lines =
        vec![(trunk.name.clone(), "title"), (format!("{} {}", trunk.kind, trunk.state), class(trunk.state))];
    lines.extend(trunk.addresses.iter().map(|address| (address.clone(), "")));
    lines
}

fn interface_lines(interface: &Interface) -> Vec<Line> {
    let mut lines = vec![(format!("{} {}", interface.title(), interface.state), class(interface.state))];
    lines.push((interface.network.clone(), "dim"));
    lines.extend(interface.addresses.iter().map(|address| (address.clone(), "")));
    lines.extend(interface.ports.iter().map(|port| (port.text(), "port")));
    lines
}

fn container_title(container: &Container) -> String {
    let gone = if container.alive == Some(false) { " (gone)" } else { "" };
    format!("{}{gone}", container.title())
}

fn class(state: &str) -> &'static str {
    match state {
        "up" => "up",
        "gone" => "gone",
        _ => "dim",
    }
}

fn width(lines: &[Line]) -> usize {
    lines.iter().map(|(text, _)| text.chars().count() * CHARACTER).max().unwrap_or(0) + 2 * PAD
}

fn box_height(lines: usize) -> usize {
    lines * LINE + PAD
}

fn boxed(x: usize, y: usize, width: usize, lines: &[Line]) -> String {
    let mut drawn =
        format!("<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{}\"/>\n", box_height(lines.len()));
    for (i, (text, class)) in lines.iter().enumerate() {
        drawn += &label(x + PAD, y + (i + 1) * LINE, text, class);
    }
    drawn
}

/// A namespace.
fn space(x: usize, y: usize, width: usize, height: usize, title: &str) -> String {
    let rect = format!("<rect class=\"space\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>\n");
    rect + &label(x + PAD, y + LINE, title, "title")
}

fn label(x: usize, y: usize, text: &str, class: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{escaped}</text>\n")
}

fn curve((x1, y1): (usize, usize), (x2, y2): (usize, usize)) -> String {
    let middle = usize::midpoint(x1, x2);
    format!("<path d=\"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}\"/>\n")
}
