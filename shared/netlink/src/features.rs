//! Offload features of links, as `ethtool -k` shows them. Uses ioctl(2) instead of netlink, with the requests of linux/ethtool.h.
//!
//! Generic netlink has the same features, but only from Linux 5.6, only with CONFIG_ETHTOOL_NETLINK, and through a second socket in the
//! namespace. The kernel accepts this ioctl on the socket of rtnetlink, and Linux 4.18 has it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::libc;

use crate::error::RequestError;
use crate::uapi::*;
use crate::wire::{read_str, read_u32};
use crate::{Link, Netlink, Result};

/// `struct ethtool_sset_info` with the size of one set.
const SET_INFO: usize = 20;

/// `struct ethtool_gstrings`, without its strings.
const STRINGS: usize = 12;

/// `struct ethtool_gfeatures` and `struct ethtool_sfeatures`, without their blocks.
const FEATURES: usize = 8;

/// `struct ethtool_get_features_block`, for 32 features.
const GET_BLOCK: usize = 16;

/// Maximum number of features. Linux has about 64.
const MOST: u32 = 4096;

/// A feature of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its position in the kernel's list.
    bit: usize,
    /// Whether it is on.
    pub active: bool,
    /// Whether it was requested. The kernel turns a requested feature off while it lacks another one that it depends on.
    pub requested: bool,
    /// Whether it can be changed on this link.
    pub changeable: bool,
}

/// All features that the kernel knows, with their state on a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    by_name: BTreeMap<String, Feature>,
    blocks: usize,
}

impl Features {
    /// The feature of a name, such as `rx-gro`.
    pub fn get(&self, name: &str) -> Option<Feature> {
        self.by_name.get(name).copied()
    }

    /// The names of the features that can be changed on the link.
    pub fn changeable(&self) -> impl Iterator<Item = &str> {
        self.by_name.iter().filter(|(_, feature)| feature.changeable).map(|(name, _)| name.as_str())
    }

    /// Decodes the names, and the blocks of the link's state. A feature without a block is left out.
    pub(crate) fn parse(names: &[u8], blocks: &[u8]) -> Self {
        let mut all = Self { by_name: BTreeMap::new(), blocks: blocks.len() / GET_BLOCK };
        for (bit, name) in names.chunks_exact(ETH_GSTRING_LEN).enumerate() {
            let name = read_str(name).unwrap_or_default();
            let block = blocks.chunks_exact(GET_BLOCK).nth(bit / 32);
            if let (false, Some(block)) = (name.is_empty(), block) {
                let is_set = |offset: usize| {
                    let mask = block.get(offset..).and_then(read_u32).unwrap_or_default();
                    mask & 1 << (bit % 32) != 0
                };
                let feature = Feature {
                    bit,
                    active: is_set(8),
                    requested: is_set(4),
                    changeable: is_set(0) && !is_set(12),
                };
                all.by_name.insert(name.to_owned(), feature);
            }
        }
        all
    }

    /// `struct ethtool_sfeatures`: for each feature whether it is changed, and whether it is requested.
    fn request(&self, values: &BTreeMap<String, bool>) -> Vec<u8> {
        let mut blocks = vec![[0_u32; 2]; self.blocks];
        for (name, on) in values {
            let changed = self.get(name).filter(|feature| feature.changeable);
            if let Some((bit, block)) =
                changed.and_then(|feature| Some((feature.bit % 32, blocks.get_mut(feature.bit / 32)?)))
            {
                block[0] |= 1 << bit;
                block[1] |= u32::from(*on) << bit;
            }
        }
        let header = [ETHTOOL_SFEATURES, self.blocks as u32];
        header.iter().chain(blocks.as_flattened()).flat_map(|number| number.to_ne_bytes()).collect()
    }
}

impl Netlink {
    /// The features of a link.
    ///
    /// # Errors
    /// If the link no longer exists, or the kernel refuses the request.
    pub fn features(&self, link: &Link) -> Result<Features> {
        self.read_features(link).map_err(|r| r.during("read the offload features of link", &link.name))
    }

    #[allow(unsafe_code)]
    fn read_features(&self, link: &Link) -> Result<Features, RequestError> {
        let malformed =
            || RequestError::own(ErrorKind::InvalidData, "the kernel's list of features is malformed");
        let mut info = request(&[ETHTOOL_GSSET_INFO, 0], SET_INFO);
        info[8..16].copy_from_slice(&(1_u64 << ETH_SS_FEATURES).to_ne_bytes());
        // SAFETY: the buffer is large enough for the one set in the mask.
        unsafe { self.ethtool(link, &mut info)? };
        let count = info.get(16..).and_then(read_u32).unwrap_or_default();
        if count == 0 || count > MOST {
            return Err(malformed());
        }
        let mut names =
            request(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count], STRINGS + count as usize * ETH_GSTRING_LEN);
        // SAFETY: see `ethtool`. The number of features is a constant of the running kernel, so it has not grown since.
        unsafe { self.ethtool(link, &mut names)? };
        if names.get(8..).and_then(read_u32) != Some(count) {
            return Err(malformed());
        }
        let blocks = count.div_ceil(32);
        let mut state = request(&[ETHTOOL_GFEATURES, blocks], FEATURES + blocks as usize * GET_BLOCK);
        // SAFETY: the buffer has the number of blocks that its header says.
        unsafe { self.ethtool(link, &mut state)? };
        Ok(Features::parse(&names[STRINGS..], &state[FEATURES..]))
    }

    /// Turns features on or off. `known` is the link's list. Names that it does not contain, and features that cannot be changed on the
    /// link, are ignored. The kernel may also turn off features that depend on these, and keeps a feature off that depends on another:
    /// read the list again.
    ///
    /// # Errors
    /// If the link no longer exists, or the kernel refuses the request.
    #[allow(unsafe_code)]
    pub fn set_features(&self, link: &Link, known: &Features, values: &BTreeMap<String, bool>) -> Result<()> {
        // SAFETY: the buffer has the number of blocks that its header says, and the kernel only reads it.
        unsafe { self.ethtool(link, &mut known.request(values)) }
            .map_err(|r| r.during("change the offload features of link", &link.name))
    }

    /// Sends a request, and receives the answer in the same bytes. The kernel finds the link by its name.
    ///
    /// # Safety
    /// `bytes` must be as long as the request's header says: the kernel writes as many elements as there.
    #[allow(unsafe_code)]
    unsafe fn ethtool(&self, link: &Link, bytes: &mut [u8]) -> Result<(), RequestError> {
        let data = libc::__c_anonymous_ifr_ifru { ifru_data: bytes.as_mut_ptr().cast() };
        let mut request = libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru: data };
        if link.name.len() >= request.ifr_name.len() {
            return Err(Errno::ENAMETOOLONG.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(link.name.bytes()) {
            *to = from.cast_signed() as libc::c_char;
        }
        // SAFETY: the descriptor is open, the request is a complete `struct ifreq`, and the caller has made the buffer large enough.
        let outcome = unsafe {
            libc::ioctl(self.socket.as_fd().as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request)
        };
        Ok(Errno::result(outcome).map(drop)?)
    }
}

/// A buffer that begins with these numbers.
fn request(numbers: &[u32], length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    bytes.resize(length, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `struct ethtool_set_features_block`.
    const SET_BLOCK: usize = 8;

    fn names(names: &[&str]) -> Vec<u8> {
        let name = |name: &&str| {
            let mut bytes = name.as_bytes().to_vec();
            bytes.resize(ETH_GSTRING_LEN, 0);
            bytes
        };
        names.iter().flat_map(name).collect()
    }

    fn block(available: u32, requested: u32, active: u32, never_changed: u32) -> Vec<u8> {
        request(&[available, requested, active, never_changed], GET_BLOCK)
    }

    #[test]
    fn a_feature_is_found_by_name_in_the_block_of_its_number() {
        let mut all = vec!["tx-sg", "", "rx-gro", "tx-lockless"];
        all.resize(34, "");
        all[33] = "rx-gro-list";
        let blocks = [block(0b1101, 0b0001, 0b1000, 0b1000), block(0b10, 0b10, 0b10, 0)].concat();
        let features = Features::parse(&names(&all), &blocks);
        let found = features.get("tx-sg").unwrap();
        assert_eq!((found.active, found.requested, found.changeable), (false, true, true));
        assert!(!features.get("tx-lockless").unwrap().changeable);
        assert!(features.get("rx-gro-list").unwrap().active);
        assert_eq!((features.get(""), features.get("rx")), (None, None));
        assert_eq!(features.changeable().collect::<Vec<_>>(), ["rx-gro", "rx-gro-list", "tx-sg"]);
    }

    #[test]
    fn only_the_changeable_features_are_requested() {
        let mut all = vec!["tx-sg", "rx-gro", "tx-lockless"];
        all.resize(34, "");
        all[33] = "rx-gro-list";
        let features = Features::parse(&names(&all), &[block(0b011, 0, 0, 0), block(0b10, 0, 0, 0)].concat());
        let values =
            [("tx-sg", false), ("rx-gro", true), ("tx-lockless", true), ("x", true), ("rx-gro-list", true)];
        let values = values.into_iter().map(|(name, on)| (name.to_owned(), on)).collect();
        assert_eq!(
            features.request(&values),
            request(&[ETHTOOL_SFEATURES, 2, 0b11, 0b10, 0b10, 0b10], FEATURES + 2 * SET_BLOCK)
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_cause_no_panic(
            names in proptest::collection::vec(any::<u8>(), 0..256),
            blocks in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let features = Features::parse(&names, &blocks);
            let all = features.by_name.keys().map(|name| (name.clone(), true)).collect();
            prop_assert_eq!(features.request(&all).len(), FEATURES + features.blocks * SET_BLOCK);
        }
    }
}
