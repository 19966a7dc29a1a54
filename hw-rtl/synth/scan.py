#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes a module's ports registers, so that it can be placed and routed without the card around it: every input comes
from a flip-flop of one long shift register, every output goes into a flip-flop. Only the clock and the register's input
stay ports. For gw5a they get input buffers, and RAMs with one port for each direction the one reset that they have
there: Yosys 0.52 gives them two, as older devices have. Nothing else of the netlist (Yosys, JSON) is changed.

scan.py FPGA TOP IN.json OUT.json: prints how many flip-flops it has added."""

import json
import sys

fpga, top, source, target = sys.argv[1:]
with open(source) as file:
    design = json.load(file)
module = design["modules"][top]
ports = module["ports"]
cells = module["cells"]
used = [bit for port in ports.values() for bit in port["bits"]]
used += [bit for cell in cells.values() for bits in cell["connections"].values() for bit in bits]
fresh = max(bit for bit in used if isinstance(bit, int))


def net():
    global fresh
    fresh += 1
    return fresh


def cell(name, kind, parameters, inputs, outputs):
    cells[name] = {
        "hide_name": 1,
        "type": kind,
        "parameters": parameters,
        "attributes": {},
        "port_directions": {port: "input" for port in inputs} | {port: "output" for port in outputs},
        "connections": {port: [bit] for port, bit in (inputs | outputs).items()},
    }


def flip_flop(data, output):
    global added
    if fpga == "gw5a":
        cell(f"scan${added}", "DFF", {}, {"CLK": clock, "D": data}, {"Q": output})
    else:
        settings = {"GSR": "DISABLED", "CEMUX": "1 ", "CLKMUX": "CLK", "LSRMUX": "LSR", "REGSET": "RESET", "SRMODE": "ASYNC"}
        cell(f"scan${added}", "TRELLIS_FF", settings, {"CLK": clock, "DI": data}, {"Q": output})
    added += 1


clock = ports["clk"]["bits"][0]
clock_pin, scan_pin = clock, net()
previous = scan_pin
if fpga == "gw5a":
    for ram in (c for c in cells.values() if c["type"] in ("SDPB", "SDPX9B")):
        for ends in ram["connections"], ram["port_directions"]:
            ends.pop("RESETA")
            ends["RESET"] = ends.pop("RESETB")
        ram["port_directions"]["RESET"] = "input"
    clock_pin, previous = net(), net()
    cell("buffer$clk", "IBUF", {}, {"I": clock_pin}, {"O": clock})
    cell("buffer$scan", "IBUF", {}, {"I": scan_pin}, {"O": previous})

added = 0
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
            flip_flop(bit, net())
module["ports"] = {
    "clk": {"direction": "input", "bits": [clock_pin]},
    "scan": {"direction": "input", "bits": [scan_pin]},
}
with open(target, "w") as file:
    json.dump(design, file)
print(added)
