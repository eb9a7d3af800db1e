//! Messages of the nf_tables subsystem.

use netlink::wire::Message;

use crate::ruleset::uapi::*;
use crate::ruleset::{Element, Table};

/// Length of `struct nfgenmsg`.
pub(super) const HEADER: usize = 4;

/// A message of the nf_tables subsystem, with `struct nfgenmsg`.
pub(super) fn message(kind: u16, flags: u16, family: u8) -> Message {
    Message::new(NFNL_SUBSYS_NFTABLES << 8 | kind, flags, &[family, 0, 0, 0])
}

/// A message about a table or an object in it. All of these have the table's name in the same attribute.
pub(super) fn in_table(kind: u16, flags: u16, table: Table) -> Message {
    let mut message = message(kind, flags, table.family);
    message.put_str(NFTA_TABLE_NAME, table.name);
    message
}

/// A message about one element.
pub(super) fn element_message(
    kind: u16,
    flags: u16,
    table: Table,
    element: &Element,
    comment: Option<&str>,
) -> Message {
    let mut message = in_table(kind, flags, table);
    message.put_str(NFTA_SET_ELEM_LIST_SET, &element.set.name);
    message.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |list| {
        list.nest(NFTA_LIST_ELEM, |nest| {
            nest.nest(NFTA_SET_ELEM_KEY, |key| key.put(NFTA_DATA_VALUE, &element.key));
            let Some(comment) = comment else { return };
            if !element.data.is_empty() {
                nest.nest(NFTA_SET_ELEM_DATA, |data| data.put(NFTA_DATA_VALUE, &element.data));
            }
            nest.put(NFTA_SET_ELEM_USERDATA, &user_data(comment));
        });
    });
    message
}

/// A comment in the format of nft(8): type, length, text with a NUL.
pub(super) fn user_data(comment: &str) -> Vec<u8> {
    let text = comment.as_bytes();
    let text = &text[..text.len().min(usize::from(u8::MAX) - 1)];
    let mut bytes = vec![UDATA_COMMENT, text.len() as u8 + 1];
    bytes.extend_from_slice(text);
    bytes.push(0);
    bytes
}

/// The comment in user data.
pub(super) fn comment(user_data: &[u8]) -> Option<&str> {
    let mut rest = user_data;
    while let [kind, length, tail @ ..] = rest {
        let value = tail.get(..usize::from(*length))?;
        if *kind == UDATA_COMMENT {
            return netlink::wire::read_str(value);
        }
        rest = &tail[value.len()..];
    }
    None
}
