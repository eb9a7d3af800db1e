//! Programs that run in the background.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use lab::PATH;

/// A process that is killed when this is dropped.
pub struct Daemon(Child);

impl Daemon {
    /// Starts a program, whose output goes to a file in the lab.
    pub fn start(argv: &[&str]) -> Self {
        let (program, arguments) = argv.split_first().expect("a program");
        let name = program.rsplit('/').next().expect("a name");
        let log = File::options()
            .append(true)
            .create(true)
            .open(format!("/run/lab/{name}.log"))
            .expect("open a log");
        let mut command = Command::new(program);
        command.args(arguments).env("PATH", PATH).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        Self(command.spawn().unwrap_or_else(|e| panic!("start {program}: {e}")))
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        self.0.kill().expect("kill a process");
        self.0.wait().expect("wait for a process");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
