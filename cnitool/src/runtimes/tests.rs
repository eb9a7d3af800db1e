use std::fs;

use base64::prelude::{BASE64_STANDARD, Engine};
use runtime::Cache;
use serde_json::json;

use super::*;

/// The contents of a cache file.
fn entry(cached: &Value) -> Entry {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("results")).unwrap();
    fs::write(dir.path().join("results/network-container-eth0"), cached.to_string()).unwrap();
    Cache::new(dir.path()).list().unwrap().remove(0)
}

fn runtime_of(cached: &Value) -> Option<&'static str> {
    of_attachment(&entry(cached))
}

/// Files from /var/lib/cni/results, without their configurations, addresses and routes.
#[test]
fn data_of_runtimes_in_the_cache_identifies_them() {
    let podman_4_3_1 = json!({
        "kind": "cniCacheV1",
        "containerId": "b144461d93f3a28fce102c6ef363e0a136de42a00eb2293f16e67be9c0442123",
        "ifName": "eth0", "networkName": "podman",
        "cniArgs": [["IgnoreUnknown", "1"], ["K8S_POD_NAME", "web"]],
        "capabilityArgs": {"aliases": {"podman": ["b144461d93f3"]},
            "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
        "result": {"cniVersion": "0.4.0", "dns": {}, "interfaces": [
            {"mac": "02:4c:8b:75:01:39", "name": "cni-podman0"},
            {"mac": "36:6d:d3:ab:5b:18", "name": "vethfd73da1aca0"},
            {"mac": "b2:1f:41:63:c7:db", "name": "eth0", "sandbox": "/run/netns/netns-0666e705-a4bd-c8fb-52d8-76294d20b4ae"},
        ]},
    });
    // `ctr run --cni` on the network of Podman's package.
    let containerd_1_6_20 = json!({
        "kind": "cniCacheV1", "containerId": "default-web", "ifName": "eth0", "networkName": "podman",
        "result": {"cniVersion": "0.4.0", "dns": {}, "interfaces": [
            {"mac": "02:d1:68:99:9a:94", "name": "cni-podman0"},
            {"mac": "42:91:bd:a7:d0:57", "name": "veth1dadf4da878"},
            {"mac": "3e:d6:14:5f:d7:15", "name": "eth0", "sandbox": "/proc/101/ns/net"},
        ]},
    });
    // Multus repeats the arguments.
    let id = "3f6940ab5ab43bc522569d15b23f8c1bbde1d7678b080398506924fc01d72755";
    let args = [
        json!(["IgnoreUnknown", "true"]),
        json!(["K8S_POD_NAMESPACE", "default"]),
        json!(["K8S_POD_NAME", "macvlan"]),
        json!(["K8S_POD_INFRA_CONTAINER_ID", id]),
        json!(["K8S_POD_UID", "f0bfbd5b-096d-48ef-998c-da26743dd0cb"]),
    ];
    let args = [&args[..], &args[..]].concat();
    let openshift = json!({
        "kind": "cniCacheV1", "containerId": id, "ifName": "eth0", "networkName": "cbr0",
        "netns": "/var/run/netns/8b8677c8-8929-4746-8206-514069760f6e",
        "cniArgs": args, "result": {"cniVersion": "0.3.1"},
    });
    // The kubelet 1.19 passes neither namespace nor arguments.
    let kubenet = json!({
        "kind": "cniCacheV1",
        "containerId": "f89681f0fc8025fced6ef3d14e220086cff2a7e89876de387b41e7892b0428c5",
        "ifName": "eth0", "networkName": "kubenet",
        "result": {"cniVersion": "0.2.0", "dns": {}, "ip4": {"ip": "10.248.0.88/25"}},
    });
    let cases = [
        (podman_4_3_1, Some(PODMAN)),
        (containerd_1_6_20, Some(CONTAINERD)),
        (openshift, Some(CRI_O)),
        (kubenet, None),
    ];
    for (cached, runtime) in cases {
        assert_eq!(runtime_of(&cached), runtime, "{cached:#}");
    }
}

/// A container's id, its namespace, and CNI_ARGS.
fn shape(id: &str, netns: &str, args: &[(&str, &str)]) -> Value {
    json!({
        "kind": "cniCacheV1", "containerId": id, "ifName": "eth0", "networkName": "net", "netns": netns, "cniArgs": args,
        "result": {},
    })
}

/// Values as in the source code of each runtime.
#[test]
fn a_runtime_is_recognized_by_ids_namespaces_and_arguments_and_ambiguous_attachments_are_unknown() {
    let hash = &"0123456789abcdef".repeat(4);
    let uuid = "0666e705-a4bd-c8fb-52d8-76294d20b4ae";
    let [cni, plain, cri_o] = [
        format!("/var/run/netns/cni-{uuid}"),
        format!("/run/netns/{uuid}"),
        format!("/var/run/netns/{uuid}"),
    ];
    let pod =
        [("K8S_POD_NAMESPACE", "default"), ("K8S_POD_NAME", "web"), ("K8S_POD_INFRA_CONTAINER_ID", hash)];
    let same = [("K8S_POD_NAMESPACE", "web"), ("K8S_POD_NAME", "web"), ("K8S_POD_INFRA_CONTAINER_ID", hash)];
    let with_uid = [&same[..], &[("K8S_POD_UID", uuid)]].concat();
    let cases = [
        (shape("cnitool-43057b9dcc39fe733071", "/run/netns/blue", &[]), Some(CNITOOL)),
        (shape(hash, &format!("/run/user/1000/netns/netns-{uuid}"), &[]), Some(PODMAN)),
        (shape(hash, &cni, &[("K8S_POD_NAME", "web")]), Some(PODMAN)),
        (shape(hash, &cni, &pod), Some(CONTAINERD)),
        (shape(hash, &format!("/run/containerd/state/netns/cni-{uuid}"), &pod), Some(CONTAINERD)),
        (shape(hash, &cni, &with_uid), Some(CONTAINERD)),
        (shape(hash, &cni, &same), None),
        (shape(hash, &cni, &[]), None),
        (shape(hash, &cri_o, &pod), Some(CRI_O)),
        (shape(hash, &plain, &[]), None),
        (shape(hash, "/proc/42/ns/net", &pod), Some(DOCKER)),
        (shape(hash, "/proc/42/ns/net", &[]), None),
        (shape(&format!("default-{hash}"), "/proc/42/ns/net", &[]), Some(NERDCTL)),
        (shape("web", "/run/netns/web", &[("NERDCTL_CNI_DHCP_HOSTNAME", "")]), Some(NERDCTL)),
        (shape("openfaas-42", "/proc/42/ns/net", &[]), None),
        (shape(uuid, &plain, &[]), Some(NOMAD)),
        (shape(uuid, "/var/run/docker/netns/0123", &[("NOMAD_ALLOC_ID", uuid)]), Some(NOMAD)),
        (
            shape("kqi6dvvr0gk6yw24f2idwjkaw", "/var/lib/buildkit/net/cni/kqi6dvvr0gk6yw24f2idwjkaw", &[]),
            Some(BUILDKIT),
        ),
        (shape("web", "/run/netns/blue", &[]), None),
    ];
    for (cached, runtime) in cases {
        assert_eq!(runtime_of(&cached), runtime, "{cached:#}");
    }
}

#[test]
fn a_configuration_is_of_whom_has_left_its_marks_in_it() {
    let one = |plugin: Value| json!({"name": "net", "plugins": [{"type": "loopback"}, plugin]});
    let labelled = json!({"name": "blue", "args": {"podman_labels": {"a": "b"}}, "plugins": []});
    let cases = [
        (
            json!({"name": "bridge", "nerdctlID": "17f29b073143d8cd97b5bbe492bdeffe", "plugins": []}),
            Some(NERDCTL),
        ),
        (labelled, Some(PODMAN)),
        (one(json!({"type": "bridge", "bridge": "cni-podman1"})), Some(PODMAN)),
        (one(json!({"type": "firewall", "iptablesAdminChainName": "NOMAD-ADMIN"})), Some(NOMAD)),
        (one(json!({"type": "buildkit-cni-bridge"})), Some(BUILDKIT)),
        (one(json!({"type": "tc-redirect-tap"})), Some(FIRECRACKER)),
        (one(json!({"type": "bridge", "bridge": "cni0"})), None),
        (json!("none"), None),
    ];
    for (config, runtime) in cases {
        assert_eq!(of_config(config.to_string().as_bytes()), runtime, "{config}");
    }
}

#[test]
fn the_networks_owner_identifies_an_attachment_only_without_other_evidence() {
    let config = BASE64_STANDARD
        .encode(r#"{"name": "net", "plugins": [{"type": "bridge", "bridge": "cni-podman0"}]}"#);
    let mut cached = shape("web", "", &[]);
    cached["config"] = json!(config);
    assert_eq!(runtime_of(&cached), Some(PODMAN));
    cached["netns"] = json!("/run/netns/blue");
    assert_eq!(runtime_of(&cached), None);
}
