//! The dispatcher: reads the request, calls the plugin, and prints its result or error on stdout.

use std::any::Any;
use std::env;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use system::{close_later, size_limit};

use crate::call::{Document, Environment, Variable};
use crate::{
    Add, AddResult, AsWritten, Check, Code, Command, Del, Error, Gc, REFERENCE_RELEASE, Repair, Result,
    ResultExt, Scope, Status, Undo, Version, collect, json, repair,
};

/// The role of a plugin. It decides what a call requires, and which plugins receive GC and STATUS next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Creates an interface in the container. ADD and CHECK need an existing namespace. An IPAM plugin allocates the addresses;
    /// GC and STATUS are forwarded to it.
    Interface,
    /// IPAM plugin: allocates addresses. Its caller may have no namespace. `ipam` in its configuration is its own.
    Ipam,
    /// Chained plugin: changes the interface of an earlier plugin. ADD needs the result of that plugin. If it needs a
    /// namespace, it opens the namespace first.
    Chained,
    /// Calls another plugin to create the interface, with a configuration that it generates. The delegate itself checks for a
    /// namespace and an IPAM plugin.
    Delegating,
}

impl Role {
    fn needs_prev(self) -> bool {
        self == Self::Chained
    }

    fn needs_netns(self) -> bool {
        self == Self::Interface
    }
}

/// A CNI plugin.
pub trait Plugin {
    /// The executable's name.
    const NAME: &'static str;
    /// The plugin's role.
    const ROLE: Role;
    /// Whether the plugin reads `CNI_ARGS`. Then malformed arguments and unknown keys are errors.
    const READS_ARGS: bool = false;
    /// The message if a chained plugin is the first one. The reference uses the same words.
    const UNCHAINED: &'static str = "must be called as chained plugin";
    /// Paths of objects in the configuration that must not have duplicate keys. In
    /// other objects the last duplicate is used.
    const UNREPEATED: &'static [&'static [&'static str]] = &[];
    /// The checked configuration, for ADD, CHECK and STATUS. DEL and GC get only the decoded one. No I/O: checks that depend
    /// on the host are steps of `add`.
    type Conf: TryFrom<AsWritten, Error: Into<Error>>;

    /// Creates the attachment. Each step that creates something registers its rollback in `undo`.
    ///
    /// # Errors
    /// The failed operation and its object. The dispatcher rolls back all steps.
    fn add(call: &Add<Self::Conf>, undo: &mut Undo) -> Result<AddResult>;

    /// Removes all resources that an ADD may have created, and continues after failures. It may be called again, and without ADD.
    ///
    /// # Errors
    /// The resources that cannot be removed.
    fn del(call: &Del) -> Result<()>;

    /// Compares the attachment with the result of ADD.
    ///
    /// # Errors
    /// The first difference.
    fn check(call: &Check<Self::Conf>) -> Result<()>;

    /// Removes all resources of this network without a valid attachment. The default only calls
    /// the IPAM plugin.
    ///
    /// # Errors
    /// The resources that cannot be removed.
    fn gc(call: &Gc) -> Result<()> {
        call.net.ask_ipam(Command::Gc)
    }

    /// Whether ADD can succeed now. The default asks the IPAM plugin. Runtimes call it every few seconds.
    ///
    /// # Errors
    /// Code 50 if ADD cannot succeed, 51 if running containers are affected too.
    fn status(call: &Status<Self::Conf>) -> Result<()> {
        call.net.ask_ipam(Command::Status)
    }

    /// Whether the plugin installs rules that other programs may flush, and implements [`Plugin::repair`].
    const REPAIRS: bool = false;

    /// Installs missing rules of the attachments, the oldest attachment first, and changes nothing else. Returns for each
    /// whether anything was missing. The specification has no such command: `cnitool repair` sends it.
    ///
    /// # Errors
    /// Code 3 for an attachment that no longer exists: nothing is installed for it. Otherwise, the error of the kernel.
    fn repair(calls: &[Repair<Self::Conf>]) -> Vec<Result<bool>> {
        calls.iter().map(|_| Ok(false)).collect()
    }

    /// Serves a process that no runtime started: one that the plugin itself did, for what takes a process of its own, or a daemon of
    /// the plugin's. One that lives long calls [`heap::use_system_allocator`] before all else. None: these are not the arguments of such a
    /// process. A process without arguments does not get here.
    fn serve_itself(_: &[OsString]) -> Option<ExitCode> {
        None
    }
}

/// Serves one call: the whole `main` of a plugin. Nothing else prints to stdout or decides the exit code.
pub fn main<P: Plugin>() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    // No runtime gives any. Whoever does may have the variables of a call in its environment all the same.
    if !arguments.is_empty() {
        let _served = serving(P::NAME);
        if let Some(code) = P::serve_itself(&arguments) {
            return code;
        }
    }
    if !is_called() {
        if close_later::serve() {
            return ExitCode::SUCCESS;
        }
        let Some(own) = arguments.first().and_then(|argument| own::<P>(argument.to_str()?)) else {
            about::<P>();
            return ExitCode::SUCCESS;
        };
        let _served = serving(P::NAME);
        let answered = read_stdin().and_then(|request| print(&own(&request)?));
        return answered.map_or_else(|e| failed(&e, Version::LATEST, &print), |()| ExitCode::SUCCESS);
    }
    let _served = serving(P::NAME);
    size_limit::block_signal();
    answer::<P>(&|name| env::var_os(name), &read_stdin, &print)
}

/// A handler for requests that are not in the specification.
type Own = fn(&[u8]) -> Result<String>;

/// Ferrule's own commands, by their argument on the command line.
pub(crate) fn own<P: Plugin>(argument: &str) -> Option<Own> {
    match argument {
        collect::ARGUMENT => Some(collect::answer::<P>),
        repair::ARGUMENT => Some(repair::answer::<P>),
        _ => None,
    }
}

/// Whether a runtime has started the plugin, and not a user at a terminal.
pub(crate) fn is_called() -> bool {
    env::var_os("CNI_COMMAND").is_some_and(|command| !command.is_empty())
}

/// Reads stdin, or its replacement in a call within the process.
pub(crate) type ReadStdin<'a> = &'a dyn Fn() -> Result<Vec<u8>>;

/// Prints a line of JSON on stdout, or its replacement in a call within the process.
pub(crate) type Print<'a> = &'a dyn Fn(&str) -> Result<()>;

/// Serves one call: `variable` gives the value of a `CNI_*` variable, `read` what is on stdin. It is compiled once for a plugin:
/// its own `main` and delegating plugins in the same executable share it.
pub(crate) fn answer<P: Plugin>(variable: Variable<'_>, read: ReadStdin<'_>, print: Print<'_>) -> ExitCode {
    let mut version = Version::LATEST;
    let Err(error) = serve::<P>(&mut version, variable, read, print) else { return ExitCode::SUCCESS };
    failed(&error, version, print)
}

pub(crate) fn failed(error: &Error, version: Version, print: Print<'_>) -> ExitCode {
    // If the error cannot be printed either, the exit code reports it.
    print(&error.to_json(version)).ok();
    ExitCode::FAILURE
}

/// The plugins that this process runs, for the log: each one is the delegate of the one before it.
static SERVED: Mutex<Vec<&str>> = Mutex::new(Vec::new());

fn served() -> MutexGuard<'static, Vec<&'static str>> {
    SERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks this plugin as running, until the value is dropped.
pub(crate) fn serving(plugin: &'static str) -> impl Drop {
    struct Serving;
    impl Drop for Serving {
        fn drop(&mut self) {
            served().pop();
        }
    }
    served().push(plugin);
    Serving
}

/// Whether the plugin is already running: it would delegate to itself.
pub(crate) fn is_served(plugin: &str) -> bool {
    served().contains(&plugin)
}

/// Writes a warning to the log, which is stderr for a plugin.
#[expect(clippy::print_stderr, reason = "the log of a plugin")]
pub fn warn(text: &str) {
    let plugin = served().last().copied().unwrap_or("cni");
    eprintln!("{plugin}: warning: {text}");
}

#[expect(clippy::print_stderr, reason = "someone started the plugin by hand and looks at the terminal")]
fn about<P: Plugin>() {
    eprint!("{}", own_words(P::NAME));
}

/// The output of a plugin without `CNI_COMMAND`. Nomad, nerdctl and others read the release from its first line, which
/// therefore has the reference's form and number; ours follows as build metadata, which never counts in comparisons
/// (Semantic Versioning 2.0.0, section 10).
fn own_words(plugin: &str) -> String {
    let own = env!("CARGO_PKG_VERSION");
    format!(
        "CNI {plugin} plugin v{REFERENCE_RELEASE}+ferrule.{own}\nCNI protocol versions supported: {}\n",
        Version::list()
    )
}

/// Reads the request and calls the plugin. Sets `version` to the configuration's version as soon as it is known.
fn serve<P: Plugin>(
    version: &mut Version,
    variable: Variable<'_>,
    read: ReadStdin<'_>,
    print: Print<'_>,
) -> Result<()> {
    // Answered without reading stdin: on a terminal nobody closes it.
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
        // The reference's exact words: callers compare them.
        let text = format!("config version does not allow {}", env.command);
        return Err(Error::new(Code::IncompatibleVersion, text));
    }
    match env.command {
        Command::Add => add::<P>(&env, &document, print),
        Command::Del => del::<P>(&env, &document),
        Command::Check => check::<P>(&env, &document),
        Command::Gc => gc::<P>(&env, &document),
        Command::Status => status::<P>(&env, &document),
        // The last two are never in the variable.
        Command::Version | Command::Repair | Command::Collect => print(&versions()),
    }
}

fn add<P: Plugin>(env: &Environment, document: &Document, print: Print<'_>) -> Result<()> {
    let prev = document.prev()?;
    if P::ROLE.needs_prev() && prev.is_none() {
        return Err(missing_prev::<P>("it cannot be the first plugin in the list"));
    }
    let net = document.net(P::ROLE, env, prev)?;
    if P::READS_ARGS {
        env.args.refuse_unknown()?;
    }
    let conf = conf::<P>(document)?;
    let call = Add {
        attachment: attachment(env)?,
        netns: env.netns(P::ROLE.needs_netns())?,
        args: env.args.clone(),
        net,
        conf,
    };
    let mut undo = Undo::new();
    let made = guarded(|| document.written(&P::add(&call, &mut undo)?, call.net.prev_result.as_ref()));
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
    // A prevResult helps, but a DEL does not depend on it.
    let net = document.net(P::ROLE, env, document.prev().unwrap_or_default())?;
    let call = Del {
        attachment: attachment(env)?,
        netns: env.netns_if_present()?,
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

/// The request of a CHECK. `why` explains that it needs the result of ADD.
pub(crate) fn check_call<P: Plugin>(
    env: &Environment,
    document: &Document,
    why: &str,
    needs_netns: bool,
) -> Result<Check<P::Conf>> {
    let prev_result = document.prev()?.ok_or_else(|| missing_prev::<P>(why))?;
    let net = document.net(P::ROLE, env, Some(prev_result.clone()))?;
    let conf = conf::<P>(document)?;
    let (attachment, netns, args) = (attachment(env)?, env.netns(needs_netns)?, env.args.clone());
    Ok(Check { attachment, netns, args, prev_result, net, conf })
}

fn gc<P: Plugin>(env: &Environment, document: &Document) -> Result<()> {
    let net = document.net(P::ROLE, env, None)?;
    // A missing list is not an empty one: without it no attachment may be treated as stale.
    let Some(valid) = document.valid_attachments()? else { return Ok(()) };
    let call = Gc { scope: Scope::all_but(valid), net, conf: document.as_written() };
    guarded(|| P::gc(&call))
}

fn status<P: Plugin>(env: &Environment, document: &Document) -> Result<()> {
    let net = document.net(P::ROLE, env, None)?;
    let call = Status { net, conf: conf::<P>(document)? };
    guarded(|| P::status(&call))
}

pub(crate) fn conf<P: Plugin>(document: &Document) -> Result<P::Conf> {
    document.refuse_repeated(P::UNREPEATED)?;
    P::Conf::try_from(document.as_written()).map_err(Into::into)
}

fn attachment(env: &Environment) -> Result<crate::Attachment> {
    env.attachment
        .clone()
        .ok_or_else(|| Error::new(Code::InvalidEnvironment, "CNI_CONTAINERID or CNI_IFNAME is missing"))
}

fn missing_prev<P: Plugin>(why: &str) -> Error {
    let needs = format!("prevResult is missing: {} needs the result of the plugin before it", P::NAME);
    // In the reference's words.
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

/// Converts a panic, which is a bug, to an error, so that the call is rolled back and an error object is printed.
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
