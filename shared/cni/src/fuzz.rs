//! Fuzz targets of this crate and their conditions. The seeds are in fuzz/corpus; a unit test replays them.

#![allow(clippy::unwrap_used, reason = "a fuzz target ends with a panic")]

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;

use crate::plugin::answer;
use crate::schema::Key;
use crate::{
    Add, AddResult, AsWritten, Attachment, Check, CniArgs, Code, Command, ContainerId, Del, Error, Gc,
    IfName, IpConfig, NetConf, NetworkName, Plugin, PluginType, Result, Role, Status, Undo, Version, addr,
    json,
};

const COMMANDS: [Command; 6] =
    [Command::Add, Command::Del, Command::Check, Command::Gc, Command::Status, Command::Version];

/// A whole call: lines `NAME=VALUE`, an empty line, and stdin. A plugin without effects serves it as it is, and once with each command.
///
/// # Panics
/// If the answer does not follow the specification, or an ADD whose result is not read is not undone.
pub fn call(input: &[u8]) {
    let end = input.windows(2).position(|two| two == b"\n\n").unwrap_or(input.len());
    let stdin = input.get(end + 2..).unwrap_or_default();
    let variables: Vec<(&[u8], &[u8])> = input[..end].split(|byte| *byte == b'\n').filter_map(pair).collect();
    for command in COMMANDS.into_iter().map(Some).chain([None]) {
        let variable = |name: &str| match command {
            Some(command) if name == "CNI_COMMAND" => Some(command.as_str().into()),
            _ => variables
                .iter()
                .find(|(n, _)| *n == name.as_bytes())
                .map(|(_, v)| OsStr::from_bytes(v).into()),
        };
        serve::<Idle<false>>(command, &variable, input.len(), stdin);
        serve::<Idle<true>>(command, &variable, input.len(), stdin);
    }
}

fn serve<P: Plugin>(
    command: Option<Command>,
    variable: &impl Fn(&str) -> Option<OsString>,
    length: usize,
    stdin: &[u8],
) {
    ADDED.set(0);
    let (read, said) = (|| Ok(stdin.to_owned()), RefCell::new(String::new()));
    let exit = answer::<P>(variable, &read, &|json| {
        said.borrow_mut().push_str(json);
        Ok(())
    });
    let said = said.into_inner();
    assert!(exit == ExitCode::SUCCESS || ADDED.get() == 0, "a failed ADD is undone");
    assert!(said.len() < 4096 + 64 * length, "{} bytes for {length}", said.len());
    judge(command, exit, &said);
    ADDED.set(0);
    answer::<P>(variable, &read, &|_| Err(Error::new(Code::Io, "nobody reads")));
    assert_eq!(ADDED.get(), 0, "an ADD whose result is not read is undone");
}

fn pair(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|byte| *byte == b'=')?;
    Some((&line[..at], &line[at + 1..]))
}

/// SPEC.md, section 5.
fn judge(command: Option<Command>, exit: ExitCode, stdout: &str) {
    let said: Value = match stdout {
        "" => Value::Null,
        said => serde_json::from_str(said).unwrap(),
    };
    if exit != ExitCode::SUCCESS {
        let (code, msg) = (said["code"].as_u64().unwrap(), said["msg"].as_str().unwrap());
        assert!((1..=999).contains(&code) && !msg.is_empty(), "{said}");
        assert!(!msg.starts_with("internal error"), "{said}");
        Version::parse(said["cniVersion"].as_str().unwrap()).unwrap();
    } else if let Some(command) = command {
        let version = said["cniVersion"].as_str().map(|text| Version::parse(text).unwrap());
        match command {
            Command::Add => drop(AddResult::from_json(&said, version.unwrap()).unwrap()),
            Command::Version => {
                assert!(said["supportedVersions"].is_array() && version == Some(Version::LATEST))
            }
            _ => assert_eq!(said, Value::Null),
        }
    }
}

thread_local! {
    /// Number of attachments that [`Idle`] has added and not undone.
    static ADDED: Cell<i32> = const { Cell::new(0) };
}

/// A plugin that reads everything and does nothing.
struct Idle<const CHAINED: bool>;

impl<const CHAINED: bool> Plugin for Idle<CHAINED> {
    const NAME: &'static str = "idle";
    const ABOUT: &'static str = "";
    const KEYS: &'static [Key] = &[];
    const ROLE: Role = if CHAINED { Role::Chained } else { Role::Interface };
    const READS_ARGS: bool = !CHAINED;
    type Conf = AsWritten;

    fn add(call: &Add<AsWritten>, undo: &mut Undo) -> Result<AddResult> {
        ADDED.set(ADDED.get() + 1);
        undo.push(|| {
            ADDED.set(ADDED.get() - 1);
            Ok::<(), Error>(())
        });
        attachment(&call.attachment);
        network(&call.net);
        call.args.ip()?;
        assert!(CHAINED || call.netns.exists());
        result(&call.prev_result);
        Ok(call.prev_result.clone())
    }

    fn del(call: &Del) -> Result<()> {
        attachment(&call.attachment);
        network(&call.net);
        call.prev_result.iter().for_each(result);
        Ok(())
    }

    fn check(call: &Check<AsWritten>) -> Result<()> {
        attachment(&call.attachment);
        network(&call.net);
        result(&call.prev_result);
        call.args.ip().map(drop)
    }

    fn gc(call: &Gc) -> Result<()> {
        network(&call.net);
        call.scope.valid().iter().for_each(attachment);
        assert!(call.scope.valid().iter().all(|at| call.scope.valid().contains(&at.container, &at.ifname)));
        Ok(())
    }

    fn status(call: &Status<AsWritten>) -> Result<()> {
        network(&call.net);
        Ok(())
    }
}

fn network(net: &NetConf) {
    one_component(&net.name);
    if let Some(ipam) = &net.ipam {
        ipam.find().ok().inspect(|file| one_component(file.file_name().unwrap().to_str().unwrap()));
    }
}

fn result(prev: &AddResult) {
    assert!(prev.host_interfaces().count() <= prev.interfaces.len());
    assert!(prev.ips.iter().all(|ip| ip.interface.is_some() == prev.interface_of(ip).is_some()));
    let is_nameless = |ip: &IpConfig| prev.interface_of(ip).is_none_or(|i| i.name.is_empty());
    assert!(prev.ips_of("").all(is_nameless));
}

fn attachment(at: &Attachment) {
    one_component(&at.container);
    one_component(&at.ifname);
    assert!(at.ifname.len() < 16 && !at.ifname.contains(char::is_whitespace));
}

/// A checked name is one component of a path.
fn one_component(name: &str) {
    let path = Path::new("/place").join(name);
    assert_eq!((path.parent(), path.file_name()), (Some(Path::new("/place")), Some(OsStr::new(name))));
    assert!(name.len() <= 255 && !name.contains('\0'));
}

/// A result, parsed as each version. Fields of a version survive, and a conversion drops only fields that the older version lacks.
///
/// # Panics
/// If this does not hold.
pub fn results(input: &[u8]) {
    let Ok(value) = json::parse(input, "a result") else { return };
    for result in Version::ALL.into_iter().filter_map(|version| AddResult::from_json(&value, version).ok()) {
        assert_eq!(through(&result, Version::LATEST), result);
        let said = Version::ALL.map(|version| through(&result, version));
        for (a, from) in Version::ALL.into_iter().enumerate() {
            for (b, to) in Version::ALL.into_iter().enumerate() {
                assert_eq!(through(&said[a], to), said[a.min(b)], "{from} to {to}");
            }
        }
    }
}

fn through(result: &AddResult, version: Version) -> AddResult {
    let json = result.to_json(version).unwrap();
    AddResult::from_json(&json::parse(json.as_bytes(), "it").unwrap(), version).unwrap()
}

/// `CNI_ARGS`, and the input as each kind of name and address.
///
/// # Panics
/// If writing and parsing are not inverse, or a name is not one component of a path.
pub fn arguments(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    if let Ok(args) = CniArgs::parse(text) {
        assert!(
            args.iter()
                .all(|(key, value)| !key.is_empty() && !key.contains(['=', ';']) && !value.contains(';'))
        );
        assert_eq!(CniArgs::parse(&args.to_string()), Ok(args.clone()));
        assert!(args.refuse_unknown().is_err() || args.ip().is_ok() || args.get("IP").is_some());
        assert!(args.mac().is_none_or(|mac| text.contains(mac)));
    }
    for part in text.split([';', '=', '\n']).chain([text]) {
        ContainerId::parse(part).inspect(|name| one_component(name)).ok();
        NetworkName::parse(part).inspect(|name| one_component(name)).ok();
        IfName::parse(part).inspect(|name| one_component(name)).ok();
        PluginType::parse(part).inspect(|name| one_component(name)).ok();
        same(addr::parse_ip, part);
        same(addr::parse_cidr, part);
    }
}

/// Writing and parsing are inverse.
fn same<T: fmt::Display + fmt::Debug + PartialEq>(read: fn(&str) -> Result<T, String>, text: &str) {
    if let Ok(value) = read(text) {
        assert_eq!(read(&value.to_string()), Ok(value));
    }
}

#[test]
fn every_seed_passes() {
    seeds::replay("call", call);
    seeds::replay("results", results);
    seeds::replay("arguments", arguments);
}
