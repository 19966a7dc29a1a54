# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Talks to a card from outside of the simulator, with scapy: ARP, RoCEv2 frames good and bad.

usage: bridge.py unix:PATH|tap:NAME SLOT_BYTES CONTROL_VERSION
"""

import fcntl
import random
import socket
import struct
import sys
import time

from scapy.all import ARP, IP, UDP, Ether, Raw, conf, raw, sniff
from scapy.contrib.roce import BTH
from scapy.supersocket import SuperSocket

CARD_MAC, CARD_IP = "02:be:c0:00:02:01", "192.0.2.1"
OUR_MAC, OUR_IP = "02:00:00:00:00:09", "192.0.2.9"
# Seconds for an answer that never comes; nothing is measured by it.
PATIENCE = 120


class Wire(SuperSocket):
    """The simulator's socket: one frame a message."""

    desc = "end of a simulated wire"

    def __init__(self, path):
        self.ins = self.outs = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ins.connect(path)

    def recv_raw(self, x=65535):
        return Ether, self.ins.recv(x), time.time()


def interface_up(name):
    """Sets the flag IFF_UP and an MTU for the card's longest frames, as `ip link` does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8922, struct.pack("16si", name.encode(), 9000))
        flags = struct.unpack("16sh", fcntl.ioctl(s, 0x8913, struct.pack("16sh", name.encode(), 0)))[1]
        fcntl.ioctl(s, 0x8914, struct.pack("16sh", name.encode(), flags | 1))


place, slot_bytes, version = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
kind, at = place.split(":", 1)
if kind == "tap":
    interface_up(at)
    wire = conf.L2socket(iface=at)
else:
    wire = Wire(at)


def ask_who_has():
    request = Ether(src=OUR_MAC, dst="ff:ff:ff:ff:ff:ff") / ARP(hwsrc=OUR_MAC, psrc=OUR_IP, pdst=CARD_IP)
    answer = wire.sr1(request, timeout=PATIENCE, verbose=0)
    assert answer is not None, "no answer to ARP"
    assert (answer[ARP].hwsrc, answer[ARP].psrc) == (CARD_MAC, CARD_IP), answer.summary()
    assert (answer.src, answer.dst, answer[ARP].op) == (CARD_MAC, OUR_MAC, 2), answer.summary()


def roce(body, dst=CARD_IP, src=OUR_IP, **fields):
    headers = Ether(src=OUR_MAC, dst=CARD_MAC) / IP(src=src, dst=dst, flags="DF") / UDP(sport=0xC009, dport=4791)
    pad = -len(body) % 4
    packet = headers / BTH(**{"opcode": "RC_SEND_ONLY", "padcount": pad, **fields})
    return packet / Raw(body + bytes(pad)) if body else packet


def damaged(frame, byte):
    frame = bytearray(raw(frame))
    frame[byte] ^= 0x10
    return bytes(frame)


def bring(frame):
    wire.send(Raw(raw(frame)) if kind == "unix" else Ether(raw(frame)))


rng = random.Random(1)
ask_who_has()
# Good ones for nobody. The last is shorter than Ethernet's least and so is filled up behind its CRC.
for length in (3, 1000, 0):
    bring(roce(rng.randbytes(length), dqpn=99, psn=5))
# For another end node; damaged behind the BTH and in it; cut short; too long for the card.
bring(roce(b"elsewhere...", dst="192.0.2.200", dqpn=99))
bring(damaged(roce(rng.randbytes(200), dqpn=99), 100))
bring(damaged(roce(rng.randbytes(200), dqpn=99), 49))
bring(raw(roce(rng.randbytes(200), dqpn=99))[:-9])
bring(bytes.fromhex(CARD_MAC.replace(":", "")) + bytes([0x55] * slot_bytes))
# A message that begins a control connection: the card answers, with a CRC that scapy agrees with.
hello = struct.pack("<IIII", 0x1234567, 0, version | 1 << 8 | 4 << 16, 8 | 1 << 8)
bring(roce(hello, dqpn=2, psn=0x100, ackreq=1))


def to_us(packet):
    return BTH in packet and packet.src == CARD_MAC and packet.dst == OUR_MAC


answers = sniff(opened_socket=wire, lfilter=to_us, count=1, timeout=PATIENCE)
assert answers, "no answer to a control message"
bth = answers[0][BTH]
assert bth.dqpn == 2, answers[0].summary()
assert struct.pack("!I", bth.icrc) == bth.compute_icrc(raw(bth)), answers[0].show(dump=True)
# And it is alive after all this.
ask_who_has()
