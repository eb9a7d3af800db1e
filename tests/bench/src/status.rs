//! STATUS, which the kubelet sends every few seconds.

use lab::{Container, Lab};

use crate::dynamic::with_daemon;
use crate::machine::{Prepare, Round};
use crate::networks::dynamic;
use crate::process::{How, run};
use crate::rounds::{Before, Conflist, attach};
use crate::side::Side;

/// STATUS of a plugin on a host with one attachment: the plugin's tables and files exist.
pub fn status(plugin: &'static str, conflist: Conflist, before: Before) -> Box<Prepare> {
    Box::new(move |lab, side| {
        let prepared = before(lab, side).failures;
        after_add(plugin, conflist, (lab, side), &lab.container("pod"), prepared)
    })
}

/// STATUS of dhcp, whose daemon answers.
pub fn status_of_dhcp() -> Box<Prepare> {
    Box::new(move |lab, side| {
        let site = with_daemon(lab, side);
        let pod = lab.container("pod");
        site.plug(&pod.id);
        let mut round = after_add("dhcp", dynamic, (lab, side), &pod, Vec::new());
        Box::new(move |how| {
            // Server and daemon run as long as there are rounds.
            let _running = &site;
            round(how)
        })
    })
}

/// The failures of the preparations are those of the first round.
fn after_add(
    plugin: &str,
    conflist: Conflist,
    (lab, side): (&Lab, Side),
    pod: &Container,
    mut failures: Vec<String>,
) -> Round {
    let network = side.network(lab, &conflist(side, 0));
    failures.extend(attach(&network, pod, How::Timed, None).0.failures);
    let call = network.into_iter().find(|call| call.plugin() == plugin).expect("the network has the plugin");
    let call = call.version("1.1.0");
    Box::new(move |how| {
        let mut spent = run(&call, "STATUS", how).0;
        spent.failures.append(&mut failures);
        vec![spent]
    })
}
