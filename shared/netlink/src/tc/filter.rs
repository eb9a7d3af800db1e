//! Filters: redirecting received packets.

use super::{HEADER, header};
use crate::link::Link;
use crate::uapi::*;
use crate::wire::{Attributes, Message, read_i32, read_str, read_u32};
use crate::{Netlink, Result};

/// Parent of filters for received packets: of `clsact`, and of `ingress`.
pub const INGRESS: u32 = (TC_H_CLSACT & 0xffff_0000) | TC_H_MIN_INGRESS;

/// Parent of filters for sent packets: of `clsact`.
const EGRESS: u32 = (TC_H_CLSACT & 0xffff_0000) | TC_H_MIN_EGRESS;

/// `struct tc_mirred`: five numbers of every action (index, capabilities, verdict, two counts), the operation, the link.
const MIRRED: usize = 28;
const MIRRED_VERDICT: usize = 8;
const MIRRED_WHAT: usize = 20;
const MIRRED_LINK: usize = 24;

/// A filter of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The index of the link.
    pub link: u32,
    /// Handle. 0: the container of the filters of one precedence.
    pub handle: u32,
    /// Parent, such as [`INGRESS`].
    pub parent: u32,
    /// Precedence, the lowest first.
    pub precedence: u16,
    /// Protocol of the packets (ETH_P_*).
    pub protocol: u16,
    /// Its kind, such as `u32`.
    pub kind: String,
    /// Class of the packets, for kind `u32`.
    pub class: Option<u32>,
    /// Indexes of the links to which packets are redirected, for kind `u32`. 0: the link was deleted, and the kernel drops the packets.
    pub redirects: Vec<u32>,
}

impl Filter {
    /// Decodes the payload of an RTM_NEWTFILTER. `None` without a kind.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let attributes = Attributes::after(HEADER, payload);
        let info = read_u32(payload.get(16..)?)?;
        let mut filter = Self {
            link: read_u32(payload.get(4..)?)?,
            handle: read_u32(payload.get(8..)?)?,
            parent: read_u32(payload.get(12..)?)?,
            precedence: (info >> 16) as u16,
            protocol: u16::from_be(info as u16),
            kind: attributes.get(TCA_KIND).and_then(read_str)?.to_owned(),
            class: None,
            redirects: Vec::new(),
        };
        if filter.kind == "u32" {
            let options = Attributes::of(attributes.get(TCA_OPTIONS).unwrap_or_default());
            filter.class = options.get(TCA_U32_CLASSID).and_then(read_u32);
            let actions = Attributes::of(options.get(TCA_U32_ACT).unwrap_or_default());
            filter.redirects = actions.filter_map(|(_, action)| redirect(Attributes::of(action))).collect();
        }
        Some(filter)
    }

    /// Whether it is a filter, not the container of a precedence.
    pub fn decides(&self) -> bool {
        // For kind u32, containers are hash tables, whose handles have no node.
        if self.kind == "u32" { self.handle & 0xfff != 0 } else { self.handle != 0 }
    }

    fn header(&self) -> [u8; HEADER] {
        let info = u32::from(self.precedence) << 16 | u32::from(self.protocol.to_be());
        header(&Link { index: self.link, ..Link::default() }, self.handle, self.parent, info)
    }
}

/// Index of the link to which an action redirects.
fn redirect(action: Attributes<'_>) -> Option<u32> {
    let parms = Attributes::of(action.get(TCA_ACT_OPTIONS)?).get(TCA_MIRRED_PARMS)?;
    let is_mirred = action.get(TCA_ACT_KIND).and_then(read_str) == Some("mirred");
    let what = read_i32(parms.get(MIRRED_WHAT..)?)?;
    read_u32(parms.get(MIRRED_LINK..)?).filter(|_| is_mirred && what == TCA_EGRESS_REDIR)
}

/// A filter that redirects all packets received by a link, as if another link sent them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Precedence, the lowest first; at least 1.
    pub precedence: u16,
    /// Class of the packets. It has no effect without queueing, and marks the filter's owner.
    pub class: u32,
    /// Index of the sending link.
    pub to: u32,
}

impl Redirect {
    fn write(&self, message: &mut Message) {
        message.put_u32(TCA_U32_CLASSID, self.class);
        // `struct tc_u32_sel` with one key that matches every packet: a mask without bits.
        let mut selector = [0; 32];
        selector[0] = TC_U32_TERMINAL;
        selector[2] = 1;
        message.put(TCA_U32_SEL, &selector);
        message.nest(TCA_U32_ACT, |m| {
            m.nest(1, |m| {
                m.put_str(TCA_ACT_KIND, "mirred");
                m.nest(TCA_ACT_OPTIONS, |m| {
                    let mut parms = [0; MIRRED];
                    let numbers = [
                        (MIRRED_VERDICT, TC_ACT_STOLEN.cast_unsigned()),
                        (MIRRED_WHAT, TCA_EGRESS_REDIR.cast_unsigned()),
                        (MIRRED_LINK, self.to),
                    ];
                    for (place, number) in numbers {
                        parms[place..place + 4].copy_from_slice(&number.to_ne_bytes());
                    }
                    m.put(TCA_MIRRED_PARMS, &parms);
                });
            });
        });
    }
}

impl Netlink {
    /// Lists a link's filters for received packets, or with `out` for sent packets. Empty if the link has no parent for filters. The kernel
    /// may also list filters of kind `u32` of the other direction with the same precedence.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn filters(&self, link: &Link, out: bool) -> Result<Vec<Filter>> {
        let parent = if out { EGRESS } else { INGRESS };
        let message = Message::new(RTM_GETTFILTER, 0, &header(link, 0, parent, 0));
        match self.socket.dump(message, |_, payload| Filter::parse(payload)) {
            Ok(filters) => Ok(filters),
            Err(r) => match r.during("list filters of link", &link.name) {
                // `ingress` has no filters for sent packets. A link without either has none, like a kernel without filters.
                e if e.is_invalid() || e.is_missing() || e.is_unsupported() => Ok(Vec::new()),
                e => Err(e),
            },
        }
    }

    /// Redirects packets received by a link, unless an earlier filter decides otherwise.
    ///
    /// # Errors
    /// If the link has no parent for filters, another kind has the precedence, or the kernel refuses.
    pub fn add_redirect(&self, link: &Link, redirect: &Redirect) -> Result<()> {
        let info = u32::from(redirect.precedence) << 16 | u32::from(ETH_P_ALL.to_be());
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let mut message = Message::new(RTM_NEWTFILTER, flags, &header(link, 0, INGRESS, info));
        message.put_str(TCA_KIND, "u32");
        message.nest(TCA_OPTIONS, |m| redirect.write(m));
        self.order(message, "redirect packets that arrive at link", &link.name)
    }

    /// Deletes one filter, or, with handle 0, all of its precedence. Succeeds if it does not exist.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete_filter(&self, filter: &Filter) -> Result<()> {
        let mut message = Message::new(RTM_DELTFILTER, 0, &filter.header());
        message.put_str(TCA_KIND, &filter.kind);
        match self.order_if_it_exists(message, "remove filter of link number", filter.link) {
            // The parent no longer exists.
            Err(e) if e.is_invalid() => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_is_read_back() {
        let expected = Filter {
            link: 7,
            parent: INGRESS,
            precedence: 49152,
            protocol: ETH_P_ALL,
            kind: "u32".into(),
            class: Some(5),
            redirects: vec![9],
            ..Filter::default()
        };
        let mut message = Message::new(RTM_NEWTFILTER, 0, &expected.header());
        message.put_str(TCA_KIND, "u32");
        message.nest(TCA_OPTIONS, |m| Redirect { precedence: 49152, class: 5, to: 9 }.write(m));
        assert_eq!(Filter::parse(&message.finish(1)[16..]), Some(expected));
    }

    #[test]
    fn only_redirecting_actions_are_redirections() {
        let action = |kind: &str, what: i32| {
            let mut message = Message::new(0, 0, &[]);
            message.put_str(TCA_ACT_KIND, kind);
            message.nest(TCA_ACT_OPTIONS, |m| {
                let mut parms = [0; MIRRED];
                parms[MIRRED_WHAT..MIRRED_LINK].copy_from_slice(&what.to_ne_bytes());
                m.put(TCA_MIRRED_PARMS, &parms);
            });
            redirect(Attributes::of(&message.finish(1)[16..]))
        };
        assert_eq!(action("mirred", TCA_EGRESS_REDIR), Some(0));
        // 2: a copy.
        assert_eq!(action("mirred", 2), None);
        assert_eq!(action("gact", TCA_EGRESS_REDIR), None);
    }
}
