"""Makes FLUSH understandable for rdma_rxe.

The kernel's table of opcodes (6.2 and later) has no payload offset for FLUSH,
so rxe assumes that the payload begins at the BTH: after the headers its ICRC
covers BTH, FETH and RETH a second time. Ours follows the specification, and
rxe drops the packet silently. This program sends, after each of our FLUSH
packets that leaves by the host's end of the link, a copy with rxe's ICRC. So
the rest of FLUSH can be tested.

As a program: flush_icrc.py INTERFACE; prints "ready" when it captures.
"""

import os
import socket
import struct
import subprocess
import sys
import zlib

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "apps"))
from places import Failure

_ETHERNET, _UDP, _BTH = 14, 8, 12
_FLUSH = 0x1C
_ROCE = 4791


def _ip_size(frame):
    """Size of the IP header, which has no options; 0 if it is no IP packet."""
    return {b"\x08\x00": 20, b"\x86\xdd": 40}.get(frame[12:14], 0)


def _masked(frame, ip_size):
    """Pseudo LRH, IP, UDP and BTH with all ones for what routers change."""
    ip = bytearray(frame[_ETHERNET:_ETHERNET + ip_size])
    if ip_size == 20:
        ip[1] = ip[8] = ip[10] = ip[11] = 0xFF
    else:
        ip[0] |= 0x0F
        ip[1] = ip[2] = ip[3] = ip[7] = 0xFF
    at = _ETHERNET + ip_size
    udp = bytearray(frame[at:at + _UDP])
    udp[6] = udp[7] = 0xFF
    bth = bytearray(frame[at + _UDP:at + _UDP + _BTH])
    bth[4] = 0xFF
    return b"\xff" * 8 + ip + udp + bth


def rewritten(frame):
    """The frame with rxe's ICRC if it is a FLUSH with a good one, or None."""
    ip_size = _ip_size(frame)
    bth = _ETHERNET + ip_size + _UDP
    if not ip_size or len(frame) <= bth + _BTH + 4 or frame[bth] != _FLUSH:
        return None
    if struct.unpack_from("!H", frame, bth - 6)[0] != _ROCE:
        return None
    icrc = zlib.crc32(_masked(frame, ip_size) + frame[bth + _BTH:-4])
    if struct.pack("<I", icrc) != frame[-4:]:
        return None
    icrc = zlib.crc32(frame[bth:-4], icrc)
    # Without a UDP checksum, which is not computed yet at this point.
    return frame[:bth - 2] + b"\0\0" + frame[bth:-4] + struct.pack("<I", icrc)


class Copies:
    """A process that does this on the host's end of `network`, until `close`.
    """

    def __init__(self, network):
        self.process = subprocess.Popen(
            network.host.prefix() + [sys.executable, __file__,
                                     network.host.device_of],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            self.close()
            raise Failure("flush_icrc.py does not run")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def main():
    every_protocol = 3
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW,
                      socket.htons(every_protocol))
    s.bind((sys.argv[1], 0))
    print("ready", flush=True)
    while True:
        frame, address = s.recvfrom(65536)
        if address[2] == socket.PACKET_OUTGOING:
            copy = rewritten(frame)
            if copy:
                s.send(copy)


if __name__ == "__main__":
    main()
