//! The attachments whose DEL has run: the file `deleted` in a network's directory, with a line for each attachment.
//!
//! In a chain, the DEL of the plugin that created the interface runs last. Until then, the container still looks
//! attached to a repair, which would register the names that the DEL of dnsname has just removed.

use cni::Attachment;

/// Maximum number of lines. More than the number of DELs that run concurrently.
const MOST: usize = 512;

/// The lines, the oldest first.
#[derive(Debug)]
pub struct Deletions(Vec<String>);

impl Deletions {
    /// Reads the file.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().map(str::to_owned).collect())
    }

    /// Whether an attachment's DEL has run, without an ADD afterwards.
    pub fn has(&self, at: &Attachment) -> bool {
        self.0.contains(&line(at))
    }

    /// Adds an attachment. If there are too many lines, drops the oldest ones.
    pub fn add(&mut self, at: &Attachment) {
        self.0.push(line(at));
        self.0.drain(..self.0.len().saturating_sub(MOST));
    }

    /// Removes an attachment after a new ADD.
    pub fn remove(&mut self, at: &Attachment) {
        self.0.retain(|other| *other != line(at));
    }

    /// The content of the file.
    pub fn text(&self) -> String {
        self.0.iter().map(|line| format!("{line}\n")).collect()
    }
}

fn line(at: &Attachment) -> String {
    format!("{} {}", at.container, at.ifname)
}

#[cfg(test)]
mod tests {
    use cni::{ContainerId, IfName};

    use super::*;

    fn at(container: &str) -> Attachment {
        Attachment {
            container: ContainerId::parse(container).unwrap(),
            ifname: IfName::parse("eth0").unwrap(),
        }
    }

    #[test]
    fn an_attachment_is_listed_from_its_del_to_its_next_add() {
        let mut deletions = Deletions::parse("");
        assert!(!deletions.has(&at("web")));
        deletions.add(&at("web"));
        deletions.add(&at("db"));
        let mut read = Deletions::parse(&deletions.text());
        assert!(read.has(&at("web")) && read.has(&at("db")) && !read.has(&at("we")));
        read.remove(&at("web"));
        assert!(!read.has(&at("web")) && read.has(&at("db")));
    }

    #[test]
    fn the_newest_lines_are_kept() {
        let mut deletions = Deletions::parse("");
        (0..=MOST).for_each(|n| deletions.add(&at(&format!("c{n}"))));
        assert!(
            !deletions.has(&at("c0")) && deletions.has(&at("c1")) && deletions.has(&at(&format!("c{MOST}")))
        );
        assert_eq!(deletions.text().lines().count(), MOST);
    }
}
