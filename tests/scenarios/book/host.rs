//! The host that runs the commands of a page: a lab with installed plugins, and an unpacked archive.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lab::{Lab, PATH, quoted, repository, together};
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};
use serde_json::Value;

/// The directory of the unpacked archive. It is in the PATH.
const UNPACKED: &str = "/run/ferrule";

const NONE: Option<&str> = None;

pub struct Host {
    lab: Lab,
    output: PathBuf,
    /// An environment variable of every process that is started here.
    mark: String,
}

impl Host {
    pub fn new() -> Self {
        let lab = Lab::new();
        // The rest of the machine is read-only for the commands of the pages.
        for dir in
            ["/opt", "/usr/lib/cni", "/usr/libexec/cni"].into_iter().filter(|dir| Path::new(dir).exists())
        {
            mount(Some("lab"), dir, Some("tmpfs"), MsFlags::empty(), NONE).unwrap();
        }
        // If Ferrule is installed on the machine, an uninstallation would remove its diversions, and cannot.
        let diversions = "/var/lib/dpkg/diversions";
        if Path::new(diversions).exists() {
            mount(Some("/dev/null"), diversions, NONE, MsFlags::MS_BIND, NONE).unwrap();
        }
        let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
        mount(NONE, "/", NONE, read_only, NONE).unwrap();
        let mark = format!("FERRULE_BOOK={}.{}", std::process::id(), gettid());
        let this = Self { output: lab.dir().join("output"), lab, mark };
        // Copies that keep the hard links, because commands of the pages replace the files.
        let from = together();
        this.script(&format!(
            "mkdir -p /opt/cni /etc/cni/net.d
             cp -a {from} {UNPACKED}
             cp -a {from} /opt/cni/bin
             rm -f /opt/cni/bin/ferrule /opt/cni/bin/cnitool /opt/cni/bin/ferrule-install
             cp {repository}/packaging/web.conflist {UNPACKED}",
            from = quoted(&from),
            repository = quoted(repository()),
        ))
        .unwrap();
        this
    }

    /// Puts the archive of a release into the working directory, as scripts/dist packs it, and removes the installed plugins.
    ///
    /// The archive contains the executable of all plugins, which takes less time to pack than one executable for each plugin.
    pub fn offer_archive(&self) {
        self.script(&format!(
            "tar -C {UNPACKED} -czf ferrule-linux-amd64-v0.2.0.tgz .
             sha256sum ferrule-linux-amd64-v0.2.0.tgz >ferrule-linux-amd64-v0.2.0.tgz.sha256
             rm /opt/cni/bin/*"
        ))
        .unwrap();
    }

    /// Writes a network into the configuration directory.
    pub fn configure(&self, network: &Value) {
        let kind = if network["plugins"].is_array() { "conflist" } else { "conf" };
        self.lab.configure(&format!("{}.{kind}", network["name"].as_str().unwrap()), network);
    }

    /// Runs commands in a shell that stops at the first failure. The error is the output.
    pub fn script(&self, text: &str) -> Result<(), String> {
        let mut shell = within_reason();
        shell.args(["sh", "-euc", text]).stdout(self.printed()).stderr(self.printed());
        let succeeded = self.run(&mut shell);
        let printed = self.read();
        if succeeded { Ok(()) } else { Err(printed) }
    }

    /// Runs a command on a terminal, and returns its output.
    pub fn session(&self, command: &str) -> String {
        self.lab.host().wait_for_bridges();
        // script(1) runs it with a terminal for its output.
        let mut shell = within_reason();
        shell.args(["script", "-qc", command, "/dev/null"]).stdout(self.printed());
        self.run(&mut shell);
        self.read().replace('\r', "")
    }

    fn run(&self, shell: &mut Command) -> bool {
        let path = format!("{UNPACKED}:{PATH}");
        let environment =
            [("PATH", path.as_str()), ("NO_COLOR", "1"), ("LC_ALL", "C.UTF-8"), ("HOME", "/root")];
        shell
            .env_clear()
            .envs(environment)
            .envs(self.mark.split_once('='))
            .current_dir(self.lab.dir())
            .stdin(Stdio::null());
        shell.status().unwrap().success()
    }

    /// A file, not a pipe: a background process of a command may hold it open.
    fn printed(&self) -> File {
        File::options().create(true).append(true).open(&self.output).unwrap()
    }

    /// Returns the output since the last call.
    fn read(&self) -> String {
        let text = fs::read(&self.output).unwrap_or_default();
        fs::remove_file(&self.output).ok();
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// A command that is killed if it hangs.
fn within_reason() -> Command {
    let mut command = Command::new("timeout");
    command.arg("1200");
    command
}

impl Drop for Host {
    /// Kills background processes of the commands.
    fn drop(&mut self) {
        let own = self.mark.as_bytes();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|variable| variable == own) {
                kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
            }
        }
    }
}
