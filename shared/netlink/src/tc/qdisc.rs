//! Queueing disciplines: how a link queues packets that it sends.

use super::{HEADER, header};
use crate::link::Link;
use crate::uapi::*;
use crate::wire::{Attributes, Message, read_str, read_u32, read_u64};
use crate::{Netlink, Result};

/// Nanoseconds in a second.
const NANOSECONDS: u128 = 1_000_000_000;

/// Nanoseconds in a tick, the unit of a bucket's size in messages (`PSCHED_SHIFT`).
const TICK: u128 = 64;

/// Handle of clsact and of `ingress`.
const CLSACT: u32 = TC_H_CLSACT & 0xffff_0000;

/// `struct tc_tbf_qopt`: rate and peak rate of 12 bytes each, limit, buffer, mtu.
const TBF_PARMS: usize = 36;

/// A queueing discipline of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qdisc {
    /// The index of the link.
    pub link: u32,
    /// Handle, such as `1:` (0x1_0000). 0: created by the kernel.
    pub handle: u32,
    /// Parent: [`TC_H_ROOT`], or a class.
    pub parent: u32,
    /// Its kind, such as `tbf`.
    pub kind: String,
    /// Attributes of its kind, undecoded.
    options: Vec<u8>,
}

impl Qdisc {
    /// Decodes the payload of an RTM_NEWQDISC. `None` without a kind.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let attributes = Attributes::after(HEADER, payload);
        Some(Self {
            link: read_u32(payload.get(4..)?)?,
            handle: read_u32(payload.get(8..)?)?,
            parent: read_u32(payload.get(12..)?)?,
            kind: attributes.get(TCA_KIND).and_then(read_str).filter(|kind| !kind.is_empty())?.to_owned(),
            options: attributes.get(TCA_OPTIONS).unwrap_or_default().to_vec(),
        })
    }

    /// Whether it is the root of the link.
    pub fn is_root(&self) -> bool {
        self.parent == TC_H_ROOT
    }

    /// Parameters of a token bucket filter. `None` for another kind.
    pub fn tbf(&self) -> Option<Tbf> {
        if self.kind != "tbf" {
            return None;
        }
        let options = Attributes::of(&self.options);
        let parms = options.get(TCA_TBF_PARMS)?;
        let rate = u64::from(read_u32(parms.get(8..)?)?);
        Some(Tbf {
            rate: options.get(TCA_TBF_RATE64).and_then(read_u64).unwrap_or(rate),
            limit: read_u32(parms.get(24..)?)?,
            ticks: read_u32(parms.get(28..)?)?,
            burst: None,
        })
    }
}

/// A token bucket filter (tc-tbf(8)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tbf {
    /// Bytes per second.
    pub rate: u64,
    /// Maximum number of queued bytes; more are dropped.
    pub limit: u32,
    /// Size of the bucket as the time to fill it. Only the lower 32 bits of times over 275 seconds are reported.
    pub ticks: u32,
    /// Size of the bucket in bytes. `None`: given by `ticks`, the only value that can be read.
    pub burst: Option<u32>,
}

impl Tbf {
    /// Time to fill a bucket, in ticks.
    pub fn ticks_of(rate: u64, burst: u32) -> u128 {
        u128::from(burst) * NANOSECONDS / u128::from(rate.max(1)) / TICK
    }

    /// Size of a bucket in bytes, given the time to fill it.
    pub fn burst_of(rate: u64, ticks: u32) -> u128 {
        u128::from(ticks) * TICK * u128::from(rate) / NANOSECONDS
    }

    fn write(&self, message: &mut Message) {
        let mut parms = [0; TBF_PARMS];
        // Without a link layer, the kernel requires a table of transmission times.
        parms[1] = TC_LINKLAYER_ETHERNET;
        let rate = u32::try_from(self.rate);
        for (place, number) in [(8, rate.unwrap_or(u32::MAX)), (24, self.limit), (28, self.ticks)] {
            parms[place..place + 4].copy_from_slice(&number.to_ne_bytes());
        }
        message.put(TCA_TBF_PARMS, &parms);
        if rate.is_err() {
            message.put_u64(TCA_TBF_RATE64, self.rate);
        }
        message.put_optional(TCA_TBF_BURST, self.burst);
    }
}

impl Netlink {
    /// Lists the queueing disciplines of a link, or of all links.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn qdiscs(&self, link: Option<&Link>) -> Result<Vec<Qdisc>> {
        let none = Link::default();
        let message = Message::new(RTM_GETQDISC, 0, &header(link.unwrap_or(&none), 0, 0, 0));
        let all = self.socket.dump(message, |_, payload| Qdisc::parse(payload));
        let all = match all.map_err(|r| r.during("list", "queueing disciplines")) {
            // The kernel was built without them.
            Err(e) if e.is_unsupported() => Vec::new(),
            all => all?,
        };
        // The kernel cannot filter this list.
        Ok(all.into_iter().filter(|qdisc| link.is_none_or(|link| link.index == qdisc.link)).collect())
    }

    /// The root queueing discipline of a link, unless it is the kernel's default.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn root_qdisc(&self, link: &Link) -> Result<Option<Qdisc>> {
        Ok(self.qdiscs(Some(link))?.into_iter().find(|qdisc| qdisc.is_root() && qdisc.handle != 0))
    }

    /// Sets a token bucket filter as the root of a link. It replaces only the kernel's default.
    ///
    /// # Errors
    /// If the link has another root, or the kernel refuses.
    pub fn add_tbf(&self, link: &Link, handle: u32, tbf: &Tbf) -> Result<()> {
        self.put_tbf(link, handle, tbf, NLM_F_EXCL)
    }

    /// Sets a token bucket filter as the root of a link. It replaces any other.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn replace_tbf(&self, link: &Link, handle: u32, tbf: &Tbf) -> Result<()> {
        self.put_tbf(link, handle, tbf, NLM_F_REPLACE)
    }

    fn put_tbf(&self, link: &Link, handle: u32, tbf: &Tbf, flags: u16) -> Result<()> {
        let mut message = new_qdisc(link, handle, TC_H_ROOT, "tbf", flags);
        message.nest(TCA_OPTIONS, |m| tbf.write(m));
        self.order(message, "set token bucket filter of link", &link.name)
    }

    /// Restores a root queueing discipline as it was read.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn restore_qdisc(&self, link: &Link, qdisc: &Qdisc) -> Result<()> {
        let mut message = new_qdisc(link, qdisc.handle, qdisc.parent, &qdisc.kind, NLM_F_REPLACE);
        if !qdisc.options.is_empty() {
            message.put(TCA_OPTIONS, &qdisc.options);
        }
        self.order(message, "restore queueing discipline of link", &link.name)
    }

    /// Adds the parent for filters of received and sent packets to a link (clsact, Linux 4.5).
    ///
    /// # Errors
    /// If the link already has it, or its predecessor `ingress`, which excludes it; or if the kernel refuses.
    pub fn add_clsact(&self, link: &Link) -> Result<()> {
        // Without the handle, the kernel would replace `ingress`.
        let message = new_qdisc(link, CLSACT, TC_H_CLSACT, "clsact", NLM_F_EXCL);
        self.order(message, "add clsact to link", &link.name)
    }

    /// Deletes the parent for filters of a link, with all filters. Succeeds if it does not exist.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete_clsact(&self, link: &Link) -> Result<()> {
        self.delete_qdisc(link, CLSACT, TC_H_CLSACT, "clsact")
    }

    /// Deletes the root token bucket filter of a link if it has this handle.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete_tbf(&self, link: &Link, handle: u32) -> Result<()> {
        self.delete_qdisc(link, handle, TC_H_ROOT, "tbf")
    }

    fn delete_qdisc(&self, link: &Link, handle: u32, parent: u32, kind: &str) -> Result<()> {
        let mut message = Message::new(RTM_DELQDISC, 0, &header(link, handle, parent, 0));
        message.put_str(TCA_KIND, kind);
        match self.order_if_it_exists(message, "remove queueing discipline of link", &link.name) {
            // The kernel compares handle and kind. Without queueing disciplines, it does not know the request.
            Err(e) if e.is_invalid() || e.is_unsupported() => Ok(()),
            other => other,
        }
    }
}

fn new_qdisc(link: &Link, handle: u32, parent: u32, kind: &str, flags: u16) -> Message {
    let mut message = Message::new(RTM_NEWQDISC, NLM_F_CREATE | flags, &header(link, handle, parent, 0));
    message.put_str(TCA_KIND, kind);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(tbf: &Tbf) -> Option<Tbf> {
        let mut message = new_qdisc(&Link { index: 7, ..Link::default() }, 0x1_0000, TC_H_ROOT, "tbf", 0);
        message.nest(TCA_OPTIONS, |m| tbf.write(m));
        let qdisc = Qdisc::parse(&message.finish(1)[16..]).unwrap();
        assert_eq!((qdisc.link, qdisc.handle, qdisc.is_root()), (7, 0x1_0000, true));
        qdisc.tbf()
    }

    #[test]
    fn bucket_parameters_are_read_back_even_beyond_32_bits() {
        for rate in [1, 125_000, u64::from(u32::MAX), 1 << 32, 50_000_000_000, u64::MAX] {
            let tbf = Tbf { rate, limit: 3, ticks: 4, burst: None };
            assert_eq!(read_back(&tbf), Some(tbf));
        }
    }

    #[test]
    fn a_bucket_is_encoded_as_the_time_to_fill_it() {
        assert_eq!(Tbf::ticks_of(1_000_000, 100_000), 1_562_500);
        // 2147 s at 1 Mbit/s.
        assert_eq!(Tbf::ticks_of(125_000, (1 << 28) - 1), 33_554_431_875);
        assert_eq!(Tbf::burst_of(1_000_000, 1_562_500), 100_000);
        assert_eq!(Tbf::ticks_of(0, u32::MAX) >> 32, 15_624_999);
    }

    #[test]
    fn another_kind_is_not_a_bucket() {
        let other = Qdisc { kind: "fq".into(), ..Qdisc::default() };
        assert_eq!(other.tbf(), None);
        assert_eq!(Qdisc::parse(&[0; 20]), None);
    }
}
