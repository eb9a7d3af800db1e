//! Filters: where to packets go that come in by a link.

use super::{HEADER, header};
use crate::link::Link;
use crate::uapi::*;
use crate::wire::{Attributes, Message, read_i32, read_str, read_u32};
use crate::{Netlink, Result};

/// Where the filters hang that see what comes in: of `clsact`, and of `ingress` too.
pub const INGRESS: u32 = (TC_H_CLSACT & 0xffff_0000) | TC_H_MIN_INGRESS;

/// Where the filters hang that see what goes out: of `clsact`.
const EGRESS: u32 = (TC_H_CLSACT & 0xffff_0000) | TC_H_MIN_EGRESS;

/// `struct tc_mirred`: five numbers of every action (index, capabilities, what comes after, two counts), what to do, the link.
const MIRRED: usize = 28;
const MIRRED_VERDICT: usize = 8;
const MIRRED_WHAT: usize = 20;
const MIRRED_LINK: usize = 24;

/// A filter of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The index of the link.
    pub link: u32,
    /// Its number. 0: it is the place that the others of the same precedence are in.
    pub handle: u32,
    /// What it hangs on, such as [`INGRESS`].
    pub parent: u32,
    /// The lowest comes first.
    pub precedence: u16,
    /// What it looks at (ETH_P_*).
    pub protocol: u16,
    /// Its kind, such as `u32`.
    pub kind: String,
    /// Of a filter of kind `u32`: the class that packets are put into.
    pub class: Option<u32>,
    /// Of a filter of kind `u32`: the indexes of the links that packets are redirected to. 0: one that is gone; the kernel drops them.
    pub redirects: Vec<u32>,
}

impl Filter {
    /// Decodes the payload of an RTM_NEWTFILTER. None for one without a kind.
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

    /// Whether it decides about packets. The others are the places of a precedence that such filters are in.
    pub fn decides(&self) -> bool {
        // Of kind u32, the places are hash tables, whose numbers have no node.
        if self.kind == "u32" { self.handle & 0xfff != 0 } else { self.handle != 0 }
    }

    fn header(&self) -> [u8; HEADER] {
        let info = u32::from(self.precedence) << 16 | u32::from(self.protocol.to_be());
        header(&Link { index: self.link, ..Link::default() }, self.handle, self.parent, info)
    }
}

/// The link that an action redirects to.
fn redirect(action: Attributes<'_>) -> Option<u32> {
    let parms = Attributes::of(action.get(TCA_ACT_OPTIONS)?).get(TCA_MIRRED_PARMS)?;
    let is_mirred = action.get(TCA_ACT_KIND).and_then(read_str) == Some("mirred");
    let what = read_i32(parms.get(MIRRED_WHAT..)?)?;
    read_u32(parms.get(MIRRED_LINK..)?).filter(|_| is_mirred && what == TCA_EGRESS_REDIR)
}

/// A filter that redirects all that comes in by a link, as if another link were to send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The lowest comes first; 1 at least.
    pub precedence: u16,
    /// A mark for whoever reads the filter: the class that packets are put into, which means nothing where nothing is queued.
    pub class: u32,
    /// The index of the link that is to send the packets.
    pub to: u32,
}

impl Redirect {
    fn write(&self, message: &mut Message) {
        message.put_u32(TCA_U32_CLASSID, self.class);
        // `struct tc_u32_sel` with one key that is in every packet: a mask of no bits.
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
    /// The filters of a link on what comes in; with `out`, those on what goes out. None, too, if the link has no place for filters.
    /// The kernel may list filters of kind `u32` of the other direction as well, if they have the same precedence.
    ///
    /// # Errors
    /// If the kernel refuses to tell.
    pub fn filters(&self, link: &Link, out: bool) -> Result<Vec<Filter>> {
        let parent = if out { EGRESS } else { INGRESS };
        let message = Message::new(RTM_GETTFILTER, 0, &header(link, 0, parent, 0));
        match self.socket.dump(message, |_, payload| Filter::parse(payload)) {
            Ok(filters) => Ok(filters),
            Err(r) => match r.during("list filters of link", &link.name) {
                // `ingress` has no filters of what goes out, and a link without either has none at all, like a kernel without filters.
                e if e.is_invalid() || e.is_missing() || e.is_unsupported() => Ok(Vec::new()),
                e => Err(e),
            },
        }
    }

    /// Redirects what comes in by a link, unless a filter that comes before decides otherwise.
    ///
    /// # Errors
    /// If the link has no place for filters, if the precedence is another kind's, or if the kernel refuses.
    pub fn add_redirect(&self, link: &Link, redirect: &Redirect) -> Result<()> {
        let info = u32::from(redirect.precedence) << 16 | u32::from(ETH_P_ALL.to_be());
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let mut message = Message::new(RTM_NEWTFILTER, flags, &header(link, 0, INGRESS, info));
        message.put_str(TCA_KIND, "u32");
        message.nest(TCA_OPTIONS, |m| redirect.write(m));
        self.order(message, "redirect what comes in by link", &link.name)
    }

    /// Removes one filter; if its handle is 0, all of its precedence. That it is gone already is fine.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn delete_filter(&self, filter: &Filter) -> Result<()> {
        let mut message = Message::new(RTM_DELTFILTER, 0, &filter.header());
        message.put_str(TCA_KIND, &filter.kind);
        match self.order_if_there(message, "remove filter of link number", filter.link) {
            // Its place is gone, too.
            Err(e) if e.is_invalid() => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_redirected_is_read_back() {
        let wanted = Filter {
            link: 7,
            parent: INGRESS,
            precedence: 49152,
            protocol: ETH_P_ALL,
            kind: "u32".into(),
            class: Some(5),
            redirects: vec![9],
            ..Filter::default()
        };
        let mut message = Message::new(RTM_NEWTFILTER, 0, &wanted.header());
        message.put_str(TCA_KIND, "u32");
        message.nest(TCA_OPTIONS, |m| Redirect { precedence: 49152, class: 5, to: 9 }.write(m));
        assert_eq!(Filter::parse(&message.finish(1)[16..]), Some(wanted));
    }

    #[test]
    fn only_what_redirects_is_a_redirection() {
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
