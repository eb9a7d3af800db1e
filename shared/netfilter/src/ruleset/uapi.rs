//! Constants of the kernel's interface, from linux/netfilter/nf_tables.h, nfnetlink.h and netfilter.h.

/// Declares numbered constants of one type.
macro_rules! numbers {
    ($type:ty: $($name:ident = $value:expr),* $(,)?) => { $(pub const $name: $type = $value;)* };
}

// Families (NFPROTO_*).
numbers!(u8: NFPROTO_UNSPEC = 0, NFPROTO_INET = 1, NFPROTO_IPV4 = 2, NFPROTO_BRIDGE = 7, NFPROTO_IPV6 = 10);

// Transport protocols (RFC 5237's registry).
numbers!(u8: TCP = 6, UDP = 17, SCTP = 132);

/// The protocols whose clients may keep their port, so that the kernel's entry of a flow outlives a container.
pub const TRACKED_PROTOCOLS: [u8; 2] = [UDP, SCTP];

// Hooks (enum nf_inet_hooks; the bridge family numbers them alike).
numbers!(u32: NF_INET_PRE_ROUTING = 0, NF_INET_LOCAL_IN = 1, NF_INET_FORWARD = 2, NF_INET_LOCAL_OUT = 3, NF_INET_POST_ROUTING = 4);

// Verdicts (NF_* and enum nft_verdicts).
numbers!(i32: NF_DROP = 0, NF_ACCEPT = 1, NFT_JUMP = -3, NFT_GOTO = -4, NFT_RETURN = -5);

// Message types (enum nf_tables_msg_types), in the subsystem NFNL_SUBSYS_NFTABLES.
numbers!(u16:
    NFT_MSG_NEWTABLE = 0, NFT_MSG_GETTABLE = 1, NFT_MSG_DELTABLE = 2, NFT_MSG_NEWCHAIN = 3, NFT_MSG_GETCHAIN = 4, NFT_MSG_DELCHAIN = 5,
    NFT_MSG_NEWRULE = 6, NFT_MSG_GETRULE = 7, NFT_MSG_DELRULE = 8, NFT_MSG_NEWSET = 9, NFT_MSG_GETSET = 10, NFT_MSG_DELSET = 11,
    NFT_MSG_NEWSETELEM = 12, NFT_MSG_GETSETELEM = 13, NFT_MSG_DELSETELEM = 14, NFT_MSG_NEWGEN = 15, NFT_MSG_GETGEN = 16,
    NFNL_SUBSYS_NFTABLES = 10, NFNL_MSG_BATCH_BEGIN = 16, NFNL_MSG_BATCH_END = 17, NFNL_BATCH_GENID = 1,
    NFTA_GEN_ID = 1, NFTA_GEN_PROC_NAME = 3,
);

// Objects' attributes.
numbers!(u16:
    NFTA_TABLE_NAME = 1, NFTA_TABLE_USE = 3,
    NFTA_CHAIN_TABLE = 1, NFTA_CHAIN_NAME = 3, NFTA_CHAIN_HOOK = 4, NFTA_CHAIN_POLICY = 5, NFTA_CHAIN_TYPE = 7,
    NFTA_HOOK_HOOKNUM = 1, NFTA_HOOK_PRIORITY = 2,
    NFTA_RULE_CHAIN = 2, NFTA_RULE_HANDLE = 3, NFTA_RULE_EXPRESSIONS = 4,
    NFTA_RULE_POSITION = 6, NFTA_RULE_USERDATA = 7,
    NFTA_SET_NAME = 2, NFTA_SET_FLAGS = 3, NFTA_SET_KEY_TYPE = 4, NFTA_SET_KEY_LEN = 5,
    NFTA_SET_DATA_TYPE = 6, NFTA_SET_DATA_LEN = 7, NFTA_SET_ID = 10, NFTA_SET_USERDATA = 13,
    NFTA_SET_ELEM_LIST_SET = 2, NFTA_SET_ELEM_LIST_ELEMENTS = 3,
    NFTA_SET_ELEM_KEY = 1, NFTA_SET_ELEM_DATA = 2, NFTA_SET_ELEM_USERDATA = 6,
    NFTA_LIST_ELEM = 1, NFTA_DATA_VALUE = 1, NFTA_DATA_VERDICT = 2, NFTA_VERDICT_CODE = 1, NFTA_VERDICT_CHAIN = 2,
);
numbers!(u32: NFT_SET_MAP = 8);

// Expressions' attributes.
numbers!(u16:
    NFTA_EXPR_NAME = 1, NFTA_EXPR_DATA = 2,
    NFTA_IMMEDIATE_DREG = 1, NFTA_IMMEDIATE_DATA = 2,
    NFTA_META_DREG = 1, NFTA_META_KEY = 2, NFTA_META_SREG = 3,
    NFTA_CT_DREG = 1, NFTA_CT_KEY = 2, NFTA_CT_SREG = 4,
    NFTA_PAYLOAD_DREG = 1, NFTA_PAYLOAD_BASE = 2, NFTA_PAYLOAD_OFFSET = 3, NFTA_PAYLOAD_LEN = 4,
    NFTA_BITWISE_SREG = 1, NFTA_BITWISE_DREG = 2, NFTA_BITWISE_LEN = 3, NFTA_BITWISE_MASK = 4, NFTA_BITWISE_XOR = 5,
    NFTA_CMP_SREG = 1, NFTA_CMP_OP = 2, NFTA_CMP_DATA = 3,
    NFTA_RANGE_SREG = 1, NFTA_RANGE_OP = 2, NFTA_RANGE_FROM_DATA = 3, NFTA_RANGE_TO_DATA = 4,
    NFTA_LOOKUP_SET = 1, NFTA_LOOKUP_SREG = 2, NFTA_LOOKUP_DREG = 3, NFTA_LOOKUP_FLAGS = 5,
    NFTA_FIB_DREG = 1, NFTA_FIB_RESULT = 2, NFTA_FIB_FLAGS = 3,
    NFTA_MATCH_NAME = 1, NFTA_MATCH_REV = 2, NFTA_MATCH_INFO = 3,
    NFTA_TARGET_NAME = 1, NFTA_TARGET_REV = 2, NFTA_TARGET_INFO = 3,
    NFTA_NAT_TYPE = 1, NFTA_NAT_FAMILY = 2, NFTA_NAT_REG_ADDR_MIN = 3, NFTA_NAT_REG_PROTO_MIN = 5, NFTA_NAT_FLAGS = 7,
);

// Expressions' values.
numbers!(u32:
    NFT_META_MARK = 3, NFT_META_IIF = 4, NFT_META_IIFNAME = 6, NFT_META_OIFNAME = 7, NFT_META_NFPROTO = 15, NFT_META_L4PROTO = 16,
    NFT_CT_STATE = 0, NFT_CT_STATUS = 2, NFT_CT_MARK = 3, IPS_DST_NAT = 0x20,
    IP_CT_ESTABLISHED_BIT = 2, IP_CT_RELATED_BIT = 4,
    NFT_PAYLOAD_LL_HEADER = 0, NFT_PAYLOAD_NETWORK_HEADER = 1, NFT_PAYLOAD_TRANSPORT_HEADER = 2,
    NFT_CMP_EQ = 0, NFT_CMP_NEQ = 1, NFT_RANGE_EQ = 0, NFT_RANGE_NEQ = 1, NFT_LOOKUP_F_INV = 1,
    NFT_FIB_RESULT_ADDRTYPE = 3, NFTA_FIB_F_DADDR = 2, RTN_LOCAL = 2, NFT_NAT_DNAT = 1,
    LOOPBACK_IFINDEX = 1,
);

// Registers: the verdict's, and the 32-bit ones. A wider value uses several.
numbers!(u32: NFT_REG_VERDICT = 0, NFT_REG32_00 = 8);

/// The size of the name of a table, chain or set, with the NUL.
pub const NFT_NAME_MAXLEN: usize = 256;

/// A comment in the user data of a rule or element (`NFTNL_UDATA_RULE_COMMENT` of libnftnl).
pub const UDATA_COMMENT: u8 = 0;

/// Marks the byte order of a set's keys, for nft(8) to display them (`NFTNL_UDATA_SET_KEYBYTEORDER` of libnftnl).
pub const UDATA_KEY_BYTE_ORDER: u8 = 0;
/// `BYTEORDER_HOST_ENDIAN` of nftables.
pub const HOST_ORDER: u32 = 1;

// What NAT changes (linux/netfilter/nf_nat.h).
numbers!(u32: NF_NAT_RANGE_MAP_IPS = 1, NF_NAT_RANGE_PROTO_SPECIFIED = 2);
