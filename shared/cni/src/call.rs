//! What a runtime asks: the environment and stdin, read and checked before a plugin sees them.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    AddResult, AsWritten, Attachments, CniArgs, Code, ContainerId, Delegate, Dns, Error, IfName, Ipam,
    NetworkName, Result, ResultExt, Role, Scope, Version, json,
};

/// One interface of one container: what ADD makes and DEL removes. Within a network it is unique
/// (SPEC.md, section 1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attachment {
    /// The container's id.
    pub container: ContainerId,
    /// The interface's name inside of the container.
    pub ifname: IfName,
}

/// What every configuration says, whatever its type.
#[derive(Clone, Debug)]
pub struct NetConf {
    /// The network's name.
    pub name: NetworkName,
    /// The version that the configuration is written in, and the result will be.
    pub version: Version,
    /// Settings for the container's resolver, given with the network. An empty list counts as given.
    pub dns: Option<Dns>,
    /// The result of the plugin before this one in the chain.
    pub prev_result: Option<AddResult>,
    /// The IPAM plugin to delegate to, of a plugin that makes interfaces ([`Role::Interface`]).
    pub ipam: Option<Ipam>,
    /// The directories of `CNI_PATH`, where other plugins are found.
    pub path: Vec<PathBuf>,
}

impl NetConf {
    /// Has the IPAM plugin serve a command, if the configuration names one: `net.ask_ipam(Command::Check)`.
    ///
    /// # Errors
    /// The IPAM plugin's error, with its code. Code 7 if the plugin is not installed.
    pub fn ask_ipam(&self, command: Command) -> Result<()> {
        self.ipam.as_ref().map_or(Ok(()), |ipam| ipam.call(command))
    }

    /// Another plugin, and the configuration that it is to work by, in this one's version.
    pub fn delegate(&self, kind: String, document: &Value) -> Delegate {
        Delegate::new(kind, self.path.clone(), document.to_string().into_bytes().into(), self.version)
    }
}

/// ADD: make the attachment.
#[derive(Clone, Debug)]
pub struct Add<C> {
    /// The attachment.
    pub attachment: Attachment,
    /// The container's namespace. It is not the plugin's own; for a plugin that makes interfaces it exists.
    pub netns: PathBuf,
    /// `CNI_ARGS`.
    pub args: CniArgs,
    /// What every configuration says.
    pub net: NetConf,
    /// What this plugin's configuration says, checked.
    pub conf: C,
}

/// DEL: remove all that an ADD may have made. The configuration is as written: ADD might refuse it.
#[derive(Clone, Debug)]
pub struct Del {
    /// The attachment.
    pub attachment: Attachment,
    /// The container's namespace, if there still is one.
    pub netns: Option<PathBuf>,
    /// What every configuration says.
    pub net: NetConf,
    /// What this plugin's configuration says, as written.
    pub conf: AsWritten,
}

/// CHECK: is the attachment as the ADD left it?
#[derive(Clone, Debug)]
pub struct Check<C> {
    /// The attachment.
    pub attachment: Attachment,
    /// The container's namespace. It is not the plugin's own; for a plugin that makes interfaces it exists.
    pub netns: PathBuf,
    /// `CNI_ARGS`.
    pub args: CniArgs,
    /// What the chain's last plugin returned from ADD.
    pub prev_result: AddResult,
    /// What every configuration says.
    pub net: NetConf,
    /// What this plugin's configuration says, checked.
    pub conf: C,
}

/// GC: remove things of this network's attachments.
#[derive(Debug)]
pub struct Gc {
    /// Which things are to be removed. A GC without a list of attachments does nothing, and never reaches a plugin.
    pub scope: Scope,
    /// What every configuration says.
    pub net: NetConf,
    /// What this plugin's configuration says, as written.
    pub conf: AsWritten,
}

/// STATUS: could an ADD be served now?
#[derive(Debug)]
pub struct Status<C> {
    /// What every configuration says.
    pub net: NetConf,
    /// What this plugin's configuration says, checked.
    pub conf: C,
}

/// REPAIR: install what is missing of the attachment's rules.
#[derive(Debug)]
pub struct Repair<C> {
    /// What a CHECK would get.
    pub check: Check<C>,
    /// What only one attachment can have at a time, such as a host port: names without a meaning of their own.
    pub claims: Vec<String>,
    /// An earlier run installed the rules of an older attachment that claims the same. This attachment's rules are installed
    /// again, even if none is missing: they have to be the newest.
    pub reinstall: bool,
}

/// `CNI_COMMAND`: what is asked of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Make an attachment.
    Add,
    /// Remove it.
    Del,
    /// Is it as the ADD left it?
    Check,
    /// Remove all that belongs to no valid attachment.
    Gc,
    /// Could an ADD be served now?
    Status,
    /// Which versions of the specification are spoken?
    Version,
    /// Install what is missing of its rules. Ferrule's own, and never in `CNI_COMMAND`: see
    /// [`repair::ARGUMENT`](crate::repair::ARGUMENT).
    Repair,
    /// Remove what belongs to the attachments that are named. Ferrule's own, too: see [`collect`](crate::collect).
    Collect,
}

impl Command {
    fn parse(text: &str) -> Option<Self> {
        let of_the_variable = [Self::Add, Self::Del, Self::Check, Self::Gc, Self::Status, Self::Version];
        of_the_variable.into_iter().find(|command| command.as_str() == text)
    }

    /// As it is written in the variable.
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
    /// With ADD, DEL and CHECK only.
    pub(crate) attachment: Option<Attachment>,
    netns: Option<PathBuf>,
    own_netns_allowed: bool,
    pub(crate) args: CniArgs,
    pub(crate) path: Vec<PathBuf>,
}

/// Gives a variable's value.
pub(crate) type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Reads variables, noting all that are wrong.
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
    /// Reads and checks the variables. `CNI_ARGS` may be anything for a plugin that does not
    /// read it, and for DEL.
    ///
    /// # Errors
    /// Code 4, naming all that are missing or malformed.
    pub(crate) fn read(get: Variable<'_>, reads_args: bool) -> Result<Self> {
        let mut reader = Reader { get, wrong: Vec::new() };
        let command = reader.required("CNI_COMMAND", |text| {
            Command::parse(text)
                .ok_or_else(|| format!("{text:?} is none of ADD, DEL, CHECK, GC, STATUS, VERSION"))
        });
        let Some(command) = command else { return Err(invalid(&reader.wrong)) };
        Self::of(command, reader.get, reads_args)
    }

    /// Reads the environment for a command that is not in CNI_COMMAND.
    ///
    /// # Errors
    /// Code 4 if a variable is missing or malformed.
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
        let ifname = reader.required("CNI_IFNAME", IfName::parse);
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

    /// The container's namespace for ADD and CHECK. If it is not `needed`, it may be missing.
    ///
    /// # Errors
    /// Code 3 if it does not exist, 4 if it is not a network namespace, 8 if it is the plugin's own.
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
                Err(invalid(&[format!("CNI_NETNS {} is not a network namespace", path.display())]))
            }
        }
    }

    /// The container's namespace for DEL. None if it does not exist.
    ///
    /// # Errors
    /// Code 8 if it is the plugin's own: its interfaces are not to be deleted.
    pub(crate) fn netns_if_present(&self) -> Result<Option<PathBuf>> {
        let Some(path) = self.netns.clone() else { return Ok(None) };
        match self.look_at(&path) {
            Ok(Seen::Own) => Err(own(&path)),
            Ok(Seen::Nothing | Seen::SomethingElse) => Ok(None),
            // What cannot be looked at cannot be entered either: the plugin will report it and go on.
            Ok(Seen::Namespace) | Err(_) => Ok(Some(path)),
        }
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

/// Device and inode of the process's own namespace. A plugin that is called within another one's process needs them again.
fn own_netns() -> Result<(u64, u64)> {
    static OWN: OnceLock<(u64, u64)> = OnceLock::new();
    if let Some(own) = OWN.get() {
        return Ok(*own);
    }
    // The thread's, which is the process's: a plugin opens the same path, and the kernel makes its directories only once.
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

/// The members that every configuration may have.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawNet {
    name: String,
    ipam: RawIpam,
    dns: Dns,
}

/// What no command can do without.
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

/// Whether `dns` of a configuration has a list. Like the reference, we let an empty one replace the IPAM plugin's settings.
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
    /// Code 6 for what is no JSON object, 1 for an unknown version.
    pub(crate) fn parse(bytes: Vec<u8>) -> Result<Self> {
        let json = json::parse(&bytes, "the configuration on stdin")?;
        if !json.is_object() {
            return Err(Error::new(Code::Decoding, "the configuration on stdin is not a JSON object"));
        }
        let version = match json::member(&json, "cniVersion") {
            None => Version::UNSAID,
            Some(Value::String(text)) => Version::parse(text)?,
            Some(_) => return Err(Error::new(Code::Decoding, "cniVersion: expected a string")),
        };
        Ok(Self { json: Rc::new(json), bytes: bytes.into(), version })
    }

    /// What every configuration says. `prev` is a `prevResult` that was read already. DEL and GC need the name only: where
    /// the rest is of the wrong type they do without.
    ///
    /// # Errors
    /// Code 6 or 7, naming the key.
    pub(crate) fn net(&self, role: Role, env: &Environment, prev: Option<AddResult>) -> Result<NetConf> {
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
        Ok(NetConf { name, version, dns, prev_result: prev, ipam, path })
    }

    /// Checks the members that every configuration has, for ADD.
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

    /// A result as it is printed. One that nothing was changed of is handed on as it came in, also what only its maker
    /// understands; the version is the configuration's.
    ///
    /// # Errors
    /// None that a result can cause.
    pub(crate) fn written(&self, result: &AddResult, prev: Option<&AddResult>) -> Result<String> {
        let unchanged = json::member(&self.json, "prevResult").filter(|_| prev == Some(result));
        let Some(Value::Object(members)) = unchanged else { return result.to_json(self.version) };
        let mut members = members.clone();
        members.retain(|key, _| !key.eq_ignore_ascii_case("cniVersion"));
        members.insert("cniVersion".to_owned(), self.version.as_str().into());
        Ok(serde_json::to_string(&members)?)
    }

    /// Refuses objects, by the paths of their keys, in which a member is given twice.
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

    /// What this plugin's configuration says.
    pub(crate) fn as_written(&self) -> AsWritten {
        Rc::clone(&self.json).into()
    }

    /// The attachments that GC is to keep. libcni sends the same list under two keys. A runtime written in Go that has no
    /// attachment may hand libcni a nil slice, which becomes `null` under both keys: an empty list. `null` under one key alone is
    /// nothing that libcni sends, so it is no list, and nothing is removed.
    ///
    /// # Errors
    /// Code 6 or 7: with a list that is not understood nothing may be removed.
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
        assert_eq!(env.netns_if_present().unwrap(), None);
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
    fn a_namespace_is_told_from_its_own_a_file_and_nothing() {
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
    fn a_plugin_that_works_in_no_namespace_only_minds_its_own() {
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
    fn what_is_no_configuration_is_refused() {
        assert_eq!(document(&serde_json::json!([])).err().unwrap().code(), 6);
        assert_eq!(document(&serde_json::json!({ "cniVersion": 1 })).err().unwrap().code(), 6);
        assert_eq!(document(&serde_json::json!({ "CNIVersion": "7.0.0" })).err().unwrap().code(), 1);
    }
}
