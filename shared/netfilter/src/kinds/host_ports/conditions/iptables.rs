//! Conditions in the syntax of iptables(8). Its own parser reads them as arguments of one rule. Here they are checked
//! to contain only matches.

/// Options that are refused, also abbreviated, because iptables accepts abbreviations: commands, other tables, targets,
/// sets that other programs own, and options that change a match's lists. The protocol is the mapping's.
const REFUSED: &[&str] = &[
    "--add-set",
    "--append",
    "--check",
    "--del-set",
    "--delete",
    "--delete-chain",
    "--exact",
    "--exist",
    "--flush",
    "--goto",
    "--help",
    "--insert",
    "--ipv4",
    "--ipv6",
    "--jump",
    "--line-numbers",
    "--list",
    "--list-rules",
    "--match-set",
    "--modprobe",
    "--new-chain",
    "--numeric",
    "--policy",
    "--protocol",
    "--remove",
    "--rename-chain",
    "--replace",
    "--set",
    "--set-counters",
    "--table",
    "--update",
    "--verbose",
    "--version",
    "--wait",
    "--wait-interval",
    "--zero",
];

/// Allowed short options. Others could be a combination of several, such as `-fj`.
const SHORT: &[&str] = &["-s", "-d", "-i", "-o", "-m", "-f"];

/// Maximum length of a word in bytes (`PARAM_BUFFER` of iptables-restore is 1024).
const LONGEST: usize = 255;

/// Checks words, and returns them in the syntax of iptables-restore. Comments are removed, because the comments of
/// Ferrule's rules identify the attachment.
///
/// # Errors
/// The word that is not a match.
pub(super) fn read(words: &[String]) -> Result<Vec<String>, String> {
    let mut read: Vec<String> = Vec::new();
    let mut words = words.iter().map(String::as_str).peekable();
    let mut has_policy = false;
    while let Some(word) = words.next() {
        match name_of(word) {
            // After `-m policy`, these are options of their own. Otherwise iptables reads abbreviations.
            "--pol" | "--proto" if has_policy => check_word(word)?,
            _ => check(word)?,
        }
        if word == "--comment" {
            check(words.next().ok_or("the text of a comment is missing")?)?;
            continue;
        }
        if matches!(word, "-m" | "--match") {
            let name = words.next().filter(|name| is_name(name));
            let name = name.ok_or_else(|| format!("{word:?} needs the name of a match"))?;
            has_policy |= name == "policy";
            if name != "comment" {
                read.extend([word.to_owned(), name.to_owned()]);
            }
            continue;
        }
        read.push(quoted(word));
    }
    match read.last().map(String::as_str) {
        Some("!") => Err("the last condition is incomplete".into()),
        _ => Ok(read),
    }
}

/// The name of an option, without a value that is joined to it.
fn name_of(word: &str) -> &str {
    word.split('=').next().unwrap_or(word)
}

fn check(word: &str) -> Result<(), String> {
    check_word(word)?;
    if !word.starts_with('-') {
        return Ok(());
    }
    let name = name_of(word);
    let allowed = match word.strip_prefix("--") {
        Some(_) => name.len() > 2 && !REFUSED.iter().any(|refused| refused.starts_with(name)),
        None => SHORT.contains(&word),
    };
    if allowed { Ok(()) } else { Err(format!("{word:?} is not allowed here")) }
}

/// Checks that a word is one argument.
fn check_word(word: &str) -> Result<(), String> {
    if word.is_empty() || word.len() > LONGEST || word.chars().any(char::is_control) {
        return Err(format!("{word:?} is not one word of an iptables rule"));
    }
    match word.split_once(' ') {
        Some((option, value)) if word.starts_with('-') => {
            Err(format!("{word:?}: write the option and its value as two strings: {option:?}, {value:?}"))
        }
        _ => Ok(()),
    }
}

/// The name of a match is part of the name of a library that iptables loads.
fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && text.chars().all(plain)
}

/// Quotes a word for iptables-restore: in double quotes, with `\` as the escape character.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "!-_.,:/+=@%".contains(c);
    if word.chars().all(plain) {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn matches_are_accepted_unchanged() {
        for good in [
            "-s 192.0.2.0/24",
            "! -d 192.0.2.1",
            "-i eth0 -m addrtype ! --src-type LOCAL",
            "-m time --timestart 08:00 --timestop 17:00 --weekdays Mon,Tue",
            "-m limit --limit 10/second --limit-burst 20",
            "-m hashlimit --hashlimit-above 5/sec --hashlimit-name web",
            "-m tcp --syn --tcp-flags SYN,ACK SYN",
            "-m policy --dir in --pol none",
            "-m policy --dir in --pol ipsec --strict --reqid 1 --proto=esp",
        ] {
            assert_eq!(read(&words(good)).unwrap().join(" "), good);
        }
    }

    #[test]
    fn comments_are_left_out_and_words_with_blanks_are_quoted() {
        let given =
            ["-m", "comment", "--comment", "for \"us\"", "-m", "string", "--string", "a \"b\\", "-s", "::1"];
        let read = read(&given.map(str::to_owned)).unwrap();
        assert_eq!(read.join(" "), r#"-m string --string "a \"b\\" -s ::1"#);
    }

    #[test]
    fn words_that_are_not_matches_are_refused_by_name() {
        for (bad, culprit) in [
            ("-j ACCEPT", "-j"),
            ("-jACCEPT", "-jACCEPT"),
            ("-fj ACCEPT", "-fj"),
            ("-s 1.2.3.4 --jump DROP", "--jump"),
            ("-s 1.2.3.4 --jump=DROP", "--jump=DROP"),
            ("-s 1.2.3.4 --jum DROP", "--jum"),
            ("--g X", "--g"),
            ("--goto X", "--goto"),
            ("-t mangle", "-t"),
            ("--tab mangle", "--tab"),
            ("-A INPUT", "-A"),
            ("--append INPUT", "--append"),
            ("-m recent --set --name x", "--set"),
            ("-m set --match-set admins src", "--match-set"),
            ("-m set --match-s admins src", "--match-s"),
            ("-sfoo", "-sfoo"),
            ("--", "--"),
            ("-p tcp", "-p"),
            ("--proto tcp", "--proto"),
            ("--pol DROP -m policy", "--pol"),
            ("-m policy --poli DROP", "--poli"),
            ("-m policy --prot esp", "--prot"),
            ("-m policy --policy DROP", "--policy"),
            ("-m ../../evil", "-m"),
            ("-m", "-m"),
            ("-m -j", "-m"),
            ("--comment", "comment"),
            ("--comment -j ACCEPT", "-j"),
            ("-s 1.2.3.4 !", "incomplete"),
        ] {
            let error = read(&words(bad)).unwrap_err();
            assert!(error.contains(culprit), "{bad}: {error}");
        }
        let error = read(&["-s 10.0.0.0/8".to_owned()]).unwrap_err();
        assert!(error.ends_with(r#"as two strings: "-s", "10.0.0.0/8""#), "{error}");
        for bad in ["1.2.3.4\n-A INPUT", "", "a\0", "a\tb", &"x".repeat(256)] {
            assert!(read(&["-s".into(), bad.into()]).is_err(), "{bad:?}");
        }
    }
}
