//! Taps, seen by `ip link` and by the program behind them.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{lab, sh};
use netlink::{Link, LinkKind, Netlink, Tun, TunKind};
use nix::errno::Errno;

/// A tap that is not persistent yet. `None` if the kernel has no taps.
fn tap(multi_queue: bool) -> Option<Tun> {
    let Ok(tun) = Tun::open() else {
        common::skip("this kernel has no taps");
        return None;
    };
    tun.create("tap0", multi_queue).unwrap();
    Some(tun)
}

/// Closes a tap that is not persistent. A child process of another test may keep it for a moment.
fn close(nl: &Netlink, tun: Tun) {
    drop(tun);
    while nl.link("tap0").unwrap().is_some() {
        std::thread::yield_now();
    }
}

fn link(nl: &Netlink) -> Link {
    nl.link("tap0").unwrap().unwrap()
}

#[test]
fn a_tap_is_down_and_deleted_when_its_creator_closes_it() {
    lab(|lab| {
        let Some(tun) = tap(false) else { return };
        let made = link(&lab.host);
        assert!(!made.up && made.mac.is_some());
        assert_eq!(made.kind, Some(LinkKind::Tun(TunKind { tap: true, ..TunKind::default() })));
        close(&lab.host, tun);
    });
}

#[test]
fn a_persistent_tap_keeps_owner_group_and_queues() {
    lab(|lab| {
        let Some(tun) = tap(true) else { return };
        tun.set_owner(0).unwrap();
        tun.set_group(4_294_967_294).unwrap();
        tun.persist().unwrap();
        drop(tun);
        let kind = TunKind {
            tap: true,
            owner: Some(0),
            group: Some(4_294_967_294),
            multi_queue: true,
            persistent: true,
        };
        assert_eq!(link(&lab.host).kind, Some(LinkKind::Tun(kind)));
        let shown = sh("ip -d link show tap0");
        for text in ["type tap", "pi off", "multi_queue", "user root", "group 4294967294", "persist on"] {
            assert!(shown.contains(text), "{text} in {shown}");
        }
    });
}

#[test]
fn a_program_opens_the_queues_that_the_tap_has() {
    lab(|lab| {
        let Some(single) = tap(false) else { return };
        let refused = |multi_queue| {
            let error = Tun::open().unwrap().open_queue("tap0", multi_queue).unwrap_err();
            assert!(error.to_string().contains("tap0"), "{error}");
            error.errno()
        };
        assert_eq!((refused(false), refused(true)), (Some(Errno::EBUSY), Some(Errno::EINVAL)));
        close(&lab.host, single);
        let _first = tap(true).unwrap();
        let second = Tun::open().unwrap();
        second.open_queue("tap0", true).unwrap();
    });
}

#[test]
fn a_name_that_any_link_has_is_refused() {
    lab(|lab| {
        let Some(tun) = tap(false) else { return };
        tun.persist().unwrap();
        let before = lab.host.links().unwrap();
        let other = Tun::open().unwrap();
        for name in ["tap0", "lo"] {
            let error = other.create(name, false).unwrap_err();
            assert_eq!(error.errno(), Some(Errno::EBUSY), "{error}");
            assert!(error.to_string().starts_with(&format!("create tap {name}: ")), "{error}");
        }
        let long = other.create("sixteen-letters-", false).unwrap_err();
        assert_eq!(long.errno(), Some(Errno::ENAMETOOLONG));
        assert_eq!(lab.host.links().unwrap(), before);
    });
}

#[test]
fn the_number_that_means_no_owner_is_refused() {
    lab(|_| {
        let Some(tun) = tap(false) else { return };
        let error = tun.set_owner(u32::MAX).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("4294967295"), "{error}");
    });
}
