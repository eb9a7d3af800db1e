//! TCP throughput of a mapped port.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lab::Netns;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::time::{TimeVal, TimeValLike};

use crate::machine::Prepare;
use crate::networks::{CONTAINER_PORT, HOST_PORT, nothing};
use crate::process::{How, Spent};
use crate::rounds::{Before, Conflist, attach};

/// Timeout of a connection, in seconds.
const TIMEOUT: i64 = 2;

/// Bytes sent in a round.
pub const BYTES: usize = 256 << 20;

/// A second machine sends to a container through a host port, as fast as TCP allows.
pub fn blast(conflist: Conflist, before: Before) -> Box<Prepare> {
    blast_among(conflist, before, nothing)
}

/// Like [`blast`], with other attachments that `others` makes after the container's.
pub fn blast_among(conflist: Conflist, before: Before, others: Before) -> Box<Prepare> {
    Box::new(move |lab, side| {
        let mut before = before(lab, side);
        let container = lab.container("pod");
        let machine = lab.machine("client");
        let network = side.network(lab, &conflist(side, 0));
        before.failures.append(&mut attach(&network, &container, How::Timed, None).0.failures);
        before.failures.append(&mut others(lab, side).failures);
        Box::new(move |_| {
            let mut spent = Spent { failures: std::mem::take(&mut before.failures), ..Spent::default() };
            match send(&machine, &container) {
                Ok(took) => spent.took = took,
                Err(e) => spent.failures.push(e.to_string()),
            }
            vec![spent]
        })
    })
}

/// The time from the start of the connection until the receiver has everything.
fn send(client: &Netns, server: &Netns) -> io::Result<Duration> {
    let listener = server.run(|| TcpListener::bind(("0.0.0.0", CONTAINER_PORT)))?;
    setsockopt(&listener, ReceiveTimeout, &TimeVal::seconds(2 * TIMEOUT))?;
    let host = SocketAddr::from(([198, 51, 100, 1], HOST_PORT));
    thread::scope(|scope| {
        scope.spawn(move || swallow(&listener));
        client.run(|| {
            let start = Instant::now();
            let mut stream = TcpStream::connect_timeout(&host, Duration::from_secs(TIMEOUT.unsigned_abs()))?;
            let chunk = vec![0; 256 << 10];
            for _ in 0..BYTES / chunk.len() {
                stream.write_all(&chunk)?;
            }
            stream.shutdown(Shutdown::Write)?;
            stream.read_to_end(&mut Vec::new())?;
            Ok(start.elapsed())
        })
    })
}

fn swallow(listener: &TcpListener) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    let mut chunk = vec![0; 256 << 10];
    while stream.read(&mut chunk)? > 0 {}
    Ok(())
}
