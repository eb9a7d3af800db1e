//! Rootless engines: everything is in a user namespace, and in the engine's directory.

use lab::{Lab, beyond_reference, until};
use serde_json::json;

use super::*;
use crate::reliability::privileges::user_namespace::Rootless;

/// The engine's directory. Here the lab owns it; usually the engine's user does.
const RUNTIME: &str = "/run/lab/runtime";

#[test]
fn rootless_the_files_are_in_the_engines_directory_and_the_last_del_removes_them() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    two_containers_come_and_go(&lab, &Rootless::with_users());
}

/// With the mount option hidepid=1 of /proc, the kernel refuses to show the arguments of other users' processes.
#[test]
fn rootless_the_server_is_found_although_proc_hides_other_users_processes() {
    beyond_reference!("dnsname");
    let lab = Lab::new();
    let rootless = Rootless::with_users();
    rootless.hide_processes();
    two_containers_come_and_go(&lab, &rootless);
}

fn two_containers_come_and_go(lab: &Lab, rootless: &Rootless) {
    fs::create_dir_all(RUNTIME).unwrap();
    let network = network(&json!({}));
    let call = |id: &str, n: usize| {
        let plugin = &network["plugins"][n];
        let call = lab.plugin(plugin["type"].as_str().unwrap()).config(plugin.clone());
        let call = call
            .env("CNI_CONTAINERID", id)
            .env("CNI_NETNS", "/run/netns/pod")
            .env("XDG_RUNTIME_DIR", RUNTIME);
        // Both interfaces are in the same namespace.
        rootless.inside(&call.ifname(id).args(&format!("K8S_POD_NAME={id}")))
    };
    let directory = Path::new(RUNTIME).join("containers/cni/dnsname/net");
    let add = |id: &str| {
        let prev = call(id, 0).without("CNI_ARGS").add().ok_result();
        let dnsname = call(id, 1).config(json!({"prevResult": prev}));
        dnsname.add().ok_result();
        dnsname.check(&prev).ok();
        dnsname
    };
    let [web, db] = ["web", "db"].map(add);
    let hosts = || fs::read_to_string(directory.join("addnhosts")).unwrap();
    assert!(hosts().contains("\tweb\t") && hosts().contains("\tdb\t"), "{}", hosts());
    let server = fs::read_to_string(directory.join("pidfile")).unwrap().trim().to_owned();
    assert!(is_gone("net") && !Path::new("/run/ferrule-dnsname/net").exists());

    web.without("CNI_NETNS").config(json!({"prevResult": null})).del().ok();
    assert!(!hosts().contains("\tweb\t") && hosts().contains("\tdb\t"), "{}", hosts());
    for _ in 0..2 {
        db.del().ok();
        assert!(!directory.exists());
        until("the server has exited", || !Path::new("/proc").join(&server).join("exe").exists());
    }
}
