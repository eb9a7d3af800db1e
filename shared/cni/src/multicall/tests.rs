use std::cell::Cell;
use std::sync::Mutex;

use crate::exec::{error_object, failure};
use crate::schema::Key;
use crate::{Add, AddResult, AsWritten, Check, Del, Result, Role, Undo};

use super::*;

const fn entry(name: &'static str) -> Entry {
    let (main, answer) =
        (|| ExitCode::SUCCESS, |_: Variable<'_>, _: ReadStdin<'_>, _: Print<'_>| ExitCode::SUCCESS);
    Entry { name, main, answer, own: |_| None }
}

const PLUGINS: [Entry; 3] = [entry("vlan"), entry("macvlan"), entry("host-local")];

fn found(file: &str) -> Option<&'static str> {
    find(&PLUGINS, OsStr::new(file)).map(Entry::name)
}

#[test]
fn a_file_is_the_plugin_whose_name_it_has_or_ends_in() {
    for (file, plugin) in [
        ("vlan", "vlan"),
        ("macvlan", "macvlan"),
        ("buildkit-cni-vlan", "vlan"),
        ("buildkit-cni-host-local", "host-local"),
        ("-vlan", "vlan"),
    ] {
        assert_eq!(found(file), Some(plugin), "{file}");
    }
}

#[test]
fn a_file_of_any_other_name_is_no_plugin() {
    for file in ["", "ferrule", "exe", "ipvlan", "vlan.new", "vlan-", "local", "VLAN"] {
        assert_eq!(found(file), None, "{file}");
    }
}

/// Names of one executable are the same; a copy, or another version, is not.
#[test]
fn a_file_is_within_if_it_is_this_very_executable() {
    let own = env::current_exe().unwrap();
    let dir = tempfile::tempdir_in(own.parent().unwrap()).unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::hard_link(&own, at("vlan")).unwrap();
    std::os::unix::fs::symlink(&own, at("macvlan")).unwrap();
    fs::hard_link(&own, at("other")).unwrap();
    fs::copy(&own, at("host-local")).unwrap();
    let found = |name: &str| within(&PLUGINS, &at(name)).map(Entry::name);
    assert_eq!((found("vlan"), found("macvlan")), (Some("vlan"), Some("macvlan")));
    assert_eq!((found("host-local"), found("other"), found("missing")), (None, None, None));
}

thread_local! {
    /// Number of undone ADDs.
    static TAKEN_BACK: Cell<u32> = const { Cell::new(0) };
}

/// A plugin whose behaviour is its network's name.
struct Moody;

/// Its configuration.
struct Mood(String);

impl TryFrom<AsWritten> for Mood {
    type Error = Error;
    fn try_from(written: AsWritten) -> Result<Self> {
        let mood: String = written.key(&["mood"]).unwrap_or_default();
        assert_ne!(mood, "panic early");
        Ok(Self(mood))
    }
}

impl Plugin for Moody {
    const NAME: &'static str = "moody";
    const ABOUT: &'static str = "";
    const KEYS: &'static [Key] = &[];
    const ROLE: Role = Role::Ipam;
    type Conf = Mood;

    fn add(call: &Add<Mood>, undo: &mut Undo) -> Result<AddResult> {
        undo.push(|| {
            TAKEN_BACK.set(TAKEN_BACK.get() + 1);
            Ok::<(), Error>(())
        });
        assert!(log::is_served("moody"));
        match call.conf.0.as_str() {
            "fail" => Err(Error::config("no address today").detail("come back")),
            "panic" => panic!("no address ever"),
            _ => Ok(AddResult::default()),
        }
    }
    fn del(_: &Del) -> Result<()> {
        Ok(())
    }
    fn check(_: &Check<Mood>) -> Result<()> {
        Ok(())
    }
}

/// The plugins that a process serves are global.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Exit status and output of a process of the plugin, run in this process.
fn add(mood: &str) -> (ExitStatus, String) {
    let variable = |name: &str| match name {
        // The delegating plugin's command.
        "CNI_COMMAND" => Some("CHECK".into()),
        "CNI_PATH" => Some("/x".into()),
        "CNI_CONTAINERID" => Some("c".into()),
        "CNI_IFNAME" => Some("eth0".into()),
        "CNI_NETNS" => Some("/no/such/netns".into()),
        _ => None,
    };
    let stdin = format!(r#"{{"cniVersion": "1.0.0", "name": "n", "mood": "{mood}"}}"#);
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let ended = Entry::of::<Moody>().run_with(&variable, Command::Add, stdin.as_bytes()).unwrap();
    assert!(!log::is_served("moody"), "the log is the caller's again");
    (ended.status, String::from_utf8(ended.out).unwrap())
}

#[test]
fn a_plugin_within_answers_as_a_process_would() {
    let (status, out) = add("");
    assert!(status.success() && out.contains("\"cniVersion\": \"1.0.0\"") && out.ends_with('\n'), "{out}");
    assert_eq!(TAKEN_BACK.get(), 0);
}

#[test]
fn an_error_within_is_the_object_that_a_process_would_print_and_is_rolled_back() {
    let (status, out) = add("fail");
    let error = error_object(out.as_bytes()).unwrap();
    assert_eq!((status.code(), error), (Some(1), Error::config("no address today").detail("come back")));
    assert_eq!(TAKEN_BACK.get(), 1);
}

#[test]
fn a_panic_within_is_an_error_object_too_and_is_rolled_back() {
    let (status, out) = add("panic");
    let error = failure(Command::Add, status, out.as_bytes());
    assert!(error.code() == 999 && error.msg() == "internal error: no address ever", "{error}");
    assert_eq!((status.code(), TAKEN_BACK.get()), (Some(1), 1));
}

/// Before the guarded steps, a process would exit with Rust's own code.
#[test]
fn a_panic_outside_of_all_steps_does_not_reach_the_caller() {
    let (status, out) = add("panic early");
    assert_eq!((status.code(), out.as_str()), (Some(101), ""));
    let error = failure(Command::Add, status, out.as_bytes());
    assert!(error.code() == 6 && error.msg().contains("ended with exit code 101"), "{error}");
}
