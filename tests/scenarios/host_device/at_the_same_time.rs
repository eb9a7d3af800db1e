//! host-device: calls for one device at the same time.

use std::fs::File;

use lab::{Call, Lab, StopPoint, beyond_reference, injecting};

use super::{alias, assert_home, bare, of_cable};
use crate::common::leases;

const LOCK: &str = "/run/ferrule/host-device.lock";

/// The call, which does not wait for a lock: it fails if another process holds one.
fn impatient(call: &Call) -> Call {
    call.clone().under(&injecting(&["-e", "inject=nanosleep,clock_nanosleep:retval=0"]))
}

#[test]
fn a_del_during_the_next_containers_add_does_not_lose_the_state_of_the_device() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let of_a = bare(&lab, &a);
    let of_b = of_a.clone().on(&b);
    // As if the kernel had moved it to the host.
    let leaves_a = || {
        of_a.add().ok_result();
        a.sh("ip link set eth0 netns host");
    };
    leaves_a();
    let first_change =
        StopPoint::before("RTM_NEWLINK", |strace| drop(of_b.clone().under(strace).add().ok_result()));
    of_b.del().ok();
    leaves_a();
    let add = |strace: &[String]| of_b.clone().under(strace).add();
    first_change.run(add, || drop(impatient(&of_a).del())).ok_result();
    of_a.del().ok();
    assert_eq!(alias(&b, "eth0"), "dev0");
    of_b.del().ok();
    assert_home(&lab);
}

#[test]
fn of_two_adds_for_one_device_the_first_gets_it() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|id| lab.container(id));
    let of_a = bare(&lab, &a);
    let of_b = of_a.clone().on(&b);
    let add = |strace: &[String]| of_a.clone().under(strace).add();
    let move_in = StopPoint::before("RTM_NEWLINK", |strace| drop(add(strace).ok_result()));
    of_a.del().ok();
    move_in.run(add, || assert_ne!(impatient(&of_b).add().exit, Some(0))).ok_result();
    of_b.add().refused(7, "device dev0: no such interface");
    of_b.del().ok();
    of_a.del().ok();
    assert_home(&lab);
}

#[test]
fn a_del_that_does_not_get_the_lock_releases_the_lease_and_the_next_one_returns_the_device() {
    beyond_reference!("way-home");
    let lab = Lab::new();
    let pod = lab.container("pod");
    let call = of_cable(&lab, &pod);
    call.add().ok_result();
    let held = File::open(LOCK).unwrap();
    held.lock().unwrap();
    impatient(&call).del().refused(11, LOCK);
    assert!(leases().is_empty() && pod.link("eth0").is_some());
    impatient(&call).gc(&[]).refused(11, LOCK);
    drop(held);
    call.del().ok();
    assert_home(&lab);
}
