//! Link settings with a fixed set of values. Each value has the kernel's number and the name that `ip link` uses.

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

        /// The name that `ip link` uses.
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
    /// Layer of the ipvlans of a parent.
    IpvlanMode: u16 {
        /// Machines on the parent's network, with its hardware address.
        L2 = IPVLAN_MODE_L2, "l2";
        /// The parent routes for them; they receive no broadcast and no multicast.
        L3 = IPVLAN_MODE_L3, "l3";
        /// Like `L3`; packets also pass the firewall and connection tracking of the parent's namespace.
        L3s = IPVLAN_MODE_L3S, "l3s";
    }
}

setting! {
    /// Reachability between the ipvlans of a parent.
    IpvlanFlag: u16 {
        /// They reach each other.
        Bridge = 0, "bridge";
        /// They do not reach each other.
        Private = IPVLAN_F_PRIVATE, "private";
        /// They reach each other through an external switch that reflects their frames (IEEE 802.1Qbg).
        Vepa = IPVLAN_F_VEPA, "vepa";
    }
}

setting! {
    /// Reachability between the macvlans of a parent.
    MacvlanMode: u32 {
        /// They do not reach each other.
        Private = MACVLAN_MODE_PRIVATE, "private";
        /// They reach each other through an external switch that reflects their frames (IEEE 802.1Qbg).
        Vepa = MACVLAN_MODE_VEPA, "vepa";
        /// They reach each other.
        Bridge = MACVLAN_MODE_BRIDGE, "bridge";
        /// One macvlan has the parent alone, with its hardware address.
        Passthru = MACVLAN_MODE_PASSTHRU, "passthru";
        /// Only configured hardware addresses are reachable.
        Source = MACVLAN_MODE_SOURCE, "source";
    }
}

setting! {
    /// Kind of VLAN tag, by its standard.
    VlanProtocol: u16 {
        /// A customer's tag, the usual one.
        Customer = ETH_P_8021Q, "802.1Q";
        /// A provider's tag, possibly around a customer's.
        Provider = ETH_P_8021AD, "802.1ad";
    }
}
