#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Places and routes parts of the card for a Lattice LFE5UM5G-85F (ECP5, the largest) with Yosys and nextpnr, at
# DATA_W 64, and says how fast they can be clocked. The whole card has more memory than that device, so each part is
# routed alone, its ports behind flip-flops (scan.py). Runs in the sysroot: route.sh OUTPUT_FOLDER [TOP:QPS...]; the
# reports of each part go to a folder of their own, TOP-QPS.
set -eu
out=${1:?the folder for the reports}
shift
[ "$#" != 0 ] || set -- berth_fp_tx:8 berth_fp_rx:8
cd "$(dirname "$0")/.."
sources="rtl/berth_regs_pkg.sv $(ls rtl/*.sv | grep -v regs_pkg | tr '\n' ' ')"

for part in "$@"; do
    top=${part%%:*} qps=${part#*:} folder=$out/${part%%:*}-${part#*:}
    mkdir -p "$folder"
    sed "s/\(parameter int unsigned QPS *= \)[0-9]*/\1$qps/" "rtl/$top.sv" >"$folder/$top.sv"
    yosys -q -l "$folder/yosys.log" -p "read_verilog -sv -noassert $(echo "$sources" | sed "s#rtl/$top.sv##") $folder/$top.sv;
        synth_ecp5 -top $top; tee -q -o $folder/cells.txt stat -top $top; write_json $folder/$top.json" >/dev/null
    cells() { awk -v cell="$1" '$1 == cell { n = $2 } END { print n + 0 }' "$folder/cells.txt"; }
    echo "route: $top, $qps QPs: $(cells LUT4) LUT4, $(cells TRELLIS_FF) flip-flops, $(cells DP16KD) block RAMs of 18 kbit"
    added=$(python3 synth/scan.py "$top" "$folder/$top.json" "$folder/scan.json")
    nextpnr-ecp5 --um5g-85k --package CABGA756 --speed 8 --freq 125 --seed 1 --timing-allow-fail --quiet \
        --lpf-allow-unconstrained --json "$folder/scan.json" --report "$folder/report.json" --log "$folder/nextpnr.log"
    python3 - "$folder/report.json" "$top" "$added" <<'END'
import json
import sys

with open(sys.argv[1]) as file:
    report = json.load(file)
fmax = max(f["achieved"] for f in report["fmax"].values())
used = ", ".join(f"{name} {n['used']} of {n['available']}" for name, n in report["utilization"].items() if n["used"])
print(f"route: {sys.argv[2]}: {fmax:.1f} MHz; with {sys.argv[3]} flip-flops for its ports: {used}")
path = next(p["path"] for p in report["critical_paths"] if p["from"] == p["to"] or "clk" in p["from"] + p["to"])
for step in path:
    if step["type"] in ("logic", "setup", "clk-to-q", "source"):
        print(f"route:   {step['delay']:6.2f} ns {step['type']:8} {step['from']['cell']}")
END
done
