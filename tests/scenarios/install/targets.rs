//! The directories into which ferrule-install installs: those in which the runtimes of the host look.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use lab::{Lab, ours};

use super::{NEW, executable, ok, refused};

/// The root directory of a host with runtimes, and plugins to install.
pub struct Host {
    root: PathBuf,
    pub from: PathBuf,
}

const CONTAINERD: &str =
    "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/usr/lib/cni\"\n";

impl Host {
    pub fn new(lab: &Lab, files: &[(&str, &str)], dirs: &[&str]) -> Self {
        let host = Self { root: lab.dir().join("a host"), from: lab.dir().join("from") };
        fs::remove_dir_all(&host.root).ok();
        for dir in dirs {
            fs::create_dir_all(host.at(dir)).unwrap();
        }
        for (path, content) in files {
            fs::create_dir_all(host.at(path).parent().unwrap()).unwrap();
            fs::write(host.at(path), content).unwrap();
        }
        fs::create_dir_all(&host.from).unwrap();
        for name in ["bridge", "portmap"] {
            executable(&host.from.join(name), NEW);
        }
        host
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut program = Command::new(ours().join("ferrule-install"));
        program.arg("--root").arg(&self.root).args(arguments).output().unwrap()
    }

    pub fn install(&self, arguments: &[&str]) -> Output {
        self.run(&[&["--from", self.from.to_str().unwrap()], arguments].concat())
    }

    /// The directories that contain the installed plugins.
    fn installed(&self) -> Vec<&'static str> {
        let all = [
            "/opt/cni/bin",
            "/usr/lib/cni",
            "/usr/libexec/cni",
            "/usr/local/libexec/cni",
            "/srv/cni",
            "/var/snap/microk8s/8511/opt/cni/bin",
        ];
        all.into_iter()
            .filter(|dir| fs::read_to_string(self.at(dir).join("portmap")).is_ok_and(|text| text == NEW))
            .collect()
    }
}

#[test]
fn plugins_are_installed_in_the_directories_of_containerd_podman_and_crio() {
    let lab = Lab::new();
    let files = [
        ("/etc/containerd/config.toml", CONTAINERD),
        ("/usr/bin/podman", ""),
        ("/usr/bin/crio", ""),
        ("/etc/crio/crio.conf", "[crio.network]\nplugin_dirs = [\"/srv/cni\"]"),
        ("/usr/bin/nerdctl", ""),
    ];
    let dirs = ["/opt/cni/bin", "/usr/lib/cni", "/srv/cni"];
    let host = Host::new(&lab, &files, &dirs);
    let listed = ok(&host.install(&["--list"]));
    assert!(listed.contains("containerd  /usr/lib/cni  (/etc/containerd/config.toml)"), "{listed}");
    assert!(listed.contains("nerdctl     /opt/cni/bin  (by default)"), "{listed}");
    assert_eq!(host.installed(), [""; 0]);

    let said = ok(&host.install(&[]));
    assert!(!said.contains("warning"), "{said}");
    // Podman looks in several of these directories, so it needs no further one.
    assert_eq!(host.installed(), dirs);
    ok(&host.install(&["--check"]));
    fs::remove_file(host.at("/srv/cni/bridge")).unwrap();
    refused(&host.install(&["--check"]), "1 of 2 plugins");
    ok(&host.run(&["--uninstall"]));
    assert_eq!(host.installed(), [""; 0]);

    ok(&host.install(&["--runtime", "CONTAINERD,podman"]));
    assert_eq!(host.installed(), ["/usr/lib/cni"]);
    refused(&host.install(&["--runtime", "k3s"]), "it has CRI-O, Podman, containerd, nerdctl");
}

/// Several runtimes may use one directory.
#[test]
fn an_uninstallation_of_one_runtime_is_refused_and_removes_nothing() {
    let lab = Lab::new();
    let files = [("/etc/containerd/config.toml", CONTAINERD), ("/usr/bin/nerdctl", "")];
    let dirs = ["/opt/cni/bin", "/usr/lib/cni"];
    let host = Host::new(&lab, &files, &dirs);
    ok(&host.install(&[]));
    for option in ["--uninstall", "--installed"] {
        let output = host.run(&[option, "--runtime", "containerd"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(option) && said.contains("cannot be used with '--runtime"), "{said}");
        assert_eq!(host.installed(), dirs);
    }
}

#[test]
fn plugins_are_installed_in_the_directories_of_rke2_microk8s_and_cri_dockerd() {
    let lab = Lab::new();
    let bin_dir =
        |dir| format!("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"{dir}\"\n");
    let microk8s = "/var/snap/microk8s/8511/opt/cni/bin";
    let docker = "[Service]\nExecStart=\nExecStart=/usr/bin/cri-dockerd --network-plugin=cni --cni-bin-dir=/usr/libexec/cni\n";
    let files = [
        ("/var/lib/rancher/rke2/agent/etc/containerd/config.toml", &*bin_dir("/opt/cni/bin")),
        ("/var/snap/microk8s/8511/args/containerd.toml", &*bin_dir(microk8s)),
        ("/etc/systemd/system/cri-docker.service.d/10-cni.conf", docker),
        // Docker's package disables containerd's CRI plugin.
        ("/etc/containerd/config.toml", "disabled_plugins = [\"cri\"]"),
    ];
    let dirs = ["/opt/cni/bin", "/usr/libexec/cni", microk8s];
    let host = Host::new(&lab, &files, &[&dirs[..], &["/usr/lib/cni"]].concat());
    symlink("8511", host.at("/var/snap/microk8s/current")).unwrap();
    let said = ok(&host.install(&[]));
    assert!(said.contains("containerd  nowhere"), "{said}");
    assert!(!said.contains("warning"), "{said}");
    assert_eq!(host.installed(), dirs);
    ok(&host.run(&["--uninstall"]));
    assert_eq!(host.installed(), [""; 0]);
}

#[test]
fn a_directory_with_two_names_is_installed_into_once() {
    let lab = Lab::new();
    let files = [("/etc/containerd/config.toml", CONTAINERD), ("/usr/bin/nerdctl", "")];
    let host = Host::new(&lab, &files, &["/opt/cni", "/usr/lib/cni"]);
    symlink("../../usr/lib/cni", host.at("/opt/cni/bin")).unwrap();
    fs::write(host.at("/usr/lib/cni/bridge"), "others'").unwrap();
    let said = ok(&host.install(&[]));
    assert_eq!(said.matches("/bridge").count(), 1, "{said}");
    ok(&host.run(&["--uninstall"]));
    assert_eq!(fs::read_to_string(host.at("/usr/lib/cni/bridge")).unwrap(), "others'");
}

#[test]
fn an_upgrade_replaces_only_plugins_that_an_earlier_run_installed() {
    let lab = Lab::new();
    let dirs = ["/opt/cni/bin", "/usr/lib/cni"];
    let host =
        Host::new(&lab, &[("/etc/containerd/config.toml", CONTAINERD), ("/usr/bin/nerdctl", "")], &dirs);
    ok(&host.install(&["--skip", "bridge"]));
    assert_eq!(host.installed(), dirs);
    executable(&host.at("/opt/cni/bin/portmap"), "somebody's");
    let newer = NEW.replace("1.1.0", "1.2.0");
    executable(&host.from.join("portmap"), &newer);
    let said = ok(&host.install(&["--upgrade"]));
    assert!(
        said.contains("/opt/cni/bin/portmap: another program has written it since; --upgrade --reclaim"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(host.at("/usr/lib/cni/portmap")).unwrap(), newer);
    assert_eq!(fs::read_to_string(host.at("/opt/cni/bin/portmap")).unwrap(), "somebody's");
    assert!(!host.at("/usr/lib/cni/bridge").exists());
}

/// After another package was upgraded or removed, as Ferrule's rpm does.
#[test]
fn reclaim_replaces_files_of_others_and_an_uninstallation_then_restores_their_latest_files() {
    let lab = Lab::new();
    let host = Host::new(&lab, &[("/etc/containerd/config.toml", CONTAINERD)], &["/usr/lib/cni"]);
    let [bridge, portmap] = ["bridge", "portmap"].map(|name| host.at("/usr/lib/cni").join(name));
    for plugin in [&bridge, &portmap] {
        fs::write(plugin, "others', version 1").unwrap();
    }
    ok(&host.install(&[]));
    executable(&bridge, "others', version 2");
    fs::remove_file(&portmap).unwrap();
    let said = ok(&host.install(&["--upgrade"]));
    assert!(
        said.contains("cni/portmap: another program has removed it; --upgrade --reclaim installs it"),
        "{said}"
    );
    assert!(!portmap.exists());
    ok(&host.install(&["--upgrade", "--reclaim"]));
    for plugin in [&bridge, &portmap] {
        assert_eq!(fs::read_to_string(plugin).unwrap(), NEW);
    }
    ok(&host.run(&["--uninstall"]));
    assert_eq!(fs::read_to_string(&bridge).unwrap(), "others', version 2");
    assert!(!portmap.exists());
}

#[test]
fn an_installation_into_a_directory_that_no_runtime_uses_prints_a_warning() {
    let lab = Lab::new();
    let dirs = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];
    let host = Host::new(&lab, &[("/etc/containerd/config.toml", CONTAINERD)], &dirs);
    let said = ok(&host.install(&["--dir", "/opt/cni/bin"]));
    assert!(
        said.contains("no runtime of this host looks in /opt/cni/bin; they look in /usr/lib/cni"),
        "{said}"
    );
    assert_eq!(host.installed(), ["/opt/cni/bin"]);

    let host = Host::new(&lab, &[("/usr/bin/podman", ""), ("/usr/libexec/cni/bridge", "others'")], &dirs);
    let said = ok(&host.install(&["--dir", "/opt/cni/bin"]));
    assert!(said.contains("Podman finds the plugins of /usr/libexec/cni before"), "{said}");
    ok(&host.run(&["--uninstall"]));
    let said = ok(&host.install(&[]));
    assert!(!said.contains("warning"), "{said}");
    assert_eq!(host.installed(), ["/usr/libexec/cni"]);

    let host = Host::new(&lab, &[("/usr/bin/nerdctl", "")], &["/usr/lib/cni"]);
    let said = ok(&host.install(&["--list", "--dir", "/opt/cni/bin"]));
    let warning = "nerdctl looks in /opt/cni/bin as soon as it exists, and no longer in /usr/lib/cni";
    assert!(said.contains(warning), "{said}");
    let said = ok(&host.install(&["--list"]));
    assert!(!said.contains("warning"), "{said}");
}

#[test]
fn without_a_runtime_that_calls_plugins_the_default_directory_is_used() {
    let lab = Lab::new();
    let netavark = [("/usr/bin/podman", ""), ("/usr/lib/podman/netavark", "")];
    for files in [&netavark[..], &[]] {
        let host = Host::new(&lab, files, &["/opt/cni/bin"]);
        let said = ok(&host.install(&[]));
        assert_eq!(said.contains("Podman   nowhere"), !files.is_empty(), "{said}");
        assert_eq!(host.installed(), ["/opt/cni/bin"]);
    }
}

#[test]
fn a_directory_of_the_host_that_is_not_mounted_in_the_container_is_an_error() {
    let lab = Lab::new();
    let host = Host::new(&lab, &[("/etc/containerd/config.toml", CONTAINERD)], &["/opt/cni/bin"]);
    refused(&host.install(&[]), "the host's /usr/lib/cni is not mounted at");
    assert_eq!(host.installed(), [""; 0]);
    assert!(!host.at("/usr/lib/cni").exists());
    assert!(Path::new(&host.root).exists());
    // The link is absolute: for the runtime, it leads to a directory of the host.
    fs::create_dir_all(host.at("/usr/lib")).unwrap();
    symlink("/var/lib/cni-bin", host.at("/usr/lib/cni")).unwrap();
    refused(&host.install(&[]), "the host's /var/lib/cni-bin is not mounted at");
    fs::create_dir_all(host.at("/var/lib/cni-bin")).unwrap();
    ok(&host.install(&[]));
    assert_eq!(fs::read_to_string(host.at("/var/lib/cni-bin/portmap")).unwrap(), NEW);
}

/// An absolute link in the host's /etc would lead to a file of the container.
#[test]
fn a_configuration_behind_an_absolute_link_is_that_of_the_host() {
    let lab = Lab::new();
    let dirs = ["/opt/cni/bin", "/usr/lib/cni", "/etc/containerd"];
    let host = Host::new(&lab, &[("/etc/rancher/containerd.toml", CONTAINERD)], &dirs);
    symlink("/etc/rancher/containerd.toml", host.at("/etc/containerd/config.toml")).unwrap();
    ok(&host.install(&[]));
    assert_eq!(host.installed(), ["/usr/lib/cni"]);
}

#[test]
fn a_directory_that_a_runtime_searches_earlier_and_that_is_not_mounted_is_a_warning() {
    let lab = Lab::new();
    let crio =
        ("/etc/crio/crio.conf", "[crio.network]\nplugin_dirs = [\"/usr/libexec/cni\", \"/opt/cni/bin\"]");
    let host = Host::new(&lab, &[crio], &["/opt/cni/bin"]);
    let warning = "CRI-O looks in /usr/libexec/cni before /opt/cni/bin, and the host's /usr/libexec/cni is not mounted here";
    for arguments in [&["--list"][..], &[], &["--check"]] {
        let said = ok(&host.install(arguments));
        assert!(said.contains(warning), "{arguments:?}: {said}");
    }
    // Here the host's /usr is mounted, and the directory does not exist.
    fs::create_dir_all(host.at("/usr")).unwrap();
    let said = ok(&host.install(&["--check"]));
    assert!(!said.contains("warning"), "{said}");
}

/// A disk or a chroot with another host, below a directory of packages.
#[test]
fn another_root_has_its_own_list_of_directories_and_no_diversions_of_this_machine() {
    let lab = Lab::new();
    for dir in ["/var/lib/ferrule", "/var/lib/dpkg", "/opt"] {
        lab.private_dir(dir);
    }
    fs::write("/var/lib/dpkg/status", "").unwrap();
    let host = Host { root: PathBuf::from("/opt/nodes/a"), ..Host::new(&lab, &[], &[]) };
    for dir in ["/var/lib/ferrule", "/opt/cni/bin", "/srv/cni"] {
        fs::create_dir_all(host.at(dir)).unwrap();
    }
    ok(&host.install(&[]));
    ok(&host.install(&["--dir", "/srv/cni"]));
    assert_eq!(host.installed(), ["/opt/cni/bin", "/srv/cni"]);
    assert!(!Path::new(LISTED).exists() && !Path::new("/var/lib/dpkg/diversions").exists());
    assert_eq!(fs::read_to_string(host.at(LISTED)).unwrap(), "/opt/cni/bin\n/srv/cni\n");
    assert_eq!(ok(&host.run(&["--installed"])), "/opt/nodes/a/opt/cni/bin\n/opt/nodes/a/srv/cni\n");

    ok(&Command::new(ours().join("ferrule-install")).arg("--uninstall").output().unwrap());
    assert_eq!(host.installed(), ["/opt/cni/bin", "/srv/cni"]);
    ok(&host.run(&["--uninstall"]));
    assert_eq!(host.installed(), [""; 0]);
    assert_eq!(fs::read_to_string(host.at(LISTED)).unwrap(), "");
}

/// An archive that was unpacked into /usr/local/bin.
#[test]
fn executables_of_others_next_to_ferrule_install_are_neither_started_nor_installed() {
    let lab = Lab::new();
    let (bin, dir, proof) = (lab.dir().join("bin"), lab.dir().join("plugins"), lab.dir().join("proof"));
    fs::create_dir(&bin).unwrap();
    for name in ["ferrule-install", "host-local", "portmap"] {
        fs::copy(ours().join(name), bin.join(name)).unwrap();
    }
    executable(&bin.join("backup"), &format!("#!/bin/sh\n: >'{}'\n", proof.display()));
    let run = |arguments: &[&str]| {
        let mut program = Command::new(bin.join("ferrule-install"));
        ok(&program.arg("--dir").arg(&dir).args(arguments).output().unwrap())
    };
    let said = run(&[]);
    assert!(said.contains(&format!("skipped {}/backup", bin.display())), "{said}");
    run(&["--check"]);
    assert!(!proof.exists());
    let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|file| file.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".ferrule", "host-local", "portmap"]);
}

/// The list of the directories into which ferrule-install has installed, which the packages have.
struct List {
    dir: PathBuf,
}

impl List {
    fn new(lab: &Lab, content: &[u8]) -> Self {
        let list = Self { dir: lab.dir().join("list") };
        fs::create_dir(&list.dir).unwrap();
        fs::write(list.file(), content).unwrap();
        list
    }

    fn file(&self) -> PathBuf {
        self.dir.join("directories")
    }

    fn lines(&self) -> BTreeSet<Vec<u8>> {
        let content = fs::read(self.file()).unwrap();
        content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
    }

    /// ferrule-install, with this list in the place of the host's.
    fn command(&self, under: &[&str], arguments: &[&str]) -> Command {
        let mount = "mount -t tmpfs list /var/lib && mkdir /var/lib/ferrule && mount --bind \"$0\" /var/lib/ferrule && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", mount]).arg(&self.dir).args(under);
        command.arg(ours().join("ferrule-install")).args(arguments);
        command
    }
}

const LISTED: &str = "/var/lib/ferrule/directories";

#[test]
fn the_list_of_directories_keeps_lines_that_are_not_utf8() {
    let lab = Lab::new();
    let host = Host::new(&lab, &[], &[]);
    let (list, dir) = (List::new(&lab, b"/srv/\xff\n/srv/other\n"), lab.dir().join("bin"));
    let (from, dir) = (host.from.to_str().unwrap(), dir.to_str().unwrap());
    ok(&list.command(&[], &["--from", from, "--dir", dir]).output().unwrap());
    let before = [&b"/srv/\xff"[..], b"/srv/other"].map(<[u8]>::to_vec);
    let mut expected = BTreeSet::from(before.clone());
    expected.insert(dir.as_bytes().to_vec());
    assert_eq!(list.lines(), expected);
    let said = ok(&list.command(&[], &["--installed"]).output().unwrap());
    assert!(said.lines().any(|line| line == dir), "{said}");
    ok(&list.command(&[], &["--uninstall"]).output().unwrap());
    assert_eq!(list.lines(), BTreeSet::from(before));
}

#[test]
fn a_list_of_directories_that_cannot_be_read_is_not_replaced_and_a_message_says_so() {
    let lab = Lab::new();
    let host = Host::new(&lab, &[], &[]);
    let (list, dir) = (List::new(&lab, b"/srv/other\n"), lab.dir().join("bin"));
    let (from, dir) = (host.from.to_str().unwrap(), dir.to_str().unwrap());
    for inject in ["inject=read:error=EIO", "inject=?open,openat:error=ESTALE"] {
        let under = ["strace", "-qqo", "/dev/null", "-P", LISTED, "-e", inject];
        let output = list.command(&under, &["--from", from, "--dir", dir]).output().unwrap();
        ok(&output);
        assert_eq!(list.lines(), BTreeSet::from([b"/srv/other".to_vec()]), "{inject}: {output:?}");
        let warning = String::from_utf8_lossy(&output.stderr);
        assert!(warning.contains(LISTED), "{inject}: {output:?}");
        // These need the list. With --dir, they do not.
        for needs in ["--uninstall", "--installed"] {
            refused(&list.command(&under, &[needs]).output().unwrap(), LISTED);
        }
        ok(&list.command(&under, &["--uninstall", "--dir", dir]).output().unwrap());
    }
}

#[test]
fn concurrent_installations_into_different_directories_are_all_listed() {
    let lab = Lab::new();
    let host = Host::new(&lab, &[], &[]);
    let list = List::new(&lab, b"");
    let from = host.from.to_str().unwrap();
    let dirs = ["one", "two"].map(|name| lab.dir().join(name).display().to_string());
    // Each takes longer between reading and writing the list.
    let delay = "inject=?open,openat:delay_exit=2000000";
    let under = ["strace", "-qqo", "/dev/null", "-P", LISTED, "-e", delay];
    let start = |dir: &String| {
        let mut command = list.command(&under, &["--from", from, "--dir", dir]);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    let running: Vec<Child> = dirs.iter().map(start).collect();
    for mut run in running {
        assert!(run.wait().unwrap().success());
    }
    assert_eq!(list.lines(), dirs.map(String::into_bytes).into());
}
