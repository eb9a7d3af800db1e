//! The name of an iptables chain, as a configuration gives it.

/// The name of an iptables chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainName(String);

impl ChainName {
    /// Checks the name: 1 to 28 printable characters, no white space, no quotes, not beginning with `-` or
    /// `!` (as iptables(8) itself checks it).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\' | ':' | '#');
        if text.is_empty() || text.len() > 28 || !text.chars().all(plain) || text.starts_with(['-', '!']) {
            return Err(format!("{text:?} is not the name of an iptables chain"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
