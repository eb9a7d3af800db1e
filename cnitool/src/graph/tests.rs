use cni::AddResult;
use netlink::{IpvlanFlag, IpvlanMode, Link, LinkKind, MacvlanMode, TunKind, VlanProtocol};

use super::model::{Container, Graph, Interface};
use super::trunk::{self, Trunk};
use super::{dot, svg, text};
use crate::live::{Live, kind};
use crate::ports::Port;

/// Two pods on a bridge, one of them with a second interface without a bridge, and a pod that no longer exists.
fn graph() -> Graph {
    let trunk = |name: &str, kind: &str, address: &str| Trunk {
        name: name.into(),
        kind: kind.into(),
        state: "up",
        addresses: vec![address.into()],
    };
    let interface = |name: &str, host_end: Option<&str>, trunk| Interface {
        name: name.into(),
        kind: None,
        network: "pods".into(),
        state: "up",
        addresses: vec!["10.0.0.2/24".into()],
        ports: vec![Port::read(&serde_json::json!({"hostPort": 80, "containerPort": 8080}))],
        host_end: host_end.map(Into::into),
        trunk,
    };
    let container = |id: &str, alive, interfaces| Container {
        id: id.into(),
        netns: "/run/netns/x".into(),
        alive: Some(alive),
        runtime: (!alive).then_some("Podman"),
        interfaces,
    };
    Graph {
        trunks: vec![trunk("cni0", "bridge", "10.0.0.1/24"), trunk("host", "namespace", "fd00::1/64")],
        containers: vec![
            container("web", true, vec![interface("eth0", Some("veth1"), 0), interface("eth1", None, 1)]),
            container("<db>", false, vec![interface("eth0", Some("veth2"), 0)]),
        ],
    }
}

#[test]
fn the_text_is_a_tree_with_every_attachment_below_its_bridge() {
    let common = clap::Parser::try_parse_from(["cnitool", "--color", "never", "graph"]);
    let cli: crate::cli::Cli = common.unwrap();
    let expected = "\
cni0 up bridge 10.0.0.1/24
├─ veth1 ── eth0 up 10.0.0.2/24 in web, network pods
│    port *:80/tcp → 8080
└─ veth2 ── eth0 up 10.0.0.2/24 in <db> of Podman (gone), network pods
     port *:80/tcp → 8080
host up namespace fd00::1/64
└─ eth1 up 10.0.0.2/24 in web, network pods
     port *:80/tcp → 8080
";
    assert_eq!(text(&graph(), &crate::ui::Ui::new(&cli.common)), expected);
    assert_eq!(text(&Graph::default(), &crate::ui::Ui::new(&cli.common)), "no attachments\n");
}

#[test]
fn the_dot_form_has_every_edge_and_no_loose_quote() {
    let mut graph = graph();
    graph.containers[0].id = "a\"b\\".into();
    let dot = dot(&graph);
    for edge in ["trunk0 -> end0_0 -> if0_0;", "trunk1 -> if0_1;", "trunk0 -> end1_0 -> if1_0;"] {
        assert!(dot.contains(edge), "{edge} in {dot}");
    }
    assert!(dot.contains(r#"label="a\"b\\\n/run/netns/x""#), "{dot}");
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
}

#[test]
fn the_svg_escapes_names_and_nothing_in_a_column_overlaps() {
    let svg = svg(&graph());
    assert!(svg.contains("&lt;db&gt;") && !svg.contains("<db>"), "{svg}");
    let number = |line: &str, key: &str| -> usize {
        let (_, rest) = line.split_once(&format!(" {key}=\"")).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let boxes: Vec<_> = svg.lines().filter(|line| line.starts_with("<rect x=")).collect();
    assert_eq!(boxes.len(), 2 + 2 + 3, "trunks, host ends, interfaces");
    for (i, a) in boxes.iter().enumerate() {
        for b in boxes[..i].iter().filter(|b| number(b, "x") == number(a, "x")) {
            let (first, second) = if number(a, "y") < number(b, "y") { (a, b) } else { (b, a) };
            assert!(number(first, "y") + number(first, "height") < number(second, "y"), "{first}\n{second}");
        }
    }
}

#[test]
fn a_bridge_is_drawn_at_the_height_of_its_containers() {
    let mut graph = graph();
    let top = |graph: &Graph, name: &str| {
        let svg = svg(graph);
        let (before, _) = svg.split_once(&format!("class=\"title\">{name}</text>")).unwrap();
        let (_, y) = before.rsplit_once(" y=\"").unwrap();
        y.split('"').next().unwrap().parse::<usize>().unwrap()
    };
    graph.trunks[1].name = "cni1".into();
    graph.containers.truncate(1);
    assert!(top(&graph, "cni0") < top(&graph, "cni1"));
    graph.containers[0].interfaces.reverse();
    assert!(top(&graph, "cni0") > top(&graph, "cni1"));
}

/// The trunk of a link in a container: its name and kind.
fn trunk_of(link: Link, inside: &[Link], host: &[Link]) -> (String, String) {
    let [inside, host] = [inside, host].map(|links| Live { links: links.to_vec(), ..Live::default() });
    let (trunk, end) = trunk::of(&AddResult::default(), &host, Some((&inside, &link)), "web");
    assert_eq!(end, None);
    (trunk.name, trunk.kind)
}

/// A link of a kind whose parent is link number 7.
fn child(kind: LinkKind) -> Link {
    Link { name: "eth0".into(), kind: Some(kind), peer: Some(7), peer_netns_id: Some(0), ..Link::default() }
}

fn seven(name: &str, kind: Option<LinkKind>) -> Link {
    Link { name: name.into(), index: 7, kind, ..Link::default() }
}

#[test]
fn a_macvlan_is_connected_to_its_master_and_a_dummy_to_nothing() {
    let macvlan = child(LinkKind::Macvlan { tap: false, mode: MacvlanMode::Private, broadcast_queue: None });
    assert_eq!(kind(&macvlan).as_deref(), Some("macvlan private"));
    assert_eq!(trunk_of(macvlan.clone(), &[], &[seven("lan0", None)]), ("lan0".into(), "device".into()));
    assert_eq!(trunk_of(macvlan, &[], &[]), ("host".into(), "without a bridge".into()), "its master is gone");
    let dummy = Link { kind: Some(LinkKind::Dummy), ..Link::default() };
    assert_eq!(trunk_of(dummy, &[], &[]), ("nowhere".into(), String::new()));
}

#[test]
fn a_vlan_and_an_ipvlan_are_connected_to_their_masters_and_have_a_kind() {
    let vlan = child(LinkKind::Vlan { id: 100, protocol: VlanProtocol::Customer });
    let ipvlan = child(LinkKind::Ipvlan { mode: IpvlanMode::L3, flag: IpvlanFlag::Bridge });
    for (link, title) in [(vlan, "vlan 100"), (ipvlan, "ipvlan l3")] {
        assert_eq!(kind(&link).as_deref(), Some(title));
        assert_eq!(trunk_of(link, &[], &[seven("lan0", None)]), ("lan0".into(), "device".into()));
    }
    // A VLAN of the host is a master, too.
    let tagged = seven("lan0.5", Some(LinkKind::Vlan { id: 5, protocol: VlanProtocol::Customer }));
    let macvlan = child(LinkKind::Macvlan { tap: false, mode: MacvlanMode::Bridge, broadcast_queue: None });
    assert_eq!(trunk_of(macvlan, &[], &[tagged]), ("lan0.5".into(), "vlan 5".into()));
}

#[test]
fn an_interface_in_the_container_may_be_the_master() {
    let inner = Link { peer_netns_id: None, ..child(LinkKind::Other("ipvlan".into())) };
    let device = seven("net1", Some(LinkKind::Veth));
    // A link of the host has the same number.
    let other = seven("lan0", None);
    assert_eq!(trunk_of(inner, &[device], &[other]), ("net1 of web".into(), "veth".into()));
}

#[test]
fn a_tap_is_connected_to_its_programs_or_to_its_bridge_in_the_container() {
    let tap = Link {
        name: "eth0".into(),
        kind: Some(LinkKind::Tun(TunKind { tap: true, ..TunKind::default() })),
        ..Link::default()
    };
    assert_eq!(kind(&tap).as_deref(), Some("tap"));
    assert_eq!(trunk_of(tap.clone(), &[], &[]), ("programs".into(), "behind taps".into()));
    let bridge = seven("inner", Some(LinkKind::Bridge { vlan_filtering: false }));
    let port = Link { master: Some(7), ..tap };
    assert_eq!(trunk_of(port, &[bridge], &[]), ("inner of web".into(), "bridge".into()));
}

#[test]
fn a_moved_device_is_shown_with_its_name_on_the_host() {
    let device = Link { name: "eth0".into(), alias: "enp3s0".into(), ..Link::default() };
    let moved = |link: &Link| trunk_of(link.clone(), &[], &[]);
    assert_eq!(moved(&device), ("enp3s0 of web".into(), "moved device".into()));
    let virtual_one = Link { kind: Some(LinkKind::Veth), ..device.clone() };
    assert_eq!(moved(&virtual_one), ("enp3s0 of web".into(), "moved device".into()));
    let nameless = Link { alias: String::new(), ..device };
    assert_eq!(moved(&nameless), ("eth0 of web".into(), "moved device".into()));
    let made = Link { alias: "cni pods web eth0".into(), ..virtual_one };
    assert_eq!(moved(&made), ("host".into(), "without a bridge".into()));
}
