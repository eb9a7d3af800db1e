//! A network namespace of a lab.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::names;

/// PATH of the programs that the suite starts, whatever the caller's PATH is.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command with this [`PATH`]. The program is looked up here: if `Command` looked it up in a PATH that is not its own, it
/// would have to fork, which copies the page tables of a large process and interrupts all of its threads.
pub fn start_by_path(program: impl AsRef<OsStr>) -> Command {
    let name = program.as_ref();
    let mut places = PATH.split(':').map(|dir| Path::new(dir).join(name));
    let found = if name.as_bytes().contains(&b'/') { None } else { places.find(|place| place.exists()) };
    let mut command = Command::new(found.as_deref().map_or(name, Path::as_os_str));
    command.arg0(name).env("PATH", PATH);
    command
}

/// Runs a program with this text on its stdin. A program that does not read all of it may end. It must not print much
/// before it has read the text.
pub fn output_with(stdin: &str, command: &mut Command) -> io::Result<Output> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().expect("a piped stdin").write_all(stdin.as_bytes()).ok();
    child.wait_with_output()
}

/// The calling thread's network namespace.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// A named network namespace, mounted at /run/netns/NAME in the lab's view, so that `ip netns` finds it.
#[derive(Clone, Debug)]
pub struct Netns {
    name: String,
    path: PathBuf,
    /// The test whose lab it belongs to. `None` if another thread than that of a test has created the lab.
    test: Option<String>,
}

impl Netns {
    /// A new namespace.
    pub(crate) fn create(name: &str) -> Self {
        let this = Self::named(name);
        in_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("create a network namespace");
            this.mount(CURRENT);
        });
        this
    }

    /// The calling thread's namespace.
    pub(crate) fn bind_current(name: &str) -> Self {
        Self::bind(name, CURRENT)
    }

    /// The namespace that a file refers to.
    pub(crate) fn bind(name: &str, file: &str) -> Self {
        let this = Self::named(name);
        this.mount(file);
        this
    }

    fn named(name: &str) -> Self {
        let test = names::current_test();
        names::record(name, test.as_deref());
        Self { name: name.to_owned(), path: Path::new("/run/netns").join(name), test }
    }

    fn mount(&self, file: &str) {
        File::create_new(&self.path).unwrap_or_else(|e| panic!("create {}: {e}", self.path.display()));
        mount(Some(file), &self.path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .expect("bind a network namespace");
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path for CNI_NETNS.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `job` in a thread inside the namespace.
    pub fn run<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
        in_a_thread(|| {
            self.enter();
            job()
        })
    }

    /// Moves the calling thread into the namespace permanently. Only the file keeps the namespace alive, so that it can
    /// be deleted.
    fn enter(&self) {
        let file = File::open(&self.path).unwrap_or_else(|e| panic!("open {}: {e}", self.path.display()));
        setns(file.as_fd(), CloneFlags::CLONE_NEWNET).expect("enter a network namespace");
    }

    /// Runs a program inside, which must succeed, and returns its output.
    pub fn exec<A: AsRef<OsStr> + Sync>(&self, argv: &[A]) -> String {
        self.exec_with("", argv)
    }

    /// Like [`Netns::exec`], with this text on stdin: see [`output_with`].
    pub fn exec_with<A: AsRef<OsStr> + Sync>(&self, stdin: &str, argv: &[A]) -> String {
        let output = self.try_exec_with(stdin, argv);
        let line = argv.iter().map(|a| a.as_ref().to_string_lossy()).collect::<Vec<_>>().join(" ");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "in {}: {line}: {}: {errors}", self.name, output.status);
        String::from_utf8(output.stdout).expect("output in UTF-8")
    }

    /// Runs a program inside, and returns its outcome.
    pub fn try_exec<A: AsRef<OsStr> + Sync>(&self, argv: &[A]) -> Output {
        self.try_exec_with("", argv)
    }

    fn try_exec_with<A: AsRef<OsStr> + Sync>(&self, stdin: &str, argv: &[A]) -> Output {
        let (program, arguments) = argv.split_first().expect("a program to run");
        self.run(|| {
            let run = output_with(stdin, start_by_path(program).args(arguments));
            run.unwrap_or_else(|e| panic!("start {}: {e}", program.as_ref().display()))
        })
    }

    /// Runs a line of `sh` inside.
    pub fn sh(&self, line: &str) -> String {
        self.exec(&["sh", "-ec", line])
    }

    /// Deletes the namespace, as a runtime does. No other test of this process may use its name: see [`names`].
    pub fn vanish(&self) {
        names::claim(&self.name, self.test.as_deref());
        umount2(&self.path, MntFlags::MNT_DETACH).expect("unmount a network namespace");
        std::fs::remove_file(&self.path).expect("remove the namespace's file");
    }
}

/// A path quoted as one word for a shell.
pub fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

pub fn in_a_thread<T: Send>(job: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(job).join()).unwrap_or_else(|panic| resume_unwind(panic))
}
