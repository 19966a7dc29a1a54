#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes a module's ports registers, so that it can be placed and routed without the card around it: every input comes
from a flip-flop of one long shift register, every output goes into a flip-flop. Nothing else of the netlist (Yosys,
JSON) is changed; only the clock and the register's input stay ports.

scan.py TOP IN.json OUT.json: prints how many flip-flops it has added."""

import json
import sys

top, source, target = sys.argv[1:]
with open(source) as file:
    design = json.load(file)
module = design["modules"][top]
ports = module["ports"]
cells = module["cells"]
clock = ports["clk"]["bits"][0]
used = [bit for port in ports.values() for bit in port["bits"]]
used += [bit for cell in cells.values() for bits in cell["connections"].values() for bit in bits]
first = previous = max(bit for bit in used if isinstance(bit, int)) + 1
fresh = first + 1
added = 0


def flip_flop(data, output):
    global added
    cells[f"scan${added}"] = {
        "hide_name": 1,
        "type": "TRELLIS_FF",
        "parameters": {"GSR": "DISABLED", "CEMUX": "1 ", "CLKMUX": "CLK", "LSRMUX": "LSR", "REGSET": "RESET", "SRMODE": "ASYNC"},
        "attributes": {},
        "port_directions": {"CLK": "input", "DI": "input", "Q": "output"},
        "connections": {"CLK": [clock], "DI": [data], "Q": [output]},
    }
    added += 1


for name, port in ports.items():
    if name == "clk":
        continue
    for bit in port["bits"]:
        if not isinstance(bit, int):
            continue
        if port["direction"] == "input":
            flip_flop(previous, bit)
            previous = bit
        else:
            flip_flop(bit, fresh)
            fresh += 1
module["ports"] = {"clk": ports["clk"], "scan": {"direction": "input", "bits": [first]}}
with open(target, "w") as file:
    json.dump(design, file)
print(added)
