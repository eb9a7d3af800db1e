//! Checked names from untrusted input. Only these become part of a path, a rule or a request.

use std::fmt;
use std::ops::Deref;

/// Maximum length of an interface name in bytes (IFNAMSIZ without the NUL).
const IFNAME_MAX: usize = 15;

/// Maximum length of an alternative name of a link in bytes (ALTIFNAMSIZ without the NUL).
const ALTIFNAME_MAX: usize = 127;

/// Maximum length of a name in a file name, in bytes (NAME_MAX).
const NAME_MAX: usize = 255;

macro_rules! checked_name {
    ($(#[$doc:meta])* $name:ident, $check:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Checks the name.
            ///
            /// # Errors
            /// The problem, as the end of a sentence that begins with the name's source.
            pub fn parse(text: &str) -> Result<Self, String> {
                $check(text)?;
                Ok(Self(text.to_owned()))
            }

            /// The name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

checked_name!(
    /// Name of a network: letters, digits, `_`, `.`, `-`, starting with a letter or digit (SPEC.md, section 1, "Configuration format").
    NetworkName,
    identifier
);
checked_name!(
    /// Container id, with the same characters (SPEC.md, section 2, "Parameters").
    ContainerId,
    identifier
);
checked_name!(
    /// Name of an interface, with the kernel's rules (`dev_valid_name()` in net/core/dev.c): 1 to 15 bytes, no `/`, no `:`, no white space,
    /// not `.` or `..`.
    IfName,
    interface
);
checked_name!(
    /// Name of an existing link: of an interface, or an alternative name (`ip link property`), which has 1 to 127 bytes. Never part of a path
    /// or a rule: these need the link's own name.
    LinkName,
    link
);
checked_name!(
    /// Type of a plugin: name of an executable in CNI_PATH, never a path.
    PluginType,
    file_name
);

impl IfName {
    /// Like [`IfName::parse`], for an interface that ADD creates or configures.
    ///
    /// # Errors
    /// Also for a name that means all interfaces, or all future ones, below `/proc/sys/net`.
    pub fn parse_new(text: &str) -> Result<Self, String> {
        match text {
            "all" | "default" => {
                Err(format!("{text}: in sysctls, this name does not mean one interface; choose another name"))
            }
            _ => Self::parse(text),
        }
    }
}

fn identifier(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("is empty".into());
    }
    if text.len() > NAME_MAX {
        return Err(format!("is {} bytes long, at most {NAME_MAX} are allowed", text.len()));
    }
    let fits = |(i, c): (usize, char)| c.is_ascii_alphanumeric() || (i > 0 && matches!(c, '_' | '.' | '-'));
    match text.char_indices().find(|&c| !fits(c)) {
        None => Ok(()),
        Some((0, c)) => Err(format!("{text:?} begins with {c:?}; a letter or a digit must come first")),
        Some((_, c)) => {
            Err(format!("{text:?} has {c:?} in it; only letters, digits, '_', '.' and '-' are allowed"))
        }
    }
}

fn interface(text: &str) -> Result<(), String> {
    interface_of(text, IFNAME_MAX)
}

fn link(text: &str) -> Result<(), String> {
    interface_of(text, ALTIFNAME_MAX)
}

/// The errors contain words of the reference and of libcni that callers match.
fn interface_of(text: &str, longest: usize) -> Result<(), String> {
    match text {
        "" => Err("is empty".into()),
        "." | ".." => Err(format!("{text:?} is wrong: interface name is . or ..")),
        _ if text.len() > longest => {
            let length = text.len();
            Err(format!("{text:?} is wrong: interface name is too long, {length} bytes of at most {longest}"))
        }
        _ => match text.chars().find(|&c| !fits_interface(c)) {
            None => Ok(()),
            Some(c) if c.is_ascii_punctuation() => Err(invalid_character(text, &c)),
            Some(c) => Err(invalid_character(text, &format_args!("{c:?}"))),
        },
    }
}

fn fits_interface(c: char) -> bool {
    !matches!(c, '/' | ':' | '%') && !c.is_whitespace() && !c.is_control()
}

fn invalid_character(name: &str, character: &dyn fmt::Display) -> String {
    format!("is wrong: Interface name ({name}) contains an invalid character {character}")
}

fn file_name(text: &str) -> Result<(), String> {
    match text {
        "" => Err("is empty".into()),
        "." | ".." => Err(format!("{text:?} is not the name of an executable")),
        _ if text.len() > NAME_MAX => {
            Err(format!("is {} bytes long, at most {NAME_MAX} are allowed", text.len()))
        }
        _ if text.contains(['/', '\0']) => {
            Err(format!("{text:?} is a path; only the name of an executable is allowed"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_or_container_name_can_not_be_a_path() {
        for good in ["a", "0", "cbr0", "k8s-pod.network_1"] {
            assert!(NetworkName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "../x", "a/b", "-a", "_a", "a b", "a\n", "é", &"x".repeat(256)] {
            assert!(ContainerId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_interface_name_is_valid_if_the_kernel_accepts_it() {
        for good in ["eth0", "a", "veth.1-2_3", "fifteen-bytes-1"] {
            assert!(IfName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a:b", "a b", "a\tb", "veth%d", "sixteen-bytes-16"] {
            assert!(IfName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_invalid_interface_name_is_reported_in_the_references_words() {
        for (bad, words) in [
            ("eth/0", "Interface name (eth/0) contains an invalid character /"),
            ("eth:0", "Interface name (eth:0) contains an invalid character :"),
            ("eth 0", "Interface name (eth 0) contains an invalid character ' '"),
            ("..", "interface name is . or .."),
            ("sixteen-bytes-16", "interface name is too long"),
        ] {
            let error = IfName::parse(bad).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_plugin_type_cannot_leave_the_plugin_directories() {
        assert!(PluginType::parse("host-local").is_ok());
        for bad in ["", "..", "../../bin/sh", "/bin/sh", "a\0b"] {
            assert!(PluginType::parse(bad).is_err(), "{bad}");
        }
    }
}
