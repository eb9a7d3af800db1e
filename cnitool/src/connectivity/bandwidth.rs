//! Bandwidth: the data rate does not exceed the limit of the network's plugin `bandwidth`.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use cni::json;
use netns::NetNs;

use super::pods::{Pod, SERVER, accept};
use super::promises::requests;
use super::{Outcome, Row, Test};
use crate::limits::with_unit;

/// Duration of the transfer.
const TIME: Duration = Duration::from_secs(2);
/// Maximum burst in bytes. A short test cannot use up a larger burst.
const MAX_BURST: u64 = 64 << 20;
/// Tolerance: the measured bytes contain no headers, and the sockets buffer some data.
const SLACK: u64 = 256 << 10;

/// Sends as fast as possible, in each limited direction.
pub fn limits(test: &Test<'_>, a: &Pod, b: &Pod, rows: &mut Vec<Row>) {
    let bandwidth =
        requests(test).find(|request| json::member(request, "type").is_some_and(|it| it == "bandwidth"));
    let Some(conf) = bandwidth else { return };
    let number =
        |key: &str| json::member(&conf, key).and_then(serde_json::Value::as_u64).filter(|rate| *rate > 0);
    for (direction, rate, burst) in [
        ("ingress", number("ingressRate"), number("ingressBurst")),
        ("egress", number("egressRate"), number("egressBurst")),
    ] {
        let Some((rate, burst)) = rate.zip(burst) else { continue };
        let (from, to) = if direction == "ingress" { (b, a) } else { (a, b) };
        let promise = format!("{direction} limit");
        let row = |outcome| Row::new(&promise, from.label(), to.label(), outcome);
        rows.push(row(match to.addresses().next() {
            _ if burst / 8 > MAX_BURST => Outcome::Skipped(format!(
                "the burst of {}bit is too large to be used up",
                with_unit(burst.into())
            )),
            None => Outcome::Skipped("the container has no address".to_owned()),
            Some(address) => judged(send(from, &to.netns, address), rate, burst),
        }));
    }
}

fn judged(sent: io::Result<(u64, Duration)>, rate: u64, burst: u64) -> Outcome {
    let (bytes, time) = match sent {
        Ok(sent) => sent,
        Err(e) => {
            return Outcome::failed(e.to_string(), "repair the connection between the containers first");
        }
    };
    let allowed = burst / 8 + (rate as f64 / 8.0 * time.as_secs_f64()) as u64 + SLACK;
    let measured = (bytes as f64 * 8.0 / time.as_secs_f64()) as u128;
    let figure = format!("{}bit/s", with_unit(measured));
    if bytes <= allowed {
        return Outcome::Passed(figure);
    }
    let cause = format!(
        "{figure} arrive; {}bit/s and a burst of {}bit are allowed",
        with_unit(rate.into()),
        with_unit(burst.into())
    );
    Outcome::failed(
        cause,
        "run `cnitool repair --all` to restore removed limits; `tc qdisc` lists the limits",
    )
}

/// The number of received bytes, and the time that they took.
fn send(from: &Pod, to: &NetNs, address: IpAddr) -> io::Result<(u64, Duration)> {
    let listener = to.enter(|| TcpListener::bind((address, SERVER))).map_err(io::Error::other)??;
    let target = SocketAddr::new(address, SERVER);
    let connect = || TcpStream::connect_timeout(&target, TIME * 2);
    let mut client = from.netns.enter(connect).map_err(io::Error::other)??;
    client.set_write_timeout(Some(TIME))?;
    let mut server = accept(&listener)?;
    server.set_read_timeout(Some(TIME))?;
    let start = Instant::now();
    let sender = thread::spawn(move || {
        // The loop ends when the server closes the connection, or when a write times out.
        while client.write_all(&[0; 1 << 14]).is_ok() {}
    });
    let (mut bytes, mut buffer) = (0, vec![0; 1 << 16]);
    while start.elapsed() < TIME {
        match server.read(&mut buffer) {
            Ok(read) if read > 0 => bytes += read as u64,
            _ => break,
        }
    }
    let time = start.elapsed();
    drop((server, listener));
    sender.join().ok();
    Ok((bytes, time))
}
