//! Settings of links that are one of several: each has a number in the kernel's interface, and a name that `ip link` writes.

use std::fmt;

use crate::uapi::*;

macro_rules! setting {
    ($(#[$about:meta])* $name:ident: $number:ty { $($(#[$meaning:meta])* $value:ident = $code:expr, $text:literal;)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$meaning])* $value,)+
        }

        impl $name {
            pub(super) fn of(number: $number) -> Option<Self> {
                [$(Self::$value),+].into_iter().find(|value| value.number() == number)
            }

            pub(super) const fn number(self) -> $number {
                match self {
                    $(Self::$value => $code,)+
                }
            }
        }

        /// As `ip link` writes it.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$value => $text,)+
                })
            }
        }
    };
}

setting! {
    /// The layer that the ipvlans of a parent work on.
    IpvlanMode: u16 {
        /// They are on the parent's network, as machines with its hardware address.
        L2 = IPVLAN_MODE_L2, "l2";
        /// The parent routes for them; they hear no broadcast and no multicast.
        L3 = IPVLAN_MODE_L3, "l3";
        /// As `L3`, and their packets pass the firewall and connection tracking of the parent's namespace.
        L3s = IPVLAN_MODE_L3S, "l3s";
    }
}

setting! {
    /// Whom the ipvlans of a parent can talk to.
    IpvlanFlag: u16 {
        /// To each other.
        Bridge = 0, "bridge";
        /// Not to each other.
        Private = IPVLAN_F_PRIVATE, "private";
        /// To each other by way of a switch outside that reflects their frames (IEEE 802.1Qbg).
        Vepa = IPVLAN_F_VEPA, "vepa";
    }
}

setting! {
    /// Whom the macvlans of a parent can talk to.
    MacvlanMode: u32 {
        /// Not to each other.
        Private = MACVLAN_MODE_PRIVATE, "private";
        /// To each other by way of a switch outside that reflects their frames (IEEE 802.1Qbg).
        Vepa = MACVLAN_MODE_VEPA, "vepa";
        /// To each other.
        Bridge = MACVLAN_MODE_BRIDGE, "bridge";
        /// One alone has the parent, and its hardware address.
        Passthru = MACVLAN_MODE_PASSTHRU, "passthru";
        /// Only to those hardware addresses that it is told.
        Source = MACVLAN_MODE_SOURCE, "source";
    }
}

setting! {
    /// The kind of a VLAN's tag, by the standard that describes it.
    VlanProtocol: u16 {
        /// A customer's tag, the usual one.
        Customer = ETH_P_8021Q, "802.1Q";
        /// A provider's tag, which may be around a customer's.
        Provider = ETH_P_8021AD, "802.1ad";
    }
}
