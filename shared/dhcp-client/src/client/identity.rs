//! Identity of a client, its requested options, and its timing.

use std::time::Duration;

use super::answer;
use crate::Options;
use crate::options::{self, Number};

/// The client's identity and its options. They stay the same as long as the attachment exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The interface's hardware address.
    pub mac: [u8; 6],
    /// Option 61, in all messages.
    pub client_id: Vec<u8>,
    /// Whether servers should answer by broadcast. An interface that shares its hardware address with others, such as
    /// ipvlan, receives no other answers.
    pub broadcast: bool,
    /// Additional options in DISCOVER and REQUEST. They replace the client's own options of the same number. A client
    /// identifier is replaced in all messages. The message type, the server identifier and the requested address cannot
    /// be replaced.
    pub provide: Vec<(Number, Vec<u8>)>,
    /// Additional options to request, after [`crate::options::ALWAYS_REQUESTED`].
    pub request: Vec<Number>,
    /// Options without which an offer is not accepted.
    pub required: Vec<Number>,
}

/// Timeouts and intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Timeout of a REQUEST for an offer, after which the client starts again with DISCOVER. A socket also stays open
    /// for that long after a renewal. The daemon's flag `-timeout`.
    pub timeout: Duration,
    /// The maximum interval between two DISCOVERs, ±1 s. The daemon's flag `-resendmax`.
    pub resend_max: Duration,
    /// Timeout of an acquisition. The daemon's flag `-resendtimeout`.
    pub resend_timeout: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { timeout: seconds(10), resend_max: seconds(62), resend_timeout: seconds(208) }
    }
}

impl Identity {
    /// The requested options (option 55). Those that the result needs come first.
    pub(crate) fn requested(&self) -> Vec<Number> {
        let mut list = options::ALWAYS_REQUESTED.to_vec();
        for number in self.request.iter().chain(&self.required) {
            if !list.contains(number) {
                list.push(*number);
            }
        }
        list
    }

    /// The options of `request` that are not in an answer.
    pub fn missing(&self, answer: &Options) -> Vec<Number> {
        answer::missing(&self.request, answer)
    }

    /// The client identifier to send: the configuration's, if there is one.
    pub(crate) fn client_id(&self) -> &[u8] {
        let provided = self.provide.iter().rfind(|(number, _)| *number == options::CLIENT_ID);
        provided.map_or(&self.client_id, |(_, value)| value)
    }
}
