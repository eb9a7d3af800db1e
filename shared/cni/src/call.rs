//! The runtime's call: environment and stdin, parsed and checked before a plugin sees them.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Once, OnceLock};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    AddResult, AsWritten, Attachment, Attachments, CniArgs, Code, ContainerId, Delegate, Dns, Error, IfName,
    Ipam, NetworkName, Result, ResultExt, Role, Scope, Version, json, warn,
};

/// Keys that all configurations have.
#[derive(Clone, Debug)]
pub struct NetConf {
    /// Name of the network.
    pub name: NetworkName,
    /// Version of the configuration, and of the result.
    pub version: Version,
    /// Resolver settings of the network. An empty list is a setting.
    pub dns: Option<Dns>,
    /// IPAM plugin of a plugin that creates interfaces ([`Role::Interface`]).
    pub ipam: Option<Ipam>,
    /// Directories of `CNI_PATH`.
    pub path: Vec<PathBuf>,
}

impl NetConf {
    /// Calls the IPAM plugin, if the configuration names one: `net.ask_ipam(Command::Check)`.
    ///
    /// # Errors
    /// The IPAM plugin's error, with its code; 7 if the plugin does not exist.
    pub fn ask_ipam(&self, command: Command) -> Result<()> {
        self.ipam.as_ref().map_or(Ok(()), |ipam| ipam.call(command))
    }

    /// Another plugin with its configuration, in this plugin's version.
    pub fn delegate(&self, kind: String, document: &Value) -> Delegate {
        Delegate::new(kind, self.path.clone(), document.to_string().into_bytes().into(), self.version)
    }
}

/// ADD: create the attachment.
#[derive(Clone, Debug)]
pub struct Add<C> {
    /// The attachment.
    pub attachment: Attachment,
    /// Namespace of the container, never the plugin's own. For a plugin that creates interfaces, it exists.
    pub netns: PathBuf,
    /// `CNI_ARGS`.
    pub args: CniArgs,
    /// Result of the earlier plugins in the chain. Empty for the first plugin, which a chained plugin ([`Role::Chained`]) never is.
    pub prev_result: AddResult,
    /// Keys that all configurations have.
    pub net: NetConf,
    /// The plugin's own configuration, checked.
    pub conf: C,
}

/// DEL: delete everything that an ADD may have created. The configuration is as written, because ADD might refuse it.
#[derive(Clone, Debug)]
pub struct Del {
    /// The attachment.
    pub attachment: Attachment,
    /// Namespace of the container, if it still exists.
    pub netns: Option<PathBuf>,
    /// The chain's result of ADD. A runtime may have lost it.
    pub prev_result: Option<AddResult>,
    /// Keys that all configurations have.
    pub net: NetConf,
    /// The plugin's own configuration, as written.
    pub conf: AsWritten,
}

/// CHECK: compare the attachment with the result of ADD.
#[derive(Clone, Debug)]
pub struct Check<C> {
    /// The attachment.
    pub attachment: Attachment,
    /// Namespace of the container, never the plugin's own. For a plugin that creates interfaces, it exists.
    pub netns: PathBuf,
    /// `CNI_ARGS`.
    pub args: CniArgs,
    /// The chain's result of ADD.
    pub prev_result: AddResult,
    /// Keys that all configurations have.
    pub net: NetConf,
    /// The plugin's own configuration, checked.
    pub conf: C,
}

/// GC: delete resources of the network's attachments.
#[derive(Debug)]
pub struct Gc {
    /// The resources to delete. A GC without a list of attachments does nothing, and never reaches a plugin.
    pub scope: Scope,
    /// Keys that all configurations have.
    pub net: NetConf,
    /// The plugin's own configuration, as written.
    pub conf: AsWritten,
}

/// STATUS: report whether an ADD can succeed.
#[derive(Debug)]
pub struct Status<C> {
    /// Keys that all configurations have.
    pub net: NetConf,
    /// The plugin's own configuration, checked.
    pub conf: C,
}

/// REPAIR: install missing rules of an attachment.
#[derive(Debug)]
pub struct Repair<C> {
    /// The corresponding CHECK.
    pub check: Check<C>,
    /// Names of resources that only one attachment can have at a time, such as host ports ([`Claims`](crate::repair::Claims)).
    pub claims: Vec<String>,
    /// Whether to install existing rules again: an earlier run installed the rules of an older attachment whose claims exclude these, and this
    /// attachment's must be the newest.
    pub reinstall: bool,
}

/// `CNI_COMMAND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Create an attachment.
    Add,
    /// Delete it.
    Del,
    /// Compare it with the result of ADD.
    Check,
    /// Delete everything that belongs to no valid attachment.
    Gc,
    /// Report whether an ADD can succeed.
    Status,
    /// Report the supported versions of the specification.
    Version,
    /// Install missing rules. Ferrule's own, never in `CNI_COMMAND`: see [`repair::ARGUMENT`](crate::repair::ARGUMENT).
    Repair,
    /// Delete everything of the named attachments. Also Ferrule's own: see [`collect`](crate::collect).
    Collect,
}

impl Command {
    fn parse(text: &str) -> Option<Self> {
        let of_the_variable = [Self::Add, Self::Del, Self::Check, Self::Gc, Self::Status, Self::Version];
        of_the_variable.into_iter().find(|command| command.as_str() == text)
    }

    /// The value of the variable.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
            Self::Repair => "REPAIR",
            Self::Collect => "COLLECT",
        }
    }

    /// The first version of the specification that has the command.
    pub fn since(self) -> Version {
        match self {
            Self::Check => Version::V0_4_0,
            Self::Gc | Self::Status => Version::V1_1_0,
            Self::Add | Self::Del | Self::Version | Self::Repair | Self::Collect => Version::V0_1_0,
        }
    }

    fn names_attachment(self) -> bool {
        matches!(self, Self::Add | Self::Del | Self::Check | Self::Repair)
    }

    fn needs_netns(self) -> bool {
        matches!(self, Self::Add | Self::Check | Self::Repair)
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The `CNI_*` variables.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) command: Command,
    /// Only for ADD, DEL and CHECK.
    pub(crate) attachment: Option<Attachment>,
    netns: Option<PathBuf>,
    own_netns_allowed: bool,
    pub(crate) args: CniArgs,
    pub(crate) path: Vec<PathBuf>,
}

/// Returns the value of a variable.
pub(crate) type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Reads variables and collects all problems.
struct Reader<'a> {
    get: Variable<'a>,
    wrong: Vec<String>,
}

impl Reader<'_> {
    fn text(&mut self, name: &str) -> Option<String> {
        let value = (self.get)(name).filter(|v| !v.is_empty())?;
        value.into_string().map_err(|v| self.wrong.push(format!("{name} {v:?} is not UTF-8"))).ok()
    }

    fn required<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        if (self.get)(name).is_none_or(|v| v.is_empty()) {
            self.wrong.push(format!("{name} is missing"));
            return None;
        }
        self.text(name).and_then(|text| parse(&text).map_err(|e| self.wrong.push(format!("{name} {e}"))).ok())
    }
}

impl Environment {
    /// Reads and checks the variables. `CNI_ARGS` is not checked for DEL, and for a plugin that does not read it.
    ///
    /// # Errors
    /// Code 4, naming all missing or malformed variables.
    pub(crate) fn read(get: Variable<'_>, reads_args: bool) -> Result<Self> {
        let mut reader = Reader { get, wrong: Vec::new() };
        let command = reader.required("CNI_COMMAND", |text| {
            Command::parse(text)
                .ok_or_else(|| format!("{text:?} is none of ADD, DEL, CHECK, GC, STATUS, VERSION"))
        });
        let Some(command) = command else { return Err(invalid(&reader.wrong)) };
        Self::of(command, reader.get, reads_args)
    }

    /// Like [`Environment::read`], for a command that is not in a variable.
    ///
    /// # Errors
    /// Code 4, naming all missing or malformed variables.
    pub(crate) fn of(command: Command, get: Variable<'_>, reads_args: bool) -> Result<Self> {
        let mut reader = Reader { get, wrong: Vec::new() };
        let mut this = Self {
            command,
            attachment: None,
            netns: None,
            own_netns_allowed: false,
            args: CniArgs::default(),
            path: Vec::new(),
        };
        if command != Command::Version {
            this.path = reader.required("CNI_PATH", search_path).unwrap_or_default();
        }
        if command.names_attachment() {
            this.read_attachment(&mut reader);
            this.read_args(&mut reader, reads_args);
        }
        if reader.wrong.is_empty() { Ok(this) } else { Err(invalid(&reader.wrong)) }
    }

    fn read_attachment(&mut self, reader: &mut Reader<'_>) {
        let container = reader.required("CNI_CONTAINERID", ContainerId::parse);
        let parse = if self.command == Command::Add { IfName::parse_new } else { IfName::parse };
        let ifname = reader.required("CNI_IFNAME", parse);
        self.attachment = container.zip(ifname).map(|(container, ifname)| Attachment { container, ifname });
        self.netns = if self.command.needs_netns() {
            reader.required("CNI_NETNS", |text| Ok(PathBuf::from(text)))
        } else {
            reader.text("CNI_NETNS").map(PathBuf::from)
        };
        let allowed = reader.text("CNI_NETNS_OVERRIDE").unwrap_or_default();
        self.own_netns_allowed = allowed == "1" || allowed.eq_ignore_ascii_case("true");
    }

    fn read_args(&mut self, reader: &mut Reader<'_>, needed: bool) {
        let text = (reader.get)("CNI_ARGS").unwrap_or_default();
        let args = text.to_str().ok_or_else(|| format!("{text:?} is not UTF-8")).and_then(CniArgs::parse);
        match args {
            Ok(args) => self.args = args,
            Err(_) if !needed || self.command == Command::Del => {}
            Err(e) => reader.wrong.push(format!("CNI_ARGS {e}")),
        }
    }

    /// Namespace of the container for ADD and CHECK. Only checked if `needed`.
    ///
    /// # Errors
    /// Code 3 if it does not exist, 4 if it is not a namespace, 8 if it is the plugin's own.
    pub(crate) fn netns(&self, needed: bool) -> Result<PathBuf> {
        let path = self.netns.clone().ok_or_else(|| invalid(&["CNI_NETNS is missing".into()]))?;
        match self.look_at(&path) {
            Ok(Seen::Own) => Err(own(&path)),
            Ok(Seen::Namespace) => Ok(path),
            _ if !needed => Ok(path),
            Err(e) => Err(e),
            Ok(Seen::Nothing) => Err(Error::new(
                Code::UnknownContainer,
                format!("CNI_NETNS {} does not exist", path.display()),
            )
            .detail("the container has exited, or its namespace has not been created yet")),
            Ok(Seen::SomethingElse) => {
                Err(invalid(&[format!("CNI_NETNS {} is not a network namespace", path.display())])
                    .detail("if the container has exited, its namespace was unmounted: run DEL"))
            }
        }
    }

    /// Namespace of the container for DEL. `None` if it does not exist. [`Self::is_in_own_netns`] means this too.
    pub(crate) fn netns_if_present(&self) -> Option<PathBuf> {
        static WARNED: Once = Once::new();
        let path = self.netns.clone()?;
        match self.look_at(&path) {
            Ok(Seen::Own) => {
                // Once, although each plugin that runs in this process looks.
                WARNED.call_once(|| {
                    warn(&format!(
                        "CNI_NETNS {} is the plugin's own network namespace: DEL continues as if the container's no longer existed",
                        path.display()
                    ));
                });
                None
            }
            Ok(Seen::Nothing | Seen::SomethingElse) => None,
            // A path that cannot be read cannot be entered either: the plugin reports that and continues.
            Ok(Seen::Namespace) | Err(_) => Some(path),
        }
    }

    /// Whether `CNI_NETNS` is the plugin's own namespace, whose interfaces DEL must not touch. The container has exited, and a process of
    /// the host now has the process id in `/proc/PID/ns/net`. A repeated DEL would find the same.
    pub(crate) fn is_in_own_netns(&self) -> bool {
        self.netns.as_ref().is_some_and(|path| matches!(self.look_at(path), Ok(Seen::Own)))
    }

    fn look_at(&self, path: &Path) -> Result<Seen> {
        let inode = match path.metadata() {
            Ok(inode) => inode,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Seen::Nothing);
            }
            Err(e) => return Err(Error::io(format!("examine CNI_NETNS {}", path.display()), &e)),
        };
        let own = own_netns()?;
        Ok(match (inode.dev() == own.0, inode.ino() == own.1) {
            (false, _) => Seen::SomethingElse,
            (true, true) if !self.own_netns_allowed => Seen::Own,
            (true, _) => Seen::Namespace,
        })
    }
}

/// Device and inode of the process's own namespace. A plugin called within another one's process needs them again.
fn own_netns() -> Result<(u64, u64)> {
    static OWN: OnceLock<(u64, u64)> = OnceLock::new();
    if let Some(own) = OWN.get() {
        return Ok(*own);
    }
    // The thread's path, which is the process's namespace: plugins open the same path, and the kernel creates its directories only once.
    let own = Path::new("/proc/thread-self/ns/net").metadata();
    let own = own
        .map_err(|e| Error::io("examine the plugin's own network namespace, /proc/thread-self/ns/net", &e))?;
    Ok(*OWN.get_or_init(|| (own.dev(), own.ino())))
}

enum Seen {
    Namespace,
    Own,
    Nothing,
    SomethingElse,
}

fn search_path(text: &str) -> Result<Vec<PathBuf>, String> {
    Ok(std::env::split_paths(text).filter(|dir| !dir.as_os_str().is_empty()).collect())
}

fn invalid(wrong: &[String]) -> Error {
    Error::new(Code::InvalidEnvironment, wrong.join("; "))
}

fn own(path: &Path) -> Error {
    Error::new(
        Code::InvalidNetns,
        format!("CNI_NETNS {} is the plugin's own network namespace", path.display()),
    )
    .detail("set CNI_NETNS_OVERRIDE=1 if this is intended")
}

/// Members that all configurations may have.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawNet {
    name: String,
    ipam: RawIpam,
    dns: Dns,
}

/// Members that all commands need.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RawName {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawIpam {
    r#type: String,
}

fn network_name(raw: &RawNet) -> Result<NetworkName> {
    NetworkName::parse(&raw.name).map_err(|e| Error::config(format!("the network's name {e}")))
}

#[derive(Deserialize)]
struct RawAttachment {
    #[serde(rename = "containerID")]
    container: String,
    ifname: String,
}

/// Whether `dns` of a configuration has a list. As in the reference, an empty list replaces the IPAM plugin's settings.
fn has_list_in_dns(document: &Value) -> bool {
    let Some(dns) = json::member(document, "dns") else { return false };
    ["nameservers", "search", "options"].iter().any(|key| json::member(dns, key).is_some_and(Value::is_array))
}

/// The configuration on stdin.
pub(crate) struct Document {
    json: Rc<Value>,
    bytes: Rc<[u8]>,
    pub(crate) version: Version,
}

impl Document {
    /// Parses a configuration.
    ///
    /// # Errors
    /// Code 6 if it is not a JSON object, 1 for an unknown version.
    pub(crate) fn parse(bytes: Vec<u8>) -> Result<Self> {
        let json = json::parse(&bytes, "the configuration on stdin")?;
        if !json.is_object() {
            return Err(Error::new(Code::Decoding, "the configuration on stdin is not a JSON object"));
        }
        let version = match json::member(&json, "cniVersion") {
            None => Version::WHEN_ABSENT,
            Some(Value::String(text)) => Version::parse(text)?,
            Some(_) => return Err(Error::new(Code::Decoding, "cniVersion: expected a string")),
        };
        Ok(Self { json: Rc::new(json), bytes: bytes.into(), version })
    }

    /// Keys that all configurations have. DEL and GC need the name only, and ignore other keys of the wrong type.
    ///
    /// # Errors
    /// Code 6 or 7, naming the key.
    pub(crate) fn net(&self, role: Role, env: &Environment) -> Result<NetConf> {
        let raw = if matches!(env.command, Command::Del | Command::Gc) {
            let name = json::decode::<RawName>(&self.json)?.name;
            let r#type = json::lenient(&self.json, &["ipam", "type"]).unwrap_or_default();
            RawNet { name, ipam: RawIpam { r#type }, dns: Dns::default() }
        } else {
            json::decode(&self.json)?
        };
        let name = network_name(&raw)?;
        let ipam = (!raw.ipam.r#type.is_empty())
            .then(|| Ipam::new(raw.ipam.r#type, env.path.clone(), Rc::clone(&self.bytes), self.version));
        let ipam = ipam.filter(|_| role == Role::Interface);
        let (version, path) = (self.version, env.path.clone());
        let dns = Some(raw.dns).filter(|dns| !dns.is_empty() || has_list_in_dns(&self.json));
        Ok(NetConf { name, version, dns, ipam, path })
    }

    /// Checks the keys that all configurations have, for ADD.
    ///
    /// # Errors
    /// Code 6 or 7, naming the key.
    pub(crate) fn check_common(&self) -> Result<()> {
        let raw: RawNet = json::decode(&self.json)?;
        network_name(&raw).map(drop)
    }

    /// `prevResult`, if there is one.
    ///
    /// # Errors
    /// Code 6 or 7, see [`AddResult::from_json`].
    pub(crate) fn prev(&self) -> Result<Option<AddResult>> {
        let prev = json::member(&self.json, "prevResult");
        prev.map(|prev| AddResult::from_json(prev, self.version)).transpose().context(|| "prevResult")
    }

    /// Serializes a result. An unchanged `prevResult` is returned with its unknown members; the version is the configuration's.
    ///
    /// # Errors
    /// Like [`AddResult::to_json`]. Code 999 if DEL could not read the result.
    pub(crate) fn written(&self, result: &AddResult, prev: &AddResult) -> Result<String> {
        let json = self.serialized(result, prev)?;
        let is_readable = |conf: &[u8]| {
            let size = (conf.len() + json.len()) as u64;
            size <= json::MAX_BYTES && json::have_few_values(&[conf, json.as_bytes()])
        };
        // DEL has the result in place of `prevResult`.
        if is_readable(&self.bytes)
            || is_readable(&serde_json::to_vec(&json::without(&self.json, "prevResult"))?)
        {
            return Ok(json);
        }
        let text = format!(
            "the result and the configuration together have more than {} bytes or {} values, so DEL could not read them",
            json::MAX_BYTES,
            json::MAX_VALUES
        );
        Err(Error::new(Code::Internal, text))
    }

    fn serialized(&self, result: &AddResult, prev: &AddResult) -> Result<String> {
        let unchanged = json::member(&self.json, "prevResult").filter(|_| prev == result);
        let Some(unchanged @ Value::Object(_)) = unchanged else { return result.to_json(self.version) };
        let mut members = json::without(unchanged, "cniVersion");
        members.insert("cniVersion".to_owned(), self.version.as_str().into());
        Ok(serde_json::to_string(&members)?)
    }

    /// Refuses objects, given by the paths of their keys, that have a member twice.
    ///
    /// # Errors
    /// Code 7, naming the member.
    pub(crate) fn refuse_repeated(&self, objects: &[&[&str]]) -> Result<()> {
        let repeated = |path: &&[&str]| Some((path.join("."), json::repeated_member(&self.bytes, path)?));
        match objects.iter().find_map(repeated) {
            None => Ok(()),
            Some((path, member)) => Err(Error::config(format!("duplicated {path} keys are not allowed"))
                .detail(format!("{path}: {member:?} is given twice"))),
        }
    }

    /// The plugin's own configuration.
    pub(crate) fn as_written(&self) -> AsWritten {
        Rc::clone(&self.json).into()
    }

    /// Valid attachments for GC. libcni sends the list under two keys. A nil slice of a runtime in Go becomes `null` under both keys, which
    /// is an empty list. libcni never sends `null` under one key alone: then nothing is deleted.
    ///
    /// # Errors
    /// Code 6 or 7 for a malformed list: then nothing may be deleted.
    pub(crate) fn valid_attachments(&self) -> Result<Option<Attachments>> {
        let keys = ["cni.dev/valid-attachments", "cni.dev/attachments"];
        let Some((key, list)) = keys.into_iter().find_map(|k| Some((k, json::member(&self.json, k)?))) else {
            let is_null = |key: &&str| self.json.get(key).is_some_and(Value::is_null);
            return Ok(keys.iter().all(is_null).then(Attachments::default));
        };
        let list: Vec<RawAttachment> = json::decode(list).context(|| key)?;
        let parse = |raw: RawAttachment| {
            let container = ContainerId::parse(&raw.container).map_err(|e| format!("containerID {e}"))?;
            let ifname = IfName::parse(&raw.ifname).map_err(|e| format!("ifname {e}"))?;
            Ok(Attachment { container, ifname })
        };
        let list: Result<Attachments, String> = list.into_iter().map(parse).collect();
        list.map(Some).map_err(|e| Error::config(format!("{key}: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<Environment> {
        read_for(vars, true)
    }

    fn read_for(vars: &[(&str, &str)], reads_args: bool) -> Result<Environment> {
        let get = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
        Environment::read(&get, reads_args)
    }

    #[test]
    fn all_that_is_missing_or_malformed_is_named_in_one_error() {
        let error =
            read(&[("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "../x"), ("CNI_ARGS", "?")]).unwrap_err();
        assert_eq!(error.code(), 4);
        for culprit in [
            "CNI_PATH is missing",
            "CNI_CONTAINERID \"../x\"",
            "CNI_IFNAME is missing",
            "CNI_NETNS is",
            "CNI_ARGS has",
        ] {
            assert!(error.msg().contains(culprit), "{culprit} in {error}");
        }
    }

    #[test]
    fn repair_is_no_command_of_the_specification() {
        let error = read(&[("CNI_COMMAND", "REPAIR"), ("CNI_PATH", "/bin")]).unwrap_err();
        assert!(error.code() == 4 && error.msg().contains("\"REPAIR\" is none of ADD"), "{error}");
    }

    #[test]
    fn a_del_needs_no_namespace_and_forgives_its_arguments() {
        let vars = [
            ("CNI_COMMAND", "DEL"),
            ("CNI_CONTAINERID", "c"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/x"),
            ("CNI_ARGS", "?"),
        ];
        let env = read(&vars).unwrap();
        assert_eq!(env.netns_if_present(), None);
    }

    #[test]
    fn a_del_enters_its_own_namespace_only_with_a_permission() {
        let own = "/proc/self/ns/net";
        let with = |allowed: &str| {
            let vars = [
                ("CNI_COMMAND", "DEL"),
                ("CNI_CONTAINERID", "c"),
                ("CNI_IFNAME", "eth0"),
                ("CNI_PATH", "/x"),
                ("CNI_NETNS", own),
                ("CNI_NETNS_OVERRIDE", allowed),
            ];
            let env = read(&vars).unwrap();
            (env.netns_if_present(), env.is_in_own_netns())
        };
        assert_eq!(with(""), (None, true));
        assert_eq!(with("1"), (Some(own.into()), false));
    }

    #[test]
    fn arguments_that_a_plugin_does_not_read_may_be_anything() {
        let vars = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "c"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_NETNS", "/n"),
            ("CNI_PATH", "/x"),
            ("CNI_ARGS", "none"),
        ];
        read_for(&vars, false).unwrap();
        assert!(read_for(&vars, true).unwrap_err().msg().contains("CNI_ARGS has \"none\""));
    }

    #[test]
    fn gc_and_status_need_the_plugins_path_only() {
        for command in ["GC", "STATUS"] {
            read(&[("CNI_COMMAND", command), ("CNI_PATH", "/x")]).unwrap();
            assert!(read(&[("CNI_COMMAND", command)]).is_err());
        }
        read(&[("CNI_COMMAND", "VERSION")]).unwrap();
    }

    #[test]
    fn a_namespace_is_distinguished_from_the_own_one_a_file_and_a_missing_path() {
        let with = |netns: &str, more: &[(&str, &str)]| {
            let mut vars = vec![("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "c"), ("CNI_IFNAME", "eth0")];
            vars.extend([("CNI_PATH", "/x"), ("CNI_NETNS", netns)]);
            vars.extend(more);
            read(&vars).unwrap().netns(true).map_err(|e| e.code())
        };
        assert_eq!(with("/proc/self/ns/net", &[]), Err(8));
        assert_eq!(
            with("/proc/self/ns/net", &[("CNI_NETNS_OVERRIDE", "True")]),
            Ok("/proc/self/ns/net".into())
        );
        assert_eq!(with("/proc/self/status", &[]), Err(4));
        assert_eq!(with("/", &[]), Err(4));
        assert_eq!(with("/no/such/netns", &[]), Err(3));
    }

    #[test]
    fn a_plugin_that_needs_no_namespace_refuses_only_its_own_namespace() {
        let with = |netns: &str| {
            let vars = [
                ("CNI_COMMAND", "ADD"),
                ("CNI_CONTAINERID", "c"),
                ("CNI_IFNAME", "eth0"),
                ("CNI_PATH", "/x"),
            ];
            let vars: Vec<_> = vars.into_iter().chain([("CNI_NETNS", netns)]).collect();
            read(&vars).unwrap().netns(false).map_err(|e| e.code())
        };
        assert_eq!(with("/no/such/netns"), Ok("/no/such/netns".into()));
        assert_eq!(with("/proc/self/ns/net"), Err(8));
    }

    fn document(json: &Value) -> Result<Document> {
        Document::parse(json.to_string().into_bytes())
    }

    #[test]
    fn the_list_of_valid_attachments_may_be_absent_empty_or_under_either_key() {
        let list = |json: Value| document(&json).unwrap().valid_attachments();
        assert_eq!(list(serde_json::json!({})).unwrap(), None);
        assert_eq!(
            list(serde_json::json!({ "cni.dev/valid-attachments": [] })).unwrap(),
            Some(Attachments::default())
        );
        let both = serde_json::json!({ "cni.dev/valid-attachments": null, "cni.dev/attachments": null });
        assert_eq!(list(both).unwrap(), Some(Attachments::default()), "a nil slice of libcni");
        assert_eq!(list(serde_json::json!({ "cni.dev/valid-attachments": null })).unwrap(), None);
        let one = serde_json::json!([{ "containerID": "c", "ifname": "eth0" }]);
        assert_eq!(
            list(serde_json::json!({ "cni.dev/attachments": one })).unwrap().unwrap().iter().count(),
            1
        );
        let bad = serde_json::json!([{ "containerID": "../c", "ifname": "eth0" }]);
        assert_eq!(list(serde_json::json!({ "cni.dev/attachments": bad })).unwrap_err().code(), 7);
    }

    #[test]
    fn an_invalid_configuration_is_refused() {
        assert_eq!(document(&serde_json::json!([])).err().unwrap().code(), 6);
        assert_eq!(document(&serde_json::json!({ "cniVersion": 1 })).err().unwrap().code(), 6);
        assert_eq!(document(&serde_json::json!({ "CNIVersion": "7.0.0" })).err().unwrap().code(), 1);
    }

    /// A device may have tens of thousands of routes.
    #[test]
    fn a_result_that_del_could_not_read_is_an_error() {
        let document = Document::parse(br#"{"cniVersion": "1.1.0", "name": "net"}"#.to_vec()).unwrap();
        let result_with = |routes: usize| {
            let route: crate::Route = serde_json::from_str(r#"{"dst": "10.0.0.0/8"}"#).unwrap();
            AddResult { routes: vec![route; routes], ..AddResult::default() }
        };
        let written = |routes| document.written(&result_with(routes), &AddResult::default());
        // Each route has three values. A later plugin of the chain has nearly the same result.
        let readable = written(json::MAX_VALUES / 4).unwrap();
        let chained =
            Document::parse(format!(r#"{{"cniVersion": "1.1.0", "prevResult": {readable}}}"#).into_bytes())
                .unwrap();
        chained.written(&result_with(1 + json::MAX_VALUES / 4), &AddResult::default()).unwrap();
        let error = written(json::MAX_VALUES).unwrap_err();
        assert_eq!(error.code(), 999);
        assert!(error.msg().contains("DEL could not read"), "{error}");
    }
}
