//! Versions of the specification and their differences.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::{Code, Error, Result};

/// A published version of the CNI specification, ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Version {
    V0_1_0,
    V0_2_0,
    V0_3_0,
    V0_3_1,
    V0_4_0,
    V1_0_0,
    V1_1_0,
}

/// The release of containernetworking/plugins that Ferrule replaces, with the same commands, keys and files. Programs read it from a
/// plugin's output and decide by it which features to use.
pub const REFERENCE_RELEASE: &str = "1.9.1";

impl Version {
    /// All supported versions, oldest first.
    pub const ALL: [Self; 7] =
        [Self::V0_1_0, Self::V0_2_0, Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];
    /// The newest one.
    pub const LATEST: Self = Self::V1_1_0;
    /// The version of a document without `cniVersion`.
    pub const WHEN_ABSENT: Self = Self::V0_1_0;

    /// The value of `cniVersion`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Parses `cniVersion`. An empty string means [`Version::WHEN_ABSENT`].
    ///
    /// # Errors
    /// Code 1, naming the supported versions.
    pub fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Ok(Self::WHEN_ABSENT);
        }
        Self::ALL.into_iter().find(|v| v.as_str() == text).ok_or_else(|| {
            Error::new(Code::IncompatibleVersion, format!("cniVersion {text:?} is not supported"))
                .detail(format!("supported versions: {}", Self::list()))
        })
    }

    /// All supported versions, in one line.
    pub fn list() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }

    /// Checks that the addresses fit: results before 0.3.0 have one address of each family. Each item is whether an address is IPv4.
    ///
    /// # Errors
    /// Code 7 if there are more.
    pub fn check_fits(self, addresses: impl Iterator<Item = bool>) -> Result<()> {
        let mut counts = [0; 2];
        addresses.for_each(|is_v4| counts[usize::from(is_v4)] += 1);
        if self >= Self::V0_3_0 || counts.iter().all(|count| *count <= 1) {
            return Ok(());
        }
        // The reference's words, which callers compare.
        Err(Error::config(format!("CNI version {self} does not support more than 1 address per family")))
    }

    /// Whether a result of the other version has the same form: 0.1.0 and 0.2.0, 0.3.0 to 0.4.0, and 1.0.0 and later.
    pub fn same_format(self, other: Self) -> bool {
        let format = |v| (v >= Self::V0_3_0, v >= Self::V1_0_0);
        format(self) == format(other)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_reads_back_as_itself_and_they_are_in_order() {
        for version in Version::ALL {
            assert_eq!(Version::parse(version.as_str()).unwrap(), version);
        }
        assert!(Version::ALL.is_sorted());
    }

    #[test]
    fn a_configuration_without_a_version_is_treated_as_0_1_0_as_by_libcni() {
        assert_eq!(Version::parse("").unwrap(), Version::V0_1_0);
    }

    #[test]
    fn an_unknown_version_is_refused_with_the_supported_ones_named() {
        let error = Version::parse("9.9.9").unwrap_err();
        assert_eq!(error.code(), 1);
        assert!(error.msg().contains("9.9.9") && error.details().contains("0.3.1, 0.4.0"), "{error}");
    }
}
