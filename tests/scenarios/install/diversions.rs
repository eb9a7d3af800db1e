//! Diversions of dpkg: other packages write their plugins into `.ferrule/kept`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use lab::{Lab, ours};

use super::stay::Stays;
use super::targets::Host;
use super::{NEW, executable, install, ok, refused, start_again};

/// The lines of dpkg's diversions of plugins below /opt/cni: each file and its diverted path.
fn diversions() -> Vec<String> {
    let list = fs::read_to_string("/var/lib/dpkg/diversions").unwrap_or_default();
    list.lines().filter(|line| line.starts_with("/opt/cni")).map(str::to_owned).collect()
}

/// A lab in which dpkg knows no package, and /opt/cni is empty. None without dpkg.
fn with_dpkg() -> Option<Lab> {
    if !Path::new("/usr/bin/dpkg-divert").exists() {
        lab::skip("dpkg-divert");
        return None;
    }
    let lab = Lab::new();
    for dir in ["/var/lib/dpkg", "/opt/cni"] {
        lab.private_dir(dir);
    }
    for dir in ["info", "triggers", "updates"] {
        fs::create_dir(Path::new("/var/lib/dpkg").join(dir)).unwrap();
    }
    fs::write("/var/lib/dpkg/status", "").unwrap();
    Some(lab)
}

#[test]
fn a_directory_that_is_named_by_a_link_or_a_relative_path_keeps_no_diversions() {
    let Some(lab) = with_dpkg() else { return };
    fs::create_dir_all("/opt/cni/real").unwrap();
    symlink("real", "/opt/cni/bin").unwrap();
    let host = Host::new(&lab, &[], &[]);
    let run = |arguments: &[&str]| {
        let mut program = Command::new(ours().join("ferrule-install"));
        ok(&program.current_dir("/opt/cni").args(arguments).output().unwrap())
    };
    let from = host.from.to_str().unwrap();
    let diverted = |dir: &str| [format!("{dir}/portmap"), format!("{dir}/.ferrule/kept/portmap")];
    // A package may contain a plugin by either path.
    let diverted = ["/opt/cni/real", "/opt/cni/bin"].map(diverted).concat();
    for dir in ["/opt/cni/bin", "bin", "./real", "/opt/cni/real"] {
        let install = ["--from", from, "--only", "portmap", "--dir", dir];
        run(&install);
        assert_eq!(diversions(), diverted, "{dir}");
        run(&[&install[..], &["--upgrade"]].concat());
        assert_eq!(diversions(), diverted, "{dir}");
        assert_eq!(run(&["--installed", "--dir", dir]), "/opt/cni/real\n");
        run(&["--uninstall", "--dir", dir]);
        assert_eq!(diversions(), [""; 0], "{dir}");
        assert_eq!(run(&["--installed", "--dir", dir]), "");
    }
}

/// Installs a version of another vendor's package with the plugin `bridge`.
fn install_package(lab: &Lab, dir: &Path, version: &str) {
    let tree = lab.dir().join("package");
    fs::remove_dir_all(&tree).ok();
    let plugins = tree.join(dir.strip_prefix("/").unwrap());
    fs::create_dir_all(tree.join("DEBIAN")).unwrap();
    fs::create_dir_all(&plugins).unwrap();
    let control = "Package: others\nArchitecture: all\nMaintainer: others\nDescription: plugins\n";
    fs::write(tree.join("DEBIAN/control"), format!("{control}Version: {version}\n")).unwrap();
    executable(&plugins.join("bridge"), version);
    let pack = "dpkg-deb --build -Znone --root-owner-group \"$0\" \"$0.deb\" && dpkg --log=/dev/null --install \"$0.deb\"";
    ok(&Command::new("sh").args(["-ec", pack]).arg(&tree).output().unwrap());
}

#[test]
fn after_the_advice_for_a_damaged_record_other_packages_can_be_upgraded_and_have_their_files() {
    let Some(lab) = with_dpkg() else { return };
    let (host, dir) = (Host::new(&lab, &[], &[]), Path::new("/opt/cni/own"));
    let from = host.from.to_str().unwrap();
    let run = |arguments: &[&str]| install(dir, arguments, &[]);
    install_package(&lab, dir, "1");
    ok(&run(&["--from", from]));
    install_package(&lab, dir, "2");
    assert_eq!(fs::read_to_string(dir.join("bridge")).unwrap(), NEW);
    fs::write(dir.join(".ferrule/record"), "").unwrap();
    let refusal = run(&["--uninstall"]);
    refused(&refusal, "move the files in /opt/cni/own/.ferrule/kept back to /opt/cni/own");
    refused(
        &refusal,
        "remove /opt/cni/own/.ferrule, and run `ferrule-install --uninstall --dir /opt/cni/own`",
    );
    start_again(dir);
    assert_eq!(diversions().len(), 4);
    ok(&run(&["--uninstall"]));
    assert_eq!(diversions(), [""; 0]);
    assert_eq!(fs::read_to_string(dir.join("bridge")).unwrap(), "2");
    install_package(&lab, dir, "3");
    assert_eq!(fs::read_to_string(dir.join("bridge")).unwrap(), "3");

    ok(&run(&["--from", from]));
    ok(&run(&["--uninstall"]));
    assert_eq!(fs::read_to_string(dir.join("bridge")).unwrap(), "3");
}

/// dpkg itself removes the file of another package with that package.
#[test]
fn reclaim_of_a_plugin_that_somebody_has_removed_keeps_the_file_of_a_package_that_is_still_installed() {
    let Some(lab) = with_dpkg() else { return };
    let (host, dir) = (Host::new(&lab, &[], &[]), Path::new("/opt/cni/own"));
    let from = host.from.to_str().unwrap();
    let run = |arguments: &[&str]| install(dir, arguments, &[]);
    install_package(&lab, dir, "1");
    ok(&run(&["--from", from]));
    fs::remove_file(dir.join("bridge")).unwrap();
    ok(&run(&["--upgrade", "--reclaim", "--from", from]));
    assert_eq!(fs::read_to_string(dir.join("bridge")).unwrap(), NEW);
    install_package(&lab, dir, "2");
    fs::remove_file(dir.join("bridge")).unwrap();
    ok(&run(&["--upgrade", "--reclaim", "--from", from]));
    ok(&run(&["--uninstall"]));
    assert_eq!(fs::read_to_string(dir.join("bridge")).unwrap(), "2");
}

/// dpkg fails to write a diverted file if the state directory is missing.
#[test]
fn an_uninstallation_ends_diversions_also_if_somebody_has_removed_the_state_or_the_whole_directory() {
    let Some(lab) = with_dpkg() else { return };
    let (host, dir) = (Host::new(&lab, &[], &[]), Path::new("/opt/cni/own"));
    for removed in [dir.join(".ferrule"), dir.to_owned()] {
        ok(&install(dir, &["--from", host.from.to_str().unwrap()], &[]));
        fs::remove_dir_all(removed).unwrap();
        assert_eq!(diversions().len(), 4);
        ok(&Command::new(ours().join("ferrule-install")).arg("--uninstall").output().unwrap());
        assert_eq!(diversions(), [""; 0]);
        install_package(&lab, dir, "1");
        assert_eq!(fs::read_to_string(dir.join("bridge")).unwrap(), "1");
    }
}

/// A DaemonSet sees the host's directory below another root, and not dpkg. Without the state directory, dpkg would fail.
#[test]
fn an_uninstallation_in_a_container_keeps_what_the_host_has_diverted() {
    let Some(lab) = with_dpkg() else { return };
    let (host, dir) = (Host::new(&lab, &[], &[]), Path::new("/opt/cni/bin"));
    let below = host.at("/opt/cni/bin");
    fs::create_dir_all(dir).unwrap();
    fs::create_dir_all(&below).unwrap();
    ok(&install(dir, &["--from", host.from.to_str().unwrap()], &[]));
    lab.host().sh(&format!("cp -a {}/. '{}'", dir.display(), below.display()));
    let (status, of_host) = ("/var/lib/dpkg/status", "/var/lib/dpkg/status-of-the-host");
    fs::rename(status, of_host).unwrap();
    let of_image =
        Command::new(ours().join("ferrule-install")).arg("--dir").arg(&below).arg("--uninstall").output();
    for outcome in [host.run(&["--uninstall", "--dir", "/opt/cni/bin"]), of_image.unwrap()] {
        refused(&outcome, "dpkg of the host diverts files to");
    }
    assert!(below.join("portmap").exists() && below.join(".ferrule/kept").exists());
    // A newer version is installed nevertheless.
    ok(&host.install(&["--dir", "/opt/cni/bin"]));
    refused(&host.run(&["--uninstall", "--dir", "/opt/cni/bin"]), "dpkg of the host");
    Stays::installed(&below, &["--from", host.from.to_str().unwrap(), "--rollback-on-exit"]).stop(&lab);
    assert!(below.join("portmap").exists() && below.join(".ferrule/kept").exists());
    fs::rename(of_host, status).unwrap();
    ok(&install(dir, &["--uninstall"], &[]));
    assert_eq!(diversions(), [""; 0]);
}

/// dpkg compares the paths of packages as text.
#[test]
fn a_package_whose_directory_is_a_link_to_another_disk_does_not_replace_plugins_and_has_its_files_back() {
    let Some(lab) = with_dpkg() else { return };
    let (host, packaged, disk) =
        (Host::new(&lab, &[], &[]), Path::new("/opt/cni/bin"), lab.dir().join("disk"));
    fs::create_dir(&disk).unwrap();
    symlink(&disk, packaged).unwrap();
    let run = |arguments: &[&str]| install(packaged, arguments, &[]);
    let bridge = || fs::read_to_string(disk.join("bridge")).unwrap();
    install_package(&lab, packaged, "1");
    ok(&run(&["--from", host.from.to_str().unwrap()]));
    install_package(&lab, packaged, "2");
    assert_eq!(bridge(), NEW);
    let installed = ok(&Command::new(ours().join("ferrule-install")).arg("--installed").output().unwrap());
    assert_eq!(installed, format!("{}\n", disk.display()));
    ok(&run(&["--uninstall"]));
    assert_eq!(diversions(), [""; 0]);
    assert_eq!(bridge(), "2");

    // The directory is a real one by the time of the uninstallation.
    ok(&run(&["--from", host.from.to_str().unwrap()]));
    fs::remove_file(packaged).unwrap();
    fs::create_dir(packaged).unwrap();
    ok(&install(&disk, &["--uninstall"], &[]));
    assert_eq!(diversions(), [""; 0]);
}

/// dpkg first writes a diverted file under such a temporary name.
#[test]
fn an_upgrade_keeps_the_files_of_a_package_that_dpkg_is_upgrading_and_removes_unknown_ones() {
    let Some(lab) = with_dpkg() else { return };
    let (host, dir) = (Host::new(&lab, &[], &[]), Path::new("/opt/cni/own"));
    let (from, kept) = (host.from.to_str().unwrap(), dir.join(".ferrule/kept"));
    ok(&install(dir, &["--from", from], &[]));
    for name in ["bridge.dpkg-new", "bridge.new", "other.dpkg-new", "portmap.dpkg-tmp"] {
        executable(&kept.join(name), "2");
    }
    ok(&install(dir, &["--from", from, "--upgrade"], &[]));
    let mut left: Vec<_> = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["bridge.dpkg-new", "portmap.dpkg-tmp"]);
}
