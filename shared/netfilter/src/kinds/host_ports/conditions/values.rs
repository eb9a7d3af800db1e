//! Values in nft's syntax that have several words or a special form.

use std::iter::Peekable;
use std::str::SplitWhitespace;

/// The remaining words.
pub(super) type Words<'a> = Peekable<SplitWhitespace<'a>>;

/// Connection states, by their bits in the kernel (`NF_CT_STATE_BIT` of linux/netfilter/nf_conntrack_common.h).
const STATES: [(&str, u32); 5] =
    [("invalid", 1), ("established", 2), ("related", 4), ("new", 8), ("untracked", 64)];

/// `new`, `new,related` or `{ new, related }`, as their bits.
pub(super) fn states(words: &mut Words<'_>) -> Result<u32, String> {
    let in_braces = words.next_if_eq(&"{").is_some();
    let mut mask = 0;
    loop {
        let word = words.next().ok_or("the last condition has no value")?;
        let state = STATES.iter().find(|(name, _)| *name == word);
        mask |= state.ok_or_else(|| format!("{word:?} is not the state of a connection"))?.1;
        if words.next_if_eq(&",").is_none() {
            break;
        }
    }
    if in_braces && words.next() != Some("}") {
        return Err("the closing brace of a set is missing".into());
    }
    Ok(mask)
}

/// Skips a comment, `"some words"`.
pub(super) fn skip_comment(words: &mut Words<'_>) -> Result<(), String> {
    let first = words.next().ok_or("the text of a comment is missing")?;
    let Some(rest) = first.strip_prefix('"') else { return Ok(()) };
    if rest.ends_with('"') || words.any(|word| word.ends_with('"')) {
        return Ok(());
    }
    Err("the closing quote of a comment is missing".into())
}
