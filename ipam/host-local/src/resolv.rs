//! DNS settings from a file in the format of resolv.conf(5).

use std::path::Path;

use cni::{Dns, Error, Result};
use system::file;

/// Maximum size in bytes. libc's resolver uses only a few lines.
const LARGEST: u64 = 1 << 20;

/// Reads a file.
///
/// # Errors
/// Code 5 if the file cannot be read.
pub fn read(path: &Path) -> Result<Dns> {
    let failed = |e| Error::io(format!("read resolvConf {}", path.display()), &e);
    file::read(path, LARGEST).map(|bytes| parse(&String::from_utf8_lossy(&bytes))).map_err(failed)
}

/// Parses the settings that a result can contain. As in the reference, several `search` lines are combined, and the
/// last `domain` is used.
fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines() {
        let mut words = line.split_whitespace().map(str::to_owned);
        match words.next().as_deref() {
            Some("nameserver") => dns.nameservers.extend(words.next()),
            Some("domain") => dns.domain = words.next().unwrap_or(dns.domain),
            Some("search") => dns.search.extend(words),
            Some("options") => dns.options.extend(words),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_domain_search_and_options_are_parsed_and_comments_ignored() {
        let dns = parse(
            "# made by hand\n; nameserver 9.9.9.9\n nameserver 10.0.0.53\nnameserver fd00::53 # second\n\
             nameserver\ndomain old.test\ndomain example.test\ndomain\nsearch a.test b.test\nsearch c.test\n\
             options ndots:5 rotate\nsortlist 10.0.0.0\n",
        );
        assert_eq!(dns.nameservers, ["10.0.0.53", "fd00::53"]);
        assert_eq!(dns.domain, "example.test");
        assert_eq!(dns.search, ["a.test", "b.test", "c.test"]);
        assert_eq!(dns.options, ["ndots:5", "rotate"]);
    }
}
