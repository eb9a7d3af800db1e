//! Constants of the kernel's interface, named as in its headers (include/uapi/linux).

#![allow(missing_docs)]

pub use nix::libc::{
    IFA_ADDRESS, IFA_BROADCAST, IFA_F_DADFAILED, IFA_F_HOMEADDRESS, IFA_F_MANAGETEMPADDR, IFA_F_NODAD,
    IFA_F_NOPREFIXROUTE, IFA_F_TENTATIVE, IFA_FLAGS, IFA_LABEL, IFA_LOCAL, IFLA_ADDRESS, IFLA_AF_SPEC,
    IFLA_ALT_IFNAME, IFLA_EXT_MASK, IFLA_GROUP, IFLA_IFALIAS, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND,
    IFLA_INFO_SLAVE_DATA, IFLA_INFO_SLAVE_KIND, IFLA_LINK, IFLA_LINK_NETNSID, IFLA_LINKINFO, IFLA_MASTER,
    IFLA_MTU, IFLA_NET_NS_FD, IFLA_NUM_RX_QUEUES, IFLA_NUM_TX_QUEUES, IFLA_OPERSTATE, IFLA_PARENT_DEV_NAME,
    IFLA_PROTINFO, IFLA_TXQLEN, NDA_DST, NETLINK_ADD_MEMBERSHIP, NETLINK_CAP_ACK, NETLINK_DROP_MEMBERSHIP,
    NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK, NUD_NOARP, NUD_PERMANENT, RT_SCOPE_LINK, RT_SCOPE_UNIVERSE,
    RT_TABLE_UNSPEC, RTA_DST, RTA_FLOW, RTA_GATEWAY, RTA_METRICS, RTA_MULTIPATH, RTA_OIF, RTA_PREFSRC,
    RTA_PRIORITY, RTA_TABLE, RTM_DELADDR, RTM_DELLINK, RTM_DELNEIGH, RTM_DELQDISC, RTM_DELROUTE, RTM_DELRULE,
    RTM_DELTFILTER, RTM_F_CLONED, RTM_GETADDR, RTM_GETLINK, RTM_GETNEIGH, RTM_GETNSID, RTM_GETQDISC,
    RTM_GETROUTE, RTM_GETRULE, RTM_GETTFILTER, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWQDISC, RTM_NEWROUTE,
    RTM_NEWRULE, RTM_NEWTFILTER, RTM_SETLINK, RTN_LOCAL, RTN_UNICAST, RTN_UNREACHABLE, RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV6_IFADDR, RTNLGRP_LINK, RTNLGRP_TC, RTPROT_BOOT, RTPROT_KERNEL, RTPROT_STATIC,
};

// netlink.h
pub const NLMSG_ERROR: u16 = 2;
pub const NLMSG_DONE: u16 = 3;
pub const NLMSG_MIN_TYPE: u16 = 16;
pub const NLM_F_REQUEST: u16 = 0x1;
pub const NLM_F_ACK: u16 = 0x4;
pub const NLM_F_ECHO: u16 = 0x8;
pub const NLM_F_DUMP_INTR: u16 = 0x10;
pub const NLM_F_REPLACE: u16 = 0x100;
pub const NLM_F_EXCL: u16 = 0x200;
pub const NLM_F_CREATE: u16 = 0x400;
pub const NLM_F_APPEND: u16 = 0x800;
pub const NLM_F_DUMP: u16 = 0x300;
pub const NLM_F_CAPPED: u16 = 0x100;
pub const NLM_F_ACK_TLVS: u16 = 0x200;
pub const NLMSGERR_ATTR_MSG: u16 = 1;
pub const NLA_F_NESTED: u16 = 0x8000;
pub const NLA_TYPE_MASK: u16 = 0x3fff;

// rtnetlink.h
pub const RTM_DELLINKPROP: u16 = 109;
pub const RTPROT_RA: u8 = 9;
pub const RTA_CACHEINFO: u16 = 12;
pub const RTA_VIA: u16 = 18;
pub const RTA_PREF: u16 = 20;
pub const RTA_ENCAP_TYPE: u16 = 21;
pub const RTA_ENCAP: u16 = 22;
pub const RTA_EXPIRES: u16 = 23;
pub const RTNH_F_ONLINK: u32 = 4;
pub const RTEXT_FILTER_BRVLAN_COMPRESSED: u32 = 4;
pub const RTEXT_FILTER_SKIP_STATS: u32 = 8;
pub const TCA_KIND: u16 = 1;
pub const TCA_OPTIONS: u16 = 2;
pub const RTAX_MTU: u16 = 2;
pub const RTAX_ADVMSS: u16 = 8;
pub const RT_TABLE_DEFAULT: u32 = 253;
pub const RT_TABLE_MAIN: u32 = 254;
pub const RT_TABLE_LOCAL: u32 = 255;

// neighbour.h
pub const NTF_EXT_LEARNED: u8 = 0x10;
pub const NTF_EXT_MANAGED: u32 = 1;
pub const NDA_FLAGS_EXT: u16 = 15;

// fib_rules.h
pub const FIB_RULE_INVERT: u32 = 2;
pub const FRA_SRC: u16 = 2;
pub const FRA_PRIORITY: u16 = 6;
pub const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
pub const FRA_TABLE: u16 = 15;
pub const FRA_PAD: u16 = 18;
pub const FRA_PROTOCOL: u16 = 21;
pub const FR_ACT_TO_TBL: u8 = 1;

// asm/param.h: clock ticks per second for programs, on every architecture but alpha
pub const USER_HZ: u32 = 100;

// if.h
pub const IFF_UP: u32 = 0x1;
pub const IFF_LOOPBACK: u32 = 0x8;
pub const IFF_PROMISC: u32 = 0x100;
pub const IFF_ALLMULTI: u32 = 0x200;

// if_link.h
pub const IFLA_PROP_LIST: u16 = 52;
pub const IFLA_PERM_ADDRESS: u16 = 54;
pub const IFLA_BR_VLAN_FILTERING: u16 = 7;
pub const IFLA_MACVLAN_MODE: u16 = 1;
pub const IFLA_MACVLAN_BC_QUEUE_LEN: u16 = 7;
pub const IFLA_TUN_OWNER: u16 = 1;
pub const IFLA_TUN_GROUP: u16 = 2;
pub const IFLA_TUN_TYPE: u16 = 3;
pub const IFLA_TUN_PERSIST: u16 = 6;
pub const IFLA_TUN_MULTI_QUEUE: u16 = 7;
pub const MACVLAN_MODE_PRIVATE: u32 = 1;
pub const MACVLAN_MODE_VEPA: u32 = 2;
pub const MACVLAN_MODE_BRIDGE: u32 = 4;
pub const MACVLAN_MODE_PASSTHRU: u32 = 8;
pub const MACVLAN_MODE_SOURCE: u32 = 16;
pub const IFLA_IPVLAN_MODE: u16 = 1;
pub const IFLA_IPVLAN_FLAGS: u16 = 2;
pub const IPVLAN_MODE_L2: u16 = 0;
pub const IPVLAN_MODE_L3: u16 = 1;
pub const IPVLAN_MODE_L3S: u16 = 2;
pub const IPVLAN_F_PRIVATE: u16 = 0x1;
pub const IPVLAN_F_VEPA: u16 = 0x2;
pub const IFLA_VRF_TABLE: u16 = 1;
pub const IFLA_VLAN_ID: u16 = 1;
pub const IFLA_VLAN_PROTOCOL: u16 = 5;
pub const IFLA_BRPORT_MODE: u16 = 4;
pub const IFLA_BRPORT_ISOLATED: u16 = 33;

// pkt_sched.h
pub const TC_H_ROOT: u32 = 0xffff_ffff;
pub const TC_H_CLSACT: u32 = 0xffff_fff1;
pub const TC_H_MIN_INGRESS: u32 = 0xfff2;
pub const TC_H_MIN_EGRESS: u32 = 0xfff3;
pub const TC_LINKLAYER_ETHERNET: u8 = 1;
pub const TCA_TBF_PARMS: u16 = 1;
pub const TCA_TBF_RATE64: u16 = 4;
pub const TCA_TBF_BURST: u16 = 6;

// pkt_cls.h, tc_act/tc_mirred.h
pub const TCA_U32_CLASSID: u16 = 1;
pub const TCA_U32_SEL: u16 = 5;
pub const TCA_U32_ACT: u16 = 7;
pub const TC_U32_TERMINAL: u8 = 1;
pub const TCA_ACT_KIND: u16 = 1;
pub const TCA_ACT_OPTIONS: u16 = 2;
pub const TC_ACT_STOLEN: i32 = 4;
pub const TCA_MIRRED_PARMS: u16 = 2;
pub const TCA_EGRESS_REDIR: i32 = 1;

// if_ether.h
pub const ETH_P_ALL: u16 = 0x0003;
pub const ETH_P_8021Q: u16 = 0x8100;
pub const ETH_P_8021AD: u16 = 0x88a8;

// veth.h
pub const VETH_INFO_PEER: u16 = 1;

// if_link.h, and the sysctls of IFLA_INET_CONF in ip.h and of IFLA_INET6_CONF in ipv6.h
pub const IFLA_INET_CONF: u16 = 1;
pub const IPV4_DEVCONF_FORWARDING: u16 = 1;
pub const IPV4_DEVCONF_ROUTE_LOCALNET: u16 = 26;
pub const IFLA_INET6_CONF: u16 = 2;
pub const DEVCONF_ACCEPT_RA: usize = 3;
pub const DEVCONF_DISABLE_IPV6: usize = 26;

// if_bridge.h
pub const IFLA_BRIDGE_FLAGS: u16 = 0;
pub const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
pub const BRIDGE_FLAGS_SELF: u16 = 2;
pub const BRIDGE_VLAN_INFO_PVID: u16 = 0x2;
pub const BRIDGE_VLAN_INFO_UNTAGGED: u16 = 0x4;
pub const BRIDGE_VLAN_INFO_RANGE_BEGIN: u16 = 0x8;
pub const BRIDGE_VLAN_INFO_RANGE_END: u16 = 0x10;

// if_addr.h
pub const IFA_F_OPTIMISTIC: u32 = 0x04;
pub const IFA_F_PERMANENT: u32 = 0x80;
pub const IFA_CACHEINFO: u16 = 6;
pub const IFA_RT_PRIORITY: u16 = 9;
pub const IFA_PROTO: u16 = 11;
pub const IFA_F_MCAUTOJOIN: u32 = 0x400;
pub const IFA_TARGET_NETNSID: u16 = 10;

// net_namespace.h
pub const NETNSA_NSID: u16 = 1;
pub const NETNSA_FD: u16 = 3;

// socket.h
pub const AF_UNSPEC: u8 = 0;
pub const AF_INET: u8 = 2;
pub const AF_BRIDGE: u8 = 7;
pub const AF_INET6: u8 = 10;

// ethtool.h
pub const ETHTOOL_GSTRINGS: u32 = 0x1b;
pub const ETHTOOL_GSSET_INFO: u32 = 0x37;
pub const ETHTOOL_GFEATURES: u32 = 0x3a;
pub const ETHTOOL_SFEATURES: u32 = 0x3b;
pub const ETH_SS_FEATURES: u32 = 4;
pub const ETH_GSTRING_LEN: usize = 32;
