//! Changes of a link that was deleted and created again, in the text of `Snapshot::since`.

/// The changes without the lines of a link, but with those of its ports.
pub fn left_out(changes: &str, link: &str) -> String {
    let of_a_port = format!(" master {link} ");
    kept(changes, |line| line.contains(&of_a_port) || !words(line).any(|word| word == link))
}

/// The changes without pairs of lines that differ only in the link's number or addresses, which the kernel chooses.
pub fn renamed(changes: &str) -> String {
    let normal: Vec<_> = changes.lines().map(normalized).collect();
    let count = |sign: &str, text: &str| {
        normal.iter().filter(|line| line.strip_prefix(sign).is_some_and(|rest| rest == text)).count()
    };
    kept(changes, |line| {
        let line = normalized(line);
        let text = &line[line.len().min(4)..];
        count("  - ", text) != count("  + ", text)
    })
}

/// The lines of changes that `is_kept` accepts, with their titles.
fn kept(changes: &str, is_kept: impl Fn(&str) -> bool) -> String {
    let (mut text, mut title) = (String::new(), "");
    for line in changes.lines() {
        if !line.starts_with(' ') {
            title = line;
        } else if is_kept(line) {
            if !title.is_empty() {
                text += &format!("{title}\n");
                title = "";
            }
            text += &format!("{line}\n");
        }
    }
    text
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '.')
}

/// Without the number at the start of a link's line, and without words that have a MAC address.
fn normalized(line: &str) -> String {
    let is_number = |word: &&str| word.strip_suffix(':').is_some_and(|text| text.parse::<u32>().is_ok());
    let hides_mac = |word: &&str| word.matches(':').count() >= 5 || word.starts_with("8000.");
    let (sign, rest) = line.split_at(line.len().min(4));
    let words = rest.split(' ').filter(|word| !is_number(word) && !hides_mac(word));
    format!("{sign}{}", words.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGES: &str = "disk\n  + /run/file: \"\"\nhost: rtnetlink\n  - 7: br0: <UP> mtu 1500 link/ether 02:00:00:00:00:01 brd\n  \
                           + 9: br0: <UP> mtu 1500 link/ether 02:00:00:00:00:02 brd\nhost: sysctls\n  + ipv6/conf/br0/accept_dad = 0\n";

    #[test]
    fn a_port_of_the_link_is_kept() {
        let changes = "host: rtnetlink\n  + 8: veth1@if2: <UP> mtu 1500 master br0 mode DEFAULT\n";
        assert_eq!(left_out(changes, "br0"), changes);
    }

    #[test]
    fn lines_of_the_link_are_left_out() {
        assert_eq!(left_out(CHANGES, "br0"), "disk\n  + /run/file: \"\"\n");
    }

    #[test]
    fn a_link_with_another_number_and_address_is_the_same() {
        let expected = "disk\n  + /run/file: \"\"\nhost: sysctls\n  + ipv6/conf/br0/accept_dad = 0\n";
        assert_eq!(renamed(CHANGES), expected);
    }
}
