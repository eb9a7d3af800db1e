"""Sends SCTP packets INIT (RFC 9260, section 3.3.2) from a fixed port, or waits for one. No kernel module for SCTP is needed.

sctp.py receive FILE                    creates FILE when a packet arrives
sctp.py send ADDRESS PORT FILE          sends until FILE exists
"""
import os
import socket
import struct
import sys
import time

ATTEMPTS, PAUSE = 120, 0.25


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def init(port):
    chunk = struct.pack("!BBHIIHHI", 1, 0, 20, 0x1234, 65535, 1, 1, 1)
    ports = struct.pack("!HHI", port, port, 0)
    return ports + struct.pack("<I", crc32c(ports + bytes(4) + chunk)) + chunk


packets = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_SCTP)
if sys.argv[1] == "receive":
    packets.settimeout(ATTEMPTS * PAUSE)
    packets.recv(2000)
    open(sys.argv[2], "w").close()
else:
    address, port, file = sys.argv[2], int(sys.argv[3]), sys.argv[4]
    for _ in range(ATTEMPTS):
        packets.sendto(init(port), (address, 0))
        time.sleep(PAUSE)
        if os.path.exists(file):
            sys.exit()
    sys.exit(f"nothing at {address} port {port}")
