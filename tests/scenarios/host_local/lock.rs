//! The lock on host-local's leases: which processes cannot block it, and which ones it excludes. `reliability::leases`
//! tests every order of system calls.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use lab::{Call, Lab, Outcome, beyond_reference, paused};
use serde_json::json;

use crate::common::{STORE, host_local, ips, leases};

/// The timeout for locks that other programs can hold, as in docs/host-local.md.
const TIMEOUT: Duration = Duration::from_secs(5);

fn call(lab: &Lab, id: &str) -> Call {
    let call = lab.plugin("host-local").config(json!({"ipam": host_local(&[&["10.0.0.0/24"]])}));
    call.env("CNI_CONTAINERID", id).env("CNI_NETNS", "/run/netns/of-nobody")
}

fn file(name: &str) -> PathBuf {
    Path::new(STORE).join(name)
}

fn let_all_read(name: &str) {
    fs::set_permissions(file(name), Permissions::from_mode(0o644)).unwrap();
}

/// A process that holds a file's lock, much longer than any test here.
struct Holder(Child);

impl Holder {
    /// A process of an unprivileged user.
    fn unprivileged(path: &Path) -> Self {
        let user =
            ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"];
        Self::start(Command::new("setpriv").args(user).arg("flock"), path)
    }

    fn root(path: &Path) -> Self {
        Self::start(&mut Command::new("flock"), path)
    }

    fn start(command: &mut Command, path: &Path) -> Self {
        let command =
            command.args(["--no-fork", "-x"]).arg(path).args(["sh", "-c", "echo held; exec sleep 1000"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        Self(child)
    }

    /// Asserts that it still holds the lock: a process that waited for it would be too late.
    #[track_caller]
    fn holds_still(&mut self) {
        assert_eq!(self.0.try_wait().unwrap(), None, "a process waited until the holder exited");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Everything that host-local does works while another process holds a lock. Returns the pauses of each command.
#[track_caller]
fn pauses_of_all(lab: &Lab, holder: &mut Holder) -> [Duration; 6] {
    let (old, new) = (call(lab, "old").version("1.1.0"), call(lab, "new").version("1.1.0"));
    let (added, at_add) = paused(&new, Call::add);
    let result = added.ok_result();
    let succeeds = |call: &Call, command: &dyn Fn(&Call) -> Outcome| {
        let (outcome, pauses) = paused(call, command);
        outcome.ok();
        pauses
    };
    let at_check = succeeds(&new, &|new| new.check(&result));
    let at_status = succeeds(&new, &Call::status);
    let at_del = succeeds(&old, &Call::del);
    let at_gc = succeeds(&new, &|new| new.gc(&[("new", "eth0")]));
    assert_eq!(leases(), ["10.0.0.3"]);
    let at_gc_of_all = succeeds(&new, &|new| new.gc(&[]));
    assert!(leases().is_empty());
    holder.holds_still();
    [at_add, at_check, at_status, at_del, at_gc, at_gc_of_all]
}

const NO_PAUSES: [Duration; 6] = [Duration::ZERO; 6];

#[test]
fn an_unrelated_process_that_locks_the_networks_directory_delays_no_command() {
    beyond_reference!("lease-lock");
    let lab = Lab::new();
    call(&lab, "old").add().ok_result();
    let mut holder = Holder::unprivileged(Path::new(STORE));
    assert_eq!(pauses_of_all(&lab, &mut holder), NO_PAUSES);
}

#[test]
fn an_unrelated_process_that_locks_the_directory_delays_only_the_first_command_with_a_new_lock_file() {
    beyond_reference!("lease-lock");
    let lab = Lab::new();
    call(&lab, "old").add().ok_result();
    let mut holder = Holder::unprivileged(Path::new(STORE));
    fs::remove_file(file(".lock")).unwrap();
    let [first, later @ ..] = pauses_of_all(&lab, &mut holder);
    assert_eq!((first, later), (TIMEOUT, [Duration::ZERO; 5]));
}

#[test]
fn a_process_with_the_references_lock_delays_the_reference_but_not_ours() {
    beyond_reference!("lease-lock");
    let lab = Lab::new();
    call(&lab, "old").add().ok_result();
    let_all_read("lock");
    let mut holder = Holder::unprivileged(&file("lock"));
    let (added, pauses) = paused(&call(&lab, "second"), Call::add);
    assert_eq!(ips(&added.ok_result()), ["10.0.0.3/24"]);
    assert_eq!(pauses, TIMEOUT);
    let words = format!("another process has held the lock {} for 5 s", file("lock").display());
    assert!(added.stderr.contains(&words), "{added:?}");
    // After a timeout, the other processes do not wait either.
    let (deleted, pauses) = paused(&call(&lab, "second"), Call::del);
    deleted.ok();
    assert_eq!((deleted.stderr.as_str(), pauses), ("", Duration::ZERO));
    fs::remove_file(file("last_reserved_ip.0")).unwrap();
    assert_eq!(pauses_of_all(&lab, &mut holder), NO_PAUSES);
    drop(holder);

    // When it is free again, they wait for it again.
    call(&lab, "third").add().ok_result();
    let mut holder = Holder::unprivileged(&file("lock"));
    let (deleted, pauses) = paused(&call(&lab, "third"), Call::del);
    assert!(deleted.stderr.contains(&words), "{deleted:?}");
    assert_eq!(pauses, TIMEOUT);
    holder.holds_still();
}

#[test]
fn a_lock_file_that_other_users_can_read_is_replaced() {
    beyond_reference!("lease-lock");
    let lab = Lab::new();
    call(&lab, "old").add().ok_result();
    let_all_read(".lock");
    let mut holder = Holder::unprivileged(&file(".lock"));
    assert_eq!(pauses_of_all(&lab, &mut holder), NO_PAUSES);
    assert_eq!(fs::metadata(file(".lock")).unwrap().permissions().mode() & 0o777, 0o600);
}

/// The reference creates a lease file, and then writes its content.
#[test]
fn an_empty_file_is_kept_while_the_reference_may_be_writing_it() {
    beyond_reference!("lease-lock");
    let lab = Lab::new();
    call(&lab, "first").add().ok_result();
    fs::write(file("10.0.0.3"), "").unwrap();
    let mut reference = Holder::root(&file("lock"));
    assert_eq!(ips(&call(&lab, "second").add().ok_result()), ["10.0.0.4/24"]);
    call(&lab, "of-nobody").del().ok();
    assert_eq!(leases(), ["10.0.0.2", "10.0.0.3", "10.0.0.4"]);
    reference.holds_still();
    drop(reference);
    call(&lab, "of-nobody").del().ok();
    assert_eq!(leases(), ["10.0.0.2", "10.0.0.4"]);
}

/// Leases that were added while the reference was not excluded are found later.
#[test]
fn leases_that_the_reference_added_while_it_was_not_excluded_are_found() {
    beyond_reference!("lease-lock");
    let lab = Lab::new();
    call(&lab, "first").add().ok_result();
    let reference = Holder::root(&file("lock"));
    call(&lab, "second").add().ok_result();
    fs::write(file("10.0.0.9"), "theirs\r\neth0").unwrap();
    call(&lab, "third").add().ok_result();
    drop(reference);
    call(&lab, "theirs").add().refused(7, "10.0.0.9 has been allocated to theirs");
    for id in ["first", "second", "third", "theirs"] {
        call(&lab, id).del().ok();
    }
    assert!(leases().is_empty());
}

#[test]
fn ours_and_the_reference_allocate_no_address_twice_while_an_unprivileged_process_holds_locks() {
    beyond_reference!("lease-lock");
    let lab = Lab::new();
    call(&lab, "first").add().ok_result();
    let mut holder = Holder::unprivileged(Path::new(STORE));
    let calls: Vec<Call> = (0..60).map(|n| call(&lab, &format!("c{n}"))).collect();
    let given: BTreeSet<String> = thread::scope(|scope| {
        let runs: Vec<_> = calls
            .iter()
            .enumerate()
            .map(|(n, call)| if n % 2 == 0 { call.clone() } else { call.clone().by_the_reference() })
            .map(|call| scope.spawn(move || ips(&call.add().ok_result()).join(" ")))
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert_eq!((given.len(), leases().len()), (60, 61));
    calls.iter().for_each(|call| call.del().ok());
    assert_eq!(leases().len(), 1);
    holder.holds_still();
}
