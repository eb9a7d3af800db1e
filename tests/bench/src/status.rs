//! STATUS, which the kubelet sends every few seconds.

use crate::collection::mapped;
use crate::machine::Prepare;
use crate::process::{How, run};

/// STATUS of portmap on a host that has a mapping: the tables exist.
pub fn status_of_portmap() -> Box<Prepare> {
    Box::new(|lab, side| {
        let call = side.plugin(lab, "portmap").version("1.1.0").config(mapped(0));
        let add = call.clone().on(&lab.container("pod"));
        let mut failures = run(&add, "ADD", How::Timed).0.failures;
        Box::new(move |how| {
            let mut spent = run(&call, "STATUS", how).0;
            spent.failures.append(&mut failures);
            vec![spent]
        })
    })
}
