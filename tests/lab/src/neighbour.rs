//! A second machine, with its own disk and plugins.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use nix::unistd::gettid;

use crate::Lab;

type Job = Box<dyn FnOnce(&Lab) + Send>;

/// A lab in a separate thread, on the uplink of another lab, until it is dropped.
#[derive(Debug)]
pub struct Neighbour {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbour {
    /// A machine next to a lab: the lab is .1 and ::1, the machine .2 and ::2 of 198.51.100.0/24 and 2001:db8:51::/64.
    /// The link between them is `uplink` on both.
    pub fn of(lab: &Lab) -> Self {
        let (jobs, to_do): (Sender<Job>, Receiver<Job>) = mpsc::channel();
        let (said, says) = mpsc::channel();
        let thread = thread::spawn(move || {
            let lab = Lab::new();
            said.send(gettid()).expect("tell the thread");
            to_do.iter().for_each(|job| job(&lab));
        });
        let this = Self { jobs: Some(jobs), thread: Some(thread) };
        let thread = says.recv().expect("a second machine");
        lab.host().sh(&format!("ip link add uplink type veth peer name uplink netns {thread}"));
        configure(lab, 1);
        this.run(|lab| configure(lab, 2));
        for address in ["198.51.100.2", "2001:db8:51::2"] {
            assert!(lab.host().reaches(address), "the second machine is at {address}");
        }
        this
    }

    /// Runs a job on the machine.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce(&Lab) -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        let job: Job = Box::new(move |lab| done.send(job(lab)).expect("hand over what came of it"));
        let jobs = self.jobs.as_ref().expect("the machine is there until it is dropped");
        jobs.send(job).expect("the second machine works");
        result.recv().expect("nothing fails on the second machine")
    }
}

fn configure(lab: &Lab, number: u8) {
    lab.host().sh(&format!(
        "ip addr add 198.51.100.{number}/24 dev uplink; ip link set uplink up
         ip addr add 2001:db8:51::{number}/64 dev uplink nodad"
    ));
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_none_or(|ended| ended.is_ok()), "the second machine failed");
    }
}
