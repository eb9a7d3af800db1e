//! A socket to nf_tables whose transactions succeed although other programs change other tables.
//!
//! A transaction that depends on what was read is bound to the generation of the ruleset, which changes with every
//! transaction of any program. Reading a large ruleset takes milliseconds. If another program changes its own table
//! hundreds of times a second, the kernel would refuse every attempt. So after the first refused attempts, this also
//! receives the events of nf_tables, from before the read. A refused transaction is then bound to the newest generation
//! and sent again, as long as the events show no change of its own tables.

use std::cell::{Cell, OnceCell};
use std::ops::Deref;
use std::time::Instant;

use netlink::wire::{Attributes, read_be32, read_str};
use netlink::{Protocol, RequestError, Socket};
use nix::errno::Errno;

use super::message::HEADER;
use super::query;
use crate::ruleset::uapi::*;

/// NFNLGRP_NFTABLES of linux/netfilter/nfnetlink.h.
pub(crate) const GROUP: u32 = 7;

/// How many times an interrupted dump is repeated before events are received.
const DUMP_TRIES: u32 = 2;

/// A socket to nf_tables, and, after the first refused attempts, a socket that receives its events.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    events: OnceCell<Box<Socket>>,
    is_receiving: Cell<bool>,
}

impl Connection {
    pub(super) fn open() -> Result<Self, RequestError> {
        Ok(Self {
            socket: Socket::open(Protocol::Netfilter)?,
            events: OnceCell::new(),
            is_receiving: Cell::new(false),
        })
    }

    /// Starts receiving the events of nf_tables. If that fails, attempts are refused as before.
    pub(super) fn receive_events(&self) {
        if self.events.get().is_none()
            && let Ok(events) = Socket::open(Protocol::Netfilter)
        {
            events.make_room_for_events();
            self.events.set(Box::new(events)).ok();
        }
        self.is_receiving.set(self.events.get().is_some_and(|events| events.subscribe(GROUP).is_ok()));
    }

    /// Starts an attempt: returns the generation of everything that is read from now on.
    pub(super) fn generation(&self) -> Result<u32, RequestError> {
        // With events, an interrupted dump can be used: the events show whether the attempt's own tables changed.
        self.socket.set_dump_tries(if self.is_receiving.get() { 0 } else { DUMP_TRIES });
        self.changes_in(&[]).ok();
        query::generation(&self.socket)
    }

    /// Ends the attempts: stops receiving events, and repeats dumps as usual. Otherwise the kernel would copy the
    /// events of each transaction for this process.
    pub(super) fn end(&self) {
        self.socket.reset_dump_tries();
        if self.is_receiving.take() {
            self.events.get().map(|events| events.unsubscribe(GROUP));
        }
    }

    /// The newest generation, if it is newer than this one, and none of these tables has changed since.
    pub(super) fn newer(&self, generation: u32, tables: &[&str]) -> Option<u32> {
        let (newest, is_changed) = self.changes_in(tables).ok()?;
        // The number wraps around.
        newest.filter(|newest| !is_changed && newest.wrapping_sub(generation).cast_signed() > 0)
    }

    /// The newest generation in the received events, and whether one of the tables has changed.
    fn changes_in(&self, tables: &[&str]) -> Result<(Option<u32>, bool), RequestError> {
        let (mut newest, mut is_changed) = (None, false);
        let Some(events) = self.events.get().filter(|_| self.is_receiving.get()) else {
            return Ok((newest, is_changed));
        };
        let received = events.next_event(Instant::now(), |kind, payload| {
            let attributes = Attributes::after(HEADER, payload);
            if kind & 0xff == NFT_MSG_NEWGEN {
                newest = attributes.get(NFTA_GEN_ID).and_then(read_be32);
            } else {
                // All message types have the table's name in the same attribute.
                let table = attributes.get(NFTA_TABLE_NAME).and_then(read_str).unwrap_or_default();
                is_changed |= tables.contains(&table);
            }
        });
        match received {
            Err(refusal) if refusal.errno() != Some(Errno::ETIMEDOUT) => Err(refusal),
            _ => Ok((newest, is_changed)),
        }
    }

    /// All sockets, for the caller to pass on.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        std::iter::once(&self.socket).chain(self.events.get().map(Box::as_ref))
    }
}

impl Deref for Connection {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        &self.socket
    }
}
