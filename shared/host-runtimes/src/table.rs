//! Known runtimes: their configuration files and defaults.

/// Names for messages.
pub mod names {
    pub const BUILDKIT: &str = "BuildKit";
    pub const CONTAINERD: &str = "containerd";
    pub const CRI_O: &str = "CRI-O";
    pub const KUBELET: &str = "kubelet";
    pub const NERDCTL: &str = "nerdctl";
    pub const NOMAD: &str = "Nomad";
    pub const PODMAN: &str = "Podman";
}

/// Language of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Toml,
    /// TOML, of a runtime that may run without plugins.
    Podman,
    /// HCL, or JSON in files named `*.json`.
    Hcl,
    /// Command lines: `--key=value` or `--key value`.
    Flags,
}

#[derive(Debug)]
pub struct Entry {
    pub name: &'static str,
    pub form: Form,
    /// Any of these files shows that the runtime is installed.
    pub signs: &'static [&'static str],
    /// Configuration files. The last one that sets a directory wins. `*` matches any text, in sorted order. `~` is the user's configuration
    /// directory.
    pub files: &'static [&'static str],
    /// Keys of the directories of networks and of plugins. `*`: any table.
    pub keys: [&'static [&'static str]; 2],
    /// Default directory of networks.
    pub networks: &'static str,
    /// Default directories of plugins.
    pub plugins: &'static [&'static str],
    /// Whether the runtime uses only the first default directory that exists, also if it is empty.
    pub uses_first: bool,
    /// YAML file with `data-dir`, which moves the data directory, and the default data directory.
    pub data: Option<(&'static str, &'static str)>,
}

const NET_D: &str = "/etc/cni/net.d";
const PLUGINS: &[&str] = &["/opt/cni/bin"];
const PODMANS_PLUGINS: &[&str] =
    &["/usr/local/libexec/cni", "/usr/libexec/cni", "/usr/local/lib/cni", "/usr/lib/cni", "/opt/cni/bin"];
/// `CNIPath` of nerdctl's package `defaults`. Homebrew's directory is in the list since 2.3.0.
const NERDCTLS_PLUGINS: &[&str] = &[
    "/opt/cni/bin",
    "/usr/local/libexec/cni",
    "/usr/local/lib/cni",
    "/home/linuxbrew/.linuxbrew/opt/cni-plugins/bin",
    "/usr/libexec/cni",
    "/usr/lib/cni",
];
const OF_CONTAINERD: [&[&str]; 2] =
    [&["plugins.*.cni.conf_dir"], &["plugins.*.cni.bin_dir", "plugins.*.cni.bin_dirs"]];
const OF_PODMAN: [&[&str]; 2] = [&["network.network_config_dir"], &["network.cni_plugin_dirs"]];
const OF_NERDCTL: [&[&str]; 2] = [&["cni_netconfpath"], &["cni_path"]];

/// Values of most entries.
const TOML: Entry = Entry {
    name: "",
    form: Form::Toml,
    signs: &[],
    files: &[],
    keys: [&[], &[]],
    networks: NET_D,
    plugins: PLUGINS,
    uses_first: false,
    data: None,
};

pub const TABLE: &[Entry] = &[
    Entry {
        name: names::CONTAINERD,
        signs: &["/usr/bin/containerd", "/usr/local/bin/containerd", "/etc/containerd/config.toml"],
        // The second file is read only if the first one has no `imports`.
        files: &["/etc/containerd/config.toml", "/etc/containerd/conf.d/*.toml"],
        keys: OF_CONTAINERD,
        ..TOML
    },
    Entry {
        name: names::CRI_O,
        signs: &["/usr/bin/crio", "/usr/local/bin/crio", "/etc/crio"],
        files: &["/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"],
        keys: [&["crio.network.network_dir"], &["crio.network.plugin_dirs", "crio.network.plugin_dir"]],
        ..TOML
    },
    Entry {
        name: names::PODMAN,
        form: Form::Podman,
        signs: &["/usr/bin/podman", "/usr/local/bin/podman", "/usr/bin/buildah", "/usr/local/bin/buildah"],
        files: &[
            "/usr/share/containers/containers.conf",
            "/etc/containers/containers.conf",
            "/etc/containers/containers.conf.d/*.conf",
        ],
        keys: OF_PODMAN,
        plugins: PODMANS_PLUGINS,
        ..TOML
    },
    Entry {
        name: names::PODMAN,
        files: &["~/containers/containers.conf", "~/containers/containers.conf.d/*.conf"],
        keys: OF_PODMAN,
        networks: "~/cni/net.d",
        plugins: PODMANS_PLUGINS,
        ..TOML
    },
    Entry {
        name: "k3s",
        // A container that sees only /etc of the host still sees the services of systemd and OpenRC. If they have other
        // names: k3s's server creates the directory, and k3s's installer with OpenRC.
        signs: &[
            "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
            "/etc/systemd/system/k3s.service",
            "/etc/systemd/system/k3s-agent.service",
            "/etc/init.d/k3s",
            "/etc/init.d/k3s-agent",
            "/etc/rancher/k3s",
        ],
        files: &["/var/lib/rancher/k3s/agent/etc/containerd/config.toml"],
        keys: OF_CONTAINERD,
        networks: "/var/lib/rancher/k3s/agent/etc/cni/net.d",
        plugins: &["/var/lib/rancher/k3s/data/cni", "/var/lib/rancher/k3s/data/current/bin"],
        data: Some(("/etc/rancher/k3s/config.yaml", "/var/lib/rancher/k3s")),
        ..TOML
    },
    Entry {
        name: "RKE2",
        signs: &["/var/lib/rancher/rke2/agent/etc/containerd/config.toml"],
        files: &["/var/lib/rancher/rke2/agent/etc/containerd/config.toml"],
        keys: OF_CONTAINERD,
        data: Some(("/etc/rancher/rke2/config.yaml", "/var/lib/rancher/rke2")),
        ..TOML
    },
    Entry {
        name: "MicroK8s",
        signs: &[
            "/var/snap/microk8s/current/args/containerd.toml",
            "/etc/systemd/system/snap.microk8s.daemon-containerd.service",
        ],
        files: &["/var/snap/microk8s/current/args/containerd.toml"],
        keys: OF_CONTAINERD,
        networks: "/var/snap/microk8s/current/args/cni-network",
        plugins: &["/var/snap/microk8s/current/opt/cni/bin"],
        ..TOML
    },
    Entry {
        name: names::NERDCTL,
        signs: &["/usr/bin/nerdctl", "/usr/local/bin/nerdctl"],
        files: &["/etc/nerdctl/nerdctl.toml"],
        keys: OF_NERDCTL,
        plugins: NERDCTLS_PLUGINS,
        uses_first: true,
        ..TOML
    },
    Entry {
        name: names::NERDCTL,
        files: &["~/nerdctl/nerdctl.toml"],
        keys: OF_NERDCTL,
        networks: "~/cni/net.d",
        plugins: NERDCTLS_PLUGINS,
        uses_first: true,
        ..TOML
    },
    Entry {
        name: names::NOMAD,
        form: Form::Hcl,
        signs: &["/usr/bin/nomad", "/usr/local/bin/nomad"],
        files: &["/etc/nomad.d/*.hcl", "/etc/nomad.d/*.json"],
        keys: [&["client.cni_config_dir"], &["client.cni_path"]],
        networks: "/opt/cni/config",
        ..TOML
    },
    Entry {
        name: names::BUILDKIT,
        signs: &["/usr/bin/buildkitd", "/usr/local/bin/buildkitd"],
        files: &["/etc/buildkit/buildkitd.toml"],
        keys: [&[], &["worker.*.cniBinaryPath"]],
        // A single file, cni.json.
        networks: "/etc/buildkit",
        ..TOML
    },
    // The kubelet before Kubernetes 1.24, and cri-dockerd.
    Entry {
        name: names::KUBELET,
        form: Form::Flags,
        files: &[
            "/lib/systemd/system/cri-docker.service",
            "/etc/systemd/system/cri-docker.service",
            "/etc/systemd/system/cri-docker.service.d/*.conf",
            "/etc/systemd/system/kubelet.service.d/*.conf",
            "/var/lib/kubelet/kubeadm-flags.env",
            "/etc/default/kubelet",
            "/etc/sysconfig/kubelet",
        ],
        keys: [&["cni-conf-dir"], &["cni-bin-dir"]],
        ..TOML
    },
];
