//! Identity of a client, its requested options, and its timing.

use std::time::Duration;

use super::answer;
use crate::Options;
use crate::options::{self, Number};

/// Who asks, and for what. It stays the same for an attachment's whole life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The interface's hardware address.
    pub mac: [u8; 6],
    /// Option 61, in all messages.
    pub client_id: Vec<u8>,
    /// Whether servers are asked to answer by broadcast. An interface that shares its hardware address with others, such as ipvlan, gets no other answers.
    pub broadcast: bool,
    /// Options to send besides, in DISCOVER and REQUEST. One that the client would send itself replaces that; a client id does so in all
    /// messages. The message's kind, the server's identifier and the requested address cannot be replaced.
    pub provide: Vec<(Number, Vec<u8>)>,
    /// Options to ask for, besides [`crate::options::ALWAYS_REQUESTED`], which come first.
    pub request: Vec<Number>,
    /// Those without which an offer is not taken.
    pub required: Vec<Number>,
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a server that made an offer may take to confirm it before all servers are asked again, and how long a socket stays open for an answer
    /// to a renewal. The daemon's flag -timeout.
    pub timeout: Duration,
    /// The longest time between two DISCOVERs, give or take a second. The daemon's flag -resendmax.
    pub resend_max: Duration,
    /// How long an acquisition may take as a whole. The daemon's flag -resendtimeout.
    pub resend_timeout: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { timeout: seconds(10), resend_max: seconds(62), resend_timeout: seconds(208) }
    }
}

impl Identity {
    /// What is asked for (option 55): what the result needs comes first.
    pub(crate) fn requested(&self) -> Vec<Number> {
        let mut list = options::ALWAYS_REQUESTED.to_vec();
        for number in self.request.iter().chain(&self.required) {
            if !list.contains(number) {
                list.push(*number);
            }
        }
        list
    }

    /// The options of `request` that an answer does not have.
    pub fn missing(&self, answer: &Options) -> Vec<Number> {
        answer::missing(&self.request, answer)
    }

    /// The client id to send: the configuration's, if it has one.
    pub(crate) fn client_id(&self) -> &[u8] {
        let provided = self.provide.iter().rfind(|(number, _)| *number == options::CLIENT_ID);
        provided.map_or(&self.client_id, |(_, value)| value)
    }
}
