//! The dispatcher: from the start of the process to the plugin's own steps, and from their result to stdout.

use std::any::Any;
use std::env;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use system::{close_later, size_limit};

use crate::call::{Document, Environment, Variable};
use crate::log::serving;
use crate::{
    Add, AddResult, AsWritten, Check, Code, Command, Del, Error, Gc, REFERENCE_RELEASE, Repair, Result,
    ResultExt, Role, Scope, Status, Undo, Version, collect, json, repair,
};

/// A CNI plugin.
pub trait Plugin {
    /// Name of the executable.
    const NAME: &'static str;
    /// Role of the plugin.
    const ROLE: Role;
    /// Whether the plugin reads `CNI_ARGS`. If so, malformed values and unknown keys are errors.
    const READS_ARGS: bool = false;
    /// The message if a chained plugin is the first one in the list. The words are the reference's.
    const UNCHAINED: &'static str = "must be called as chained plugin";
    /// Paths of objects in the configuration in which a repeated member is an error. In other objects, the last one is used.
    const UNREPEATED: &'static [&'static [&'static str]] = &[];
    /// The checked configuration, for ADD, CHECK and STATUS. DEL and GC receive the unchecked document. The conversion performs no I/O:
    /// `add` checks the host.
    type Conf: TryFrom<AsWritten, Error: Into<Error>>;

    /// Creates the attachment. Each step that changes something first pushes the action that reverts it to `undo`.
    ///
    /// # Errors
    /// The operation and object that failed. The dispatcher undoes everything.
    fn add(call: &Add<Self::Conf>, undo: &mut Undo) -> Result<AddResult>;

    /// Deletes everything that an ADD may have created. Continues after failures. May be called repeatedly, and without an ADD.
    ///
    /// # Errors
    /// Everything that could not be deleted.
    fn del(call: &Del) -> Result<()>;

    /// Compares the attachment with the result of ADD.
    ///
    /// # Errors
    /// The difference.
    fn check(call: &Check<Self::Conf>) -> Result<()>;

    /// Deletes everything of the network that belongs to no valid attachment. By default, only calls the IPAM plugin.
    ///
    /// # Errors
    /// Everything that could not be deleted.
    fn gc(call: &Gc) -> Result<()> {
        call.net.ask_ipam(Command::Gc)
    }

    /// Reports whether an ADD can succeed. By default, only calls the IPAM plugin. Runtimes call it every few seconds.
    ///
    /// # Errors
    /// Code 50 if no ADD can succeed, 51 if running containers are affected too.
    fn status(call: &Status<Self::Conf>) -> Result<()> {
        call.net.ask_ipam(Command::Status)
    }

    /// Whether the plugin installs rules that other programs may flush, and implements [`Plugin::repair`].
    const REPAIRS: bool = false;

    /// Installs missing rules of the attachments, the oldest attachment first, and changes nothing else. Returns for each whether a rule
    /// was missing. `cnitool repair` sends this command; it is not in the specification.
    ///
    /// # Errors
    /// Code 3 for an attachment that no longer exists: nothing is installed for it. Otherwise the reason of the failure.
    fn repair(calls: &[Repair<Self::Conf>]) -> Vec<Result<bool>> {
        calls.iter().map(|_| Ok(false)).collect()
    }

    /// Main function of a process that the plugin itself started, or of its daemon. A long-running process first calls
    /// [`heap::use_system_allocator`]. `None` if the arguments are not those of such a process. Never called without arguments.
    fn serve_itself(_: &[OsString]) -> Option<ExitCode> {
        None
    }
}

/// Serves one call: the `main` of a plugin. Nothing else prints to stdout or determines the exit code.
pub fn main<P: Plugin>() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    // Runtimes pass no arguments. A caller with arguments may still have the variables of a call in its environment.
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

/// Answers a request that is not in the specification.
type Own = fn(&[u8]) -> Result<String>;

/// Ferrule's own commands, by their argument.
pub(crate) fn own<P: Plugin>(argument: &str) -> Option<Own> {
    match argument {
        collect::ARGUMENT => Some(collect::answer::<P>),
        repair::ARGUMENT => Some(repair::answer::<P>),
        _ => None,
    }
}

/// Whether a runtime has started this process, and not a person at a terminal.
pub(crate) fn is_called() -> bool {
    env::var_os("CNI_COMMAND").is_some_and(|command| !command.is_empty())
}

/// Reads all of stdin, or its substitute.
pub(crate) type ReadStdin<'a> = &'a dyn Fn() -> Result<Vec<u8>>;

/// Prints a line of JSON on stdout, or its substitute.
pub(crate) type Print<'a> = &'a dyn Fn(&str) -> Result<()>;

/// Serves one call: `variable` returns the value of a `CNI_*` variable, `read` the stdin. Compiled once for each plugin, for its own `main`
/// and for delegation within one executable.
pub(crate) fn answer<P: Plugin>(variable: Variable<'_>, read: ReadStdin<'_>, print: Print<'_>) -> ExitCode {
    let mut version = Version::LATEST;
    let Err(error) = serve::<P>(&mut version, variable, read, print) else { return ExitCode::SUCCESS };
    failed(&error, version, print)
}

pub(crate) fn failed(error: &Error, version: Version, print: Print<'_>) -> ExitCode {
    // If this fails too, the exit code reports the failure.
    print(&error.to_json(version)).ok();
    ExitCode::FAILURE
}

#[expect(clippy::print_stderr, reason = "a person started the plugin at a terminal")]
fn about<P: Plugin>() {
    eprint!("{}", own_words(P::NAME));
}

/// Output without `CNI_COMMAND`. Nomad, nerdctl and others parse the release in the first line, which therefore has the reference's form
/// and number. Ferrule's version is build metadata, which is ignored in comparisons (Semantic Versioning 2.0.0, section 10).
fn own_words(plugin: &str) -> String {
    let own = env!("CARGO_PKG_VERSION");
    format!(
        "CNI {plugin} plugin v{REFERENCE_RELEASE}+ferrule.{own}\nCNI protocol versions supported: {}\n",
        Version::list()
    )
}

/// Parses the call and passes it to the plugin. Sets `version` to the configuration's version as soon as that is known, for error objects.
fn serve<P: Plugin>(
    version: &mut Version,
    variable: Variable<'_>,
    read: ReadStdin<'_>,
    print: Print<'_>,
) -> Result<()> {
    // VERSION does not read stdin, which may be a terminal that nobody closes.
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
        // The reference's words, which callers compare.
        let text = format!("config version does not allow {}", env.command);
        return Err(Error::new(Code::IncompatibleVersion, text));
    }
    match env.command {
        Command::Add => add::<P>(&env, &document, print),
        Command::Del => del::<P>(&env, &document),
        Command::Check => check::<P>(&env, &document),
        Command::Gc => gc::<P>(&env, &document),
        Command::Status => status::<P>(&env, &document),
        // `CNI_COMMAND` never contains Repair and Collect.
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
        netns: env.netns_if_present()?,
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

/// Builds a CHECK. `why` explains the need for ADD's result.
pub(crate) fn check_call<P: Plugin>(
    env: &Environment,
    document: &Document,
    why: &str,
    needs_netns: bool,
) -> Result<Check<P::Conf>> {
    let prev_result = document.prev()?.ok_or_else(|| missing_prev::<P>(why))?;
    let net = document.net(P::ROLE, env)?;
    let conf = conf::<P>(document)?;
    let (attachment, netns, args) = (attachment(env)?, env.netns(needs_netns)?, env.args.clone());
    Ok(Check { attachment, netns, args, prev_result, net, conf })
}

fn gc<P: Plugin>(env: &Environment, document: &Document) -> Result<()> {
    let net = document.net(P::ROLE, env)?;
    // A missing list is not an empty one: nothing may be treated as stale.
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
    P::Conf::try_from(document.as_written()).map_err(Into::into)
}

fn attachment(env: &Environment) -> Result<crate::Attachment> {
    env.attachment
        .clone()
        .ok_or_else(|| Error::new(Code::InvalidEnvironment, "CNI_CONTAINERID or CNI_IFNAME is missing"))
}

fn missing_prev<P: Plugin>(why: &str) -> Error {
    let needs = format!("prevResult is missing: {} needs the result of the plugin before it", P::NAME);
    // The reference's words.
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

/// Converts a panic into an error, so that it is rolled back and printed.
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
