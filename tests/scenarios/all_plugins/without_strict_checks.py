"""Starts a program for which the kernel refuses NETLINK_GET_STRICT_CHK, as before Linux 4.20 (seccomp(2))."""
import ctypes
import os
import platform
import struct
import sys

SETSOCKOPT = {"x86_64": 54, "aarch64": 208}[platform.machine()]
SOL_NETLINK, NETLINK_GET_STRICT_CHK, ENOPROTOOPT = 270, 12, 92
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW = 0x00050000, 0x7FFF0000
# Instructions: load a word of struct seccomp_data, compare it, return.
LOAD, IS_EQUAL, RETURN = 0x20, 0x15, 0x06


def instruction(code, value, if_false=0):
    return struct.pack("=HBBI", code, 0, if_false, value)


# The number of the call, and the low halves of its second and third argument.
conditions = [(0, SETSOCKOPT), (24, SOL_NETLINK), (32, NETLINK_GET_STRICT_CHK)]
program = []
for left, (offset, value) in zip((5, 3, 1), conditions):
    program += [instruction(LOAD, offset), instruction(IS_EQUAL, value, if_false=left)]
program += [instruction(RETURN, SECCOMP_RET_ERRNO | ENOPROTOOPT), instruction(RETURN, SECCOMP_RET_ALLOW)]

code = ctypes.create_string_buffer(b"".join(program))
filters = struct.pack("@HP", len(program), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filters, 0, 0):
    raise OSError(ctypes.get_errno(), "prctl")
os.execv(sys.argv[1], sys.argv[1:])
