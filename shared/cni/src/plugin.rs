//! The dispatcher: reads a request, calls the plugin's function for the command, and prints the result or the error.

use std::any::Any;
use std::env;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use system::{close_later, size_limit};

use crate::call::{Document, Environment, Variable};
use crate::log::serving;
use crate::schema::{Key, Type, relative_path};
use crate::{
    Add, AddResult, AsWritten, Check, Code, Command, Del, Error, Gc, REFERENCE_RELEASE, Repair, Result,
    ResultExt, Role, Scope, Status, Undo, Version, collect, json, repair, warn,
};

/// A CNI plugin.
pub trait Plugin {
    /// Name of the executable.
    const NAME: &'static str;
    /// The plugin's task, as a sentence without its subject.
    const ABOUT: &'static str;
    /// Role of the plugin.
    const ROLE: Role;
    /// Descriptions of the keys that the plugin reads, except those that every plugin has.
    const KEYS: &'static [Key];
    /// The keys of `args.cni` that it reads.
    const ARGS: &'static [Key] = &[];
    /// The capability arguments that it reads, except those of its IPAM plugin.
    const CAPABILITIES: &'static [&'static str] = &[];
    /// The kinds of links that every ADD needs, each with its kernel module: for STATUS and `cnitool doctor`.
    const LINK_KINDS: &'static [(&'static str, &'static str)] = &[];
    /// Whether the plugin reads `CNI_ARGS`. If so, malformed values and unknown keys are errors.
    const READS_ARGS: bool = false;
    /// Whether CHECK needs the result of ADD.
    const CHECKS_RESULT: bool = true;
    /// The error message if a chained plugin is the first plugin in the list: the same text as the reference's.
    const UNCHAINED: &'static str = "must be called as chained plugin";
    /// Objects of the configuration in which a repeated member is an error. Each object is given by its path, a list of keys. In all other
    /// objects, the last of the repeated members is used.
    const UNREPEATED: &'static [&'static [&'static str]] = &[];
    /// The checked configuration, for ADD, CHECK and STATUS. DEL and GC receive the unchecked document. The conversion performs no I/O:
    /// `add` checks the host.
    type Conf: TryFrom<AsWritten, Error: Into<Error>>;

    /// Creates the attachment. Before a step changes something, it pushes an action to `undo`. This action reverts the step.
    ///
    /// # Errors
    /// The operation and object that failed. The dispatcher then reverts all steps.
    fn add(call: &Add<Self::Conf>, undo: &mut Undo) -> Result<AddResult>;

    /// Deletes everything that an ADD may have created. Continues after failures. The runtime may call DEL repeatedly, and without an ADD.
    ///
    /// # Errors
    /// Everything that could not be deleted.
    fn del(call: &Del) -> Result<()>;

    /// Compares the attachment with the result of ADD.
    ///
    /// # Errors
    /// The difference between the attachment and the result.
    fn check(call: &Check<Self::Conf>) -> Result<()>;

    /// Deletes all objects of the network that belong to no valid attachment. The default implementation only calls the IPAM plugin.
    ///
    /// # Errors
    /// Everything that could not be deleted.
    fn gc(call: &Gc) -> Result<()> {
        call.net.ask_ipam(Command::Gc)
    }

    /// Reports whether an ADD can succeed. The default implementation only calls the IPAM plugin. Runtimes call STATUS every few seconds.
    ///
    /// # Errors
    /// Code 50 if no ADD can succeed, 51 if running containers are affected too.
    fn status(call: &Status<Self::Conf>) -> Result<()> {
        call.net.ask_ipam(Command::Status)
    }

    /// Whether the plugin installs rules that other programs may flush, and implements [`Plugin::repair`].
    const REPAIRS: bool = false;

    /// Installs missing rules of the attachments, the oldest attachment first, and changes nothing else. Returns for each attachment
    /// whether a rule was missing. `cnitool repair` sends this command, which is not in the specification.
    ///
    /// # Errors
    /// Code 3 for an attachment that no longer exists. Nothing is installed for such an attachment. Other codes if the repair failed.
    fn repair(calls: &[Repair<Self::Conf>]) -> Vec<Result<bool>> {
        calls.iter().map(|_| Ok(false)).collect()
    }

    /// The usage of the command lines for operators in [`Plugin::serve_itself`]. Empty: there are none.
    const USAGE: &'static str = "";

    /// The plugin's own command lines: its daemon, a tool for operators, or a process that the plugin starts for a part of its work.
    /// Returns `None` if the arguments are none of these command lines. A long-running process first calls [`heap::use_system_allocator`].
    /// The dispatcher calls this function only if there are arguments.
    fn serve_itself(_: &[OsString]) -> Option<ExitCode> {
        None
    }
}

/// The `main` function of a plugin: serves one call. Recipes do not print to stdout and do not determine the exit code. The exception is
/// [`Plugin::serve_itself`].
pub fn main<P: Plugin>() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    // Runtimes pass no arguments. Look at the arguments before CNI_COMMAND, because a caller that passes arguments may still have the
    // variables of a call in its environment.
    if !arguments.is_empty() {
        let _served = serving(P::NAME);
        if let Some(code) = P::serve_itself(&arguments) {
            return code;
        }
    }
    if !is_called() {
        // The background process that closes the sockets of other plugin processes has arguments too.
        if close_later::serve() {
            return ExitCode::SUCCESS;
        }
        let Some(own) = arguments.first().and_then(|argument| own::<P>(argument.to_str()?)) else {
            return about::<P>(&arguments);
        };
        let _served = serving(P::NAME);
        let answered = read_stdin().and_then(|request| print(&own(&request)?));
        return answered.map_or_else(|e| fail_with(&e.to_marked_json(), &print), |()| ExitCode::SUCCESS);
    }
    let _served = serving(P::NAME);
    size_limit::block_sigxfsz();
    answer::<P>(&|name| env::var_os(name), &read_stdin, &print)
}

/// A function that answers a command of Ferrule which is not in the specification. Its argument is stdin. It returns the line for stdout.
type Own = fn(&[u8]) -> Result<String>;

/// Finds the function for an argument on the command line: `collect` or `repair`.
pub(crate) fn own<P: Plugin>(argument: &str) -> Option<Own> {
    match argument {
        collect::ARGUMENT => Some(collect::answer::<P>),
        repair::ARGUMENT => Some(repair::answer::<P>),
        _ => None,
    }
}

/// Whether the environment contains a command of the specification. Every runtime sets `CNI_COMMAND`. Ferrule's own commands and a person
/// at a terminal do not set it.
pub(crate) fn is_called() -> bool {
    env::var_os("CNI_COMMAND").is_some_and(|command| !command.is_empty())
}

/// Reads all of stdin. For a delegate within this process, returns the delegate's configuration instead.
pub(crate) type ReadStdin<'a> = &'a dyn Fn() -> Result<Vec<u8>>;

/// Prints a line of JSON on stdout. For a delegate within this process, stores the line for the calling plugin instead.
pub(crate) type Print<'a> = &'a dyn Fn(&str) -> Result<()>;

/// Serves one call, for `main` and for delegation within one executable. `variable` returns the value of a `CNI_*` variable, `read` returns
/// stdin. Callers pass trait objects, so that the compiler makes only one copy of this function for each plugin.
pub(crate) fn answer<P: Plugin>(variable: Variable<'_>, read: ReadStdin<'_>, print: Print<'_>) -> ExitCode {
    let mut version = Version::LATEST;
    let Err(error) = serve::<P>(&mut version, variable, read, print) else { return ExitCode::SUCCESS };
    failed(&error, version, print)
}

pub(crate) fn failed(error: &Error, version: Version, print: Print<'_>) -> ExitCode {
    fail_with(&error.to_json(version), print)
}

fn fail_with(object: &str, print: Print<'_>) -> ExitCode {
    // If the error object cannot be printed either, only the exit code reports the failure.
    print(object).ok();
    ExitCode::FAILURE
}

/// Without `CNI_COMMAND`. A misspelled command line of a plugin that has some fails: it may be in a systemd unit.
#[expect(clippy::print_stdout, reason = "a person started the plugin at a terminal")]
fn about<P: Plugin>(arguments: &[OsString]) -> ExitCode {
    match arguments.first().filter(|_| !P::USAGE.is_empty()) {
        Some(help) if ["-h", "-help", "--help"].iter().any(|one| help == one) => print!("{}", P::USAGE),
        Some(word) if !word.as_encoded_bytes().starts_with(b"-") => {
            let text = format!("{}: unknown argument {word:?}\n{}", P::NAME, P::USAGE);
            io::stderr().write_all(text.as_bytes()).ok();
            return ExitCode::from(2);
        }
        // As the reference, whatever the flags are.
        _ => drop(io::stderr().write_all(version_text(P::NAME).as_bytes())),
    }
    ExitCode::SUCCESS
}

/// The text that a plugin prints if it is started without `CNI_COMMAND`. Nomad, nerdctl and others parse the release in the first line.
/// Therefore this line has the reference's form and number. Ferrule's version is build metadata, which is ignored in comparisons (Semantic
/// Versioning 2.0.0, section 10).
fn version_text(plugin: &str) -> String {
    let own = env!("CARGO_PKG_VERSION");
    format!(
        "CNI {plugin} plugin v{REFERENCE_RELEASE}+ferrule.{own}\nCNI protocol versions supported: {}\n",
        Version::list()
    )
}

/// Parses the call and passes it to the plugin. Sets `version` as soon as the configuration's version is known, because error objects
/// contain this version.
fn serve<P: Plugin>(
    version: &mut Version,
    variable: Variable<'_>,
    read: ReadStdin<'_>,
    print: Print<'_>,
) -> Result<()> {
    // Answer VERSION without reading stdin: stdin may be a terminal, where the end of the input never arrives.
    if variable("CNI_COMMAND").is_some_and(|c| c == Command::Version.as_str()) {
        return print(&versions());
    }
    let document = read().and_then(Document::parse);
    if let Ok(document) = &document {
        *version = document.version;
    }
    let env = Environment::read(variable, P::READS_ARGS)?;
    let document = document?;
    if document.version < env.command.since() {
        // The same text as the reference's: callers compare it.
        let text = format!("config version does not allow {}", env.command);
        return Err(Error::new(Code::IncompatibleVersion, text));
    }
    match env.command {
        Command::Add => add::<P>(&env, &document, print),
        Command::Del => del::<P>(&env, &document),
        Command::Check => check::<P>(&env, &document),
        Command::Gc => gc::<P>(&env, &document),
        Command::Status => status::<P>(&env, &document),
        // `Environment::read` never returns Repair or Collect: they are not values of `CNI_COMMAND`. VERSION was answered above.
        Command::Version | Command::Repair | Command::Collect => print(&versions()),
    }
}

fn add<P: Plugin>(env: &Environment, document: &Document, print: Print<'_>) -> Result<()> {
    let prev = document.prev()?;
    if P::ROLE.needs_prev() && prev.is_none() {
        return Err(missing_prev::<P>("it cannot be the first plugin in the list"));
    }
    let net = document.net(P::ROLE, env)?;
    if P::READS_ARGS {
        env.args.refuse_unknown()?;
    }
    let conf = conf::<P>(document)?;
    let call = Add {
        attachment: attachment(env)?,
        netns: env.netns(P::ROLE.needs_netns())?,
        args: env.args.clone(),
        prev_result: prev.unwrap_or_default(),
        net,
        conf,
    };
    let mut undo = Undo::new();
    let made = guarded(|| document.written(&P::add(&call, &mut undo)?, &call.prev_result));
    let delivered = made.and_then(|json| print(&json).context(|| "print the result"));
    match delivered {
        Ok(()) => {
            undo.commit();
            Ok(())
        }
        Err(error) => Err(undo.unwind_after(error)),
    }
}

fn del<P: Plugin>(env: &Environment, document: &Document) -> Result<()> {
    let net = document.net(P::ROLE, env)?;
    let call = Del {
        attachment: attachment(env)?,
        netns: env.netns_if_present(),
        // Helpful but optional, so a malformed one is no error.
        prev_result: document.prev().unwrap_or_default(),
        net,
        conf: document.as_written(),
    };
    guarded(|| P::del(&call))
}

fn check<P: Plugin>(env: &Environment, document: &Document) -> Result<()> {
    let why = "CHECK compares the current state with the result of ADD";
    let call = check_call::<P>(env, document, why, P::ROLE.needs_netns())?;
    guarded(|| P::check(&call))
}

/// Builds the input of a CHECK or of a repair. `why` is the part of the error message that explains why ADD's result is needed.
pub(crate) fn check_call<P: Plugin>(
    env: &Environment,
    document: &Document,
    why: &str,
    needs_netns: bool,
) -> Result<Check<P::Conf>> {
    let prev_result = match document.prev()? {
        None if P::CHECKS_RESULT => return Err(missing_prev::<P>(why)),
        prev => prev.unwrap_or_default(),
    };
    let net = document.net(P::ROLE, env)?;
    let conf = conf::<P>(document)?;
    let (attachment, netns, args) = (attachment(env)?, env.netns(needs_netns)?, env.args.clone());
    Ok(Check { attachment, netns, args, prev_result, net, conf })
}

fn gc<P: Plugin>(env: &Environment, document: &Document) -> Result<()> {
    let net = document.net(P::ROLE, env)?;
    // An empty list means that all attachments are stale. A missing list means nothing, so GC must not delete anything.
    let Some(valid) = document.valid_attachments()? else { return Ok(()) };
    let call = Gc { scope: Scope::all_but(valid), net, conf: document.as_written() };
    guarded(|| P::gc(&call))
}

fn status<P: Plugin>(env: &Environment, document: &Document) -> Result<()> {
    let net = document.net(P::ROLE, env)?;
    let call = Status { net, conf: conf::<P>(document)? };
    guarded(|| P::status(&call))
}

pub(crate) fn conf<P: Plugin>(document: &Document) -> Result<P::Conf> {
    document.refuse_repeated(P::UNREPEATED)?;
    let conf = P::Conf::try_from(document.as_written()).map_err(Into::into)?;
    warn_of_relative_paths(&document.as_written(), P::ROLE, P::KEYS);
    Ok(conf)
}

fn warn_of_relative_paths(written: &AsWritten, role: Role, keys: &[Key]) {
    let object: &[&str] = if role == Role::Ipam { &["ipam"] } else { &[] };
    for key in keys.iter().filter(|key| matches!(key.takes, Type::Path)) {
        let place = [object, &[key.name]].concat();
        let path: String = written.key(&place).unwrap_or_default();
        if let Some(warning) = relative_path(&path) {
            let current = env::current_dir().unwrap_or_default();
            warn(&format!("{} {warning} (the working directory is {})", place.join("."), current.display()));
        }
    }
}

fn attachment(env: &Environment) -> Result<crate::Attachment> {
    env.attachment
        .clone()
        .ok_or_else(|| Error::new(Code::InvalidEnvironment, "CNI_CONTAINERID or CNI_IFNAME is missing"))
}

fn missing_prev<P: Plugin>(why: &str) -> Error {
    let needs = format!("prevResult is missing: {} needs the result of the plugin before it", P::NAME);
    // The same texts as the reference's.
    let words = if P::ROLE == Role::Chained { P::UNCHAINED } else { "Required prevResult missing" };
    Error::config(words).detail(needs).detail(why)
}

fn versions() -> String {
    let all = Version::ALL.map(|v| format!("{:?}", v.as_str())).join(", ");
    format!("{{ \"cniVersion\": \"{}\", \"supportedVersions\": [{all}] }}", Version::LATEST)
}

fn read_stdin() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(json::MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|e| Error::io("read the configuration from stdin", &e))?;
    if bytes.len() as u64 > json::MAX_BYTES {
        let text = format!("the configuration on stdin is larger than {} bytes", json::MAX_BYTES);
        return Err(Error::new(Code::Decoding, text));
    }
    Ok(bytes)
}

pub(crate) fn print(json: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(format!("{json}\n").as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|e| Error::io("write to stdout", &e))
}

/// Converts a panic into an error, so that the dispatcher reverts the steps and prints an error object.
pub(crate) fn guarded<T>(command: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|payload| {
        Err(Error::new(Code::Internal, format!("internal error: {}", panic_text(payload.as_ref())))
            .detail("this is a bug in the plugin; please report it together with what it printed on stderr"))
    })
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic")
}

#[cfg(test)]
mod tests;
