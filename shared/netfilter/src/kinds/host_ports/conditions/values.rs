//! Values of nft's words that are more than one word, or have a form of their own.

use std::iter::Peekable;
use std::str::SplitWhitespace;

/// The words that are not read yet.
pub(super) type Words<'a> = Peekable<SplitWhitespace<'a>>;

/// Connection states, by their bits in the kernel (`NF_CT_STATE_BIT` of linux/netfilter/nf_conntrack_common.h).
const STATES: [(&str, u32); 5] =
    [("invalid", 1), ("established", 2), ("related", 4), ("new", 8), ("untracked", 64)];

/// Units of time, in seconds.
const UNITS: [(&str, u64); 5] =
    [("second", 1), ("minute", 60), ("hour", 3600), ("day", 86_400), ("week", 604_800)];

/// As the kernel counts them.
const DAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

/// The packets that may come at once if a limit does not say (nft(8)).
const BURST: u32 = 5;

/// `new`, `new,related` or `{ new, related }`, as their bits.
pub(super) fn states(words: &mut Words<'_>) -> Result<u32, String> {
    let in_braces = words.next_if_eq(&"{").is_some();
    let mut mask = 0;
    loop {
        let word = words.next().ok_or("the last condition has no value")?;
        mask |= named(&STATES, word).ok_or_else(|| format!("{word:?} is not the state of a connection"))?;
        if words.next_if_eq(&",").is_none() {
            break;
        }
    }
    if in_braces && words.next() != Some("}") {
        return Err("the closing brace of a set is missing".into());
    }
    Ok(mask)
}

/// `10/second` or `10/second burst 20 packets`: so many packets in so many seconds, and so many at once.
pub(super) fn rate(words: &mut Words<'_>) -> Result<(u64, u64, u32), String> {
    let word = words.next().ok_or("the last condition has no value")?;
    let wrong = || format!("{word:?} is not a rate such as 10/second");
    let (packets, unit) = word.split_once('/').ok_or_else(wrong)?;
    let packets = packets.parse().ok().filter(|&packets| packets > 0).ok_or_else(wrong)?;
    let seconds = named(&UNITS, unit).ok_or_else(wrong)?;
    let mut burst = BURST;
    if words.next_if_eq(&"burst").is_some() {
        let number = words.next().unwrap_or_default();
        burst = number.parse().map_err(|_| format!("burst {number:?} is not a number of packets"))?;
        words.next_if(|word| matches!(*word, "packet" | "packets"));
    }
    Ok((packets, seconds, burst))
}

/// `monday`, or 0 for Sunday to 6, in UTC.
pub(super) fn day(text: &str) -> Option<u8> {
    let name = text.trim_matches('"');
    let by_name = DAYS.iter().position(|day| day.eq_ignore_ascii_case(name));
    let number = by_name.or_else(|| name.parse().ok()).filter(|&number| number < DAYS.len())?;
    u8::try_from(number).ok()
}

/// `08:00-17:30` of a day, as seconds since midnight in UTC, both included.
pub(super) fn hours(text: &str) -> Option<(u32, u32)> {
    let text = text.replace('"', "");
    let (from, to) = text.split_once('-')?;
    let (from, to) = (seconds(from)?, seconds(to)?);
    (from <= to).then_some((from, to))
}

fn seconds(text: &str) -> Option<u32> {
    let mut parts = text.split(':');
    let mut part =
        |limit: u32| parts.next().unwrap_or("0").parse::<u32>().ok().filter(|&number| number < limit);
    let seconds = part(24)? * 3600 + part(60)? * 60 + part(60)?;
    parts.next().is_none().then_some(seconds)
}

/// What does not match, and is left out: `"some words"`.
pub(super) fn skip_comment(words: &mut Words<'_>) -> Result<(), String> {
    let first = words.next().ok_or("the text of a comment is missing")?;
    let Some(rest) = first.strip_prefix('"') else { return Ok(()) };
    if rest.ends_with('"') || words.any(|word| word.ends_with('"')) {
        return Ok(());
    }
    Err("the closing quote of a comment is missing".into())
}

fn named<T: Copy>(names: &[(&str, T)], wanted: &str) -> Option<T> {
    names.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
}
