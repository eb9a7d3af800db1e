use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

/// A plugin of the role Interface, with the default implementations.
struct Made;
/// A plugin of the role Ipam.
struct Leased;
/// A plugin of the role Chained.
struct Changed;

macro_rules! plugin {
    ($plugin:ident, $role:ident) => {
        impl Plugin for $plugin {
            const NAME: &'static str = "itself";
            const ABOUT: &'static str = "";
            const KEYS: &'static [Key] = &[];
            const ROLE: Role = Role::$role;
            type Conf = AsWritten;
            fn add(_: &Add<AsWritten>, _: &mut Undo) -> Result<AddResult> {
                Ok(AddResult::default())
            }
            fn del(_: &Del) -> Result<()> {
                Ok(())
            }
            fn check(_: &Check<AsWritten>) -> Result<()> {
                Ok(())
            }
        }
    };
}

plugin!(Made, Interface);
plugin!(Leased, Ipam);
plugin!(Changed, Chained);

/// The error of a failed command, or an empty string.
fn called<P: Plugin>(command: &str, dir: &Path, netns: &str, config: &str) -> String {
    let variable = |name: &str| match name {
        "CNI_COMMAND" => Some(command.into()),
        "CNI_PATH" => Some(dir.into()),
        "CNI_CONTAINERID" => Some("c".into()),
        "CNI_IFNAME" => Some("eth0".into()),
        "CNI_NETNS" => Some(netns.into()),
        _ => None,
    };
    let said = std::cell::RefCell::new(String::new());
    let exit = answer::<P>(&variable, &|| Ok(config.into()), &|json| {
        said.borrow_mut().push_str(json);
        Ok(())
    });
    if exit == ExitCode::SUCCESS { String::new() } else { said.into_inner() }
}

/// An IPAM plugin that called the IPAM plugin of its configuration would start itself recursively.
#[test]
fn only_a_plugin_that_makes_interfaces_forwards_gc_and_status_to_the_ipam_plugin() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("itself");
    fs::write(&file, "#!/bin/sh\necho asked >>\"$0.log\"\n").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    let config = r#"{"cniVersion": "1.1.0", "name": "n", "ipam": {"type": "itself"}, "cni.dev/valid-attachments": []}"#;
    for command in ["GC", "STATUS"] {
        assert_eq!(called::<Leased>(command, dir.path(), "", config), "");
        assert_eq!(called::<Changed>(command, dir.path(), "", config), "");
    }
    assert!(!dir.path().join("itself.log").exists());
    for command in ["GC", "STATUS"] {
        assert_eq!(called::<Made>(command, dir.path(), "", config), "");
    }
    assert_eq!(fs::read_to_string(dir.path().join("itself.log")).unwrap(), "asked\nasked\n");
}

#[test]
fn add_requires_the_input_of_the_plugins_role() {
    let (dir, gone) = (Path::new("/x"), "/no/such/netns");
    let first = r#"{"cniVersion": "1.1.0", "name": "n"}"#;
    let later = r#"{"cniVersion": "1.1.0", "name": "n", "prevResult": {}}"#;
    assert!(called::<Made>("ADD", dir, gone, first).contains("\"code\": 3"));
    assert_eq!(called::<Leased>("ADD", dir, gone, first), "");
    assert!(called::<Changed>("ADD", dir, gone, first).contains("prevResult is missing"));
    assert_eq!(called::<Changed>("ADD", dir, gone, later), "");
}
