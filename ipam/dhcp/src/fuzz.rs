//! Fuzzing: conditions that hold for any input.

use cni::{AsWritten, CniArgs, json};

use crate::conf::Conf;
use crate::key::Key;
use crate::record::Record;
use crate::wire::{Request, read_reply};

/// The input is a configuration, a line `--`, and `CNI_ARGS`. Every option that is sent fits into a message.
pub fn configuration(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (document, args) = text.split_once("\n--\n").unwrap_or((&text, ""));
    let Ok(document) = json::parse(document.as_bytes(), "it") else { return };
    let (Ok(conf), Ok(args)) = (Conf::try_from(AsWritten::from(document)), CniArgs::parse(args.trim_end()))
    else {
        return;
    };
    assert!(!conf.socket.as_os_str().is_empty());
    let provided = conf.provided(&args).unwrap_or_default();
    assert!(provided.iter().all(|(option, value)| (1..=254).contains(option) && value.len() <= 255));
}

/// The input is a line on the socket, from either side, or a file. No attachment's name can be a path.
pub fn wire(input: &[u8]) {
    read_reply(input).ok();
    if let Ok(request) = Request::read(input)
        && let Ok(key) = Key::parse(&request.network, &request.container_id, &request.if_name, request.family)
    {
        assert!(!key.file().contains('/') && key.client_id().len() <= 255);
    }
    if let Some(key) = Record::read(input).and_then(|record| record.key()) {
        assert!(!key.file().contains('/'));
    }
}

#[test]
fn every_seed_passes() {
    seeds::replay("dhcp", configuration);
    seeds::replay("dhcp_wire", wire);
}
