//! Status of a request: NLMSG_ERROR and NLMSG_DONE.

use std::io::{self, ErrorKind};

use crate::error::RequestError;
use crate::uapi::*;
use crate::wire::{self, Attributes, MessageRef, read_i32, read_str, read_u32};

/// Length of the error number at the start of `struct nlmsgerr` and of the end of a dump.
const ERROR_NUMBER: usize = 4;

impl MessageRef<'_> {
    /// Decodes an NLMSG_ERROR or NLMSG_DONE. The error number 0 is an acknowledgement.
    ///
    /// # Errors
    /// The kernel's error number, with its explanation if there is one.
    pub fn status(&self) -> Result<(), RequestError> {
        match read_i32(self.payload) {
            Some(0) => Ok(()),
            Some(error) => Err(RequestError::new(
                io::Error::from_raw_os_error(error.saturating_abs()),
                self.explanation(),
            )),
            None => {
                Err(RequestError::own(ErrorKind::InvalidData, "the kernel's acknowledgement is malformed"))
            }
        }
    }

    /// Text of the extended acknowledgement, after the error number and the request (an NLMSG_DONE has no request).
    fn explanation(&self) -> Option<String> {
        if self.flags & NLM_F_ACK_TLVS == 0 {
            return None;
        }
        let request = match self.kind {
            NLMSG_DONE => 0,
            _ if self.flags & NLM_F_CAPPED != 0 => wire::HEADER,
            _ => read_u32(self.payload.get(ERROR_NUMBER..)?)?.try_into().ok()?,
        };
        let header = ERROR_NUMBER.checked_add(request).filter(|length| *length <= self.payload.len())?;
        read_str(Attributes::after(header, self.payload).get(NLMSGERR_ATTR_MSG)?).map(str::to_owned)
    }
}
