//! Closes sockets on a thread of its own: to close one of the kind packet(7) takes a grace period of the kernel.

use std::sync::mpsc::{self, Sender};
use std::thread;

use dhcp_client::Link;

/// The thread.
#[derive(Debug)]
pub struct Closer(Option<Sender<Link>>);

impl Closer {
    /// Starts the thread. If that fails, the caller's thread closes the sockets.
    pub fn start() -> Self {
        let (sender, links) = mpsc::channel();
        let thread = thread::Builder::new().name("closer".to_owned()).stack_size(64 << 10);
        let started = thread.spawn(move || links.into_iter().for_each(drop::<Link>));
        Self(started.ok().map(|_| sender))
    }

    /// Closes a socket, some time soon.
    pub fn close(&self, link: Link) {
        // One that cannot be sent comes back, and is closed here.
        drop(self.0.as_ref().map(|sender| sender.send(link)));
    }
}
