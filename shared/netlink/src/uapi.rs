//! Numbers of the kernel's interface, by their names in the kernel's headers (include/uapi/linux).

#![allow(missing_docs)]

// netlink.h
pub const NLMSG_ERROR: u16 = 2;
pub const NLMSG_DONE: u16 = 3;
pub const NLMSG_MIN_TYPE: u16 = 16;
pub const NLM_F_REQUEST: u16 = 0x1;
pub const NLM_F_ACK: u16 = 0x4;
pub const NLM_F_ECHO: u16 = 0x8;
pub const NLM_F_DUMP_INTR: u16 = 0x10;
pub const NLM_F_EXCL: u16 = 0x200;
pub const NLM_F_CREATE: u16 = 0x400;
pub const NLM_F_APPEND: u16 = 0x800;
pub const NLM_F_DUMP: u16 = 0x300;
pub const NLM_F_CAPPED: u16 = 0x100;
pub const NLM_F_ACK_TLVS: u16 = 0x200;
pub const NLMSGERR_ATTR_MSG: u16 = 1;
pub const NETLINK_ADD_MEMBERSHIP: i32 = 1;
pub const NETLINK_DROP_MEMBERSHIP: i32 = 2;
pub const NETLINK_CAP_ACK: i32 = 10;
pub const NETLINK_EXT_ACK: i32 = 11;
pub const NETLINK_GET_STRICT_CHK: i32 = 12;
pub const NLA_F_NESTED: u16 = 0x8000;
pub const NLA_TYPE_MASK: u16 = 0x3fff;

// rtnetlink.h
pub const RTM_NEWLINK: u16 = 16;
pub const RTM_DELLINK: u16 = 17;
pub const RTM_GETLINK: u16 = 18;
pub const RTM_SETLINK: u16 = 19;
pub const RTM_NEWADDR: u16 = 20;
pub const RTM_DELADDR: u16 = 21;
pub const RTM_GETADDR: u16 = 22;
pub const RTM_NEWROUTE: u16 = 24;
pub const RTM_GETROUTE: u16 = 26;
pub const RTM_DELNEIGH: u16 = 29;
pub const RTM_GETNSID: u16 = 90;
pub const RTNLGRP_LINK: u32 = 1;
pub const RTNLGRP_IPV4_IFADDR: u32 = 5;
pub const RTNLGRP_IPV6_IFADDR: u32 = 9;
pub const RTEXT_FILTER_BRVLAN_COMPRESSED: u32 = 4;
pub const RTEXT_FILTER_SKIP_STATS: u32 = 8;
pub const RTA_DST: u16 = 1;
pub const RTA_OIF: u16 = 4;
pub const RTA_GATEWAY: u16 = 5;
pub const RTA_PRIORITY: u16 = 6;
pub const RTA_PREFSRC: u16 = 7;
pub const RTA_METRICS: u16 = 8;
pub const RTA_MULTIPATH: u16 = 9;
pub const RTA_TABLE: u16 = 15;
pub const RTA_VIA: u16 = 18;
pub const RTAX_MTU: u16 = 2;
pub const RTAX_ADVMSS: u16 = 8;
pub const RT_TABLE_UNSPEC: u8 = 0;
pub const RT_TABLE_MAIN: u32 = 254;
pub const RT_TABLE_LOCAL: u32 = 255;
pub const RTPROT_BOOT: u8 = 3;
pub const RTN_UNICAST: u8 = 1;
pub const RTN_LOCAL: u8 = 2;
pub const RT_SCOPE_UNIVERSE: u8 = 0;
pub const RT_SCOPE_LINK: u8 = 253;
pub const RTM_F_CLONED: u32 = 0x200;

// if.h
pub const IFF_UP: u32 = 0x1;
pub const IFF_PROMISC: u32 = 0x100;
pub const IFF_ALLMULTI: u32 = 0x200;

// if_link.h
pub const IFLA_ADDRESS: u16 = 1;
pub const IFLA_IFNAME: u16 = 3;
pub const IFLA_MTU: u16 = 4;
pub const IFLA_LINK: u16 = 5;
pub const IFLA_MASTER: u16 = 10;
pub const IFLA_PROTINFO: u16 = 12;
pub const IFLA_TXQLEN: u16 = 13;
pub const IFLA_OPERSTATE: u16 = 16;
pub const IFLA_LINKINFO: u16 = 18;
pub const IFLA_IFALIAS: u16 = 20;
pub const IFLA_AF_SPEC: u16 = 26;
pub const IFLA_GROUP: u16 = 27;
pub const IFLA_NET_NS_FD: u16 = 28;
pub const IFLA_EXT_MASK: u16 = 29;
pub const IFLA_LINK_NETNSID: u16 = 37;
pub const IFLA_ALT_IFNAME: u16 = 53;
pub const IFLA_PARENT_DEV_NAME: u16 = 56;
pub const IFLA_INFO_KIND: u16 = 1;
pub const IFLA_INFO_DATA: u16 = 2;
pub const IFLA_INFO_SLAVE_KIND: u16 = 4;
pub const IFLA_INFO_SLAVE_DATA: u16 = 5;
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
pub const IFLA_BRPORT_MODE: u16 = 4;
pub const IFLA_BRPORT_ISOLATED: u16 = 33;

// veth.h
pub const VETH_INFO_PEER: u16 = 1;

// if_bridge.h
pub const IFLA_BRIDGE_FLAGS: u16 = 0;
pub const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
pub const BRIDGE_FLAGS_SELF: u16 = 2;
pub const BRIDGE_VLAN_INFO_PVID: u16 = 0x2;
pub const BRIDGE_VLAN_INFO_UNTAGGED: u16 = 0x4;
pub const BRIDGE_VLAN_INFO_RANGE_BEGIN: u16 = 0x8;
pub const BRIDGE_VLAN_INFO_RANGE_END: u16 = 0x10;

// if_addr.h
pub const IFA_ADDRESS: u16 = 1;
pub const IFA_LOCAL: u16 = 2;
pub const IFA_BROADCAST: u16 = 4;
pub const IFA_FLAGS: u16 = 8;
pub const IFA_TARGET_NETNSID: u16 = 10;
pub const IFA_F_NODAD: u32 = 0x02;
pub const IFA_F_DADFAILED: u32 = 0x08;
pub const IFA_F_TENTATIVE: u32 = 0x40;
pub const IFA_F_NOPREFIXROUTE: u32 = 0x200;

// net_namespace.h
pub const NETNSA_NSID: u16 = 1;
pub const NETNSA_FD: u16 = 3;

// neighbour.h
pub const NDA_DST: u16 = 1;

// socket.h
pub const AF_UNSPEC: u8 = 0;
pub const AF_INET: u8 = 2;
pub const AF_BRIDGE: u8 = 7;
pub const AF_INET6: u8 = 10;
