use std::os::unix::fs::symlink;

use super::*;
use crate::names::{BUILDKIT, CONTAINERD, CRI_O, KUBELET, NERDCTL, NOMAD, PODMAN};

/// A host with these files.
fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = below(root.path(), Path::new(path));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    root
}

/// The first entry of a runtime. Its configurations must be readable.
#[track_caller]
fn runtime(name: &str, files: &[(&str, &str)]) -> Runtime {
    let root = host(files);
    let (all, problems) = of_host(root.path());
    assert_eq!(problems, [""; 0]);
    all.into_iter().find(|runtime| runtime.name == name).unwrap()
}

fn paths<const N: usize>(paths: [&str; N]) -> Vec<PathBuf> {
    paths.map(PathBuf::from).to_vec()
}

/// The configuration of Debian's containerd 1.6, and the output of `containerd config default` of 2.1.
#[test]
fn containerds_directories_are_found_in_every_version_of_its_configuration() {
    let config = "/etc/containerd/config.toml";
    let debian = r#"
version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd/opt"
"#;
    let found = runtime(CONTAINERD, &[(config, debian)]);
    assert_eq!(found.plugins, paths(["/usr/lib/cni"]));
    assert_eq!(found.networks, Path::new("/etc/cni/net.d"));
    assert_eq!(found.source.as_deref(), Some(Path::new(config)));
    assert!(found.is_present && found.runs_plugins);

    for version in [3, 4] {
        let text = format!(
            "version = {version}\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dir = ''\n  \
             bin_dirs = ['/opt/cni/bin', '/usr/lib/cni']\n  conf_dir = '/srv/net.d'\n  max_conf_num = 1\n"
        );
        let found = runtime(CONTAINERD, &[(config, &text)]);
        assert_eq!(found.plugins, paths(["/opt/cni/bin", "/usr/lib/cni"]));
        assert_eq!(found.networks, Path::new("/srv/net.d"));
    }
    let version_1 = "[plugins.cri.cni]\nbin_dir = \"/a\"\nconf_dir = \"/srv/net.d\"";
    assert_eq!(runtime(CONTAINERD, &[(config, version_1)]).plugins, paths(["/a"]));
    for name in ["cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"] {
        let docker = runtime(CONTAINERD, &[(config, &format!("disabled_plugins = [\"{name}\"]"))]);
        assert!(docker.is_present && !docker.runs_plugins, "{name}");
    }
}

#[test]
fn containerds_imports_are_followed_in_place_of_the_default_ones() {
    let config = "/etc/containerd/config.toml";
    let cni = |dir| format!("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"{dir}\"");
    let by_default =
        runtime(CONTAINERD, &[(config, &cni("/a")), ("/etc/containerd/conf.d/1.toml", &cni("/b"))]);
    assert_eq!(by_default.plugins, paths(["/b"]));
    assert_eq!(by_default.source.unwrap(), Path::new("/etc/containerd/conf.d/1.toml"));
    let imports = format!("imports = [\"drop-in/*.toml\", \"/srv/last.toml\"]\n{}", cni("/a"));
    let found = runtime(
        CONTAINERD,
        &[
            (config, &imports),
            ("/etc/containerd/conf.d/1.toml", &cni("/not imported")),
            ("/etc/containerd/drop-in/1.toml", &cni("/b")),
            ("/etc/containerd/drop-in/2.toml", &cni("/c")),
            ("/srv/last.toml", "imports = [\"/etc/containerd/config.toml\"]\nversion = 2"),
        ],
    );
    assert_eq!(found.plugins, paths(["/c"]));
}

#[test]
fn lists_and_comments_of_crio_podman_and_nerdctl_are_read() {
    let crio = "[crio.network]\n# network_dir = \"/etc/cni/net.d/\"\nnetwork_dir = \"/srv/crio\"\nplugin_dirs = [\n\t\"/a\",\n\t\"/b\",\n]";
    let found = runtime(CRI_O, &[("/etc/crio/crio.conf.d/10-crio.conf", crio)]);
    assert_eq!((found.networks, found.plugins), ("/srv/crio".into(), paths(["/a", "/b"])));

    let conf = "/etc/containers/containers.conf";
    let podman = "[network]\nnetwork_config_dir = \"/srv/podman\"\ncni_plugin_dirs = [\"/a\"]\n[engine]\nnum_locks = 1";
    let found = runtime(PODMAN, &[("/usr/bin/podman", ""), (conf, podman)]);
    assert_eq!((found.networks, found.plugins), ("/srv/podman".into(), paths(["/a"])));
    let more = "[network]\ncni_plugin_dirs = [\"/b\", {append=true}]";
    let found = runtime(PODMAN, &[(conf, podman), ("/etc/containers/containers.conf.d/b.conf", more)]);
    assert_eq!(found.plugins, paths(["/a", "/b"]));
    let empty = runtime(PODMAN, &[(conf, "[network]\nnetwork_config_dir = \"\"")]);
    assert_eq!((empty.plugins.len(), empty.source, empty.is_present), (5, None, false));

    let nerdctl = "debug = true\ncni_netconfpath = \"/srv/nerdctl\"\ncni_path = \"/a\"";
    let found = runtime(NERDCTL, &[("/etc/nerdctl/nerdctl.toml", nerdctl)]);
    assert_eq!((found.networks, found.plugins), ("/srv/nerdctl".into(), paths(["/a"])));
}

#[test]
fn podman_runs_plugins_unless_it_has_netavark() {
    let conf = "/etc/containers/containers.conf";
    let netavark = ("/usr/lib/podman/netavark", "");
    let chosen = |backend| ("/var/lib/containers/storage/defaultNetworkBackend", backend);
    let runs = |files: &[(&str, &str)]| runtime(PODMAN, files).runs_plugins;
    assert!(runs(&[]));
    assert!(!runs(&[netavark]));
    assert!(runs(&[netavark, chosen("cni")]));
    assert!(!runs(&[chosen("netavark\n")]));
    assert!(runs(&[chosen("netavark"), (conf, "[network]\nnetwork_backend = \"cni\"")]));
}

#[test]
fn nomad_buildkit_and_old_flags_of_the_kubelet_are_read() {
    let hcl = "client {\n  enabled = true\n  # cni_path = \"/no\"\n  cni_path = \"/a:/b\" # of plugins\n  cni_config_dir = \"/srv/nomad\"\n}";
    let found = runtime(NOMAD, &[("/etc/nomad.d/client.hcl", hcl)]);
    assert_eq!((found.networks, found.plugins), ("/srv/nomad".into(), paths(["/a", "/b"])));
    let found = runtime(NOMAD, &[("/etc/nomad.d/client.json", r#"{"client": [{"cni_path": "/c"}]}"#)]);
    assert_eq!(found.plugins, paths(["/c"]));

    let buildkit = "[worker.oci]\nnetworkMode = \"cni\"\ncniBinaryPath = \"/d\"";
    let found = runtime(BUILDKIT, &[("/etc/buildkit/buildkitd.toml", buildkit)]);
    assert_eq!(found.plugins, paths(["/d"]));

    let flags =
        "KUBELET_KUBEADM_ARGS=\"--network-plugin=cni --cni-bin-dir /e,/f --pod-infra-container-image=pause\"";
    for file in [
        "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
        "/var/lib/kubelet/kubeadm-flags.env",
        "/etc/default/kubelet",
        "/etc/sysconfig/kubelet",
    ] {
        let found = runtime(KUBELET, &[(file, flags)]);
        assert_eq!((found.plugins, found.is_present), (paths(["/e", "/f"]), true), "{file}");
        assert_eq!(found.source.as_deref(), Some(Path::new(file)));
    }
    let other = "KUBELET_EXTRA_ARGS=--node-ip=10.0.0.1";
    let root = host(&[("/etc/default/kubelet", other)]);
    assert!(of_host(root.path()).0.iter().all(|runtime| runtime.name != KUBELET));
}

#[test]
fn k3s_is_found_also_where_its_data_directory_was_moved() {
    let config =
        "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = [\"/srv/k3s/data/cni\"]";
    let moved = [
        ("/etc/rancher/k3s/config.yaml", "token: x\ndata-dir: \"/srv/k3s\"\n"),
        ("/srv/k3s/agent/etc/containerd/config.toml", config),
    ];
    let found = runtime("k3s", &moved);
    assert_eq!((found.plugins, found.is_present), (paths(["/srv/k3s/data/cni"]), true));
    assert_eq!(found.networks, Path::new("/srv/k3s/agent/etc/cni/net.d"));
    assert!(!runtime("k3s", &[]).is_present);
    assert!(!runtime("RKE2", &[]).is_present);
}

#[test]
fn k3s_is_found_by_a_container_that_sees_only_etc() {
    for sign in [
        "/etc/systemd/system/k3s.service",
        "/etc/systemd/system/k3s-agent.service",
        "/etc/init.d/k3s",
        "/etc/init.d/k3s-agent",
        "/etc/rancher/k3s/k3s.yaml",
    ] {
        let found = runtime("k3s", &[(sign, "")]);
        assert!(found.is_present && found.plugins[0] == Path::new("/var/lib/rancher/k3s/data/cni"), "{sign}");
    }
}

/// RKE2 writes the same form of configuration as k3s, with the usual directories.
#[test]
fn rke2_is_found_also_where_its_data_directory_was_moved() {
    let config = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = [\"/opt/cni/bin\"]\nconf_dir = \"/etc/cni/net.d\"";
    let file = "agent/etc/containerd/config.toml";
    let usual = format!("/var/lib/rancher/rke2/{file}");
    let found = runtime("RKE2", &[(&usual, config)]);
    assert_eq!((found.plugins, found.is_present), (paths(["/opt/cni/bin"]), true));
    assert_eq!((found.networks, found.source), ("/etc/cni/net.d".into(), Some(usual.into())));

    let other = config.replace("/opt/cni/bin", "/srv/plugins");
    let moved = format!("/srv/rke2/{file}");
    let files = [("/etc/rancher/rke2/config.yaml", "data-dir: /srv/rke2\n"), (&moved, &other)];
    let found = runtime("RKE2", &files);
    assert_eq!((found.plugins, found.is_present), (paths(["/srv/plugins"]), true));
    assert_eq!(found.source, Some(moved.into()));
}

/// MicroK8s writes its configuration at each start, with the directory of its snap's current revision.
#[test]
fn microk8s_directories_are_those_of_its_snap() {
    let config = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/var/snap/microk8s/8511/opt/cni/bin\"\n  \
                  conf_dir = \"/var/snap/microk8s/8511/args/cni-network\"\n";
    let found = runtime("MicroK8s", &[("/var/snap/microk8s/current/args/containerd.toml", config)]);
    assert_eq!((found.plugins, found.is_present), (paths(["/var/snap/microk8s/8511/opt/cni/bin"]), true));
    assert_eq!(found.networks, Path::new("/var/snap/microk8s/8511/args/cni-network"));

    // A container that sees only /etc of the host.
    let unit = ("/etc/systemd/system/snap.microk8s.daemon-containerd.service", "[Service]");
    let found = runtime("MicroK8s", &[unit]);
    assert_eq!((found.plugins, found.is_present), (paths(["/var/snap/microk8s/current/opt/cni/bin"]), true));
    assert_eq!(found.networks, Path::new("/var/snap/microk8s/current/args/cni-network"));
    assert!(!runtime("MicroK8s", &[]).is_present);
}

#[test]
fn cri_dockerds_directories_are_in_its_unit_and_in_drop_ins() {
    let packages =
        "[Service]\nExecStart=/usr/bin/cri-dockerd --container-runtime-endpoint fd:// --network-plugin=";
    let unit = |options: &str| {
        format!(
            "# --cni-bin-dir=/no\n[Service]\nExecStart=/usr/bin/cri-dockerd --network-plugin=cni {options} --pod-infra-container-image=pause"
        )
    };
    let package = "/lib/systemd/system/cri-docker.service";
    let administrator = "/etc/systemd/system/cri-docker.service";
    let drop_in = "/etc/systemd/system/cri-docker.service.d/10-cni.conf";

    let first = unit("--cni-bin-dir=/a,/b --cni-conf-dir=/srv/net.d");
    let found = runtime(KUBELET, &[(package, packages), (administrator, &first)]);
    assert_eq!((found.plugins, found.is_present), (paths(["/a", "/b"]), true));
    assert_eq!((found.networks, found.source), ("/srv/net.d".into(), Some(administrator.into())));

    let second = unit("--cni-bin-dir /c");
    let found = runtime(KUBELET, &[(package, packages), (administrator, &first), (drop_in, &second)]);
    assert_eq!((found.plugins, found.source), (paths(["/c"]), Some(drop_in.into())));

    // The package's unit names no directory.
    let root = host(&[(package, packages)]);
    assert!(of_host(root.path()).0.iter().all(|runtime| runtime.name != KUBELET));
}

#[test]
fn a_configuration_that_cannot_be_read_is_reported_and_the_defaults_count() {
    let root = host(&[("/etc/containerd/config.toml", "version = ["), ("/etc/crio/crio.conf", "[crio]")]);
    let (all, problems) = of_host(root.path());
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("/etc/containerd/config.toml is not used: it is not TOML"), "{problems:?}");
    let containerd = all.iter().find(|runtime| runtime.name == CONTAINERD).unwrap();
    assert_eq!((&containerd.plugins, containerd.is_present), (&paths(["/opt/cni/bin"]), true));
}

/// nerdctl stops at the first directory that exists, and does not search it for the plugin.
#[test]
fn nerdctl_uses_the_first_of_its_default_directories_that_exists() {
    let plugins = |files: &[(&str, &str)]| runtime(NERDCTL, files).plugins;
    assert_eq!(plugins(&[]), paths(["/opt/cni/bin"]));
    let debian = ("/usr/lib/cni/bridge", "");
    assert_eq!(plugins(&[debian]), paths(["/usr/lib/cni"]));
    let local = runtime(NERDCTL, &[("/usr/local/lib/cni/bridge", ""), debian]);
    assert_eq!(local.preferred, paths(["/opt/cni/bin", "/usr/local/libexec/cni"]));
    let homebrew = ("/home/linuxbrew/.linuxbrew/opt/cni-plugins/bin/bridge", "");
    assert_eq!(plugins(&[debian, homebrew]), paths(["/home/linuxbrew/.linuxbrew/opt/cni-plugins/bin"]));
    assert_eq!(plugins(&[debian, homebrew, ("/opt/cni/bin/README", "")]), paths(["/opt/cni/bin"]));
    let config = ("/etc/nerdctl/nerdctl.toml", "cni_path = \"/a\"");
    let configured = runtime(NERDCTL, &[debian, config]);
    assert_eq!((configured.plugins, configured.preferred), (paths(["/a"]), vec![]));
}

/// In a container, the root directory of the host is below another directory.
#[test]
fn symbolic_links_of_the_host_lead_to_files_below_its_root() {
    let cni = |dir| format!("version = 2\n[plugins.cri.cni]\nbin_dir = \"{dir}\"");
    let root = host(&[("/srv/containerd/config.toml", &cni("/a")), ("/etc/alternatives/x", "")]);
    let config = below(root.path(), Path::new("/etc/containerd"));
    let found = || {
        let (all, problems) = of_host(root.path());
        let containerd = all.into_iter().find(|runtime| runtime.name == CONTAINERD).unwrap();
        (containerd.plugins, problems)
    };
    for target in ["/srv/containerd", "../srv/containerd", "/../../srv/./containerd", "/etc/link"] {
        symlink(target, &config).unwrap();
        symlink("/srv/containerd", below(root.path(), Path::new("/etc/link"))).ok();
        assert_eq!(found(), (paths(["/a"]), vec![]), "{target}");
        fs::remove_file(&config).unwrap();
    }
    fs::create_dir(&config).unwrap();
    symlink("/srv/containerd/config.toml", config.join("config.toml")).unwrap();
    assert_eq!(found(), (paths(["/a"]), vec![]));
    // The target of the link is not mounted in the container.
    fs::remove_dir_all(below(root.path(), Path::new("/srv"))).unwrap();
    let (plugins, problems) = found();
    assert_eq!((plugins, problems.len()), (paths(["/opt/cni/bin"]), 1), "{problems:?}");
    assert!(problems[0].contains("/etc/containerd/config.toml leads to"), "{problems:?}");
    // The directory of a pattern.
    symlink("/nowhere", below(root.path(), Path::new("/etc/nomad.d"))).unwrap();
    let (_, problems) = found();
    assert!(problems.iter().any(|problem| problem.contains("/etc/nomad.d leads to")), "{problems:?}");
}

/// In a container that sees only /etc of the host, /dev/null is not below the host's root.
#[test]
fn masked_units_and_drop_ins_are_no_problem() {
    let root = host(&[("/etc/systemd/system/cri-docker.service.d/20-other.conf", "[Service]")]);
    let units = below(root.path(), Path::new("/etc/systemd/system"));
    symlink("/dev/null", units.join("cri-docker.service")).unwrap();
    symlink("/dev/null", units.join("cri-docker.service.d/10-cni.conf")).unwrap();
    symlink("/dev/null", units.join("kubelet.service.d")).unwrap();
    assert_eq!(of_host(root.path()).1, [""; 0]);
    // On the host itself.
    assert_eq!(read(Form::Flags, Path::new("/"), &units.join("cri-docker.service")), Ok(None));
}
