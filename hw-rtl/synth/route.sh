#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Places and routes the small card (rtl/small, docs/rtl.md), or parts of it, for a Lattice LFE5UM5G-85F (ECP5, the
# largest) with Yosys and nextpnr, at DATA_W 64, and says how fast they can be clocked; the ports are behind flip-flops
# (scan.py). Runs in the sysroot: route.sh OUTPUT_FOLDER [PART...]; the reports of each part go to a folder of their own.
#   berth_small    the whole card, soft core included (berth_small.sv)
#   berth_plain    the same without the fast path
#   TOP:QPS        a module with so many QPs, as berth_fp:8, in TOP-QPS
# BERTH_VEXRISCV names the folder with the soft core's Verilog.
set -eu
out=${1:?the folder for the reports}
shift
[ "$#" != 0 ] || set -- berth_plain berth_fp:8
cd "$(dirname "$0")/.."
core=${BERTH_VEXRISCV:?names the folder with VexRiscv_Full.v}/VexRiscv_Full.v
modules=$(ls rtl/*.sv | grep -v regs_pkg | tr '\n' ' ')

for part in "$@"; do
    top=${part%%:*} folder=$out/$(echo "$part" | tr : -)
    mkdir -p "$folder"
    source=synth/berth_small.sv others=$modules
    case $part in
    berth_plain) sed "s/module berth_small/module berth_plain/; s/\(parameter FAST = \)1/\10/" $source >"$folder/$top.sv" ;;
    *:*)
        sed "s/\(parameter int unsigned QPS *= \)[0-9]*/\1${part#*:}/" "rtl/$top.sv" >"$folder/$top.sv"
        others=$(echo "$modules" | sed "s#rtl/$top.sv##") ;;
    *) cp "$source" "$folder/$top.sv" ;;
    esac
    sed -e "s#@TOP@#$top#g" -e "s#@SOURCES@#rtl/small/berth_regs_pkg.sv $others $folder/$top.sv#" -e "s#@CORE@#$core#" \
        -e "s#@OUT@#$folder#g" synth/route.ys >"$folder/run.ys"
    yosys -q -l "$folder/yosys.log" "$folder/run.ys" >/dev/null
    cells() { awk -v cell="$1" '$1 == cell { n = $2 } END { print n + 0 }' "$folder/cells.txt"; }
    echo "route: $part: $(cells LUT4) LUT4, $(cells TRELLIS_FF) flip-flops, $(cells DP16KD) block RAMs of 18 kbit"
    added=$(python3 synth/scan.py "$top" "$folder/$top.json" "$folder/scan.json")
    echo "route: $part: LFE5UM5G-85F, speed grade 8, seed 1"
    nextpnr-ecp5 --um5g-85k --package CABGA756 --speed 8 --freq 125 --seed 1 --timing-allow-fail --quiet --router router2 \
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
