# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the frames of OURS with scapy's RoCE layer and says what it sees; makes frames with it and says what is in them.

usage: formats.py OURS.pcap SEEN.txt THEIRS.pcap MADE.txt SEED

Both text files have one line per frame: tab-separated key=value, numbers in decimal, bytes in hex.
"""

import random
import struct
import sys

from scapy.all import IP, UDP, Ether, IPv6, Raw, raw, rdpcap, wrpcap
from scapy.contrib.roce import AETH, BTH, CNP_OPCODE, cnp

ours, seen, theirs, made, seed = sys.argv[1:]
rng = random.Random(int(seed))

BTH_FIELDS = {
    "opcode": "opcode", "se": "solicited", "m": "migreq", "pad": "padcount", "pkey": "pkey",
    "fecn": "fecn", "becn": "becn", "qpn": "dqpn", "a": "ackreq", "psn": "psn",
}


def mac(text):
    return text.replace(":", "")


def line(fields):
    return "\t".join(f"{k}={v}" for k, v in fields.items()) + "\n"


def seen_fields(p):
    f = {"to": mac(p.dst), "from": mac(p.src), "sport": p[UDP].sport}
    for key, name in BTH_FIELDS.items():
        f[key] = int(getattr(p[BTH], name))
    if AETH in p:
        f["syndrome"], f["msn"] = p[AETH].syndrome, p[AETH].msn
    body = raw(p[BTH].payload)
    f["body"] = body.hex()
    # scapy gives the CRC's bytes in the order of the wire.
    f["crc"] = struct.pack("!I", p[BTH].icrc).hex()
    again = p[BTH].compute_icrc(raw(p[BTH]))
    f["crc_wanted"] = again.hex()
    return f


with open(seen, "w") as out:
    for packet in rdpcap(ours):
        out.write(line(seen_fields(packet)))

# Bytes of the extended headers by operation: what scapy's layer leaves to its user, from the specification's tables.
SEND_IMM, WRITE_IMM = (3, 5), (9, 11)
RETH, ATOMIC, ACKS = (6, 10, 11, 12), (19, 20), (13, 15, 16, 17, 18)
RESPONSES = (13, 14, 15, 16, 17, 18)
NO_PAYLOAD = (12, 17, 18, 19, 20)


def u(bits):
    return rng.getrandbits(bits)


def extended(opcode, f):
    """The extended headers' bytes; notes their fields."""
    service, op = opcode >> 5, opcode & 31
    b = b""
    if service == 2:
        f["eec"] = u(24)
        b += struct.pack("!I", f["eec"])
    if service == 3 or service == 2 and op not in RESPONSES:
        f["qkey"], f["srcqp"] = u(32), u(24)
        b += struct.pack("!II", f["qkey"], f["srcqp"])
    if op in RETH:
        f["va"], f["rkey"], f["dmalen"] = u(64), u(32), u(32)
        b += struct.pack("!QII", f["va"], f["rkey"], f["dmalen"])
    if op in ATOMIC:
        f["va"], f["rkey"], f["swap"], f["cmp"] = u(64), u(32), u(64), u(64)
        b += struct.pack("!QIQQ", f["va"], f["rkey"], f["swap"], f["cmp"])
    if op in ACKS:
        f["syndrome"], f["msn"] = u(8), u(24)
        b += raw(AETH(syndrome=f["syndrome"], msn=f["msn"]))
    if op == 18:
        f["orig"] = u(64)
        b += struct.pack("!Q", f["orig"])
    if op in SEND_IMM or op in WRITE_IMM:
        f["imm"] = u(32)
        b += struct.pack("!I", f["imm"])
    return b


def address(n):
    return ".".join(str(x) for x in n) if len(n) == 4 else ":".join(n[i:i + 2].hex() for i in range(0, 16, 2))


def frame(opcode, six):
    f = {}
    eth_to, eth_from = rng.randbytes(6), rng.randbytes(6)
    f["to"], f["from"] = eth_to.hex(), eth_from.hex()
    size = 16 if six else 4
    ip_from, ip_to = rng.randbytes(size), rng.randbytes(size)
    f["ip_from"], f["ip_to"], f["tclass"], f["ttl"], f["sport"] = ip_from.hex(), ip_to.hex(), u(8), u(8), 0xc000 | u(14)
    if six:
        f["flow"] = u(20)
        ip = IPv6(src=address(ip_from), dst=address(ip_to), tc=f["tclass"], fl=f["flow"], hlim=f["ttl"])
    else:
        f["id"], f["df"] = u(16), u(1)
        flags = "DF" if f["df"] else 0
        ip = IP(src=address(ip_from), dst=address(ip_to), tos=f["tclass"], ttl=f["ttl"], id=f["id"], flags=flags)
    if opcode == CNP_OPCODE:
        f["qpn"] = u(24)
        bth, body = cnp(f["qpn"]), b""
        f.update(opcode=opcode, se=0, m=0, pad=0, pkey=0xffff, fecn=0, becn=1, a=0, psn=0, payload="00" * 16)
    else:
        size = 0 if opcode & 31 in NO_PAYLOAD else rng.choice((0, 1, 2, 3, 4, 100, 1024, 4096, rng.randrange(4097)))
        f["payload"] = (payload := rng.randbytes(size)).hex()
        f.update(opcode=opcode, se=u(1), m=u(1), pad=-size % 4, pkey=u(16), fecn=u(1), becn=u(1), qpn=u(24), a=u(1), psn=u(24))
        bth = BTH(**{name: f[key] for key, name in BTH_FIELDS.items()})
        body = extended(opcode, f) + payload + bytes(f["pad"])
    packet = Ether(src=eth_from, dst=eth_to) / ip / UDP(sport=f["sport"], dport=4791) / bth
    if body:
        packet = packet / Raw(body)
    return packet, f


opcodes = [s << 5 | o for s, ops in ((0, 21), (1, 12), (2, 21)) for o in range(ops)] + [0x64, 0x65, CNP_OPCODE]
packets = []
with open(made, "w") as out:
    for opcode in opcodes:
        for i in range(6):
            packet, fields = frame(opcode, i % 2 == 1)
            packets.append(packet)
            out.write(line(fields))
wrpcap(theirs, packets)
