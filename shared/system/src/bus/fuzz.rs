//! Fuzz target for this module. The seeds are answers of a bus; unit tests replay them.

use super::message::Head;

/// Any input must be an answer within its bounds, an answer to another call, or an error.
pub fn answers(mut bytes: &[u8]) {
    while let Some((start, rest)) = bytes.split_at_checked(Head::LENGTH) {
        let Ok(start) = start.try_into() else { return };
        let Ok(head) = Head::parse(start) else { return };
        let (message, behind) = rest.split_at_checked(head.rest()).unwrap_or((rest, &[]));
        for serial in 0..3 {
            let _ = head.outcome(message, serial);
        }
        bytes = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_answers_cause_no_panic() {
        seeds::replay("bus", |bytes| (0..=bytes.len()).for_each(|end| answers(&bytes[..end])));
    }
}
