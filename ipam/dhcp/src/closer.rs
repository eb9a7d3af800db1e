//! Closes packet sockets in a separate thread, because close(2) of one waits for an RCU grace period (packet(7)).

use std::sync::mpsc::{self, Sender};
use std::thread;

use dhcp_client::Link;

/// Handle of the thread.
#[derive(Debug)]
pub struct Closer(Option<Sender<Link>>);

impl Closer {
    /// Starts the thread. If that fails, sockets are closed in the caller's thread.
    pub fn start() -> Self {
        let (sender, links) = mpsc::channel();
        let thread = thread::Builder::new().name("closer".to_owned()).stack_size(64 << 10);
        let started = thread.spawn(move || links.into_iter().for_each(drop::<Link>));
        Self(started.ok().map(|_| sender))
    }

    /// Closes a socket later, in the thread.
    pub fn close(&self, link: Link) {
        // A socket that cannot be sent to the thread is dropped, and so closed, here.
        drop(self.0.as_ref().map(|sender| sender.send(link)));
    }
}
