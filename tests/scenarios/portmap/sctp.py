"""Sends SCTP packets (RFC 9260) between fixed ports, or waits for one. No kernel module for SCTP is needed.

sctp.py receive FILE                        creates FILE when a packet arrives
sctp.py send ADDRESS PORT CHUNK [FILE]      sends a packet with a chunk. With FILE, repeats it until FILE exists
"""
import os
import socket
import struct
import sys
import time

ATTEMPTS, PAUSE = 120, 0.25

# The verification tags that client and server choose.
CLIENT, SERVER = 0x1111, 0x2222


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


# Each chunk, with the tag of the packet: the one that the receiver has chosen.
CHUNKS = {
    "init": (0, struct.pack("!BBHIIHHI", 1, 0, 20, CLIENT, 65535, 1, 1, 1)),
    "init-ack": (CLIENT, struct.pack("!BBHIIHHI", 2, 0, 20, SERVER, 65535, 1, 1, 1)),
    "cookie-echo": (SERVER, struct.pack("!BBHI", 10, 0, 8, 7)),
    "cookie-ack": (CLIENT, struct.pack("!BBH", 11, 0, 4)),
    "data": (SERVER, struct.pack("!BBHIHHI", 0, 3, 20, 1, 0, 0, 0) + b"text"),
}


def packet(port, chunk):
    tag, chunk = CHUNKS[chunk]
    ports = struct.pack("!HHI", port, port, tag)
    return ports + struct.pack("<I", crc32c(ports + bytes(4) + chunk)) + chunk


packets = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_SCTP)
if sys.argv[1] == "receive":
    packets.settimeout(ATTEMPTS * PAUSE)
    packets.recv(2000)
    open(sys.argv[2], "w").close()
else:
    address, port, chunk = sys.argv[2], int(sys.argv[3]), sys.argv[4]
    for _ in range(ATTEMPTS):
        packets.sendto(packet(port, chunk), (address, 0))
        time.sleep(PAUSE)
        if len(sys.argv) == 5 or os.path.exists(sys.argv[5]):
            sys.exit()
    sys.exit(f"nothing at {address} port {port}")
