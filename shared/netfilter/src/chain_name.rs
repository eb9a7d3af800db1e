//! Name of an iptables chain in a configuration.

/// A valid name of an iptables chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainName(String);

impl ChainName {
    /// Checks a name, as iptables(8) does: 1 to 28 printable characters, no white space, no quotes, and no `-` or `!`
    /// at the start.
    ///
    /// # Errors
    /// The reason why it is invalid.
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
