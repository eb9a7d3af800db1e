//! The hosts file of a network, `addnhosts`: a line for each address of a container, in the format of hosts(5).
//!
//! ```text
//! 10.88.0.5  web  db  _18f3a91c5d2b7e40  # ferrule 3f9c... eth0
//! ```
//!
//! The comment names the attachment that owns the line. The last name is the line's token, which no other line ever
//! has. So if a server resolves the token, it has read this line. A line of the original plugin has neither a comment
//! nor a token.

use std::fmt::Write;
use std::net::IpAddr;
use std::process;
use std::time::SystemTime;

use cni::{Attachment, ContainerId, IfName};

use crate::name::HostName;

/// Prefix of the comments of lines that Ferrule has written.
const MARK: &str = "ferrule";

/// Prefix of tokens. No container name begins with it.
const TOKEN: char = '_';

/// All lines, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<Line>);

/// A line, and its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    text: String,
    /// None: the line has no entry.
    pub entry: Option<Entry>,
}

/// An address and its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The address.
    pub address: IpAddr,
    /// Its names, without the token.
    pub names: Vec<String>,
    /// The token. None: the original plugin wrote the line.
    pub token: Option<String>,
    /// The attachment that owns the line. None: the original plugin wrote the line.
    pub owner: Option<Attachment>,
}

impl Hosts {
    /// Parses the file. The text of each line is kept.
    pub fn parse(text: &str) -> Self {
        let line = |text: &str| Line { text: text.to_owned(), entry: Entry::parse(text) };
        Self(text.split_terminator('\n').filter(|text| !is_blanked(text)).map(line).collect())
    }

    /// The file's content without some entries, but with the same length: each of their lines becomes a comment. So
    /// it can be written on a full disk, and an interrupted write leaves no part of a line.
    pub fn blanked(text: &str, removed: &[Entry]) -> String {
        let blank = |line: &str| match Entry::parse(line) {
            Some(entry) if removed.contains(&entry) => format!("{:<1$}", '#', line.len()),
            _ => line.to_owned(),
        };
        text.split('\n').map(blank).collect::<Vec<_>>().join("\n")
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().filter_map(|line| line.entry.as_ref())
    }

    /// The entries of an attachment: its own lines, and lines of the original plugin with one of its addresses.
    pub fn entries_of<'a>(
        &'a self,
        at: &'a Attachment,
        addresses: &'a [IpAddr],
    ) -> impl Iterator<Item = &'a Entry> {
        self.entries().filter(move |entry| entry.is_of(at, addresses))
    }

    /// Removes the entries that `is_taken` selects, and returns them.
    pub fn take(&mut self, is_taken: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let is_taken = |line: &mut Line| line.entry.as_ref().is_some_and(&is_taken);
        self.0.extract_if(.., is_taken).filter_map(|line| line.entry).collect()
    }

    /// Replaces the entries of an attachment. Also removes entries of other containers with one of its addresses:
    /// they are stale, because no other container can have the address.
    pub fn replace(&mut self, at: &Attachment, addresses: &[IpAddr], names: &[HostName]) -> Vec<Entry> {
        self.take(|entry| entry.owner.as_ref() == Some(at) || addresses.contains(&entry.address));
        let entry = |(number, address): (usize, &IpAddr)| Entry {
            address: *address,
            names: names.iter().map(HostName::to_string).collect(),
            token: Some(token(number)),
            owner: Some(at.clone()),
        };
        let added: Vec<Entry> = addresses.iter().enumerate().map(entry).collect();
        self.0.extend(added.iter().map(|entry| Line { text: entry.text(), entry: Some(entry.clone()) }));
        added
    }

    /// The content of the file.
    pub fn text(&self) -> String {
        self.0.iter().fold(String::new(), |text, line| text + &line.text + "\n")
    }
}

impl Entry {
    /// Parses an entry. None: the line is empty or a comment, or lacks an address or a name.
    fn parse(line: &str) -> Option<Self> {
        let (fields, comment) =
            line.split_once('#').map_or((line, ""), |(fields, comment)| (fields, comment));
        let mut fields = fields.split_whitespace();
        let address = fields.next()?.parse().ok()?;
        let mut names: Vec<String> = fields.map(str::to_owned).collect();
        let owner = owner(comment);
        let has_token = owner.is_some() && names.last().is_some_and(|name| name.starts_with(TOKEN));
        let token = if has_token { names.pop() } else { None };
        (token.is_some() || !names.is_empty()).then_some(Self { address, names, token, owner })
    }

    /// Whether the entry belongs to an attachment with these addresses.
    pub fn is_of(&self, at: &Attachment, addresses: &[IpAddr]) -> bool {
        match &self.owner {
            Some(owner) => owner == at,
            None => addresses.contains(&self.address),
        }
    }

    fn text(&self) -> String {
        let mut line = self.address.to_string();
        self.names.iter().chain(&self.token).for_each(|name| {
            let _ = write!(line, "\t{name}");
        });
        if let Some(owner) = &self.owner {
            let _ = write!(line, "\t# {MARK} {} {}", owner.container, owner.ifname);
        }
        line
    }
}

fn is_blanked(line: &str) -> bool {
    line.len() > 1 && line.starts_with('#') && line[1..].bytes().all(|byte| byte == b' ')
}

fn owner(comment: &str) -> Option<Attachment> {
    let mut words = comment.split_whitespace();
    let (MARK, container, ifname, None) = (words.next()?, words.next()?, words.next()?, words.next()) else {
        return None;
    };
    Some(Attachment { container: ContainerId::parse(container).ok()?, ifname: IfName::parse(ifname).ok()? })
}

/// A new unique name, for a line that this process writes.
fn token(number: usize) -> String {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{TOKEN}{:x}-{:x}-{number}", since_1970.as_nanos(), process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(container: &str) -> Attachment {
        Attachment {
            container: ContainerId::parse(container).unwrap(),
            ifname: IfName::parse("eth0").unwrap(),
        }
    }

    fn names(names: &[&str]) -> Vec<HostName> {
        names.iter().map(|name| HostName::parse(name).unwrap()).collect()
    }

    fn addresses(hosts: &Hosts) -> Vec<String> {
        hosts.entries().map(|entry| entry.address.to_string()).collect()
    }

    const BY_THE_ORIGINAL: &str = "10.88.0.2\tweb\n10.88.0.3\tdb\tcache\n";

    #[test]
    fn a_carriage_return_of_an_edited_line_is_kept() {
        for text in ["\r", "10.88.0.9 db\r\n", "# one\r\n\r"] {
            let hosts = Hosts::parse(text);
            assert_eq!(Hosts::parse(&hosts.text()), hosts, "{text:?}");
            assert_eq!(hosts.text().matches('\r').count(), text.matches('\r').count());
        }
    }

    #[test]
    fn a_written_line_is_read_as_it_was_meant_and_the_original_finds_the_containers_name_in_its_second_field()
    {
        let mut hosts = Hosts::default();
        let ips = ["10.88.0.5".parse().unwrap(), "fd00::5".parse().unwrap()];
        let added = hosts.replace(&at("c1"), &ips, &names(&["web", "db"]));
        assert_eq!(Hosts::parse(&hosts.text()).entries().cloned().collect::<Vec<_>>(), added);
        assert_ne!(added[0].token, added[1].token);
        let text = hosts.text();
        let second = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
        assert!(text.lines().all(|line| second(line).as_deref() == Some("web")), "{text}");
    }

    #[test]
    fn del_removes_only_the_attachments_own_lines() {
        let mut hosts = Hosts::parse(BY_THE_ORIGINAL);
        hosts.replace(&at("c1"), &["10.88.0.5".parse().unwrap()], &names(&["web"]));
        hosts.replace(&at("c2"), &["10.88.0.6".parse().unwrap()], &names(&["web"]));
        let of = at("c1");
        assert_eq!(hosts.take(|entry| entry.is_of(&of, &[])).len(), 1);
        assert_eq!(addresses(&hosts), ["10.88.0.2", "10.88.0.3", "10.88.0.6"]);
        // An attachment of the original plugin is found by its address.
        let own = ["10.88.0.3".parse().unwrap(), "10.88.0.6".parse().unwrap()];
        assert_eq!(hosts.take(|entry| entry.is_of(&of, &own)).len(), 1);
        assert_eq!(addresses(&hosts), ["10.88.0.2", "10.88.0.6"]);
    }

    #[test]
    fn an_address_has_one_owner_and_a_repeated_add_changes_nothing_else() {
        let mut hosts = Hosts::parse(BY_THE_ORIGINAL);
        for container in ["c1", "c1", "c2"] {
            hosts.replace(&at(container), &["10.88.0.2".parse().unwrap()], &names(&["new"]));
        }
        assert_eq!(addresses(&hosts), ["10.88.0.3", "10.88.0.2"]);
        assert_eq!(hosts.entries().last().unwrap().owner, Some(at("c2")));
    }

    #[test]
    fn lines_without_an_entry_are_kept() {
        let text = "# by hand\n\nnonsense\n10.88.0.9\n10.88.0.2 web # a comment\n";
        let mut hosts = Hosts::parse(text);
        assert_eq!(addresses(&hosts), ["10.88.0.2"]);
        assert_eq!(hosts.text(), text);
        hosts.take(|_| true);
        assert_eq!(hosts.text(), "# by hand\n\nnonsense\n10.88.0.9\n");
    }

    #[test]
    fn without_room_lines_become_comments_which_the_next_reader_drops() {
        let mut hosts = Hosts::parse("# by hand\n10.88.0.2\tweb\n");
        hosts.replace(&at("c1"), &["10.88.0.5".parse().unwrap()], &names(&["web"]));
        hosts.replace(&at("c2"), &["10.88.0.6".parse().unwrap()], &names(&["db"]));
        let text = hosts.text();
        let removed = hosts.take(|entry| entry.is_of(&at("c1"), &[]));
        let blanked = Hosts::blanked(&text, &removed);
        assert_eq!(blanked.len(), text.len());
        assert!(!blanked.contains("10.88.0.5"), "{blanked}");
        assert_eq!(Hosts::parse(&blanked), hosts);
    }

    #[test]
    fn a_comment_that_names_no_attachment_makes_no_owner() {
        for comment in ["# ferrule", "# ferrule ../c eth0", "# ferrule c eth0 more", "# other c eth0"] {
            let hosts = Hosts::parse(&format!("10.88.0.2 web _1 {comment}\n"));
            let entry = hosts.entries().next().unwrap();
            assert_eq!((&entry.owner, &entry.token), (&None, &None), "{comment}");
        }
    }
}
