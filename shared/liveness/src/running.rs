//! Running plugin calls, whose containers are being created or deleted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

use cni::Attachment;

use crate::within::within;
use crate::{ancestors, is_exiting, processes, read_lossy};

/// A plugin ends within this time. An older process with a plugin's environment is a daemon that a plugin has started.
const CALL_MAX: Duration = Duration::from_secs(600);

/// Longer than a scan of thousands of processes takes.
const SCAN_TIMEOUT: Duration = Duration::from_secs(10);

/// The errors EIO, ENOMEM, ENFILE and EMFILE, which say nothing about the process. Other errors say that it has exited.
const SHORTAGES: [i32; 4] = [5, 12, 23, 24];

/// Most environments are smaller than this number of bytes.
const USUAL_SIZE: usize = 16 << 10;

/// Clock ticks per second in /proc: `USER_HZ` of the kernel's asm-generic/param.h.
const USER_HZ: u64 = 100;

/// Containers with a running plugin call.
#[derive(Debug, Default)]
pub struct RunningPlugins {
    /// Containers with a running plugin.
    running: BTreeSet<Vec<u8>>,
    /// Containers with a plugin that is running ADD.
    starting: BTreeSet<Vec<u8>>,
    /// Containers and interfaces with a plugin that is running DEL.
    ending: BTreeSet<(Vec<u8>, Vec<u8>)>,
    /// Containers with any process that has the variable.
    containers: BTreeSet<Vec<u8>>,
    /// Whether the environment of a process could not be read.
    has_hidden_process: bool,
    /// Whether the scan did not end in time.
    is_unfinished: bool,
}

impl RunningPlugins {
    /// Reads `CNI_CONTAINERID` from the environment of every process.
    pub fn scan() -> Self {
        let (mut this, ancestors) = (Self::default(), ancestors());
        let own = Path::new("/proc").join(std::process::id().to_string());
        // A plugin of another network namespace works for another host, such as that of a rootless runtime.
        let netns = fs::read_link("/proc/thread-self/ns/net");
        let is_of_host = |process: &Path| match (fs::read_link(process.join("ns/net")), &netns) {
            (Ok(its), Ok(netns)) => its == *netns,
            _ => true,
        };
        let processes = processes().unwrap_or_else(|_| {
            this.has_hidden_process = true;
            Vec::new()
        });
        let mut environment = Vec::with_capacity(USUAL_SIZE);
        for process in processes {
            match read_again(&process.join("environ"), &mut environment) {
                Ok(()) => {
                    let Some(container) = variable(&environment, b"CNI_CONTAINERID=") else { continue };
                    let command = variable(&environment, b"CNI_COMMAND=").unwrap_or_default();
                    let is_plugin = !command.is_empty()
                        && process != own
                        && !ancestors.contains(&process)
                        && is_of_host(&process)
                        && may_be_call(age(&process));
                    this.running.extend(is_plugin.then(|| container.to_vec()));
                    this.starting.extend((is_plugin && command == b"ADD").then(|| container.to_vec()));
                    // What restores rules believes this, and removes them again. So other users must not be able to claim it.
                    if is_plugin && command == b"DEL" && real_user(&process) == real_user(&own) {
                        let ifname = variable(&environment, b"CNI_IFNAME=").unwrap_or_default();
                        this.ending.insert((container.to_vec(), ifname.to_vec()));
                    }
                    this.containers.insert(container.to_vec());
                }
                Err(e) => {
                    let is_hidden = e.kind() == ErrorKind::PermissionDenied
                        || SHORTAGES.map(Some).contains(&e.raw_os_error());
                    let is_seen = ancestors.contains(&process) || is_exiting(&process);
                    this.has_hidden_process |= is_hidden && !is_seen;
                }
            }
        }
        this
    }

    /// Like [`RunningPlugins::scan`], for callers that others wait for: a process can delay a reader of its environment, because the kernel
    /// reads it from the process's memory. Gives up after ten seconds: then any container may have a running plugin. The thread that reads
    /// ends with this process.
    pub fn scan_in_time() -> Self {
        within(SCAN_TIMEOUT, Self::scan).unwrap_or_else(Self::unfinished)
    }

    fn unfinished() -> Self {
        Self { has_hidden_process: true, is_unfinished: true, ..Self::default() }
    }

    /// Whether a plugin is running for a container. Processes that may not be examined do not count.
    pub fn has(&self, container: &str) -> bool {
        self.is_unfinished || self.running.contains(container.as_bytes())
    }

    /// Whether a plugin is running ADD for a container.
    pub fn has_add(&self, container: &str) -> bool {
        self.is_unfinished || self.starting.contains(container.as_bytes())
    }

    /// Whether this user runs a plugin with DEL for an attachment. False if the scan did not end in time.
    pub fn has_del(&self, at: &Attachment) -> bool {
        let is_of = |(container, ifname): &(Vec<u8>, Vec<u8>)| {
            *container == at.container.as_bytes() && *ifname == at.ifname.as_bytes()
        };
        self.ending.iter().any(is_of)
    }

    /// Whether a plugin, or a process that it has started, is running for a container. Processes that may not be
    /// examined do not count.
    pub fn has_process(&self, container: &str) -> bool {
        self.containers.contains(container.as_bytes())
    }

    /// Whether the environment of a process could not be read.
    pub fn may_miss_processes(&self) -> bool {
        self.has_hidden_process
    }

    /// Combines two snapshots: a plugin that is in one of them counts as running.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.running.extend(other.running);
        self.starting.extend(other.starting);
        self.ending.extend(other.ending);
        self.containers.extend(other.containers);
        self.has_hidden_process |= other.has_hidden_process;
        self.is_unfinished |= other.is_unfinished;
        self
    }

    /// Whether a plugin, or a process that it has started, is or may be running for a container.
    pub fn may_be_for(&self, container: &str) -> bool {
        self.may_miss_processes() || self.has_process(container)
    }
}

/// Replaces the contents of a buffer by those of a file in /proc. `fs::read` takes twice as long: it looks for the file's
/// size, which is 0, and starts with a small buffer. GC reads the environment of all processes before each plugin's DEL.
fn read_again(file: &Path, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    File::open(file)?.take(u64::MAX).read_to_end(buffer).map(drop)
}

/// The value of a variable, whose name ends with `=`.
fn variable<'a>(environment: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut variables = environment.split(|&byte| byte == 0);
    variables.find_map(|variable| variable.strip_prefix(name))
}

/// The user who has started a process (proc_pid_status(5)). The owner of its files in /proc may be root, for example if the program is setuid.
fn real_user(process: &Path) -> Option<u32> {
    let status = read_lossy(&process.join("status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().next()?.parse().ok()
}

/// Whether a process of this age may be a plugin's call. None: its age cannot be determined.
fn may_be_call(age: Option<Duration>) -> bool {
    age.is_none_or(|age| age < CALL_MAX)
}

/// How long a process has been running.
fn age(process: &Path) -> Option<Duration> {
    let (stat, uptime) =
        (read_lossy(&process.join("stat")).ok()?, read_lossy(Path::new("/proc/uptime")).ok()?);
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    Duration::try_from_secs_f64(uptime).ok()?.checked_sub(started(&stat)?)
}

/// When a process started, as the time since boot. proc_pid_stat(5): the name is in parentheses, and the start is the
/// 20th field after it, in clock ticks.
fn started(stat: &str) -> Option<Duration> {
    let start: u64 = stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()?;
    Some(Duration::from_millis(start.checked_mul(1000 / USER_HZ)?))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::tests::Killed;

    #[test]
    fn after_an_unfinished_scan_any_container_may_have_a_running_plugin() {
        let unfinished = RunningPlugins::unfinished();
        assert!(unfinished.may_miss_processes() && unfinished.has("any") && unfinished.has_add("any"));
        assert!(!RunningPlugins::default().may_miss_processes());
    }

    #[test]
    fn a_process_of_ten_minutes_is_a_daemon() {
        let may_be_call = |seconds| may_be_call(Some(Duration::from_secs(seconds)));
        assert!(may_be_call(599) && !may_be_call(600) && super::may_be_call(None));
    }

    #[test]
    fn the_variable_is_found_among_others() {
        let container = |text| variable(text, b"CNI_CONTAINERID=");
        assert_eq!(container(b"PATH=/bin\0CNI_CONTAINERID=c1\0CNI_IFNAME=eth0\0"), Some(&b"c1"[..]));
        assert_eq!(container(b"XCNI_CONTAINERID=c1\0"), None);
    }

    #[test]
    fn only_a_young_process_with_a_command_is_a_running_plugin() {
        let process = |id: &str, command: &str| {
            let mut sleep = std::process::Command::new("sleep");
            Killed(sleep.arg("60").env("CNI_CONTAINERID", id).env("CNI_COMMAND", command).spawn().unwrap())
        };
        let id = |name: &str| format!("{name}-{}", std::process::id());
        let _all = [process(&id("plugin"), "ADD"), process(&id("del"), "DEL"), process(&id("other"), "")];
        // The environment is that of this process until the program starts.
        let is_listed = |name: &str| RunningPlugins::scan().containers.contains(id(name).as_bytes());
        while !["plugin", "del", "other"].into_iter().all(is_listed) {
            thread::sleep(Duration::from_millis(10));
        }
        let calls = RunningPlugins::scan();
        assert!(calls.has_add(&id("plugin")) && calls.has(&id("del")) && !calls.has_add(&id("del")));
        assert!(RunningPlugins::default().and(calls).has_add(&id("plugin")));
        assert!(!RunningPlugins::scan().has(&id("other")) && RunningPlugins::scan().may_be_for(&id("other")));
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 4200 100 1";
        assert_eq!(started(stat), Some(Duration::from_secs(42)));
        assert!(age(Path::new("/proc/self")).unwrap() < CALL_MAX);
    }

    #[test]
    fn a_plugin_in_another_network_namespace_works_for_another_host() {
        let id = format!("elsewhere-{}", std::process::id());
        let mut command = std::process::Command::new("unshare");
        command.args(["--net", "sleep", "60"]).env("CNI_CONTAINERID", &id).env("CNI_COMMAND", "ADD");
        let sleep = Killed(command.spawn().unwrap());
        let process = Path::new("/proc").join(sleep.0.id().to_string());
        let is_asleep = || fs::read_to_string(process.join("comm")).is_ok_and(|name| name == "sleep\n");
        // It is in its namespace before it starts `sleep`.
        while !is_asleep() || !RunningPlugins::scan().has_process(&id) {
            thread::sleep(Duration::from_millis(10));
        }
        let calls = RunningPlugins::scan();
        assert!(!calls.has(&id) && !calls.has_add(&id) && calls.has_process(&id));
    }
}
